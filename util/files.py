"""Files: written beside and renamed, so that a kill never leaves half of one."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from util import filesystem
from util.errors import UserError


def write_text(path: str, text: str) -> None:
    """Writes a whole text file under its name at once (UTF-8)."""
    with whole_file(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to be written that gets its name only when the `with` block is done.

    A remote one is a local file until then: remote files can only be written from the beginning to the end.
    """
    filesystem.makedirs(os.path.dirname(filesystem.abspath(path)))
    beside = f"{path}.tmp-{os.getpid()}"
    try:
        with tempfile.TemporaryFile() if filesystem.is_remote(path) else open(beside, "wb") as file:
            yield file
            if filesystem.is_remote(path):
                file.seek(0)
                filesystem.write(beside, file)
            else:
                filesystem.settle(file)
        filesystem.rename(beside, path)
    finally:
        if filesystem.exists(beside):  # something went wrong, such as a full disk
            filesystem.remove(beside)


def write_json(path: str, value: Any) -> None:
    """Writes a value as indented JSON under its name at once."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str, what: str = "JSON file") -> Any:
    """Reads a JSON file; a `UserError` names the file and the place of a fault."""
    try:
        with filesystem.open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise UserError(f"cannot read the {what} {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"the {what} {path} is not valid JSON: {error}") from error


def read_object(path: str, *keys: str, what: str = "JSON file") -> dict[str, Any]:
    """Reads a JSON file that holds an object with these keys, as a run left it; a `UserError` says what is wrong."""
    value = read_json(path, what)
    if not isinstance(value, dict):
        raise UserError(f"the {what} {path} is damaged: expected an object, not {type(value).__name__}")
    if missing := [key for key in keys if key not in value]:
        raise UserError(f'the {what} {path} is damaged: "{missing[0]}" is missing')
    return value


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Turns a failure to write in the `with` block, such as a full disk, into a `UserError` that says what it was."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {what}: {error.strerror or error}; free some space or check the rights, then run the same "
            "command again"
        ) from error


def check_new(path: str, flag: str, overwrite: bool, *inputs: str) -> None:
    """Raises a `UserError` where a command's output may not be written to a path, so that nothing is lost.

    Args:
      path: of the file that is to be written.
      flag: that names it.
      overwrite: whether an existing file may be replaced.
      inputs: files that are read, which is never the output.
    """
    if filesystem.isdir(path):
        raise UserError(f"{flag} {path} is a folder; name a file")
    if any(filesystem.exists(path) and filesystem.exists(one) and filesystem.same(path, one) for one in inputs):
        raise UserError(f"{flag} {path} is an input too; name another file")
    if filesystem.exists(path) and not overwrite:
        raise UserError(f"{flag} {path} exists; name another file, or replace it with --overwrite")
    check_writable(os.path.dirname(path) or ".")


def check_writable(folder: str) -> None:
    """Raises a `UserError` where files cannot be written in a folder, which need not be there yet."""
    if filesystem.is_remote(folder):
        return  # an attempt alone would tell
    there = os.path.abspath(folder)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise UserError(f"cannot write in the folder {folder}: {there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"cannot write in the folder {folder}: check the rights of {there}")


def expand_globs(patterns: str) -> list[str]:
    """The files that comma-separated glob patterns match, each pattern's in sorted order, none twice."""
    found: dict[str, None] = {}
    for pattern in patterns.split(","):
        for path in filesystem.glob(pattern.strip()):
            found[path] = None
    return list(found)


def sha256_of(path: str) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with filesystem.open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
