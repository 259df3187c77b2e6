"""Re-ranking against brute force: edit distances, the best weight, what is chosen."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring import rerank
from scoring.rerank import Hypothesis, HypothesisList, ScoredList

WORDS = st.lists(st.sampled_from("abc"), max_size=7)
VALUES = st.integers(-6, 6).map(lambda n: n / 2)
LISTS = st.lists(
    st.lists(st.tuples(VALUES, VALUES, st.integers(0, 3)), min_size=1, max_size=6), min_size=1, max_size=5
)


def distance(reference: list[str], hypothesis: list[str]) -> int:
    """The table as in the textbook."""
    table = np.zeros([len(reference) + 1, len(hypothesis) + 1], int)
    table[:, 0], table[0] = np.arange(len(reference) + 1), np.arange(len(hypothesis) + 1)
    for i in range(1, len(reference) + 1):
        for j in range(1, len(hypothesis) + 1):
            exchanged = table[i - 1, j - 1] + (reference[i - 1] != hypothesis[j - 1])
            table[i, j] = min(exchanged, table[i - 1, j] + 1, table[i, j - 1] + 1)
    return int(table[-1, -1])


@given(WORDS, WORDS)
def test_word_errors(reference, hypothesis):
    assert rerank.word_errors(reference, hypothesis) == distance(reference, hypothesis)


def made(lists) -> list[ScoredList]:
    found = []
    for number, rows in enumerate(lists):
        system, likelihood, errors = (np.array(column) for column in zip(*rows))
        one = HypothesisList(str(number), [Hypothesis(float(s), f"t{i}") for i, s in enumerate(system)], "a b c d")
        found.append(ScoredList(one, system.astype(float), likelihood.astype(float), errors))
    return found


def errors_at(lists: list[ScoredList], weight: float) -> int:
    return sum(int(one.errors[int(np.argmax(one.system + weight * one.likelihood))]) for one in lists)


@settings(max_examples=300)
@given(LISTS)
def test_no_weight_makes_fewer_errors_than_the_one_that_is_found(rows):
    """Values are multiples of 1/2 from -3 to 3, so that all corners lie among the fractions a / b, a and b to 12."""
    lists = made(rows)
    corners = sorted({a / b for a in range(13) for b in range(1, 13)})
    between = [(a + b) / 2 for a, b in zip(corners, [*corners[1:], 50.0])]
    found = rerank.best_weight(lists)
    assert found >= 0
    assert errors_at(lists, found) == min(errors_at(lists, weight) for weight in [0.0, *between])
    assert [choice.index for choice in rerank.chosen(lists, found)] == [
        int(np.argmax(one.system + found * one.likelihood)) for one in lists
    ]


def test_the_weight_lies_in_the_middle_of_its_range():
    """The right hypothesis wins from weight 1 on, a bad one from weight 3 on."""
    lists = made([[(3, 0, 1), (2, 1, 0), (-4, 3, 2)]])
    assert rerank.best_weight(lists) == 2.0
    assert rerank.best_weight(made([[(1, 5, 0), (0, 9, 1)]])) == 0.0, "no weight makes fewer errors"
    assert rerank.best_weight(made([[(0, 1, 1), (0, 2, 0)]])) > 0, "the system cannot tell them apart"


def test_rates_are_those_of_all_words_together():
    lists = made([[(1, 0, 2), (0, 2, 1)], [(5, 0, 0), (0, 1, 3)]])
    rates = rerank.rates(rerank.chosen(lists, 1.0))
    assert rates == {"wer_system": 2 / 8, "wer_reranked": 1 / 8, "wer_oracle": 1 / 8}
