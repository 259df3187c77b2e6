"""Heads, losses, gradients and optimizer steps of fine-tuning give what the released code gave."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from configure_finetuning import FinetuningConfig, make_config
from finetune.classification.classification_heads import ClassificationHead, RegressionHead
from finetune.finetuning_model import Batch, FinetuningModel, rate_factors
from finetune.qa.qa_heads import QAHead
from finetune.tagging.tagging_heads import TaggingHead
from model import checkpoints
from model.optimization import AdamWeightDecay, learning_rate
from util.train_step import TrainStep

FORWARD = {"atol": 1e-5, "rtol": 1e-4}
WEIGHTS = {"atol": 2e-6, "rtol": 0}
CASES = pytest.mark.golden_cases("model*/finetune/*/golden.json")


class RecordedTask:
    """A task as far as its head goes: its kind and size are those of the recorded arrays."""

    def __init__(self, config: FinetuningConfig, name: str, arrays: dict):
        self.config, self.name, self.arrays = config, name, arrays

    def make_head(self, hidden_size, init):
        for feature in ("label_ids", "targets", "labels"):
            if f"features/{self.name}_{feature}" in self.arrays:
                if feature == "targets":
                    return RegressionHead(self.name, hidden_size, init)
                outputs = self.arrays["outputs"][self.name]
                if feature == "labels":
                    return TaggingHead(self.name, hidden_size, outputs, init)
                return ClassificationHead(self.name, hidden_size, outputs, False, init)
        return QAHead(self.name, hidden_size, self.config, self.name == "squad", init)


def config_of(case: dict, tasks: list[str]) -> FinetuningConfig:
    hparams = {
        name: value
        for name, value in case["config"]["effective"].items()
        if name in FinetuningConfig.__dataclass_fields__ and "<local>" not in str(value)
    }
    hparams |= {"model_hparam_overrides": case["config"]["bert_config"], "task_names": tasks, "released_quirks": True}
    return make_config("m", "d", {n: v for n, v in hparams.items() if n not in ("model_name", "data_dir")})


def outputs_of(shapes: dict, names: list[str]) -> dict[str, int]:
    """How many outputs the dense layer of each task has."""
    kernels = {name: shapes.get(f"task_specific/{name}/dense/kernel") for name in names}
    return {name: shape[1] for name, shape in kernels.items() if shape}


def batch_of(arrays: dict, step: int | None = None) -> Batch:
    features = {
        name.removeprefix("features/"): tf.constant(value if step is None else value[step])
        for name, value in arrays.items()
        if name.startswith("features/")
    }
    count = features["task_id"].shape[0]
    return Batch({**features, "example": tf.range(count)}, tf.zeros([count], tf.uint32))


class Recorded:
    """A case with its networks restored and its dropout switched off."""

    def __init__(self, path: Path):
        self.case = json.loads(path.read_text())
        self.arrays = dict(np.load(path.with_suffix(".npz")))
        names = self.case["tasks"]
        self.config = config_of(self.case, names)
        arrays = {**self.arrays, "outputs": outputs_of(self.case["variables"], names)}
        self.model = FinetuningModel(self.config, [RecordedTask(self.config, name, arrays) for name in names])
        stop_dropout(self.model)
        self.report = checkpoints.restore(checkpoints.find(str(path.parent)), self.model.variables)
        self.batch = batch_of(self.arrays)


recorded = pytest.fixture(lambda case: restored(case))
restored = functools.lru_cache(maxsize=2)(Recorded)


def stop_dropout(model: FinetuningModel) -> None:
    for root in (model.encoder, model.heads):
        for layer in root._flatten_layers():
            if hasattr(layer, "rate"):
                layer.rate = 0.0


@CASES
def test_every_variable_is_restored(recorded):
    assert recorded.report.fresh == [] and recorded.report.unused == []
    assert set(recorded.model.variables) == set(recorded.case["variables"])


@CASES
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_outputs_and_losses(recorded, mode):
    batch = recorded.batch if mode == "train" else recorded.batch._replace(keys=None)
    arrays, compared = recorded.arrays, 0
    for name, head in zip(recorded.case["tasks"], recorded.model.head_outputs(batch)):
        ours = {**head.outputs, "loss": head.losses}
        for key, value in ours.items():
            expected = arrays[f"{mode}/{name}/{key}"]
            if key.startswith("end_top") and mode == "eval":
                continue  # below, once equal log-probabilities are told apart
            compared += 1
            if key.endswith(("predictions", "index")) and expected.dtype.kind == "i":
                np.testing.assert_array_equal(value, expected, err_msg=key)
            else:
                np.testing.assert_allclose(value, expected, **FORWARD, err_msg=key)
    assert compared >= 2
    loss, _ = recorded.model.loss(recorded.batch, recorded.model.totals(recorded.batch), mode == "train")
    np.testing.assert_allclose(loss, arrays[f"{mode}/loss"], rtol=1e-4)


@CASES
def test_the_best_ends_given_each_start(recorded):
    """Positions may change places where their log-probabilities differ by less than the tolerance."""
    heads = recorded.model.head_outputs(recorded.batch._replace(keys=None))
    for name, head in zip(recorded.case["tasks"], heads):
        if "end_top_index" not in head.outputs:
            continue
        ours, theirs = head.outputs["end_top_log_probs"].numpy(), recorded.arrays[f"eval/{name}/end_top_log_probs"]
        np.testing.assert_allclose(ours, theirs, **FORWARD)
        index = recorded.arrays[f"eval/{name}/end_top_index"]
        gaps = np.abs(np.diff(theirs, axis=-1))
        clear = np.pad(gaps, ((0, 0), (0, 0), (1, 0)), constant_values=1) > 1e-4
        clear &= np.pad(gaps, ((0, 0), (0, 0), (0, 1)), constant_values=0) > 1e-4
        assert clear.mean() > 0.5
        np.testing.assert_array_equal(head.outputs["end_top_index"].numpy()[clear], index[clear])


@CASES
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_gradients(recorded, mode):
    model, expected = recorded.model, recorded.case[f"grad_norm_per_variable_{mode}"]
    variables = list(model.variables.values())
    with tf.GradientTape() as tape:
        loss, _ = model.loss(recorded.batch, model.totals(recorded.batch), mode == "train")
    gradients = dict(zip(model.variables, tape.gradient(loss, variables)))
    assert {n for n, g in gradients.items() if g is None} == set(recorded.case[f"variables_without_gradient_{mode}"])
    for name, norm in expected.items():
        ours = float(tf.norm(tf.convert_to_tensor(gradients[name])))
        np.testing.assert_allclose(ours, norm, rtol=1e-4, atol=1e-5, err_msg=name)
    if mode == "train":
        gradients, rows, _ = train_step(recorded.config, model)._gradients(
            recorded.batch, model.totals(recorded.batch), tf.constant(1.0)
        )
        squares = sum(float(tf.reduce_sum(tf.square(gradient))) for gradient in gradients)
        arrays = recorded.arrays
        np.testing.assert_allclose(squares**0.5, arrays["train/grad_global_norm_dense"], rtol=1e-5)
        np.testing.assert_allclose(
            (squares + float(rows)) ** 0.5, arrays["train/grad_global_norm_reference"], rtol=1e-5
        )


def train_step(config: FinetuningConfig, model: FinetuningModel, steps: int = 10) -> TrainStep:
    factors = rate_factors(list(model.variables), config.network().num_hidden_layers, config.layerwise_lr_decay)
    warmup = config.warmup_proportion * steps
    return TrainStep(
        model,
        AdamWeightDecay(model.variables, config.weight_decay_rate, factors),
        tf.distribute.get_strategy(),
        lambda step: learning_rate(step, config.learning_rate, steps, warmup, config.lr_decay_power),
        released_quirks=config.released_quirks,
    )


class ReplayingModel(FinetuningModel):
    """A model whose inputs are recorded; there is no randomness in it."""

    def prepare(self, inputs: dict[str, tf.Tensor], step) -> Batch:
        return Batch(inputs, tf.zeros([inputs["task_id"].shape[0]], tf.uint32))


@pytest.mark.golden_cases("model*/finetune/*/trajectory.json")
def test_training_trajectory(case):
    """Rates of each variable, losses, norms, and the weights after the recorded steps within 2e-6."""
    expected, arrays = json.loads(case.read_text()), dict(np.load(case.with_suffix(".npz")))
    names = expected["config"]["effective"]["task_names"]
    config = config_of(expected, names)
    variables = json.loads((case.parent / "start" / "variables.json").read_text())["variables"]
    shapes = {variable["name"]: variable["shape"] for variable in variables}
    tasks = [RecordedTask(config, name, {**arrays, "outputs": outputs_of(shapes, names)}) for name in names]
    model = ReplayingModel(config, tasks)
    stop_dropout(model)
    checkpoints.restore(checkpoints.find(str(case.parent / "start")), model.variables)
    step = train_step(config, model, expected["num_train_steps"])
    count = len(arrays["loss"])
    stacked = {name.removeprefix("features/"): value for name, value in arrays.items() if name.startswith("features/")}
    iterator = iter(tf.data.Dataset.from_tensor_slices(stacked))
    compared = 0
    for t in range(count):
        for name, keys in expected["lr_key_matching_each_variable"].items():
            rate = float(step.rate(tf.constant(t))) * step.optimizer.rate_factors[name]
            np.testing.assert_allclose(rate, expected["lr_per_key_per_step"][t][keys[-1]], rtol=1e-5, err_msg=name)
        done, _, vector = step.run(iterator, tf.constant(1))
        assert int(done) == 1
        np.testing.assert_allclose(step.unpacked(vector.numpy()[: step.width])["loss"], arrays["loss"][t], rtol=1e-5)
        np.testing.assert_allclose(vector[-1], arrays["grad_global_norm_reference"][t], rtol=1e-4)
        weights = case.parent / f"weights_after_{t + 1}.npz"
        if weights.exists():
            compared += 1
            for name, value in np.load(weights).items():
                np.testing.assert_allclose(model.variables[name], value, **WEIGHTS, err_msg=f"{name}, step {t + 1}")
    assert compared


MENDED = ("naturalqs", "debug")  # naturalqs is a QA task; debug runs have folders of their own and no checkpoint
PICKLED = {"results_pkl", "write_distill_outputs"}  # nothing is pickled


@pytest.mark.golden_cases("data/configs/finetuning.json")
def test_hparams_in_force(case):
    """Defaults by task and model size, and paths."""
    compared = 0
    for name, expected in json.loads(case.read_text()).items():
        if name == "formatters":
            config = make_config("electra_x", "/DATA", {"task_names": ["squad"]})
            for key in ("qa_eval_file", "qa_na_file", "qa_preds_file"):
                assert getattr(config, key).format("squad") == expected[key]
            assert config.test_predictions.format("squad", "test", 1) + ".pkl" == expected["test_predictions"]
            continue
        if any(part in name for part in MENDED):
            continue
        passed = {"task_names": expected["task_names"], "model_size": expected["model_size"]}
        if name == "case|override":
            chosen = ("max_seq_length", "learning_rate", "num_train_epochs")
            passed |= {key: expected[key] for key in chosen}
        ours = make_config(expected["model_name"], "/DATA", passed).in_force()
        for key in expected.keys() - PICKLED:
            assert ours[key] == expected[key], (name, key)
        compared += 1
    assert compared >= 10


def test_question_answering_defaults():
    """Every QA task has 512 tokens and 2 epochs, natural questions too."""
    for task in ("squad", "naturalqs"):
        config = make_config("m", "d", {"task_names": [task]})
        assert (config.max_seq_length, config.num_train_epochs) == (512, 2.0)
