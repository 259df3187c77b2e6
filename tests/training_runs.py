"""Small real training runs for tests: text to shards once, then run_pretraining.py as a user would start it."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import numpy as np

from util.errors import run_main

ROOT = Path(__file__).parent.parent
NETWORK = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
HPARAMS = {
    "vocab_size": 400,
    "embedding_size": 16,
    "max_seq_length": 32,
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "num_train_steps": 20,
    "num_warmup_steps": 5,
    "learning_rate": 1e-3,
    "log_every_steps": 1,
    "use_tensorboard": False,
    "model_hparam_overrides": NETWORK,
}
NO_DROPOUT = {"model_hparam_overrides": {**NETWORK, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}}


def run_script(*arguments: str, timeout: float = 240, **environment: str) -> subprocess.CompletedProcess:
    """Runs a command of the repository's root to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def make_data(folder: Path) -> Path:
    """A data folder with a vocabulary and shards of the repository's own documents."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for name in ("LICENSE", "tests/golden/model/corpus/GPL-3.txt"):
        (corpus / Path(name).name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    vocab, shards = str(folder / "vocab.txt"), str(folder / "pretrain_tfrecords")
    for arguments in (
        ("build_vocab.py", "--corpus-dir", str(corpus), "--vocab-size", "400", "--output-file", vocab),
        ("build_pretraining_dataset.py", "--corpus-dir", str(corpus), "--vocab-file", vocab, "--output-dir", shards)
        + ("--max-seq-length", "32", "--num-out-files", "3"),
    ):
        result = run_script(*arguments)
        assert result.returncode == 0, result.stderr
    return folder


def pretraining_command(data: Path, model: str, *hparams: dict | str) -> list[str]:
    """The arguments of a run of run_pretraining.py."""
    command = ["run_pretraining.py", "--data-dir", str(data), "--model-name", model]
    for values in (HPARAMS, *hparams):
        command += ["--hparams", values if isinstance(values, str) else json.dumps(values)]
    return command


def pretrain(data: Path, model: str, *hparams: dict | str, **environment: str) -> subprocess.CompletedProcess:
    """Runs run_pretraining.py to its end."""
    return run_script(*pretraining_command(data, model, *hparams), **environment)


def pretrain_here(data: Path, model: str, *hparams: dict | str) -> subprocess.CompletedProcess:
    """The same in this process, which spares starting TensorFlow; for runs on one device that nobody interrupts."""
    import run_pretraining

    command, code = pretraining_command(data, model, *hparams), None
    output, errors = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", command), redirect_stdout(output), redirect_stderr(errors):
        try:
            run_main(run_pretraining.main)
        except SystemExit as leave:
            code = leave.code
    return subprocess.CompletedProcess(command, code, output.getvalue(), errors.getvalue())


def read_metrics(data: Path, model: str, split: str = "train") -> list[dict]:
    """The records of a run's metrics.jsonl."""
    lines = (data / "models" / model / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["split"] == split]


def read_checkpoint(data: Path, model: str, step: int) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(data / "models" / model / f"model.ckpt-{step}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
