"""Files and folders at every kind of path: local ones by Python itself, others by tf.io.gfile.

A path with a scheme (gs://bucket/folder, hdfs://, ram://) starts TensorFlow, whose file systems these are. Whatever
they report is raised as the `OSError` that a local file would have given.
"""

import builtins
import contextlib
import errno
import glob as local_glob
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from util.errors import UserError

BLOCK = 1 << 20  # bytes that are read or written at a time
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_remote(path: str) -> bool:
    """Whether a path has a scheme."""
    return _SCHEME.match(path) is not None


# ---------------------------------------------------------------------------------------------------------------------
# Files


def open(path: str, mode: str = "r", encoding: str | None = None, errors: str | None = None) -> IO:
    """Opens a file as Python's own does; of remote files none can be read and written at once."""
    if not is_remote(path):
        return builtins.open(path, mode, encoding=encoding, errors=errors)
    if "x" in mode and exists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    raw = _RemoteFile(path, mode[0].replace("x", "w"))
    stream = io.BufferedReader(raw, BLOCK) if raw.readable() else io.BufferedWriter(raw, BLOCK)
    return stream if "b" in mode else io.TextIOWrapper(stream, encoding, errors)


class _RemoteFile(io.RawIOBase):
    """The bytes of a file with a scheme; `mode` is r, w or a."""

    def __init__(self, path: str, mode: str):
        super().__init__()
        self.path, self.mode = path, mode
        with _reported(path):
            self._file = _gfile(path).GFile(path, mode + "b")
            if mode == "r":
                self._file.size()  # it is opened at the first use, and a file that is not there is to be noticed now

    def readable(self) -> bool:
        return self.mode == "r"

    def writable(self) -> bool:
        return self.mode != "r"

    def seekable(self) -> bool:
        return self.mode == "r"

    def readinto(self, buffer) -> int:
        with _reported(self.path):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _reported(self.path):
            self._file.seek(offset, whence)
            return self._file.tell()

    def tell(self) -> int:
        with _reported(self.path):
            return self._file.tell()

    def write(self, data) -> int:
        with _reported(self.path):
            self._file.write(bytes(data))
        return memoryview(data).nbytes

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _reported(self.path):
                self._file.close()


def settle(file: IO) -> None:
    """Hands what was written to a file on, down to the disk where it is a local one."""
    file.flush()
    if not isinstance(getattr(file, "raw", None), _RemoteFile):
        os.fsync(file.fileno())


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
    """The path of a local file with a file's content: its own, or of a copy that is gone after the `with` block."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, os.path.basename(path))
        copy(path, target)
        yield target


def copy(source: str, target: str) -> None:
    """Copies a file's content; `target` is a file."""
    with open(source, "rb") as file:
        write(target, file)


def write(path: str, source: IO[bytes]) -> None:
    """Writes a file with what a stream holds from here on."""
    with open(path, "wb") as file:
        shutil.copyfileobj(source, file, BLOCK)


def rename(source: str, target: str) -> None:
    """Gives a file or folder another name within its file system; a file there is replaced.

    A remote folder moves file by file.
    """
    if not is_remote(source):
        os.replace(source, target)
    elif isdir(source):
        for folder, _, names in walk(source):
            place = target + folder[len(source) :]
            makedirs(place)
            for name in names:
                rename(os.path.join(folder, name), os.path.join(place, name))
        rmtree(source)
    else:
        with _reported(source):
            _gfile(source).rename(source, target, overwrite=True)


def remove(path: str) -> None:
    """Removes a file."""
    if not is_remote(path):
        os.remove(path)
    else:
        with _reported(path):
            _gfile(path).remove(path)


# ---------------------------------------------------------------------------------------------------------------------
# What is there


def exists(path: str) -> bool:
    """Whether a file or folder is there."""
    if not is_remote(path):
        return os.path.exists(path)
    with _reported(path):
        return _gfile(path).exists(path) and _is_whole(path)


def isdir(path: str) -> bool:
    """Whether a folder is there."""
    if not is_remote(path):
        return os.path.isdir(path)
    with _reported(path):
        return _gfile(path).isdir(path) and _is_whole(path)


def isfile(path: str) -> bool:
    """Whether a file is there."""
    return exists(path) and not isdir(path) if is_remote(path) else os.path.isfile(path)


def size(path: str) -> int:
    """A file's bytes."""
    if not is_remote(path):
        return os.path.getsize(path)
    with _reported(path):
        return _gfile(path).stat(path).length


def same(path: str, other: str) -> bool:
    """Whether two paths, both there, are of one file."""
    if is_remote(path) or is_remote(other):
        return abspath(path) == abspath(other)
    return os.path.samefile(path, other)


def glob(pattern: str) -> list[str]:
    """The paths that match a pattern, sorted."""
    if not is_remote(pattern):
        return sorted(local_glob.glob(pattern))
    with _reported(pattern):
        return sorted(_gfile(pattern).glob(pattern))


def abspath(path: str) -> str:
    """A path that means the same from any folder."""
    return path if is_remote(path) else os.path.abspath(path)


# ---------------------------------------------------------------------------------------------------------------------
# Folders


def listdir(folder: str) -> list[str]:
    """The names in a folder."""
    if not is_remote(folder):
        return os.listdir(folder)
    with _reported(folder):
        names = [name.rstrip("/") for name in _gfile(folder).listdir(folder)]
        return [name for name in names if not _is_ram(folder) or _gfile(folder).exists(os.path.join(folder, name))]


def walk(folder: str, onerror: Any = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """As os.walk: (a folder, the folders in it, the files in it), from the top downwards."""
    if not is_remote(folder):
        yield from os.walk(folder, onerror=onerror)
        return
    names = sorted(listdir(folder))
    folders = [name for name in names if isdir(os.path.join(folder, name))]
    yield folder, folders, [name for name in names if name not in set(folders)]
    for name in folders:
        yield from walk(os.path.join(folder, name))


def makedirs(folder: str) -> None:
    """Makes a folder, with those above it, where it is not there."""
    if not is_remote(folder):
        os.makedirs(folder, exist_ok=True)
    else:
        with _reported(folder):
            _gfile(folder).makedirs(folder)


def rmtree(folder: str, ignore_errors: bool = False) -> None:
    """Removes a folder with all that is in it; `ignore_errors`: as far as that can be done."""
    if not is_remote(folder):
        shutil.rmtree(folder, ignore_errors=ignore_errors)
        return
    with contextlib.suppress(OSError) if ignore_errors else contextlib.nullcontext():
        if not isdir(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        for parent, _, names in walk(folder):
            for name in names:
                remove(os.path.join(parent, name))
        with contextlib.suppress(FileNotFoundError) if _is_ram(folder) else contextlib.nullcontext(), _reported(folder):
            _gfile(folder).rmtree(folder)


# ---------------------------------------------------------------------------------------------------------------------
# TensorFlow's file systems


def _is_ram(path: str) -> bool:
    """Whether it is TensorFlow's file system in memory, which takes "model" for a folder where "model.index" is."""
    return path.lower().startswith("ram://")


def _is_whole(path: str) -> bool:
    """Whether a path is more than the beginning of another."""
    folder, name = os.path.split(path.rstrip("/"))
    return not _is_ram(path) or folder == "ram:" or name in listdir(folder)


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    return tf


def _gfile(path: str) -> Any:
    tf = _tensorflow()
    scheme, known = path.partition("://")[0], sorted(filter(None, tf.io.gfile.get_registered_schemes()))
    if scheme not in known:
        more = "; hdfs:// and s3:// come with the package tensorflow-io" if scheme in ("hdfs", "s3") else ""
        raise UserError(f"{path}: no file system is known for {scheme}://; there are {', '.join(known)}{more}")
    return tf.io.gfile


@contextlib.contextmanager
def _reported(path: str) -> Iterator[None]:
    """Raises TensorFlow's errors in the `with` block as the `OSError` of their kind."""
    tf = _tensorflow()
    try:
        yield
    except tf.errors.OpError as error:
        kinds = {
            tf.errors.NotFoundError: errno.ENOENT,
            tf.errors.AlreadyExistsError: errno.EEXIST,
            tf.errors.PermissionDeniedError: errno.EACCES,
            tf.errors.UnauthenticatedError: errno.EACCES,
            tf.errors.ResourceExhaustedError: errno.ENOSPC,
        }
        number = kinds.get(type(error), errno.EIO)
        raise OSError(number, error.message.splitlines()[0] if error.message else os.strerror(number), path) from error
