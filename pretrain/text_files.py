"""Reading a corpus as a stream: text files and archives, compressed or not, in bounded memory."""

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import BinaryIO

import zstandard

from pretrain.example_building import Counts, Piece
from util import filesystem
from util.errors import UserError

BLOCK = 1 << 18  # bytes that are read at a time
LONG_LINE = 1 << 18  # a line of more bytes is handed on in pieces
ARCHIVE_BUFFER = 64 << 20  # bytes of an archive's members that are shuffled together

_UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, tarfile.TarError)
_MAGIC: dict[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda raw: _ZstdFile(raw),
}


class _ZstdFile:
    """The content of a zstd file. The library's own stream takes a truncated file for a whole one."""

    def __init__(self, raw: BinaryIO):
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._whole = True  # no frame is begun

    def read(self, size: int = -1) -> bytes:
        """Some bytes, none only at the end."""
        content = b""
        while not content:
            data = self._frame.unused_data or self._raw.read(1 << 14)
            if not data:
                if not self._whole:
                    raise EOFError("the zstd file ends early")
                return b""
            if self._whole:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            content = self._frame.decompress(data)
            self._whole = self._frame.eof
        return content

    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def guarded_reading(path: str) -> Iterator[None]:
    """Turns whatever a file that cannot be read raises in the `with` block into a `UserError` that names it."""
    try:
        yield
    except _UNREADABLE as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError(f"cannot read {path}: {reason}; mend the file or take it out of the corpus") from error


def find_files(folder: str, recursive: bool = True) -> list[str]:
    """The files below a folder, sorted by their paths; links to folders are not followed."""

    def fail(error: OSError) -> None:
        raise UserError(f"cannot read the folder {error.filename}: {error.strerror}") from error

    found = []
    for parent, folders, names in filesystem.walk(folder, onerror=fail):
        found += (os.path.join(parent, name) for name in names)
        if not recursive:
            folders.clear()
    if filesystem.is_remote(folder):
        return sorted(found)
    return sorted(path for path in found if os.path.isfile(path) or not os.path.exists(path))  # a dead link is an error


@contextmanager
def open_source(path: str) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Opens a file as (its content, the file itself): gzip, bzip2, xz and zstd are known by their first bytes."""
    with filesystem.open(path, "rb") as raw:
        start = raw.peek(8)
        opener = next((opener for magic, opener in _MAGIC.items() if start.startswith(magic)), None)
        if opener is None:
            yield raw, raw
        else:
            with closing(opener(raw)) as content:
                yield content, raw


def is_binary(path: str) -> bool:
    """Whether a file is no text: a zero byte among the first few thousand of its content."""
    with guarded_reading(path), open_source(path) as (content, _):
        return b"\0" in content.read(4096)


def is_archive(path: str) -> bool:
    """Whether a file is a tar archive, compressed or not."""
    with guarded_reading(path), open_source(path) as (content, _):
        try:
            with tarfile.open(fileobj=content, mode="r|"):
                return True
        except tarfile.ReadError:
            return False


def line_pieces(content: BinaryIO, counts: Counts) -> Iterator[Piece]:
    """The lines of a stream: they end at LF only, every CR and undecodable byte is dropped.

    A line of more than `LONG_LINE` bytes comes in several pieces, cut at white space where there is any.
    """
    rest = b""
    in_long_line = False
    while block := content.read(BLOCK):
        lines, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            for line in _decode(lines, counts).split("\n"):
                yield Piece(line, True)
            in_long_line = False
        elif len(rest) > LONG_LINE:
            cut = _place_to_cut(rest)
            yield Piece(_decode(rest[:cut], counts), False)
            rest = rest[cut:]
            counts.long_lines += not in_long_line
            in_long_line = True
    if rest or in_long_line:
        yield Piece(_decode(rest, counts), True)


def _place_to_cut(line: bytes) -> int:
    cut = max(line.rfind(b" "), line.rfind(b"\t")) + 1
    if not cut:
        cut = len(line) - 4
        while line[cut] & 0xC0 == 0x80 and cut > len(line) - 8:  # within a character
            cut -= 1
    return cut


def _decode(data: bytes, counts: Counts) -> str:
    data = data.replace(b"\r", b"")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "ignore")
        counts.invalid_bytes += len(data) - len(text.encode("utf-8"))
        return text


# ---------------------------------------------------------------------------------------------------------------------
# What a builder reads of one input file: a sequence of documents' files, each a sequence of pieces of lines


def text_file(
    path: str, rng: random.Random | None, counts: Counts, start: int = 0, end: int | None = None
) -> Iterator[Iterable[Piece]]:
    """A text file is one file of lines. Of one that is not compressed, `start` and `end` may give the bytes to read.

    The part at its start counts as the file.
    """
    counts.files += start == 0
    with guarded_reading(path), open_source(path) as (content, raw):
        if start:
            raw.seek(start)
        if end is not None:
            content = _Section(raw, end)
        yield _guarded(path, line_pieces(_Tracked(content, raw, counts), counts))


def _guarded(path: str, pieces: Iterator[Piece]) -> Iterator[Piece]:
    with guarded_reading(path):
        yield from pieces


def archive_members(
    path: str, rng: random.Random, counts: Counts, order: Callable[[list[str]], list[str]] = sorted
) -> Iterator[Iterable[Piece]]:
    """The text files in a tar archive in random order; nothing is extracted to disk.

    The released code shuffles the order in which the file system lists them; here it is `order`, by name. Of an
    archive with more than `ARCHIVE_BUFFER` bytes, the members that fit into the buffer are shuffled together, and a
    member that does not is read as it comes.
    """
    members: dict[str, bytes] = {}
    size = 0
    with guarded_reading(path), open_source(path) as (content, raw):
        with tarfile.open(fileobj=_Tracked(content, raw, counts), mode="r|") as archive:
            for member in archive:
                archive.members.clear()  # tarfile remembers every member; we need none twice
                if not member.isfile():
                    continue
                file = archive.extractfile(member)
                if member.size > ARCHIVE_BUFFER:
                    counts.files += 1
                    yield _guarded(path, line_pieces(file, counts))
                    continue
                if size + member.size > ARCHIVE_BUFFER:
                    yield from _shuffled(members, order, rng, counts)
                    members, size = {}, 0
                members[member.name] = file.read()
                size += member.size
    yield from _shuffled(members, order, rng, counts)


def _shuffled(members: dict[str, bytes], order, rng: random.Random, counts: Counts) -> Iterator[Iterable[Piece]]:
    names = order(list(members))
    rng.shuffle(names)
    for name in names:
        if b"\0" in members[name][:4096]:
            counts.skipped_files += 1
        else:
            counts.files += 1
            yield line_pieces(io.BytesIO(members[name]), counts)


class _Section:
    """A stream that ends at a place of the file below it."""

    def __init__(self, raw: BinaryIO, end: int):
        self._raw, self._end = raw, end

    def read(self, size: int) -> bytes:
        return self._raw.read(min(size, self._end - self._raw.tell()))


class _Tracked:
    """A stream that keeps count of the bytes that were read of the file below it."""

    def __init__(self, content: BinaryIO, raw: BinaryIO, counts: Counts):
        self._content, self._raw, self._counts = content, raw, counts
        self._position = raw.tell()

    def read(self, size: int = -1) -> bytes:
        data = self._content.read(size)
        position = self._raw.tell()
        self._counts.bytes_read += position - self._position
        self._position = position
        return data
