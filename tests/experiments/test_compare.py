"""Comparisons of objectives as their users run them: to the end, killed, interrupted, failing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.checks import check_kept
from experiments.compare import main
from experiments.configuration import read_experiment
from tests import finetuning_runs, training_runs
from tests.builders import fails, wait_for
from tests.training_runs import ROOT
from util.errors import UserError

RTE = {**finetuning_runs.HPARAMS, "num_train_epochs": 1, "iterations_per_loop": 5}
for name in ("init_checkpoint", "vocab_size", "embedding_size", "model_hparam_overrides"):
    del RTE[name]
PRETRAINING = {**training_runs.HPARAMS, "log_every_steps": 10, "save_checkpoints_steps": 20, "iterations_per_loop": 5}
del PRETRAINING["num_train_steps"]
CONFIG = {
    "data_dir": ".",
    "pretraining": {**PRETRAINING, "num_eval_steps": 2},
    "objectives": {"mlm": {}, "electra": {}},
    "budgets": [6e9],
    "eval_tfrecords": "pretrain_tfrecords/pretrain_data*",
    "seeds": 2,
    "tasks": {"rte": RTE},
}


@pytest.fixture
def data(training_data, tmp_path) -> Path:
    """A data folder of this test's own."""
    shutil.copy(training_data / "vocab.txt", tmp_path)
    shutil.copytree(training_data / "pretrain_tfrecords", tmp_path / "pretrain_tfrecords")
    finetuning_runs.make_tasks(tmp_path)
    return tmp_path


def write(data: Path, **values) -> Path:
    path = data / "tiny.json"
    path.write_text(json.dumps({**CONFIG, **values}))
    return path


def command(path: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "experiments.compare", str(path), *arguments]


def compare(path: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(command(path, *arguments), cwd=ROOT, capture_output=True, text=True, check=False)


def start(path: Path) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command(path), cwd=ROOT, **pipes)


def results(data: Path) -> dict:
    return json.loads((data / "experiments" / "tiny" / "results.json").read_text())


@pytest.mark.timeout(1200)  # several runs: 40 CPU seconds, minutes on a busy machine
def test_a_comparison_is_killed_goes_on_and_skips_what_is_finished(data):
    """Killed in the first pre-training, interrupted in the first fine-tuning, then run to the end, and once more."""
    path, model = write(data), data / "models" / "tiny-mlm-6e+09"
    process = start(path)
    wait_for(lambda: list(model.glob("model.ckpt-*.index")), seconds=240)
    process.kill()
    process.communicate()

    process = start(path)
    log = []
    for line in process.stdout:
        log.append(line)
        if line.startswith("trial 1: rte"):
            process.send_signal(signal.SIGINT)
    assert process.wait() == 130, "".join(log)
    assert any(line.startswith("== training from step") and "from step 0" not in line for line in log)
    assert results(data)["runs"][0]["tasks"]["rte"]["n"] in (1, 2)

    ran = compare(path)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert f"pre-trained already: {model}" in ran.stdout
    check_results(data)
    before = results(data)

    again = compare(path)
    assert again.returncode == 0, again.stderr
    for said in ("pre-trained already", "fine-tuned already on rte, n = 2"):
        assert again.stdout.count(said) == 2
    assert "== hparams in force" not in again.stdout
    assert results(data) == before


def check_results(data: Path) -> None:
    """What the table holds is what the runs' own files say."""
    found = results(data)
    assert [run["objective"] for run in found["runs"]] == ["mlm", "electra"]
    for run in found["runs"]:
        folder = data / "models" / f"tiny-{run['objective']}-6e+09"
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert rows[-1]["split"] == "eval" and rows[-1]["step"] == run["steps"]
        assert run["held_out"]["masked_lm_loss"] == rows[-1]["masked_lm_loss"]
        assert ("disc_auc" in run["held_out"]) == (run["objective"] == "electra")
        assert abs(run["flops"] / 6e9 - 1) < 0.01 and run["seconds"] > 0
        trials = json.loads((folder / "results" / "rte_results.json").read_text())["trials"]
        scores = [trial["results"]["rte"]["dev"]["accuracy"] for trial in trials]
        rte = run["tasks"]["rte"]
        assert rte["scores"] == scores and rte["n"] == 2 and rte["lowest"] <= rte["median"] <= rte["highest"]
    folder = data / "experiments" / "tiny"
    assert (folder / "results.md").read_text().count("n = 2") == 2
    assert (folder / "scores.png").read_bytes().startswith(b"\x89PNG")


def test_a_failed_command_is_told_and_the_others_go_on(data):
    """The first model's folder is not one that can be trained in; the second is trained and its task has bad labels."""
    folder = data / "models" / "tiny-mlm-6e+09"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").mkdir()
    train = data / "finetuning_data" / "rte" / "train.tsv"
    train.write_text(train.read_text().replace("\tentailment", "\tyes"))
    ran = compare(write(data))
    assert ran.returncode == 1
    assert "error: pre-training of mlm, 6e+09 FLOPs: the command\n" in ran.stderr and "run_pretraining.py" in ran.stderr
    assert "error: fine-tuning of electra, 6e+09 FLOPs on rte: the command\n" in ran.stderr and "'yes'" in ran.stderr
    assert [run["finished"] for run in results(data)["runs"]] == [False, True]
    assert results(data)["runs"][1]["tasks"]["rte"]["n"] == 0


BAD = {
    "no such key": ({"objective": {}}, 'unknown key "objective"; did you mean "objectives"?'),
    "no objectives": ({"objectives": {}}, '"objectives" is empty'),
    "unknown objective": ({"objectives": {"elektra": {}}}, 'did you mean "electra"?'),
    "unknown hparam": ({"objectives": {"mlm": {"learning_rat": 1.0}}}, 'objective "mlm"', '"learning_rate"'),
    "contradiction": ({"objectives": {"mlm": {"generator": "small"}}}, 'objective "mlm" at 6e+09', "no generator"),
    "set here": ({"objectives": {"mlm": {"model_dir": "x"}}}, '"model_dir" follows from the configuration'),
    "unequal": ({"objectives": {"mlm": {}, "electra": {"num_train_steps": 50}}}, "by more than 1%", "(50 steps)"),
    "tiny budget": ({"budgets": [1e8]}, "differ by more than 1%"),
    "no budget": ({"budgets": [0]}, "above 0"),
    "same budget": ({"budgets": [6e9, 6.0e9]}, "6e+09 twice"),
    "no seeds": ({"seeds": 0}, '"seeds" must be at least 1'),
    "no held-out text": ({"eval_tfrecords": "heldout/*"}, "no TFRecords match", "heldout"),
    "other length": ({"pretraining": {**PRETRAINING, "max_seq_length": 64}}, "max_seq_length is 64"),
    "unknown task": ({"tasks": {"rta": RTE}}, 'task "rta"', "unknown task 'rta'"),
    "task without files": ({"tasks": {"mnli": RTE}}, 'task "mnli"', "train.tsv"),
    "hparam of a task": ({"tasks": {"rte": {**RTE, "num_trials": 3}}}, '"num_trials" follows'),
    "no data": ({"data_dir": "nowhere"}, "no data folder", "nowhere"),
}


@pytest.fixture(scope="module")
def checked_data(training_data) -> Path:
    finetuning_runs.make_tasks(training_data)
    return training_data


@pytest.mark.parametrize("case", BAD)
def test_bad_configurations(checked_data, case, monkeypatch):
    """Found before anything runs or is written."""
    values, *parts = BAD[case]
    monkeypatch.setattr(sys, "argv", ["compare", str(write(checked_data, **values))])
    with pytest.raises(UserError) as error:
        main()
    assert all(part in str(error.value) for part in parts), error.value
    assert not (checked_data / "experiments").exists()


def test_missing_and_damaged_files(checked_data, tmp_path):
    fails(compare(tmp_path / "none.json"), "cannot read the configuration")
    (tmp_path / "half.json").write_text('{"seeds": ')
    fails(compare(tmp_path / "half.json"), "is not valid JSON")
    values = {key: value for key, value in CONFIG.items() if key != "tasks"}
    (tmp_path / "less.json").write_text(json.dumps(values))
    fails(compare(tmp_path / "less.json"), '"tasks" is missing')


def test_other_hparams_are_not_mixed_into_old_results(checked_data, tmp_path):
    """Objectives, budgets, tasks and seeds may come and go; what finished runs were made with may not change."""
    data = shutil.copytree(checked_data, tmp_path / "d")

    def kept(**values) -> None:
        check_kept(read_experiment(str(write(data, **values))))

    kept()
    kept(objectives={"electra": {}}, budgets=[1.2e10], seeds=5)
    kept(objectives={"mlm": {}, "replace_mlm": {}}, tasks={"mrpc": RTE})
    kept()
    for values, part in (
        ({"pretraining": {**PRETRAINING, "learning_rate": 2e-3}}, "pretraining"),
        ({"objectives": {"replace_mlm": {"seed": 1}}}, '"replace_mlm" in objectives'),
        ({"tasks": {"mrpc": {**RTE, "seed": 1}}}, '"mrpc" in tasks'),
    ):
        with pytest.raises(UserError, match=f"changed since: {part}"):
            kept(**values)
    (data / "pretrain_tfrecords" / "pretrain_data.tfrecord-0-of-3").unlink()
    with pytest.raises(UserError, match="changed since: data"):
        kept()


def test_the_driver_needs_no_tensorflow():
    code = "import sys, experiments.compare; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_dry_run_says_the_plan_and_writes_nothing(checked_data, tmp_path):
    before = sorted(os.listdir(checked_data))
    (tmp_path / "plan.json").write_text(json.dumps({**CONFIG, "budgets": [6e9, 1.2e10]}))
    ran = compare(tmp_path / "plan.json", "--data-dir", str(checked_data), "--dry-run")
    assert ran.returncode == 0, ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith(("mlm", "electra"))]
    assert [row[0] for row in rows] == ["mlm", "electra"] * 2
    assert [row[1] for row in rows] == ["6e+09"] * 2 + ["1.2e+10"] * 2
    assert sorted(os.listdir(checked_data)) == before
