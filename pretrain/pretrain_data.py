"""From shards to batches on the devices of one worker."""

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from configure_pretraining import PretrainingConfig
from pretrain.masking import Inputs
from pretrain.shards import FEATURES, ExampleRow, ShardList, Window
from util.errors import UserError

# what TensorFlow says of a record that it cannot parse, or that has ids beyond the table
_UNFIT = re.compile(r"Key: \w+[^\n]*|Feature: \w+[^\n]*|an id beyond the table")


class BatchReader:
    """Batches for the devices of one worker.

    Args:
      shards: what is read.
      config: max_seq_length, seed and vocab_size are used.
      batch_size: of the whole training, over all devices.
      replicas: devices of the whole training.
      mine: which of them read here, e.g. range(2, 4) on the second worker of two devices each.

    """

    def __init__(self, shards: ShardList, config: PretrainingConfig, batch_size: int, replicas: int, mine: range):
        self.shards, self.length, self.seed = shards, config.max_seq_length, config.seed
        self.vocab_size = config.vocab_size
        self.batch_size, self.per_replica, self.mine = batch_size, batch_size // replicas, mine
        self._fault: UserError | None = None  # what ended a data set, since TensorFlow hands on its text alone

    def training(self, step: int):
        """Batches of step `step`, step + 1, ... as a tf.data.Dataset of `Inputs`, one element a device and step."""

        def batches():
            row = ExampleRow(self.shards, self.seed)
            for now in itertools.count(step):
                for replica in self.mine:
                    places = range(replica * self.per_replica, (replica + 1) * self.per_replica)
                    yield [row[now * self.batch_size + place] for place in places], list(places)

        return self._dataset(batches)

    def evaluation(self):
        """All examples once, in their order; the last batch is filled up with empty rows (no real token)."""

        def batches():
            window = Window(self.shards, list(range(len(self.shards.paths))), None)
            for now in range(self.evaluation_batches):
                for replica in self.mine:
                    begin = now * self.batch_size + replica * self.per_replica
                    places = range(begin, begin + self.per_replica)
                    filler = empty_record(self.length)
                    yield [window.read(place) if place < len(window) else filler for place in places], list(places)

        return self._dataset(batches)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raises the `UserError` that ended a data set, where TensorFlow fails for it in the `with` block."""
        try:
            yield
        except tf.errors.OpError as error:
            if self._fault:
                raise self._fault from None
            if isinstance(error, tf.errors.InvalidArgumentError) and (found := _UNFIT.search(str(error))):
                raise UserError(
                    f"a record of {os.path.dirname(self.shards.paths[0])} does not fit the hparams ({found[0]}): "
                    f"max_seq_length is {self.length}, vocab_size {self.vocab_size}; not all shards there were built "
                    "alike, build them again"
                ) from error
            raise

    @property
    def evaluation_batches(self) -> int:
        """Batches of one pass over the data."""
        return -(-self.shards.total // self.batch_size)

    def _dataset(self, batches):
        def guarded():
            try:
                yield from batches()
            except UserError as error:
                self._fault = error
                raise

        signature = (tf.TensorSpec([self.per_replica], tf.string), tf.TensorSpec([self.per_replica], tf.int32))
        return tf.data.Dataset.from_generator(guarded, output_signature=signature).map(self._parse).prefetch(4)

    def _parse(self, records, places):
        parsed = tf.io.parse_example(
            records, {name: tf.io.FixedLenFeature([self.length], tf.int64) for name in FEATURES}
        )
        ids = parsed["input_ids"]
        fits = tf.debugging.assert_less(ids, tf.constant(self.vocab_size, tf.int64), message="an id beyond the table")
        with tf.control_dependencies([fits]):
            return Inputs(*(tf.cast(parsed[name], tf.int32) for name in FEATURES), places)


def empty_record(length: int) -> bytes:
    """An example of padding alone."""
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[0] * length))
    return tf.train.Example(features=tf.train.Features(feature=dict.fromkeys(FEATURES, feature))).SerializeToString()
