"""The optimizer and the schedule against numpy."""

import numpy as np
import pytest
import tensorflow as tf

from model.optimization import AdamWeightDecay, clip_factor, is_decayed, learning_rate, stochastic_bfloat16

NAMES = ("electra/encoder/layer_0/output/dense/kernel", "electra/encoder/layer_0/output/LayerNorm/gamma",
         "electra/encoder/layer_0/output/dense/bias", "electra/embeddings/word_embeddings")  # fmt: skip


@pytest.mark.parametrize(("warmup", "power"), [(0, 1.0), (4, 1.0), (2.5, 2.0), (1000, 0.5)])
def test_schedule(warmup, power):
    for step in (0, 1, 3, 4, 10, 19, 20, 25):
        expected = 3e-4 * (1 - min(step, 20) / 20) ** power * (min(1, step / warmup) if warmup else 1)
        assert float(learning_rate(tf.constant(step, tf.int64), 3e-4, 20, warmup, power)) == pytest.approx(
            expected, rel=1e-6, abs=1e-12)  # fmt: skip


def test_decayed_names():
    assert [is_decayed(name) for name in NAMES] == [True, False, False, True]
    assert not is_decayed("generator_predictions/output_bias") and not is_decayed("x/layer_norm/scale")


@pytest.fixture
def optimizer():
    random = np.random.RandomState(0)
    variables = {name: tf.Variable(random.normal(size=(3, 2)).astype(np.float32)) for name in NAMES}
    return AdamWeightDecay(variables, 0.01, {NAMES[3]: 0.25})


def apply(optimizer, gradients, factor=1.0, rate=0.1, good=True, step=0):
    moved = {name: tf.constant(gradient) for name, gradient in zip(optimizer.variables, gradients)}
    tf.function(optimizer.apply)(moved, tf.constant(factor), tf.constant(rate), tf.constant(good), tf.constant(step))


def test_updates(optimizer):
    random = np.random.RandomState(1)
    theta = {name: variable.numpy().astype(np.float64) for name, variable in optimizer.variables.items()}
    m = {name: np.zeros((3, 2)) for name in NAMES}
    v = {name: np.zeros((3, 2)) for name in NAMES}
    for _ in range(5):
        gradients = [random.normal(size=(3, 2)).astype(np.float32) for _ in NAMES]
        apply(optimizer, gradients, factor=0.5)
        for name, gradient in zip(NAMES, gradients, strict=True):
            gradient = 0.5 * gradient.astype(np.float64)
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.999 * v[name] + 0.001 * gradient**2
            update = m[name] / (np.sqrt(v[name]) + 1e-6)
            update += 0.01 * theta[name] * (name in (NAMES[0], NAMES[3]))
            theta[name] -= 0.1 * (0.25 if name == NAMES[3] else 1.0) * update
    for name in NAMES:
        np.testing.assert_allclose(optimizer.variables[name], theta[name], rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(optimizer.slots[f"{name}/adam_m"], m[name], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(optimizer.slots[f"{name}/adam_v"], v[name], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("fault", [np.nan, np.inf])
@pytest.mark.parametrize("slot_dtype", [tf.float32, tf.bfloat16])
def test_a_bad_step_changes_no_bit(optimizer, fault, slot_dtype):
    optimizer = AdamWeightDecay(optimizer.variables, 0.01, slot_dtype=slot_dtype)
    apply(optimizer, [np.ones((3, 2), np.float32)] * 4)
    before = [variable.numpy() for variable in (*optimizer.variables.values(), *optimizer.slots.values())]
    bad = [np.full((3, 2), fault, np.float32)] + [np.ones((3, 2), np.float32)] * 3
    apply(optimizer, bad, factor=0.0, good=False)
    after = [variable.numpy() for variable in (*optimizer.variables.values(), *optimizer.slots.values())]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, after, strict=True))


def test_clipping():
    gradients = [tf.constant([3.0, 0.0]), tf.constant([[4.0]])]
    norm, factor = clip_factor(gradients)
    assert float(norm) == 5.0 and float(factor) == pytest.approx(0.2)
    norm, factor = clip_factor(gradients, scale=tf.constant(8.0))  # the gradients of 8 times the loss
    assert float(norm) == 0.625 and float(factor) == pytest.approx(1 / 8)
    norm, factor = clip_factor([tf.zeros([2])])
    assert float(norm) == 0 and float(factor) == 1


def test_only_what_has_a_gradient_moves(optimizer):
    before = {name: variable.numpy() for name, variable in optimizer.variables.items()}
    tf.function(optimizer.apply)({NAMES[1]: tf.ones((3, 2))}, 1.0, 0.1, tf.constant(True), 0)
    moved = [name for name, variable in optimizer.variables.items() if not np.array_equal(variable, before[name])]
    assert moved == [NAMES[1]] and not np.any(optimizer.slots[f"{NAMES[0]}/adam_m"])


def test_rounding_is_right_on_average():
    """Each value becomes one of its two neighbours in bfloat16; their mean over many draws is the value."""
    values = np.array([1.0, 1.001, 1.0039, 3.3e-9, -2.7, 0.0], np.float32)
    many = tf.tile(tf.constant(values)[None], [4000, 1])
    draws = stochastic_bfloat16(many, tf.constant(7, tf.uint32)).numpy().astype(np.float64)
    step = np.abs(values) * 2.0**-7
    assert np.all(np.abs(draws - values) < np.maximum(step, 1e-30))
    assert all(len(set(column)) <= 2 for column in draws.T) and set(draws[:, 0]) == {1.0}
    np.testing.assert_allclose(draws.mean(0), values, atol=5 * np.max(step) / 2 / 4000**0.5)
    assert abs(draws[:, 1].mean() - 1.001) < 5 * 2.0**-8 / 4000**0.5


def test_narrow_moments_follow_the_wide_ones(optimizer):
    """Moments in bfloat16 stay unbiased over 300 steps; rounded to the nearest, the second would not move at all."""
    size = (40, 50)
    wide, narrow = (AdamWeightDecay({"w": tf.Variable(tf.zeros(size))}, 0.0, slot_dtype=dtype)
                    for dtype in (tf.float32, tf.bfloat16))  # fmt: skip
    random = np.random.RandomState(0)
    for one in (wide, narrow):
        one.slots["w/adam_v"].assign(tf.ones(size, one.slots["w/adam_v"].dtype))
    moves = [tf.function(one.apply) for one in (wide, narrow)]
    for step in range(300):
        gradient = tf.constant(random.normal(size=size).astype(np.float32))
        for move in moves:
            move({"w": gradient}, tf.constant(1.0), tf.constant(0.01), tf.constant(True), tf.constant(step))
    assert narrow.slots["w/adam_m"].dtype == narrow.slots["w/adam_v"].dtype == tf.bfloat16
    expected, found = (one.slots["w/adam_v"].numpy().astype(np.float64) for one in (wide, narrow))
    np.testing.assert_allclose(found.mean(), expected.mean(), rtol=2e-3)
    assert np.corrcoef(expected.ravel(), found.ravel())[0, 1] > 0.5
    np.testing.assert_allclose(narrow.variables["w"], wide.variables["w"], atol=0.02)


def test_narrow_moments_are_widened_by_one_graph_for_all():
    """A copy of it for each of hundreds of variables would take gigabytes and minutes; constants lead to copies too."""
    optimizer = AdamWeightDecay({f"w{i}": tf.Variable(tf.zeros([3])) for i in range(9)}, 0.01, slot_dtype=tf.bfloat16)

    @tf.function
    def move(rate, step):
        gradients = {name: tf.ones([3]) * rate for name in optimizer.variables}
        optimizer.apply(gradients, rate, rate, rate > 0, step)

    graph = move.get_concrete_function(tf.TensorSpec([]), tf.TensorSpec([], tf.int32)).graph
    calls = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
    assert len(calls) == 9 and {call.get_attr("f").name for call in calls} == {calls[0].get_attr("f").name}
    assert not any(given.op.type == "Const" for call in calls for given in call.inputs)
    [body] = [f for f in graph.as_graph_def().library.function if f.signature.name == calls[0].get_attr("f").name]
    assert body.attr["_noinline"].b
