"""Questions to windows, outputs to answers, answers to figures: what the released code gave."""

import json
from pathlib import Path

import numpy as np
import pytest

from configure_finetuning import make_config
from finetune.qa.answers import project
from finetune.qa.examples import QAExample
from finetune.qa.qa_tasks import QATask
from finetune.qa.windows import best_windows
from finetune.task_builder import TASKS
from model.tokenization import FullTokenizer, load_vocab

CASES = "data/qa_features/*/"


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def vocabulary(golden: Path):
    """The largest one: it belongs to data/."""
    return max((load_vocab(str(path)) for path in golden.glob("vocab_*.txt")), key=len)


def config_of(case: Path) -> dict:
    manifest = json.loads((case.parent / "manifest.json").read_text())
    return next(entry for entry in manifest if entry["config"] == case.name)


def make_task(golden: Path, case: Path, folder: Path) -> QATask:
    """The task of a case, with its files in a data folder."""
    entry = config_of(case)
    name = entry["task"]
    data = folder / "data" / "finetuning_data"
    data.mkdir(parents=True)
    (data / name).symlink_to(case.parent / "inputs" / name)
    vocab = vocabulary(golden)
    hparams = {"task_names": [name], "vocab_file": vocab.path, "model_dir": str(folder), **entry["hparams"]}
    for kind in ("eval", "na", "preds"):
        hparams[f"qa_{kind}_file"] = str(folder / ("{}_" + kind + ".json"))
    config = make_config("m", str(folder / "data"), hparams)
    return TASKS[name](config, name, FullTokenizer(vocab, config.do_lower_case))


def as_released(eid: int) -> int:
    """The released number of a window: 1000 times the example's number plus the window's."""
    example, window = divmod(eid, 1 << 32)
    return 1000 * example + window


def without_padding(record: dict) -> dict:
    """A released record's features as they are stored here."""
    length = sum(record["input_mask"])
    assert record["input_mask"] == [1] * length + [0] * (len(record["input_mask"]) - length)
    return {name: value[:length] if name in ("input_ids", "segment_ids") else value for name, value in record.items()}


@pytest.mark.golden_cases(CASES + "*_examples.jsonl")
def test_examples(golden, case, tmp_path):
    task = make_task(golden, case.parent, tmp_path)
    split = case.name.removesuffix("_examples.jsonl")
    examples = task.examples(split)
    rows = read_jsonl(case)
    assert len(examples) == len(rows) > 0
    for example, row in zip(examples, rows):
        assert (example.eid, example.id) == (row["eid"], row["qas_id"] or row["qid"])
        assert example.question == row["question_text"]
        assert example.paragraph.words == row["doc_tokens"]
        assert example.is_impossible == row["is_impossible"]
        if example.answer:
            assert example.answer == (row["orig_answer_text"], row["start_position"], row["end_position"])
        else:
            assert row["start_position"] == (-1 if row["is_impossible"] else None)


@pytest.mark.golden_cases(CASES + "train_features.jsonl", CASES + "dev_features.jsonl")
def test_features(golden, case, tmp_path):
    task = make_task(golden, case.parent, tmp_path)
    split = case.name.removesuffix("_features.jsonl")
    name = task.name
    examples = task.examples(split)
    found = {}
    for example in examples:
        for features in task.featurize(example, split == "train"):
            found[as_released(features[f"{name}_eid"])] = example, features
    rows = read_jsonl(case)
    assert rows
    for row in rows:
        example, features = found[row[f"{name}_eid"]]
        expected = without_padding(row)
        for key in features.keys() & expected.keys() - {f"{name}_eid"}:
            assert features[key] == expected[key], key
        if f"{name}_token_to_orig_map" in row:
            check_layout(task, example, row)


def check_layout(task: QATask, example: QAExample, row: dict) -> None:
    """What each position of a window stands for."""
    layout = task.featurizer.layout(example)
    number = row[f"{task.name}_doc_span_index"]
    start, length = layout.windows[number]
    owner = best_windows(layout.windows)
    positions = range(layout.offset, layout.offset + length)
    words = {str(i): layout.pieces.word_of[start + i - layout.offset] for i in positions}
    best = {str(i): bool(owner[start + i - layout.offset] == number) for i in positions}
    assert words == row[f"{task.name}_token_to_orig_map"]
    assert best == row[f"{task.name}_token_is_max_context"]


@pytest.mark.golden_cases(CASES + "model_outputs.jsonl")
def test_answers_and_figures(golden, case, tmp_path):
    case = case.parent
    task = make_task(golden, case, tmp_path)
    scorer = task.scorer("dev")
    outputs = {}
    for row in read_jsonl(case / "model_outputs.jsonl"):
        outputs[row["eid"]] = {
            name: np.array(value, np.int32 if name.endswith("index") else np.float32) for name, value in row.items()
        }
    for example in task.examples("dev"):
        for features in task.featurize(example, False):
            scorer.update(features, outputs.pop(as_released(features[f"{task.name}_eid"])))
    assert not outputs
    results = scorer.results()
    entry = config_of(case)
    assert results.pop("loss") == pytest.approx(entry["loss"], rel=1e-6)
    assert results == pytest.approx(dict(entry["results"]), abs=1e-9)
    assert list(results) == [name for name, _ in entry["results"]]
    written = scorer.write(task.config)
    for kind, ending in (("preds", "preds"), ("na", "null_odds"), ("eval", "eval")):
        expected = case / f"{ending}.json"
        assert expected.exists() == (str(tmp_path / f"{task.name}_{kind}.json") in written)
        if expected.exists():
            content = json.loads((tmp_path / f"{task.name}_{kind}.json").read_text())
            wanted = json.loads(expected.read_text())
            if kind == "eval":
                assert content == pytest.approx(wanted, abs=1e-9)
            else:
                assert content == wanted


@pytest.mark.golden_cases("data/qa_features/get_final_text.json")
def test_project(golden, case):
    vocab = vocabulary(golden)
    for row in json.loads(case.read_text()):
        tokenizer = FullTokenizer(vocab, row["do_lower_case"])
        assert project(row["pred_text"], row["orig_text"], tokenizer) == row["result"], row
