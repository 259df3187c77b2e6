"""What run_pretraining.py says of input it cannot use: one message, exit code 2, nothing deleted or half-written."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import run_pretraining
from model.tokenization import load_vocab
from pretrain import model_folder
from pretrain.shards import find_shards
from tests.training_runs import (
    HPARAMS,
    NETWORK,
    ROOT,
    pretrain,
    pretrain_here,
    pretraining_command,
    read_metrics,
    run_script,
)
from util.distribution import read_cluster
from util.errors import UserError, run_main
from util.folder_lock import LOCK_NAME, FolderLock

SHARD = "pretrain_data.tfrecord-1-of-3"


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def said(stderr: str) -> str:
    """The one message of a failed command; TensorFlow's own lines may come before it."""
    assert "Traceback" not in stderr
    _, *messages = re.split(r"^error: ", stderr, flags=re.MULTILINE)
    assert len(messages) == 1, stderr
    return messages[0]


def failed(result: subprocess.CompletedProcess) -> str:
    assert result.returncode == 2, result.stdout + result.stderr
    return said(result.stderr)


@pytest.fixture
def no_start(monkeypatch):
    """Fails where a run would begin, which is where TensorFlow is first imported."""

    def started(*_):
        raise AssertionError("a run was started")

    stand_in = SimpleNamespace(PretrainingRun=started)
    monkeypatch.setitem(sys.modules, "pretrain.pretraining_run", stand_in)


@pytest.fixture
def command(no_start, monkeypatch, capsys):
    """A function that runs the command in this process up to where a run begins: (exit code, stdout, stderr)."""

    def run(data: Path, model: str, *hparams: dict | str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", pretraining_command(data, model, *hparams))
        with pytest.raises(SystemExit) as left:
            run_main(run_pretraining.main)
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return run


@pytest.fixture
def refused(command):
    """A function that runs the command, which must be refused and change nothing; gives the message."""

    def run(data: Path, *hparams: dict | str, model: str = "refused") -> str:
        before = files(data)
        code, _, stderr = command(data, model, *hparams)
        assert code == 2 and stderr.startswith("error: ")
        assert files(data) == before and not (data / "models" / "refused").exists()
        return said(stderr)

    return run


def copy_data(source: Path, target: Path, manifest: bool = True) -> Path:
    """The vocabulary and shards of a data folder; without their manifest they are like released ones."""
    shutil.copytree(source / "pretrain_tfrecords", target / "pretrain_tfrecords")
    shutil.copy(source / "vocab.txt", target)
    if not manifest:
        (target / "pretrain_tfrecords" / "manifest.json").unlink()
    return target


# ---------------------------------------------------------------------------------------------------------------------
# Hparams

HPARAM_FAULTS = {
    "not JSON": ('{"debug": true', "not valid JSON"),
    "a file that is missing": ("/nowhere/h.json", "cannot read the hparams file", "/nowhere/h.json"),
    "unknown": ({"learning_rat": 1}, 'unknown hparam "learning_rat"', '"learning_rate"'),
    "wrong type": ({"train_batch_size": "8"}, '"train_batch_size" must be a whole number', '"8"'),
    "a text for a truth": ("debug=yes", '"debug" must be true or false'),
    "negative": ({"num_train_steps": -1}, '"num_train_steps" must be at least 1', "-1"),
    "not finite": ("learning_rate=Infinity", '"learning_rate" must be finite'),
    "not a number": ("temperature=NaN", '"temperature" must be finite'),
    "micro-batches": ({"gradient_accumulation_steps": 3}, "train_batch_size 8 is not divisible", "3"),
    "heads": ({"model_hparam_overrides": {**NETWORK, "num_attention_heads": 3}}, "hidden_size 32", "heads 3"),
    "generator's heads": (
        {"model_hparam_overrides": {"hidden_size": 516, "num_attention_heads": 4}},
        "the generator",
        "hidden_size 129 is not divisible by num_attention_heads 2; change generator_hidden_size",
    ),
    "position table": (
        {"max_seq_length": 64, "model_hparam_overrides": {**NETWORK, "max_position_embeddings": 48}},
        "max_seq_length 64 is over the position table of 48",
    ),
    "unknown field": ({"model_hparam_overrides": {"hidden": 32}}, 'unknown field "hidden"', "hidden_size"),
    "field's type": ({"model_hparam_overrides": {"hidden_size": 32.5}}, '"hidden_size" must be of type int'),
    "two vocabulary sizes": ({"model_hparam_overrides": {**NETWORK, "vocab_size": 300}}, "vocab_size 300", "400"),
    "both": ({"do_train": True, "do_eval": True}, "exactly one of do_train and do_eval"),
    "neither": ({"do_train": False}, "exactly one of do_train and do_eval"),
    "eval of an untrained folder": ({"do_eval": True}, "models/refused holds no checkpoint; train it first"),
    "masks nothing": ({"mask_prob": 0.01}, "masks nothing"),
    "evaluation without data": ({"eval_every_steps": 5}, "eval_every_steps needs eval_tfrecords"),
    "no workers": ({"distribution": "multi_worker"}, "needs TF_CONFIG"),
    "two devices": ({"use_tpu": True, "distribution": "mirrored"}, "use_tpu true contradicts"),
    "init_checkpoint missing": ({"init_checkpoint": "/nowhere/model.ckpt-7"}, "no checkpoint /nowhere/model.ckpt-7"),
}


@pytest.mark.parametrize("fault", HPARAM_FAULTS)
def test_hparams(training_data, refused, fault):
    hparams, *parts = HPARAM_FAULTS[fault]
    message = refused(training_data, hparams)
    assert all(part in message for part in parts), message


def test_init_checkpoint_without_a_checkpoint(training_data, refused, tmp_path):
    assert "is a folder without a checkpoint" in refused(training_data, {"init_checkpoint": str(tmp_path)})


def test_malformed_cluster(training_data, refused, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": []}')
    assert "TF_CONFIG's task must be a worker" in refused(training_data)
    monkeypatch.delenv("TF_CONFIG")
    assert read_cluster() is None


# ---------------------------------------------------------------------------------------------------------------------
# Vocabulary and shards


def test_vocabulary(training_data, refused, tmp_path):
    pieces = (training_data / "vocab.txt").read_text().splitlines()
    path = tmp_path / "vocab.txt"
    for content, *parts in (
        ("", "is empty"),
        ("\n".join(pieces).replace("[MASK]", "[mask]"), "lacks [MASK]"),
        ("\n".join([*pieces, pieces[7]]), "twice, in lines 8 and 401"),
        ("\n".join([*pieces, "one-more"]), "401 pieces, more than vocab_size 400", "set vocab_size to 401"),
        (b"\xff\n", "not UTF-8"),
    ):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        message = refused(training_data, {"vocab_file": str(path)})
        assert all(part in message for part in [*parts, str(path)]), message
    assert "is a folder" in refused(training_data, {"vocab_file": str(tmp_path)})
    assert "No such file" in refused(training_data, {"vocab_file": str(tmp_path / "missing.txt")})


def test_no_shards(training_data, refused, tmp_path):
    data = copy_data(training_data, tmp_path, True)
    message = refused(data, {"pretrain_tfrecords": str(data / "*.record")})
    assert f"no TFRecords match {data}/*.record" in message and "vocab.txt" in message
    message = refused(training_data, {"eval_tfrecords": str(tmp_path / "held_out" / "*")})
    assert f"there is no folder {tmp_path}/held_out" in message
    assert "Is a directory" in refused(training_data, {"pretrain_tfrecords": str(tmp_path)})


@pytest.mark.parametrize("manifest", [True, False], ids=["manifest", "released"])
def test_shards_of_another_kind(training_data, refused, tmp_path, manifest):
    """Told by the manifest; without one by the first example of each shard."""
    data = copy_data(training_data, tmp_path, manifest)
    message = refused(data, {"max_seq_length": 48})
    assert "max_seq_length" in message and "48" in message and "32" in message
    pieces = (data / "vocab.txt").read_text().splitlines()
    (data / "vocab.txt").write_text("\n".join(["[unused99]", *pieces[:-1]]) + "\n")
    assert "another vocabulary" in refused(data)
    if manifest:
        shutil.copy(training_data / "vocab.txt", data)
        assert "built with do_lower_case True" in refused(data, {"do_lower_case": False})


def test_damaged_shards_at_the_start(training_data, refused, tmp_path):
    data = copy_data(training_data, tmp_path)
    shard = data / "pretrain_tfrecords" / SHARD
    whole = shard.read_bytes()
    shard.write_bytes(whole[:15] + bytes([whole[15] ^ 4]) + whole[16:])
    message = refused(data)
    assert f"{shard}: wrong checksum" in message and "at byte 0" in message and "skip_corrupt_records" in message
    (data / "pretrain_tfrecords" / "manifest.json").unlink()
    shard.write_bytes(whole[:-3])
    message = refused(data)
    last = len(whole) - len(whole) // 138  # about where the last record begins
    assert f"{shard}: the file ends inside the record at byte " in message
    assert abs(int(message.split("at byte ")[1].split(";")[0]) - last) < 60
    shard.write_bytes(b"plain text, no records")
    assert f"{shard}: wrong checksum of a record's length at byte 0" in refused(data)


# ---------------------------------------------------------------------------------------------------------------------
# The model folder


@pytest.fixture
def trained_folder(training_data, tmp_path):
    """A function that makes a model folder as a run leaves it, its checkpoint apart: (data folder, model folder)."""

    def make(step: int = 20, **hparams) -> tuple[Path, Path]:
        data = copy_data(training_data, tmp_path)
        config = run_pretraining.make_config("m", str(data), {**HPARAMS, **hparams})
        shards = find_shards(config.pretrain_tfrecords)
        model_folder.prepare(config, load_vocab(config.vocab_file), shards)
        folder = data / "models" / "m"
        for suffix in (".index", ".data-00000-of-00001"):
            (folder / f"model.ckpt-{step}{suffix}").write_bytes(b"x")
        (folder / "notes.txt").write_text("mine")
        return data, folder

    return make


def test_other_networks(trained_folder, refused):
    data, _ = trained_folder()
    message = refused(
        data,
        {"num_train_steps": 30, "mask_prob": 0.25, "embedding_size": 24, "electra_objective": True},
        {"model_hparam_overrides": {**NETWORK, "num_hidden_layers": 3}},
        model="m",
    )
    for line in (
        "mask_prob: 0.15 there, 0.25 here",
        "embedding_size: 16 there, 24 here",
        "discriminator num_hidden_layers: 2 there, 3 here",
        "generator num_hidden_layers: 2 there, 3 here",
        "overwrite true",
    ):
        assert line in message
    assert "learning_rate" not in message


def test_another_vocabulary_than_the_folder(trained_folder, refused):
    data, _ = trained_folder()
    (data / "pretrain_tfrecords" / "manifest.json").unlink()
    with (data / "vocab.txt").open("a") as file:
        file.write("\n\n")  # the same pieces, other bytes: who can tell which of the two was changed
    assert "was trained with another vocabulary" in refused(data, {"num_train_steps": 30}, model="m")


def test_an_unused_hparam_of_the_released_code_is_said(trained_folder, capsys, monkeypatch):
    data, _ = trained_folder()
    command = pretraining_command(data, "m", {"results_pkl": "x.pkl", "num_train_steps": 20})
    monkeypatch.setattr(sys, "argv", command)
    assert run_pretraining.main() == 0
    assert "hparam results_pkl is not used" in capsys.readouterr().out


def test_other_shards_are_said(trained_folder, capsys):
    data, _ = trained_folder()
    (data / "pretrain_tfrecords" / "pretrain_data.tfrecord-2-of-3").unlink()
    config = run_pretraining.make_config("m", str(data), {**HPARAMS, "num_train_steps": 30})
    model_folder.check(config, load_vocab(config.vocab_file), find_shards(config.pretrain_tfrecords))
    output = capsys.readouterr().out
    assert "the order of the data differs from here on: these are other shards than before (3 with" in output


def test_what_may_change(trained_folder, no_start, capsys, monkeypatch):
    """Data, batch size and schedule: said, and the run begins."""
    data, _ = trained_folder()
    config = run_pretraining.make_config(
        "m", str(data), {**HPARAMS, "num_train_steps": 30, "learning_rate": 2e-3, "train_batch_size": 16}
    )
    model_folder.check(config, load_vocab(config.vocab_file), find_shards(config.pretrain_tfrecords))
    output = capsys.readouterr().out
    assert "the order of the data differs from here on, changed: train_batch_size 8 -> 16" in output
    assert "changed since the folder's last run: learning_rate 0.001 -> 0.002, num_train_steps 20 -> 30\n" in output
    monkeypatch.setattr(sys, "argv", pretraining_command(data, "m", {"num_train_steps": 30}))
    with pytest.raises(AssertionError, match="a run was started"):
        run_main(run_pretraining.main)


def test_a_finished_run_says_so(trained_folder, command):
    data, folder = trained_folder()
    before = files(folder)
    code, output, _ = command(data, "m")
    assert code == 0 and "nothing to do: the model in" in output and "metrics.jsonl" in output
    assert files(folder) == before


@pytest.mark.parametrize("asked", ["overwrite", "debug"])
def test_starting_afresh_removes_a_runs_files_alone(trained_folder, asked):
    data, folder = trained_folder(debug=asked == "debug")
    (folder / "results").mkdir()
    (folder / "results" / "unsup_results.txt").write_text("loss = 1")
    config = run_pretraining.make_config("m", str(data), {**HPARAMS, asked: True, "seed": 7})
    model_folder.check(config, load_vocab(config.vocab_file), find_shards(config.pretrain_tfrecords))
    assert (folder / "model.ckpt-20.index").exists()  # checking removes nothing
    model_folder.prepare(config, load_vocab(config.vocab_file), find_shards(config.pretrain_tfrecords))
    left = files(folder)
    assert not [name for name in left if name.startswith("model.ckpt")]
    assert {"notes.txt", "results/unsup_results.txt", "vocab.txt", "hparams.json"} <= left.keys()
    assert json.loads(left["hparams.json"])["seed"] == 7
    assert (model_folder.DEBUG_MARKER in left) is (asked == "debug")


def test_debug_empties_only_what_debug_made(trained_folder, refused):
    data, folder = trained_folder()
    assert "holds a run that was not a debug run" in refused(data, {"debug": True}, model="m")
    for path in folder.glob("model.ckpt*"):
        path.unlink()
    assert "holds a run that was not a debug run" in refused(data, {"debug": True}, model="m")


def test_a_real_run_in_a_debug_folder_is_safe_from_debug(trained_folder, refused):
    data, folder = trained_folder(debug=True)
    config = run_pretraining.make_config("m", str(data), {**HPARAMS, "overwrite": True})
    model_folder.prepare(config, load_vocab(config.vocab_file), find_shards(config.pretrain_tfrecords))
    assert not (folder / model_folder.DEBUG_MARKER).exists()
    assert "not a debug run" in refused(data, {"debug": True}, model="m")


def test_a_checkpoint_from_elsewhere_with_another_vocabulary(training_data, refused, tmp_path):
    data = copy_data(training_data, tmp_path)
    folder = data / "models" / "m"
    folder.mkdir(parents=True)
    for name in ("electra.index", "electra.data-00000-of-00001"):
        (folder / name).write_bytes(b"x")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    assert f"the vocabulary {folder}/vocab.txt beside the checkpoint is not" in refused(data, model="m")


def test_two_runs_in_one_folder(trained_folder, refused, command):
    data, folder = trained_folder()
    with FolderLock(str(folder)):
        message = refused(data, {"num_train_steps": 30}, model="m")
    assert f"{folder} is in use by process {os.getpid()} on " in message
    assert not (folder / LOCK_NAME).exists()


def test_the_lock_of_a_dead_process_is_taken_over(trained_folder, command):
    data, folder = trained_folder()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lock = json.dumps({"host": os.uname().nodename, "process": ended.pid, "start": "1"})
    (folder / LOCK_NAME).write_text(lock)
    code, output, _ = command(data, "m")
    assert code == 0 and f"took over the model folder from process {ended.pid}" in output
    assert not (folder / LOCK_NAME).exists()


def test_a_folder_that_cannot_be_written(training_data, refused, tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "m", Path("/proc/no/such/folder")):
        message = refused(training_data, {"model_dir": str(path)})
        assert f"cannot write in the model folder {path}" in message
    assert (tmp_path / "file").read_text() == "x"


def test_failing_needs_no_tensorflow(training_data, tmp_path):
    """As its user runs it, with a TensorFlow that cannot be imported."""
    (tmp_path / "stub" / "tensorflow").mkdir(parents=True)
    (tmp_path / "stub" / "tensorflow" / "__init__.py").write_text("raise RuntimeError('imported')")
    data = tmp_path / "d"
    data.mkdir()
    copy_data(training_data, data, manifest=False)
    for hparams, part in (
        ({"learning_rat": 1}, "unknown hparam"),
        ({"max_seq_length": 48}, "max_seq_length is 48"),
        ({"init_checkpoint": "/nowhere"}, "no checkpoint /nowhere"),
    ):
        result = run_script(*pretraining_command(data, "m", hparams), PYTHONPATH=str(tmp_path / "stub"))
        assert result.stderr.startswith("error: ") and part in failed(result)


# ---------------------------------------------------------------------------------------------------------------------
# Runs that begin


@pytest.fixture(scope="module")
def trained(training_data, tmp_path_factory):
    """A data folder with a model of 4 steps."""
    data = tmp_path_factory.mktemp("trained") / "d"
    data.mkdir()
    copy_data(training_data, data)
    result = pretrain_here(data, "m", {"num_train_steps": 4})
    assert result.returncode == 0, result.stderr
    return data


def test_devices_that_are_not_there(trained):
    """Found when the devices are opened; what overwrite would remove is still there."""
    before = files(trained)
    message = failed(pretrain(trained, "m", {"require_gpu": True, "overwrite": True}, CUDA_VISIBLE_DEVICES="-1"))
    assert "require_gpu is true and no GPU is visible" in message
    message = failed(pretrain(trained, "m", {"num_train_steps": 9, "logical_cpus": 2, "train_batch_size": 9}))
    assert "train_batch_size 9 is not divisible by 2 replicas; take a multiple of 2" in message
    assert files(trained) == before


def test_disk_full_while_a_checkpoint_is_written(trained):
    folder = trained / "models" / "full"
    shutil.copytree(trained / "models" / "m", folder)
    before = files(folder)
    command = pretraining_command(trained, "full", {"num_train_steps": 30, "save_checkpoints_steps": 8})
    limited = ["bash", "-c", 'ulimit -f 64; exec "$@"', "bash", sys.executable, *command]  # no file over 64 KB
    message = failed(subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False))
    assert f"cannot write a checkpoint in {folder}" in message
    assert f"the last good one is {folder}/model.ckpt-4." in message
    after = files(folder)
    assert after.keys() == before.keys() and not (folder / ".saving").exists()
    for name in ("checkpoint", "model.ckpt-4.index", "model.ckpt-4.data-00000-of-00001"):
        assert after[name] == before[name]


def test_a_loss_that_is_not_finite(trained):
    shutil.copytree(trained / "models" / "m", trained / "models" / "wild")
    hparams = {"num_train_steps": 400, "learning_rate": 1e30, "num_warmup_steps": 0, "iterations_per_loop": 7}
    result = pretrain_here(trained, "wild", hparams)
    message = failed(result)
    assert "21 steps in a row had a loss or gradient that is not finite" in message
    assert f"The last good checkpoint is {trained}/models/wild/model.ckpt-4." in message
    records = read_metrics(trained, "wild")
    assert records[-1]["skipped_steps"] >= 10 and records[-1]["loss"] is None
    assert not (trained / "models" / "wild" / LOCK_NAME).exists()


def test_a_released_checkpoint_that_has_reached_the_last_step(trained):
    golden = ROOT / "tests/golden/model/pretrain_ckpt"
    folder = trained / "models" / "released"
    shutil.copytree(golden, folder)
    before = files(folder)
    passed = json.loads((golden / "hparams.json").read_text())["hparams"]
    names = ("model_hparam_overrides", "embedding_size", "generator_hidden_size", "vocab_size")
    message = failed(pretrain_here(trained, "released", {name: passed[name] for name in names}, {"num_train_steps": 5}))
    assert "is at step 5, so num_train_steps 5 leaves nothing to train" in message
    assert "set num_train_steps to 5 + n and learning_rate to r * ((5 + n) / n)" in message
    assert files(folder) == before


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_more_steps_start_at_the_rate_asked_for(power):
    config = run_pretraining.make_config("m", "d", {"num_train_steps": 1_000_000, "lr_decay_power": power})
    model_folder.check_steps(config, 999_999)
    with pytest.raises(UserError) as caught:
        model_folder.check_steps(config, 1_000_000)
    found = re.search(
        r"for (\d+) more from 0.0001, num_train_steps (\d+) and learning_rate ([\d.]+)\.", str(caught.value)
    )
    more, steps, rate = int(found[1]), int(found[2]), float(found[3])
    assert steps == 1_000_000 + more
    assert rate * (1 - 1_000_000 / steps) ** power == pytest.approx(1e-4, rel=1e-5)


def test_a_record_that_is_corrupt_in_the_middle(training_data, tmp_path):
    """The run ends with file and offset; or it goes on, and counts. So it does with a vocabulary of fewer pieces."""
    data = copy_data(training_data, tmp_path, manifest=False)
    shard = data / "pretrain_tfrecords" / SHARD
    whole = bytearray(shard.read_bytes())
    place = 0
    for _ in range(70):
        place += 16 + int.from_bytes(whole[place : place + 8], "little")
    whole[place + 20] ^= 1
    shard.write_bytes(whole)
    epoch = {"num_train_steps": 53}  # of 8 examples: a little more than all of them
    message = failed(pretrain_here(data, "m", epoch))
    assert f"{shard}: wrong checksum of the record at byte {place};" in message
    assert not list((data / "models" / "m").glob("model.ckpt*"))
    result = pretrain_here(data, "m", epoch, {"skip_corrupt_records": True, "vocab_size": 420})
    assert result.returncode == 0, result.stderr
    assert f"note: {shard}: wrong checksum of the record at byte {place}; skipped" in result.stdout
    assert "corrupt records skipped: 1\n" in result.stdout
    assert "has 400 pieces, vocab_size is 420: the last rows of the table stay unused" in result.stdout


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        (
            {"learning_rate": 2e-3, "seed": 7},
            ("hparam learning_rate: 0.001 on worker 0 (127.0.0.1:", "hparam seed: 42"),
        ),
        ({"pretrain_tfrecords": SHARD}, ("\n  shards: 3 with 415 examples (", "1 with ")),
        ({"pretrain_tfrecords": "/nowhere/*"}, ("no TFRecords match /nowhere/*",)),
    ],
    ids=["hparams", "data", "no data"],
)
def test_hosts_that_differ(training_data, unused_ports, other, parts):
    if other.get("pretrain_tfrecords") == SHARD:
        other = {"pretrain_tfrecords": str(training_data / "pretrain_tfrecords" / SHARD)}
    two_that_differ(training_data, unused_ports(2), parts, other)


def test_hosts_with_other_versions(training_data, tmp_path, unused_ports):
    (tmp_path / "numpy-1.0.dist-info").mkdir()
    (tmp_path / "numpy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n")
    parts = ("numpy: ", ", 1.0 on worker 1 (127.0.0.1:")
    two_that_differ(training_data, unused_ports(2), parts, PYTHONPATH=str(tmp_path))


def two_that_differ(data, ports, parts, hparams=None, **environment):
    """One message on both, before TensorFlow starts, and nothing is left; hparams, environment: of the second."""
    before, workers = files(data), [f"127.0.0.1:{port}" for port in ports]
    started = []
    for index, (values, variables) in enumerate((({}, {}), (hparams or {}, environment))):
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        command = [sys.executable, *pretraining_command(data, "several", values)]
        environ = {**os.environ, "TF_CONFIG": json.dumps(cluster), **variables}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=ROOT, env=environ, **pipes))
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 2 and "TensorFlow" not in errors
        for part in parts:
            assert part in said(errors)
    assert files(data) == before
