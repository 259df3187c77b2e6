"""The output folder: written beside and renamed, so that it is there whole or not at all."""

import contextlib
import os
import re
from collections.abc import Iterator

from util import filesystem
from util.errors import UserError
from util.files import writing

_STALE = re.compile(r"model\.ckpt-\d+\..*|checkpoint|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")


def check_output(path: str, overwrite: bool) -> None:
    """Raises a `UserError` for a file, or for a folder with content that nobody said may be overwritten."""
    if filesystem.exists(path) and not filesystem.isdir(path):
        raise UserError(f"--to {path} is a file; name a folder")
    if filesystem.isdir(path) and filesystem.listdir(path) and not overwrite:
        raise UserError(f"the folder --to {path} is not empty; choose another, or pass --overwrite to replace the "
                        "checkpoint in it (other files stay)")  # fmt: skip


@contextlib.contextmanager
def output_folder(path: str) -> Iterator[str]:
    """Gives a folder beside `path` to write in; at the end it becomes `path`, or its files take their places there.

    In a folder with content, an earlier checkpoint's files that are not written anew are removed; others stay.
    """
    path = filesystem.abspath(path)
    beside = f"{path}.tmp-{os.getpid()}"
    with writing(f"the folder {path}"):
        filesystem.makedirs(beside)
        try:
            yield beside
            if not filesystem.isdir(path) or not filesystem.listdir(path):
                filesystem.rename(beside, path)
            else:
                _move_into(beside, path)
        finally:
            filesystem.rmtree(beside, ignore_errors=True)


def _move_into(beside: str, path: str) -> None:
    for folder, _, names in filesystem.walk(beside):
        target = os.path.normpath(os.path.join(path, os.path.relpath(folder, beside)))
        filesystem.makedirs(target)
        for name in names:
            filesystem.rename(os.path.join(folder, name), os.path.join(target, name))
        for name in set(filesystem.listdir(target)) - set(names):
            if _STALE.fullmatch(name):
                filesystem.remove(os.path.join(target, name))
