"""A file of rows, one a line of the input, that a stopped run leaves usable and the same command continues."""

import fcntl
import os
from typing import Any, BinaryIO, Protocol

from util.errors import UserError
from util.files import read_json, write_json, writing
from util.log import say

BLOCK = 1 << 20


class Rows(Protocol):
    """Where rows go."""

    done: int
    last: str | None

    def write(self, rows: list[str]) -> None: ...


class Stream:
    """Rows to a stream, such as standard output; nothing is continued."""

    done, last = 0, None

    def __init__(self, stream: BinaryIO, header: str | None):
        self._stream, self._before = stream, [header] if header else []

    def write(self, rows: list[str]) -> None:
        """Writes rows and hands them on at once.

        Raises:
          UserError: the reader has gone.
        """
        try:
            self._stream.write("".join(f"{row}\n" for row in self._before + rows).encode())
            self._stream.flush()
            self._before = []
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # nothing is left to fail at the end
            raise UserError("standard output was closed before all lines were scored") from error


def check_continued(path: str) -> None:
    """Raises a `UserError` where a file to be continued, or the JSON beside it, was not written by `ContinuedFile`."""
    beside = path + ".json"
    begun = os.path.exists(path) and os.path.getsize(path)
    if begun and not os.path.exists(beside):
        raise UserError(f"--output-file {path} exists, and no {beside} says that this command wrote it; name another "
                        "file, or replace it with --overwrite")  # fmt: skip
    if os.path.exists(beside):
        found = read_json(beside)
        if not (isinstance(found, dict) and {"checkpoint", "method"} <= found.keys()):
            raise UserError(f"{beside}, where the settings of --output-file {path} go, is another file; name another "
                            "--output-file, or replace both with --overwrite")  # fmt: skip


class ContinuedFile:
    """Rows at the end of a file; `done` of them were there before, `last` is the last of these.

    Beside it lies FILE.json: the settings that the rows were made with. A half row, left by a kill, is cut off.

    Args:
      path: the file.
      settings: whatever changes a row.
      header: its first line, which is no row.
      overwrite: begin anew, whatever was there.

    Raises:
      UserError: the file is something else's, was made with other settings, or is being written by another run.
    """

    def __init__(self, path: str, settings: dict[str, Any], header: str | None, overwrite: bool = False):
        self.path, self.done, self.last = path, 0, None
        if not overwrite:
            check_continued(path)
        with writing(f"the scores {path}"):
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            self._file = open(path, "r+b" if os.path.exists(path) else "x+b")
            self._lock()
            if overwrite:
                self._file.truncate(0)
            self._check(settings)
            self._take_up(header)

    def write(self, rows: list[str]) -> None:
        """Appends rows."""
        with writing(f"the scores {self.path}"):
            self._file.write("".join(f"{row}\n" for row in rows).encode())
            self._file.flush()

    def close(self) -> None:
        """Makes sure that everything is on the disk."""
        with writing(f"the scores {self.path}"):
            os.fsync(self._file.fileno())
            self._file.close()

    def _check(self, settings: dict[str, Any]) -> None:
        beside = self.path + ".json"
        if not os.path.getsize(self.path):
            write_json(beside, settings)
            return
        before = read_json(beside)
        changed = [name for name in settings if before.get(name) != settings[name]]
        if changed:
            lines = (f"  {name}: {before.get(name)} there, {settings[name]} here" for name in changed)
            raise UserError(
                f"--output-file {self.path} was begun with other settings:\n" + "\n".join(lines) + "\n"
                "Pass the same, or name another file"
            )

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"--output-file {self.path} is being written by another run") from error

    def _take_up(self, header: str | None) -> None:
        whole, count, last = 0, 0, b""  # bytes of whole lines
        rest = b""
        while block := self._file.read(BLOCK):
            lines, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                count += lines.count(b"\n") + 1
                whole += len(lines) + 1
                last = lines.rpartition(b"\n")[2]
        if rest:
            say(f"note: cut a half line from the end of {self.path}")
        self._file.truncate(whole)
        self._file.seek(whole)
        if header and not count:
            self.write([header])
        self.done = max(0, count - bool(header))
        self.last = last.decode() if self.done else None
