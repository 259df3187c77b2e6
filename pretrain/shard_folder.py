"""The output folder of a build: shards appear in it when all of them are complete, the manifest last."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pretrain.manifest import MANIFEST_NAME, read_manifest, write_manifest
from util import storage
from util.errors import UserError
from util.workers import uninterrupted

BUILDING = "building.tmp"  # the folder, within the output folder, of shards that are not complete
FAILURE, RESULT = "failure.txt", "result.json"  # what the jobs of a runner leave there
_SHARD_NAME = re.compile(r"pretrain_data\.tfrecord-\d+-of-\d+")
_BUILT_NAME = re.compile(_SHARD_NAME.pattern + r"(\.[0-9a-f]{32})?")  # a job that may run twice marks its shards


@contextmanager
def building_folder(output: str, overwrite: bool) -> Iterator[str]:
    """The folder of incomplete shards; it is gone afterwards, whatever happens."""
    building = os.path.join(output, BUILDING)
    try:
        storage.make_folder(output)
        if (names := storage.names(output)) and not overwrite:
            what = "leftovers of an interrupted build" if BUILDING in names else "files"
            raise UserError(f"the output folder {output} holds {what}: name another, or replace them with --overwrite")
        read_manifest(output)  # a manifest.json that is not a builder's is not ours to replace
        if BUILDING in names:
            _remove_folder(building)
        storage.make_folder(building)
    except OSError as error:
        raise UserError(f"cannot write to the output folder {output}: {storage.reason(error)}") from error
    try:
        yield building
    finally:
        with uninterrupted():
            _remove_folder(building)


def _remove_folder(building: str) -> None:
    ours = (MANIFEST_NAME, FAILURE, RESULT)
    names = [name for name in storage.names(building) if _BUILT_NAME.fullmatch(name) or name in ours]
    storage.remove([os.path.join(building, name) for name in names])
    storage.remove_empty_folder(building)


def publish(output: str, building: str, manifest: dict[str, Any], files: Mapping[str, str]) -> None:
    """Puts complete shards under their names: old ones go first, the new manifest comes last.

    Args:
      output, building: the output folder, and the folder in which shards and manifest lie until then.
      manifest: what is written as the manifest.
      files: where a shard has another name in `building` than in the end: {name: that name}.
    """
    try:
        write_manifest(building, manifest)
    except OSError as error:
        raise UserError(f"cannot write the manifest in {building}: {storage.reason(error)}") from error
    old = [name for name in storage.names(output) if _SHARD_NAME.fullmatch(name) or name == MANIFEST_NAME]
    new = [(files.get(name, name), name) for name in (*manifest["shards"], MANIFEST_NAME)]
    with uninterrupted():
        storage.remove([os.path.join(output, name) for name in old])
        for pairs in (new[:-1], new[-1:]):
            storage.rename([(os.path.join(building, file), os.path.join(output, name)) for file, name in pairs])
