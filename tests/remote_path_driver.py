"""All commands one after the other in one process, on data that lies in memory alone: ram://d.

    python -m tests.remote_path_driver OUTSIDE LIBRARIES

OUTSIDE holds the data. Prints each file that Python opened for writing elsewhere than below TMPDIR or LIBRARIES.
"""

import importlib
import json
import os
import sys
from pathlib import Path

from tests import finetuning_runs, training_runs
from util import filesystem
from util.errors import run_main

DATA = "ram://d"
TAGS = [{"name": "tags", "kind": "tagging", "format": "conll", "token_column": 0, "tag_column": 2}]


def main() -> None:
    outside = Path(sys.argv[1])
    allowed = (os.environ["TMPDIR"], sys.argv[2], os.devnull)
    sys.addaudithook(lambda event, values: _look(event, values, allowed))
    _copy_in(outside)
    training = [*training_runs.pretraining_command(DATA, "small")[1:]]
    command("build_vocab", "--corpus-dir", f"{DATA}/corpus", "--vocab-size", 400, "--output-file", f"{DATA}/vocab.txt")
    shards = ("--vocab-file", f"{DATA}/vocab.txt", "--max-seq-length", 32, "--num-processes", 1)
    build = ("build_pretraining_dataset", "--corpus-dir", f"{DATA}/corpus", *shards)
    command(*build, "--output-dir", f"{DATA}/pretrain_tfrecords", "--num-out-files", 3)
    command("run_pretraining", *training, "--hparams", '{"num_train_steps": 8, "save_checkpoints_steps": 4}')
    command("run_pretraining", *training, "--hparams", '{"num_train_steps": 12, "use_tensorboard": true}')
    command("run_pretraining", *training, "--hparams", '{"do_train": false, "do_eval": true, "num_eval_steps": 2}')
    hparams = {**finetuning_runs.HPARAMS, "task_names": ["mrpc", "squad"], "num_train_epochs": 1}
    del hparams["init_checkpoint"]
    finetuning = ("run_finetuning", "--data-dir", DATA, "--model-name", "small", "--hparams")
    kept = {"keep_best": "loss", "eval_every_steps": 4, "do_predict": True, "write_test_outputs": True}
    command(*finetuning, json.dumps({**hparams, **kept}))
    command(*finetuning, json.dumps({**hparams, "do_train": False,
                                     "init_checkpoint": f"{DATA}/models/small/finetuning_models/mrpc,squad_model_1"}))
    model = f"{DATA}/models/small"
    command("convert_checkpoint", "--from", model, "--to", f"{DATA}/hf", "--format", "huggingface")
    command("convert_checkpoint", "--from", f"{DATA}/hf", "--to", f"{DATA}/again", "--format", "project")
    text = f"{DATA}/corpus/LICENSE"
    command("score_text", "--model-dir", model, "--input", text, "--output-file", f"{DATA}/scores.tsv")
    command("inspect_text", "--model-dir", model, "--input", text, "--embed", f"{DATA}/vectors.npy")
    print("there:", *sorted(name for folder, _, names in filesystem.walk(DATA) for name in
                            (os.path.join(folder, each).removeprefix(f"{DATA}/") for each in names)), sep="\n  ")


def command(name: str, *arguments) -> None:
    """Runs a command's main as its script does."""
    print(f"== {name}", flush=True)
    sys.argv = [f"{name}.py", *map(str, arguments)]
    try:
        code = run_main(importlib.import_module(name).main)
    except SystemExit as end:
        code = end.code
    if code:
        raise SystemExit(f"{name} left with {code}")


def _copy_in(outside: Path) -> None:
    for path in sorted(outside.rglob("*")):
        if path.is_file():
            target = os.path.join(DATA, path.relative_to(outside))
            filesystem.makedirs(os.path.dirname(target))
            filesystem.copy(str(path), target)


def _look(event: str, values: tuple, allowed: tuple[str, ...]) -> None:
    if event == "open":
        path, mode, flags = values
        writes = isinstance(path, str) and flags & (os.O_WRONLY | os.O_RDWR)
    else:
        path, writes = values[0] if values else None, event in ("os.mkdir", "os.rename", "os.link", "os.symlink")
    if writes and isinstance(path, str) and not os.path.abspath(path).startswith(allowed):
        print(f"written outside: {event} {path}", flush=True)


if __name__ == "__main__":
    main()
