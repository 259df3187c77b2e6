"""Random numbers that are a pure function of (seed, step, example, layer, place).

A counter hash in 32-bit integer arithmetic: the same numbers with XLA and without, on every device, whatever the
number of replicas or micro-batches, and twice the same when a step is computed twice. The mixing function is the
two-round xor-shift-multiply finalizer with the constants of C. Wellons' search (bias below 0.18).
"""

import zlib

import tensorflow as tf

_GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: spreads consecutive counters
_COLUMNS = 4096


def mix(x: tf.Tensor) -> tf.Tensor:
    """A bijection of uint32 that looks random; any shape."""
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _u32(16)))
    x = x * _u32(0x7FEB352D)
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _u32(15)))
    x = x * _u32(0x846CA68B)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _u32(16)))


def salt_of(name: str) -> int:
    """The number that stands for a name, e.g. a layer's path; stable for ever."""
    return zlib.crc32(name.encode("utf-8"))


def fold(key: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """A new uint32 key from a key and a number, broadcast over their shapes."""
    if isinstance(number, int):
        number = _u32(number & 0xFFFFFFFF)
    return mix(tf.bitwise.bitwise_xor(key, mix(tf.cast(number, tf.uint32) + _u32(_GOLDEN))))


def example_keys(seed: int, step: tf.Tensor, example: tf.Tensor) -> tf.Tensor:
    """One key an example.

    Args:
      seed: of the run.
      step: scalar integer, the training step.
      example: [B] integers, the index of each example in the global batch.

    Returns:
      [B] uint32.
    """
    return fold(fold(mix(_u32(seed & 0xFFFFFFFF)), step), example)


def random_bits(keys: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """[B] keys to [B, count] uint32 words."""
    # neither a constant, which every copy of the graph would hold (gigabytes over all layers), nor a long range, which
    # a GPU would get from the host
    rows, columns = (tf.cast(tf.range(size), tf.uint32) for size in (-(-count // _COLUMNS), _COLUMNS))
    places = tf.reshape(rows[:, None] * _u32(_COLUMNS) + columns, [-1])[:count] * _u32(_GOLDEN)
    return mix(tf.bitwise.bitwise_xor(keys[:, None], places[None, :]))


def uniform(keys: tf.Tensor, count: int) -> tf.Tensor:
    """[B] keys to [B, count] float32 in [0, 1): 24 random bits each."""
    return tf.cast(tf.bitwise.right_shift(random_bits(keys, count), _u32(8)), tf.float32) * 2.0**-24


def keep_mask(keys: tf.Tensor, count: int | tf.Tensor, drop_probability: float) -> tuple[tf.Tensor, float]:
    """Which of `count` places a dropout keeps: ([B, count] bool, the probability of keeping one).

    Two places share one word, so a probability is a multiple of 2^-16; the returned one is exact.
    """
    words = random_bits(keys, (count + 1) // 2)
    halves = tf.reshape(tf.bitcast(words, tf.uint16), [tf.shape(words)[0], -1])[:, :count]
    threshold = round(drop_probability * 65536)
    return halves >= tf.constant(threshold, tf.uint16), 1.0 - threshold / 65536


def _u32(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint32)
