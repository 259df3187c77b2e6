"""run_pretraining.py on real text: what it leaves, that it resumes to the bit, that devices change nothing."""

import argparse
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from configure_pretraining import make_config
from pretrain.memory import checkpoint_size
from pretrain.pretraining_run import PretrainingRun
from tests import kill_and_resume, kill_workers
from tests.training_runs import (
    HPARAMS,
    NO_DROPOUT,
    ROOT,
    pretrain,
    pretrain_here,
    pretraining_command,
    read_checkpoint,
    read_metrics,
)
from util import distribution
from util.errors import UserError


@pytest.fixture(scope="module")
def whole(training_data):
    """A run of 20 steps on one device."""
    return succeeded(pretrain_here(training_data, "whole"))


def succeeded(result: subprocess.CompletedProcess) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def losses(data, model: str) -> np.ndarray:
    return np.array([record["loss"] for record in read_metrics(data, model)])


def test_a_run_says_and_leaves_what_it_should(training_data, whole):
    assert "devices: 1 replica on 1 host, strategy default" in whole
    for part in (
        "embeddings",
        "discriminator        2      32",
        "generator            2       8",
        "FLOPs a step",
        "memory, by estimate: ",
        "ETA",
    ):
        assert part in whole, part
    folder = training_data / "models" / "whole"
    assert {path.name for path in folder.iterdir()} == kill_and_resume.EXPECTED | {
        "model.ckpt-20.index",
        "model.ckpt-20.data-00000-of-00001",
    }
    size = (folder / "model.ckpt-20.data-00000-of-00001").stat().st_size
    assert size == pytest.approx(checkpoint_size(make_config("m", "d", HPARAMS)), abs=100)
    assert json.loads((folder / "hparams.json").read_text())["vocab_size"] == 400
    assert (folder / "vocab.txt").read_text() == (training_data / "vocab.txt").read_text()
    assert json.loads((folder / "transformer_configs.json").read_text())["generator"]["hidden_size"] == 8
    records = read_metrics(training_data, "whole")
    assert [record["step"] for record in records] == list(range(1, 21))
    names = {"loss", "masked_lm_loss", "masked_lm_accuracy", "disc_loss", "disc_accuracy", "disc_auc", "learning_rate"}
    assert names | {"gradient_norm", "tokens_per_second"} <= records[-1].keys()
    assert records[0]["learning_rate"] == 0  # the first step trains at rate 0
    assert records[-1]["loss"] < records[0]["loss"]


def test_too_little_memory_is_said(training_data, monkeypatch):
    """Before anything is built; an error where there never was as much."""

    def build(*_):
        raise UserError("it went on")

    monkeypatch.setattr(PretrainingRun, "_build", build)
    for free, whole, said in ((1e6, 1e9, True), (1e12, 1e12, False)):
        monkeypatch.setattr(distribution, "_host_memory", lambda *kinds, f=free, w=whole: w if kinds[1:] else f)
        result = pretrain_here(training_data, "large", {"train_batch_size": 4096})
        warning = "warning: that is more than the 1 MB that are free for it; what lowers it: gradient_accumulation_"
        assert (warning in result.stdout) == said and result.stderr == "error: it went on\n"
    monkeypatch.setattr(distribution, "_host_memory", lambda *_: 1e6)
    result = pretrain_here(training_data, "large", {"train_batch_size": 4096})
    assert "a device by estimate, and there are 1 MB at most; what lowers it: gradient_accumulation_" in result.stderr
    assert result.returncode == 2 and result.stderr.count("\n") == 1


@pytest.mark.parametrize("hparam", ["train_batch_size", "eval_batch_size"])
def test_batches_beyond_what_can_be_counted(training_data, hparam):
    held_out = {"eval_every_steps": 10, "eval_tfrecords": str(training_data / "pretrain_tfrecords/*-2-of-3")}
    result = pretrain_here(training_data, "huge", {hparam: 2**31 - 1}, held_out)
    assert result.returncode == 2 and f"error: {hparam} 2147483647 makes 3435973835200 logits" in result.stderr
    assert result.stderr.count("\n") == 1 and not (training_data / "models" / "huge").exists()


def test_a_checkpoint_is_a_released_one(training_data, whole):
    tensors = read_checkpoint(training_data, "whole", 20)
    reference = json.loads((ROOT / "tests/golden/model/pretrain_ckpt/variables.json").read_text())
    named = {variable["name"] for variable in reference["variables"]}
    assert named - tensors.keys() == set()
    assert {name.split("/")[0] for name in tensors.keys() - named} == {"training", "generator"}  # its own projection
    assert int(tensors["global_step"]) == 20


@pytest.mark.parametrize("dropout", [False, True], ids=["no dropout", "dropout"])
def test_devices_and_micro_batches_change_nothing(training_data, dropout):
    """Each way of dividing the batch gives the losses of one device; randomness belongs to the example."""
    same = {} if dropout else NO_DROPOUT
    ways = {"one": {}, "mirrored": {"logical_cpus": 2}, "accumulated": {"gradient_accumulation_steps": 4},
            "recomputed": {"recompute_layers": True}}  # fmt: skip
    for name, hparams in ways.items():
        run = pretrain if "logical_cpus" in hparams else pretrain_here
        succeeded(run(training_data, f"{name}-{dropout}", same, hparams))
    expected = losses(training_data, f"one-{dropout}")
    assert len(expected) == 20
    for name in ways:
        np.testing.assert_allclose(losses(training_data, f"{name}-{dropout}"), expected, rtol=1e-5, err_msg=name)


def test_two_workers(training_data, tmp_path):
    """They give the losses of one; after one is killed the other leaves, and resumed they end with the same bits.

    Another number of them goes on from their checkpoint, with the same losses.
    """
    shutil.copytree(training_data, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("models"))
    asked = argparse.Namespace(workers=2, kills=1, how="KILL", steps=60, go_on_with=0, seed=0, hparams=[])
    with kill_workers.networks(asked) as network:
        assert kill_workers.compare(tmp_path, network, asked) == []
    said = (tmp_path / "logs" / "worker-1.log").read_text()
    assert "2 replicas on 2 hosts, strategy multi_worker; this host uses CPU:0 with" in said
    assert "this is worker 1" in said
    for path in (tmp_path / "models" / "killed").glob("model.ckpt-60*"):
        path.unlink()
    hparams = {"num_train_steps": asked.steps}
    succeeded(pretrain_here(tmp_path, "one", hparams))
    output = succeeded(pretrain_here(tmp_path, "killed", hparams))
    assert "note: from step 55 on 1 replica on 1 host, before 2 replicas on 2 hosts: the order of the data" in output
    for model in ("whole", "killed"):
        np.testing.assert_allclose(losses(tmp_path, model), losses(tmp_path, "one"), rtol=1e-5, err_msg=model)


@pytest.mark.parametrize(
    "hparams",
    [{}, {"logical_cpus": 2, "bfloat16_slots": True}],
    ids=["one device", "two devices"],
)
def test_killed_runs_end_with_the_same_bits(training_data, tmp_path, hparams):
    shutil.copytree(training_data, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("models"))
    asked = argparse.Namespace(kills=2, signal="KILL", steps=24, seed=1, hparams=[hparams])
    assert kill_and_resume.compare(tmp_path, asked) == []


def test_signals_save_and_leave_with_a_message(training_data, tmp_path):
    shutil.copytree(training_data, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("models"))
    command = [sys.executable, *pretraining_command(tmp_path, "stopped", {"num_train_steps": 100_000})]
    for number, code, name in ((15, 0, "SIGTERM"), (2, 130, "SIGINT")):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in process.stdout:
            if line.startswith("first step"):
                break
        process.send_signal(number)
        output = process.communicate(timeout=60)[0]
        assert process.returncode == code and f"{name} received" in output
        assert "the checkpoint is saved, the same command goes on from there" in output
    steps = [record["step"] for record in read_metrics(tmp_path, "stopped")]
    assert steps == list(range(1, len(steps) + 1))
    assert (tmp_path / "models" / "stopped" / f"model.ckpt-{steps[-1]}.index").exists()


def test_evaluation(training_data, whole):
    """The same numbers each time and for each batch size; every example once, as text and JSON."""
    folder = training_data / "models" / "whole" / "results"
    found = []
    for batch in (8, 30, 1_000_000):
        evaluate = {"do_eval": True, "do_train": False, "eval_batch_size": batch, "num_eval_steps": None}
        assert "evaluation: loss" in succeeded(pretrain_here(training_data, "whole", evaluate))
        found.append(json.loads((folder / "unsup_results.json").read_text()))
    released = {"masked_lm_accuracy", "masked_lm_loss", "sampled_masked_lm_accuracy", "disc_loss", "disc_auc", "loss"}
    assert released | {"disc_accuracy", "disc_precision", "disc_recall", "global_step"} == found[0].keys()
    for name in found[0].keys() - {"loss"}:  # a mean over batches
        assert [found[1][name], found[2][name]] == pytest.approx([found[0][name]] * 2, rel=1e-5), name
    text = (folder / "unsup_results.txt").read_text()
    assert f"disc_auc = {found[2]['disc_auc']:.6g}\n" in text
    shutil.rmtree(folder)


def test_held_out_evaluation_while_training(training_data):
    hparams = {"eval_tfrecords": str(training_data / "pretrain_tfrecords/pretrain_data.tfrecord-2-of-3")}
    output = succeeded(
        pretrain_here(
            training_data, "heldout", hparams, {"eval_every_steps": 10, "num_eval_steps": 3, "use_tensorboard": True}
        )
    )
    assert "held-out at step 10" in output
    assert [record["step"] for record in read_metrics(training_data, "heldout", "eval")] == [10, 20]
    events = training_data / "models" / "heldout" / "tensorboard"
    assert list(events.glob("train/events*")) and list(events.glob("eval/events*"))


VARIANTS = {
    "masked LM": {"electra_objective": False},
    "uniform": {"uniform_generator": True},
    "untied embeddings": {"untied_generator_embeddings": True},
    "all tied": {"untied_generator": False, "disallow_correct": True, "temperature": 0.7},
    "float16 with XLA": {"precision": "float16", "use_xla": True},
    "bfloat16": {"precision": "bfloat16", "gradient_accumulation_steps": 2, "bfloat16_slots": True},
    "recomputed with XLA": {"recompute_layers": True, "use_xla": True, "precision": "bfloat16"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_learn(training_data, name):
    model = name.replace(" ", "_")
    succeeded(pretrain_here(training_data, model, VARIANTS[name], {"num_train_steps": 40}))
    records = [record for record in read_metrics(training_data, model) if record["loss"] is not None]
    assert len(records) >= 30 and np.mean([r["loss"] for r in records[-5:]]) < records[0]["loss"]


def test_released_checkpoint_goes_on(training_data, tmp_path):
    """A released checkpoint in the model folder: its step counts, missing slots start at zero."""
    golden = ROOT / "tests/golden/model/pretrain_ckpt"
    hparams = json.loads((golden / "hparams.json").read_text())["hparams"]
    size = {"model_hparam_overrides": hparams["model_hparam_overrides"]}
    size |= {name: hparams[name] for name in ("embedding_size", "generator_hidden_size", "vocab_size")}
    shutil.copytree(golden, tmp_path / "models" / "released")
    shutil.copytree(training_data / "pretrain_tfrecords", tmp_path / "pretrain_tfrecords")
    shutil.copy(training_data / "vocab.txt", tmp_path)
    output = succeeded(pretrain_here(tmp_path, "released", size))
    assert "(step 5)" in output and "training from step 5 to 20" in output
    assert int(read_checkpoint(tmp_path, "released", 20)["global_step"]) == 20
