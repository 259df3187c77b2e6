#!/usr/bin/env python3
"""Seconds a pre-training step: this project in several settings, and a peer, in turn.

Each side is a process of its own on random token ids, dropout 0.1; sides alternate so that a drifting machine harms
all alike. Prints the median over the rounds of each side's median step, the time from the command to the end of the
first step, the peak memory, ratios to the peer, and the share of the matmul ceiling: the time that a step's matrix
products alone would take at the rate of one large product in float32, measured too, over the step's time.

usage: benchmarks/pretraining_step.py [--size small] [--batch 8] [--seq 128] [--steps 20] [--rounds 5]
         [--settings float32 xla bfloat16] [--peer SCRIPT [--peer-python PYTHON]]
The peer is a script with the same --size, --batch, --seq and --steps that prints a JSON line with "median_s".
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    "float32": {},
    "xla": {"use_xla": True},
    "bfloat16": {"precision": "bfloat16"},
    "xla_bfloat16": {"use_xla": True, "precision": "bfloat16"},
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small", choices=["small", "base"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settings", nargs="+", default=["float32", "xla", "bfloat16"], choices=list(SETTINGS))
    parser.add_argument("--peer", help="script of the peer")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peer's packages")
    parser.add_argument("--one", choices=list(SETTINGS), help=argparse.SUPPRESS)  # one measurement, in this process
    parser.add_argument("--ceiling", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.one:
        print(json.dumps(measure(arguments)))
        return 0
    if arguments.ceiling:
        print(json.dumps(ceiling(arguments)))
        return 0
    results: dict[str, list[dict]] = {}
    for number in range(arguments.rounds):
        for side in [*(["peer"] if arguments.peer else []), *arguments.settings, "ceiling"]:
            result = run_side(arguments, side)
            results.setdefault(side, []).append(result)
            print(f"round {number + 1}, {side}: {json.dumps(result)}", flush=True)
    summary(arguments, results)
    return 0


def run_side(arguments: argparse.Namespace, side: str) -> dict:
    """Runs one side in a process and gives its JSON line, with the process's peak memory."""
    work = [f"--{name}={getattr(arguments, name)}" for name in ("size", "batch", "seq", "steps")]
    flag = "--ceiling" if side == "ceiling" else f"--one={side}"
    command = [arguments.peer_python, arguments.peer] if side == "peer" else [sys.executable, __file__, flag]
    start = time.time()
    process = subprocess.Popen(
        [*command, *work],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "BENCHMARK_START": str(start)},
    )
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{side} failed with status {status}; run it by hand: {' '.join([*command, *work])}")
    return {**json.loads(output.strip().splitlines()[-1]), "peak_mb": usage.ru_maxrss // 1024}


def configuration(arguments: argparse.Namespace, setting: dict):
    """The hparams of a step."""
    sys.path.insert(0, str(ROOT))
    from configure_pretraining import make_config

    hparams = {"model_size": arguments.size, "train_batch_size": arguments.batch, "max_seq_length": arguments.seq}
    if arguments.size == "base":
        hparams["generator_hidden_size"] = 1 / 3
    return make_config("benchmark", "benchmark", {**hparams, **setting})


def ceiling(arguments: argparse.Namespace) -> dict:
    """Seconds that the matrix products of a step would take at the rate of one large float32 product."""
    config = configuration(arguments, {})
    import tensorflow as tf

    product = tf.function(tf.linalg.matmul)
    size, times = 2048, []
    left, right = tf.random.normal([size, size]), tf.random.normal([size, size])
    for _ in range(12):
        start = time.perf_counter()
        product(left, right).numpy()
        times.append(time.perf_counter() - start)
    rate = 2 * size**3 / statistics.median(times[2:])
    return {"median_s": matmul_flops(config) / rate, "flops_per_s": rate}


def matmul_flops(config) -> float:
    """Of the matrix products of a step: a multiply-add is 2, a backward pass twice its forward pass."""
    main, generator, length = config.discriminator_config(), config.generator_config(), config.max_seq_length
    width, total = config.main_embedding_size, 2.0 * main.hidden_size**2
    for network in (main, generator):
        hidden = network.hidden_size
        block = 8 * hidden**2 + 4 * hidden * network.intermediate_size + 4 * hidden * length
        total += network.num_hidden_layers * block + 2 * width * hidden * (width != hidden)
    head = 2 * width * (generator.hidden_size + config.vocab_size)
    return 3.0 * config.train_batch_size * (length * total + config.max_predictions_per_seq * head)


def measure(arguments: argparse.Namespace) -> dict:
    """Times the real training step of this project in one setting."""
    sys.path.insert(0, str(ROOT))
    import numpy as np
    import tensorflow as tf

    from model.optimization import AdamWeightDecay, learning_rate
    from pretrain.masking import Inputs, Specials
    from pretrain.pretraining_model import PretrainingModel
    from util.cluster import Cluster
    from util.distribution import open_devices
    from util.train_step import TrainStep

    config = configuration(arguments, SETTINGS[arguments.one])
    strategy = open_devices(config, Cluster()).strategy
    with strategy.scope():
        model = PretrainingModel(config, Specials(101, 102, 103))
    optimizer = AdamWeightDecay(model.variables, config.weight_decay_rate, strategy=strategy)
    step = TrainStep(model, optimizer, strategy, lambda s: learning_rate(s, 5e-4, 1000, 10), use_xla=config.use_xla)

    def batches():
        random = np.random.RandomState(0)
        shape = (arguments.batch, arguments.seq)
        while True:
            yield random.randint(1000, 30522, shape), np.ones(shape), np.zeros(shape), np.arange(arguments.batch)

    shape = tf.TensorSpec([arguments.batch, arguments.seq], tf.int32)
    signature = (shape, shape, shape, tf.TensorSpec([arguments.batch], tf.int32))
    data = tf.data.Dataset.from_generator(batches, output_signature=signature).map(Inputs).prefetch(2)
    iterator, times = iter(data), []
    for number in range(arguments.steps + 4):
        start = time.perf_counter()
        step.run(iterator, tf.constant(1))[2].numpy()
        times.append(time.perf_counter() - start)
        if number == 0:
            first = time.time() - float(os.environ.get("BENCHMARK_START", time.time()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"median_s": statistics.median(times[4:]), "min_s": min(times[4:]), "first_s": first, "peak_mb": peak}


def summary(arguments: argparse.Namespace, results: dict[str, list[dict]]) -> None:
    """Prints a table of medians over the rounds."""
    sys.path.insert(0, str(ROOT))
    from util.log import table

    medians = {side: statistics.median(r["median_s"] for r in rounds) for side, rounds in results.items()}
    highest = results.pop("ceiling")
    rows = []
    for side, rounds in results.items():
        spread = f"{min(r['median_s'] for r in rounds):.3f}-{max(r['median_s'] for r in rounds):.3f}"
        first = f"{statistics.median(r['first_s'] for r in rounds):.1f}" if "first_s" in rounds[0] else ""
        ratio = f"{medians['peer'] / medians[side]:.2f}" if "peer" in medians else ""
        peak = max(r["peak_mb"] for r in rounds)
        share = f"{100 * medians['ceiling'] / medians[side]:.0f}%"
        rate = f"{arguments.batch / medians[side]:.1f}"
        rows.append([side, f"{medians[side]:.3f}", spread, rate, first, peak, share, ratio])
    print()
    print(
        f"{arguments.size}, batch {arguments.batch} x {arguments.seq}, {arguments.rounds} rounds, {os.cpu_count()} CPUs"
    )
    header = ["side", "step s", "spread", "sequences/s", "first step s", "peak MB", "of ceiling", "times the peer"]
    print(table(header, rows))
    rate = statistics.median(each["flops_per_s"] for each in highest)
    print(f"ceiling: {rate / 1e9:.0f} GFLOP/s in float32, with which a step's products take {medians['ceiling']:.3f} s")


if __name__ == "__main__":
    sys.exit(main())
