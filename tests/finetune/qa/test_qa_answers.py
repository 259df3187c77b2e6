"""Outputs to answers: which span wins, and where there is none; the reference values are in tests/parity."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configure_finetuning import FinetuningConfig
from finetune.qa.answers import AnswerCollector, project
from finetune.qa.examples import Paragraph, QAExample
from finetune.qa.windows import Featurizer, WindowSettings
from tests.questions import make_tokenizer

TOKENIZER = make_tokenizer()
OFFSET = 3  # [CLS] a [SEP]


def collector(texts: list[str], unanswerable=False, room=10, stride=10, **hparams) -> AnswerCollector:
    """Questions about texts of one-letter words; a window shows `room` of them."""
    featurizer = Featurizer("t", TOKENIZER, WindowSettings(room + OFFSET + 1, 5, stride))
    examples = [QAExample(i, f"q{i}", "a", Paragraph(text)) for i, text in enumerate(texts)]
    config = FinetuningConfig("m", "d", **{"joint_prediction": False, **hparams})
    return AnswerCollector(featurizer, config, unanswerable, examples)


def logits(length: int, **high: float) -> np.ndarray:
    """Logits of -5 but for some places of the text: p3=2.0."""
    values = np.full(length + OFFSET + 1, -5.0, np.float32)
    for place, value in high.items():
        values[int(place[1:]) + OFFSET] = value
    return values


def answer(collector: AnswerCollector, *windows: dict) -> tuple[str, float | None]:
    for number, outputs in enumerate(windows):
        collector.update(number, outputs)
    ((_, prediction),) = collector.predictions()
    return prediction.text, prediction.null_odds


TEN = "a b c d e f g h i j"


def test_the_best_possible_span_wins():
    outputs = {"start_logits": logits(10, p5=9.0, p2=3.0), "end_logits": logits(10, p4=9.0, p3=3.0, p6=-4.0)}
    assert answer(collector([TEN]), outputs)[0] == "c d e"  # not from 5 to 4
    assert answer(collector([TEN], max_answer_length=2), outputs)[0] == "c d"
    assert answer(collector([TEN], max_answer_length=1), outputs)[0] == "f"  # 9 - 5 beats 9 - 5 of e, it comes first


def test_ties_keep_their_order():
    outputs = {"start_logits": logits(10, p2=1.0, p5=1.0), "end_logits": logits(10, p3=1.0, p6=1.0)}
    assert answer(collector([TEN]), outputs)[0] == "c d"
    flat = {"start_logits": logits(10), "end_logits": logits(10)}
    assert answer(collector([TEN], n_best_size=20), flat)[0] == "a"
    assert answer(collector([TEN], n_best_size=2), flat)[0] == "empty"  # [CLS] and the question are tried, in vain


def test_a_window_answers_where_it_shows_most_context():
    windows = [{"start_logits": logits(6), "end_logits": logits(6)} for _ in range(3)]
    windows[0] = {"start_logits": logits(6, p5=9.0), "end_logits": logits(6, p5=9.0)}  # f: the next window shows more
    windows[1] = {"start_logits": logits(6, p2=3.0), "end_logits": logits(6, p5=3.0)}  # of the end it need not
    text, _ = answer(collector([TEN], room=6, stride=2), *windows)
    assert text == "e f g h"


def test_joint_scores_are_those_of_the_beam():
    outputs = {
        "start_top_index": np.array([4, 6]) + OFFSET,
        "start_top_log_probs": np.log(np.array([0.6, 0.4], np.float32)),
        "end_top_index": np.array([[5, 4], [7, 6]]) + OFFSET,
        "end_top_log_probs": np.log(np.array([[0.5, 0.4], [0.9, 0.1]], np.float32)),
    }
    assert answer(collector([TEN], joint_prediction=True), outputs)[0] == "g h"  # 0.36 against 0.3


def test_null_odds_are_the_least_of_all_windows():
    windows = [
        {"start_logits": logits(6, p1=2.0), "end_logits": logits(6, p1=3.0), "answerable_logit": np.float32(number)}
        for number in (4, -1, 2)
    ]
    windows[2]["start_logits"][0] = -7.0
    assert answer(collector([TEN], True, room=6, stride=2), *windows)[1] == -1.0
    without = collector([TEN], True, room=6, stride=2, answerable_classifier=False)
    assert answer(without, *windows)[1] == -12.0 - 5.0
    joint = [
        {
            "start_logits": logits(6),
            "start_top_index": np.array([1]) + OFFSET,
            "start_top_log_probs": np.array([-0.5], np.float32),
            "end_top_index": np.array([[1]]) + OFFSET,
            "end_top_log_probs": np.array([[-0.25]], np.float32),
        }
    ]
    only_start = collector(["a b c"], True, joint_prediction=True, answerable_classifier=False)
    assert answer(only_start, *joint)[1] == -5.0 + 0.75


@pytest.mark.parametrize("text", ["", " \n ", "\u200b"])
def test_nothing_to_choose_from(text):
    ((_, prediction),) = collector([text], True).predictions()
    assert prediction == ("empty", 1000000.0)
    ((_, prediction),) = collector([text]).predictions()
    assert prediction == ("empty", None)


@given(st.permutations(range(4)), st.integers(0, 10_000))
def test_windows_come_in_any_order(order, seed):
    random = np.random.default_rng(seed)
    made = [
        {name: np.round(random.normal(size=10)).astype(np.float32) for name in ("start_logits", "end_logits")}
        for _ in range(4)
    ]
    found = []
    for numbers in (range(4), order):
        taker = collector(["a b c d e f g h", "a b c d e f g h"], room=6, stride=2)
        for number in numbers:
            example, window = divmod(number, 2)
            taker.update((example << 32) + window, made[number])
        found.append([prediction for _, prediction in taker.predictions()])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("text", "original", "expected"),
    [
        ("ko", "Köln", "Kö"),
        ("koln", "(Köln),", "Köln"),
        ("gruß", "Gruß!", "Gruß"),
        ("ko", "Ko\u0308ln", "Ko\u0308ln"),  # a character more than the tokenizer sees: the whole words
        ("a b", "x a\u00a0b y", "x a\u00a0b y"),
        ("jorg . oster", "Jörg. Österreich", "Jörg. Öster"),
        ("", "whatever", "whatever"),
    ],
)
def test_project(text, original, expected):
    assert project(text, original, TOKENIZER) == expected


@given(st.text(st.sampled_from("aÄö(-. 東"), min_size=1, max_size=20).filter(lambda text: text.strip()))
def test_project_finds_every_part_of_a_plain_text(original):
    split = " ".join(TOKENIZER.words(original))
    for first, last in itertools.combinations_with_replacement(range(len(split)), 2):
        part = split[first : last + 1]
        if part == part.strip():
            found = project(part, original, TOKENIZER)
            assert "".join(TOKENIZER.words(found)) == part.replace(" ", "")
