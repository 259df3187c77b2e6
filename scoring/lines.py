"""Lines of text as a stream: read, tokenized and handed on in chunks, so that memory does not grow with the input."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from model.tokenization import UNK, FullTokenizer
from pretrain.example_building import Counts, Piece
from pretrain.text_files import BLOCK, is_binary, line_pieces, open_source, text_file
from util import filesystem
from util.errors import UserError

CHUNK_LINES = 1024  # that are held at a time
LINE_CHARACTERS = 512  # a chunk ends before its lines where they are longer on average

STDIN = "-"


class Line(NamedTuple):
    """A line of the input."""

    number: int  # from 1
    text: str


@dataclass
class Seen:
    """What the lines held, for the closing summary."""

    files: Counts = field(default_factory=Counts)
    lines: int = 0
    empty: int = 0  # without a token
    long: int = 0  # scored in windows
    tokens: int = 0
    unknown: int = 0

    def add(self, ids: list[int], longest: int, unknown: int) -> None:
        """Counts one line's tokens; `unknown` is the id of [UNK]."""
        self.lines += 1
        self.empty += not ids
        self.long += len(ids) + 2 > longest
        self.tokens += len(ids)
        self.unknown += ids.count(unknown)

    def summary(self, longest: int) -> list[str]:
        """What a user should know of the lines, a sentence each."""
        said = [f"lines: {self.lines}, tokens: {self.tokens}"]
        if self.empty:
            said.append(f"lines without a token: {self.empty}")
        if self.long:
            said.append(f"lines longer than {longest} tokens, read in overlapping windows: {self.long}")
        if self.unknown:
            said.append(f"tokens that are {UNK}: {self.unknown} ({self.unknown / self.tokens:.1%})")
        if self.files.invalid_bytes:
            said.append(f"bytes that are no UTF-8, dropped: {self.files.invalid_bytes}")
        return said


def _is_stream(path: str) -> bool:
    """Whether a path can be read once only: standard input or a pipe."""
    return path == STDIN or (filesystem.exists(path) and not (filesystem.isfile(path) or filesystem.isdir(path)))


def check_input(path: str, flag: str = "--input") -> None:
    """Raises a `UserError` where a path is neither a text file (compressed or not) with text in it nor "-"."""
    if _is_stream(path):
        return
    if not filesystem.exists(path) or filesystem.isdir(path):
        what = "is a folder" if filesystem.isdir(path) else "does not exist"
        raise UserError(f"{flag} {path} {what}; expected a text file (or - for standard input)")
    if is_binary(path):
        raise UserError(f"{flag} {path} is no text: it holds zero bytes")
    if not any(line.strip() for line in read_lines(path, Counts())):
        raise UserError(f"{flag} {path} has no line with text")


def read_lines(path: str, counts: Counts) -> Iterator[str]:
    """The lines of a text file, compressed or not, or as they are of standard input ("-") or a pipe.

    Lines end at LF, every CR and undecodable byte is dropped, and so is a byte-order mark at the beginning.
    """
    for number, line in enumerate(_read_lines(path, counts)):
        yield line if number else line.removeprefix("\ufeff")


def _read_lines(path: str, counts: Counts) -> Iterator[str]:
    if path == STDIN:
        yield from _whole(line_pieces(sys.stdin.buffer, counts))
    elif _is_stream(path):
        with filesystem.open(path, "rb") as file:
            yield from _whole(line_pieces(file, counts))
    else:
        for pieces in text_file(path, None, counts):
            yield from _whole(pieces)


def _whole(pieces: Iterable[Piece]) -> Iterator[str]:
    parts: list[str] = []
    for piece in pieces:
        parts.append(piece.text)
        if piece.ends:
            yield "".join(parts)
            parts = []


def count_lines(path: str) -> int | None:
    """The number of lines of a file; None for standard input and pipes."""
    if _is_stream(path):
        return None
    lines, last = 0, b"\n"
    with open_source(path) as (content, _):
        while block := content.read(BLOCK):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n")


def chunks(lines: Iterable[str], most: int = CHUNK_LINES) -> Iterator[list[Line]]:
    """The lines by their numbers, at most so many at a time; where chunks end depends on the lines alone."""
    chunk: list[Line] = []
    size = 0
    for number, text in enumerate(lines, 1):
        chunk.append(Line(number, text))
        size += len(text)
        if len(chunk) >= most or size >= most * LINE_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def encoded(chunk: list[Line], tokenizer: FullTokenizer) -> list[list[int]]:
    """The ids of each line."""
    return [tokenizer.encode(line.text) for line in chunk]
