"""Every recorded checkpoint loads with the expected report, and travels through all formats without losing a bit."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from configure_pretraining import make_config
from model import checkpoints
from model.checkpoint_files import step_in_name
from model.description import hparams, networks, sizes_of
from model.modeling import named_variables
from model.optimization import AdamWeightDecay
from model.parts import MAIN_HEAD, TOWERS, generator_of, has_generator
from model.readers import STEP, View, has, is_weight, kept, under
from model.tokenization import load_vocab
from pretrain.masking import Specials
from pretrain.pretraining_model import PretrainingModel
from tests import training_runs
from tests.builders import wait_for
from tests.conversions import convert, converted, network_layers, outputs, read, same, weights

FORWARD = {"atol": 1e-5, "rtol": 1e-4}
CHECKPOINTS = pytest.mark.golden_cases("model*/**/model.ckpt-*.index")
FINETUNED = pytest.mark.golden_cases("model*/finetune/*/golden.json")


def recorded_heads(case: Path) -> int:
    """num_attention_heads of a checkpoint's main network, from the nearest recorded config."""
    for folder in (case.parent, case.parent.parent):
        for path in sorted(folder.glob("*.json")):
            config = json.loads(path.read_text()).get("config")
            if isinstance(config, dict) and "bert_config" in config:
                return config["bert_config"]["num_attention_heads"]
    raise ValueError(f"no recorded config near {case}")


def recorded_variables(case: Path) -> dict[str, list[int]]:
    """Shapes by name, from variables.json where there is one."""
    path = case.parent / "variables.json"
    if not path.exists():
        return read(case).shapes
    return {row["name"]: row["shape"] for row in json.loads(path.read_text())["variables"]}


def batch(reader) -> list[np.ndarray]:
    """Some ids of the vocabulary, with padding."""
    vocabulary, random = reader.shapes["electra/embeddings/word_embeddings"][0], np.random.default_rng(5)
    mask = np.array([[1] * 16, [1] * 11 + [0] * 5], np.int32)
    return [random.integers(5, vocabulary, mask.shape).astype(np.int32) * mask, mask, np.zeros_like(mask)]


@CHECKPOINTS
def test_checkpoint_report(case):
    """The networks that it is of, with both heads: what it lacks is fresh or zero, what it has besides is unused."""
    reader, there = read(case), recorded_variables(case)
    assert reader.shapes == there
    main = sizes_of(View(kept(reader, under(reader, "electra"))), {}, recorded_heads(case))
    generator = sizes_of(generator_of(reader, "electra"), {}) if has(reader, "generator") else None
    width = reader.shapes["electra/embeddings/word_embeddings"][1]
    own_tables = has(reader, "generator/embeddings")
    variables = named_variables(network_layers(main, width, generator, own_tables, has_generator(reader)))
    slots, step = AdamWeightDecay(variables, 0.0).slots, tf.Variable(0, dtype=tf.int64)

    report = checkpoints.restore(reader.prefix, variables, slots, {STEP: step})

    assert report.restored == [name for name in variables if name in there]
    assert report.fresh == [name for name in variables if name not in there]
    assert report.unused == sorted(name for name in there if name not in variables and is_weight(name))
    assert report.zero_slots == [name for name in slots if name not in there] and report.grown == []
    assert report.step == int(step) == (int(reader[STEP]) if STEP in there else 0)
    for name, variable in variables.items():
        if name in there:
            np.testing.assert_array_equal(variable, reader[name])
    lines = "\n".join(report.lines())
    assert ("fresh, not in the checkpoint: discriminator_predictions/* (4)" in lines) == (not has(reader, MAIN_HEAD))
    assert (f"{len(slots)} optimizer slots are not in the checkpoint and start at zero" in lines) == (
        len(report.zero_slots) == len(slots)
    )


@CHECKPOINTS
def test_checkpoint_to_this_project_and_back(case, tmp_path):
    heads = recorded_heads(case)
    before, path = weights(case), case
    for trip, format in enumerate(("tf1", "project", "tf1", "project")):
        path = converted(path, tmp_path / str(trip), format, "--num-attention-heads", heads)
        assert same(before, weights(path))
    one, other = (outputs(read(p), *batch(read(case)), heads) for p in (case, path))
    assert one and same(one, other)
    assert read(path).step == read(case).step


@CHECKPOINTS
def test_checkpoint_to_hugging_face_and_back(case, tmp_path):
    reader, heads = read(case), recorded_heads(case)
    project = converted(case, tmp_path / "project", "project", "--num-attention-heads", heads)
    if tasks := sorted({name.split("/")[1] for name in under(reader, "task_specific")}):
        expected = {name: value for name, value in weights(case).items() if not name.startswith("task_specific")}
        for task in tasks:
            head = {n: v for n, v in weights(case).items() if n.startswith(f"task_specific/{task}/")}
            if f"task_specific/{task}/qa_hidden/kernel" in head:
                result = convert("--from", project, "--to", tmp_path / "no", "--format", "huggingface")
                assert result.returncode == 2 and "joint_prediction" in result.stderr
                assert not (tmp_path / "no").exists()
                flags, head = ["--part", "discriminator"], {}
            else:
                flags = ["--task", task]
                plain = ("/dense/kernel", "/dense/bias", "/dense_1/kernel", "/dense_1/bias")
                head = {n: v for n, v in head.items() if n.endswith(plain)}
            face = converted(project, tmp_path / f"face-{task}", "huggingface", *flags)
            back = converted(face, tmp_path / f"back-{task}", "project")
            assert same(expected | head, weights(back))
        return
    face = converted(project, tmp_path / "face", "huggingface", "--part", "both")
    sources = ["--from", face / "generator"] if has_generator(reader) else []
    back = converted(face / "discriminator", tmp_path / "back", "project", *sources)
    kept_names = [*under(reader, "electra", "generator", "generator_predictions", MAIN_HEAD)]
    expected = {name: value for name, value in weights(case).items() if name in kept_names}
    assert same(expected, weights(back))
    view = View(kept(reader, expected))
    one, other = (outputs(r, *batch(reader), heads) for r in (view, read(back)))
    assert one and same(one, other)
    towers = {"generator": None} if has(reader, *TOWERS) else {}  # Hugging Face has no shape for them
    assert networks(read(back)) == networks(read(project)) | towers and read(back).step == reader.step


@CHECKPOINTS
def test_checkpoint_as_hparams(case):
    """The hparams that are named make networks of exactly these shapes."""
    reader = read(case)
    values = hparams(reader, networks(reader, heads=recorded_heads(case)))
    values["uniform_generator"] = values["electra_objective"] and not has_generator(reader)
    config = make_config("m", "d", values)
    variables = PretrainingModel(config, Specials(1, 2, 3)).variables
    for name, variable in variables.items():
        assert name in reader or name.startswith(MAIN_HEAD)
        assert name not in reader or variable.shape.as_list() == reader.shapes[name]


@pytest.mark.golden_cases("model*/**/variables.json")
def test_checkpoint_export_is_read_by_name(case, tmp_path):
    """TensorFlow's own readers find every variable in the export, with shape, type and value."""
    recorded = json.loads(case.read_text())["variables"]
    converted(case.parent, tmp_path / "out", "tf1", "--slots", "--num-attention-heads", recorded_heads(case))
    ours, theirs = tf.train.load_checkpoint(str(tmp_path / "out")), tf.train.load_checkpoint(str(case.parent))
    assert ours.get_variable_to_shape_map() == {row["name"]: row["shape"] for row in recorded}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        rows = ((row["name"], row["shape"], row["dtype"]) for row in recorded)
        zeros = tf.compat.v1.zeros_initializer()
        variables = {name: tf.compat.v1.get_variable(name, shape, dtype, zeros) for name, shape, dtype in rows}
        saver = tf.compat.v1.train.Saver(variables)
        saver.restore(session, tf.train.latest_checkpoint(str(tmp_path / "out")))
        for name, value in session.run(variables).items():
            np.testing.assert_array_equal(value, theirs.get_tensor(name), err_msg=name)
            assert ours.get_tensor(name).dtype == theirs.get_tensor(name).dtype


@FINETUNED
def test_checkpoint_of_a_finetuned_model(case):
    """Encoder and head compute what was recorded."""
    arrays = np.load(case.with_suffix(".npz"))
    features = [arrays[f"features/{name}"] for name in ("input_ids", "input_mask", "segment_ids")]
    ours = outputs(read(case.parent), *features, recorded_heads(case))
    np.testing.assert_allclose(ours["sequence"], arrays["eval/sequence_output"], **FORWARD)
    for name in arrays.files:
        match name.split("/"):
            case ["eval", task, "logits"] if arrays[name].ndim == 2:
                np.testing.assert_allclose(ours[f"{task}/dense"][:, 0], arrays[name], **FORWARD)
            case ["eval", task, "logits"]:
                positions = arrays[f"features/{task}_labeled_positions"]
                gathered = np.take_along_axis(ours[f"{task}/dense"], positions[..., None], 1)
                np.testing.assert_allclose(gathered, arrays[name], **FORWARD)
            case ["eval", task, "start_logits"]:
                answer = features[1] * features[2]
                answer[:, 0] = 1
                start = ours[f"{task}/dense"][..., 0] + 1000.0 * (answer - 1)
                np.testing.assert_allclose(start, arrays[name], **FORWARD)


@pytest.mark.golden_cases("model*/released_style*/checkpoint")
def test_checkpoint_is_continued(golden, case, tmp_path):
    """As people do with published weights: copied to the model folder, trained on, killed, resumed to the same bits."""
    recorded = json.loads((case.parent.parent / "pretrain_ckpt" / "hparams.json").read_text())["hparams"]
    reader, variables = read(case.parent), recorded_variables(case)
    vocab = next(path for path in golden.glob("vocab_*.txt") if len(load_vocab(str(path))) == recorded["vocab_size"])
    hparams_ = recorded | {
        "vocab_file": str(vocab),
        "pretrain_tfrecords": str(case.parent.parent / "pretrain_tfrecords" / "*"),
        "num_train_steps": reader.step + 20,
        "save_checkpoints_steps": 4,
        "log_every_steps": 1,
        "use_tensorboard": False,
    }
    for model in ("whole", "killed"):
        shutil.copytree(case.parent, tmp_path / "models" / model)
    result = run_here(tmp_path, "whole", hparams_)
    restored = [name for name in variables if is_weight(name)]
    assert f"restored {len(restored)} variables from {tmp_path}/models/whole/model.ckpt-{reader.step}" in result
    assert ("fresh, not in the checkpoint: discriminator_predictions/* (4)" in result) != has(reader, MAIN_HEAD)
    slots = 2 * (len(restored) + (0 if has(reader, MAIN_HEAD) else 4))
    assert f"{slots} optimizer slots are not in the checkpoint and start at zero" in result
    assert f"training from step {reader.step} to {reader.step + 20}" in result

    process = subprocess.Popen(
        [sys.executable, *command(tmp_path, "killed", hparams_ | {"iterations_per_loop": 1})],
        cwd=training_runs.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    saved = tmp_path / "models" / "killed"
    wait_for(lambda: process.poll() is not None or len(checkpoints.whole_checkpoints(str(saved))) > 2, 120)
    process.kill()
    process.wait()
    stopped = step_in_name(checkpoints.find(str(saved)))
    assert reader.step < stopped < reader.step + 20
    assert f"training from step {stopped} to" in run_here(tmp_path, "killed", hparams_)
    assert same(*(training_runs.read_checkpoint(tmp_path, model, reader.step + 20) for model in ("whole", "killed")))


def command(data: Path, model: str, values: dict) -> list[str]:
    return ["run_pretraining.py", "--data-dir", str(data), "--model-name", model, "--hparams", json.dumps(values)]


def run_here(data: Path, model: str, values: dict) -> str:
    with mock.patch.object(training_runs, "pretraining_command", lambda *_: command(data, model, values)):
        result = training_runs.pretrain_here(data, model)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
