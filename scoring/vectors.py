"""Sentence vectors: one a line, into a NumPy file that grows line by line."""

import io
import os
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from model.tokenization import CLS, SEP
from scoring.networks import Model
from scoring.windows import SPECIALS, Ids, batches, windows

POOLINGS = ("first", "mean")


class Embedder:
    """Vectors [D] of texts.

    Args:
      model: its main network, or the generator where it has no other.
      pooling: "first": the state of [CLS] (of a long text: in its first window); "mean": the mean over the text's
        tokens without [CLS] and [SEP], zeros for a text without any.
      layer: 0 is what the first block reads, None the last block's output.
    """

    def __init__(self, model: Model, pooling: str, layer: int | None):
        self.longest, self._pooling, self._states = model.longest, pooling, model.hidden_states(layer)
        self._specials = (model.source.id(CLS), model.source.id(SEP))

    def __call__(self, texts: Sequence[Ids]) -> np.ndarray:
        """[texts, D] float32."""
        if self._pooling == "first":
            texts = [ids[: self.longest - SPECIALS] for ids in texts]
        cut = windows(texts, self.longest)
        sums: list[np.ndarray | float] = [0.0] * len(texts)
        for batch in batches([window.ids for window in cut], self.longest, *self._specials):
            for row, states in zip(batch.rows, self._states(batch.ids, batch.lengths)):
                kept = cut[row].kept
                chosen = states[:1] if self._pooling == "first" else states[kept.start + 1 : kept.stop + 1]
                sums[cut[row].text] += np.sum(chosen, 0, dtype=np.float64)
        counts = [1 if self._pooling == "first" else max(1, len(ids)) for ids in texts]
        return np.stack([one / count for one, count in zip(sums, counts)]).astype(np.float32)


class NumpyRows:
    """A .npy file [N, D] float32 written row by row; the header gets N at the end, for which NumPy leaves room."""

    def __init__(self, file: BinaryIO):
        self._file, self._rows, self._header = file, 0, b""

    def add(self, rows: np.ndarray) -> None:
        """Appends rows [n, D]."""
        if not self._rows:
            self._width = rows.shape[1]
            self._file.write(self._make_header())
        self._rows += len(rows)
        self._file.write(np.ascontiguousarray(rows, "<f4").tobytes())

    def finish(self) -> tuple[int, int]:
        """Writes the final header; gives N and D."""
        self._file.seek(0)
        self._file.write(self._make_header())
        self._file.seek(0, os.SEEK_END)
        return self._rows, self._width

    def _make_header(self) -> bytes:
        header = io.BytesIO()
        described = {"descr": "<f4", "fortran_order": False, "shape": (self._rows, self._width)}
        np.lib.format.write_array_header_1_0(header, described)
        if self._header and len(self._header) != len(header.getvalue()):
            raise AssertionError("NumPy's header has changed its size")
        self._header = header.getvalue()
        return self._header
