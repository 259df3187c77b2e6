"""Tagging gives what the released code gave: words, labels, pieces, positions, spans, scores.

Left out on purpose: sentences that it cuts (ours are the longest prefixes that fit, theirs are among them), a last
sentence without a blank line after it (which it drops), do_lower_case false (which it does not obey), and the loss,
which it doubles.
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


def chunking(inputs: Path, tmp_path: Path, vocabulary, length: int, lower: bool = True) -> Chunking:
    shutil.copytree(inputs, tmp_path / "finetuning_data", dirs_exist_ok=True)
    config = make_config("m", str(tmp_path), {"task_names": ["chunk"], "max_seq_length": length})
    return Chunking(config, "chunk", FullTokenizer(vocabulary, lower))


@pytest.mark.golden_cases("data/tagging_features/manifest.json")
def test_labels_and_features(case, tmp_path, vocabulary):
    for entry in json.loads(case.read_text()):
        task = chunking(case.parent / "inputs", tmp_path, vocabulary, entry["max_seq_length"])
        released_labels = sorted(entry["label_mapping"], key=entry["label_mapping"].get)
        dropped: list[str] = []
        for split in SPLITS:
            sentences = task.examples(split)
            lines = Path(task.files(split)[0]).read_text(encoding="utf-8").split("\n")
            closed = not lines[-1].strip() and not lines[-2].strip()
            assert entry[f"n_{split}"] == len(sentences) - (not closed), split
            dropped += [] if closed else sentences[-1].labels
        assert task.labels == sorted({*released_labels, *dropped})
        for split in SPLITS:
            path = case.parent / entry["config"] / f"{split}.jsonl"
            if path.exists():
                for sentence, row in zip(task.examples(split), read_jsonl(path)):
                    check_sentence(task, sentence, row, released_labels)


def check_sentence(task: Chunking, sentence, row: dict, released_labels: list[str]) -> None:
    released = row["features"]
    assert (sentence.eid, sentence.words) == (row["eid"], row["words"])
    assert sentence.labels == [released_labels[label] for label in row["labels"]]
    (features,) = task.featurize(sentence, True)
    n, length = int(sum(released["chunk_labels_mask"])), sum(released["input_mask"])
    names = [task.labels[label] for label in features["chunk_labels"]]
    assert names[:n] == [released_labels[label] for label in released["chunk_labels"][:n]]
    if n < len(sentence.words):  # cut
        check_prefix(task, sentence, features)
        return
    assert features["input_ids"] == released["input_ids"][:length]
    assert features["segment_ids"] == released["segment_ids"][:length]
    for name in ("chunk_labels_mask", "chunk_labeled_positions"):
        assert features[name] == released[name][:n]


def check_prefix(task: Chunking, sentence, features: dict) -> None:
    """The features hold the longest prefix of whole words that fits."""
    most, words = task.config.max_seq_length - 2, [task.word_ids(word) for word in sentence.words]
    n = max(n for n in range(len(words) + 1) if sum(map(len, words[:n])) <= most)
    assert features["input_ids"][1:-1] == [piece for pieces in words[:n] for piece in pieces]
    assert len(features["chunk_labels"]) == len(features["chunk_labeled_positions"]) == n


@pytest.mark.golden_cases("data/tagging_features/tokenize_and_align.json")
def test_pieces_of_words(case, tmp_path, vocabulary):
    reference = json.loads(case.read_text())
    for lower, name in ((True, "tokenize_and_align"), (False, "cased")):
        task = chunking(case.parent / "inputs", tmp_path, vocabulary, 64, lower)
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
        scorer = TaggingScorer("t", labels, ("precision", "recall", "f1", "accuracy"))
        for row in entry["updates"]:
            n = int(sum(row["labels_mask"]))
            outputs = {name: np.asarray(row[name]) for name in ("loss", "predictions")}
            scorer.update({"t_labels": row["labels"][:n]}, outputs)
        released = dict(entry["entity_f1"]) | dict(entry["accuracy"])
        results = scorer.results()
        assert 2 * results.pop("loss") == pytest.approx(released.pop("loss"), rel=1e-5)
        assert results == pytest.approx(released), entry["name"]
