"""The order of the data: every epoch is the whole set, and an example is a function of the seed and its number."""

import random

import pytest

from pretrain import shards as shards_module
from pretrain.manifest import write_manifest
from pretrain.shards import ExampleRow, ShardList, Window, find_shards
from util.errors import UserError
from util.tfrecords import record_bytes


@pytest.fixture
def shard_list(tmp_path) -> ShardList:
    """23 records in four shards of different sizes, one of them empty."""
    number = 0
    for shard, size in enumerate((5, 0, 11, 7)):
        records = [record_bytes(b"%d" % (number + i)) for i in range(size)]
        (tmp_path / f"pretrain_data.tfrecord-{shard}-of-4").write_bytes(b"".join(records))
        number += size
    return find_shards(str(tmp_path / "pretrain_data.tfrecord*"))


@pytest.fixture(params=[1 << 20, 6], ids=["one window", "windows of 6"])
def window_size(request, monkeypatch):
    monkeypatch.setattr(shards_module, "WINDOW", request.param)


def epoch(row: ExampleRow, number: int, total: int = 23) -> list[int]:
    return [int(row[n]) for n in range(number * total, (number + 1) * total)]


@pytest.mark.usefixtures("window_size")
def test_epochs_hold_everything_once_in_changing_order(shard_list):
    row = ExampleRow(shard_list, seed=1)
    epochs = [epoch(row, number) for number in range(3)]
    assert all(sorted(order) == list(range(23)) for order in epochs)
    assert len({tuple(order) for order in epochs}) == 3
    assert epoch(ExampleRow(shard_list, seed=2), 0) != epochs[0]


@pytest.mark.usefixtures("window_size")
def test_any_example_alone_is_the_one_of_the_row(shard_list):
    row = ExampleRow(shard_list, seed=5)
    whole = [row[n] for n in range(70)]
    numbers = list(range(70))
    random.Random(0).shuffle(numbers)
    jumping = ExampleRow(shard_list, seed=5)
    assert [jumping[n] for n in numbers] == [whole[n] for n in numbers]
    assert ExampleRow(shard_list, seed=5)[51] == whole[51]


def test_evaluation_reads_in_order(shard_list):
    window = Window(shard_list, [0, 1, 2, 3], None)
    assert [int(window.read(n)) for n in range(len(window))] == list(range(23))


def test_corrupt_record_is_named_or_skipped_and_counted(shard_list):
    path = shard_list.paths[2]
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        place = content.index(record_bytes(b"9"))
        content[place + 12] ^= 1
        file.seek(0)
        file.write(content)
    with pytest.raises(
        UserError, match=rf"{path}: wrong checksum of the record at byte {place};.*skip_corrupt_records"
    ):
        epoch(ExampleRow(shard_list, seed=1), 0)
    shard_list.skip_corrupt = True
    found = epoch(ExampleRow(shard_list, seed=1), 0)
    assert len(found) == 23 and 9 not in found and shard_list.skipped == 1


def test_truncated_shard(shard_list, tmp_path):
    path = shard_list.paths[3]
    with open(path, "r+b") as file:
        file.truncate(40)
    pattern = str(tmp_path / "pretrain_data.tfrecord*")
    with pytest.raises(UserError, match=r"ends inside the record at byte 36|ends inside a record at byte 36"):
        find_shards(pattern)
    tolerant = find_shards(pattern, skip_corrupt=True)
    assert tolerant.counts == [5, 0, 11, 2]
    assert sorted(set(epoch(ExampleRow(tolerant, seed=1), 0, 18))) == list(range(18))


def test_nothing_found(tmp_path):
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(UserError, match=r"no TFRecords match .*pretrain\*.*holds other.txt"):
        find_shards(str(tmp_path / "pretrain*"))
    with pytest.raises(UserError, match="there is no folder"):
        find_shards(str(tmp_path / "missing" / "pretrain*"))
    (tmp_path / "pretrain_data.tfrecord-0-of-1").write_bytes(b"")
    with pytest.raises(UserError, match="hold no example"):
        find_shards(str(tmp_path / "pretrain*"))


def manifest_of(folder, counts: dict[str, int]) -> None:
    write_manifest(
        str(folder),
        {"max_seq_length": 8, "vocab_size": 9, "vocab_sha256": "", "do_lower_case": True, "strip_accents": True}
        | {"num_examples": sum(counts.values()), "shards": counts},
    )


def test_a_manifest_that_counts_wrongly_and_shards_that_are_not_read(shard_list, tmp_path, capsys):
    names = [f"pretrain_data.tfrecord-{i}-of-4" for i in range(4)]
    manifest_of(tmp_path, dict(zip(names, (5, 0, 11, 7))) | {"pretrain_data.tfrecord-4-of-5": 3})
    found = find_shards(str(tmp_path / "pretrain_data*"))
    assert "1 of the 5 shards that the manifest" in capsys.readouterr().out
    assert sorted(epoch(ExampleRow(found, seed=1), 0)) == list(range(23))
    for wrong in (6, 12):
        manifest_of(tmp_path, dict(zip(names, (5, 0, wrong, 7))))
        with pytest.raises(UserError, match=f"holds 11 records where its manifest says {wrong}"):
            epoch(ExampleRow(find_shards(str(tmp_path / "pretrain_data*")), seed=1), 0, 12 + wrong)
    manifest_of(tmp_path, dict(zip(names, (5, 0, -3, 7))))
    with pytest.raises(UserError, match="malformed"):
        find_shards(str(tmp_path / "pretrain_data*"))
