"""Files appear whole or not at all."""

import hashlib
import os
import resource

import pytest

from util.errors import UserError
from util.files import expand_globs, read_json, sha256_of, write_json, write_text, writing


def test_writing_makes_the_folder_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "a" / "b" / "x.json"
    write_json(str(path), {"word": "naïve", "list": [1, None]})
    assert read_json(str(path)) == {"word": "naïve", "list": [1, None]}
    assert "naïve" in path.read_text(encoding="utf-8")
    assert os.listdir(path.parent) == ["x.json"]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write the notes: File too large; free some space"):
            with writing("the notes"):
                write_text(str(path), "new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x.txt"]


def test_reading_json_that_is_none(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(UserError, match=rf"cannot read the manifest {path}: No such file"):
        read_json(str(path), "manifest")
    path.write_text('{"a": \n oops}')
    with pytest.raises(UserError, match=rf"the manifest {path} is not valid JSON: .*line 2"):
        read_json(str(path), "manifest")


def test_globs_are_sorted_and_without_repetition(tmp_path):
    for name in ("b1", "a2", "a1", "c"):
        (tmp_path / name).touch()
    found = expand_globs(f"{tmp_path}/b*, {tmp_path}/a*,{tmp_path}/*1,{tmp_path}/none")
    assert [os.path.basename(path) for path in found] == ["b1", "a1", "a2"]


def test_hash(tmp_path):
    content = os.urandom(3 << 20)
    (tmp_path / "x").write_bytes(content)
    assert sha256_of(str(tmp_path / "x")) == hashlib.sha256(content).hexdigest()
