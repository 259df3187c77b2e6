"""TFRecord files: what TensorFlow writes is read, and no damage passes unnoticed."""

import os

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from util.tfrecords import CorruptRecord, Shard, first_record

RECORDS = [b"", b"a", bytes(range(256)) * 3, b"\x00" * 40, "naïve".encode()]


def write(path, records=RECORDS) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def read_all(path: str) -> list[bytes]:
    shard = Shard(path)
    return [shard[number] for number in range(len(shard))]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=200)))
def test_reads_what_tensorflow_writes(tmp_path_factory, records):
    path = write(tmp_path_factory.mktemp("t") / "x", records)
    assert read_all(path) == records
    assert first_record(path) == (records[0] if records else None)


def test_any_order(tmp_path):
    shard = Shard(write(tmp_path / "x"))
    assert [shard[number] for number in (4, 0, 2, 2)] == [RECORDS[number] for number in (4, 0, 2, 2)]


def test_cut_at_every_byte(tmp_path):
    """The message names the file and the byte where the last record begins; a cut between two can't be seen."""
    whole = (tmp_path / "whole").absolute()
    content = open(write(whole), "rb").read()
    begins = [0]
    for record in RECORDS:
        begins.append(begins[-1] + 16 + len(record))
    assert begins[-1] == len(content)
    path = str(tmp_path / "cut")
    for size in range(len(content)):
        with open(path, "wb") as file:
            file.write(content[:size])
        complete = max(number for number, begin in enumerate(begins) if begin <= size)
        if size in begins:
            assert read_all(path) == RECORDS[:complete]
            continue
        with pytest.raises(
            CorruptRecord, match=rf"{path}: the file ends inside \w+ record at byte {begins[complete]}$"
        ):
            Shard(path)
        tolerant = Shard(path, tolerant=True)
        assert tolerant.fault and [tolerant[n] for n in range(len(tolerant))] == RECORDS[:complete]


@settings(max_examples=300, deadline=None)
@given(st.integers(0), st.integers(0, 7))
def test_one_flipped_bit_is_noticed(tmp_path_factory, place, bit):
    folder = tmp_path_factory.getbasetemp()
    content = bytearray(open(write(folder / "flipped"), "rb").read())
    place %= len(content)
    content[place] ^= 1 << bit
    (folder / "flipped").write_bytes(content)
    with pytest.raises(CorruptRecord, match=rf"{folder}/flipped: .* at byte \d+"):
        read_all(str(folder / "flipped"))
    if place < 16:
        with pytest.raises(CorruptRecord, match="byte 0"):
            first_record(str(folder / "flipped"))


def test_a_record_that_claims_to_be_huge(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(os.urandom(64))
    with pytest.raises(CorruptRecord):
        Shard(str(path))
    with pytest.raises(CorruptRecord):
        first_record(str(path))
