"""What tests of scoring share: small trained models, and the two commands run in this process."""

import argparse
import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

import inspect_text
import score_text
from model import checkpoints
from model.readers import is_weight
from scoring.networks import Model
from scoring.source import add_model_arguments, find_source
from tests.training_runs import pretrain_here
from util.errors import run_main

HPARAMS = {
    "electra": {},
    "electric": {"electric_objective": True, "generator_hidden_size": 0.5},
    "mlm": {"electra_objective": False},
    "gdes": {"weight_sharing": "gdes"},
}
STEPS = 4
COMMANDS = {"score_text.py": score_text.main, "inspect_text.py": inspect_text.main}


def trained(data: Path, kind: str) -> Path:
    """The folder of a small model of a kind in `HPARAMS`, made when it is first asked for.

    So short a training leaves a network that says the same of every token; noise makes it a loud one.
    """
    folder = data / "models" / f"scoring_{kind}"
    if not folder.exists():
        result = pretrain_here(data, folder.name, {"num_train_steps": STEPS}, HPARAMS[kind])
        assert result.returncode == 0, result.stdout + result.stderr
        prefix, random = str(folder / f"model.ckpt-{STEPS}"), np.random.RandomState(0)
        reader = checkpoints.open_reader(prefix)
        values = {name: reader[name] for name in reader.shapes}
        for name in filter(is_weight, values):
            values[name] = values[name] + random.normal(0, 0.2, values[name].shape).astype(np.float32)
        checkpoints.write(prefix, {name: tf.convert_to_tensor(value) for name, value in values.items()})
    return folder


def load(folder: Path, *flags: object) -> Model:
    """A model as the commands load it."""
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    return Model(find_source(parser.parse_args(["--model-dir", str(folder), *map(str, flags)])))


def command(script: str, *arguments: object) -> subprocess.CompletedProcess:
    """Runs score_text.py or inspect_text.py here, which spares starting TensorFlow; results must go to a file."""
    line, code = [script, *map(str, arguments)], None
    output, errors = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", line), redirect_stdout(output), redirect_stderr(errors):
        try:
            run_main(COMMANDS[script])
        except SystemExit as leave:
            code = leave.code
    return subprocess.CompletedProcess(line, code, output.getvalue(), errors.getvalue())


def score(folder: Path, text: Path, *more: object) -> subprocess.CompletedProcess:
    """Runs score_text.py here."""
    return command("score_text.py", "--model-dir", folder, "--input", text, *more)


def inspect(folder: Path, text: Path, *more: object) -> subprocess.CompletedProcess:
    """Runs inspect_text.py here."""
    return command("inspect_text.py", "--model-dir", folder, "--input", text, *more)


def failed(result: subprocess.CompletedProcess) -> str:
    """The one message of a command that failed as a user's mistake."""
    assert result.returncode == 2 and "Traceback" not in result.stderr, result.stdout + result.stderr
    *_, message = result.stderr.partition("error: ")
    assert message and "error: " not in message, result.stderr
    return message
