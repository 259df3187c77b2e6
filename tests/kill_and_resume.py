#!/usr/bin/env python3
"""Shows that a killed and resumed run ends with the very bits of an uninterrupted one.

Trains once without interruption; then again, interrupted at random moments (a quarter of them while a checkpoint is
being written) and started again with the same command each time. Compares all tensors of the final checkpoints and
looks for half-written files.

usage: tests/kill_and_resume.py [--kills 12] [--signal KILL|TERM|INT] [--steps 60] [--seed 0] [--hparams JSON ...]
"""

import argparse
import json
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
    "devices.json",
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
    folder, number = data / "models" / "killed", getattr(signal, f"SIG{arguments.signal}")
    for kill in range(arguments.kills):
        start = latest_step(folder)
        last = start + moments.randint(0, (arguments.steps - start) // (arguments.kills - kill + 1))
        if not interrupt(command, folder, number, last, moments.uniform(0, 0.1), during_save=kill % 4 == 3):
            return [f"the run ended before it was interrupted {arguments.kills} times"]
    last = training_runs.run_script(*command)
    if last.returncode != 0:
        return [f"the last run failed: {last.stderr}"]
    return differences(data, arguments.steps) + leftovers(data, arguments.steps)


def interrupt(command: list[str], folder: Path, number: int, last: int, pause: float, during_save: bool) -> bool:
    """Starts the command and sends it a signal; whether it was still running.

    Args:
      number: the signal.
      last: it is sent when this step is logged (for steps before training goes on: when training begins),
      pause: and so many seconds later;
      during_save: or while a checkpoint is being written.
    """
    process = subprocess.Popen(
        [sys.executable, *command], cwd=training_runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in process.stdout:
        if line.startswith("first step"):
            break
    while process.poll() is None:
        if (folder / ".saving").exists() if during_save else logged_step(folder) >= last:
            break
    time.sleep(0 if during_save else pause)
    process.send_signal(number)
    process.communicate()
    print(
        f"{signal.Signals(number).name}{' during a save' if during_save else ''}: exit code {process.returncode}, "
        f"latest checkpoint {latest_step(folder)}",
        flush=True,
    )
    return process.returncode in (-number, 0 if number == signal.SIGTERM else 130)


def latest_step(folder: Path) -> int:
    """The step of the newest checkpoint."""
    return max((int(path.stem.rsplit("-", 1)[1]) for path in folder.glob("model.ckpt-*.index")), default=0)


def logged_step(folder: Path) -> int:
    """The step of the last whole line of the log."""
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


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
