"""Whole words and spans: what is drawn for any text, how much of it, and how long the spans are."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from model import randomness
from pretrain.masking import Inputs, Specials, candidates, draw, mask, wanted
from pretrain.masking_units import LONGEST_SPAN, draw_units, length_probabilities, word_times, words
from tests.objectives import keys

VOCAB, LENGTH, SLOTS = 30, 24, 6
JOINED = np.arange(VOCAB) >= 20
SPECIALS = Specials(2, 3, 4, JOINED)


def inputs_of(rows: list[list[int]], length: int) -> Inputs:
    ids = np.array([row + [0] * (length - len(row)) for row in rows], np.int32)
    real = np.array([[1] * len(row) + [0] * (length - len(row)) for row in rows], np.int32)
    return Inputs(tf.constant(ids), tf.constant(real), tf.zeros_like(ids), tf.range(len(rows)))


@st.composite
def batches(draw_value) -> Inputs:
    """Rows of any pieces, special ones anywhere, a third of them going on with a word, with padding behind."""
    pieces = st.lists(st.integers(0, VOCAB - 1), max_size=LENGTH)
    return inputs_of(draw_value(st.lists(pieces, min_size=1, max_size=3)), LENGTH)


def words_by_definition(ids: np.ndarray, allowed: np.ndarray) -> list[list[int]]:
    """The words of a row: a piece that may be masked, with the "##" pieces behind it that may be, too."""
    found: list[list[int]] = []
    for place in range(len(ids)):
        if place and JOINED[ids[place]] and allowed[place] and allowed[place - 1]:
            found[-1].append(place)
        else:
            found.append([place])
    return found


@settings(max_examples=80, deadline=None)
@given(batches(), st.integers(0, 1000), st.sampled_from([0.15, 0.25, 0.5]), st.sampled_from(["whole_word", "span"]))
def test_words_are_masked_as_a_whole(inputs, step, mask_prob, unit):
    """Distinct candidates, whole words, never more than wanted, and less only where no single piece is left."""
    row_keys = keys(inputs.input_ids.shape[0], step)
    number = wanted(inputs, SPECIALS, SLOTS, mask_prob)
    draws, drawn = draw_units(inputs, row_keys, SPECIALS, SLOTS, number, unit)
    batch = mask(inputs, draws, row_keys, SPECIALS, drawn)
    allowed = candidates(inputs, SPECIALS).numpy()
    for row, ids in enumerate(inputs.input_ids.numpy()):
        places = batch.positions.numpy()[row][batch.weights.numpy()[row] > 0].tolist()
        assert len(places) == drawn.numpy()[row] == len(set(places)) <= number.numpy()[row]
        assert all(allowed[row][place] for place in places)
        found = [word for word in words_by_definition(ids, allowed[row]) if allowed[row][word[0]]]
        assert all(len(set(word) & set(places)) in (0, len(word)) for word in found)
        singles = [word[0] for word in found if len(word) == 1]
        assert len(places) == number.numpy()[row] or set(singles) <= set(places)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_words(inputs):
    allowed = candidates(inputs, SPECIALS)
    word, first = (values.numpy() for values in words(inputs.input_ids, allowed, JOINED))
    for row, ids in enumerate(inputs.input_ids.numpy()):
        expected = words_by_definition(ids, allowed.numpy()[row])
        assert [np.flatnonzero(word[row] == i).tolist() for i in range(len(expected))] == expected
        assert first[row].tolist() == [w[0] for w in expected] + [LENGTH] * (LENGTH + 1 - len(expected))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=3), st.integers(0, 99))
def test_times_are_those_of_the_earliest_span(rows, step):
    """Against a loop over all spans: each covers its words up to the first that may not be masked."""
    maskable, row_keys = np.array(rows), keys(len(rows), step)
    times = word_times(tf.constant(maskable), row_keys, LONGEST_SPAN).numpy()
    begins = randomness.uniform(randomness.fold(row_keys, randomness.salt_of("mask/units")), 12).numpy()
    drawn = randomness.uniform(randomness.fold(row_keys, randomness.salt_of("mask/lengths")), 12).numpy()
    lengths = 1 + np.searchsorted(np.cumsum(length_probabilities())[:-1].astype(np.float32), drawn, side="right")
    expected = np.full(maskable.shape, 2.0, np.float32)
    for row, first in zip(*np.nonzero(maskable), strict=True):
        for place in range(first, min(12, first + lengths[row, first])):
            if not maskable[row, place]:
                break
            expected[row, place] = min(expected[row, place], begins[row, first])
    np.testing.assert_array_equal(times, expected)


def test_lengths_are_geometric():
    """0.2 0.8^(n - 1) for 1 to 10 words, normalised: a mean of 3.8."""
    share = length_probabilities()
    assert len(share) == 10 and abs(share.sum() - 1) < 1e-12 and np.allclose(share[1:] / share[:-1], 0.8)
    assert abs(np.sum(share * np.arange(1, 11)) - 3.797) < 1e-3


def texts(rows: int, length: int, seed: int = 0) -> Inputs:
    """Texts of which a quarter of the pieces go on with a word, between [CLS] and [SEP]."""
    draws = np.random.RandomState(seed)
    ids = np.where(draws.uniform(size=(rows, length)) < 0.25, 25, 10)
    ids[:, 0], ids[:, -1] = 2, 3
    return inputs_of(ids.tolist(), length)


def test_every_unit_masks_the_same_share():
    """The mean number of masked tokens is that of single tokens, to half a percent."""
    inputs, slots = texts(500, 64), 9
    number = wanted(inputs, SPECIALS, slots, 0.15)
    for unit in ("whole_word", "span"):
        drawn = draw_units(inputs, keys(500), SPECIALS, slots, number, unit)[1]
        assert abs(np.mean(drawn) / np.mean(number) - 1) < 0.005, unit


def test_spans_hang_together_and_words_do_not():
    """How often the word behind a masked one is masked too: by chance for whole words, about 3 in 4 inside spans."""
    inputs = inputs_of([[2] + [10] * 126 + [3]] * 300, 128)
    number, together = tf.fill([300], 19), {}
    for unit in ("token", "whole_word", "span"):
        if unit == "token":
            draws = draw(inputs, keys(300), SPECIALS, 19, False)
        else:
            draws = draw_units(inputs, keys(300), SPECIALS, 19, number, unit)[0]
        hit = np.zeros([300, 128], bool)
        np.put_along_axis(hit, draws.positions.numpy(), True, 1)
        assert (hit.sum(1) == 19).all()
        together[unit] = np.mean(hit[:, 2:][hit[:, 1:-1]])
    assert abs(together["token"] - 19 / 126) < 0.02 and abs(together["whole_word"] - 19 / 126) < 0.02
    assert 0.65 < together["span"] < 0.85


def test_whole_words_are_drawn_equally_often():
    """Words of one piece, each as likely as any other."""
    inputs = inputs_of([[2, 10, 11, 12, 13, 14, 15, 16, 3]] * 6000, 9)
    draws, _ = draw_units(inputs, keys(6000), SPECIALS, 2, tf.fill([6000], 2), "whole_word")
    counts = np.bincount(draws.positions.numpy().ravel(), minlength=9)
    assert set(np.flatnonzero(counts)) == set(range(1, 8)) and stats.chisquare(counts[1:8]).pvalue > 1e-4
