"""Checkpoints: found, read with a report, checked, written whole or not at all."""

import os

import numpy as np
import pytest
import tensorflow as tf

from model import checkpoints
from util.errors import UserError

NAMES = {"electra/embeddings/word_embeddings": (6, 4), "electra/encoder/layer_0/output/dense/kernel": (8, 4)}


def variables_of(names=NAMES) -> dict[str, tf.Variable]:
    return {name: tf.Variable(np.random.RandomState(len(name)).normal(size=shape).astype(np.float32))
            for name, shape in names.items()}  # fmt: skip


def save(folder, step: int, tensors: dict) -> str:
    prefix = os.path.join(folder, f"model.ckpt-{step}")
    checkpoints.write(prefix, {name: tf.convert_to_tensor(value) for name, value in tensors.items()})
    return prefix


def test_round_trip_and_report(tmp_path):
    variables = variables_of()
    slots = {f"{name}/adam_m": tf.Variable(tf.ones(v.shape)) for name, v in variables.items()}
    first = next(iter(NAMES))
    written = {**variables, f"{first}/adam_m": np.full((6, 4), 3.0, np.float32), "global_step": np.int64(17)}
    prefix = save(tmp_path, 17, {**written, "generator/extra": np.zeros(2, np.float32)})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.ckpt-17.data-00000-of-00001", "model.ckpt-17.index"]  # fmt: skip
    fresh = {name: tf.Variable(tf.zeros(v.shape)) for name, v in variables.items()}
    fresh["discriminator_predictions/dense/bias"] = tf.Variable([5.0])
    state = {"global_step": tf.Variable(0, dtype=tf.int64), "training/skipped_steps": tf.Variable(9, dtype=tf.int64)}
    report = checkpoints.restore(prefix, fresh, slots, state)
    for name, variable in variables.items():
        assert (fresh[name].numpy() == variable.numpy()).all()
    assert report.step == 17 and sorted(report.restored) == sorted(NAMES)
    assert report.fresh == ["discriminator_predictions/dense/bias"] and report.unused == ["generator/extra"]
    assert len(report.zero_slots) == 1 and (slots[report.zero_slots[0]].numpy() == 0).all()
    assert (slots[f"{first}/adam_m"].numpy() == 3).all()
    assert int(state["global_step"]) == 17 and int(state["training/skipped_steps"]) == 9
    lines = report.lines()
    assert lines[0].startswith("restored 2 variables from") and "discriminator_predictions/* (1)" in lines[1]


def test_tensorflow_1_reads_it_by_name(tmp_path):
    variables = variables_of()
    prefix = save(tmp_path, 1, variables)
    expected = {name: variable.numpy() for name, variable in variables.items()}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        name, shape = next(iter(NAMES.items()))
        restored = tf.compat.v1.get_variable(name, shape, initializer=tf.compat.v1.zeros_initializer())
        tf.compat.v1.train.Saver([restored]).restore(session, prefix)
        assert (session.run(restored) == expected[name]).all()


def test_finding(tmp_path):
    folder = str(tmp_path)
    assert checkpoints.find(folder) is None
    for step in (5, 20, 100):
        save(folder, step, variables_of())
    (tmp_path / "model.ckpt-100.data-00000-of-00001").unlink()
    assert checkpoints.find(folder).endswith("model.ckpt-20")  # the newest whole one
    checkpoints.write_state(folder, [5])
    assert checkpoints.find(folder).endswith("model.ckpt-5")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/moved/from/elsewhere/model.ckpt-20"\n')
    assert checkpoints.find(folder).endswith("model.ckpt-20")
    for path in ("model.ckpt-5", "model.ckpt-5.index", "model.ckpt-5.data-00000-of-00001"):
        assert checkpoints.find(os.path.join(folder, path)) == os.path.join(folder, "model.ckpt-5")
    with pytest.raises(UserError, match="there is no checkpoint"):
        checkpoints.find(os.path.join(folder, "model.ckpt-6"))


@pytest.mark.parametrize(
    ("name", "there", "here", "hparam"),
    [
        ("electra/embeddings/word_embeddings", (6, 4), (7, 4), "vocab_size"),
        ("electra/embeddings/word_embeddings", (6, 4), (6, 5), "embedding_size"),
        ("electra/embeddings/position_embeddings", (9, 4), (8, 4), "max_position_embeddings"),
        ("electra/encoder/layer_0/output/dense/kernel", (8, 4), (16, 8), "model_size"),
        ("generator/encoder/layer_0/output/dense/kernel", (8, 4), (16, 8), "generator_hidden_size"),
        ("generator_predictions/output_bias", (6,), (7,), "vocab_size"),
    ],
)
def test_another_shape_names_the_hparam(tmp_path, name, there, here, hparam):
    prefix = save(tmp_path, 1, {name: np.zeros(there, np.float32)})
    variable = tf.Variable(tf.ones(here))
    with pytest.raises(UserError, match=hparam):
        checkpoints.restore(prefix, {name: variable})
    assert (variable.numpy() == 1).all()


def test_nothing_in_common(tmp_path):
    prefix = save(tmp_path, 1, {"bert/encoder/kernel": np.zeros(3, np.float32)})
    with pytest.raises(UserError, match=r"none of the model's variables; it has bert/\* \(1\)"):
        checkpoints.restore(prefix, variables_of())


@pytest.mark.parametrize("damage", ["data removed", "data cut", "index cut"])
def test_damaged_files(tmp_path, damage):
    prefix = save(tmp_path, 1, variables_of())
    data, index = tmp_path / "model.ckpt-1.data-00000-of-00001", tmp_path / "model.ckpt-1.index"
    if damage == "data removed":
        data.unlink()
    else:
        damaged = data if damage == "data cut" else index
        damaged.write_bytes(damaged.read_bytes()[:20])
    with pytest.raises(UserError, match="model.ckpt-1"):
        checkpoints.restore(prefix, variables_of())
