#!/usr/bin/env python3
"""Peak memory of a training on a CPU beside its estimate (pretrain.memory), for several ways to train.

Each is a run of run_pretraining.py, a process of its own, on random tokens in a temporary folder: three steps, and a
checkpoint at the end. Measured is the process's peak resident memory, less that of a process which only imports.
Needs Linux.

usage: benchmarks/memory.py [--size base] [--batch 4] [--seq 512] [--settings plain recompute_layers ...]
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

from configure_pretraining import make_config  # noqa: E402
from model.memory import size_text  # noqa: E402
from model.tokenization import SPECIAL_TOKENS  # noqa: E402
from pretrain.memory import estimated  # noqa: E402
from util.log import say, table  # noqa: E402
from util.tf_example import example_bytes  # noqa: E402
from util.tfrecords import record_bytes  # noqa: E402

SETTINGS = {
    "plain": {},
    "recompute_layers": {"recompute_layers": True},
    "accumulation": {"gradient_accumulation_steps": 4},
    "bfloat16_slots": {"bfloat16_slots": True},
    "all of them": {"recompute_layers": True, "gradient_accumulation_steps": 4, "bfloat16_slots": True},
}
IMPORTS = "import run_pretraining, pretrain.pretraining_run"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=["small", "base", "large"])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    arguments = parser.parse_args()
    sizes = {"preset": arguments.size, "train_batch_size": arguments.batch, "max_seq_length": arguments.seq}
    rows, imports = [], peak([sys.executable, "-c", IMPORTS])
    say(f"after the imports: {size_text(imports)}")
    with tempfile.TemporaryDirectory() as data:
        config = make_config("memory", data, sizes)
        write_data(config)
        for name in arguments.settings:
            hparams = {**sizes, **SETTINGS[name], "num_train_steps": 3, "eval_batch_size": 1, "overwrite": True}
            command = [sys.executable, "run_pretraining.py", "--data-dir", data, "--model-name", "memory"]
            measured = peak([*command, "--hparams", json.dumps(hparams)]) - imports
            estimate = estimated(make_config("memory", data, hparams), replicas=1, on_cpu=True).total
            rows.append([name, size_text(estimate), size_text(measured), f"{estimate / measured:.2f}"])
            say(" ".join(rows[-1]))
    say(f"\n{arguments.size}, batch {arguments.batch} x {arguments.seq}, {len(os.sched_getaffinity(0))} CPUs")
    say(table(["setting", "estimate", "measured", "ratio"], rows))
    return 0


def peak(command: list[str]) -> float:
    """Peak resident memory in bytes of a command that is run to its end."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed with status {status}; run it by hand: {' '.join(command)}")
    return usage.ru_maxrss * 1024.0


def write_data(config) -> None:
    """A vocabulary, and a shard of random tokens."""
    pieces = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(config.vocab_size - len(SPECIAL_TOKENS)))]
    Path(config.vocab_file).write_text("\n".join(pieces) + "\n")
    shard = Path(config.pretrain_tfrecords.replace("*", "-0"))
    shard.parent.mkdir()
    ids = np.random.RandomState(0).randint(5, config.vocab_size, [4 * config.train_batch_size, config.max_seq_length])
    ids[:, 0] = pieces.index("[CLS]")
    same = {"input_mask": [1] * config.max_seq_length, "segment_ids": [0] * config.max_seq_length}
    shard.write_bytes(b"".join(record_bytes(example_bytes({"input_ids": row, **same}, {})) for row in ids.tolist()))


if __name__ == "__main__":
    sys.exit(main())
