"""The counter hash: uniform, independent between keys, the same with XLA."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from model import randomness


def keys(count: int, step: int = 0, seed: int = 0) -> tf.Tensor:
    return randomness.example_keys(seed, tf.constant(step, tf.int64), tf.range(count))


def test_uniform_is_uniform():
    values = randomness.uniform(keys(64), 4096).numpy()
    assert 0 <= values.min() and values.max() < 1
    assert stats.kstest(values.ravel()[:50000], "uniform").pvalue > 1e-3
    assert stats.kstest(values[:, 0], "uniform").pvalue > 1e-3  # over examples at one place
    assert np.abs(np.corrcoef(values[:16])[np.triu_indices(16, 1)]).max() < 0.08


def test_keys_differ():
    drawn = [randomness.example_keys(s, tf.constant(t), tf.range(50)).numpy() for s in range(5) for t in range(40)]
    assert len(np.unique(np.concatenate(drawn))) > 9990  # of 10,000 32-bit words, by chance all different
    key = keys(1)
    folded = {int(randomness.fold(key, randomness.salt_of(f"layer_{i}"))[0]) for i in range(1000)}
    assert len(folded) == 1000


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("count", [1001, 4096])
def test_keep_mask(rate, count):
    keep, probability = randomness.keep_mask(keys(64), count, rate)
    assert keep.shape == (64, count)
    assert probability == pytest.approx(1 - rate, abs=1 / 65536)
    share = float(tf.reduce_mean(tf.cast(keep, tf.float32)))
    assert abs(share - probability) < 4 * max(1e-9, probability * (1 - probability) / (64 * count)) ** 0.5 + 1e-9


def test_the_same_with_and_without_xla():
    plain = randomness.random_bits(keys(8, step=3), 100).numpy()
    compiled = tf.function(lambda k: randomness.random_bits(k, 100), jit_compile=True)(keys(8, step=3)).numpy()
    assert (plain == compiled).all()


def test_an_example_has_its_randomness_wherever_it_stands():
    whole = randomness.example_keys(1, tf.constant(5), tf.range(8)).numpy()
    part = randomness.example_keys(1, tf.constant(5), tf.range(4, 8)).numpy()
    assert (whole[4:] == part).all()
