"""Reading text: lines, compression, archives, and files that are no text."""

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pretrain import text_files
from pretrain.example_building import Counts
from pretrain.text_files import archive_members, find_files, is_archive, is_binary, line_pieces, text_file
from util.errors import UserError

COMPRESSORS = {
    "txt": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def lines_of(content: bytes) -> tuple[list[str], Counts]:
    counts = Counts()
    return [piece.text for piece in line_pieces(io.BytesIO(content), counts)], counts


@given(st.text(st.sampled_from("a é日\n\r\x85\u2028\x0b"), max_size=60))
def test_lines_end_at_lf_only_and_cr_is_dropped(text):
    expected = text.replace("\r", "").split("\n")
    if not text.encode().split(b"\n")[-1]:
        expected.pop()
    assert lines_of(text.encode())[0] == expected


def test_invalid_bytes_are_dropped_and_counted():
    lines, counts = lines_of(b"caf\xe9 cr\xc3\xa8me\n\xf0\x9f\x98\nok\xff\xfe")
    assert lines == ["caf crème", "", "ok"]
    assert counts.invalid_bytes == 1 + 3 + 2


@pytest.mark.parametrize("unit", ["word ", "日本", "x"])
def test_long_lines_come_in_pieces(monkeypatch, unit):
    monkeypatch.setattr(text_files, "LONG_LINE", 1000)
    monkeypatch.setattr(text_files, "BLOCK", 300)
    line = (unit * 5000)[:5000]
    text = f"first\n{line}\nlast\n"
    counts = Counts()
    pieces = list(line_pieces(io.BytesIO(text.encode()), counts))
    ends = [i for i, piece in enumerate(pieces) if piece.ends]
    assert len(ends) == 3 and len(pieces) > 5
    assert "".join(piece.text for piece in pieces[1:-1]) == line
    assert (pieces[0].text, pieces[-1].text) == ("first", "last")
    assert max(len(piece.text.encode()) for piece in pieces) <= 1300
    assert (counts.long_lines, counts.invalid_bytes) == (1, 0)
    if unit == "word ":
        assert all(piece.text.endswith(" ") for piece in pieces[1:-2])


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_compression_is_known_by_content(tmp_path, ending):
    path = tmp_path / "some.text"
    path.write_bytes(COMPRESSORS[ending](b"one\ntwo\n" * 50_000))
    counts = Counts()
    lines = [piece.text for pieces in text_file(str(path), random.Random(1), counts) for piece in pieces]
    assert lines == ["one", "two"] * 50_000
    assert counts.bytes_read == path.stat().st_size
    assert not is_binary(str(path))
    path.write_bytes(COMPRESSORS[ending](b"one\n") + COMPRESSORS[ending](b"two\n"))  # as `cat` joins them
    lines = [piece.text for pieces in text_file(str(path), random.Random(1), counts) for piece in pieces]
    assert lines == ["one", "two"]
    path.write_bytes(COMPRESSORS[ending](b"\0\1" * 500))
    assert is_binary(str(path))


@pytest.mark.parametrize("ending", list(COMPRESSORS)[1:])
def test_a_damaged_file_is_named(tmp_path, ending):
    path = tmp_path / "damaged"
    path.write_bytes(COMPRESSORS[ending](random.Random(1).randbytes(300_000))[:200_000])
    with pytest.raises(UserError, match=f"cannot read {path}"):
        for pieces in text_file(str(path), random.Random(1), Counts()):
            list(pieces)


def test_find_files(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/y/x.txt", "c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    found = [os.path.relpath(path, tmp_path) for path in find_files(str(tmp_path))]
    assert found == ["a/y/x.txt", "a/z.txt", "b.txt", "c.txt", "dead"]
    assert len(find_files(str(tmp_path), recursive=False)) == 3
    with pytest.raises(UserError, match="dead: No such file"):
        is_binary(str(tmp_path / "dead"))


# ---------------------------------------------------------------------------------------------------------------------
# Archives


def write_archive(path, members, compress=bytes):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    path.write_bytes(compress(buffer.getvalue()))
    return str(path)


def read_archive(path, seed=1):
    counts = Counts()
    return [[p.text for p in pieces] for pieces in archive_members(path, random.Random(seed), counts)], counts


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_archive_members_are_shuffled_and_never_extracted(tmp_path, monkeypatch, ending):
    members = [(f"../../{i}.txt", f"text {i}\n".encode()) for i in range(9, -1, -1)] + [("b.bin", b"\0" * 9)]
    path = write_archive(tmp_path / "archive", members, COMPRESSORS[ending])
    monkeypatch.chdir(tmp_path)
    assert is_archive(path)
    texts, counts = read_archive(path)
    names = sorted(f"../../{i}.txt" for i in range(10)) + ["b.bin"]
    random.Random(1).shuffle(names)
    assert texts == [[f"text {name[6]}"] for name in names if name != "b.bin"]
    assert (counts.files, counts.skipped_files, counts.bytes_read) == (10, 1, os.path.getsize(path))
    assert os.listdir(tmp_path) == ["archive"]


def test_large_archives_are_shuffled_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "ARCHIVE_BUFFER", 100)
    members = [(f"{i}", f"text {i} {'x' * 40}".encode()) for i in range(10)]
    members.insert(3, ("large", b"large\n" * 100))
    texts, counts = read_archive(write_archive(tmp_path / "archive", members))
    assert counts.files == 11
    assert ["large"] * 100 in texts
    small = [text[0][:6] for text in texts if text[0] != "large"]
    assert sorted(small) == [f"text {i}" for i in range(10)]
    assert set(small[:2]) == {"text 0", "text 1"}  # two fit into the buffer


def test_what_is_no_archive(tmp_path):
    (tmp_path / "text").write_text("only text\n" * 100)
    assert not is_archive(str(tmp_path / "text"))
    (tmp_path / "empty").write_text("")
    assert not is_archive(str(tmp_path / "empty"))


def test_a_truncated_archive_is_named(tmp_path):
    path = write_archive(tmp_path / "archive", [(f"{i}", random.Random(i).randbytes(20_000)) for i in range(9)])
    with open(path, "r+b") as file:
        file.truncate(50_000)
    with pytest.raises(UserError, match=f"cannot read {path}"):
        read_archive(path)
