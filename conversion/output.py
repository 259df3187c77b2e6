"""The output folder: written beside and renamed, so that it is there whole or not at all."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator

from util.errors import UserError
from util.files import writing

_STALE = re.compile(r"model\.ckpt-\d+\..*|checkpoint|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")


def check_output(path: str, overwrite: bool) -> None:
    """Raises a `UserError` for a file, or for a folder with content that nobody said may be overwritten."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise UserError(f"--to {path} is a file; name a folder")
    if os.path.isdir(path) and os.listdir(path) and not overwrite:
        raise UserError(f"the folder --to {path} is not empty; choose another, or pass --overwrite to replace the "
                        "checkpoint in it (other files stay)")  # fmt: skip


@contextlib.contextmanager
def output_folder(path: str) -> Iterator[str]:
    """Gives a folder beside `path` to write in; at the end it becomes `path`, or its files take their places there.

    In a folder with content, an earlier checkpoint's files that are not written anew are removed; others stay.
    """
    path = os.path.abspath(path)
    beside = f"{path}.tmp-{os.getpid()}"
    with writing(f"the folder {path}"):
        os.makedirs(beside)
        try:
            yield beside
            if not os.path.isdir(path) or not os.listdir(path):
                os.replace(beside, path)
            else:
                _move_into(beside, path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _move_into(beside: str, path: str) -> None:
    for folder, _, names in os.walk(beside):
        target = os.path.normpath(os.path.join(path, os.path.relpath(folder, beside)))
        os.makedirs(target, exist_ok=True)
        for name in names:
            os.replace(os.path.join(folder, name), os.path.join(target, name))
        for name in set(os.listdir(target)) - set(names):
            if _STALE.fullmatch(name):
                os.remove(os.path.join(target, name))
