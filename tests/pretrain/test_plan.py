"""run_pretraining.py --plan: the published trainings' hours, extrapolations that are said, no TensorFlow."""

import json
import sys

import pytest

import run_pretraining
from configure_pretraining import make_config
from pretrain.flops import training_flops
from pretrain.manifest import write_manifest
from pretrain.shards import known_examples
from pretrain.throughputs import PUBLISHED, Setup, setups, training
from tests.builders import fails, run
from tests.training_runs import run_script
from util.errors import UserError

# NVIDIA's recipe for ELECTRA-base; hours to train with float32 and mixed precision, as published beside the throughputs
PHASES = (
    {"max_seq_length": 128, "train_batch_size": 67584, "num_train_steps": 10_000},
    {"max_seq_length": 512, "train_batch_size": 27648, "num_train_steps": 930},
)
HOURS = {"8xA100-40G": (54.84, 30.47), "8xV100-16G": (241.8, 65.1), "16xV100-32G": (109.97, 29.08)}


def config_of(*hparams: dict):
    return make_config("m", "d", {k: v for values in hparams for k, v in values.items()})


@pytest.fixture
def planned(monkeypatch, capsys):
    """A function that runs the command with --plan and some arguments; gives what it says."""

    def plan(*arguments: str, hparams: dict) -> str:
        monkeypatch.setattr(sys, "argv", ["x", "--hparams", json.dumps(hparams), "--plan", *arguments])
        assert run_pretraining.main() == 0
        return capsys.readouterr().out

    return plan


def row(output: str, name: str) -> list[str]:
    """The cells of the first row of a table that begins with a name."""
    return next(line for line in output.splitlines() if line.startswith(name))[len(name) :].split()


@pytest.mark.parametrize("number", [0, 1], ids=["float32", "mixed"])
@pytest.mark.parametrize("devices", HOURS)
def test_published_trainings(planned, devices, number):
    precision = ("float32", "float16")[number]
    outputs = [planned(devices, hparams={"preset": "base", "precision": precision, **phase}) for phase in PHASES]
    rows = [row(output, devices) for output in outputs]
    assert sum(float(cells[1]) for cells in rows) == pytest.approx(HOURS[devices][number], rel=0.01)
    assert all(cells[2:] == ["published"] for cells in rows)


def test_all_that_is_said(planned):
    hparams = {"preset": "base", "precision": "float16", "gradient_accumulation_steps": 48, **PHASES[0]}
    output = planned(hparams=hparams)
    for part in ("119,386,427", "675,840,000", "86.5G", "1.43 GB", "unknown", "discriminator", "generator head"):
        assert part in output, part
    assert all(f"{count}x{kind} " in output for kind, counts in PUBLISHED.items() for count in counts)
    assert "cost" not in output
    assert row(planned("8xA100-40G", "--price-per-hour", "2", hparams=hparams), "8xA100-40G")[2] == "399.86"


def test_too_little_memory_and_batches_that_cannot_be_shared(planned):
    output = planned("3xV100-16G", hparams={"preset": "large", "train_batch_size": 256})
    assert "3xV100-16G: train_batch_size 256 is not divisible by 3 replicas" in output
    assert "3xV100-16G: too little memory; what lowers it: " in output and "recompute_layers=true to " in output


def test_other_networks_lengths_and_numbers_of_devices_are_extrapolated():
    one, small = setups(["A100-40G"])[0], config_of({"preset": "small", "precision": "float16"})
    base = config_of({"preset": "base", "precision": "float16", "max_seq_length": 128})
    seconds, source = training(small, one)
    ratio = training_flops(small, small.num_train_steps) / training_flops(base, base.num_train_steps)
    assert seconds == pytest.approx(training(base, one).seconds * ratio) and source == "by FLOPs from base at 128"
    assert training(config_of({"preset": "base", "max_seq_length": 300}), one).source == "by FLOPs from base at 512"
    several = training(base, Setup(4, "A100-40G"))
    assert several.seconds == pytest.approx(training(base, one).seconds / 4)
    assert several.source == "4 / 1 times 1xA100-40G"


@pytest.mark.parametrize("name", ["A100-80G", "8xa100-40G", "", "8x"])
def test_unknown_devices(name):
    with pytest.raises(UserError, match=f'no throughput of the device "{name}".*V100-16G, V100-32G, A100-40G'):
        setups([name])


@pytest.mark.parametrize("count", ["0", "-1", "100000", "9" * 5000])
def test_impossible_numbers_of_devices(count):
    with pytest.raises(UserError, match=f'the number of devices of "{count}xA100-40G" must be from 1 to 99999'):
        setups([f"{count}xA100-40G"])


def test_bad_input():
    fails(run("run_pretraining.py", "--plan", "8xA100-80G"), '"8xA100-80G"', 'did you mean "A100-40G"?')
    fails(run("run_pretraining.py", "--plan", "--price-per-hour", "-1"), "--price-per-hour must be a number from 0 on")


@pytest.mark.parametrize("arguments", [["--model-name", "m"], ["--data-dir", "d", "--model-name", "m", "--price", "1"]])
def test_flags_that_need_others(monkeypatch, capsys, arguments):
    monkeypatch.setattr(sys, "argv", ["x", *arguments])
    with pytest.raises(SystemExit) as left:
        run_pretraining.main()
    assert left.value.code == 2 and "--plan" in capsys.readouterr().err


def test_tensorflow_is_not_imported():
    code = "import sys, run_pretraining as r; sys.argv = ['x', '--plan']; r.main(); print('tensorflow' in sys.modules)"
    result = run_script("-c", code)
    assert result.returncode == 0 and result.stdout.endswith("\nFalse\n"), result.stderr


def test_passes_over_the_data(planned, tmp_path):
    """Known where every shard is in a manifest."""
    folder = tmp_path / "pretrain_tfrecords"
    folder.mkdir()
    shards = {f"pretrain_data.tfrecord-{i}": 500 for i in range(2)}
    for name in shards:
        (folder / name).touch()
    kinds = {"max_seq_length": 128, "vocab_size": 9, "vocab_sha256": "", "do_lower_case": True, "strip_accents": True}
    write_manifest(str(folder), {**kinds, "num_examples": 1000, "shards": shards})
    assert known_examples(f"{folder}/*") == 1000
    assert known_examples(f"{folder}/*-1,{tmp_path}/none*") == 500
    output = planned("--data-dir", str(tmp_path), hparams={"train_batch_size": 10, "num_train_steps": 250})
    assert row(output, "passes over the data") == ["2.5"]
    (folder / "pretrain_data.tfrecord-2").touch()
    assert known_examples(f"{folder}/*") is None and known_examples(f"{tmp_path}/none*") is None
