"""What the tests of the builder commands share: running them as their users do, and reading what they wrote."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
BUILDING = "building.tmp"

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", ".", "a", "##a"]


def command(script: str, *args: object) -> list[str]:
    """The command line of a script at the top of the project."""
    return [sys.executable, str(ROOT / script), *map(str, args)]


def run(script: str, *args: object, **options) -> subprocess.CompletedProcess:
    """Runs a script to its end."""
    return subprocess.run(command(script, *args), capture_output=True, text=True, timeout=300, check=False, **options)


def fails(result: subprocess.CompletedProcess, *parts: str) -> None:
    """Checks that a command ended with one message, exit code 2 and no traceback."""
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("error: ") == 1 and result.stderr.startswith("error: "), result.stderr
    assert "Traceback" not in result.stderr + result.stdout
    for part in parts:
        assert part in result.stderr


def peak_memory_of(script: str, *args: object) -> tuple[float, str]:
    """Runs a script: the peak memory in MB of the largest of its processes, and what it printed."""
    measure = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    measured = [sys.executable, "-c", measure, *command(script, *args)]
    printed = subprocess.run(measured, capture_output=True, text=True, timeout=300, check=True).stdout
    return float(printed.splitlines()[-1]), printed


def start(script: str, *args: object) -> subprocess.Popen:
    """Starts a script and waits until its workers begin to write."""
    process = subprocess.Popen(command(script, *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output = Path(args[args.index("--output-dir") + 1])
    wait_for(lambda: list((output / BUILDING).glob("pretrain_data*")))
    return process


def wait_for(condition, seconds: float = 60) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def workers(process: subprocess.Popen) -> list[psutil.Process]:
    """The worker processes of a running builder."""
    children = psutil.Process(process.pid).children()
    return [child for child in children if any("spawn_main" in part for part in child.cmdline())]


def files(folder: Path) -> list[str]:
    """What lies in a folder, hidden files too."""
    return sorted(os.listdir(folder)) if folder.exists() else []


def shards(folder: Path) -> dict[str, bytes]:
    """The content of each shard."""
    return {path.name: path.read_bytes() for path in folder.glob("pretrain_data.tfrecord-*")}


def number_of_records(content: bytes) -> int:
    """The number of records in a TFRecord file."""
    number = 0
    while content:
        content = content[16 + int.from_bytes(content[:8], "little") :]
        number += 1
    return number


def manifest(folder: Path) -> dict:
    """The manifest of a folder of shards."""
    return json.loads((folder / "manifest.json").read_text())
