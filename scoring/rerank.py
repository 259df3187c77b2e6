"""Re-ranking of n-best lists: score = system score + weight * pseudo-log-likelihood (Clark et al., EMNLP 2020).

The weight with the fewest word errors is found exactly: over the weight, each hypothesis' score is a line, the best
hypothesis of a list changes only where the upper envelope of its lines has a corner, and between two corners of any
list nothing changes.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from model.tokenization import FullTokenizer
from pretrain.example_building import Counts
from scoring.lines import read_lines
from scoring.score_rows import DIGITS, total
from util.errors import UserError
from util.files import write_json, write_text, writing
from util.log import say
from util.progress import Progress


class Hypothesis(NamedTuple):
    """What a system offers for one utterance."""

    system: float
    text: str


class HypothesisList(NamedTuple):
    """All that a system offers for one utterance, best first or not."""

    id: str
    hypotheses: list[Hypothesis]
    reference: str | None


class ScoredList(NamedTuple):
    """A list with what can be said of its hypotheses."""

    hypotheses: HypothesisList
    system: np.ndarray  # [n]
    likelihood: np.ndarray  # [n], pseudo-log-likelihoods
    errors: np.ndarray | None  # [n], against the reference


class Choice(NamedTuple):
    """A list and the index of its chosen hypothesis."""

    scored: ScoredList
    index: int


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def read_lists(path: str, references: str | None) -> list[HypothesisList]:
    """The n-best lists of a file, each one's lines together, with their references.

    Raises:
      UserError: a line is not id, score, text; lines of one list lie apart; a reference is missing or there twice.
    """
    known = None if references is None else _read_references(references)
    lists: dict[str, list[Hypothesis]] = {}
    last = None
    for number, line in enumerate(read_lines(path, Counts()), 1):
        if not line.strip():
            continue
        cells = line.split("\t", 2)
        score = _number(cells[1]) if len(cells) == 3 else None
        if len(cells) < 3:
            raise _bad(path, number, f"expected id, system score and text, separated by tabs; got {line[:80]!r}")
        if score is None:
            raise _bad(path, number, f"the system score is no finite number: {cells[1]!r}")
        if cells[0] != last and cells[0] in lists:
            raise _bad(path, number, f"the list {cells[0]!r} goes on after another one; put its lines together")
        last = cells[0]
        lists.setdefault(last, []).append(Hypothesis(score, cells[2]))
    if not lists:
        raise UserError(f"{path} holds no hypothesis")
    if known is not None:
        _check_references(lists, known, references)
    return [HypothesisList(name, found, known and known[name]) for name, found in lists.items()]


def _bad(path: str, number: int, what: str) -> UserError:
    return UserError(f"{path}, line {number}: {what}")


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _read_references(path: str) -> dict[str, str]:
    known: dict[str, str] = {}
    for number, line in enumerate(read_lines(path, Counts()), 1):
        name, tab, text = line.partition("\t")
        if not line.strip():
            continue
        if not tab:
            raise _bad(path, number, f"expected id and text, separated by a tab; got {line[:80]!r}")
        if name in known:
            raise _bad(path, number, f"a second reference of {name!r}")
        known[name] = text
    return known


def _check_references(lists: dict[str, Any], known: dict[str, str], path: str) -> None:
    missing = [name for name in lists if name not in known]
    if missing:
        raise UserError(
            f"--references {path} lacks {len(missing)} of {len(lists)} lists: {', '.join(missing[:5])}"
            + ", ..." * (len(missing) > 5)
        )
    if len(known) > len(lists):
        say(f"note: {len(known) - len(lists)} references have no list")
    if not any(known[name].split() for name in lists):
        raise UserError(f"--references {path} has no word, so there is no error rate")


# ---------------------------------------------------------------------------------------------------------------------
# Scoring


def scored(lists: Sequence[HypothesisList], tokenizer: FullTokenizer, scorer: Any, normalize: bool) -> list[ScoredList]:
    """Pseudo-log-likelihoods of all hypotheses; 0 for one without a token.

    Args:
      scorer: a `scoring.pseudo_likelihood.Scorer`.
    """
    texts = [hypothesis.text for one in lists for hypothesis in one.hypotheses]
    progress = Progress("scoring", len(texts), "hypotheses")
    values: list[float] = []
    for start in range(0, len(texts), scorer.chunk):
        found = scorer([tokenizer.encode(text) for text in texts[start : start + scorer.chunk]])
        values += [total(scores, normalize) or 0.0 for scores in found]
        progress.update(len(values))
    progress.close()
    likelihoods = iter(values)
    return [_scored(one, [next(likelihoods) for _ in one.hypotheses]) for one in lists]


def _scored(one: HypothesisList, likelihood: list[float]) -> ScoredList:
    errors = None
    if one.reference is not None:
        errors = np.array([word_errors(one.reference.split(), h.text.split()) for h in one.hypotheses])
    return ScoredList(one, np.array([h.system for h in one.hypotheses]), np.array(likelihood), errors)


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """The least number of words put in, left out or exchanged that makes one the other."""
    while reference and hypothesis and reference[0] == hypothesis[0]:
        reference, hypothesis = reference[1:], hypothesis[1:]
    while reference and hypothesis and reference[-1] == hypothesis[-1]:
        reference, hypothesis = reference[:-1], hypothesis[:-1]
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference):
        above, row = row, [i + 1]
        for j, other in enumerate(hypothesis):
            row.append(min(above[j] + (word != other), above[j + 1] + 1, row[j] + 1))
    return row[-1]


# ---------------------------------------------------------------------------------------------------------------------
# Choosing


def choose(one: ScoredList, weight: float) -> int:
    """The index of the best hypothesis, the first of equal ones."""
    return int(np.argmax(one.system + weight * one.likelihood))


def chosen(lists: Sequence[ScoredList], weight: float) -> list[Choice]:
    """The best hypothesis of each list."""
    return [Choice(one, choose(one, weight)) for one in lists]


def best_weight(lists: Sequence[ScoredList]) -> float:
    """The weight with the fewest word errors: the middle of the widest range of positive weights that have them.

    It is 0 where no other makes fewer errors than the system alone.
    """
    corners = sorted(corner for one in lists for corner in _corners(one) if corner[1])
    ranges = []  # (errors beyond the first range's, where it begins)
    errors, begin = 0, 0.0
    for place, change in corners:
        if place > begin:
            ranges.append((errors, begin, place))
        errors, begin = errors + change, place
    ranges.append((errors, begin, 2 * begin or 1.0))  # the last one has no end
    fewest = min(errors for errors, _, _ in ranges)
    _, begin, end = max((one for one in ranges if one[0] == fewest), key=lambda one: one[2] - one[1])
    return min(0.0, (begin + end) / 2, key=lambda weight: _errors(chosen(lists, weight)))


def _errors(choices: Sequence[Choice]) -> int:
    return sum(int(choice.scored.errors[choice.index]) for choice in choices)


def _corners(one: ScoredList) -> Iterator[tuple[float, int]]:
    """The weights at which another hypothesis becomes the best, rising, and by how many errors it differs."""
    system, likelihood = one.system, one.likelihood
    now = int(np.lexsort((-np.arange(len(system)), likelihood, system))[-1])  # best just above weight 0
    while (steeper := np.flatnonzero(likelihood > likelihood[now])).size:
        places = (system[now] - system[steeper]) / (likelihood[steeper] - likelihood[now])
        order = np.lexsort((steeper, -likelihood[steeper], places))
        new = int(steeper[order[0]])
        yield float(places[order[0]]), int(one.errors[new] - one.errors[now])
        now = new


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def rates(choices: Sequence[Choice]) -> dict[str, float]:
    """Word error rates: of the system's best, of the chosen ones, of the best that the lists hold; {} unknown."""
    if choices[0].scored.errors is None:
        return {}
    words = sum(len(choice.scored.hypotheses.reference.split()) for choice in choices)
    before, after = _errors(chosen([choice.scored for choice in choices], 0.0)), _errors(choices)
    least = sum(int(choice.scored.errors.min()) for choice in choices)
    return {"wer_system": before / words, "wer_reranked": after / words, "wer_oracle": least / words}


def rows(choices: Sequence[Choice], form: str) -> list[str]:
    """A row a list: id, place in the list from 1, system score, pseudo-log-likelihood, text (in TSV without tabs)."""
    columns = ("id", "place", "system", "pll", "text")
    found = []
    for (one, _, likelihood, _), index in ((choice.scored, choice.index) for choice in choices):
        best = one.hypotheses[index]
        cells = (one.id, index + 1, best.system, round(float(likelihood[index]), DIGITS), best.text)
        found.append(json.dumps(dict(zip(columns, cells)), ensure_ascii=False) if form == "jsonl"
                     else "\t".join(str(cell).replace("\t", " ") for cell in cells))  # fmt: skip
    return found if form == "jsonl" else ["\t".join(columns), *found]


def write(path: str, lines: Sequence[str], notes: dict[str, Any]) -> None:
    """Writes the rows, and beside them (FILE.json) the weight, the error rates and how scores were made."""
    with writing(f"the chosen hypotheses {path}"):
        write_text(path, "".join(f"{line}\n" for line in lines))
        write_json(path + ".json", notes)
    say(f"written to {path} and {path}.json")


def summary(choices: Sequence[Choice], weight: float, tuned: bool) -> str:
    """What came of it, in words."""
    moved = sum(choice.index != choose(choice.scored, 0.0) for choice in choices)
    lines = [f"weight {weight:.6g}{' (fewest word errors on these lists)' * tuned}: {moved} of {len(choices)} lists "
             "have another best hypothesis than the system's"]  # fmt: skip
    if found := rates(choices):
        lines.append(
            f"word error rate: {found['wer_system']:.2%} before, {found['wer_reranked']:.2%} after, "
            f"{found['wer_oracle']:.2%} at best"
        )
    return "\n".join(lines)
