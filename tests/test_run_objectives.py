"""Every objective through run_pretraining.py: exact resume, two devices, learning, evaluation, conversion."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from configure_pretraining import make_config
from model import checkpoints
from model.checkpoint_files import write_state
from model.description import describe
from model.disentangled import BASE, DIFFERENCE, TABLE, added_up
from pretrain.masking import Specials
from pretrain.pretraining_model import PretrainingModel
from tests.conversions import converted, read, weights
from tests.training_runs import NETWORK, pretrain, pretrain_here, read_checkpoint, read_metrics

STEPS = {"num_train_steps": 6, "save_checkpoints_steps": 2, "keep_checkpoint_max": None}
TWO_STAGE = {"objective": "two_stage", "generator_hidden_size": 1, "generator_layers": 1}
RUNS = {
    "electric": {"electric_objective": True, "electra_objective": False, "weight_sharing": "none"},
    "masked_only": {"objective": "electra_masked_only", "generator": "unigram", "masking_unit": "span"},
    "replace_mlm": {"objective": "replace_mlm", "masking_unit": "whole_word"},
    "all_tokens_mlm": {"objective": "all_tokens_mlm"},
    "two_stage": {**TWO_STAGE, "generator_steps": 4},
    "adversarial": {"objective": "adversarial", "weight_sharing": "gdes"},
}


@pytest.fixture(scope="module")
def runs(training_data):
    """Runs of 6 steps on one device, each made when it is first asked for."""
    made = set()

    def run(name: str) -> str:
        if name not in made:
            succeeded(pretrain_here(training_data, name, RUNS[name], STEPS))
            made.add(name)
        return name

    return run


def succeeded(result: subprocess.CompletedProcess) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize(("name", "step"), [*((name, 2) for name in RUNS), ("two_stage", 4)])
def test_resumes_exactly(training_data, runs, name, step):
    """From an earlier checkpoint to the same bits; two stages also over their border, and from the border itself."""
    folder = training_data / "models" / runs(name)
    again = shutil.copytree(folder, folder.with_name(f"{name}_from_{step}"))
    for path in again.glob("model.ckpt-*"):
        if int(path.stem.split("-")[1]) > step:
            path.unlink()
    write_state(str(again), list(range(2, step + 1, 2)))
    output = succeeded(pretrain_here(training_data, again.name, RUNS[name], STEPS))
    assert f"training from step {step} to 6" in output
    whole, resumed = (read_checkpoint(training_data, model, 6) for model in (name, again.name))
    assert whole.keys() == resumed.keys()
    different = [n for n in whole if np.asarray(whole[n]).tobytes() != np.asarray(resumed[n]).tobytes()]
    assert not different


QUICK = ("electric", "two_stage", "adversarial")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in RUNS])
def test_two_devices_give_the_losses_of_one(training_data, runs, name):
    model = f"{name}_mirrored"
    assert "2 replicas" in succeeded(pretrain(training_data, model, RUNS[name], STEPS, {"logical_cpus": 2}))
    one, two = ([m["loss"] for m in read_metrics(training_data, n)] for n in (runs(name), model))
    assert len(one) == 6
    np.testing.assert_allclose(two, one, rtol=2e-5)


def test_the_stages_of_a_run(training_data, runs):
    """The generator stops where the discriminator begins; each stage has its own schedule."""
    before, border, end = (read_checkpoint(training_data, runs("two_stage"), step) for step in (2, 4, 6))
    networks = {name for name in end if name.startswith(("generator", "electra", "discriminator"))}
    generator = {name for name in networks if name.startswith("generator")}
    assert all(np.array_equal(before[name], border[name]) for name in networks - generator)
    assert all(np.array_equal(border[name], end[name]) for name in generator)
    assert not all(np.array_equal(before[name], border[name]) for name in generator)
    records = read_metrics(training_data, "two_stage")
    rates = [record["learning_rate"] for record in records]
    np.testing.assert_allclose(rates, 1e-3 * np.array([0, 0.2 * 0.75, 0.4 * 0.5, 0.6 * 0.25, 0, 0.2 * 0.5]), rtol=1e-5)
    assert [record["disc_loss"] > 0 for record in records] == [False] * 4 + [True] * 2


def test_evaluation_names_what_the_objective_has(training_data, runs):
    """The objective comes from the model folder; results are those of every objective's own metrics."""
    own = {"replace_mlm": {"token_loss", "token_accuracy"}, "adversarial": {"reward", "baseline", "disc_auc"},
           "masked_only": {"disc_auc", "disc_loss"}, "electric": {"disc_auc", "masked_lm_loss"}}  # fmt: skip
    for name, metrics in own.items():
        evaluate = {"do_eval": True, "do_train": False, "num_eval_steps": 2}
        succeeded(pretrain_here(training_data, runs(name), evaluate))
        found = json.loads((training_data / "models" / name / "results" / "unsup_results.json").read_text())
        assert metrics | {"loss", "masked_lm_accuracy", "sampled_masked_lm_accuracy"} <= found.keys()


def test_counts_are_kept_in_the_manifest(training_data, runs):
    """The second run reads what the first one counted; without a manifest a file beside the shards holds it."""
    manifest = json.loads((training_data / "pretrain_tfrecords" / "manifest.json").read_text())
    runs("masked_only")
    kept = json.loads((training_data / "pretrain_tfrecords" / "manifest.json").read_text())
    assert kept.pop("token_counts") and manifest.items() >= kept.items()
    shards = shutil.copytree(training_data / "pretrain_tfrecords", training_data / "bare")
    (shards / "manifest.json").unlink()
    bare = {"generator": "unigram", "pretrain_tfrecords": f"{shards}/*", "num_train_steps": 2}
    for name, counted in (("bare_first", True), ("bare_second", False)):
        output = succeeded(pretrain_here(training_data, name, bare))
        assert ("counting tokens" in output) is counted and (shards / "token_counts.json").exists()
    (shards / "pretrain_data.tfrecord-0-of-3").unlink()
    assert "counting tokens" in succeeded(pretrain_here(training_data, "bare_third", bare))


@pytest.mark.parametrize("name", RUNS)
def test_inspection(training_data, runs, name):
    """What a checkpoint says of itself makes networks that all of it fits into."""
    found = describe(read(training_data / "models" / runs(name)), 2)
    assert found["format"] == "project" and found["not_finite"] == []
    hparams = found["hparams"] | ({"generator": "unigram"} if name == "masked_only" else {})
    config = make_config("m", "d", hparams)
    model = PretrainingModel(config, Specials(2, 3, 4), np.ones(config.vocab_size))
    report = checkpoints.restore(str(training_data / "models" / name / "model.ckpt-6"), model.variables)
    assert report.fresh == report.unused == []


def test_the_difference_is_added_up_at_export(training_data, runs, tmp_path):
    """A project folder keeps it and goes on; what is published has one table, and takes it apart again."""
    source = training_data / "models" / runs("adversarial")
    project = weights(converted(source, tmp_path / "project", "project"))
    assert DIFFERENCE in project and TABLE not in project
    for format, more in (("tf1", ()), ("tf1", ("--slots",)), ("project", ("--part", "discriminator"))):
        out = converted(source, tmp_path / f"{format}{len(more)}", format, *more)
        published = weights(out)
        np.testing.assert_array_equal(published[TABLE], project[BASE] + project[DIFFERENCE])
        assert not [key for key in read(out).shapes if key.startswith(DIFFERENCE)]
    converted(source, tmp_path / "face", "huggingface", "--part", "both")
    np.testing.assert_array_equal(weights(tmp_path / "face" / "discriminator")[TABLE], published[TABLE])
    np.testing.assert_array_equal(weights(tmp_path / "face" / "generator")[TABLE], project[BASE])
    hparams = {**RUNS["adversarial"], "init_checkpoint": str(tmp_path / "tf10"), "num_train_steps": 1}
    succeeded(pretrain_here(training_data, "from_published", hparams))  # the first step is at rate 0
    again = added_up(read(training_data / "models" / "from_published"))
    np.testing.assert_allclose(again[TABLE], published[TABLE], rtol=1e-5, atol=1e-7)


def test_electric_is_exported(training_data, runs, tmp_path):
    """All of it as a published checkpoint, its discriminator to Hugging Face; there is no shape for its towers."""
    source = training_data / "models" / runs("electric")
    published = weights(converted(source, tmp_path / "tf1", "tf1"))
    assert published.keys() == weights(source).keys()
    assert {name.split("/")[0] for name in published} == {
        *("electra", "discriminator_predictions", "generator_ltr", "generator_rtl", "cloze_predictions")
    }
    converted(source, tmp_path / "face", "huggingface")
    assert read(tmp_path / "face").shapes.keys() < published.keys()


BAD = [
    ({"objective": "elektra"}, '"objective" must be one of electra, mlm, electric'),
    ({"electra_objective": True, "electric_objective": True}, "electra_objective true contradicts electric_objective"),
    ({"objective": "mlm", "electra_objective": True}, 'objective "mlm" contradicts electra_objective true'),
    ({"objective": "electra", "electric_objective": True}, 'objective "electra" contradicts electric_objective true'),
    ({"objective": "electric", "generator": "small"}, 'objective "electric" needs generator "two_tower"'),
    ({"generator": "small", "uniform_generator": True}, 'generator "small" contradicts uniform_generator true'),
    ({"weight_sharing": "all", "untied_generator": True, "generator": "small"}, 'needs generator "tied"'),
    ({"weight_sharing": "embeddings", "untied_generator_embeddings": True}, "contradicts untied_generator_embeddings"),
    ({"objective": "two_stage"}, "both must be of one size; set generator_layers (now 1) and generator_hidden_size"),
    ({**TWO_STAGE, "generator_steps": 20}, "generator_steps must be at least 1 and below num_train_steps 20; got 20"),
    ({"generator": "unigram", "pretrain_tfrecords": "nowhere/*"}, "no TFRecords match nowhere/*"),
    ({"masking_unit": "sentence"}, '"masking_unit" must be one of token, whole_word, span; got "sentence"'),
]


@pytest.mark.parametrize(("hparams", "message"), BAD, ids=lambda value: "" if isinstance(value, dict) else value[:30])
def test_contradictions_are_one_message(training_data, hparams, message):
    result = pretrain_here(training_data, "bad", hparams)
    assert result.returncode == 2 and message in result.stderr, result.stderr
    assert result.stderr.count("error: ") == 1 and "Traceback" not in result.stderr
    assert not (training_data / "models" / "bad").exists()


def test_another_variant_is_not_resumed(training_data, runs):
    """The model folder's run has another objective, unit or border: an error that lists them, nothing changed."""
    for name, change, message in (
        ("replace_mlm", {"objective": "all_tokens_mlm"}, "objective: replace_mlm there, all_tokens_mlm here"),
        ("replace_mlm", {"masking_unit": "token"}, "masking_unit: whole_word there, token here"),
        ("two_stage", {"generator_steps": 3}, "generator_steps: 4 there, 3 here"),
        ("adversarial", {"weight_sharing": "embeddings"}, "weight_sharing: gdes there, embeddings here"),
    ):
        result = pretrain_here(training_data, runs(name), RUNS[name], STEPS, change)
        assert result.returncode == 2 and message in result.stderr, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RUNS, "mlm", "electra"])
def test_learns_in_300_steps(training_data, name):
    """The loss falls on real text, in each stage."""
    network = {"model_hparam_overrides": {**NETWORK, "hidden_size": 64}, "embedding_size": 32, "train_batch_size": 32}
    hparams = {**RUNS.get(name, {"objective": name}), **network, "num_train_steps": 300, "num_warmup_steps": 30}
    hparams |= {"learning_rate": 2e-3} | ({"generator_steps": 150} if name == "two_stage" else {})
    succeeded(pretrain_here(training_data, f"{name}_300", hparams))
    losses = np.array([record["loss"] for record in read_metrics(training_data, f"{name}_300")])
    for stage in np.split(losses, [150] if name == "two_stage" else []):
        assert np.mean(stage[-20:]) < 0.93 * np.mean(stage[:20]), (np.mean(stage[:20]), np.mean(stage[-20:]))
