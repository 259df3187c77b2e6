"""Gradient-disentangled embeddings (DeBERTaV3, section 3.3) in checkpoints.

Training keeps the generator's table and the difference of the discriminator's from it; what uses the discriminator
alone wants the sum. Here is each seen as the other.
"""

from collections.abc import Callable, Container

import numpy as np

from model.readers import Tensors, View, has, kept, moved

TABLE, BASE = "electra/embeddings/word_embeddings", "generator/embeddings/word_embeddings"
DIFFERENCE = TABLE + "_difference"


class _Made:
    """A view with one more tensor, which is computed when it is asked for."""

    def __init__(self, view: View, name: str, shape: list[int], make: Callable[[], np.ndarray]):
        self._view, self._name, self._make = view, name, make
        self.shapes = {**view.shapes, name: shape}
        self.prefix, self.kind, self.step, self.left_out = view.prefix, view.kind, view.step, view.left_out

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        return self._make() if name == self._name else self._view[name]


def added_up(reader: Tensors) -> Tensors:
    """A checkpoint with the discriminator's table in the place of the difference (and of its slots)."""
    if DIFFERENCE not in reader or BASE not in reader:
        return reader
    view = View(kept(reader, (name for name in reader.shapes if not name.startswith(DIFFERENCE))))
    return _Made(view, TABLE, reader.shapes[DIFFERENCE], lambda: reader[BASE] + reader[DIFFERENCE])


def taken_apart(reader: Tensors) -> Tensors:
    """A checkpoint with two tables as training with gdes wants it; tables that it shares become the generator's."""
    if DIFFERENCE in reader or TABLE not in reader:
        return reader
    names = kept(reader, (name for name in reader.shapes if not name.startswith(TABLE)))
    if not has(reader, "generator/embeddings"):
        names |= moved(reader, "electra/embeddings", "generator/embeddings")
        return _Made(View(names), DIFFERENCE, reader.shapes[TABLE], lambda: np.zeros_like(reader[TABLE]))
    return _Made(View(names), DIFFERENCE, reader.shapes[TABLE], lambda: reader[TABLE] - reader[BASE])


def fitted(reader: Tensors, names: Container[str]) -> Tensors:
    """A checkpoint as a model with variables of these names wants it."""
    if DIFFERENCE in names:
        return taken_apart(reader)
    return added_up(reader) if TABLE in names else reader
