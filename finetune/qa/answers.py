"""Outputs of a QA head to answers: the best span of all windows, found again in the original text; as released."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from configure_finetuning import FinetuningConfig
from finetune.qa.examples import QAExample
from finetune.qa.windows import WINDOWS, Featurizer, Layout, best_windows
from finetune.task import Outputs
from model.tokenization import FullTokenizer

NOTHING = "empty"  # the answer where no span is possible
NO_SCORE = 1000000.0  # the null odds of a paragraph without pieces


class Spans(NamedTuple):
    """Spans of a paragraph that may be the answer: first and last pieces, and float32 scores of both."""

    first: np.ndarray
    last: np.ndarray
    first_score: np.ndarray
    last_score: np.ndarray


class Answered(NamedTuple):
    """An answer and its score; the score's two parts are kept because null odds subtract one after the other."""

    text: str
    first_score: np.float32
    last_score: np.float32


class Prediction(NamedTuple):
    """The answer to a question, never empty, and the odds that it has none; these are None where all have one."""

    text: str
    null_odds: float | None


def project(text: str, original: str, tokenizer: FullTokenizer) -> str:
    """The part of the original text whose words, as the tokenizer splits them, hold `text`.

    The whole original where `text` is not found in it, or where lower-casing and splitting add or drop characters.
    """
    split = " ".join(tokenizer.words(original))
    place = split.find(text)
    if place < 0 or not text:
        return original
    there = [i for i, char in enumerate(original) if char != " "]
    first = place - split.count(" ", 0, place)  # counted without spaces
    last = first + len(text) - text.count(" ") - 1
    if len(there) != len(split) - split.count(" ") or text[0] == " " or text[-1] == " ":
        return original
    return original[there[first] : there[last] + 1]


class AnswerCollector:
    """Takes the outputs of windows in any order, then gives each example's answer.

    Args:
      featurizer: cut the examples into windows.
      config: joint_prediction, n_best_size, max_answer_length and answerable_classifier are used.
      unanswerable: give null odds.
      examples: of one split, in order.
    """

    def __init__(self, featurizer: Featurizer, config: FinetuningConfig, unanswerable: bool, examples: list[QAExample]):
        self.featurizer, self.config, self.unanswerable, self.examples = featurizer, config, unanswerable, examples
        self._spans: dict[int, Spans] = {}  # by the window's eid
        self._null_scores: dict[int, np.float32] = {}
        self._layout: tuple[int, Layout, np.ndarray] | None = None  # of the last example

    def update(self, eid: int, outputs: Outputs) -> None:
        """Takes the outputs for one window."""
        number, window = divmod(eid, WINDOWS)
        if self._layout is None or self._layout[0] != number:
            layout = self.featurizer.layout(self.examples[number])
            self._layout = number, layout, best_windows(layout.windows)
        self._spans[eid] = self._possible_spans(window, outputs)
        if self.unanswerable:
            self._null_scores[eid] = self._null_score(outputs)

    def _possible_spans(self, window: int, outputs: Outputs) -> Spans:
        """All spans that begin where this window shows most context, in the order of starts, then of ends."""
        _, layout, owner = self._layout
        if self.config.joint_prediction:
            starts, start_scores = outputs["start_top_index"], outputs["start_top_log_probs"]
            ends, end_scores = outputs["end_top_index"], outputs["end_top_log_probs"]
        else:
            starts, start_scores = _highest(outputs["start_logits"], self.config.n_best_size)
            ends, end_scores = _highest(outputs["end_logits"], self.config.n_best_size)
        start, length = layout.windows[window]
        firsts = np.asarray(starts, np.int64)[:, None] - layout.offset  # counted in the window
        lasts = np.asarray(ends, np.int64) - layout.offset
        firsts, lasts = np.broadcast_arrays(firsts, lasts)
        possible = (firsts >= 0) & (lasts >= firsts) & (lasts < length)
        possible &= lasts - firsts < self.config.max_answer_length
        possible &= owner[start + np.clip(firsts, 0, length - 1)] == window
        first_scores = np.broadcast_to(np.asarray(start_scores, np.float32)[:, None], possible.shape)
        last_scores = np.broadcast_to(np.asarray(end_scores, np.float32), possible.shape)
        return Spans(firsts[possible] + start, lasts[possible] + start, first_scores[possible], last_scores[possible])

    def _null_score(self, outputs: Outputs) -> np.float32:
        if self.config.answerable_classifier:
            return np.float32(outputs["answerable_logit"])
        end = outputs.get("end_logits")  # the joint head has none in evaluation
        return np.float32(outputs["start_logits"][0]) + np.float32(0.0 if end is None else end[0])

    def predictions(self) -> Iterator[tuple[QAExample, Prediction]]:
        """Each example with its answer, in order; every window must have been taken."""
        for example in self.examples:
            layout = self.featurizer.layout(example)
            eids = [example.eid * WINDOWS + window for window in range(len(layout.windows))]
            found = next(self.ranked(example, layout), Answered(NOTHING, np.float32(0), np.float32(0)))
            null_odds = None
            if self.unanswerable:
                score = min((self._null_scores[eid] for eid in eids), default=np.float32(NO_SCORE))
                if not self.config.answerable_classifier:
                    score = score - found.first_score - found.last_score
                null_odds = float(score)
            yield example, Prediction(found.text, null_odds)

    def ranked(self, example: QAExample, layout: Layout) -> Iterator[Answered]:
        """The different answers to a question, the best first; of equal ones the first window's come first."""
        windows = [self._spans[example.eid * WINDOWS + window] for window in range(len(layout.windows))]
        if not windows:
            return
        spans = Spans(*map(np.concatenate, zip(*windows)))
        seen = set()
        for i in np.argsort(-(spans.first_score + spans.last_score), kind="stable"):
            text = self._text(example, layout, int(spans.first[i]), int(spans.last[i]))
            if text not in seen:
                seen.add(text)
                yield Answered(text, spans.first_score[i], spans.last_score[i])

    def _text(self, example: QAExample, layout: Layout, first: int, last: int) -> str:
        """A span of pieces as it stands in the paragraph."""
        tokenizer, pieces = self.featurizer.tokenizer, layout.pieces
        tokens = " ".join(tokenizer.convert_ids_to_tokens(pieces.ids[first : last + 1]))
        text = " ".join(tokens.replace(" ##", "").replace("##", "").split())
        words = example.paragraph.words[pieces.word_of[first] : pieces.word_of[last] + 1]
        return project(text, " ".join(words), tokenizer)


def _highest(logits: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and values of the highest logits; of equal ones the first come first."""
    logits = np.asarray(logits, np.float32)
    order = np.argsort(-logits, kind="stable")[:number]
    return order, logits[order]
