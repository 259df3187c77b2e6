"""Tagging: schemes, alignment, span F1 as conlleval counts it, files as people have them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.tables import notes_on
from finetune.tagging.spans import SCHEMES, spans_of, tags_of
from finetune.tagging.tagging_metrics import TaggingScorer
from finetune.tagging.tagging_tasks import Sentence
from tests.finetune.task_files import task_of, write
from util.errors import UserError

NER = {"kind": "tagging"}
CHUNKS = "He PRP B-NP\nruns VBZ B-VP\n\nOn IN B-PP\nMonday NNP B-NP\nmorning NN I-NP\n"
spans = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(["X", "Y-Z"])), max_size=5)


def placed(parts) -> tuple[list, int]:
    """Spans from (gap before, length, class), and the length of their sentence."""
    found, end = [], 0
    for gap, length, name in parts:
        found.append((end + gap, end + gap + length - 1, name))
        end += gap + length
    return found, max(1, end)


@given(spans)
def test_spans_survive_their_tags(parts):
    found, length = placed(parts)
    for scheme in SCHEMES[:-1]:
        assert spans_of(tags_of(found, length, scheme), scheme) == found


def test_another_class_begins_a_span_in_iob1_alone():
    tags = ["I-X", "I-Y", "B-Y", "O"]
    assert spans_of(tags, "iob1") == [(0, 0, "X"), (1, 1, "Y"), (2, 2, "Y")]
    assert spans_of(tags, "bio") == [(0, 1, "Y"), (2, 2, "Y")]


def conlleval(gold: list[str], predicted: list[str]) -> tuple[int, int, int]:
    """Spans that are right, guessed and there, counted as conlleval does: token by token, for BIO tags."""

    def starts(before: str, tag: str) -> bool:
        return tag != "O" and (tag[0] == "B" or before == "O" or before[2:] != tag[2:])

    def ends(before: str, tag: str) -> bool:
        return before != "O" and (tag[0] in "BO" or before[2:] != tag[2:])

    right, inside = 0, False
    counts = [sum(starts(a, b) for a, b in zip(["O", *tags], tags)) for tags in (predicted, gold)]
    last_gold = last_predicted = "O"
    for tag, guess in zip([*gold, "O"], [*predicted, "O"]):
        ended, guess_ended = ends(last_gold, tag), ends(last_predicted, guess)
        if inside and (ended or guess_ended):
            right += ended and guess_ended
            inside = False
        started, guess_started = starts(last_gold, tag), starts(last_predicted, guess)
        if started and guess_started and tag[2:] == guess[2:]:
            inside = True
        last_gold, last_predicted = tag, guess
    return right, *counts


LABELS = sorted({"O", *(f"{prefix}-{name}" for prefix in "BIES" for name in ("X", "Y-Z"))})


@given(st.data(), st.integers(1, 4))
def test_f1_is_that_of_conlleval(data, sentences):
    scorer = TaggingScorer("t", LABELS, ("precision", "recall", "f1"))
    totals = np.zeros(3)
    for _ in range(sentences):
        found, length = placed(data.draw(spans))
        gold = tags_of(found, length)
        predicted = [label if data.draw(st.booleans()) else data.draw(st.sampled_from(LABELS)) for label in gold]
        outputs = {"loss": np.array(1.0), "predictions": np.array([LABELS.index(label) for label in predicted])}
        scorer.update({"t_labels": [LABELS.index(label) for label in gold]}, outputs)
        totals += conlleval(tags_of(found, length, "bio"), tags_of(spans_of(predicted), length, "bio"))
    right, guessed, there = totals
    results = scorer.results()
    assert results["precision"] == pytest.approx(100 * right / guessed if guessed else 0)
    assert results["recall"] == pytest.approx(100 * right / there if there else 0)
    assert results["f1"] == pytest.approx(200 * right / (guessed + there) if right else 0)


WORDS = ["a", "the", "rock'n'roll", "東京", "\u200b", "", "[CLS]", "x" * 250, "été"]


@given(st.lists(st.sampled_from(WORDS), max_size=20), st.integers(3, 16))
def test_alignment(tmp_path_factory, words, most):
    task = task_of(tmp_path_factory.getbasetemp(), "own", NER | {"labels": ["X"]}, max_seq_length=most)
    sentence = Sentence(3, words, ["O"] * len(words))
    (features,) = task.featurize(sentence, True)
    ids, positions = features["input_ids"], features["own_labeled_positions"]
    pieces = [task.word_ids(word) for word in words]
    n = len(positions)
    assert ids[1:-1][: sum(map(len, pieces[:n]))] == sum(pieces[:n], [])
    assert n <= len(ids) <= most and features["segment_ids"] == [1] * len(ids)
    assert len(features["own_labels"]) == len(features["own_labels_mask"]) == n
    for word, position in zip(pieces, positions):
        assert ids[position : position + len(word)] == word and 0 < position < len(ids)
    assert task.is_cut(sentence, [features]) == (n < len(words))
    if n < len(words):
        assert sum(map(len, pieces[: n + 1])) > most - 2 or n == len(ids)


def test_labels_of_all_splits_are_kept_beside_the_features(tmp_path):
    write(tmp_path, "chunk/train.txt", CHUNKS)
    write(tmp_path, "chunk/dev.txt", "Oh UH B-INTJ\n")
    write(tmp_path, "chunk/test.txt", "one\ntwo\n")
    task = task_of(tmp_path, "chunk")
    assert task.labels == ["B-NP", "E-NP", "S-INTJ", "S-NP", "S-PP", "S-VP"]
    assert task.examples("test")[0] == (0, ["one", "two"], None)
    (kept,) = tmp_path.rglob("chunk_label_mapping.json")
    assert json.loads(kept.read_text()) == {label: i for i, label in enumerate(task.labels)}
    (tmp_path / "finetuning_data" / "chunk" / "train.txt").unlink()
    assert task_of(tmp_path, "chunk").labels == task.labels  # enough to predict with


def test_lower_casing_is_obeyed(tmp_path):
    write(tmp_path, "chunk/train.txt", CHUNKS)
    task = task_of(tmp_path, "chunk")
    assert task.word_ids("Hello") == task.tokenizer.encode("hello")
    task.tokenizer = type(task.tokenizer)(task.tokenizer.vocabulary, do_lower_case=False)
    assert task.word_ids("Hello") == task.tokenizer.encode("Hello") != task.tokenizer.encode("hello")


@pytest.mark.parametrize("scheme, tags, labels", [
    ("iob1", "I-PER-X I-PER-X B-PER-X I-LOC O", ["B-PER-X", "E-PER-X", "O", "S-LOC", "S-PER-X"]),
    ("bio", "B-PER-X I-PER-X B-PER-X B-LOC O", ["B-PER-X", "E-PER-X", "O", "S-LOC", "S-PER-X"]),
    ("bioes", "B-PER-X E-PER-X S-PER-X S-LOC O", ["B-PER-X", "E-PER-X", "O", "S-LOC", "S-PER-X"]),
    ("plain", "DT NN-X VB . O", [".", "DT", "NN-X", "O", "VB"]),
])  # fmt: skip
def test_schemes(tmp_path, scheme, tags, labels):
    write(tmp_path, "own/train.txt", "".join(f"w{i}\t{tag}\n" for i, tag in enumerate(tags.split())))
    task = task_of(tmp_path, "own", NER | {"scheme": scheme})
    assert task.labels == labels
    (sentence,) = task.examples("train")
    (features,) = task.featurize(sentence, True)
    outputs = {"predictions": np.array(features["own_labels"])}
    (path,) = task.write_predictions("train", [(features, outputs)], str(tmp_path / "p"))
    assert [line.split("\t")[1] for line in open(path).read().split("\n\n")[0].splitlines()] == tags.split()


def test_words_that_were_cut_off_are_written_too(tmp_path, capsys):
    write(tmp_path, "own/test.txt", "".join(f"word{i}\n" for i in range(40)))
    task = task_of(tmp_path, "own", NER | {"labels": ["X"]})
    (sentence,) = task.examples("test")
    (features,) = task.featurize(sentence, False)
    outputs = {"predictions": np.array([task.labels.index("S-X")] * len(features["own_labels"]))}
    (path,) = task.write_predictions("test", [(features, outputs)], str(tmp_path / "p"))
    lines = open(path).read().split("\n\n")[0].splitlines()
    cut = 40 - len(features["own_labels"])
    assert lines[0] == "word0\tB-X" and lines[-1] == "word39\tO" and len(lines) == 40
    assert f"{cut} words beyond max_seq_length 32" in capsys.readouterr().out


@pytest.mark.parametrize("content, why", [
    ("a B-X\nb B\n", "line 2: the tag 'B' is none of BIO"),
    ("a\tB-X Y\n", "line 1: the tag 'B-X Y'.*without white space"),
    ("a\nb\n", "one column"),
    ("", "holds no sentences"),
    ("-DOCSTART- O\n\n", "holds no sentences"),
])  # fmt: skip
def test_bad_files(tmp_path, content, why):
    write(tmp_path, "own/train.txt", content)
    with pytest.raises(UserError, match=rf"train\.txt.*{why}"):
        task_of(tmp_path, "own", NER).examples("train")


def test_tags_with_spaces_are_refused_in_jsonl_too(tmp_path):
    write(tmp_path, "own/train.jsonl", json.dumps({"words": ["a"], "tags": ["proper noun"]}) + "\n")
    with pytest.raises(UserError, match="'proper noun' holds white space"):
        task_of(tmp_path, "own", NER | {"scheme": "plain"}).examples("train")


def test_jsonl_sentences(tmp_path):
    rows = [{"w": ["a", "b"], "t": ["O", "B-X"]}] * 200 + [{"w": ["a"], "t": ["O", "O"]}]
    path = write(tmp_path, "own/train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    write(tmp_path, "own/test.jsonl", json.dumps({"w": ["a", "b"]}) + "\n")
    task = task_of(tmp_path, "own", NER | {"word": "w", "tag": "t"})
    assert len(task.examples("train")) == 200 and task.examples("train")[0] == (0, ["a", "b"], ["O", "S-X"])
    assert task.examples("test") == [(0, ["a", "b"], None)]
    assert 'line 201: 1 in "w", 2 in "t"' in notes_on(str(path))[0]


def test_missing_file_lists_the_expected_names(tmp_path):
    with pytest.raises(UserError, match=r"chunk is missing; expected there: train.txt, dev.txt, test.txt"):
        task_of(tmp_path, "chunk").files("train")


@pytest.mark.parametrize("scheme", ["bio", "iob1"])
@pytest.mark.parametrize("tag", ["S-X", "E-X"])
def test_tags_of_bioes_under_another_scheme(tmp_path, scheme, tag):
    path = write(tmp_path, "own/train.txt", f"a B-X\nb {tag}\n")
    with pytest.raises(UserError, match=f'{path}, line 2: the tag \'{tag}\' is none of .* "scheme": "bioes"'):
        task_of(tmp_path, "own", NER | {"scheme": scheme}).examples("train")
    assert task_of(tmp_path, "own", NER | {"scheme": "bioes"}).examples("train")


def test_there_is_no_chance_without_spans(tmp_path):
    write(tmp_path, "own/train.txt", "a B-X\n")
    for tag, chance in (("O", None), ("B-X", 0.0)):
        write(tmp_path, "own/dev.txt", f"a {tag}\n")
        task = task_of(tmp_path, "own", NER)
        assert task.examples("dev") and task.metric.chance == chance
