"""A file system of Apache Beam in the place of those of the clouds: test://PATH is the local /PATH, without folders."""

import os

from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem

SCHEME = "test://"


def local(path: str) -> str:
    """The local path."""
    assert path.startswith(SCHEME), path
    return path.removeprefix(SCHEME[:-1])


class StoreFileSystem(LocalFileSystem):
    """Files by whole names, as an object store has them."""

    @classmethod
    def scheme(cls):
        return SCHEME.removesuffix("://")

    def has_dirs(self):
        return False

    def mkdirs(self, path):
        """There is nothing to make."""

    def _list(self, prefix):
        folder = os.path.dirname(local(prefix))
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                yield FileMetadata(SCHEME[:-1] + path, os.path.getsize(path), os.path.getmtime(path))

    def create(self, path, *args, **kwargs):
        os.makedirs(os.path.dirname(local(path)), exist_ok=True)
        return super().create(local(path), *args, **kwargs)

    def open(self, path, *args, **kwargs):
        return super().open(local(path), *args, **kwargs)

    def exists(self, path):
        return os.path.isfile(local(path))

    def rename(self, sources, targets):
        for source, target in zip(sources, targets):
            os.makedirs(os.path.dirname(local(target)), exist_ok=True)
            os.rename(local(source), local(target))
            self._forget_folder(source)

    def delete(self, paths):
        for path in paths:
            os.remove(local(path))
            self._forget_folder(path)

    def _forget_folder(self, path):
        folder = os.path.dirname(local(path))
        if not os.listdir(folder):
            os.rmdir(folder)
