"""Reading the manifest of a folder of shards."""

import json

import pytest

from pretrain.manifest import MANIFEST_NAME, read_manifest, write_manifest
from util.errors import UserError

GOOD = {
    "max_seq_length": 128,
    "vocab_size": 30522,
    "vocab_sha256": "00",
    "do_lower_case": True,
    "strip_accents": True,
    "num_examples": 3,
    "shards": {"pretrain_data.tfrecord-0-of-1": 3},
}


def test_there_and_back(tmp_path):
    assert read_manifest(str(tmp_path)) is None
    write_manifest(str(tmp_path), GOOD)
    assert read_manifest(str(tmp_path)) == {"format": 1, **GOOD}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        json.dumps(GOOD),
        json.dumps({"format": 2, **GOOD}),
        json.dumps({"format": 1, **GOOD, "max_seq_length": "128"}),
        json.dumps({"format": 1, **GOOD, "do_lower_case": 1}),
        json.dumps({"format": 1, **GOOD, "shards": {"a": "many"}}),
        json.dumps({"format": 1, **{name: GOOD[name] for name in GOOD if name != "shards"}}),
    ],
)
def test_malformed(tmp_path, content):
    (tmp_path / MANIFEST_NAME).write_text(content)
    with pytest.raises(UserError, match=MANIFEST_NAME):
        read_manifest(str(tmp_path))
