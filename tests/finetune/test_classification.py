"""Classification and regression: cutting, bad files, metrics, predictions."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from finetune.classification.classification_metrics import ClassificationScorer
from finetune.classification.classification_tasks import cut_pair
from finetune.classification.glue_tasks import GLUE_TASKS
from finetune.tables import notes_on
from tests.finetune.task_files import task_of, write
from util.errors import UserError

TOPIC = {"kind": "classification", "text_a": "text", "label": "topic"}


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 60))
def test_pairs_are_cut_from_the_longer_one(a, b, most):
    left, right = a, b
    while left + right > most:  # the definition
        if left > right:
            left -= 1
        else:
            right -= 1
    assert cut_pair(a, b, most) == (left, right)


@given(st.lists(st.sampled_from("abcdefgh .,é東"), max_size=60), st.lists(st.sampled_from("abc ."), max_size=60))
def test_features_fit_and_tell_what_was_cut(tmp_path_factory, first, second):
    task = task_of(tmp_path_factory.getbasetemp(), "rte", max_seq_length=12)
    a, b = "".join(first), "".join(second)
    example = type("E", (), {"eid": 7, "text_a": a, "text_b": b, "label": "entailment"})
    (features,) = task.featurize(example, True)
    ids, segments = features["input_ids"], features["segment_ids"]
    uncut = 2 + len(task.tokenizer.encode(a)) + len(task.tokenizer.encode(b)) + bool(task.tokenizer.encode(b))
    assert len(ids) == len(segments) == min(uncut, 12)
    assert task.is_cut(example, [features]) == (uncut > 12)
    assert segments == sorted(segments) and ids.count(task.tokenizer.vocab["[SEP]"]) == 1 + max(segments)


def rte_rows(rows: int, bad: int) -> str:
    good = "{}\tone text\tanother\tentailment\n"
    return "index\ta\tb\tlabel\n" + "".join(f"{i}\tshort\n" if i < bad else good.format(i) for i in range(rows))


def test_a_few_malformed_rows_are_skipped_and_shown(tmp_path):
    path = write(tmp_path, "rte/train.tsv", rte_rows(1000, 5))
    examples = task_of(tmp_path, "rte").examples("train")
    assert [example.eid for example in examples] == list(range(5, 1000))
    (said,) = notes_on(str(path))
    assert "5 of 1000 rows are malformed" in said and said.count("  line ") == 3 and "line 2: 2 columns" in said


def test_many_malformed_rows_are_refused(tmp_path):
    path = write(tmp_path, "rte/train.tsv", rte_rows(1000, 50))
    with pytest.raises(UserError, match=f"(?s){path}: 50 of 1000 rows.*line 2"):
        task_of(tmp_path, "rte").examples("train")


@pytest.mark.parametrize("content", ["", "index\ta\tb\tlabel\n", "\n\n"])
def test_no_examples(tmp_path, content):
    write(tmp_path, "rte/dev.tsv", content)
    with pytest.raises(UserError, match=r"dev\.tsv holds no rows"):
        task_of(tmp_path, "rte").examples("dev")


def test_missing_folder_and_file_list_the_expected_names(tmp_path):
    with pytest.raises(UserError, match=r"the folder .*mnli is missing.*train.tsv, dev_matched.tsv, dev_mismatched"):
        task_of(tmp_path, "mnli").files("train")
    write(tmp_path, "mnli/train.tsv", "x\n")
    with pytest.raises(UserError, match=r"dev_matched.tsv is missing"):
        task_of(tmp_path, "mnli").files("dev")
    with pytest.raises(UserError, match='no split "validation"'):
        task_of(tmp_path, "mnli").files("validation")
    with pytest.raises(UserError, match='no split "train"'):
        task_of(tmp_path, "ax").files("train")


@pytest.mark.parametrize("task, row, why", [
    ("cola", "gj04\t2\t*\tText.", r"line 2: the label '2'.*expected one of: 0, 1"),
    ("sts", "0\t1\t2\t3\t4\t5\t6\tone\ttwo\tnan", r"line 2: the label 'nan' is outside"),
    ("sts", "0\t1\t2\t3\t4\t5\t6\tone\ttwo\t5.5", r"'5.5' is outside the range; expected a number from 0 to 5"),
    ("sts", "0\t1\t2\t3\t4\t5\t6\tone\ttwo\thigh", r"'high' is not a number"),
])  # fmt: skip
def test_bad_labels(tmp_path, task, row, why):
    first = "a\t0\t\tText." if task == "cola" else "index"
    path = write(tmp_path, f"{task}/train.tsv", f"{first}\n{row}\n")
    with pytest.raises(UserError, match=f"{path}, .*{why}"):
        task_of(tmp_path, task).examples("train")


def test_debug_reads_a_hundred_lines(tmp_path):
    write(tmp_path, "rte/train.tsv", rte_rows(500, 0))
    assert len(task_of(tmp_path, "rte", debug=True).examples("train")) == 99


def test_ax_uses_the_head_of_mnli(tmp_path):
    write(tmp_path, "ax/diagnostic.tsv", "index\tsentence1\tsentence2\n0\tone\ttwo\n")
    task = task_of(tmp_path, "ax")
    (example,) = task.examples("test")
    assert task.head_name == "mnli"
    assert task.featurize(example, False)[0].keys() == {"input_ids", "segment_ids", "mnli_eid", "mnli_label_ids"}


def outputs_of(logits: list[float], **others) -> dict:
    return {"logits": np.array(logits), "loss": np.array(0.5), **others}


GLUE_FILES = {
    "cola": "CoLA", "sst": "SST-2", "mrpc": "MRPC", "qqp": "QQP", "qnli": "QNLI", "rte": "RTE", "wnli": "WNLI",
    "sts": "STS-B", "ax": "AX", "mnli": "MNLI-m MNLI-mm AX",
}  # fmt: skip


def test_every_task_has_its_submission_file():
    assert GLUE_FILES.keys() == GLUE_TASKS.keys()


@pytest.mark.parametrize("name", GLUE_FILES)
def test_submission_files(tmp_path, name):
    task = task_of(tmp_path, name)
    assert list(task.test_splits) == list(task.glue_file or {"test": 0})
    for split, file in zip(task.test_splits, GLUE_FILES[name].split()):
        columns = task.columns(split)
        width = max(columns.text_a, columns.text_b or 0) + 1
        width = 9 if width <= 0 else width
        rows = "".join("\t".join(f"word{i}" for _ in range(width)) + "\n" for i in range(2))
        write(tmp_path, f"{name}/{task.file_names()[split]}", "\t".join("x" * width) + "\n" + rows)
        examples = task.examples(split)
        if task.kind == "regression":
            answers = [{"predictions": np.array(1.3)}, {"predictions": np.array(0.5)}]
            expected = ["5.000", "2.500"]
        else:
            classes = len(task.labels)
            answers = [outputs_of([0.0] * (classes - 1) + [1.0], predictions=classes - 1),
                       outputs_of([1.0] + [0.0] * (classes - 1), predictions=0)]  # fmt: skip
            expected = [task.labels[-1], task.labels[0]]
        features = [task.featurize(example, False)[0] for example in examples]
        path = str(tmp_path / f"{name}_{split}_1_predictions")
        table, glue = task.write_predictions(split, zip(features, answers), path)
        assert table == path + ".tsv"
        assert glue == str(tmp_path / "glue_1_predictions" / f"{file}.tsv")
        assert open(glue).read() == f"index\tprediction\n0\t{expected[0]}\n1\t{expected[1]}\n"


def test_predictions_of_several_labels(tmp_path):
    description = TOPIC | {"labels": ["a", "b", "c"], "multi_label": True, "label_separator": ";", "id": "key"}
    write(tmp_path, "own/test.jsonl", '{"text": "x", "key": "first"}\n{"text": "y", "key": "second"}\n')
    task = task_of(tmp_path, "own", description)
    rows = [(task.featurize(example, False)[0], outputs_of([0.0, -9.0, 9.0], predictions=np.array([chosen, 0, 1])))
            for example, chosen in zip(task.examples("test"), (0, 1))]  # fmt: skip
    (path,) = task.write_predictions("test", rows, str(tmp_path / "p"))
    lines = [line.split("\t") for line in open(path).read().splitlines()]
    assert lines[0] == ["id", "label", *(f"probability of {label}" for label in "abc")]
    assert [line[:3] for line in lines[1:]] == [["first", "c", "0.500000"], ["second", "a;c", "0.500000"]]


def test_rows_without_ids_are_numbered(tmp_path):
    write(tmp_path, "own/test.jsonl", '{"text": "x"}\n{"text": "y"}\n')
    task = task_of(tmp_path, "own", TOPIC | {"labels": ["a", "b"]})
    rows = [(task.featurize(example, False)[0], outputs_of([2.0, 0.0], predictions=0))
            for example in task.examples("test")]  # fmt: skip
    (path,) = task.write_predictions("test", rows, str(tmp_path / "p"))
    assert open(path).read().splitlines()[1:] == ["0\ta\t0.880797\t0.119203", "1\ta\t0.880797\t0.119203"]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30), st.integers(2, 3))
def test_f1_counts_the_gold_labels(pairs, classes):
    scorer = ClassificationScorer("t", ("recall", "f1"), classes)
    pairs = [(gold % classes, predicted % classes) for gold, predicted in pairs]
    for gold, predicted in pairs:
        scorer.update({"t_label_ids": gold}, {"predictions": np.array(predicted), "loss": np.array(1.0)})
    per_class = {}
    for label in range(classes):
        right = sum(gold == predicted == label for gold, predicted in pairs)
        golds, guesses = sum(g == label for g, _ in pairs), sum(p == label for _, p in pairs)
        per_class[label] = 200.0 * right / (golds + guesses) if golds + guesses else 0.0
    present = [label for label in range(classes) if any(label in pair for pair in pairs)]
    expected = per_class[1] if classes == 2 else np.mean([per_class[label] for label in present])
    assert scorer.results()["f1"] == pytest.approx(expected)


def test_metrics_of_several_labels():
    random = np.random.RandomState(3)
    gold, predicted = random.randint(0, 2, (20, 4)), random.randint(0, 2, (20, 4))
    scorer = ClassificationScorer("t", ("accuracy", "f1"), 4, multi_label=True)
    for one, other in zip(gold, predicted):
        scorer.update({"t_label_ids": one.tolist()}, {"predictions": other, "loss": np.array(0.25)})
    right = (gold & predicted).sum()
    assert scorer.results() == pytest.approx({
        "accuracy": 100 * np.mean((gold == predicted).all(1)),
        "f1": 200 * right / (gold.sum() + predicted.sum()),
        "loss": 0.25,
    })  # fmt: skip
    assert metrics.f1_score(gold, predicted, average="micro") * 100 == pytest.approx(scorer.results()["f1"])


def test_json_labels_of_several_types(tmp_path):
    topics(tmp_path, 1, 1.0, "1", " 1 ", 2.5)
    task = task_of(tmp_path, "own", TOPIC)
    assert task.labels == ["1", "2.5"]
    assert [example.label for example in task.examples("train")] == ["1", "1", "1", "1", "2.5"]
    topics(tmp_path, True, False)
    assert task_of(tmp_path, "own", TOPIC).labels == ["false", "true"]


def topics(tmp_path, *labels) -> None:
    rows = [json.dumps({"text": "a", "topic": label}) + "\n" for label in labels]
    write(tmp_path, "own/train.jsonl", "".join(rows))


@pytest.mark.parametrize("labels, why", [
    (("x", ""), r"line 2: the label '' is empty"),
    (("x", "y", " \t"), r"line 3: the label ' \\t' is empty"),
    (("x", ["y"]), r"line 2: the label \['y'\] is a list; .* where \"multi_label\" is true"),
    (("x", {"y": 1}), r"line 2: the label {'y': 1} is neither a text nor a number"),
    (("x", float("nan")), r"line 2: the label nan is neither a text nor a number"),
    ((1, 0, True), r"line 3: the label True is one of truth values among other labels"),
    (("x", None), r"1 of 2 rows is malformed.*line 2: \"topic\" is missing"),
])  # fmt: skip
def test_labels_that_cannot_be_collected(tmp_path, labels, why):
    topics(tmp_path, *labels)
    with pytest.raises(UserError, match=f"(?s)own/train.jsonl.*{why}"):
        task_of(tmp_path, "own", TOPIC)


@pytest.mark.parametrize("name, content, why", [
    ("train.tsv", "text\ttopic\na\tx\nb\t\n", r"train.tsv, line 3: the label '' is empty"),
    ("train.tsv", "text\ttopic\n", r"train.tsv holds no rows below the header"),
    ("train.jsonl", "", r"train.jsonl holds no rows; expected one for each example"),
    ("train.jsonl", '["a", "x"]\n["b", "y"]\n', r"(?s)2 of 2 rows are malformed.*line 1: a JSON value, but not an obj"),
    ("train.jsonl", '{"text": "a"\n{"text": "b", "topic": "x"}\n', r"(?s)1 of 2 rows is malformed.*line 1: not JSON"),
    ("train.jsonl", '[{"text": "a", "topic": "x"}]', r"train.jsonl is a JSON array"),
])  # fmt: skip
def test_files_whose_labels_cannot_be_collected(tmp_path, name, content, why):
    write(tmp_path, f"own/{name}", content)
    with pytest.raises(UserError, match=why):
        task_of(tmp_path, "own", TOPIC)


def test_a_cause_that_was_noted_before_is_told(tmp_path):
    write(tmp_path, "rte/train.tsv", rte_rows(2, 0).encode() + b"2\ta\tb\tentailm\xe9nt\n")
    with pytest.raises(UserError, match=r"(?s)'entailmnt' is none of.*1 bytes are not UTF-8"):
        task_of(tmp_path, "rte").examples("train")


def test_a_label_there_twice_counts_once(tmp_path):
    topics(tmp_path, "x, y,x", ["y", "y"])
    task = task_of(tmp_path, "own", TOPIC | {"multi_label": True})
    examples = task.examples("train")
    assert [example.label for example in examples] == [("x", "y"), ("y",)]
    assert task.label_counts(examples) == {"x": 1, "y": 2}


def test_truth_values_are_no_numbers(tmp_path):
    topics(tmp_path, 1, True)
    with pytest.raises(UserError, match="line 2: the label True is not a number"):
        task_of(tmp_path, "own", TOPIC | {"kind": "regression", "range": [0, 1]}).examples("train")


@pytest.mark.parametrize("metric", ["accuracy", "mcc"])
def test_there_is_no_chance_with_one_class(tmp_path, metric):
    for first, known in (("not_entailment", True), ("entailment", False)):
        write(tmp_path, "rte/dev.tsv", f"index\ta\tb\tlabel\n0\ta\tb\t{first}\n" + "1\ta\tb\tentailment\n")
        task = task_of(tmp_path, "rte")
        task.metrics = (metric,)
        assert (task.metric.chance is not None) == known
