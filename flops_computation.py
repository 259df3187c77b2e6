#!/usr/bin/env python3
"""Training FLOPs by the papers' counting rules: of the papers' models, or of any hparams of run_pretraining.py.

    python flops_computation.py                                        the papers' models
    python flops_computation.py --hparams preset=base                  one model, with what its parts cost
    python flops_computation.py --hparams objective=mlm --flops 1.29e18    how many steps cost as much
"""

import argparse
import dataclasses
import json
import sys

from configure_pretraining import make_config, validate
from model.config import TransformerConfig, generator_config
from pretrain.flops import (
    MASKED_SHARE,
    discriminator_head_flops,
    encoder_flops,
    generator_flops,
    main_flops,
    softmax_flops,
    steps_for_flops,
    training_flops,
)
from util.errors import UserError, run_main
from util.hparams import parse_hparams
from util.log import say, table


@dataclasses.dataclass(frozen=True)
class PaperModel:
    """A model of the papers' tables; heads are 64 wide and FFNs four times the hidden size."""

    hidden: int
    layers: int
    steps: int
    batch: int
    length: int = 512
    embedding: int | None = None  # None: the hidden size
    generator: float = 0.0  # fraction of the hidden size; 0: no generator
    vocab_size: int = 30522
    predicted: float = MASKED_SHARE  # share of positions with a softmax, where there is no generator

    def flops(self) -> float:
        """Of the whole training."""
        h, width = self.hidden, self.embedding or self.hidden
        network = TransformerConfig(self.vocab_size, h, self.layers, h // 64, 4 * h)
        position = encoder_flops(network, width, self.length)
        if self.generator:
            small = generator_config(network, 1.0, self.generator)
            position += discriminator_head_flops(network)
            position += encoder_flops(small, width, self.length) + MASKED_SHARE * softmax_flops(small, width)
        else:
            position += self.predicted * softmax_flops(network, width)
        return 2.0 * self.batch * self.steps * self.length * position


PAPER_MODELS = {
    "bert_small": PaperModel(256, 12, 1_450_000, 128, 128, embedding=128),
    "bert_base": PaperModel(768, 12, 1_000_000, 256),
    "gpt": PaperModel(768, 12, 960_800, 128, vocab_size=40_000, predicted=1.0),
    "electra_small": PaperModel(256, 12, 1_000_000, 128, 128, embedding=128, generator=1 / 4),
    "electra_base": PaperModel(768, 12, 766_000, 256, generator=1 / 3),
    "electra_400k": PaperModel(1024, 24, 400_000, 2048, generator=1 / 4),
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hparams", action="append", default=[], metavar="JSON|FILE|NAME=VALUE",
                        help="of run_pretraining.py; may be given several times")  # fmt: skip
    parser.add_argument("--flops", type=float, help="say how many steps cost so much")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def main() -> int:
    """Prints a table, or what hparams cost."""
    arguments = parse_arguments()
    if arguments.flops is not None and not 0 < arguments.flops < float("inf"):
        raise UserError(f"--flops must be a number above 0; got {arguments.flops}")
    if arguments.hparams or arguments.flops:
        found = cost_of(parse_hparams(arguments.hparams), arguments.flops)
    else:
        found = {name: model.flops() for name, model in PAPER_MODELS.items()}
    if arguments.json:
        say(json.dumps(found, indent=2))
    else:
        say(table(["", "FLOPs" if "bert_small" in found else ""], [[k, number_text(v)] for k, v in found.items()]))
    return 0


def cost_of(hparams: dict, flops: float | None) -> dict[str, float]:
    """What hparams cost: a position of each network, the whole training, and the steps that cost `flops`."""
    config = make_config("model", "data", hparams)
    validate(config)
    found = {
        "FLOPs of a position, main network": main_flops(config),
        "FLOPs of a position, generator": generator_flops(config),
        "FLOPs of the first step": training_flops(config, 1),
        "steps": config.num_train_steps,
        "FLOPs of the training": training_flops(config, config.num_train_steps),
    }
    return found | ({"steps for --flops": steps_for_flops(config, flops)} if flops else {})


def number_text(value: float) -> str:
    """A count as it is, FLOPs to 14 digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.14g}"


if __name__ == "__main__":
    sys.exit(run_main(main))
