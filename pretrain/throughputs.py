"""How fast named devices train, from published measurements: sequences a second of ELECTRA-base.

Source: NVIDIA, DeepLearningExamples, TensorFlow2/LanguageModeling/ELECTRA/README.md, "Training performance results"
(October 2020): pre-training of ELECTRA-base with XLA, the largest batches that fit, Wikipedia and BookCorpus. There
float32 is TF32 on the A100 and mixed precision is float16.
"""

import functools
import math
import re
from typing import NamedTuple

from configure_pretraining import PretrainingConfig, make_config
from pretrain.flops import training_flops
from util.errors import UserError, nearest_hint

# kind: {devices: {length: (float32, mixed precision)}}
PUBLISHED = {
    "V100-16G": {1: {128: (116, 444), 512: (24, 84)}, 8: {128: (920, 3475), 512: (190, 656)}},
    "V100-32G": {
        1: {128: (128, 500), 512: (27, 96)},
        8: {128: (1011, 3916), 512: (213, 754)},
        16: {128: (2018, 7773), 512: (426, 1506)},
    },
    "A100-40G": {1: {128: (533, 955), 512: (90, 171)}, 8: {128: (4202, 7512), 512: (716, 1347)}},
}
MOST_DEVICES = 99_999


class Setup(NamedTuple):
    """Some devices of one kind."""

    count: int
    kind: str  # of `PUBLISHED`

    @property
    def name(self) -> str:
        """ "8xA100-40G"."""
        return f"{self.count}x{self.kind}"

    @property
    def memory(self) -> float:
        """Bytes of each device, as the last part of its name has them."""
        return 1e9 * int(self.kind.rsplit("-", 1)[1].removesuffix("G"))


class Training(NamedTuple):
    """What a training takes on some devices."""

    seconds: float
    source: str  # of the throughput: "published", or how it follows from what is


def setups(names: list[str]) -> list[Setup]:
    """The devices of these names ("A100-40G", "8xA100-40G"); all that were measured where there are no names.

    Raises:
      UserError: an unknown kind, or none of it.
    """
    return [_setup(name) for name in names] or [Setup(n, kind) for kind, counts in PUBLISHED.items() for n in counts]


def training(config: PretrainingConfig, setup: Setup) -> Training:
    """All steps of a config: the FLOPs, over those a second of ELECTRA-base at the nearest length that was measured.

    Of a number of devices that was not measured, the next smaller one that was counts in proportion.
    """
    measured = PUBLISHED[setup.kind]
    count = max(n for n in measured if n <= setup.count)
    length = min(measured[count], key=lambda known: abs(math.log(known / config.max_seq_length)))
    published = measured[count][length][config.precision != "float32"] * setup.count / count
    flops = training_flops(config, config.num_train_steps)
    seconds = flops / (published * _base_flops(length))
    examples = config.num_train_steps * config.train_batch_size
    same = math.isclose(flops, examples * _base_flops(length), rel_tol=1e-9)
    source = [] if same else [f"by FLOPs from base at {length}"]
    source += [] if count == setup.count else [f"{setup.count} / {count} times {Setup(count, setup.kind).name}"]
    return Training(seconds, ", ".join(source) or "published")


def _setup(name: str) -> Setup:
    count, kind = re.fullmatch(r"(?s)(?:(-?\d+)x)?(.*)", name).groups()
    if kind not in PUBLISHED:
        raise UserError(
            f'--plan: no throughput of the device "{name}" is known{nearest_hint(kind, PUBLISHED)} (known: '
            f"{', '.join(PUBLISHED)}, several as e.g. 8xA100-40G; without a name all of them)"
        )
    if count and (len(count) > len(str(MOST_DEVICES)) or not 1 <= int(count) <= MOST_DEVICES):
        raise UserError(f'--plan: the number of devices of "{name}" must be from 1 to {MOST_DEVICES}')
    return Setup(int(count or 1), kind)


@functools.cache
def _base_flops(length: int) -> float:
    """FLOPs of one example of ELECTRA-base."""
    hparams = {"preset": "base", "max_seq_length": length, "train_batch_size": 1}
    return training_flops(make_config("base", "", hparams), 1)
