#!/usr/bin/env python3
"""Peak memory of a training on a CPU beside its estimate, for several ways to train.

Each is a run of run_pretraining.py, or with --finetuning of run_finetuning.py, a process of its own, on random tokens
in a temporary folder: three steps, and a checkpoint at the end. Measured is the process's peak resident memory, less
that of a process which only imports. Needs Linux.

usage: benchmarks/memory.py [--finetuning] [--size base] [--batch 4] [--seq 512] [--settings plain recompute_layers ...]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import configure_finetuning  # noqa: E402
import configure_pretraining  # noqa: E402
import finetune.memory  # noqa: E402
import pretrain.memory  # noqa: E402
from model.memory import size_text  # noqa: E402
from model.tokenization import SPECIAL_TOKENS  # noqa: E402
from util.log import say, table  # noqa: E402
from util.tf_example import example_bytes  # noqa: E402
from util.tfrecords import record_bytes  # noqa: E402

SETTINGS = {
    "plain": {},
    "recompute_layers": {"recompute_layers": True},
    "accumulation": {"gradient_accumulation_steps": 4},
    "bfloat16_slots": {"bfloat16_slots": True},
    "freeze_layers": {"freeze_layers": 6},  # of fine-tuning alone
    "all of them": {"recompute_layers": True, "gradient_accumulation_steps": 4, "bfloat16_slots": True},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finetuning", action="store_true")
    parser.add_argument("--size", default="base", choices=["small", "base", "large"])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS))
    arguments = parser.parse_args()
    chosen = arguments.settings or [name for name in SETTINGS if name != "freeze_layers" or arguments.finetuning]
    sizes = {"model_size": arguments.size, "train_batch_size": arguments.batch, "max_seq_length": arguments.seq}
    if arguments.finetuning:
        command, configure, estimated = "run_finetuning", configure_finetuning, finetune.memory.estimated
        sizes |= {"task_names": ["rte"], "init_checkpoint": None, "num_train_epochs": 1, "do_eval": False}
    else:
        command, configure, estimated = "run_pretraining", configure_pretraining, pretrain.memory.estimated
        sizes |= {"num_train_steps": 3, "eval_batch_size": 1}
    modules = {"run_finetuning": "finetune.finetuning_run", "run_pretraining": "pretrain.pretraining_run"}
    rows, imports = [], peak([sys.executable, "-c", f"import {command}, {modules[command]}"])
    say(f"after the imports: {size_text(imports)}")
    with tempfile.TemporaryDirectory() as data:
        write_data(configure_pretraining.make_config("memory", data, {"vocab_size": 30522}), arguments)
        for name in chosen:
            hparams = {**sizes, **SETTINGS[name], "overwrite": True}
            run = [sys.executable, f"{command}.py", "--data-dir", data, "--model-name", "memory"]
            measured = peak([*run, "--hparams", json.dumps(hparams)]) - imports
            estimate = estimated(configure.make_config("memory", data, hparams), replicas=1, on_cpu=True).total
            rows.append([name, size_text(estimate), size_text(measured), f"{estimate / measured:.2f}"])
            say(" ".join(rows[-1]))
    cpus = len(os.sched_getaffinity(0))
    say(f"\n{command}, {arguments.size}, batch {arguments.batch} x {arguments.seq}, {cpus} CPUs")
    say(table(["setting", "estimate", "measured", "ratio"], rows))
    return 0


def peak(command: list[str]) -> float:
    """Peak resident memory in bytes of a command that is run to its end."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed with status {status}; run it by hand: {' '.join(command)}")
    return usage.ru_maxrss * 1024.0


def write_data(config, arguments: argparse.Namespace) -> None:
    """A vocabulary, a shard of random tokens, and a task of random sentences as long as they may be."""
    pieces = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(config.vocab_size - len(SPECIAL_TOKENS)))]
    Path(config.vocab_file).write_text("\n".join(pieces) + "\n")
    shard = Path(config.pretrain_tfrecords.replace("*", "-0"))
    shard.parent.mkdir()
    ids = np.random.RandomState(0).randint(5, config.vocab_size, [4 * arguments.batch, arguments.seq])
    ids[:, 0] = pieces.index("[CLS]")
    same = {"input_mask": [1] * arguments.seq, "segment_ids": [0] * arguments.seq}
    shard.write_bytes(b"".join(record_bytes(example_bytes({"input_ids": row, **same}, {})) for row in ids.tolist()))
    folder = Path(config.data_dir) / "finetuning_data" / "rte"
    folder.mkdir(parents=True)
    lines = ["index\tsentence1\tsentence2\tlabel"]
    for number, row in enumerate(ids[: 3 * arguments.batch]):
        words = [pieces[piece] for piece in row]
        half = len(words) // 2
        lines.append(f"{number}\t{' '.join(words[:half])}\t{' '.join(words[half:])}\tentailment")
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
