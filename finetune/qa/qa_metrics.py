"""Exact match and F1 by the official rules of SQuAD 1.1, MRQA and SQuAD 2.0.

References: Rajpurkar et al., 2016 and 2018; Fisch et al., 2019. Scores are percentages.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Golds = dict[str, Sequence[str]]  # all right answers to a question by its id; none where it has no answer
Scores = dict[str, float]  # by the question's id, 0 to 1


def normalize(answer: str) -> str:
    """Lower case, without ASCII punctuation and articles, single spaces between the words."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact(answer: str, gold: str) -> float:
    """1 where the answers are the same after normalizing, else 0."""
    return float(normalize(answer) == normalize(gold))


def f1(answer: str, gold: str) -> float:
    """The harmonic mean of precision and recall of the words; 0 where none is common."""
    words, gold_words = normalize(answer).split(), normalize(gold).split()
    common = sum((Counter(words) & Counter(gold_words)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def f1_or_no_answer(answer: str, gold: str) -> float:
    """`f1`, but two answers without a word are equal (SQuAD 2.0)."""
    return f1(answer, gold) if normalize(answer) or normalize(gold) else 1.0


def best_of(metric: Callable[[str, str], float], answers: dict[str, str], golds: Golds) -> Scores:
    """The score of each answer against the right answer that it is nearest to."""
    return {name: max(metric(answers[name], gold) for gold in right) for name, right in golds.items()}


def answer_metrics(answers: dict[str, str], golds: Golds) -> dict[str, float]:
    """exact_match and f1 of SQuAD 1.1 and MRQA."""
    return {
        "exact_match": _percent(best_of(exact, answers, golds), golds),
        "f1": _percent(best_of(f1, answers, golds), golds),
    }


def unanswerable_metrics(
    answers: dict[str, str], null_odds: dict[str, float], golds: Golds, threshold: float
) -> dict[str, float]:
    """The figures of SQuAD 2.0: over all questions, those with and those without an answer, and at the best thresholds.

    Args:
      answers: one to each question, none empty unless no answer is meant whatever the odds are.
      null_odds: an answer counts as "no answer" where they are above the threshold.
      golds: right answers that have no word after normalizing don't count.
    """
    golds = {name: [gold for gold in right if normalize(gold)] for name, right in golds.items()}
    with_answer = {name for name, right in golds.items() if right}
    rights = {name: right or [""] for name, right in golds.items()}
    metrics = {"exact": exact, "f1": f1_or_no_answer}
    raw = {name: best_of(metric, answers, rights) for name, metric in metrics.items()}
    scores = {name: _with_threshold(of, null_odds, with_answer, threshold) for name, of in raw.items()}
    result: dict[str, float] = {}
    for prefix, chosen in (("", golds), ("HasAns_", with_answer), ("NoAns_", golds.keys() - with_answer)):
        if chosen:
            result |= {prefix + name: _percent(of, chosen) for name, of in scores.items()}
            result[f"{prefix}total"] = len(chosen)
    for name, of in raw.items():
        best, where = best_threshold(of, answers, null_odds, with_answer)
        result |= {f"best_{name}": best, f"best_{name}_thresh": where}
    return result


def best_threshold(
    scores: Scores, answers: dict[str, str], null_odds: dict[str, float], with_answer: Collection[str]
) -> tuple[float, float]:
    """The highest mean score that a threshold on the null odds gives, and the lowest such threshold.

    0.0 stands for the threshold below all odds, where no question is answered.
    """
    total = best = float(len(scores) - len(with_answer))
    where = 0.0
    for name in sorted(null_odds, key=null_odds.get):
        if name in with_answer:
            total += scores[name]
        elif answers[name]:
            total -= 1
        if total > best:
            best, where = total, null_odds[name]
    return 100.0 * best / len(scores), where


def _with_threshold(
    scores: Scores, null_odds: dict[str, float], with_answer: Collection[str], threshold: float
) -> Scores:
    return {
        name: float(name not in with_answer) if null_odds[name] > threshold else score for name, score in scores.items()
    }


def _percent(scores: Scores, chosen: Collection[str]) -> float:
    return 100.0 * sum(score for name, score in scores.items() if name in chosen) / len(chosen)
