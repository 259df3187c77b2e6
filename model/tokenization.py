"""Text to WordPiece ids, exactly as released.

The definition comes first, one character at a time, as it is meant to be read: `split_words` and `word_pieces`.
`FullTokenizer` gives the same answer some twenty times faster: every step before the split on white space looks at
single characters only, so the ids of a text are those of its words one after the other, and words repeat.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable
from itertools import chain

from util import filesystem
from util.errors import UserError

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
MAX_WORD_LENGTH = 200  # characters; a longer word is [UNK]

_CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


# ---------------------------------------------------------------------------------------------------------------------
# Characters


def is_space(char: str) -> bool:
    """Whether a character becomes a space: tab, LF, CR and category Zs."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_deleted(char: str) -> bool:
    """Whether a character is dropped: any category C*, unassigned ones too, and U+FFFD; never tab, LF or CR."""
    return char == "\ufffd" or (char not in "\t\n\r" and unicodedata.category(char).startswith("C"))


def is_cjk(char: str) -> bool:
    """Whether a character is an ideograph, which is a word of its own."""
    return any(first <= ord(char) <= last for first, last in _CJK_RANGES)


def is_punctuation(char: str) -> bool:
    """Whether a character is a word of its own: category P*, or printable ASCII that is no letter, digit or space."""
    if "!" <= char <= "~":
        return not char.isalnum()
    return unicodedata.category(char).startswith("P")


# ---------------------------------------------------------------------------------------------------------------------
# The definition


def split_words(text: str, lower: bool, strip_accents: bool) -> list[str]:
    """Splits a text into words and punctuation marks; `strip_accents` acts only together with `lower`."""
    cleaned = []
    for char in text:
        if is_deleted(char):
            continue
        if is_cjk(char):
            cleaned.append(f" {char} ")
        else:
            cleaned.append(" " if is_space(char) else char)
    words = []
    for word in "".join(cleaned).split():
        if lower:
            word = word.lower()
            if strip_accents:
                word = without_accents(word)
        for char in word:
            words.append(f" {char} " if is_punctuation(char) else char)
        words.append(" ")
    return "".join(words).split()


def without_accents(word: str) -> str:
    """The word in canonical decomposition without its non-spacing marks."""
    return "".join(char for char in unicodedata.normalize("NFD", word) if unicodedata.category(char) != "Mn")


def word_pieces(word: str, vocab: Collection[str]) -> list[str]:
    """Cuts a word into the longest pieces of the vocabulary from left to right; [UNK] where that fails."""
    if len(word) > MAX_WORD_LENGTH:
        return [UNK]
    pieces = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        end = len(word)
        while end > start and prefix + word[start:end] not in vocab:
            end -= 1
        if end == start:
            return [UNK]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces


def tokenize_by_definition(text: str, vocab: Collection[str], lower: bool = True, strip: bool = True) -> list[str]:
    """The pieces of a text, without any short cut."""
    return [piece for word in split_words(text, lower, strip) for piece in word_pieces(word, vocab)]


# ---------------------------------------------------------------------------------------------------------------------
# The vocabulary


class Vocabulary:
    """The pieces of a vocabulary file, one a line, and their ids, counted from 0.

    Attributes:
      path: the file.
      tokens: the pieces in the order of their ids.
      ids: the id of each piece.
      sha256: of the file's bytes.
    """

    def __init__(self, path: str, tokens: list[str], sha256: str):
        self.path, self.tokens, self.sha256 = path, tokens, sha256
        self.ids = {token: i for i, token in enumerate(tokens)}

    def __len__(self) -> int:
        return len(self.tokens)


def load_vocab(path: str, required: Iterable[str] = SPECIAL_TOKENS) -> Vocabulary:
    """Reads a vocabulary file.

    Lines are stripped, as released; blank lines at the end do not count. A `UserError` tells of a file that cannot be
    read, is empty, is not UTF-8, holds a piece twice (the released code takes the last) or lacks a `required` piece.
    """
    if filesystem.isdir(path):
        raise UserError(f"the vocabulary {path} is a folder; expected a text file with one piece a line")
    try:
        with filesystem.open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UserError(f"cannot read the vocabulary {path}: {error.strerror}") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"the vocabulary {path} is not UTF-8 text: line {line}, byte {error.start}") from error
    tokens = [line.strip() for line in text.rstrip().split("\n")]
    if tokens == [""]:
        raise UserError(f"the vocabulary {path} is empty; expected one piece a line")
    _check_unique(path, tokens)
    vocabulary = Vocabulary(path, tokens, hashlib.sha256(content).hexdigest())
    missing = [token for token in required if token not in vocabulary.ids]
    if missing:
        raise UserError(f"the vocabulary {path} lacks {', '.join(missing)}; add a line for each")
    return vocabulary


def _check_unique(path: str, tokens: list[str]) -> None:
    lines: dict[str, int] = {}
    for number, token in enumerate(tokens, 1):
        if token in lines:
            raise UserError(
                f"the vocabulary {path} holds {token!r} twice, in lines {lines[token]} and {number}; remove one "
                "(and mind that this moves the ids of all pieces below it)"
            )
        lines[token] = number


# ---------------------------------------------------------------------------------------------------------------------
# The fast path


class _Memo(dict):
    """Remembers a function of short words; forgets everything when it is full, so that its memory is bounded."""

    def __init__(self, function: Callable, size: int):
        super().__init__()
        self.function, self.size = function, size

    def __missing__(self, word):
        value = self.function(word)
        if len(word) <= 64:
            if len(self) >= self.size:
                self.clear()
            self[word] = value
        return value


class _CharacterTable(dict):
    """What `str.translate` puts in the place of each character, found when the character is first met."""

    def __init__(self, replacement: Callable[[str], str | None]):
        super().__init__()
        self.replacement = replacement

    def __missing__(self, code):
        self[code] = self.replacement(chr(code))
        return self[code]


def _cleaned(char: str) -> str | None:
    if is_deleted(char):
        return None
    if is_cjk(char):
        return f" {char} "
    return " " if is_space(char) else char


_CLEANED = _CharacterTable(_cleaned)
_APART = _CharacterTable(lambda char: f" {char} " if is_punctuation(char) else char)
# What str.split takes for white space although the definition deletes it.
_DELETED_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_PRINTABLE_ASCII_WORDS = re.compile("[A-Za-z0-9]+|[^A-Za-z0-9 ]")


class WordSplitter:
    """`split_words` with tables in the place of the loops over characters."""

    def __init__(self, lower: bool, strip_accents: bool):
        self.lower, self.strip_accents = lower, strip_accents

    def ascii_words(self, text: str) -> list[str] | None:
        """The words of a text of printable ASCII, None for any other text."""
        if not (text.isascii() and text.isprintable()):
            return None
        return _PRINTABLE_ASCII_WORDS.findall(text.lower() if self.lower else text)

    def chunks(self, text: str) -> list[str]:
        """Cuts a text at white space; the words of the text are those of its chunks, one after the other."""
        if not text.isprintable():
            text = _DELETED_SPACES.sub("", text)
        return text.split()

    def words(self, chunk: str) -> list[str]:
        """The words of a chunk (or of any text)."""
        words = self.ascii_words(chunk)
        if words is not None:
            return words
        words = []
        for word in chunk.translate(_CLEANED).split():
            if self.lower:
                word = word.lower()
                if self.strip_accents and not word.isascii():
                    word = without_accents(word)
            words += word.translate(_APART).split()
        return words


class FullTokenizer:
    """Text to pieces and ids, equal to `tokenize_by_definition`.

    Args:
      vocab_file: a vocabulary file, or a `Vocabulary` that was read before.
      do_lower_case: lower-cases the text.
      strip_accents: drops accents; acts only with `do_lower_case`.
      memo_size: how many different words, and strings between white space, are remembered.

    Attributes:
      vocab: piece to id.
      inv_vocab: id to piece.
      long_words: how many words of over 200 characters became [UNK] so far.
      do_lower_case, strip_accents: as passed.
    """

    def __init__(
        self,
        vocab_file: str | Vocabulary,
        do_lower_case: bool = True,
        strip_accents: bool = True,
        memo_size: int = 1 << 16,
    ):
        self.vocabulary = vocab_file if isinstance(vocab_file, Vocabulary) else load_vocab(vocab_file)
        self.vocab = self.vocabulary.ids
        self.inv_vocab = dict(enumerate(self.vocabulary.tokens))
        self.long_words = 0
        self.do_lower_case, self.strip_accents = do_lower_case, strip_accents
        self._splitter = WordSplitter(do_lower_case, strip_accents)
        self._ids_of_word = _Memo(self._encode_word, memo_size)
        self._ids_of_chunk = _Memo(self._encode_chunk, memo_size)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without [CLS] and [SEP]."""
        words = self._splitter.ascii_words(text)
        if words is not None:
            return list(chain.from_iterable(map(self._ids_of_word.__getitem__, words)))
        return list(chain.from_iterable(map(self._ids_of_chunk.__getitem__, self._splitter.chunks(text))))

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a text."""
        return self.convert_ids_to_tokens(self.encode(text))

    def words(self, text: str) -> list[str]:
        """The words of a text before they are cut into pieces; equal to `split_words`."""
        return self._splitter.words(text)

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """The ids of pieces; a KeyError names one that the vocabulary lacks."""
        return [self.vocab[token] for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The pieces of ids; a KeyError names one beyond the vocabulary."""
        return [self.inv_vocab[int(i)] for i in ids]

    def _encode_chunk(self, chunk: str) -> tuple[int, ...]:
        return tuple(chain.from_iterable(map(self._ids_of_word.__getitem__, self._splitter.words(chunk))))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        self.long_words += len(word) > MAX_WORD_LENGTH
        return tuple(self.vocab[piece] for piece in word_pieces(word, self.vocab))
