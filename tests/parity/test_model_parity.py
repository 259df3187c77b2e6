"""The networks, losses, gradients and optimizer steps of pre-training give what the released code gave."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from configure_pretraining import PretrainingConfig, make_config
from model import checkpoints
from model.optimization import AdamWeightDecay, learning_rate
from model.tokenization import load_vocab
from pretrain.electric import log_noise
from pretrain.masking import Draws, Inputs, Specials, candidates, mask, replace_at, wanted
from pretrain.pretraining_model import PretrainingModel
from util.train_step import TrainStep

FORWARD = {"atol": 1e-5, "rtol": 1e-4}
WEIGHTS = {"atol": 2e-6, "rtol": 0}
CASES = pytest.mark.golden_cases("model/pretrain_forward.json", "model*/variants/*/forward.json")


def config_of(case: dict, **more) -> PretrainingConfig:
    """The recorded hparams, with the recorded sizes of the network."""
    fields = PretrainingConfig.__dataclass_fields__
    hparams = {
        name: value
        for name, value in case["config"]["hparams"].items()
        if name in fields and value != "<local>" and name not in ("model_name", "data_dir")
    }
    hparams["model_hparam_overrides"] = case["config"]["bert_config"]
    return make_config("m", "d", {**hparams, **more})


def specials_of(golden: Path, config: PretrainingConfig) -> Specials:
    vocabs = (load_vocab(str(path)) for path in golden.glob("vocab_*.txt"))
    vocab = next(v for v in vocabs if len(v) == config.vocab_size)
    return Specials(*(vocab.ids[token] for token in ("[CLS]", "[SEP]", "[MASK]")))


def inputs_of(arrays) -> Inputs:
    ids = tf.constant(arrays["input_ids"])
    return Inputs(ids, tf.constant(arrays["input_mask"]), tf.constant(arrays["segment_ids"]), tf.range(ids.shape[0]))


class Recorded:
    """A case with its networks restored and its samples injected."""

    def __init__(self, golden: Path, path: Path, **more):
        self.case = json.loads(path.read_text())
        self.arrays = dict(np.load(path.with_suffix(".npz")))
        self.config = config_of(self.case, **more)
        self.specials = specials_of(golden, self.config)
        self.model = PretrainingModel(self.config, self.specials)
        folder = path.parent if "variants" in path.parts else path.parent / "pretrain_ckpt"
        self.report = checkpoints.restore(checkpoints.find(str(folder)), self.model.variables)
        inputs = inputs_of(self.arrays)
        self.keys = tf.zeros([inputs.input_ids.shape[0]], tf.uint32)
        draws = Draws(tf.constant(self.arrays["rand_positions"]), tf.constant(self.arrays["rand_replace_uniform"]))
        number = wanted(inputs, self.specials, draws.positions.shape[1], self.config.mask_prob)
        self.batch = mask(inputs, draws, self.keys, self.specials, number)
        self.model.objective.sample = lambda logits, batch: tf.constant(self.arrays["sampled_tokids"])
        self.totals = self.model.totals(self.batch)

    def close(self, ours, name: str) -> None:
        np.testing.assert_allclose(ours, self.arrays[name], **FORWARD, err_msg=name)


restored = functools.lru_cache(maxsize=2)(Recorded)


@pytest.fixture
def recorded(golden, case):
    return restored(golden, case)


@CASES
def test_every_variable_is_restored(recorded):
    assert recorded.report.fresh == [] and recorded.report.unused == []


@CASES
def test_masking(recorded):
    batch, arrays = recorded.batch, recorded.arrays
    assert recorded.config.max_predictions_per_seq == arrays["masked_lm_positions"].shape[1]
    for ours, name in (
        (batch.masked_ids, "masked_input_ids"),
        (batch.positions, "masked_lm_positions"),
        (batch.target_ids, "masked_lm_ids"),
        (batch.weights, "masked_lm_weights"),
    ):
        np.testing.assert_array_equal(ours, arrays[name], err_msg=name)


@CASES
def test_generator(recorded):
    model, batch = recorded.model.objective, recorded.batch
    predicted = model.generator.predict(batch, training=False)
    if recorded.config.uniform_generator:
        np.testing.assert_allclose(tf.nn.log_softmax(predicted.logits), -np.log(recorded.config.vocab_size), rtol=1e-6)
    else:
        recorded.close(predicted.logits, "gen_logits")
    loss, sums = model.generator_loss(predicted, batch, recorded.totals)
    recorded.close(loss / recorded.config.gen_weight, "mlm_loss" if predicted.cloze is None else "cloze_loss")
    np.testing.assert_allclose(
        sums["masked_lm/nll"],
        np.sum(recorded.arrays["mlm_per_example_loss"] * recorded.arrays["masked_lm_weights"]),
        rtol=1e-4,
    )


@CASES
def test_discriminator(recorded):
    if recorded.config.objective == "mlm":
        pytest.skip("a masked language model has no discriminator")
    model, batch, arrays = recorded.model.objective, recorded.batch, recorded.arrays
    corrupted = model.corrupt(batch, tf.constant(arrays["sampled_tokids"]))
    np.testing.assert_array_equal(corrupted.input_ids, arrays["corrupted_input_ids"])
    np.testing.assert_array_equal(corrupted.labels, arrays["is_fake_labels"])
    logits = model.discriminate(batch, corrupted, model.generator.predict(batch, training=False), training=False)
    recorded.close(logits, "disc_logits")
    loss, sums = model.discriminator_loss(logits, batch, corrupted, recorded.totals)
    recorded.close(loss / recorded.config.disc_weight, "disc_loss")
    np.testing.assert_allclose(sums["disc/example_bce"], np.sum(arrays["disc_per_example_loss"]), rtol=1e-4)


@CASES
def test_towers_and_energies(recorded):
    """Both towers, what they predict everywhere, log q, and the energies before the noise's share is added."""
    if recorded.config.objective != "electric":
        pytest.skip("not Electric")
    model, batch, arrays = recorded.model.objective, recorded.batch, recorded.arrays
    towers = model.generator
    recorded.close(towers.states(batch, training=False), "two_tower_sequence_output")
    cloze = towers.predict(batch, training=False).cloze
    recorded.close(cloze, "cloze_logits")
    np.testing.assert_array_equal(tf.argmax(cloze, -1), arrays["cloze_preds"])
    np.testing.assert_array_equal(candidates(batch, recorded.specials), arrays["cloze_weights"] > 0)
    nll = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.input_ids, cloze)
    recorded.close(nll, "cloze_per_example_loss")
    ids = tf.constant(arrays["corrupted_input_ids"])
    recorded.close(log_noise(cloze, ids), "log_q")
    recorded.close(model.head(model.encode(batch, ids, training=False)), "disc_logits_before_noise_correction")


@CASES
def test_all_layers_and_attention(recorded):
    """Embeddings, every block and the first block's attention weights, of whichever networks were recorded."""
    model, batch, arrays = recorded.model.objective, recorded.batch, recorded.arrays
    corrupted, seen = tf.constant(arrays.get("corrupted_input_ids", 0)), batch.input_mask[:, None, :]
    length = batch.input_ids.shape[1]
    causal = tf.constant(np.tril(np.ones([length, length], np.int32)))
    encoders = {
        "generator": (getattr(model.generator, "encoder", None), batch.masked_ids, seen),
        "generator_ltr": (getattr(model.generator, "left", None), batch.input_ids, seen * causal),
        "generator_rtl": (getattr(model.generator, "right", None), batch.input_ids, seen * tf.transpose(causal)),
        "discriminator": (model.main, corrupted, seen),
    }
    for name, (encoder, ids, visible) in encoders.items():
        if encoder is None or f"{name}/sequence_output" not in arrays:
            continue
        output = encoder(ids, batch.input_mask, batch.segment_ids, attention_mask=visible)
        recorded.close(output.embeddings, f"{name}/embedding_postprocessor_output")
        recorded.close(output.projected, f"{name}/embedding_output")
        recorded.close(tf.stack(output.layers), f"{name}/all_layer_outputs")
        recorded.close(output.sequence, f"{name}/sequence_output")
        attention = encoder.encoder.blocks[0].attention.self_attention
        recorded.close(attention.probabilities(output.projected, visible), f"{name}/attention_probs_layer_0")


@CASES
def test_loss_metrics_and_gradients(golden, case, recorded):
    model, expected = recorded.model, recorded.case
    sums = model.loss(recorded.batch, recorded.totals, training=False)[1]
    recorded.close(sums["loss"], "total_loss")
    ours = model.results({name: value.numpy() for name, value in sums.items()}, 1)
    for name, value in expected["eval_metrics_one_batch"].items():
        if name != "disc_auc":  # theirs counts padding
            np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-5, err_msg=name)

    step = train_step(recorded, released_quirks=True)
    stop_dropout(model)
    gradients, rows, _ = step._gradients(recorded.batch, recorded.totals, tf.constant(1.0))
    norms = {name: float(tf.norm(gradient)) for name, gradient in zip(model.variables, gradients, strict=True)}
    assert norms.keys() == expected["grad_norm_per_variable"].keys()
    for name, norm in expected["grad_norm_per_variable"].items():
        np.testing.assert_allclose(norms[name], norm, rtol=1e-4, atol=1e-5, err_msg=name)
    squares = sum(norm**2 for norm in norms.values())
    np.testing.assert_allclose(squares**0.5, expected["grad_global_norm_dense"], rtol=1e-5)
    np.testing.assert_allclose((squares + float(rows)) ** 0.5, expected["grad_global_norm_reference"], rtol=1e-5)


def stop_dropout(model: PretrainingModel) -> None:
    for root in model.objective.layers:
        for layer in root._flatten_layers():
            if hasattr(layer, "rate"):
                layer.rate = 0.0


def train_step(recorded: Recorded, **more) -> TrainStep:
    config = recorded.config
    return TrainStep(
        recorded.model,
        AdamWeightDecay(recorded.model.variables, config.weight_decay_rate),
        tf.distribute.get_strategy(),
        lambda step: learning_rate(
            step, config.learning_rate, config.num_train_steps, config.num_warmup_steps, config.lr_decay_power
        ),
        **more,
    )


class Replayed(NamedTuple):
    """A recorded step: what the input pipeline, the masking and the generator's sampling gave."""

    inputs: Inputs
    draws: Draws
    sampled: tf.Tensor


class ReplayingModel(PretrainingModel):
    """A model that takes masks and samples from its inputs."""

    def prepare(self, inputs: Replayed, step):
        self.objective.sample = lambda logits, batch: inputs.sampled
        keys, specials = tf.zeros([inputs.sampled.shape[0]], tf.uint32), self.objective.specials
        number = wanted(inputs.inputs, specials, inputs.sampled.shape[1], self.config.mask_prob)
        return mask(inputs.inputs, inputs.draws, keys, specials, number)


@pytest.mark.golden_cases("model/train_trajectory/train_trajectory.json")
def test_training_trajectory(golden, case):
    """Rates exact, losses and norms within tolerance, weights within 2e-6 and slots after the recorded steps."""
    expected, arrays = json.loads(case.read_text()), dict(np.load(case.with_suffix(".npz")))
    config = config_of(expected)
    model = ReplayingModel(config, specials_of(golden, config))
    checkpoints.restore(checkpoints.find(str(case.parent / "start")), model.variables)
    optimizer = AdamWeightDecay(model.variables, config.weight_decay_rate)
    step = TrainStep(
        model,
        optimizer,
        tf.distribute.get_strategy(),
        lambda s: learning_rate(
            s, config.learning_rate, config.num_train_steps, config.num_warmup_steps, config.lr_decay_power
        ),
    )
    examples = tf.range(arrays["input_ids"].shape[1])
    steps = [
        Replayed(
            Inputs(*(tf.constant(arrays[name][t]) for name in ("input_ids", "input_mask", "segment_ids")), examples),
            Draws(tf.constant(arrays["rand_positions"][t]), tf.constant(arrays["rand_replace_uniform"][t])),
            tf.constant(arrays["sampled_tokids"][t]),
        )
        for t in range(expected["steps"])
    ]
    stacked = tf.nest.map_structure(lambda *parts: tf.stack(parts), *steps)
    iterator = iter(tf.data.Dataset.from_tensor_slices(stacked))
    compared = 0
    for t in range(expected["steps"]):
        np.testing.assert_array_equal(step.rate(tf.constant(t)), arrays["learning_rate"][t])
        done, _, vector = step.run(iterator, tf.constant(1))
        assert int(done) == 1
        sums = step.unpacked(vector.numpy()[: step.width])
        np.testing.assert_allclose(sums["loss"], arrays["total_loss"][t], rtol=1e-5)
        np.testing.assert_allclose(vector[-1], arrays["grad_global_norm_dense"][t], rtol=1e-4)
        weights = case.parent / f"weights_after_{t + 1}.npz"
        if weights.exists():
            compared += 1
            for name, value in np.load(weights).items():
                np.testing.assert_allclose(model.variables[name], value, **WEIGHTS, err_msg=f"{name}, step {t + 1}")
    assert compared
    for name, norm in expected["adam_slot_l2"].items():  # the bias of the keys has no gradient but rounding errors
        np.testing.assert_allclose(
            np.linalg.norm(optimizer.slots[name].numpy()),
            norm,
            rtol=2e-4,
            atol=1e-9 if name.endswith("adam_m") else 1e-18,
            err_msg=name,
        )


@pytest.mark.golden_cases("model/train_trajectory/step0_gradients.npz")
def test_first_gradients(golden, case):
    expected = json.loads((case.parent / "train_trajectory.json").read_text())
    arrays = dict(np.load(case.parent / "train_trajectory.npz"))
    config = config_of(expected)
    model = ReplayingModel(config, specials_of(golden, config))
    checkpoints.restore(checkpoints.find(str(case.parent / "start")), model.variables)
    step = TrainStep(model, AdamWeightDecay(model.variables, 0.0), tf.distribute.get_strategy(), lambda s: 0.0)
    first = {name: tf.constant(values[0]) for name, values in arrays.items() if values.ndim > 2}
    inputs = Inputs(first["input_ids"], first["input_mask"], first["segment_ids"], tf.range(len(first["input_ids"])))
    batch = model.prepare(
        Replayed(inputs, Draws(first["rand_positions"], first["rand_replace_uniform"]), first["sampled_tokids"]), 0
    )
    gradients = dict(
        zip(model.variables, step._gradients(batch, model.totals(batch), tf.constant(1.0))[0], strict=True)
    )
    for name, value in np.load(case).items():
        np.testing.assert_allclose(gradients[name], value, **FORWARD, err_msg=name)


@pytest.mark.golden_cases("data/configs/pretrain_helpers.json")
def test_scatter_and_candidates(golden, case):
    helpers = json.loads(case.read_text())
    for row in helpers["scatter_gather"]:
        updated = replace_at(tf.constant(row["sequence"]), tf.constant(row["positions"]), tf.constant(row["updates"]))
        np.testing.assert_array_equal(updated, row["updated"])
    for length, slots in helpers["max_predictions_per_seq"].items():
        assert make_config("m", "d", {"max_seq_length": int(length)}).max_predictions_per_seq == slots
    expected = helpers["candidates"]
    ids = tf.constant(expected["input_ids"])
    vocab = load_vocab(str(max(golden.glob("vocab_*.txt"), key=lambda path: path.stat().st_size)))
    specials = Specials(*(vocab.ids[token] for token in ("[CLS]", "[SEP]", "[MASK]")))
    allowed = candidates(Inputs(ids, tf.constant(expected["input_mask"]), ids, tf.range(len(ids))), specials)
    np.testing.assert_array_equal(allowed, expected["mask"])


@pytest.mark.golden_cases("data/configs/pretraining.json")
def test_hparams_in_force(case):
    """Defaults, by model size and in debug mode; what each case passed is what differs from the default by choice."""
    for name, expected in json.loads(case.read_text()).items():
        derived = ("embedding_size", "max_predictions_per_seq", "two_tower_generator")
        passed = {
            key: value
            for key, value in expected.items()
            if key in PretrainingConfig.__dataclass_fields__
            and key not in derived
            and not str(value).startswith("/DATA")
        }
        if expected["debug"]:
            passed = {"debug": True}
        elif name == "override":
            passed["embedding_size"] = expected["embedding_size"]
        ours = make_config(expected["model_name"], "/DATA", passed).in_force()
        for key, value in expected.items():
            if key != "results_pkl":  # nothing is pickled
                assert ours[key] == value, (name, key)
