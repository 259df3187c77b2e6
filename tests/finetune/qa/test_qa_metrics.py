"""Figures by the official rules; the reference values are in tests/parity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.qa.qa_metrics import answer_metrics, exact, f1, f1_or_no_answer, normalize, unanswerable_metrics


def test_normalize():
    assert normalize("  The U.S.A.,\tan  Area—of a (theatre)!") == "usa area—of theatre"
    assert normalize("A") == "" and normalize("Ägypten") == "ägypten"


def test_f1_counts_words():
    assert f1("the red red car", "red car") == pytest.approx(0.8)  # precision 2/3, recall 1
    assert f1("cat", "dog") == f1("", "dog") == f1("", "") == 0.0
    assert exact("The cat.", "cat") == 1.0 and exact("cats", "cat") == 0.0


def test_no_answer_equals_no_answer():
    assert f1_or_no_answer("", "") == f1_or_no_answer("the", "") == 1.0
    assert f1_or_no_answer("cat", "") == f1_or_no_answer("", "cat") == 0.0


def test_the_nearest_right_answer_counts():
    metrics = answer_metrics({"a": "red car", "b": "blue"}, {"a": ["car", "the red car"], "b": ["green"]})
    assert metrics == {"exact_match": 50.0, "f1": 50.0}


def test_groups_are_there_only_where_they_have_questions():
    answers, odds = {"a": "x", "b": "y"}, {"a": -5.0, "b": 5.0}
    both = unanswerable_metrics(answers, odds, {"a": ["x"], "b": []}, 0.0)
    assert list(both) == [
        *(
            "exact",
            "f1",
            "total",
            "HasAns_exact",
            "HasAns_f1",
            "HasAns_total",
            "NoAns_exact",
            "NoAns_f1",
            "NoAns_total",
        ),
        *("best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"),
    ]
    assert both["exact"] == 100.0 and both["best_exact_thresh"] == -5.0 and both["NoAns_total"] == 1
    alone = unanswerable_metrics(answers, odds, {"a": ["x"], "b": ["the"]}, 10.0)  # "the" is no answer
    assert alone["NoAns_exact"] == 0.0 and alone["HasAns_exact"] == 100.0
    assert "NoAns_exact" not in unanswerable_metrics(answers, odds, {"a": ["x"], "b": ["y"]}, 0.0)


questions = st.lists(
    st.tuples(
        st.sampled_from(["cat", "dog", "big cat"]), st.floats(-9, 9), st.sampled_from([(), ("cat",), ("dog", "bird")])
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[1],
)


@given(questions)
def test_the_best_threshold_is_the_best_of_all(rows):
    answers = {i: answer for i, (answer, _, _) in enumerate(rows)}
    odds = {i: number for i, (_, number, _) in enumerate(rows)}
    golds = {i: right for i, (_, _, right) in enumerate(rows)}
    found = unanswerable_metrics(answers, odds, golds, 0.0)
    for name in ("exact", "f1"):
        tried = [unanswerable_metrics(answers, odds, golds, number)[name] for number in [-10.0, *odds.values()]]
        assert found[f"best_{name}"] == pytest.approx(max(tried))
