"""What every kind of checkpoint looks like to its readers, and views of one: a part of it, under other names."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

STEP = "global_step"
STATE = "training/"  # prefix of the training's own variables
SLOTS = ("adam_m", "adam_v")


class Tensors(Protocol):
    """The tensors of a checkpoint by released name, read when they are asked for."""

    prefix: str  # what messages call it: its path
    kind: str  # "tf1" or "huggingface"
    shapes: dict[str, list[int]]
    left_out: list[str]  # what lies in the files and has no released name

    def __contains__(self, name: str) -> bool: ...

    def __getitem__(self, name: str) -> np.ndarray: ...

    @property
    def step(self) -> int:
        """The training step; 0 where the checkpoint has none."""


class View:
    """Tensors of one or more checkpoints under names of one's choice.

    Args:
      sources: for each name, the checkpoint that it comes from and its name there. The first one's path and step are
        the view's.
    """

    def __init__(self, sources: dict[str, tuple[Tensors, str]]):
        self._sources = sources
        self.shapes = {name: reader.shapes[there] for name, (reader, there) in sources.items()}
        readers = list({id(reader): reader for reader, _ in sources.values()}.values())
        self.prefix = " and ".join(reader.prefix for reader in readers)
        self.kind, self.step = readers[0].kind, readers[0].step
        self.left_out = [name for reader in readers for name in reader.left_out]

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def __getitem__(self, name: str) -> np.ndarray:
        reader, there = self._sources[name]
        return reader[there]


def is_weight(name: str) -> bool:
    """Whether a name is that of a model's variable: no optimizer slot, no step, no state of the training."""
    return name != STEP and not name.startswith(STATE) and name.split("/")[-1] not in SLOTS


def under(reader: Tensors, *prefixes: str) -> Iterator[str]:
    """The names of a checkpoint that lie below one of some prefixes ("electra/encoder"), in order."""
    return (name for name in sorted(reader.shapes) if name.startswith(tuple(f"{prefix}/" for prefix in prefixes)))


def has(reader: Tensors, *prefixes: str) -> bool:
    """Whether a checkpoint holds something below one of some prefixes."""
    return next(under(reader, *prefixes), None) is not None


def moved(reader: Tensors, prefix: str, to: str) -> dict[str, tuple[Tensors, str]]:
    """What lies below a prefix, to be found below another one in a `View`."""
    return {to + name.removeprefix(prefix): (reader, name) for name in under(reader, prefix)}


def kept(reader: Tensors, names: Iterable[str]) -> dict[str, tuple[Tensors, str]]:
    """Some names of a checkpoint as they are, for a `View`."""
    return {name: (reader, name) for name in names}


def not_finite(reader: Tensors, names: Iterable[str]) -> list[str]:
    """The tensors among some that hold NaN or infinite values."""
    return [name for name in names if not np.isfinite(reader[name]).all()]
