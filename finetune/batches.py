"""From features to padded batches on the devices of one worker: which examples, in which order, how long."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from configure_finetuning import FinetuningConfig
from finetune.feature_spec import LENGTH, Features
from finetune.finetuning_model import INPUTS
from finetune.task import Task


class Rows(Protocol):
    """The features of a task's split, by number."""

    lengths: np.ndarray  # [n], pieces of each

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Features: ...


class TrainingOrder:
    """Which example stands at which place of which step.

    The examples of all tasks, filled up to whole batches, are shuffled together anew in every epoch: a function of
    (seed, epoch) alone.
    """

    def __init__(self, examples: int, batch_size: int, seed: int):
        self.examples, self.batch_size, self.seed = examples, batch_size, seed
        self.steps_per_epoch = -(-examples // batch_size)
        self._epoch, self._order = -1, np.zeros(0, np.int64)

    def rows(self, step: int) -> np.ndarray:
        """The examples of a step's global batch, [batch_size]; numbers from `examples` on are fillers."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            random = np.random.RandomState([self.seed, epoch])  # its numbers never change between NumPy's versions
            self._epoch, self._order = epoch, random.permutation(self.steps_per_epoch * self.batch_size)
        return self._order[within * self.batch_size : (within + 1) * self.batch_size]


def training_steps(examples: int, batch_size: int, epochs: float) -> int:
    """(examples filled up to whole batches) // batch size * epochs, as released; at least one."""
    return max(1, int(-(-examples // batch_size) * epochs))


def bucket_lengths(longest: int, coarse: bool) -> list[int]:
    """The lengths that batches are padded to, rising up to `longest`.

    Args:
      coarse: few of them, since XLA compiles the step anew for each.
    """
    if coarse:
        steps = (length for power in range(4, 20) for length in (2**power, 3 * 2 ** (power - 1)))
    else:
        steps = itertools.chain(range(8, 128, 8), range(128, 256, 16), itertools.count(256, 32))
    return [*itertools.takewhile(lambda length: length < longest, steps), longest]


class BatchReader:
    """Batches for the devices of one worker.

    Args:
      tasks: all tasks of the model, in the order of their numbers.
      sets: the features of some of them, by the task's number.
      config: max_seq_length, bucketing, seed, use_xla and use_tpu are used.
      batch_size: of the whole training, over all devices; one that they cannot share evenly is rounded up to one that
        they can.
      replicas: devices of the whole training.
      mine: which of them read here.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        sets: dict[int, Rows],
        config: FinetuningConfig,
        batch_size: int,
        replicas: int = 1,
        mine: range = range(1),
    ):
        self.tasks, self.sets, self.config, self.mine = tasks, sets, config, mine
        self.per_replica = -(-batch_size // replicas)
        self.batch_size = self.per_replica * replicas
        self.lengths = np.concatenate([rows.lengths for rows in sets.values()])
        self.ends = np.cumsum([len(rows) for rows in sets.values()])
        single = not config.bucketing or config.use_tpu
        longest = config.max_seq_length
        self.buckets = [longest] if single else bucket_lengths(longest, config.use_xla)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def evaluation_batches(self) -> int:
        """Batches of one pass over the examples."""
        return -(-len(self) // self.batch_size)

    def training(self, step: int) -> tf.data.Dataset:
        """Batches of step `step`, step + 1, ..., one element a device and step."""
        order = TrainingOrder(len(self), self.batch_size, self.config.seed)
        return self._dataset(lambda: (order.rows(now) for now in itertools.count(step)))

    def evaluation(self) -> tf.data.Dataset:
        """All examples once, in their order, then fillers up to a whole batch."""
        places = range(0, self.evaluation_batches * self.batch_size, self.batch_size)
        return self._dataset(lambda: (np.arange(begin, begin + self.batch_size) for begin in places))

    def bucket(self, rows: np.ndarray) -> int:
        """The length that a global batch is padded to."""
        longest = self.lengths[rows[rows < len(self)]].max(initial=1)
        return next(length for length in self.buckets if length >= longest)

    def batch(self, rows: np.ndarray, replica: int) -> dict[str, np.ndarray]:
        """A replica's part of the global batch of these rows."""
        length = self.bucket(rows)
        batch = {
            name: np.zeros([self.per_replica, *(length if axis == LENGTH else axis for axis in shape)], kind)
            for name, (shape, kind) in self._features().items()
        }
        batch["task_id"][:] = len(self.tasks)
        first = replica * self.per_replica
        for i, row in enumerate(rows[first : first + self.per_replica]):
            batch["example"][i] = first + i
            if row < len(self):
                self._fill(batch, i, row)
        return batch

    def _fill(self, batch: dict[str, np.ndarray], i: int, row: int) -> None:
        place = int(np.searchsorted(self.ends, row, side="right"))
        task, rows = list(self.sets.items())[place]
        features = rows[row - (self.ends[place] - len(rows))]
        batch["task_id"][i] = task
        batch["input_mask"][i, : len(features["input_ids"])] = 1
        for name, value in features.items():
            if name not in batch:
                continue  # for the scorer alone
            if isinstance(value, list):
                batch[name][i, : len(value)] = value
            else:
                batch[name][i] = value

    def _features(self) -> dict[str, tuple[tuple[int, ...], type]]:
        specs = {name: (shape, np.int32) for name, shape in INPUTS.items()}
        for task in self.tasks:
            for spec in task.feature_specs:
                if spec.on_device:
                    specs[spec.name] = spec.shape, np.int32 if spec.is_int else np.float32
        return specs

    def _dataset(self, batches) -> tf.data.Dataset:
        def parts() -> Iterator[dict[str, np.ndarray]]:
            for rows in batches():
                for replica in self.mine:
                    yield self.batch(rows, replica)

        length = self.buckets[0] if len(self.buckets) == 1 else None
        signature = {
            name: tf.TensorSpec([self.per_replica, *(length if axis == LENGTH else axis for axis in shape)], kind)
            for name, (shape, kind) in self._features().items()
        }
        return tf.data.Dataset.from_generator(parts, output_signature=signature).prefetch(4)
