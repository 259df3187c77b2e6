#!/usr/bin/env python3
"""Shows that a killed and resumed run ends with the very bits of an uninterrupted one.

Trains once without interruption; then again, interrupted at random moments (a quarter of them while a checkpoint is
being written) and started again with the same command each time. Compares all tensors of the final checkpoints and
looks for half-written files.

usage: tests/kill_and_resume.py [--kills 12] [--signal KILL|TERM|INT] [--steps 60] [--seed 0] [--hparams JSON ...]
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests import training_runs  # noqa: E402

# large enough that a save takes a while: with its slots a checkpoint of some megabytes every third step
NETWORK = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
EXPECTED = {
    "checkpoint",
    "metrics.jsonl",
    "hparams.json",
    "transformer_configs.json",
    "data.json",
    "tokenizer_config.json",
    "vocab.txt",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--signal", default="KILL", choices=["KILL", "TERM", "INT"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--hparams", action="append", default=[])
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kill_and_resume_"))
    try:
        problems = compare(training_runs.make_data(folder), arguments)
    finally:
        shutil.rmtree(folder)
    print("\n".join(problems) or "equal: every tensor, slots and step included; no file half-written")
    return 1 if problems else 0


def compare(data: Path, arguments: argparse.Namespace) -> list[str]:
    """Runs both and lists what differs."""
    hparams = [
        {
            "num_train_steps": arguments.steps,
            "save_checkpoints_steps": 3,
            "keep_checkpoint_max": 3,
            "iterations_per_loop": 2,
            "log_every_steps": 1,
            "model_hparam_overrides": NETWORK,
        },
        *arguments.hparams,
    ]
    whole = training_runs.pretrain(data, "whole", *hparams)
    if whole.returncode != 0:
        return [f"the uninterrupted run failed: {whole.stderr}"]
    command = training_runs.pretraining_command(data, "killed", *hparams)
    moments = random.Random(arguments.seed)
    for number in range(arguments.kills):
        interrupt(command, data, moments, getattr(signal, f"SIG{arguments.signal}"), during_save=number % 4 == 3)
    last = training_runs.run_script(*command)
    if last.returncode != 0:
        return [f"the last run failed: {last.stderr}"]
    return differences(data, arguments.steps) + leftovers(data, arguments.steps)


def interrupt(command: list[str], data: Path, moments: random.Random, number: int, during_save: bool) -> None:
    """Starts the command and sends it a signal at a random moment, or while a checkpoint is being written."""
    process = subprocess.Popen(
        [sys.executable, *command], cwd=training_runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    saving, started, begin = data / "models" / "killed" / ".saving", None, time.monotonic()
    wait = 0.0 if moments.random() < 0.2 else moments.uniform(0, 1.5)  # seconds after training began
    for line in process.stdout:
        if line.startswith("first step"):
            started = time.monotonic()
            break
    while process.poll() is None and time.monotonic() - begin < 120:
        if during_save and saving.exists() or not during_save and time.monotonic() - started >= wait:
            break
    process.send_signal(number)
    process.communicate()
    steps = [int(path.stem.rsplit("-", 1)[1]) for path in saving.parent.glob("model.ckpt-*.index")]
    print(
        f"{signal.Signals(number).name}{' during a save' if during_save else ''}: exit code {process.returncode}, "
        f"latest checkpoint {max(steps, default=0)}",
        flush=True,
    )


def differences(data: Path, steps: int) -> list[str]:
    """Tensors of the final checkpoints that are not the same bits."""
    whole, killed = (training_runs.read_checkpoint(data, model, steps) for model in ("whole", "killed"))
    if whole.keys() != killed.keys():
        return [f"other tensors: {sorted(whole.keys() ^ killed.keys())}"]
    print(f"comparing {len(whole)} tensors")
    return [
        f"{name} differs" for name in whole if np.asarray(whole[name]).tobytes() != np.asarray(killed[name]).tobytes()
    ]


def leftovers(data: Path, steps: int) -> list[str]:
    """Files of the killed run's folder that should not be there, and records that the log lacks or has twice."""
    folder = data / "models" / "killed"
    names = {path.name for path in folder.iterdir()}
    checkpoints = {name for name in names if name.startswith("model.ckpt-")}
    problems = [f"left over: {name}" for name in sorted(names - EXPECTED - checkpoints)]
    problems += [
        f"incomplete checkpoint: {name}"
        for name in checkpoints
        if name.endswith(".index") and name.replace(".index", ".data-00000-of-00001") not in names
    ]
    logged = [record["step"] for record in training_runs.read_metrics(data, "killed")]
    return problems + ([] if logged == list(range(1, steps + 1)) else [f"metrics.jsonl has the steps {logged}"])


if __name__ == "__main__":
    sys.exit(main())
