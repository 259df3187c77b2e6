"""Tasks from files to figures, answers and predictions."""

import json
import pickle

import pytest

from finetune.qa.qa_tasks import CustomQA, QATask, SQuAD
from finetune.task_builder import TASKS
from tests.questions import (
    GERMAN,
    as_mrqa,
    make_qa_config,
    make_tokenizer,
    question,
    right_outputs,
    squad,
    write_split,
)
from util.errors import UserError

TOKENIZER = make_tokenizer(strip_accents=False)
LONG = " ".join(["Zoë aß “Müsli” für 5,50€;"] * 10) + " " + GERMAN


def content(unanswerable: bool) -> dict:
    """Questions about a text of one window and one of several."""
    none = [question("n", "Wann?", is_impossible=True)] if unanswerable else []
    return squad(
        (
            GERMAN,
            [
                question("1", "Wer aß Grünkohl?", "Käthe Müller", "Müller", context=GERMAN),
                question("2", "Wann starb sie?", "1943", context=GERMAN),
                question("3", "Wohin zog er?", "Österreich", context=GERMAN),
                *none,
            ],
        ),
        (LONG, [question("4", "Wer?", "Jörg", context=LONG), question("5", "Was?", "“Müsli”", context=LONG)]),
    )


def all_right(task: QATask, split: str = "dev"):
    """Features of a split with the outputs of a head that knows the answers."""
    answered = {example.id: example for example in task.examples("train")}
    for example in task.examples(split):
        with_answer = answered[example.id]._replace(eid=example.eid)
        for features, known in zip(task.featurize(example, False), task.featurize(with_answer, True), strict=True):
            yield features, right_outputs(task, known)


def custom(tmp_path, ending: str, unanswerable: bool, **hparams) -> QATask:
    text = content(unanswerable)
    for split in ("train", "dev", "test"):
        write_split(tmp_path, "fragen", f"{split}{ending}", as_mrqa(text) if ending == ".jsonl" else text)
    config = make_qa_config(tmp_path, "fragen", custom_tasks=[{"name": "fragen", "kind": "qa"}], **hparams)
    return CustomQA(config, "fragen", TOKENIZER, {"name": "fragen", "kind": "qa", "unanswerable": unanswerable})


@pytest.mark.parametrize("ending", [".json", ".jsonl"])
@pytest.mark.parametrize("unanswerable", [True, False])
@pytest.mark.parametrize("joint", [True, False])
def test_a_german_file_from_text_to_figures(tmp_path, ending, unanswerable, joint):
    task = custom(tmp_path, ending, unanswerable, joint_prediction=joint)
    assert len(task.examples("dev")) == 5 + unanswerable
    scorer = task.scorer("dev")
    for features, outputs in all_right(task):
        scorer.update(features, outputs)
    results = scorer.results()
    if unanswerable:
        assert results["exact"] == results["f1"] == results["HasAns_f1"] == results["NoAns_f1"] == 100.0
        assert results["total"] == 6 and results["best_f1"] == 100.0
        assert task.metric.chance == pytest.approx(100 / 6)
    else:
        assert list(results.items()) == [("exact_match", 100.0), ("f1", 100.0), ("loss", 0.5)]
        assert task.metric.chance == 7.0
    written = scorer.write(task.config)
    answers = json.loads((tmp_path / "models/m/results/fragen_qa/fragen_preds.json").read_text(encoding="utf-8"))
    assert [answers[name] for name in "12345"] == ["Käthe Müller", "1943", "Österreich", "Jörg", "“Müsli”"]
    assert len(written) == (3 if unanswerable else 1)
    if unanswerable:
        assert answers["n"] and json.loads(open(written[1]).read())["n"] == 10.0
        assert list(json.loads(open(written[2]).read()))[:3] == ["exact", "f1", "total"]


def test_predictions_apply_the_threshold(tmp_path):
    task = custom(tmp_path, ".json", True)
    paths = task.write_predictions("test", all_right(task, "test"), str(tmp_path / "out" / "p"))
    assert [path.rsplit("/", 1)[1] for path in paths] == ["p.json", "p_null_odds.json"]
    answers, odds = (json.loads(open(path, encoding="utf-8").read()) for path in paths)
    assert answers["n"] == "" and answers["3"] == "Österreich" and (odds["n"], odds["3"]) == (10.0, -10.0)
    task = custom(tmp_path, ".json", True, qa_na_threshold=11.0)
    (path, _) = task.write_predictions("test", all_right(task, "test"), str(tmp_path / "p"))
    assert json.loads(open(path, encoding="utf-8").read())["n"]
    task = custom(tmp_path / "answerable", ".jsonl", False)
    (path,) = task.write_predictions("test", all_right(task, "test"), str(tmp_path / "q"))
    assert json.loads(open(path, encoding="utf-8").read())["5"] == "“Müsli”"


@pytest.mark.parametrize("name", [name for name, kind in TASKS.items() if issubclass(kind, QATask)])
def test_released_tasks(tmp_path, name):
    task = TASKS[name](make_qa_config(tmp_path, name), name, TOKENIZER)
    text = content(task.unanswerable)
    ending = task.path("train").rsplit(".", 1)[1]
    for split in ("train", "dev"):
        write_split(tmp_path, name, f"{split}.{ending}", as_mrqa(text) if ending == "jsonl" else text)
    scorer = task.scorer("dev")
    for features, outputs in all_right(task):
        scorer.update(features, outputs)
        assert features.keys() == {"input_ids", "segment_ids"} | {spec.name for spec in task.feature_specs}
    assert scorer.results()["f1"] == 100.0
    assert len(scorer.write(task.config)) == (3 if name == "squad" else 1)
    assert task.described()["unanswerable"] == (name == "squad")
    assert task.label_counts(task.examples("train")) == ({"with an answer": 5, "without": 1} if name == "squad" else {})


def test_what_the_log_shows(tmp_path):
    task = custom(tmp_path, ".json", True, max_query_length=13)
    examples = task.examples("train")
    assert task.shown(examples[0]) == (f"Wer aß Grünkohl? | {GERMAN}", "Käthe Müller")
    assert task.shown(examples[3])[1] == "(no answer)"
    cut = [task.is_cut(example, task.featurize(example, True)) for example in examples]
    assert cut == [len(TOKENIZER.encode(example.question)) > 13 for example in examples] and any(cut) and not all(cut)


def test_a_task_goes_to_other_processes_without_its_examples(tmp_path):
    task = custom(tmp_path, ".json", True)
    examples = task.examples("dev")
    copy, some = pickle.loads(pickle.dumps((task, examples[:3])))  # noqa: S301 - written the line before
    assert copy._examples == {}
    assert [copy.featurize(example, False) for example in some] == [task.featurize(e, False) for e in examples[:3]]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"unanswerable": "yes"}, '"unanswerable" must be true or false'),
        ({"train": "a.txt"}, '"train" must be a .json or .jsonl file'),
        ({"dev": 3}, '"dev" must be a .json or .jsonl file'),
        ({"metrics": ["accuracy"]}, '"metrics" must be some of f1, exact_match'),
        ({"metrics": "f1"}, '"metrics" must be'),
    ],
)
def test_wrong_descriptions(tmp_path, description, message):
    with pytest.raises(UserError, match=message):
        CustomQA(make_qa_config(tmp_path), "own", TOKENIZER, description)


def test_described_files(tmp_path):
    path = write_split(tmp_path / "elsewhere", "x", "fragen.jsonl", as_mrqa(content(False)))
    write_split(tmp_path, "own", "sub/dev.json", content(False))
    task = CustomQA(
        make_qa_config(tmp_path),
        "own",
        TOKENIZER,
        {"train": str(path), "dev": "sub/dev.json", "metrics": ["exact_match"]},
    )
    assert (len(task.examples("train")), len(task.examples("dev"))) == (5, 5)
    assert task.metric.name == "exact_match"
    with pytest.raises(UserError, match="'test' is missing"):
        task.files("test")


@pytest.mark.parametrize(
    ("name", "value"),
    [("doc_stride", 0), ("n_best_size", 0), ("max_answer_length", 0), ("beam_size", 0), ("max_seq_length", 4)],
)
def test_sizes_that_leave_no_room(tmp_path, name, value):
    with pytest.raises(UserError, match=name):
        SQuAD(make_qa_config(tmp_path, **{name: value}), "squad", TOKENIZER)


def test_two_files_for_a_split(tmp_path):
    for ending in (".json", ".jsonl"):
        write_split(tmp_path, "fragen", f"test{ending}", "{}")
    with pytest.raises(UserError, match="test.json and test.jsonl, and each could be the split test"):
        CustomQA(make_qa_config(tmp_path, "fragen"), "fragen", TOKENIZER, {})
    CustomQA(make_qa_config(tmp_path, "fragen"), "fragen", TOKENIZER, {"test": "test.json"})


def test_there_is_no_chance_without_answers(tmp_path):
    none = squad((GERMAN, [question("n", "Wann?", is_impossible=True)]))
    write_split(tmp_path, "squad", "dev.json", none)
    task = SQuAD(make_qa_config(tmp_path, "squad"), "squad", TOKENIZER)
    assert task.examples("dev") and task.metric.chance is None
