"""Questions to windows over their paragraph, as released, but with each paragraph cut into pieces once.

A window is [CLS] question [SEP] part of the paragraph [SEP]. The definition, word by word, is in `word_by_word`.
"""

from typing import NamedTuple

import numpy as np

from finetune.feature_spec import Features
from finetune.qa.examples import Paragraph, QAExample
from model.tokenization import CLS, SEP, FullTokenizer

WINDOWS = 1 << 32  # more than an example has: its window w has the id example * WINDOWS + w


class WindowSettings(NamedTuple):
    """Sizes in pieces: the hparams of the same names."""

    max_seq_length: int
    max_query_length: int
    doc_stride: int

    @property
    def longest_question(self) -> int:
        """The most pieces of a question; room for one piece of the paragraph is left at least."""
        return min(self.max_query_length, self.max_seq_length - 4)


class Window(NamedTuple):
    """A part of a paragraph: its first piece, and how many there are."""

    start: int
    length: int


class Pieces(NamedTuple):
    """A paragraph in pieces.

    Attributes:
      ids: of the pieces.
      word_of: the number of each piece's word.
      first_of: each word's first piece, and at the end the number of pieces.
    """

    ids: list[int]
    word_of: list[int]
    first_of: list[int]


class Layout(NamedTuple):
    """How an example is cut.

    Attributes:
      question: ids of the question's pieces.
      pieces: the paragraph's.
      windows: the parts, from left to right; none where the paragraph has no pieces.
    """

    question: list[int]
    pieces: Pieces
    windows: list[Window]

    @property
    def offset(self) -> int:
        """The position of a window's first piece of the paragraph: after [CLS], the question and [SEP]."""
        return len(self.question) + 2


def cut(n_pieces: int, room: int, stride: int) -> list[Window]:
    """Windows of at most `room` pieces, `stride` apart, that cover all pieces."""
    windows, start = [], 0
    while start < n_pieces:
        length = min(n_pieces - start, room)
        windows.append(Window(start, length))
        if start + length == n_pieces:
            break
        start += min(length, stride)
    return windows


def best_windows(windows: list[Window]) -> np.ndarray:
    """For each piece, the number of the window that shows most of what is around it ("max context"); int32 [pieces].

    The lesser of the pieces to the left and to the right counts, plus a hundredth of the window's length; the first
    window wins a tie.
    """
    n_pieces = windows[-1].start + windows[-1].length if windows else 0
    best, owner = np.full(n_pieces, -1.0), np.zeros(n_pieces, np.int32)
    for number, (start, length) in enumerate(windows):
        left = np.arange(length)
        score = np.minimum(left, length - 1 - left) + 0.01 * length
        here = slice(start, start + length)
        better = score > best[here]
        owner[here][better] = number
        best[here][better] = score[better]
    return owner


class Featurizer:
    """Examples to features; the last paragraph's pieces are kept for the next question about it.

    Args:
      name: of the task.
      tokenizer: of the model.
      settings: sizes.
    """

    def __init__(self, name: str, tokenizer: FullTokenizer, settings: WindowSettings):
        self.name, self.tokenizer, self.settings = name, tokenizer, settings
        self.cls, self.sep = tokenizer.convert_tokens_to_ids([CLS, SEP])
        self._last: tuple[str, Pieces] | None = None

    def pieces(self, paragraph: Paragraph) -> Pieces:
        """A paragraph in pieces; every different word is cut once."""
        if self._last is None or self._last[0] != paragraph.text:
            words, encode = paragraph.words, self.tokenizer.encode
            ids_of = {word: encode(word) for word in set(words)}
            ids: list[int] = []
            word_of: list[int] = []
            first_of = []
            for number, word in enumerate(words):
                first_of.append(len(ids))
                ids += ids_of[word]
                word_of += [number] * (len(ids) - first_of[-1])
            self._last = paragraph.text, Pieces(ids, word_of, [*first_of, len(ids)])
        return self._last[1]

    def layout(self, example: QAExample) -> Layout:
        """How an example is cut."""
        question = self.tokenizer.encode(example.question)[: self.settings.longest_question]
        pieces = self.pieces(example.paragraph)
        room = self.settings.max_seq_length - len(question) - 3
        return Layout(question, pieces, cut(len(pieces.ids), room, self.settings.doc_stride))

    def features(self, example: QAExample) -> list[Features]:
        """The features of every window; start and end are 0 where the window does not hold the answer, whole."""
        layout = self.layout(example)
        first, last = self._answer(example, layout.pieces) if example.answer else (-1, -1)
        before, offset = [self.cls, *layout.question, self.sep], layout.offset
        ids, name = layout.pieces.ids, self.name
        features: list[Features] = []
        for number, (start, length) in enumerate(layout.windows):
            holds = start <= first and last < start + length
            features.append(
                {
                    "input_ids": [*before, *ids[start : start + length], self.sep],
                    "segment_ids": [0] * offset + [1] * (length + 1),
                    f"{name}_eid": example.eid * WINDOWS + number,
                    f"{name}_start_positions": first - start + offset if holds else 0,
                    f"{name}_end_positions": last - start + offset if holds else 0,
                    f"{name}_is_impossible": int(example.is_impossible),
                }
            )
        return features

    def _answer(self, example: QAExample, pieces: Pieces) -> tuple[int, int]:
        """The first and last piece of the answer: of its words, or of the pieces among theirs that are the answer's.

        The answer "Japan" in the word "Japanese," is one piece where the vocabulary allows it.
        """
        first = pieces.first_of[example.answer.first_word]
        last = pieces.first_of[example.answer.last_word + 1] - 1
        answer = self.tokenizer.encode(example.answer.text)
        if answer:
            for start in range(first, last + 2 - len(answer)):
                if pieces.ids[start : start + len(answer)] == answer:
                    return start, start + len(answer) - 1
        return first, last
