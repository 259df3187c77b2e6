"""Files and folders, local ones and those of a path with a scheme (gs://, s3://, hdfs://) alike.

Paths with a scheme go through the file systems of Apache Beam. Object stores know no folders: one is there as long as a
file lies below it, and a file appears only when it is complete.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from util.errors import UserError
from util.files import whole_file

INSTALL_BEAM = "pip install -r requirements-beam.txt"
_AS_IT_IS = "uncompressed"  # Beam's CompressionTypes.UNCOMPRESSED: it would go by the name's ending
_SCHEME = re.compile(r"[a-zA-Z][-a-zA-Z0-9+.]*://")


def is_remote(path: str) -> bool:
    """Whether a path has a scheme."""
    return _SCHEME.match(path) is not None


def _systems(path: str) -> Any:
    """Beam's file systems, if one of them knows the scheme of a path."""
    try:
        from apache_beam.io.filesystems import FileSystems
    except ImportError as error:
        raise UserError(f"{path} needs Apache Beam, which is not installed: {INSTALL_BEAM}") from error
    try:
        FileSystems.get_filesystem(path)
    except ValueError as error:
        raise UserError(
            f"Apache Beam has no file system for {path}: check the scheme; gs:// needs apache-beam[gcp], s3:// "
            "apache-beam[aws], both with the version in requirements-beam.txt"
        ) from error
    return FileSystems


def reason(error: OSError) -> str:
    """What went wrong, without the path where the system says it apart."""
    return error.strerror or str(error)


# ---------------------------------------------------------------------------------------------------------------------
# Files


def open_binary(path: str) -> BinaryIO:
    """Opens a file for reading its bytes as they are; the stream can seek."""
    return _systems(path).open(path, compression_type=_AS_IT_IS) if is_remote(path) else open(path, "rb")


def exists(path: str) -> bool:
    """Whether a file or a folder is there."""
    return _systems(path).exists(path) if is_remote(path) else os.path.exists(path)


def read_text(path: str) -> str | None:
    """The content of a text file, None where there is none."""
    if not exists(path):
        return None
    with open_binary(path) as file:
        return file.read().decode("utf-8")


def write_text(path: str, text: str) -> None:
    """Writes a whole text file; a local one gets its name when it is complete."""
    with _create_remote(path) if is_remote(path) else whole_file(path) as file:
        file.write(text.encode())


def _create_remote(path: str) -> BinaryIO:
    return _systems(path).create(path, compression_type=_AS_IT_IS)


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """The path of a local file with the content of a file: of the file itself where it is local."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, os.path.basename(path))
        with open_binary(path) as source, open(copy, "wb") as target:
            _copy(source, target)
        yield copy


def upload(local: str, path: str) -> None:
    """Copies a local file to a path with a scheme."""
    with open(local, "rb") as source, _create_remote(path) as target:
        _copy(source, target)


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    while block := source.read(1 << 20):
        target.write(block)


def rename(pairs: Sequence[tuple[str, str]]) -> None:
    """Gives files other names within one file system."""
    if not pairs or not is_remote(pairs[0][0]):
        for old, new in pairs:
            os.rename(old, new)
        return
    systems = _systems(pairs[0][0])
    size = systems.get_chunk_size(pairs[0][0])
    for start in range(0, len(pairs), size):
        old_paths, new_paths = zip(*pairs[start : start + size])
        systems.rename(list(old_paths), list(new_paths))


def remove(paths: Sequence[str]) -> None:
    """Removes files of one file system."""
    if paths and is_remote(paths[0]):
        _systems(paths[0]).delete(list(paths))
    else:
        for path in paths:
            os.remove(path)


# ---------------------------------------------------------------------------------------------------------------------
# Folders


def remote_sizes(folder: str) -> dict[str, int]:
    """The files below a folder with a scheme, in sub-folders too, and their sizes in bytes."""
    (found,) = _systems(folder).match([f"{folder.rstrip('/')}/**"])
    return {file.path: file.size_in_bytes for file in found.metadata_list}


def names(folder: str) -> list[str]:
    """What lies in a folder; nothing where it is not there."""
    if is_remote(folder):
        start = len(folder.rstrip("/")) + 1
        return sorted({path[start:].split("/")[0] for path in remote_sizes(folder)})
    return os.listdir(folder) if exists(folder) else []


def make_folder(folder: str) -> None:
    """Makes a folder and those above it, where they are not there."""
    if not is_remote(folder):
        os.makedirs(folder, exist_ok=True)
    elif not exists(folder):
        _systems(folder).mkdirs(folder)


def remove_empty_folder(folder: str) -> None:
    """Removes a folder in which nothing lies."""
    if not is_remote(folder):
        os.rmdir(folder)
    elif not names(folder) and exists(folder):
        _systems(folder).delete([folder])  # such as hdfs://; an object store has none by now
