"""A builder's output folder: shards get their place in it when all of them are complete, the manifest last."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pretrain.manifest import MANIFEST_NAME, read_manifest, write_manifest
from util import filesystem
from util.errors import UserError
from util.workers import uninterrupted

BUILDING = "building.tmp"  # the folder, within the output folder, of shards that are not complete
FAILURE, RESULT = "failure.txt", "result.json"  # what the jobs of a runner leave there
_SHARD_NAME = re.compile(r"pretrain_data\.tfrecord-\d+-of-\d+")
_BUILT_NAME = re.compile(  # an attempt of a runner's job marks its shards; whole files are written beside
    rf"({_SHARD_NAME.pattern}(\.[0-9a-f]{{32}})?|{re.escape(MANIFEST_NAME)}|{FAILURE}|{RESULT})(\.tmp-\d+)?"
)


@contextmanager
def building_folder(output: str, overwrite: bool) -> Iterator[str]:
    """The folder of incomplete shards; it is gone afterwards, whatever happens."""
    building = os.path.join(output, BUILDING)
    try:
        filesystem.makedirs(output)
        if (names := filesystem.listdir(output)) and not overwrite:
            what = "leftovers of an interrupted build" if BUILDING in names else "files"
            raise UserError(f"the output folder {output} holds {what}: name another, or replace them with --overwrite")
        read_manifest(output)  # a manifest.json that is not a builder's is not ours to replace
        _remove_folder(building)
        filesystem.makedirs(building)
    except OSError as error:
        raise UserError(f"cannot write to the output folder {output}: {error.strerror}") from error
    try:
        yield building
    finally:
        with uninterrupted():
            _remove_folder(building)


def _remove_folder(building: str) -> None:
    if not filesystem.isdir(building):
        return
    names = filesystem.listdir(building)
    ours = [name for name in names if _BUILT_NAME.fullmatch(name)]
    for name in ours:
        filesystem.remove(os.path.join(building, name))
    if len(ours) == len(names):
        filesystem.rmtree(building)


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
        raise UserError(f"cannot write the manifest in {building}: {error.strerror}") from error
    with uninterrupted():
        for name in filesystem.listdir(output):
            if _SHARD_NAME.fullmatch(name) or name == MANIFEST_NAME:
                filesystem.remove(os.path.join(output, name))
        for name in (*manifest["shards"], MANIFEST_NAME):
            filesystem.rename(os.path.join(building, files.get(name, name)), os.path.join(output, name))
