"""Small real fine-tuning runs for tests: tasks of made-up sentences, then run_finetuning.py as a user starts it."""

import io
import json
import random
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from tests import training_runs
from util.errors import run_main

HPARAMS = {
    "vocab_size": 400,
    "embedding_size": 16,
    "model_hparam_overrides": training_runs.NETWORK,
    "max_seq_length": 32,
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "learning_rate": 1e-3,
    "num_train_epochs": 2,
    "log_every_steps": 1,
    "use_tensorboard": False,
    "init_checkpoint": None,
}
NO_DROPOUT = training_runs.NO_DROPOUT
WORDS = "license copyright work free software source code form notice terms law party right change".split()


def sentence(words: random.Random, least: int = 3, most: int = 9) -> list[str]:
    return [words.choice(WORDS) for _ in range(words.randint(least, most))]


def make_tasks(data: Path, examples: int = 44) -> None:
    """Writes mrpc, rte, chunk and squad, each of `examples` and half as many examples, learnable from the words."""
    words = random.Random(0)
    for split, count in (("train", examples), ("dev", examples // 2), ("test", examples // 4)):
        pairs = [(" ".join(sentence(words)), " ".join(sentence(words))) for _ in range(count)]
        same = [i % 2 for i in range(count)]
        _write(data, f"mrpc/{split}.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + "".join(
            f"{same[i]}\t1\t2\t{a}\t{a if same[i] else b}\n" for i, (a, b) in enumerate(pairs)
        ))  # fmt: skip
        kinds = ["entailment" if "law" in a else "not_entailment" for a, _ in pairs]
        _write(data, f"rte/{split}.tsv", "index\tsentence1\tsentence2\tlabel\n" + "".join(
            f"{i}\t{a}\t{b}\t{kinds[i]}\n" for i, (a, b) in enumerate(pairs)
        ))  # fmt: skip
        sentences = [sentence(words) for _ in range(count)]
        lines = ("".join(f"{word} X {'B-NP' if word > 'm' else 'O'}\n" for word in s) for s in sentences)
        _write(data, f"chunk/{split}.txt", "\n".join(lines))
        _write(data, f"squad/{split}.json", json.dumps(_squad(split, [sentence(words, 6, 40) for _ in range(count)])))


def _squad(split: str, contexts: list[list[str]]) -> dict:
    paragraphs = []
    for i, context in enumerate(contexts):
        place = i % len(context)
        answer = {"text": context[place], "answer_start": len(" ".join(context[:place])) + (place > 0)}
        impossible = i % 3 == 2
        question = {"id": f"{split}{i}", "question": f"where is {context[place]}", "is_impossible": impossible}
        answers = [] if impossible else [answer]
        paragraphs.append({"context": " ".join(context), "qas": [{**question, "answers": answers}]})
    return {"version": "v2.0", "data": [{"title": split, "paragraphs": paragraphs}]}


def _write(data: Path, name: str, text: str) -> None:
    path = data / "finetuning_data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def finetuning_command(data: Path, model: str, *hparams: dict | str) -> list[str]:
    """The arguments of a run of run_finetuning.py."""
    command = ["run_finetuning.py", "--data-dir", str(data), "--model-name", model]
    for values in (HPARAMS, *hparams):
        command += ["--hparams", values if isinstance(values, str) else json.dumps(values)]
    return command


def finetune(data: Path, model: str, *hparams: dict | str, **environment: str) -> subprocess.CompletedProcess:
    """Runs run_finetuning.py to its end."""
    return training_runs.run_script(*finetuning_command(data, model, *hparams), **environment)


def finetune_here(data: Path, model: str, *hparams: dict | str) -> subprocess.CompletedProcess:
    """The same in this process, which spares starting TensorFlow; for runs on one device that nobody interrupts."""
    import run_finetuning

    command, code = finetuning_command(data, model, *hparams), None
    output, errors = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", command), redirect_stdout(output), redirect_stderr(errors):
        try:
            run_main(run_finetuning.main)
        except SystemExit as leave:
            code = leave.code
    return subprocess.CompletedProcess(command, code, output.getvalue(), errors.getvalue())


def results(data: Path, model: str, tasks: str) -> dict:
    """What results/<tasks>_results.json holds."""
    path = data / "models" / model / "results" / f"{tasks}_results.json"
    return json.loads(path.read_text(encoding="utf-8"))
