"""Features of question answering by their definition: every word of every question's paragraph anew, as released.

`windows` gives the same features several times faster; tests and a benchmark compare the two.
"""

from collections.abc import Callable
from functools import partial

from finetune.feature_spec import Features
from finetune.qa.examples import QAExample
from finetune.qa.windows import WINDOWS, Featurizer
from model.tokenization import CLS, SEP, tokenize_by_definition

_WHITE_SPACE = " \t\r\n\u202f"


def split_at_white_space(text: str) -> tuple[list[str], list[int]]:
    """The words of a text, and for each character the number of the word that it belongs to or follows."""
    words: list[str] = []
    word_at: list[int] = []
    outside = True
    for char in text:
        if char in _WHITE_SPACE:
            outside = True
        else:
            if outside:
                words.append("")
            words[-1] += char
            outside = False
        word_at.append(len(words) - 1)
    return words, word_at


def featurize_word_by_word(
    featurizer: Featurizer, example: QAExample, tokenize: Callable[[str], list[str]] | None = None
) -> list[Features]:
    """The features of every window of an example, equal to `featurizer.features(example)`.

    Args:
      featurizer: says the task's name, the tokenizer and the sizes.
      tokenize: gives the pieces of a text; by default the tokenizer's definition, without any memory.
    """
    name, tokenizer, settings = featurizer.name, featurizer.tokenizer, featurizer.settings
    if tokenize is None:
        tokenize = partial(
            tokenize_by_definition, vocab=tokenizer.vocab, lower=tokenizer.do_lower_case, strip=tokenizer.strip_accents
        )
    question = tokenize(example.question)[: settings.longest_question]
    words, _ = split_at_white_space(example.paragraph.text)
    pieces: list[str] = []
    first_of_word: list[int] = []
    for word in words:
        first_of_word.append(len(pieces))
        for piece in tokenize(word):
            pieces.append(piece)
    first, last = _answer(example, pieces, first_of_word, tokenize)
    offset = len(question) + 2
    windows: list[Features] = []
    for start, length in window_starts(len(pieces), settings.max_seq_length - len(question) - 3, settings.doc_stride):
        tokens = [CLS] + question + [SEP] + pieces[start : start + length] + [SEP]
        holds = first >= start and last <= start + length - 1
        windows.append(
            {
                "input_ids": [tokenizer.vocab[token] for token in tokens],
                "segment_ids": [0 if i < offset else 1 for i in range(len(tokens))],
                f"{name}_eid": example.eid * WINDOWS + len(windows),
                f"{name}_start_positions": first - start + offset if holds else 0,
                f"{name}_end_positions": last - start + offset if holds else 0,
                f"{name}_is_impossible": int(example.is_impossible),
            }
        )
    return windows


def _answer(
    example: QAExample, pieces: list[str], first_of_word: list[int], tokenize: Callable[[str], list[str]]
) -> tuple[int, int]:
    """The first and last piece of the answer: those of its words, narrowed to the answer's own where they match."""
    if not example.answer:
        return -1, -1
    _, first_word, last_word = example.answer
    first = first_of_word[first_word]
    last = (len(pieces) if last_word + 1 == len(first_of_word) else first_of_word[last_word + 1]) - 1
    answer = tokenize(example.answer.text)
    for start in range(first, last + 1):
        for end in range(last, start - 1, -1):
            if pieces[start : end + 1] == answer:
                return start, end
    return first, last


def window_starts(n_pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """First piece and length of the windows."""
    windows = []
    start = 0
    while start < n_pieces:
        windows.append((start, min(room, n_pieces - start)))
        if start + room >= n_pieces:
            break
        start += min(stride, room)
    return windows


def is_max_context(windows: list[tuple[int, int]], number: int, piece: int) -> bool:
    """Whether a window is the one that shows most of what is around a piece."""
    scores = [
        min(piece - start, start + length - 1 - piece) + 0.01 * length if start <= piece < start + length else -1.0
        for start, length in windows
    ]
    return scores.index(max(scores)) == number
