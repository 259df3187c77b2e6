"""Masking whole words (pieces joined by ##), or spans of words (SpanBERT, Joshi et al. 2020, section 3.1).

Every span gets a random time and covers some words from its first on; a word's time is the earliest span's that
covers it, and words are masked in the order of their times until the wanted number of tokens is reached. Whole-word
masking is the case of spans of one word. A unit that no longer fits is cut (spans) or left out, and single-piece
words fill what remains, so that the share of masked tokens is that of masking single tokens.
"""

import numpy as np
import tensorflow as tf

from model import randomness
from pretrain.masking import Draws, Inputs, Specials, candidates, replace_draws

LONGEST_SPAN = 10  # words
STOP = 0.2  # probability that a span ends after a word
NEVER = 2.0  # the time of what may not be masked; other times are below 1


def length_probabilities() -> np.ndarray:
    """Of spans of 1, 2, ... `LONGEST_SPAN` words: geometric, cut there and normalised; the mean is 3.8."""
    weights = STOP * (1 - STOP) ** np.arange(LONGEST_SPAN)
    return weights / weights.sum()


def draw_units(
    inputs: Inputs, keys: tf.Tensor, specials: Specials, slots: int, number: tf.Tensor, unit: str
) -> tuple[Draws, tf.Tensor]:
    """Draws positions in units of words or spans, a word always as a whole.

    Args:
      inputs, keys, specials, slots: as of `masking.draw`.
      number: [B], how many positions to mask.
      unit: "whole_word" or "span".

    Returns:
      (draws, [B] how many of the drawn positions to mask: `number`, or fewer where only longer words remain).
    """
    allowed = candidates(inputs, specials)  # [B, L]
    word, first = words(inputs.input_ids, allowed, specials.joined)
    maskable = tf.gather(tf.pad(allowed, [[0, 0], [0, 1]]), first, batch_dims=1)  # [B, L + 1], words
    time = word_times(maskable, keys, LONGEST_SPAN if unit == "span" else 1)
    time = tf.where(allowed, tf.gather(time, word, batch_dims=1), NEVER)  # [B, L], of each token's word
    order = tf.argsort(time, stable=True)  # [B, L] positions, words whole and in the order of their times
    taken = _within_budget(order, allowed, word, first, number)
    chosen = tf.gather(order, tf.argsort(tf.cast(~taken, tf.int32), stable=True), batch_dims=1)
    return Draws(chosen[:, :slots], replace_draws(keys, slots)), tf.reduce_sum(tf.cast(taken, tf.int32), -1)


def words(ids: tf.Tensor, allowed: tf.Tensor, joined: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    """Which word each token is of, and where each word begins; a token that may not be masked is a word of its own.

    Args:
      ids, allowed: [B, L].
      joined: [V] bool, pieces that go on with a word.

    Returns:
      ([B, L] number of each token's word, [B, L + 1] first position of each word: L for numbers beyond the last).
    """
    goes_on = tf.gather(tf.constant(joined), ids) & allowed & tf.pad(allowed[:, :-1], [[0, 0], [1, 0]])
    word = tf.cumsum(tf.cast(~goes_on, tf.int32), axis=1) - 1
    numbers = tf.broadcast_to(tf.range(ids.shape[1] + 1), [tf.shape(ids)[0], ids.shape[1] + 1])
    return word, tf.searchsorted(word, numbers)


def word_times(maskable: tf.Tensor, keys: tf.Tensor, longest: int) -> tf.Tensor:
    """The time [B, W] at which each word is covered by the first span; spans end before a word that may not be masked.

    Args:
      maskable: [B, W] bool.
      keys: [B] uint32.
      longest: words of a span at most.
    """
    width = maskable.shape[1]
    begins = randomness.uniform(randomness.fold(keys, randomness.salt_of("mask/units")), width)
    ends = np.cumsum(length_probabilities())[: longest - 1].astype(np.float32)
    drawn = randomness.uniform(randomness.fold(keys, randomness.salt_of("mask/lengths")), width)
    lengths = 1 + tf.reduce_sum(tf.cast(drawn[:, :, None] >= ends, tf.int32), -1)
    begins, alive = tf.where(maskable, begins, NEVER), maskable
    times = begins
    for distance in range(1, longest):  # spans that begin so many words to the left
        alive = maskable & _shifted(alive, 1, False)
        covers = alive & (_shifted(lengths, distance, 0) > distance)
        times = tf.where(covers, tf.minimum(times, _shifted(begins, distance, NEVER)), times)
    return times


def _shifted(values: tf.Tensor, distance: int, filler) -> tf.Tensor:
    return tf.pad(values, [[0, 0], [distance, 0]], constant_values=filler)[:, : values.shape[1]]


def _within_budget(order, allowed, word, first, number) -> tf.Tensor:
    """Which places of `order` [B, L] are taken: the words that fit, one after the other, then single pieces."""
    sorted_word, length = tf.gather(word, order, batch_dims=1), order.shape[1]
    begin, after = (tf.gather(first, sorted_word + i, batch_dims=1) for i in (0, 1))
    end = tf.range(length) - (order - begin) + (after - begin)  # tokens taken when the word is whole
    maskable = tf.gather(allowed, order, batch_dims=1)
    fits = maskable & (end <= number[:, None])
    remaining = number - tf.reduce_sum(tf.cast(fits, tf.int32), -1)
    single = maskable & ~fits & (after - begin == 1)
    return fits | (single & (tf.cumsum(tf.cast(single, tf.int32), axis=1) <= remaining[:, None]))
