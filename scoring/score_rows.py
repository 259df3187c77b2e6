"""How a scored line is written: TSV or JSONL, one row a line."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scoring.lines import Line

DIGITS = 4


class Scored(NamedTuple):
    """A line with its tokens' log p."""

    line: Line
    pieces: list[str]
    scores: np.ndarray  # [tokens]


def total(scores: np.ndarray, normalize: bool) -> float | None:
    """The sum over the tokens, or their mean; None without a token."""
    if not len(scores):
        return None
    value = float(np.sum(scores, dtype=np.float64))
    return value / len(scores) if normalize else value


class TsvRows:
    """line, score, tokens, text; where wanted, pieces and each one's score. Tabs in the text become spaces."""

    def __init__(self, tokens: bool, normalize: bool):
        self.tokens, self.normalize = tokens, normalize
        columns = ["line", "score", "tokens", "text", *(["pieces", "piece_scores"] if tokens else [])]
        self.header: str | None = "\t".join(columns)

    def row(self, scored: Scored) -> str:
        """One line of the file."""
        score = total(scored.scores, self.normalize)
        cells = [str(scored.line.number), "" if score is None else f"{score:.{DIGITS}f}", str(len(scored.pieces)),
                 self.text(scored.line)]  # fmt: skip
        if self.tokens:
            cells += [" ".join(scored.pieces), " ".join(f"{score:.{DIGITS}f}" for score in scored.scores)]
        return "\t".join(cells)

    def text(self, line: Line) -> str:
        """A line's text as a row holds it."""
        return line.text.replace("\t", " ")

    def text_of(self, row: str) -> str:
        """The text in a row."""
        return row.split("\t")[3]


class JsonRows:
    """The same as an object a line; the score of a line without tokens is null."""

    header = None

    def __init__(self, tokens: bool, normalize: bool):
        self.tokens, self.normalize = tokens, normalize

    def row(self, scored: Scored) -> str:
        """One line of the file."""
        score = total(scored.scores, self.normalize)
        row = {"line": scored.line.number, "score": score if score is None else round(score, DIGITS),
               "tokens": len(scored.pieces), "text": scored.line.text}  # fmt: skip
        if self.tokens:
            row |= {"pieces": scored.pieces, "piece_scores": _rounded(scored.scores)}
        return json.dumps(row, ensure_ascii=False)

    def text(self, line: Line) -> str:
        """A line's text as a row holds it."""
        return line.text

    def text_of(self, row: str) -> str:
        """The text in a row."""
        return json.loads(row)["text"]


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(float(value), DIGITS) for value in values]


FORMATS = {"tsv": TsvRows, "jsonl": JsonRows}
