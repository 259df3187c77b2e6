"""Masking and corruption (ELECTRA, section 2): pure functions of tensors and keys.

Shapes: B batch, L length, K masked positions an example at most (`max_predictions_per_seq`).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from model import randomness

REPLACED_SHARE = 0.85  # of the drawn positions show [MASK]; the others keep their token


# fmt: off
class Inputs(NamedTuple):
    """A batch as it comes from the shards."""

    input_ids: tf.Tensor     # [B, L] int32
    input_mask: tf.Tensor    # [B, L] int32, 1 for real tokens
    segment_ids: tf.Tensor   # [B, L] int32
    example: tf.Tensor       # [B] int32, index of the example in the global batch


class Masked(NamedTuple):
    """A batch with its masked positions. Unused slots have position, id and weight 0."""

    input_ids: tf.Tensor     # [B, L] int32, the original text
    masked_ids: tf.Tensor    # [B, L] int32, with [MASK] in it
    input_mask: tf.Tensor    # [B, L] int32
    segment_ids: tf.Tensor   # [B, L] int32
    positions: tf.Tensor     # [B, K] int32
    target_ids: tf.Tensor    # [B, K] int32, the tokens that stood there
    weights: tf.Tensor       # [B, K] float32, 1 for used slots
    keys: tf.Tensor          # [B] uint32, randomness of each example at this step


# fmt: on
class Specials(NamedTuple):
    """Ids that the objective must know."""

    cls: int
    sep: int
    mask: int
    joined: np.ndarray | None = None  # [V] bool: pieces that go on with a word ("##s"); for whole_word and span


class Draws(NamedTuple):
    """The randomness of masking."""

    positions: tf.Tensor  # [B, K] int32
    replace_uniform: tf.Tensor  # [B, K] float32 in [0, 1); below 0.85 the position shows [MASK]


def candidates(inputs: Inputs, specials: Specials) -> tf.Tensor:
    """[B, L] bool: real tokens other than [CLS], [SEP] and [MASK]."""
    ids = inputs.input_ids
    special = (ids == specials.cls) | (ids == specials.sep) | (ids == specials.mask)
    return (inputs.input_mask > 0) & ~special


def draw(inputs: Inputs, keys: tf.Tensor, specials: Specials, slots: int, with_replacement: bool) -> Draws:
    """Draws `slots` positions an example, distinct as long as there are candidates (Gumbel top-k).

    `with_replacement` is the released way, under which a position can be drawn twice.
    """
    allowed = candidates(inputs, specials)
    place_keys = randomness.fold(keys, randomness.salt_of("mask/positions"))
    if with_replacement:
        rank = tf.cumsum(tf.cast(allowed, tf.int32), axis=1)  # [B, L]
        wanted = randomness.uniform(place_keys, slots) * tf.cast(rank[:, -1:], tf.float32)
        positions = tf.reduce_sum(tf.cast(rank[:, None, :] <= tf.cast(wanted, tf.int32)[:, :, None], tf.int32), -1)
        positions = tf.where(rank[:, -1:] > 0, positions, 0)
    else:
        noise = randomness.uniform(place_keys, allowed.shape[1])
        positions = tf.math.top_k(tf.where(allowed, noise, noise - 2.0), k=slots).indices
    return Draws(positions, replace_draws(keys, slots))


def replace_draws(keys: tf.Tensor, slots: int) -> tf.Tensor:
    """[B, K]: `replace_uniform` of `Draws`."""
    return randomness.uniform(randomness.fold(keys, randomness.salt_of("mask/replace")), slots)


def wanted(inputs: Inputs, specials: Specials, slots: int, mask_prob: float) -> tf.Tensor:
    """[B] int32, how many positions to mask: clamp(round(real tokens * mask_prob), 1, K), special tokens counted.

    Rounded half to even, and never more than there are candidates.
    """
    real = tf.cast(tf.reduce_sum(inputs.input_mask, -1), tf.float32)
    number = tf.clip_by_value(tf.cast(tf.round(real * mask_prob), tf.int32), 1, slots)
    return tf.minimum(number, tf.reduce_sum(tf.cast(candidates(inputs, specials), tf.int32), -1))


def mask(inputs: Inputs, draws: Draws, keys: tf.Tensor, specials: Specials, number: tf.Tensor) -> Masked:
    """Puts [MASK] at the first `number` [B] of the drawn positions."""
    slots = draws.positions.shape[1]
    used = tf.cast(tf.range(slots) < number[:, None], tf.int32)  # [B, K]
    positions = draws.positions * used
    shown = positions * tf.cast(draws.replace_uniform < REPLACED_SHARE, tf.int32)
    return Masked(
        inputs.input_ids,
        replace_at(inputs.input_ids, shown, tf.fill(tf.shape(shown), specials.mask)),
        inputs.input_mask,
        inputs.segment_ids,
        positions,
        tf.gather(inputs.input_ids, positions, batch_dims=1) * used,
        tf.cast(used, tf.float32),
        keys,
    )


def replace_at(ids: tf.Tensor, positions: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """Writes `updates` [B, K] into `ids` [B, L] at `positions` [B, K]; position 0 stays as it is.

    Updates that meet at one position are averaged, rounded down, as released; distinct positions never meet. In
    float32, which is exact here: TensorFlow would take int32 arithmetic from the GPU to the host.
    """
    places = tf.where(positions > 0, tf.cast(positions, tf.float32), -1.0)
    hits = tf.cast(places[:, :, None] == tf.range(ids.shape[1], dtype=tf.float32), tf.float32)  # [B, K, L]
    count = tf.reduce_sum(hits, 1)
    total = tf.reduce_sum(hits * tf.cast(updates, tf.float32)[:, :, None], 1)
    return tf.where(count > 0, tf.cast(tf.floor(total / tf.maximum(count, 1.0)), tf.int32), ids)


def sample(probabilities: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Draws a token for every row of probabilities: [B, K, V] to [B, K] int32, by inverting the distribution function.

    In two stages, a block of the vocabulary and then a token of the block, so that sums stay short and exact.
    """
    batch, slots, vocab = probabilities.shape
    width = max(1, int(vocab**0.5))
    blocks = -(-vocab // width)
    padded = tf.pad(probabilities, [[0, 0], [0, 0], [0, blocks * width - vocab]])
    shape = [tf.shape(probabilities)[0] if batch is None else batch, slots, blocks, width]
    padded = tf.reshape(padded, shape)
    block = _invert(tf.reduce_sum(padded, -1), randomness.fold(keys, randomness.salt_of("sample/block")))
    within = tf.gather(padded, block, batch_dims=2)  # [B, K, width]
    token = _invert(within, randomness.fold(keys, randomness.salt_of("sample/token")))
    return block * width + token


def _invert(weights: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """An index drawn in proportion to non-negative weights [B, K, n]; never one of weight 0."""
    cumulated = tf.cumsum(weights, axis=-1)
    place = randomness.uniform(keys, weights.shape[1])[:, :, None] * cumulated[:, :, -1:]
    index = tf.cast(tf.reduce_sum(tf.cast(cumulated <= place, tf.float32), -1), tf.int32)
    last = weights.shape[2] - 1 - tf.argmax(tf.reverse(weights > 0, [-1]), -1, output_type=tf.int32)
    return tf.minimum(index, last)
