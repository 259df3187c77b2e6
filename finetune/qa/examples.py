"""A question about a paragraph, and the answer that is trained on; as released, to the character."""

import re
from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple

# White space between the words of a paragraph, exactly as released; any other white space is part of a word.
_WORD = re.compile("[^ \t\r\n\u202f]+")


class Paragraph:
    """A text that is asked about.

    Attributes:
      text: as in the file.
      words: the text split at space, tab, CR, LF and U+202F.
      starts: where in the text each word begins.
    """

    def __init__(self, text: str):
        self.text = text

    @cached_property
    def words(self) -> list[str]:
        return _WORD.findall(self.text)

    @cached_property
    def starts(self) -> list[int]:
        return [word.start() for word in _WORD.finditer(self.text)]

    def word_at(self, position: int) -> int:
        """The number of the word that a character belongs to or follows; -1 before the first word."""
        return bisect_right(self.starts, position) - 1


class Answer(NamedTuple):
    """An answer: its text, and the numbers of the paragraph's first and last words that hold it."""

    text: str
    first_word: int
    last_word: int


class QAExample(NamedTuple):
    """A question.

    Attributes:
      eid: its number among the examples of its split.
      id: what the file calls it; None where it has no name.
      answer: what is trained on; None for an unanswerable question, and in other splits than the training one.
      is_impossible: it is trained on as a question without an answer; false in other splits.
      golds: all answers that count as right, for evaluation; None where the file does not tell.
    """

    eid: int
    id: str | None
    question: str
    paragraph: Paragraph
    answer: Answer | None = None
    is_impossible: bool = False
    golds: tuple[str, ...] | None = None


class AnswerNotFound(Exception):
    """An answer that is not in the text where it should be; says why."""


def locate(paragraph: Paragraph, text: str, offset: int) -> Answer:
    """The words that hold an answer, which begins at a character of the paragraph's text.

    Raises:
      AnswerNotFound: it is not in these words, whatever its case, or it goes beyond the text.
    """
    if offset < 0 or offset + len(text) > len(paragraph.text) or offset >= len(paragraph.text):
        raise AnswerNotFound(f"{text[:60]!r} at {offset} is beyond the text's {len(paragraph.text)} characters")
    first, last = paragraph.word_at(offset), paragraph.word_at(offset + len(text) - 1)
    there = " ".join(paragraph.words[first : last + 1]) if first >= 0 else ""
    if not text.strip() or " ".join(text.split()).lower() not in there.lower():
        raise AnswerNotFound(f"{text[:60]!r} is looked for in {there[:60]!r}")
    return Answer(text, first, last)
