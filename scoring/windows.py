"""Texts of any length cut into windows, and windows of like length put into batches. Pure functions of numbers.

Shapes: B batch, L length with [CLS] and [SEP].
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

SPECIALS = 2  # [CLS] and [SEP] around each window
LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # L of a batch: few, so few compilations
TOKENS = 8192  # of a batch, padding included
ROWS = 256  # of a batch at most

Ids = Sequence[int]


class Window(NamedTuple):
    """A part of a text that the network sees at once."""

    text: int  # its text's index
    start: int  # where in the text it begins
    ids: Ids  # without [CLS] and [SEP]
    kept: range  # the places in `ids` whose results count; over a text's windows, each token counts once


class Batch(NamedTuple):
    """Some rows of one length, padded."""

    rows: np.ndarray  # [B], which of the given ones
    ids: np.ndarray  # [B, L] int32, [CLS] and [SEP] in place
    lengths: np.ndarray  # [B] int32, [CLS] and [SEP] counted


def windows(texts: Sequence[Ids], longest: int) -> list[Window]:
    """Windows over texts, in order; an empty text has one too.

    A text that is too long is cut into windows that overlap by half; in the overlap the first half of the tokens counts
    in the left window and the second in the right one, so that every token has a quarter of a window around it.

    Args:
      longest: L that the network takes.
    """
    room = longest - SPECIALS
    found = []
    for number, ids in enumerate(texts):
        last = max(0, len(ids) - room)
        starts = [*range(0, last, max(1, room // 2)), last]
        begins = [0] + [(left + room + right) // 2 for left, right in zip(starts, starts[1:])]
        for start, begin, end in zip(starts, begins, [*begins[1:], len(ids)]):
            found.append(Window(number, start, ids[start : start + room], range(begin - start, end - start)))
    return found


def merged(cut: Sequence[Window], results: Sequence[np.ndarray], texts: int) -> list[np.ndarray]:
    """The results of windows, one of each kept token ([kept, ...]), joined to one array a text."""
    parts: list[list[np.ndarray]] = [[] for _ in range(texts)]
    for window, result in zip(cut, results):
        parts[window.text].append(result)
    return [part[0] if len(part) == 1 else np.concatenate(part) for part in parts]


def padded_length(tokens: int, longest: int) -> int:
    """L of the batch that holds so many tokens."""
    needed = tokens + SPECIALS
    return min(longest, next((length for length in LENGTHS if length >= needed), longest))


def batches(sequences: Sequence[Ids], longest: int, cls: int, sep: int, rows: Sequence[int] | None = None
            ) -> Iterator[Batch]:  # fmt: skip
    """All sequences in batches of like length, shortest first.

    Args:
      sequences: ids of at most `longest` - 2 tokens.
      rows: for each row of a batch, the sequence that it holds; default: each once.
    """
    rows = np.arange(len(sequences)) if rows is None else np.asarray(rows)
    sizes = np.array([len(ids) for ids in sequences])[rows] if len(rows) else np.zeros(0, int)
    padded = np.array([padded_length(size, longest) for size in sizes], int)
    order = np.argsort(sizes, kind="stable")
    for length in np.unique(padded):
        group = order[padded[order] == length]
        step = max(1, min(ROWS, TOKENS // int(length)))
        for start in range(0, len(group), step):
            chosen = group[start : start + step]
            ids, lengths = _pad([sequences[rows[i]] for i in chosen], int(length), cls, sep)
            yield Batch(chosen, ids, lengths)


def _pad(sequences: Sequence[Ids], length: int, cls: int, sep: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.zeros([len(sequences), length], np.int32)
    ids[:, 0] = cls
    for row, sequence in zip(ids, sequences):
        row[1 : len(sequence) + 1] = sequence
        row[len(sequence) + 1] = sep
    return ids, np.array([len(sequence) + SPECIALS for sequence in sequences], np.int32)


def each_token(cut: Sequence[Window], longest: int, cls: int, sep: int,
               network: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> list[np.ndarray]:  # fmt: skip
    """What a network gives for every kept token of windows, one pass a window.

    Args:
      network: ids [B, L] and lengths [B] to [B, L, ...].
    """
    results: list[np.ndarray] = [np.zeros(0)] * len(cut)
    for batch in batches([window.ids for window in cut], longest, cls, sep):
        for row, values in zip(batch.rows, network(batch.ids, batch.lengths)):
            kept = cut[row].kept
            results[row] = values[kept.start + 1 : kept.stop + 1]
    return results
