"""Shards to batches: a fault inside TensorFlow's reading is told as what it is."""

import shutil

import pytest
import tensorflow as tf

from configure_pretraining import make_config
from pretrain.pretrain_data import BatchReader
from pretrain.shards import find_shards
from util.errors import UserError
from util.tfrecords import record_bytes


@pytest.fixture
def reader(training_data, tmp_path):
    """A reader of shards of which one has a corrupt record."""
    folder = tmp_path / "shards"
    shutil.copytree(training_data / "pretrain_tfrecords", folder)
    shard = folder / "pretrain_data.tfrecord-0-of-3"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 8
    shard.write_bytes(content)
    config = make_config("m", "d", {"max_seq_length": 32})
    return BatchReader(find_shards(str(folder / "*")), config, 8, 1, range(1))


@pytest.mark.parametrize("data", ["training", "evaluation"])
def test_a_corrupt_record_ends_reading_with_its_place(reader, data):
    batches = reader.training(0) if data == "training" else reader.evaluation()
    with pytest.raises(UserError, match=r"tfrecord-0-of-3: wrong checksum of .* at byte \d+"), reader.explained():
        for _ in batches.take(60):
            pass


def test_other_faults_stay_what_they_are(reader):
    with pytest.raises(tf.errors.InvalidArgumentError), reader.explained():
        tf.reshape(tf.zeros(3), [2])


def test_evaluation_goes_on_without_it(reader, capsys):
    reader.shards.skip_corrupt = True
    batches = list(reader.evaluation())
    assert len(batches) == reader.evaluation_batches == 52 and reader.shards.skipped >= 1
    assert batches[-1].input_mask.shape == (8, 32) and int(tf.reduce_sum(batches[-1].input_mask[-1])) == 0
    assert "skipped (skip_corrupt_records)" in capsys.readouterr().out


@pytest.mark.parametrize("fault", ["length", "id", "feature"])
def test_a_later_record_that_does_not_fit_is_told(tmp_path, fault):
    """Only the first record of a shard is looked at beforehand; the others when they are read."""

    def record(length: int, first: int, names=("input_ids", "input_mask", "segment_ids")) -> bytes:
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[first] + [1] * (length - 1)))
        features = tf.train.Features(feature=dict.fromkeys(names, feature))
        return tf.train.Example(features=features).SerializeToString()

    unfit = {"length": record(31, 2), "id": record(32, 400), "feature": record(32, 2, ("input_ids", "input_mask"))}
    records = [record(32, 2)] * 9 + [unfit[fault]]
    (tmp_path / "pretrain_data.tfrecord-0-of-1").write_bytes(b"".join(map(record_bytes, records)))
    config = make_config("m", "d", {"max_seq_length": 32, "vocab_size": 400})
    reader = BatchReader(find_shards(str(tmp_path / "*")), config, 5, 1, range(1))
    with pytest.raises(UserError, match="does not fit the hparams .*max_seq_length is 32, vocab_size 400"):
        with reader.explained():
            list(reader.evaluation())
