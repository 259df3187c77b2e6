"""Judged lines for people and programs: coloured terminal text, an HTML page, TSV, JSONL."""

import html
import json
from collections.abc import Iterator
from typing import NamedTuple

from scoring.inspection import Filler, Judged
from scoring.lines import Line

DIGITS = 4
RED = (214, 69, 65)


class Stretch(NamedTuple):
    """A part of a line's text: of one token, or of what lies between tokens."""

    text: str
    judged: Judged | None


def stretches(line: Line, tokens: list[Judged]) -> Iterator[Stretch]:
    """Cuts a text at its tokens. Pieces that share characters are one stretch, that of the likeliest replaced."""
    at, waiting = 0, list(reversed(tokens))
    while waiting:
        alike = [waiting.pop()]
        start, end = alike[0].token.start, alike[0].token.end
        while waiting and waiting[-1].token.start < end:
            alike.append(waiting.pop())
            end = max(end, alike[-1].token.end)
        if start > at:
            yield Stretch(line.text[at:start], None)
        yield Stretch(line.text[start:end], max(alike, key=lambda judged: judged.replaced or 0.0))
        at = end
    if at < len(line.text):
        yield Stretch(line.text[at:], None)


class Terminal:
    """The text on a ground that reddens with the probability; below it the fillers of each [MASK]."""

    head = tail = ""

    def line(self, line: Line, tokens: list[Judged]) -> str:
        """What is shown of a line."""
        text = "".join(self._shaded(stretch) for stretch in stretches(line, tokens))
        return "\n".join([text, *(f"    [MASK] {fillers}" for fillers in map(_listed, _masks(tokens)))]) + "\n"

    def _shaded(self, stretch: Stretch) -> str:
        judged, text = stretch.judged, _visible(stretch.text)
        if judged is None:
            return text
        underlined = "4;" if judged.token.is_mask else ""
        if judged.replaced is None:
            return f"\x1b[{underlined[:-1]}m{text}\x1b[0m" if underlined else text
        red, green, blue = (round(255 + (full - 255) * judged.replaced) for full in RED)
        return f"\x1b[{underlined}30;48;2;{red};{green};{blue}m{text}\x1b[0m"


class Page:
    """A page of its own, without scripts or anything from elsewhere."""

    head = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Replaced tokens</title>
<style>
body { font: 18px/1.7 Georgia, serif; max-width: 46em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
p { margin: 0 0 .6em; white-space: pre-wrap; overflow-wrap: anywhere }
span { border-radius: .2em }
.mask { border-bottom: 2px solid #222 }
.legend, .fillers { font: 14px/1.5 system-ui, sans-serif; color: #555 }
.legend i { display: inline-block; width: 12em; height: .9em; vertical-align: middle; margin: 0 .5em;
  background: linear-gradient(to right, rgba(214,69,65,0), rgb(214,69,65)) }
</style></head><body>
<p class="legend">probability of being replaced: 0<i></i>1; under the pointer, each token's own</p>
"""
    tail = "</body></html>\n"

    def line(self, line: Line, tokens: list[Judged]) -> str:
        """A paragraph of the text, and one of the fillers of each [MASK]."""
        text = "".join(self._shaded(stretch) for stretch in stretches(line, tokens))
        fillers = "".join(f'<p class="fillers">[MASK] {html.escape(f)}</p>\n' for f in map(_listed, _masks(tokens)))
        return f"<p>{text}</p>\n{fillers}"

    def _shaded(self, stretch: Stretch) -> str:
        judged, text = stretch.judged, html.escape(_visible(stretch.text))
        if judged is None:
            return text
        told = judged.token.piece + (f" {judged.replaced:.3f}" if judged.replaced is not None else "")
        told += f": {_listed(judged.fillers)}" * judged.token.is_mask
        shade = f' style="background:rgba({",".join(map(str, RED))},{judged.replaced or 0:.3f})"'
        marked = ' class="mask"' if judged.token.is_mask else ""
        return f'<span{marked}{shade} title="{html.escape(told)}">{text}</span>'


class Tsv:
    """A row a token: line, token (from 1), piece, its characters in the line, probability, fillers."""

    head = "line\ttoken\tpiece\tstart\tend\treplaced\tfillers\n"
    tail = ""

    def line(self, line: Line, tokens: list[Judged]) -> str:
        """The rows of a line."""
        rows = []
        for number, (token, replaced, fillers) in enumerate(tokens, 1):
            shown = "" if replaced is None else f"{replaced:.{DIGITS}f}"
            cells = (line.number, number, token.piece, token.start, token.end, shown, _listed(fillers))
            rows.append("\t".join(map(str, cells)) + "\n")
        return "".join(rows)


class Jsonl:
    """An object a line."""

    head = tail = ""

    def line(self, line: Line, tokens: list[Judged]) -> str:
        """The line's text and its tokens."""
        listed = [self._token(*judged) for judged in tokens]
        return json.dumps({"line": line.number, "text": line.text, "tokens": listed}, ensure_ascii=False) + "\n"

    def _token(self, token, replaced, fillers) -> dict:
        found = {"piece": token.piece, "start": token.start, "end": token.end}
        found["replaced"] = replaced if replaced is None else round(replaced, DIGITS)
        if token.is_mask:
            found["fillers"] = [{"piece": piece, "probability": round(p, DIGITS)} for piece, p in fillers]
        return found


FORMATS = {"terminal": Terminal, "tsv": Tsv, "jsonl": Jsonl, "html": Page}


def _masks(tokens: list[Judged]) -> list[list[Filler]]:
    return [judged.fillers for judged in tokens if judged.token.is_mask]


def _listed(fillers: list[Filler]) -> str:
    return " ".join(f"{piece} {probability:.3f}" for piece, probability in fillers)


def _visible(text: str) -> str:
    """The text without control characters, which a terminal would obey; tabs become spaces."""
    return "".join(char for char in text.replace("\t", " ") if char.isprintable() or char == "\u3000")
