"""Pieces of a text with the characters that they stand for, and [MASK] as one token where it is written in the text."""

from collections.abc import Iterator
from typing import NamedTuple

from model.tokenization import (
    MASK,
    UNK,
    FullTokenizer,
    is_cjk,
    is_deleted,
    is_punctuation,
    is_space,
    without_accents,
    word_pieces,
)

Character = tuple[str, int, int]  # what a character became, and where it stood in the text: from, to


class Token(NamedTuple):
    """A piece and its place: text[start:end]."""

    piece: str
    id: int
    start: int
    end: int

    @property
    def is_mask(self) -> bool:
        """Whether it is a place to be filled in."""
        return self.piece == MASK


class SpanTokenizer:
    """Text to tokens with their places; the pieces are those of `FullTokenizer`, but for [MASK].

    Args:
      tokenizer: has the vocabulary.
      lower, strip_accents: how it takes text.
    """

    def __init__(self, tokenizer: FullTokenizer, lower: bool, strip_accents: bool):
        self._ids, self._lower, self._strip = tokenizer.vocab, lower, lower and strip_accents

    def __call__(self, text: str) -> list[Token]:
        tokens, at = [], 0
        while (found := text.find(MASK, at)) >= 0:
            tokens += self._tokens(text, at, found)
            at = found + len(MASK)
            tokens.append(Token(MASK, self._ids[MASK], found, at))
        return tokens + self._tokens(text, at, len(text))

    def _tokens(self, text: str, start: int, end: int) -> list[Token]:
        return [token for chunk in _chunks(text, start, end) for word in self._words(chunk)
                for token in self._pieces(word)]  # fmt: skip

    def _words(self, chunk: list[Character]) -> Iterator[list[Character]]:
        """The words of what stands between white space, each character with its place."""
        word: list[Character] = []
        for character in self._normalized(chunk):
            if is_punctuation(character[0]):
                if word:
                    yield word
                yield [character]
                word = []
            else:
                word.append(character)
        if word:
            yield word

    def _normalized(self, chunk: list[Character]) -> list[Character]:
        """Lower case and accents; where characters do not align, each gets the place of the whole chunk."""
        whole = self._change("".join(char for char, _, _ in chunk))
        changed = [(new, start, end) for char, start, end in chunk for new in self._change(char)]
        if len(changed) != len(whole):
            return [(char, chunk[0][1], chunk[-1][2]) for char in whole]
        return [(char, start, end) for char, (_, start, end) in zip(whole, changed)]

    def _change(self, text: str) -> str:
        text = text.lower() if self._lower else text
        return without_accents(text) if self._strip else text

    def _pieces(self, word: list[Character]) -> Iterator[Token]:
        at = 0
        for piece in word_pieces("".join(char for char, _, _ in word), self._ids):
            size = len(word) if piece == UNK else len(piece.removeprefix("##") if at else piece)
            yield Token(piece, self._ids[piece], word[at][1], word[at + size - 1][2])
            at += size


def _chunks(text: str, start: int, end: int) -> Iterator[list[Character]]:
    """What stands between white space, an ideograph by itself; deleted characters are left out."""
    chunk: list[Character] = []
    for i in range(start, end):
        char = text[i]
        if is_deleted(char):
            continue
        if not (is_space(char) or is_cjk(char)):
            chunk.append((char, i, i + 1))
            continue
        if chunk:
            yield chunk
        if is_cjk(char):
            yield [(char, i, i + 1)]
        chunk = []
    if chunk:
        yield chunk
