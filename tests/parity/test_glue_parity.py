"""GLUE tasks and their scorers give what the released code gave: examples, features, skipped rows, metrics.

Left out on purpose: the ids of pairs in their second order (what they point at is compared), and F1 and recall, which
the released code computes from predictions alone.
"""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from configure_finetuning import FinetuningConfig, make_config
from finetune import tables
from finetune.classification.classification_metrics import ClassificationScorer, RegressionScorer
from finetune.preprocessing import feature_set
from finetune.task import Task
from finetune.task_builder import make_tasks
from model.tokenization import FullTokenizer, load_vocab


def largest_vocabulary(golden: Path):
    """It belongs to data/."""
    return max((load_vocab(str(path)) for path in golden.glob("vocab_*.txt")), key=len)


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def tokenizer(golden):
    return FullTokenizer(largest_vocabulary(golden))


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """A data folder; any share of malformed rows is accepted and all of them are shown."""
    monkeypatch.setattr(tables, "MOST_MALFORMED", 1.0)
    monkeypatch.setattr(tables, "SHOWN", 1000)
    return tmp_path


def tasks_of(case: Path, data_dir: Path, names: list[str], tokenizer, **hparams) -> tuple[FinetuningConfig, list[Task]]:
    """Tasks over the raw files beside a manifest."""
    config = make_config("m", str(data_dir), {"task_names": names, **hparams})
    shutil.copytree(case.parent / "inputs", data_dir / "finetuning_data", dirs_exist_ok=True)
    return config, make_tasks(config, tokenizer)


def unpadded(released: dict) -> dict:
    """Released features as they are stored here: without padding, mask and number of the task."""
    length = sum(released["input_mask"])
    kept = {name: value for name, value in released.items() if name not in ("input_mask", "task_id")}
    return kept | {name: released[name][:length] for name in ("input_ids", "segment_ids")}


def assert_same_features(ours: dict, released: dict, where: str, ignored: tuple[str, ...] = ()) -> None:
    assert ours.keys() == released.keys(), where
    for name, value in released.items():
        if name not in ignored:
            assert ours[name] == (pytest.approx(value, abs=1e-6) if isinstance(value, float) else value), (where, name)


@pytest.mark.golden_cases("data/glue_features/manifest.json")
def test_examples_and_features(case, data_dir, tokenizer):
    compared = 0
    for entry in json.loads(case.read_text()):
        path = case.parent / entry["config"] / entry.get("task", "") / f"{entry.get('split')}.jsonl"
        if not path.exists():
            continue
        where = "/".join(path.parts[-3:])
        double = "no_double" not in entry["config"]
        hparams = {"max_seq_length": entry["max_seq_length"], "double_unordered": double}
        _, (task,) = tasks_of(case, data_dir, [entry["task"]], tokenizer, **hparams)
        rows = read_jsonl(path)
        examples = task.examples(entry["split"])
        told = [note for file in task.files(entry["split"]) for note in tables.notes_on(file)]
        check_skipped(entry["log"], "\n".join(told), where)
        assert len(examples) == len(rows) == entry["n"], where
        check_ids([example.eid for example in examples], entry["eids"], where)
        for example, row in zip(examples, rows):
            released = row["example"]
            assert (example.text_a, example.text_b) == (released["text_a"], released["text_b"]), where
            if example.label is not None:
                assert example.label == type(example.label)(released["label"]), where
            (features,) = task.featurize(example, entry["split"] == "train")
            assert_same_features(features, unpadded(row["features"]), where, (f"{task.name}_eid",))
        if task.kind == "classification":
            assert task.labels == entry["label_list"], where
        compared += len(rows)
    assert compared


def check_skipped(log: str, said: str, where: str) -> None:
    """The same lines were skipped (the released code counts them from 0, and says them again for the second order)."""
    released = {int(number) + 1 for number in re.findall(r"from line (\d+) for", log)}
    assert {int(number) for number in re.findall(r"^  line (\d+):", said, re.MULTILINE)} == released, where


def check_ids(ours: list[int], released: list[int], where: str) -> None:
    """Ids are row numbers; those of pairs in their second order only differ from all others."""
    assert len(set(ours)) == len(ours), where
    first = len(released) // 2 if len(set(released)) < len(released) else len(released)
    assert ours[:first] == released[:first], where


@pytest.mark.golden_cases("data/glue_features/manifest.json")
def test_cached_features(case, data_dir, tokenizer):
    for entry in json.loads(case.read_text()):
        if entry["config"] != "serialized":
            continue
        folder = case.parent / "serialized" / "_".join(entry["task_names"])
        names, length = entry["task_names"], entry["max_seq_length"]
        config, tasks = tasks_of(case, data_dir, names, tokenizer, max_seq_length=length)
        for path in folder.glob("*.tfrecord.jsonl"):
            split = path.name.removesuffix(".tfrecord.jsonl").rpartition("_")[2]
            wanted = tasks if split == "train" else [t for t in tasks if path.name.startswith(f"{t.name}_{split}")]
            sets = {task.name: feature_set(task, split, split == "train", config) for task in wanted}
            records = read_jsonl(path)
            number = sum(map(len, sets.values()))
            assert len(records) == number + -number % entry["batch_size"], path
            real = [record for record in records if record["task_id"][0] < len(names)]
            found = sorted(stored(features, task) for task, rows in sets.items() for features in rows)
            assert found == sorted(from_record(record, names[record["task_id"][0]]) for record in real), path


def stored(features: dict, task: str) -> tuple:
    target = features.get(f"{task}_label_ids", features.get(f"{task}_targets"))
    return task, features["input_ids"], features["segment_ids"], round(float(target), 5)


def from_record(record: dict, task: str) -> tuple:
    length = sum(record["input_mask"])
    (target,) = record.get(f"{task}_label_ids") or record[f"{task}_targets"]
    return task, record["input_ids"][:length], record["segment_ids"][:length], round(float(target), 5)


@pytest.mark.golden_cases("data/glue_features/manifest.json")
def test_bad_labels(case, data_dir, tokenizer):
    for entry in json.loads(case.read_text()):
        for result in entry.get("results", ()):
            _, (task,) = tasks_of(case, data_dir, [result["task"]], tokenizer)
            with pytest.raises(ValueError, match="expected"):
                task.parse_label(result["label"])


COMPARED = {"AccuracyScorer": ("accuracy",), "F1Scorer": ("precision",), "MCCScorer": ("mcc",)}


@pytest.mark.golden_cases("data/scorers/*.json")
def test_scorers(case):
    compared = 0
    for entry in json.loads(case.read_text()):
        if entry["scorer"] == "RegressionScorer":
            scorer, metrics, target = RegressionScorer("t"), ("pearson", "spearman", "mse"), "targets"
        elif entry["scorer"] in COMPARED:
            metrics, target = COMPARED[entry["scorer"]], "label_ids"
            classes = 1 + max(max(row[target], row["predictions"], 1) for row in entry["updates"])
            if metrics == ("precision",) and classes > 2:
                continue  # the released code looks at class 1 alone
            scorer = ClassificationScorer("t", metrics, classes)
        else:
            continue
        for row in entry["updates"]:
            outputs = {name: np.asarray(row[name]) for name in ("loss", "predictions")}
            scorer.update({f"t_{target}": row[target]}, outputs)
        results, released = scorer.results(), dict(entry["results"])
        assert list(results) == [*metrics, "loss"]
        for name, value in results.items():
            expected = math.nan if released[name] == "NaN" else released[name]
            assert value == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True), (entry["scorer"], entry["case"])
        compared += 1
    assert compared
