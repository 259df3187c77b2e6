"""The encoder: its parts against numpy, fresh values by their rule, dropout that belongs to the example."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from model import randomness
from model.config import generator_config, transformer_config
from model.modeling import Encoder, Initializer, LayerNorm, gelu, named_variables

CONFIG = transformer_config(
    "small",
    50,
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 20},
)
INIT = Initializer(seed=3, stddev=0.02)


def built(config=CONFIG, embedding_size=16, seed=3, **more) -> Encoder:
    encoder = Encoder("electra", config, embedding_size, Initializer(seed, 0.02), **more)
    encoder.build()
    return encoder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return built()


@pytest.fixture(scope="module")
def batch():
    ids = np.random.RandomState(0).randint(5, 50, (3, 12)).astype(np.int32)
    real = (np.arange(12) < [[12], [7], [3]]).astype(np.int32)
    return tf.constant(ids * real), tf.constant(real), tf.constant((np.arange(12) > 4).astype(np.int32) * real)


def test_gelu():
    x = np.linspace(-6, 6, 101).astype(np.float32)
    np.testing.assert_allclose(gelu(tf.constant(x)), x * special.ndtr(x.astype(np.float64)), atol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_layer_norm(dtype):
    norm = LayerNorm(8, INIT)
    norm.build()
    norm.gamma.assign(np.arange(1.0, 9.0))
    norm.beta.assign(np.arange(8.0) - 3)
    x = tf.cast(tf.random.stateless_normal([5, 8], [1, 2], mean=100.0), dtype)  # a mean that low precision cannot bear
    wide = x.numpy().astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-12)
    expected = expected * np.arange(1.0, 9.0) + np.arange(8.0) - 3
    tolerance = 1e-3 if dtype == tf.float32 else 0.02
    np.testing.assert_allclose(tf.cast(norm(x), tf.float32), expected, rtol=tolerance, atol=tolerance)


def test_names_and_shapes(encoder):
    shapes = {name: tuple(variable.shape) for name, variable in named_variables([encoder]).items()}
    assert shapes["electra/embeddings/word_embeddings"] == (50, 16)
    assert shapes["electra/embeddings/position_embeddings"] == (20, 16)
    assert shapes["electra/embeddings_project/kernel"] == (16, 32)
    assert shapes["electra/encoder/layer_1/attention/self/value/kernel"] == (32, 32)
    assert shapes["electra/encoder/layer_1/output/dense/kernel"] == (128, 32)
    assert "electra/embeddings_project/kernel" not in named_variables([built(embedding_size=32)])


def test_shared_embeddings_are_the_same_variables(encoder):
    small = Encoder("generator", generator_config(CONFIG, 1.0, 0.5), 16, INIT, embeddings=encoder.embeddings)
    small.build()
    names = named_variables([encoder, small])
    assert not [name for name in names if name.startswith("generator/embeddings")]
    assert names["generator/encoder/layer_0/intermediate/dense/kernel"].shape == (16, 64)


def test_fresh_values():
    """Truncated normal but for Glorot kernels; zeros and ones; a function of seed and name."""
    variables = named_variables([built()])
    again, other = named_variables([built()]), named_variables([built(seed=4)])
    for name, variable in variables.items():
        values = variable.numpy()
        assert (values == again[name].numpy()).all()
        if name.endswith(("bias", "beta")):
            assert (values == 0).all()
        elif name.endswith("gamma"):
            assert (values == 1).all()
        else:
            assert (values != other[name].numpy()).any()
            if "embeddings_project" in name:
                assert 0.9 < np.abs(values).max() / np.sqrt(6 / (16 + 32)) <= 1
            else:
                assert np.abs(values).max() <= 0.04 + 1e-6 and abs(values.std() / (0.02 * 0.88) - 1) < 0.25, name
    kernels = [v.numpy() for name, v in variables.items() if name.endswith("query/kernel")]
    assert (kernels[0] != kernels[1]).any()


def test_padding_changes_nothing(encoder, batch):
    """The outputs at real tokens do not depend on what stands behind them."""
    ids, real, segments = batch
    whole = encoder(ids, real, segments).sequence
    short = encoder(ids[1:2, :7], real[1:2, :7], segments[1:2, :7]).sequence
    np.testing.assert_allclose(whole[1:2, :7], short, atol=1e-5)
    garbage = tf.where(real > 0, ids, 9)
    np.testing.assert_allclose(encoder(garbage, real, segments).sequence[1, :7], whole[1, :7], atol=1e-5)


def test_attention_mask_of_its_own(encoder, batch):
    """With a causal mask a token does not depend on those after it."""
    ids, real, segments = batch
    causal = tf.linalg.band_part(tf.ones([3, 12, 12], tf.int32), -1, 0) * real[:, None, :]
    before = encoder(ids, real, segments, attention_mask=causal).sequence
    changed = tf.concat([ids[:, :5], ids[:, 5:] * 0 + 8], 1)
    after = encoder(changed, real, segments, attention_mask=causal).sequence
    np.testing.assert_allclose(before[:, :5], after[:, :5], atol=1e-6)
    assert np.abs(before[0, 6] - after[0, 6]).max() > 1e-3


def test_dropout_belongs_to_the_example(encoder, batch):
    """An example is dropped out alike wherever it stands in the batch; another step or network drops others."""
    ids, real, segments = batch
    keys = randomness.example_keys(0, tf.constant(5), tf.range(3))
    whole = encoder(ids, real, segments, keys).sequence
    part = encoder(ids[1:], real[1:], segments[1:], keys[1:]).sequence
    np.testing.assert_allclose(whole[1:], part, atol=1e-5)
    other = encoder(ids, real, segments, randomness.example_keys(0, tf.constant(6), tf.range(3))).sequence
    assert np.abs(whole - other).max() > 1e-2
    assert np.abs(whole - encoder(ids, real, segments).sequence).max() > 1e-2


def test_dropout_is_the_same_with_xla(encoder, batch):
    keys = randomness.example_keys(0, tf.constant(5), tf.range(3))
    compiled = tf.function(lambda *inputs: encoder(*inputs, keys).sequence, jit_compile=True)
    np.testing.assert_allclose(compiled(*batch), encoder(*batch, keys).sequence, atol=1e-4)


def test_low_precision_is_close(encoder, batch):
    half = built(compute_dtype="bfloat16")
    output = half(*batch).sequence
    assert output.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(output, tf.float32), encoder(*batch).sequence, atol=0.1)


def test_recomputed_blocks_have_the_same_gradients(batch):
    """With dropout: the backward pass computes each block's inside a second time, and drops the same places."""

    def gradients_of(recompute: bool):
        encoder = built(recompute=recompute)
        variables = list(named_variables([encoder]).values())
        keys = tf.constant([1, 2, 3], tf.uint32)
        weights = tf.constant(np.random.RandomState(1).normal(size=(3, 12, 32)).astype(np.float32))

        @tf.function
        def run():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights * encoder(*batch, keys).sequence)
            gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
            return [tf.convert_to_tensor(gradient) for gradient in gradients]

        graph = run.get_concrete_function().graph
        return [gradient.numpy() for gradient in run()], sum(op.type == "Softmax" for op in graph.get_operations())

    plain, plain_count = gradients_of(False)
    recomputed, count = gradients_of(True)
    assert (plain_count, count) == (2, 4)
    assert max(np.abs(gradient).max() for gradient in plain) > 1
    for a, b in zip(plain, recomputed, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
