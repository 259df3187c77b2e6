"""Paths with a scheme behave as local ones: the same calls, the same results, the same errors."""

import io
import os

import pytest

from util import filesystem
from util.errors import UserError
from util.files import check_new, expand_globs, read_json, whole_file, write_json, writing
from util.tfrecords import Shard, first_record, record_bytes


@pytest.fixture(params=["local", "ram"])
def root(request, tmp_path):
    if request.param == "local":
        return str(tmp_path)
    folder = f"ram://{tmp_path.name}"
    filesystem.makedirs(folder)
    return folder


def write(path: str, data: bytes = b"data") -> str:
    filesystem.makedirs(os.path.dirname(path))
    with filesystem.open(path, "wb") as file:
        file.write(data)
    return path


def test_files(root):
    path = write(f"{root}/a/b.txt", "öne\ntwo\n".encode())
    assert filesystem.exists(path) and filesystem.isfile(path) and not filesystem.isdir(path)
    assert filesystem.size(path) == 9 and filesystem.same(path, path)
    with filesystem.open(path, encoding="utf-8") as file:
        assert list(file) == ["öne\n", "two\n"]
    with filesystem.open(path, "a", encoding="utf-8") as file:
        file.write("three")
    with filesystem.open(path, "rb") as file:
        assert file.read(2) == "ö".encode() and file.tell() == 2
        file.seek(-5, io.SEEK_END)
        assert file.read() == b"three" and file.read() == b""
    with pytest.raises(FileExistsError):
        filesystem.open(path, "x")
    filesystem.copy(path, f"{root}/c.txt")
    filesystem.rename(path, f"{root}/c.txt")  # takes the other's place
    assert not filesystem.exists(path) and filesystem.size(f"{root}/c.txt") == 14
    filesystem.remove(f"{root}/c.txt")
    assert not filesystem.exists(f"{root}/c.txt")


def test_what_is_not_there(root):
    for call in (filesystem.open, filesystem.size, filesystem.remove, filesystem.listdir, filesystem.rmtree):
        with pytest.raises(FileNotFoundError) as caught:
            call(f"{root}/nothing")
        assert caught.value.strerror
    with pytest.raises(FileNotFoundError):
        filesystem.rename(f"{root}/nothing", f"{root}/other")
    filesystem.rmtree(f"{root}/nothing", ignore_errors=True)
    for question in (filesystem.exists, filesystem.isdir, filesystem.isfile):
        assert question(f"{root}/nothing") is False


def test_the_beginning_of_a_name_is_no_folder(root):
    write(f"{root}/model.index")
    assert not filesystem.exists(f"{root}/model") and not filesystem.isdir(f"{root}/model")
    assert filesystem.isdir(root) and filesystem.isdir(f"{root}/")
    write(f"{root}/best/a")
    write(f"{root}/best.new/b")
    assert filesystem.listdir(f"{root}/best") == ["a"]
    filesystem.rmtree(f"{root}/best")
    assert sorted(filesystem.listdir(root)) == ["best.new", "model.index"]
    with pytest.raises(FileNotFoundError):
        filesystem.rmtree(f"{root}/best")
    filesystem.rename(f"{root}/best.new", f"{root}/best")
    assert list(filesystem.walk(root)) == [(root, ["best"], ["model.index"]), (f"{root}/best", [], ["b"])]


def test_folders(root):
    for name in ("d/one", "d/two", "d/e/three", "d/e/f/four"):
        write(f"{root}/{name}")
    assert sorted(filesystem.listdir(f"{root}/d")) == ["e", "one", "two"]
    walked = [(folder, sorted(folders), sorted(names)) for folder, folders, names in filesystem.walk(f"{root}/d")]
    assert walked == [
        (f"{root}/d", ["e"], ["one", "two"]),
        (f"{root}/d/e", ["f"], ["three"]),
        (f"{root}/d/e/f", [], ["four"]),
    ]
    assert filesystem.glob(f"{root}/d/[ot]*") == [f"{root}/d/one", f"{root}/d/two"] == expand_globs(f"{root}/d/[ot]*")
    filesystem.rename(f"{root}/d", f"{root}/g")
    assert not filesystem.exists(f"{root}/d") and filesystem.isfile(f"{root}/g/e/f/four")
    filesystem.rmtree(f"{root}/g")
    assert not filesystem.isdir(f"{root}/g") and not filesystem.exists(f"{root}/g/e/f/four")


def test_whole_files(root):
    path = f"{root}/new/whole.bin"
    with whole_file(path) as file:
        file.write(b"....")
        file.seek(0)
        file.write(b"1")
        assert not filesystem.exists(path)
    with filesystem.open(path, "rb") as file:
        assert file.read() == b"1..."
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    with filesystem.open(path, "rb") as file:
        assert file.read() == b"1..."
    assert filesystem.listdir(f"{root}/new") == ["whole.bin"]
    write_json(path, {"a": [1, "ß"]})
    assert read_json(path) == {"a": [1, "ß"]}
    with pytest.raises(UserError, match="exists"):
        check_new(path, "--to", False)
    with pytest.raises(UserError, match="an input too"):
        check_new(path, "--to", True, path)
    with pytest.raises(UserError, match="cannot read the JSON file .*nothing.json: "):
        read_json(f"{root}/nothing.json")


def test_records(root):
    path = write(f"{root}/shard", b"".join(map(record_bytes, (b"one", b"", b"x" * 100_000))))
    shard = Shard(path)
    assert [shard[i] for i in range(len(shard))] == [b"one", b"", b"x" * 100_000]
    assert first_record(path) == b"one"
    assert len(Shard(write(f"{root}/empty", b""))) == 0


def test_local_copies(root):
    path = write(f"{root}/x.bin")
    with filesystem.local_copy(path) as local:
        assert not filesystem.is_remote(local)
        with open(local, "rb") as file:
            assert file.read() == b"data"
    assert os.path.exists(local) == (local == path)


def test_schemes():
    assert all(map(filesystem.is_remote, ("gs://a/b", "s3://a", "hdfs://h:80/x", "ram://a")))
    assert not any(map(filesystem.is_remote, ("/a/b", "a", "./gs://a", "C:/a", "x=gs://a", "://a", "")))
    assert filesystem.abspath("ram://a/b") == "ram://a/b" and filesystem.abspath("a") == os.path.abspath("a")
    with pytest.raises(UserError, match="no file system is known for nofs://; there are .*ram"):
        filesystem.exists("nofs://a")


def test_a_quota_in_the_middle(monkeypatch):
    """What a remote file system refuses is one message; what lay under the name stays."""
    import tensorflow as tf

    write_json("ram://quota/x.json", {"old": 1})

    class Full(tf.io.gfile.GFile):
        def write(self, file_content):
            raise tf.errors.ResourceExhaustedError(None, None, "quota of the bucket exceeded")

    monkeypatch.setattr(tf.io.gfile, "GFile", Full)
    with pytest.raises(UserError, match="cannot write the table: quota of the bucket exceeded; free some space"):
        with writing("the table"):
            write_json("ram://quota/x.json", {"new": "x" * 5_000_000})
    monkeypatch.undo()
    assert read_json("ram://quota/x.json") == {"old": 1} and filesystem.listdir("ram://quota") == ["x.json"]
