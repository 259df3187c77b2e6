"""Batches hold every example exactly as often as they should, padded to a length that fits all of them."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from configure_finetuning import make_config
from finetune.batches import BatchReader, TrainingOrder, bucket_lengths, training_steps
from finetune.feature_spec import LENGTH, FeatureSpec


class Rows:
    """Features of made-up examples; `input_ids` are all the example's number plus 1."""

    def __init__(self, task: str, lengths: list[int]):
        self.task, self.lengths = task, np.array(lengths, np.int32)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        length = int(self.lengths[index])
        tokens = [index + 1] * length
        return {
            "input_ids": tokens,
            "segment_ids": [0] * length,
            f"{self.task}_eid": index,
            f"{self.task}_labels": tokens[: length // 2],
            f"{self.task}_host": [1] * 99,
        }


def task(name: str):
    specs = [FeatureSpec(f"{name}_eid"), FeatureSpec(f"{name}_labels", (LENGTH,))]
    return SimpleNamespace(name=name, feature_specs=[*specs, FeatureSpec(f"{name}_host", (LENGTH,), on_device=False)])


def reader(sets: dict[str, list[int]], batch_size: int, replicas: int = 1, mine: range | None = None, **hparams):
    config = make_config("m", "d", {"max_seq_length": 64, **hparams})
    return BatchReader(
        [task(name) for name in sets],
        {i: Rows(name, lengths) for i, (name, lengths) in enumerate(sets.items())},
        config,
        batch_size,
        replicas,
        range(replicas) if mine is None else mine,
    )


LENGTHS = st.lists(st.integers(2, 64), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(1, 12), st.integers(1, 4))
def test_evaluation_has_every_example_once(lengths, batch_size, replicas):
    data = reader({"a": lengths}, batch_size, replicas)
    seen, places = [], range(0, data.evaluation_batches * data.batch_size, data.batch_size)
    for begin in places:
        rows = np.arange(begin, begin + data.batch_size)
        for replica in range(replicas):
            batch = data.batch(rows, replica)
            real = batch["task_id"] == 0
            assert (batch["task_id"][~real] == 1).all() and not batch["input_mask"][~real].any()
            seen += list(batch["a_eid"][real])
            np.testing.assert_array_equal(batch["example"], np.arange(len(real)) + replica * len(real))
    assert seen == list(range(len(lengths)))


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(1, 12), st.integers(0, 5))
def test_training_has_every_example_once_an_epoch(lengths, batch_size, epoch):
    order = TrainingOrder(len(lengths), batch_size, seed=3)
    rows = np.concatenate([order.rows(epoch * order.steps_per_epoch + i) for i in range(order.steps_per_epoch)])
    assert sorted(rows) == list(range(order.steps_per_epoch * batch_size))
    assert training_steps(len(lengths), batch_size, 1) == order.steps_per_epoch


def test_the_order_is_a_function_of_seed_and_step():
    one, two = TrainingOrder(100, 8, seed=1), TrainingOrder(100, 8, seed=1)
    forwards = [one.rows(step) for step in range(30)]
    for step in reversed(range(30)):
        np.testing.assert_array_equal(two.rows(step), forwards[step])
    assert not np.array_equal(forwards[0], TrainingOrder(100, 8, seed=2).rows(0))
    assert not np.array_equal(forwards[0], forwards[13])


def test_steps_are_whole_batches_times_epochs():
    assert training_steps(100, 32, 3.0) == 12
    assert training_steps(100, 32, 2.5) == 10
    assert training_steps(3, 32, 0.1) == 1


@settings(deadline=None, max_examples=60)
@given(LENGTHS, LENGTHS, st.integers(1, 12), st.booleans())
def test_padding(lengths, others, batch_size, bucketing):
    """A batch is as long as its bucket; what is beyond an example is zero; other tasks' features are zero."""
    data = reader({"a": lengths, "b": others}, batch_size, bucketing=bucketing)
    rows = TrainingOrder(len(data), batch_size, seed=0).rows(0)
    batch = data.batch(rows, 0)
    real = rows[rows < len(data)]
    longest = max((lengths + others)[row] for row in real) if len(real) else 1
    length = batch["input_ids"].shape[1]
    assert length == 64 if not bucketing else longest <= length < longest + 8
    for i, row in enumerate(rows):
        if row >= len(data):
            assert batch["task_id"][i] == 2 and not batch["input_ids"][i].any()
            continue
        mine, other = ("a", "b") if row < len(lengths) else ("b", "a")
        number = row if mine == "a" else row - len(lengths)
        count = (lengths + others)[row]
        np.testing.assert_array_equal(batch["input_ids"][i], [number + 1] * count + [0] * (length - count))
        assert batch["input_mask"][i].sum() == count and batch["input_mask"][i, :count].all()
        assert batch[f"{mine}_labels"][i].sum() == (number + 1) * (count // 2)
        assert not batch[f"{other}_labels"][i].any() and batch[f"{other}_eid"][i] == 0
        assert batch["task_id"][i] == "ab".index(mine)
    assert "a_host" not in batch


def test_replicas_share_a_batch_and_its_length():
    whole = reader({"a": list(range(2, 34))}, 8)
    parts = reader({"a": list(range(2, 34))}, 8, replicas=2)
    rows = TrainingOrder(32, 8, seed=0).rows(1)
    both = [parts.batch(rows, replica) for replica in range(2)]
    for name, value in whole.batch(rows, 0).items():
        np.testing.assert_array_equal(value, np.concatenate([part[name] for part in both]), err_msg=name)


def test_datasets_give_the_same_batches():
    data = reader({"a": list(range(2, 34))}, 8, replicas=2, mine=range(1, 2))
    order = TrainingOrder(32, 8, data.config.seed)
    for step, batch in zip((5, 6), data.training(5).take(2).as_numpy_iterator()):
        expected = data.batch(order.rows(step), 1)
        for name, value in batch.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert sum(int((batch["task_id"] == 0).sum()) for batch in data.evaluation().as_numpy_iterator()) == 16


def test_bucket_lengths():
    for longest in (5, 8, 100, 128, 500, 512):
        for coarse in (False, True):
            lengths = bucket_lengths(longest, coarse)
            assert lengths == sorted(set(lengths)) and lengths[-1] == longest
    assert len(bucket_lengths(512, True)) <= 12
    assert len(reader({"a": [3]}, 4, use_tpu=True).buckets) == 1
