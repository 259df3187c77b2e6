"""run_finetuning.py on small real runs: results, trials, resuming, devices, several tasks, evaluation alone."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tests import finetuning_runs, training_runs
from tests.finetuning_runs import HPARAMS, NO_DROPOUT, finetune, finetune_here, finetuning_command, results


@pytest.fixture(scope="module")
def data(training_data, tmp_path_factory):
    """A data folder with a vocabulary, a pre-trained model called tiny, and tasks."""
    folder = tmp_path_factory.mktemp("finetuning")
    (folder / "vocab.txt").write_bytes((training_data / "vocab.txt").read_bytes())
    finetuning_runs.make_tasks(folder)
    made = training_runs.pretrain_here(
        training_data, "for_finetuning", {"num_train_steps": 4, "model_dir": str(folder / "models" / "tiny")}
    )
    assert made.returncode == 0, made.stderr
    return folder


def succeeded(run: subprocess.CompletedProcess) -> str:
    assert run.returncode == 0, run.stderr
    return run.stdout


def tensors(folder) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(folder))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


PRETRAINED = {"num_train_epochs": 1}


def from_tiny(**more) -> list:
    """hparams of a run from the model tiny, whose sizes nobody passes."""
    sizes = ("vocab_size", "embedding_size", "model_hparam_overrides", "init_checkpoint")
    return [{**{name: value for name, value in HPARAMS.items() if name not in sizes}, **more}]


def finetune_tiny(data, name: str, **hparams) -> subprocess.CompletedProcess:
    """Fine-tunes the model tiny, with trials and results of their own."""
    paths = {"model_dir": str(data / "out" / name), "results_txt": str(data / "out" / f"{name}.txt")}
    command = ["run_finetuning.py", "--data-dir", str(data), "--model-name", "tiny"]
    for values in from_tiny(**paths, **hparams):
        command += ["--hparams", json.dumps(values)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetuning_runs, "finetuning_command", lambda *_: command)
        return finetune_here(data, "tiny")


def test_a_pretrained_model_is_finetuned(data):
    """Its sizes, tokenizer and weights are taken over; results, checkpoint and notes are left."""
    output = succeeded(finetune_tiny(data, "mrpc", task_names=["mrpc"]))
    assert "the model's sizes are those of" in output and "fresh, not in the checkpoint: task_specific/*" in output
    lines = (data / "out" / "mrpc.txt").read_text().splitlines()
    assert re.fullmatch(r"mrpc: accuracy: \d+\.\d\d - f1: \d+\.\d\d - loss: \d+\.\d\d", lines[0]) and len(lines) == 1
    folder = data / "out" / "mrpc_1"
    kept = {"vocab.txt", "hparams.json", "tasks.json", "trial.json", "transformer_configs.json", "metrics.jsonl"}
    assert kept <= {path.name for path in folder.iterdir()}
    names = tensors(folder)
    assert names["task_specific/mrpc/dense/kernel"].shape == (32, 2)
    assert names["global_step"] == 22  # both orders of 44 pairs, 8 a step, 2 epochs
    assert not np.array_equal(names["electra/embeddings/word_embeddings"],
                              tensors(data / "models" / "tiny")["electra/embeddings/word_embeddings"])  # fmt: skip


def test_random_weights_in_the_same_network(data):
    """init_checkpoint null takes the sizes and the vocabulary of the pre-trained model, not its weights."""
    hparams = {"task_names": ["rte"], "num_train_epochs": 1, "init_checkpoint": None, "seed": 7}
    output = succeeded(finetune_tiny(data, "random", **hparams))
    assert "the model's sizes are those of" in output and "random weights" in output
    ours, theirs = tensors(data / "out" / "random_1"), tensors(data / "models" / "tiny")
    name = "electra/embeddings/word_embeddings"
    assert ours[name].shape == theirs[name].shape and np.corrcoef(ours[name].ravel(), theirs[name].ravel())[0, 1] < 0.5


def test_frozen_layers_stay_as_they_are(data):
    """Embeddings and the first block keep their bits and have no slots; the rest is trained."""
    output = succeeded(finetune_tiny(data, "frozen", task_names=["rte"], freeze_layers=1, num_train_epochs=1))
    assert "frozen of these" in output
    ours, theirs = tensors(data / "out" / "frozen_1"), tensors(data / "models" / "tiny")
    encoder = [name for name in theirs if name.startswith("electra/") and "adam" not in name]
    still = {name for name in encoder if np.array_equal(ours[name], theirs[name])}
    assert still == {name for name in encoder if "embeddings" in name or "/layer_0/" in name}
    assert {name for name in encoder if f"{name}/adam_m" in ours} == set(encoder) - still


def test_bucketing_changes_nothing_but_time(data):
    """Losses of each step and all results are those of batches padded to max_seq_length."""
    for task in ("rte", "chunk", "squad"):
        runs = []
        for bucketing in (True, False):
            model = f"padding_{bucketing}"
            hparams = {"task_names": [task], "max_seq_length": 32, "bucketing": bucketing, "num_train_epochs": 1}
            succeeded(finetune_here(data, model, hparams, NO_DROPOUT))
            metrics = data / "models" / model / "finetuning_models" / f"{task}_model_1" / "metrics.jsonl"
            losses = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
            runs.append((losses, results(data, model, task)["trials"][0]["results"][task]["dev"]))
        np.testing.assert_allclose(runs[0][0], runs[1][0], rtol=1e-5)
        assert len(runs[0][0]) >= 6
        for metric, value in runs[0][1].items():
            np.testing.assert_allclose(value, runs[1][1][metric], rtol=1e-4, err_msg=metric)


def test_trials_have_seeds_and_statistics(data):
    output = succeeded(finetune_here(data, "trials", {"task_names": ["rte"], "num_trials": 3}))
    found = results(data, "trials", "rte")
    assert [trial["seed"] for trial in found["trials"]] == [42, 43, 44]
    losses = [trial["results"]["rte"]["dev"]["loss"] for trial in found["trials"]]
    assert len(set(losses)) == 3
    statistics = found["summary"]["rte"]["dev"]["loss"]
    assert statistics["median"] == pytest.approx(np.median(losses)) and statistics["n"] == 3
    assert statistics["std"] == pytest.approx(np.std(losses, ddof=1))
    assert "median" in output
    again = succeeded(finetune_here(data, "trials", {"task_names": ["rte"], "num_trials": 3}))
    assert "nothing to do" in again and results(data, "trials", "rte") == found
    more = succeeded(finetune_here(data, "trials", {"task_names": ["rte"], "num_trials": 4}))
    assert "trial 3 is finished already" in more
    assert results(data, "trials", "rte")["trials"][:3] == found["trials"]


def test_other_hparams_in_a_finished_trial_are_refused(data):
    before = succeeded(finetune_here(data, "other", {"task_names": ["rte"]})) and results(data, "other", "rte")
    refused = finetune_here(data, "other", {"task_names": ["rte"], "learning_rate": 1e-4})
    assert refused.returncode == 2 and "learning_rate 0.001 -> 0.0001" in refused.stderr
    bigger = {"task_names": ["rte"], "model_hparam_overrides": {**training_runs.NETWORK, "num_hidden_layers": 1}}
    refused = finetune_here(data, "other", bigger)
    assert refused.returncode == 2 and "another network" in refused.stderr
    assert results(data, "other", "rte") == before
    succeeded(finetune_here(data, "other", {"task_names": ["rte"], "learning_rate": 1e-4, "overwrite": True}))
    assert results(data, "other", "rte") != before


def test_only_the_last_trial_is_kept_when_asked(data):
    succeeded(finetune_here(data, "last", {"task_names": ["rte"], "num_trials": 2, "keep_all_models": False}))
    models = data / "models" / "last" / "finetuning_models"
    assert not list((models / "rte_model_1").glob("model.ckpt*")) and list((models / "rte_model_2").glob("model.ckpt*"))
    assert len(results(data, "last", "rte")["trials"]) == 2


def test_several_tasks_train_one_encoder(data):
    names = ["rte", "mrpc", "chunk"]
    succeeded(finetune_here(data, "several", {"task_names": names, "num_train_epochs": 1}))
    found = results(data, "several", ",".join(names))["trials"][0]["results"]
    assert list(found) == names and {"precision", "recall", "f1", "loss"} == set(found["chunk"]["dev"])
    checkpoint = tensors(data / "models" / "several" / "finetuning_models" / "rte,mrpc,chunk_model_1")
    assert {name.split("/")[1] for name in checkpoint if name.startswith("task_specific/")} == set(names)


def test_evaluation_alone(data):
    """From a fine-tuned folder, from the trials, and without a head."""
    succeeded(finetune_here(data, "alone", {"task_names": ["rte"]}))
    trained = results(data, "alone", "rte")["trials"][0]["results"]
    folder = data / "models" / "alone" / "finetuning_models" / "rte_model_1"
    only = {"task_names": ["rte"], "do_train": False}
    text = (data / "models" / "alone" / "results" / "rte_results.txt").read_text()
    for hparams in ({}, {"init_checkpoint": str(folder)}):
        succeeded(finetune_here(data, "alone", only, hparams))
        path = data / "models" / "alone" / "results" / "rte_results_eval.json"
        assert json.loads(path.read_text())["trials"][0]["results"] == trained
        path.unlink()
    assert (data / "models" / "alone" / "results" / "rte_results.txt").read_text() == text
    other = finetune_here(data, "alone", {**only, "task_names": ["mrpc"], "init_checkpoint": str(folder)})
    assert other.returncode == 2 and "lacks the head of mrpc" in other.stderr
    none = finetune_here(data, "nobody", only)
    assert none.returncode == 2 and "no fine-tuned model" in none.stderr


def test_test_outputs_and_predictions(data):
    succeeded(finetune_here(data, "outputs", {"task_names": ["rte"], "write_test_outputs": True}))
    folder = data / "models" / "outputs" / "test_predictions"
    written = {path.name: path for path in folder.rglob("*") if path.is_file()}
    lines = written["RTE.tsv"].read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 12
    assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}
    hparams = {"task_names": ["rte"], "do_train": False, "do_eval": False, "do_predict": True, "predict_split": "dev"}
    succeeded(finetune_here(data, "outputs", hparams))
    assert any("rte_dev_1" in path.name for path in folder.rglob("*"))


def test_the_best_weights_are_kept_and_training_ends_early(data):
    """The metric that is kept is the best of all evaluations; patience ends the trial before its last epoch."""
    hparams = {"task_names": ["rte"], "keep_best": "loss", "early_stopping_patience": 2, "num_train_epochs": 30}
    succeeded(finetune_here(data, "best", hparams, {"learning_rate": 0.01}))
    folder = data / "models" / "best" / "finetuning_models" / "rte_model_1"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [record["rte/loss"] for record in records if record["split"] == "eval"]
    assert len(losses) < 30 and np.argmin(losses) == len(losses) - 3
    final = results(data, "best", "rte")["trials"][0]["results"]["rte"]["dev"]["loss"]
    assert final == pytest.approx(min(losses), rel=1e-6)
    succeeded(finetune_here(data, "best", {"task_names": ["rte"], "do_train": False, "init_checkpoint": str(folder)}))
    alone = json.loads((data / "models" / "best" / "results" / "rte_results_eval.json").read_text())
    assert alone["trials"][0]["results"]["rte"]["dev"]["loss"] == final
    wrong = finetune_here(data, "best2", {**hparams, "keep_best": "bleu"})
    assert wrong.returncode == 2 and 'keep_best "bleu"' in wrong.stderr


def test_fewer_trials_lose_no_results(data):
    succeeded(finetune_here(data, "fewer", {"task_names": ["rte"], "num_trials": 2}))
    before = results(data, "fewer", "rte")
    output = succeeded(finetune_here(data, "fewer", {"task_names": ["rte"], "num_trials": 1}))
    assert "nothing to do" in output and results(data, "fewer", "rte") == before
    changed = {"task_names": ["rte"], "num_trials": 1, "learning_rate": 1e-2, "overwrite": True}
    succeeded(finetune_here(data, "fewer", changed))
    assert [trial["trial"] for trial in results(data, "fewer", "rte")["trials"]] == [1]


def test_results_are_strict_json(data):
    """A correlation of one example is no number: null, and said."""
    folder = data / "finetuning_data" / "one"
    folder.mkdir()
    (folder / "train.tsv").write_text("text\tscore\n" + "".join(f"a {w}\t{i}\n" for i, w in enumerate("bcdef")))
    (folder / "dev.tsv").write_text("text\tscore\na b\t3\n")
    task = {"name": "one", "kind": "regression", "text_a": "text", "label": "score", "range": [0, 5]}
    hparams = {"task_names": ["one"], "custom_tasks": [task]}
    output = succeeded(finetune_here(data, "strict", hparams))
    assert "has no pearson" in output or "has no spearman" in output
    for path in (data / "models" / "strict").rglob("*.json*"):
        for text in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(text, parse_constant=lambda name: pytest.fail(name))  # noqa: B023
    assert "nothing to do" in succeeded(finetune_here(data, "strict", hparams))


def test_a_finetuned_model_is_exported_and_predicts_where_nothing_was_pretrained(data):
    """Without keep_best, from random weights; its sizes are those of the trial's folder."""
    succeeded(finetune_here(data, "exported", {"task_names": ["rte"]}))
    folder = data / "models" / "exported" / "finetuning_models" / "rte_model_1"
    target = data / "hf"
    run = training_runs.run_script(
        "convert_checkpoint.py", "--from", str(folder), "--to", str(target), "--format", "huggingface"
    )
    assert run.returncode == 0 and (target / "model.safetensors").exists(), run.stderr
    command = ["run_finetuning.py", "--data-dir", str(data), "--model-name", "exported", "--hparams"]
    command.append('{"task_names": ["rte"], "do_train": false, "max_seq_length": 32, "do_predict": true}')
    run = training_runs.run_script(*command)
    assert run.returncode == 0, run.stderr
    assert "seed 42" in run.stdout


def test_an_unfinished_trial_is_said_to_be_so(data):
    command = finetuning_command(data, "unfinished", {"task_names": ["rte"], "num_train_epochs": 400})
    process = subprocess.Popen([sys.executable, *command], cwd=training_runs.ROOT, stdout=subprocess.PIPE, text=True)
    assert any(line.startswith("first step") for line in process.stdout)
    during = finetune_here(data, "unfinished", {"task_names": ["rte"], "do_train": False})
    assert during.returncode == 2  # in use, or nothing saved yet
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    output = succeeded(finetune_here(data, "unfinished", {"task_names": ["rte"], "do_train": False}))
    assert "trial 1 is not finished" in output


def test_a_trial_that_learns_nothing_is_flagged(data):
    output = succeeded(finetune_here(data, "nothing", {"task_names": ["rte"], "learning_rate": 0}))
    assert "warning: trial 1 failed to train" in output


def test_two_devices_predict_the_same(data):
    """The same weights on one device and on two logical ones: every prediction, and the training itself."""
    hparams = {"task_names": ["squad", "chunk"], "num_train_epochs": 1, "eval_batch_size": 6}
    paths = {}
    both = {"logical_cpus": 2, "gradient_accumulation_steps": 2}
    for name, more in (("one", {}), ("two", {"logical_cpus": 2}), ("pieces", both)):
        succeeded(finetune(data, name, hparams, more))
        paths[name] = data / "models" / name / "results"
    for name in ("two", "pieces"):
        one, other = (results(data, n, "squad,chunk")["trials"][0]["results"] for n in ("one", name))
        for task in ("squad", "chunk"):
            for metric, value in one[task]["dev"].items():
                assert other[task]["dev"][metric] == pytest.approx(value, rel=1e-3, abs=1e-4), metric
        answers = [json.loads((paths[n] / "squad,chunk_qa" / "squad_preds.json").read_text()) for n in ("one", name)]
        assert answers[0] == answers[1] and len(answers[0]) == 22


def test_batches_beyond_the_examples_or_all_memory(data):
    """Evaluation takes no more fillers than it needs; a training that no device could hold is refused."""
    hparams = {"task_names": ["rte"], "num_train_epochs": 1}
    for name, more in (("exact", {"eval_batch_size": 22}), ("more", {"eval_batch_size": 2**31 - 1})):
        assert "memory, by estimate: " in succeeded(finetune_here(data, name, hparams, more))
    exact, more = (results(data, name, "rte")["trials"][0]["results"] for name in ("exact", "more"))
    assert exact == more
    refused = finetune_here(data, "beyond", hparams, {"train_batch_size": 2**31 - 1})
    assert refused.returncode == 2 and "error: a step takes " in refused.stderr and refused.stderr.count("\n") == 1
    assert "what lowers it: gradient_accumulation_steps=" in refused.stderr
    assert not list((data / "models" / "beyond" / "finetuning_models").iterdir())


def test_two_workers_give_the_results_of_one(data, unused_ports):
    """Two processes with TF_CONFIG, several trials, the best weights kept by the chief."""
    hparams = {"task_names": ["rte"], "num_trials": 2, "keep_best": "loss", "num_train_epochs": 1}
    hparams["bfloat16_slots"] = True  # which no collective sends
    workers = [f"127.0.0.1:{port}" for port in unused_ports(2)]
    processes = []
    for index in range(2):
        config = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
        processes.append(
            subprocess.Popen(
                [sys.executable, *finetuning_command(data, "workers", hparams)],
                cwd=training_runs.ROOT,
                env={**os.environ, "TF_CONFIG": config},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    succeeded(finetune_here(data, "worker", hparams))
    for one, two in zip(results(data, "worker", "rte")["trials"], results(data, "workers", "rte")["trials"]):
        for metric, value in one["results"]["rte"]["dev"].items():
            assert two["results"]["rte"]["dev"][metric] == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_killed_trials_end_with_the_same_results(data, kills):
    """Three trials, killed at random moments, give the results and weights of the uninterrupted run, bit for bit."""
    hparams = {"task_names": ["rte"], "num_trials": 3, "save_checkpoints_steps": 2, "keep_best": "accuracy"}
    hparams["num_train_epochs"] = 4 * kills  # long enough for them
    models = [f"{name}_{kills}" for name in ("whole", "killed")]
    succeeded(finetune(data, models[0], hparams))
    moments = random.Random(0)
    for _ in range(kills):
        assert kill_at_random(finetuning_command(data, models[1], hparams), moments) == -signal.SIGKILL
    succeeded(finetune(data, models[1], hparams))
    whole, killed = (results(data, model, "rte") for model in models)
    for one, other in zip(whole["trials"], killed["trials"], strict=True):
        assert one["results"] == other["results"]
        folders = [data / "models" / model / "finetuning_models" / f"rte_model_{one['trial']}"
                   for model in models]  # fmt: skip
        left, right = (tensors(folder) for folder in folders)
        assert left.keys() == right.keys()
        for name in left:
            assert np.asarray(left[name]).tobytes() == np.asarray(right[name]).tobytes(), name


def kill_at_random(command: list[str], moments: random.Random) -> int:
    """Starts the command and kills it some time after a first step; gives its exit code."""
    process = subprocess.Popen(
        [sys.executable, *command], cwd=training_runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in process.stdout:
        if line.startswith("first step"):
            break
    time.sleep(moments.uniform(0, 3))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode
