"""The OpenWebText builder as its users run it."""

import io
import lzma
import tarfile

import pytest

from tests import builders
from tests.builders import VOCAB, fails, files, manifest, run, shards

SCRIPT = "build_openwebtext_pretraining_dataset.py"


def archive(members: list[tuple[str, str]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as file:
        for name, text in members:
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            file.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.fixture
def data_dir(tmp_path):
    """Three archives of four texts each, and a vocabulary."""
    folder = tmp_path / "data"
    (folder / "openwebtext").mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    for i in range(3):
        members = [(f"000{j}-{i}.txt", f"The cat sat on the mat.\n\n\n{'a' * (i + j)} mat.\n") for j in range(4)]
        (folder / "openwebtext" / f"urlsf_subset0{i}-{i}_data.xz").write_bytes(archive(members))
    return folder


def test_archives_become_shards(data_dir):
    result = run(SCRIPT, "--data-dir", data_dir, "--max-seq-length", 16, "--num-out-files", 4)
    assert result.returncode == 0, result.stderr
    assert files(data_dir) == ["openwebtext", "pretrain_tfrecords", "vocab.txt"]  # nothing was extracted
    found = manifest(data_dir / "pretrain_tfrecords")
    assert (found["num_files"], found["num_documents"]) == (12, 12)  # blank lines do not separate
    assert found["blanks_separate_docs"] is False
    assert found["num_examples"] == sum(
        map(builders.number_of_records, shards(data_dir / "pretrain_tfrecords").values())
    )
    assert found["command"] == SCRIPT


def test_two_processes(data_dir):
    flags = ["--data-dir", data_dir, "--max-seq-length", 16, "--num-out-files", 2, "--num-processes", 2]
    contents = []
    for _ in range(2):
        assert run(SCRIPT, *flags, "--overwrite").returncode == 0
        contents.append(shards(data_dir / "pretrain_tfrecords"))
    assert contents[0] == contents[1]
    assert manifest(data_dir / "pretrain_tfrecords")["num_files"] == 12


def test_other_files_are_skipped_and_counted(data_dir):
    (data_dir / "openwebtext" / "README").write_text("Where this is from")
    assert run(SCRIPT, "--data-dir", data_dir, "--num-out-files", 4).returncode == 0
    assert manifest(data_dir / "pretrain_tfrecords")["num_skipped_files"] == 1


def test_nothing_to_read(data_dir, tmp_path):
    fails(run(SCRIPT, "--data-dir", tmp_path / "none"), "none", "--data-dir")
    for path in (data_dir / "openwebtext").iterdir():
        path.write_text("no archive")
    fails(run(SCRIPT, "--data-dir", data_dir), "tar archives", "none of its 3 files")


def test_a_damaged_archive(data_dir):
    path = data_dir / "openwebtext" / "urlsf_subset01-1_data.xz"
    path.write_bytes(lzma.compress(lzma.decompress(path.read_bytes())[:2000]))
    fails(run(SCRIPT, "--data-dir", data_dir), str(path))
    assert files(data_dir / "pretrain_tfrecords") == []


def test_no_vocabulary(data_dir):
    (data_dir / "vocab.txt").unlink()
    fails(run(SCRIPT, "--data-dir", data_dir), "vocab.txt")
    assert not (data_dir / "pretrain_tfrecords").exists()
