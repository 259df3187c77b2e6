"""The manifest beside a builder's shards: what they hold and how they were made."""

import os
from typing import Any

from util import filesystem
from util.errors import UserError
from util.files import read_json, write_json

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1
COUNTS_NAME = "token_counts.json"  # beside shards without a manifest: see pretrain.token_counts

# What readers rely on.
_TYPES = {
    "max_seq_length": int,
    "vocab_size": int,
    "vocab_sha256": str,
    "do_lower_case": bool,
    "strip_accents": bool,
    "num_examples": int,
    "shards": dict,
}


def read_manifest(folder: str) -> dict[str, Any] | None:
    """The manifest of a folder of shards, None where there is none; a `UserError` where it is malformed."""
    path = os.path.join(folder, MANIFEST_NAME)
    if not filesystem.exists(path):
        return None
    manifest = read_json(path, "manifest of the shards")
    if not isinstance(manifest, dict) or manifest.get("format") != MANIFEST_FORMAT:
        raise UserError(f'{path} is no manifest of shards: expected a JSON object with "format": {MANIFEST_FORMAT}')
    for name, kind in _TYPES.items():
        if type(manifest.get(name)) is not kind:
            raise UserError(f"the manifest {path} is malformed: expected {name!r} of type {kind.__name__}")
    if not all(type(records) is int and records >= 0 for records in manifest["shards"].values()):
        raise UserError(f"the manifest {path} is malformed: expected the number of records of each of the shards")
    return manifest


def write_manifest(folder: str, manifest: dict[str, Any]) -> None:
    """Writes the manifest of a folder of shards at once."""
    write_json(os.path.join(folder, MANIFEST_NAME), {"format": MANIFEST_FORMAT, **manifest})
