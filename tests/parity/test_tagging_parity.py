"""Tagging gives what the released code gave: words, labels, pieces, positions, spans, scores.

With `released_quirks` that is everything. Without, it is everything but sentences that are cut (ours are the longest
prefixes that fit, theirs are among them), a last sentence without a blank line after it (which they drop), text with
do_lower_case false (which they do not obey), and the loss (which they double).
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from configure_finetuning import make_config
from finetune.tagging.spans import spans_of, tags_of
from finetune.tagging.tagging_metrics import TaggingScorer
from finetune.tagging.tagging_tasks import Chunking
from model.tokenization import FullTokenizer
from tests.parity.test_glue_parity import largest_vocabulary, read_jsonl

SPLITS = ("train", "dev", "test")


@pytest.fixture
def vocabulary(golden):
    return largest_vocabulary(golden)


def chunking(inputs: Path, tmp_path: Path, vocabulary, lower: bool = True, **hparams) -> Chunking:
    shutil.copytree(inputs, tmp_path / "finetuning_data", dirs_exist_ok=True)
    config = make_config("m", str(tmp_path), {"task_names": ["chunk"], "do_lower_case": lower, **hparams})
    return Chunking(config, "chunk", FullTokenizer(vocabulary, lower))


@pytest.mark.golden_cases("data/tagging_features/manifest.json")
def test_everything_with_released_quirks(case, tmp_path, vocabulary):
    for entry in json.loads(case.read_text()):
        lower = entry["hparams"].get("do_lower_case", True)
        hparams = {"max_seq_length": entry["max_seq_length"], "released_quirks": True}
        task = chunking(case.parent / "inputs", tmp_path, vocabulary, lower, **hparams)
        assert {label: i for i, label in enumerate(task.labels)} == entry["label_mapping"]
        for split in SPLITS:
            sentences = task.examples(split)
            assert len(sentences) == entry[f"n_{split}"]
            for sentence, row in zip(sentences, rows_of(case, entry, split)):
                (features,) = task.featurize(sentence, True)
                assert (sentence.eid, sentence.words) == (row["eid"], row["words"])
                assert [task.labels.index(label) for label in sentence.labels] == row["labels"]
                assert features == unpadded(row["features"]), (entry["config"], split, sentence.eid)


def rows_of(case: Path, entry: dict, split: str) -> list[dict]:
    path = case.parent / entry["config"] / f"{split}.jsonl"
    return read_jsonl(path) if path.exists() else []


def unpadded(released: dict) -> dict:
    n, length = int(sum(released["chunk_labels_mask"])), sum(released["input_mask"])
    cut = dict.fromkeys(("input_ids", "segment_ids"), length)
    cut |= {f"chunk_{name}": n for name in ("labels", "labels_mask", "labeled_positions")}
    return {name: released[name][:end] for name, end in cut.items()} | {"chunk_eid": released["chunk_eid"]}


@pytest.mark.golden_cases("data/tagging_features/manifest.json")
def test_labels_and_features(case, tmp_path, vocabulary):
    for entry in json.loads(case.read_text()):
        if not entry["hparams"].get("do_lower_case", True):
            continue
        task = chunking(case.parent / "inputs", tmp_path, vocabulary, max_seq_length=entry["max_seq_length"])
        released_labels = sorted(entry["label_mapping"], key=entry["label_mapping"].get)
        dropped: list[str] = []
        for split in SPLITS:
            sentences = task.examples(split)
            closed = Path(task.files(split)[0]).read_text(encoding="utf-8").rstrip(" \t").endswith("\n\n")
            assert entry[f"n_{split}"] == len(sentences) - (not closed), split
            dropped += [] if closed else sentences[-1].labels
        assert task.labels == sorted({*released_labels, *dropped})
        for split in SPLITS:
            for sentence, row in zip(task.examples(split), rows_of(case, entry, split)):
                check_sentence(task, sentence, row, released_labels)


def check_sentence(task: Chunking, sentence, row: dict, released_labels: list[str]) -> None:
    """What is not cut is the same, label by label; what is cut is the longest prefix that fits."""
    assert sentence.words == row["words"]
    (features,) = task.featurize(sentence, True)
    released = unpadded(row["features"])
    names = [task.labels[label] for label in features.pop("chunk_labels")]
    released_names = [released_labels[label] for label in released.pop("chunk_labels")]
    assert names[: len(released_names)] == released_names
    if len(released_names) < len(sentence.words):
        check_prefix(task, sentence, features)
    else:
        assert features == released


def check_prefix(task: Chunking, sentence, features: dict) -> None:
    """The features hold the longest prefix of whole words that fits."""
    most, words = task.config.max_seq_length - 2, [task.word_ids(word) for word in sentence.words]
    n = max(n for n in range(len(words) + 1) if sum(map(len, words[:n])) <= most)
    assert features["input_ids"][1:-1] == [piece for pieces in words[:n] for piece in pieces]
    assert len(features["chunk_labels_mask"]) == len(features["chunk_labeled_positions"]) == n


@pytest.mark.golden_cases("data/tagging_features/tokenize_and_align.json")
def test_pieces_of_words(case, tmp_path, vocabulary):
    reference = json.loads(case.read_text())
    for lower, name in ((True, "tokenize_and_align"), (False, "cased")):
        task = chunking(case.parent / "inputs", tmp_path, vocabulary, lower)
        for word, pieces in zip(reference["words"], reference[name][1:-1]):
            assert task.tokenizer.convert_ids_to_tokens(task.word_ids(word)) == pieces, (word, name)


@pytest.mark.golden_cases("data/tagging_features/span_utils.json")
def test_spans(case):
    rows = json.loads(case.read_text())
    for row in rows:
        spans = spans_of(row["tags"])
        assert [list(span) for span in spans] == row["spans"], row["tags"]
        for scheme in ("bioes", "bio"):
            assert tags_of(spans, len(row["tags"]), scheme) == row[scheme], row["tags"]
    assert rows


@pytest.mark.golden_cases("data/tagging_features/*/scorer_results.json")
def test_scorer(case):
    manifest = json.loads((case.parent.parent / "manifest.json").read_text())
    mapping = next(entry["label_mapping"] for entry in manifest if entry["config"] == case.parent.name)
    labels = sorted(mapping, key=mapping.get)
    for entry in json.loads(case.read_text()):
        scorer = TaggingScorer("t", labels, ("precision", "recall", "f1", "accuracy"), loss_factor=2.0)
        for row in entry["updates"]:
            n = int(sum(row["labels_mask"]))
            outputs = {name: np.asarray(row[name]) for name in ("loss", "predictions")}
            scorer.update({"t_labels": row["labels"][:n]}, outputs)
        released = dict(entry["entity_f1"]) | dict(entry["accuracy"])
        assert scorer.results() == pytest.approx(released, rel=1e-5), entry["name"]
