"""Tasks on one's own data: what their descriptions mean, and what is said about wrong ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from configure_finetuning import make_config
from finetune.task_builder import TASKS, make_tasks
from tests.finetune.task_files import task_of, tokenizer, write
from util.errors import UserError

CLASSES = {"kind": "classification", "text_a": "text", "label": "topic"}
SCORES = {"kind": "regression", "text_a": 0, "label": 1, "range": [1, 3]}


@pytest.mark.parametrize("change, why", [
    ({"kind": "clasification"}, "unknown kind 'clasification'; did you mean \"classification\""),
    ({"kind": None}, "unknown kind None"),
    ({"tekst_b": "x"}, 'unknown key "tekst_b"; did you mean "text_b"'),
    ({"range": [0, 1]}, 'unknown key "range"'),
    ({"metrics": ["acuracy"]}, "unknown metric 'acuracy'; did you mean \"accuracy\""),
    ({"metrics": ["mcc"], "multi_label": True}, "unknown metric 'mcc'"),
    ({"metrics": []}, '"metrics" is empty'),
    ({"header": "yes"}, '"header" must be true or false'),
    ({"text_a": True}, '"text_a" must be a text or a whole number'),
    ({"labels": ["a", "a"]}, "list of different texts"),
    ({"labels": ["a", ""]}, "none of them empty or with white space around it"),
    ({"labels": ["a", "b "]}, "none of them empty or with white space around it"),
    ({"format": "xml"}, "unknown format 'xml'"),
    ({"label_separator": ""}, '"label_separator" is empty'),
    ({"name": "a/b"}, "letters, digits"),
    ({"name": "cola"}, 'there is a task "cola" already'),
    ({"kind": "tagging", "text_a": 0}, 'unknown key "text_a"'),
    ({"kind": "regression"}, '"range" is missing'),
])  # fmt: skip
def test_wrong_descriptions(tmp_path, change, why):
    description = {"name": "own", **CLASSES, **change}
    config = make_config("m", str(tmp_path), {"task_names": ["rte"], "custom_tasks": [description]})
    with pytest.raises(UserError, match=why):
        make_tasks(config, tokenizer())


@pytest.mark.parametrize("bounds", [[1], [3, 1], [1, 1], ["a", "b"], [0, True]])
def test_wrong_ranges(tmp_path, bounds):
    with pytest.raises(UserError, match='"range" must be two numbers'):
        task_of(tmp_path, "own", SCORES | {"range": bounds})


def test_a_list_of_other_things(tmp_path):
    config = make_config("m", str(tmp_path), {"custom_tasks": ["own"]})
    with pytest.raises(UserError, match="entry 0 must be an object"):
        make_tasks(config, tokenizer())


@pytest.mark.parametrize("names, why", [
    (["rte", "mrpc", "rte"], 'names "rte" twice'),
    (["mrcp"], "unknown task 'mrcp'; did you mean \"mrpc\""),
    (["ownn"], 'did you mean "own"'),
    ([], "task_names is empty"),
    ([3], "unknown task 3"),
])  # fmt: skip
def test_wrong_names(tmp_path, names, why):
    hparams = {"task_names": names, "custom_tasks": [{"name": "own", **SCORES}]}
    with pytest.raises(UserError, match=why):
        make_tasks(make_config("m", str(tmp_path), hparams), tokenizer())


def test_all_released_tasks_are_there(tmp_path):
    names = "cola sst mrpc sts qqp mnli qnli rte wnli ax chunk squad squadv1 newsqa naturalqs triviaqa searchqa"
    assert set(names.split()) == TASKS.keys()
    together = [name for name in names.split() if name != "ax"]
    config = make_config("m", str(tmp_path), {"task_names": together})
    assert [task.name for task in make_tasks(config, tokenizer())] == together
    with pytest.raises(UserError, match="ax uses the head of mnli; name it alone"):
        make_tasks(make_config("m", str(tmp_path), {"task_names": ["mnli", "ax"]}), tokenizer())


def test_labels_are_collected_from_the_training_file(tmp_path):
    train = write(tmp_path, "own/train.csv", 'text,topic\n"a, b",sport\nc,art\nd,sport\n')
    write(tmp_path, "own/dev.csv", "text,topic\ne,music\n")
    task = task_of(tmp_path, "own", CLASSES)
    assert task.labels == ["art", "sport"]
    assert task.examples("train")[0].text_a == "a, b"
    with pytest.raises(UserError, match=r"dev\.csv, line 2: the label 'music'.*art, sport"):
        task.examples("dev")
    train.unlink()
    assert task_of(tmp_path, "own", CLASSES).labels == ["art", "sport"]  # enough to predict with


def test_too_few_labels(tmp_path):
    write(tmp_path, "own/train.csv", "text,topic\na,x\n")
    with pytest.raises(UserError, match=r"1 label\(s\) in the column \"topic\""):
        task_of(tmp_path, "own", CLASSES)


def test_several_labels(tmp_path):
    write(tmp_path, "own/train.csv", 'text,topic\na,"x; y"\nb,\nc,z\n')
    task = task_of(tmp_path, "own", CLASSES | {"multi_label": True, "label_separator": ";"})
    features = [task.featurize(example, True)[0]["own_label_ids"] for example in task.examples("train")]
    assert (task.labels, features) == (["x", "y", "z"], [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert task.feature_specs[1].shape == (3,)


def test_regression_of_any_range(tmp_path):
    write(tmp_path, "own/train.tsv", "good\t3\nbad\t1.5\n")
    task = task_of(tmp_path, "own", SCORES | {"header": False, "metrics": ["spearman"]})
    assert [task.featurize(e, True)[0]["own_targets"] for e in task.examples("train")] == [1.0, 0.25]
    assert task.metric.name == "spearman"


def test_files_elsewhere_and_formats_by_hparam(tmp_path):
    (tmp_path / "elsewhere.data").write_text("text,topic\na,x\nb,y\n")
    description = CLASSES | {"train": str(tmp_path / "elsewhere.data")}
    assert task_of(tmp_path, "own", description | {"format": "csv"}).labels == ["x", "y"]
    with pytest.raises(UserError, match='give "format" as one of: tsv, csv, jsonl'):
        task_of(tmp_path, "own", description)


def test_missing_files_list_what_is_expected(tmp_path):
    with pytest.raises(UserError, match=r"own is missing; expected there: train.tsv or train.csv or train.jsonl"):
        task_of(tmp_path, "own", CLASSES)
    with pytest.raises(UserError, match=r"own is missing; expected there: mine.csv, dev.tsv or"):
        task_of(tmp_path, "own", CLASSES | {"train": "mine.csv"})


def test_unlabelled_files(tmp_path):
    write(tmp_path, "own/train.tsv", "topic\ttext\nx\ta\ny\tb\n")
    write(tmp_path, "own/test.tsv", "text\nc\n")
    (example,) = task_of(tmp_path, "own", CLASSES).examples("test")
    assert (example.text_a, example.label) == ("c", None)


def test_columns_that_are_not_there(tmp_path):
    write(tmp_path, "own/train.tsv", "txt\ttopic\na\tx\nb\ty\n")
    with pytest.raises(UserError, match='no column "text"; did you mean "txt"'):
        task_of(tmp_path, "own", CLASSES).examples("train")


def test_questions(tmp_path):
    task = task_of(tmp_path, "own", {"kind": "qa", "unanswerable": True, "train": "fragen.json"})
    assert task.kind == "qa"
    with pytest.raises(UserError, match="fragen.json"):
        task.files("train")


def test_nothing_imports_tensorflow():
    code = "import sys, finetune.task_builder, finetune.preprocessing; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


@pytest.mark.parametrize("description, names", [
    (CLASSES, ("train.tsv", "train.csv")), (SCORES, ("dev.csv", "dev.jsonl")),
    ({"kind": "tagging"}, ("test.txt", "test.conll")),
])  # fmt: skip
def test_two_files_for_a_split(tmp_path, description, names):
    write(tmp_path, "own/train.tsv" if description is SCORES else "own/train.txt", "1\t1\n")
    for name in names:
        write(tmp_path, f"own/{name}", "text,topic\n")
    split = names[0].partition(".")[0]
    with pytest.raises(UserError, match=f"own holds {names[0]} and {names[1]}, and each could be the split {split}"):
        task_of(tmp_path, "own", description).shaped_by()


def test_a_described_file_beside_another(tmp_path):
    for name in ("train.tsv", "train.jsonl"):
        write(tmp_path, f"own/{name}", '{"text": "a", "topic": "x"}\n{"text": "b", "topic": "y"}\n')
    assert task_of(tmp_path, "own", CLASSES | {"train": "train.jsonl"}).labels == ["x", "y"]
