#!/usr/bin/env python3
"""Sentences a second: Electric's scores (one pass a text) against a masked language model's (one pass a token).

Both score the same random sentences with the same encoder, of random weights; they take turns, so that a drifting
machine harms both alike. Prints the medians over the rounds and their ratio.

usage: benchmarks/scoring.py [--hidden 128] [--layers 4] [--tokens 25] [--sentences 400] [--rounds 3]
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
WORDS = 8000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=25, help="of a sentence")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main() -> int:
    import numpy as np

    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, arguments)
        scorers = load(folder)
    ids = np.random.RandomState(0).randint(5, WORDS, [arguments.sentences, arguments.tokens]).tolist()
    seconds: dict[str, list[float]] = {method: [] for method in scorers}
    for number in range(arguments.rounds + 1):  # the first compiles
        for method, scorer in scorers.items():
            start = time.perf_counter()
            scorer(ids)
            if number:
                seconds[method].append(time.perf_counter() - start)
    summary(arguments, seconds)
    return 0


def write_model(folder: str, arguments: argparse.Namespace) -> None:
    """A checkpoint whose one encoder has both heads."""
    import tensorflow as tf

    from model import checkpoints
    from model.config import transformer_config
    from model.modeling import Encoder, Initializer, named_variables
    from model.tokenization import SPECIAL_TOKENS
    from pretrain.generators import head_of
    from pretrain.objectives import DiscriminatorHead

    init = Initializer(0, 0.02)
    overrides = {"hidden_size": arguments.hidden, "num_hidden_layers": arguments.layers}
    encoder = Encoder("electra", transformer_config("small", WORDS, overrides), arguments.hidden, init)
    layers = [encoder, DiscriminatorHead(arguments.hidden, init), head_of("generator_predictions", encoder, init)]
    for layer in layers:
        layer.build()
    tensors = {name: tf.identity(variable) for name, variable in named_variables(layers).items()}
    checkpoints.write(os.path.join(folder, "model.ckpt-0"), tensors)
    checkpoints.write_state(folder, [0])
    tokens = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(WORDS - len(SPECIAL_TOKENS)))]
    Path(folder, "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    Path(folder, "hparams.json").write_text(json.dumps({"objective": "electric", "do_lower_case": True}))


def load(folder: str) -> dict:
    """Both scorers of the checkpoint."""
    from scoring.networks import Model
    from scoring.pseudo_likelihood import METHODS, make_scorer
    from scoring.source import add_model_arguments, find_source

    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    model = Model(find_source(parser.parse_args(["--model-dir", folder])))
    return {method: make_scorer(model, method) for method in METHODS}


def summary(arguments: argparse.Namespace, seconds: dict[str, list[float]]) -> None:
    """Prints both medians and their ratio."""
    from util.log import table

    medians = {method: statistics.median(times) for method, times in seconds.items()}
    network = f"{arguments.layers} layers of {arguments.hidden}"
    print(f"{arguments.sentences} sentences of {arguments.tokens} tokens, {network}, {arguments.rounds} rounds, "
          f"{os.cpu_count()} CPUs")  # fmt: skip
    rows = [[method, f"{arguments.sentences / medians[method]:.1f}", f"{medians[method]:.3f}",
             f"{min(times):.3f}-{max(times):.3f}"] for method, times in seconds.items()]  # fmt: skip
    print(table(["method", "sentences/s", "seconds", "lowest-highest"], rows))
    print(f"Electric is {medians['mlm'] / medians['electric']:.1f} times as fast")


if __name__ == "__main__":
    sys.exit(main())
