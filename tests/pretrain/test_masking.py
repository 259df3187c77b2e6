"""Masking and corruption against plain Python, on any batch; samples against their distribution."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from model import randomness
from pretrain.masking import Draws, Inputs, Specials, candidates, draw, mask, replace_at, sample, wanted

SPECIALS = Specials(cls=2, sep=3, mask=4)
LENGTH, SLOTS = 12, 4


def keys_of(count: int, step: int = 0) -> tf.Tensor:
    return randomness.example_keys(7, tf.constant(step), tf.range(count))


@st.composite
def batches(draw_value) -> Inputs:
    """Rows of ids 0 to 9 (2, 3 and 4 special) with padding behind any number of real tokens, none included."""
    rows = draw_value(st.lists(st.lists(st.integers(0, 9), max_size=LENGTH), min_size=1, max_size=3))
    ids = np.array([row + [0] * (LENGTH - len(row)) for row in rows], np.int32)
    real = np.array([[1] * len(row) + [0] * (LENGTH - len(row)) for row in rows], np.int32)
    return Inputs(tf.constant(ids), tf.constant(real), tf.zeros_like(ids), tf.range(len(rows)))


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(0, 1000), st.sampled_from([0.15, 0.25, 0.5]), st.booleans())
def test_mask(inputs, step, mask_prob, with_replacement):
    keys = keys_of(inputs.input_ids.shape[0], step)
    draws = draw(inputs, keys, SPECIALS, SLOTS, with_replacement)
    batch = mask(inputs, draws, keys, SPECIALS, wanted(inputs, SPECIALS, SLOTS, mask_prob))
    allowed = candidates(inputs, SPECIALS).numpy()
    for row in range(len(allowed)):
        ids, shown = inputs.input_ids[row].numpy(), batch.masked_ids[row].numpy()
        used = int(batch.weights[row].numpy().sum())
        real = int(inputs.input_mask[row].numpy().sum())
        assert used == min(
            max(1, min(SLOTS, round(float(np.float32(real) * np.float32(mask_prob))))), allowed[row].sum()
        )
        positions = batch.positions[row].numpy()
        assert all(allowed[row][p] for p in positions[:used])
        if not with_replacement:
            assert len(set(positions[:used])) == used
        assert (batch.target_ids[row].numpy()[:used] == ids[positions[:used]]).all()
        for values in (positions, batch.target_ids[row].numpy(), batch.weights[row].numpy()):
            assert (values[used:] == 0).all()
        masked = {
            p for p, u in zip(positions[:used], draws.replace_uniform[row].numpy(), strict=False) if u < 0.85 and p
        }
        expected = [SPECIALS.mask if p in masked else token for p, token in enumerate(ids)]
        assert shown.tolist() == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_replace_at(data):
    ids = data.draw(st.lists(st.integers(0, 999), min_size=3, max_size=8))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(ids) - 1), st.integers(0, 999)), min_size=1, max_size=6))
    expected = list(ids)
    for place in {place for place, _ in pairs} - {0}:
        updates = [update for other, update in pairs if other == place]
        expected[place] = sum(updates) // len(updates)  # as released: two updates at one position are averaged
    ours = replace_at(tf.constant([ids]), tf.constant([[p for p, _ in pairs]]), tf.constant([[u for _, u in pairs]]))
    assert ours.numpy()[0].tolist() == expected


def test_colliding_updates_as_released():
    assert replace_at(tf.constant([[9, 9]]), tf.constant([[1, 1]]), tf.constant([[370, 494]])).numpy()[0, 1] == 432


def test_masking_is_uniform_over_candidates():
    """Every candidate is drawn equally often, and 85% of the drawn positions show [MASK]."""
    rows = 4000
    ids = tf.tile(tf.constant([[2, 5, 6, 7, 8, 9, 5, 6, 3, 0, 0, 0]]), [rows, 1])
    inputs = Inputs(ids, tf.cast(ids > 0, tf.int32), tf.zeros_like(ids), tf.range(rows))
    for with_replacement in (False, True):
        draws = draw(inputs, keys_of(rows), SPECIALS, 2, with_replacement)
        counts = np.bincount(draws.positions.numpy().ravel(), minlength=LENGTH)
        assert set(np.flatnonzero(counts)) == set(range(1, 8))
        assert stats.chisquare(counts[1:8]).pvalue > 1e-4
        assert abs(float(tf.reduce_mean(tf.cast(draws.replace_uniform < 0.85, tf.float32))) - 0.85) < 0.02


def test_masks_differ_between_steps_and_examples_and_repeat_for_one():
    ids = tf.tile(tf.range(10, 42)[None], [8, 1])
    inputs = Inputs(ids, tf.ones_like(ids), tf.zeros_like(ids), tf.range(8))

    def positions(step):
        return draw(inputs, keys_of(8, step), SPECIALS, 5, False).positions.numpy()

    assert (positions(3) == positions(3)).all()
    assert len({tuple(row) for step in range(4) for row in positions(step)}) == 32


@pytest.mark.parametrize("vocab", [7, 100, 1003])
def test_sample_follows_the_distribution(vocab):
    rows = 20000
    logits = np.random.RandomState(vocab).normal(scale=1.5, size=vocab).astype(np.float32)
    logits[vocab // 2] = -1000.0  # never drawn
    probabilities = tf.nn.softmax(logits)
    drawn = sample(tf.tile(probabilities[None, None], [rows, 1, 1]), keys_of(rows)).numpy().ravel()
    counts = np.bincount(drawn, minlength=vocab)
    expected = probabilities.numpy().astype(np.float64) * rows
    assert counts[vocab // 2] == 0
    common = expected >= 5  # the rare ones together
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], max(expected[~common].sum(), 1e-9))
    if wanted[-1] < 5:
        observed, wanted = observed[:-1], wanted[:-1]
    assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-4


def test_sample_of_certain_tokens():
    certain = tf.one_hot([[0, 29, 30521, 12345]], 30522)
    assert sample(certain, keys_of(1)).numpy()[0].tolist() == [0, 29, 30521, 12345]


def test_draws_are_distinct_on_a_row_without_candidates():
    ids = tf.constant([[2, 3, 0, 0]])
    inputs = Inputs(ids, tf.cast(ids > 0, tf.int32), tf.zeros_like(ids), tf.range(1))
    for with_replacement in (False, True):
        draws = draw(inputs, keys_of(1), SPECIALS, 2, with_replacement)
        batch = mask(inputs, draws, keys_of(1), SPECIALS, wanted(inputs, SPECIALS, 2, 0.15))
        assert batch.weights.numpy().sum() == 0 and (batch.masked_ids.numpy() == ids.numpy()).all()


def test_fixed_draws_are_obeyed():
    ids = tf.constant([[2, 11, 12, 13, 14, 15, 16, 3]])
    inputs = Inputs(ids, tf.ones_like(ids), tf.zeros_like(ids), tf.range(1))
    draws = Draws(tf.constant([[2, 5]]), tf.constant([[0.1, 0.9]]))
    batch = mask(inputs, draws, keys_of(1), SPECIALS, tf.constant([2]))
    assert batch.masked_ids.numpy()[0].tolist() == [2, 11, 4, 13, 14, 15, 16, 3]
    assert batch.target_ids.numpy()[0].tolist() == [12, 15]
