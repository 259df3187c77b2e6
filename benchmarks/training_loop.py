#!/usr/bin/env python3
"""Where a pre-training run's time goes on this machine, beside the arithmetic of its networks.

In one process, on random tokens in a temporary folder: the input pipeline alone; steps on one batch that lies in
memory; the training loop with input, logs and progress; evaluation likewise. Each in turn for some rounds, of which
the medians are printed with the share of the matmul ceiling (see pretraining_step.py). Then the kinds of operations
that a step, and a batch of evaluation, spend their time in: time on the threads that begin them, added up.

usage: benchmarks/training_loop.py [--size small] [--batch 8] [--seq 128] [--steps 40] [--rounds 5] [--operations 12]
"""

import argparse
import glob
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import tensorflow as tf  # noqa: E402
from memory import write_data  # noqa: E402
from pretraining_step import ceiling, configuration  # noqa: E402
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace  # noqa: E402

from model.optimization import AdamWeightDecay, learning_rate  # noqa: E402
from pretrain.masking import Specials  # noqa: E402
from pretrain.pretrain_data import BatchReader  # noqa: E402
from pretrain.pretraining_model import PretrainingModel  # noqa: E402
from pretrain.shards import find_shards  # noqa: E402
from util.cluster import Cluster  # noqa: E402
from util.distribution import open_devices  # noqa: E402
from util.log import say, table  # noqa: E402
from util.train_step import TrainStep  # noqa: E402
from util.training import LoopSettings, TrainingLoop  # noqa: E402

# what TensorFlow's trace has beside the operations: calls around them, and pieces of work within them
NOT_OPERATIONS = ("Process", "TFE_", "Eager", "Run", "_run", "_evaluate", "__inference", "ParallelFor", "DoCompute")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small", choices=["small", "base"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--steps", type=int, default=40, help="of each part and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--operations", type=int, default=12, help="how many kinds are printed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parts = Parts(arguments, folder)
        times: dict[str, list[float]] = {}
        for number in range(arguments.rounds + 1):  # of which the first compiles
            for name, part in parts.all.items():
                seconds = part()
                if number:
                    times.setdefault(name, []).append(seconds)
                    say(f"round {number}, {name}: {seconds:.4f} s")
        tf.random.set_seed(1)
        step = ceiling(arguments)["median_s"]
        arithmetic = {"step": step, "loop": step, "forward": step / 3, "evaluation": step / 3}
        rows = []
        for name, seconds in times.items():
            median, share = statistics.median(seconds), arithmetic.get(name)
            rows.append([name, f"{median:.4f}", f"{min(seconds):.4f}-{max(seconds):.4f}"])
            rows[-1].append(f"{100 * share / median:.0f}%" if share else "")
        say(f"\n{arguments.size}, batch {arguments.batch} x {arguments.seq}")
        say(table(["part", "seconds a batch", "spread", "of ceiling"], rows))
        for name in ("step", "forward"):
            say(f"\noperations of a {name}")
            say(table(["operation", "number", "ms"], operations(parts.all[name], arguments)))
    return 0


class Parts:
    """What is timed: each function does `steps` batches and gives seconds a batch."""

    def __init__(self, arguments: argparse.Namespace, folder: str):
        self.steps, self.folder = arguments.steps, folder
        self.config = configuration(arguments, {})
        self.config.data_dir = folder
        self.config.vocab_file = f"{folder}/vocab.txt"
        self.config.pretrain_tfrecords = f"{folder}/pretrain_tfrecords/pretrain_data.tfrecord*"
        write_data(self.config)
        self.devices = open_devices(self.config, Cluster())
        with self.devices.strategy.scope():
            model = PretrainingModel(self.config, Specials(2, 3, 4))
        optimizer = AdamWeightDecay(model.variables, self.config.weight_decay_rate, strategy=self.devices.strategy)
        self.step = TrainStep(model, optimizer, self.devices.strategy, lambda s: learning_rate(s, 5e-4, 10**6, 10))
        reader = BatchReader(find_shards(self.config.pretrain_tfrecords), self.config, arguments.batch, 1, range(1))
        self.training = iter(reader.training(0))
        self.held_out = iter(reader.evaluation().repeat())
        self.in_memory = iter(tf.data.Dataset.from_tensors(next(self.training)).repeat())
        self.all = {
            "input": lambda: self._timed(lambda: [next(self.training) for _ in range(self.steps)]),
            "step": lambda: self._timed(lambda: self.step.run(self.in_memory, tf.constant(self.steps))[2].numpy()),
            "loop": lambda: self._timed(self._loop),
            "forward": lambda: self._timed(lambda: self._evaluate(self.in_memory)),
            "evaluation": lambda: self._timed(lambda: self._evaluate(self.held_out)),
        }

    def _timed(self, part) -> float:
        start = time.perf_counter()
        part()
        return (time.perf_counter() - start) / self.steps

    def _evaluate(self, batches) -> None:
        self.step.evaluate(batches, tf.constant(self.steps)).numpy()

    def _loop(self) -> None:
        last = int(self.step.step.numpy()) + self.steps
        settings = LoopSettings(last, 200, 10**9, None, 20, self.folder)
        loop = TrainingLoop(self.step, self.devices, settings)
        loop._save = lambda: None  # a checkpoint's time is another question
        loop.run(self.training)


def operations(part, arguments: argparse.Namespace) -> list[list[str]]:
    """Kinds of operations, how many a batch has of each, and their milliseconds; the longest first."""
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            part()
        [path] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        trace = XSpace.FromString(Path(path).read_bytes())
    seconds: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for plane in trace.planes:
        for event in (event for line in plane.lines for event in line.events):
            kind = plane.event_metadata[event.metadata_id].name.rpartition(":")[2].strip()
            if not kind.startswith(NOT_OPERATIONS):
                seconds[kind] += event.duration_ps * 1e-12
                numbers[kind] += 1
    rows = [[kind, numbers[kind], time] for kind, time in seconds.most_common()]
    head, rest = rows[: arguments.operations], rows[arguments.operations :]
    head.append(["all others", sum(row[1] for row in rest), sum(row[2] for row in rest)])
    return [[kind, f"{n / arguments.steps:.0f}", f"{1e3 * time / arguments.steps:.2f}"] for kind, n, time in head]


if __name__ == "__main__":
    sys.exit(main())
