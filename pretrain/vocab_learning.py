"""Learns a WordPiece vocabulary: words are counted, then the most frequent pair of neighbouring pieces is merged, again
and again (Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units", algorithm 1).

The same words give the same vocabulary: nothing depends on chance or on the order of counting.
"""

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from model.tokenization import MAX_WORD_LENGTH, SPECIAL_TOKENS, UNK, WordSplitter, is_cjk, is_punctuation, word_pieces
from pretrain.example_building import Counts
from pretrain.parts import Part
from pretrain.text_files import text_file

MAX_CHUNKS = 500_000  # strings between white space that are counted before they are split into words
MAX_WORDS = 2_000_000  # words that are counted; beyond, the rarest are forgotten
MAX_MERGED_WORDS = 500_000  # words that take part in merging: the most frequent

Report = Callable[[Counts], None] | None


# ---------------------------------------------------------------------------------------------------------------------
# Counting


def count_words(
    parts: Sequence[Part], lower: bool, strip_accents: bool, report: Report = None
) -> tuple[Counter, Counts]:
    """How often each word occurs in parts of text files, and what was read."""
    splitter = WordSplitter(lower, strip_accents)
    chunks: Counter[str] = Counter()
    words: Counter[str] = Counter()
    counts = Counts()
    last = time.monotonic()
    for part in parts:
        for pieces in text_file(part.path, None, counts, *part.section):
            for text, _ in pieces:
                chunks.update(splitter.chunks(text))
                if len(chunks) > MAX_CHUNKS:
                    _split_chunks(splitter, chunks, words)
                    if report and time.monotonic() - last > 0.5:
                        last = time.monotonic()
                        report(counts)
    _split_chunks(splitter, chunks, words)
    return words, counts


def _split_chunks(splitter: WordSplitter, chunks: Counter[str], words: Counter[str]) -> None:
    """Moves the counts of chunks to those of their words."""
    for chunk, count in chunks.items():
        for word in splitter.words(chunk):
            if len(word) <= MAX_WORD_LENGTH:
                words[word] += count
    chunks.clear()
    forget_rare(words, MAX_WORDS)


def forget_rare(words: Counter[str], most: int) -> None:
    """Forgets the rarest words until no more than `most` remain."""
    least = 1
    while len(words) > most:
        for word in [word for word, count in words.items() if count <= least]:
            del words[word]
        least *= 2


# ---------------------------------------------------------------------------------------------------------------------
# Learning


def learn_vocabulary(words: Counter[str], size: int, min_frequency: int, num_unused: int) -> list[str]:
    """The pieces of a vocabulary: special ones, [unusedN], the alphabet, merged pieces from frequent to rare.

    Args:
      words: how often each word occurs.
      size: the number of pieces. There are fewer where nothing else occurs `min_frequency` times.
      min_frequency: how often a character must occur, and a pair to be merged. Words with rarer characters are [UNK].
      num_unused: the number of [unusedN].
    """
    vocabulary = dict.fromkeys([*SPECIAL_TOKENS, *(f"[unused{i}]" for i in range(num_unused))])
    room = size - len(vocabulary)
    alphabet = _alphabet(words, min_frequency, room // 2)
    vocabulary |= dict.fromkeys(sorted(alphabet))
    merger = _Merger(words, alphabet)
    while len(vocabulary) < size:
        piece = merger.merge_most_frequent(min_frequency)
        if piece is None:
            break
        vocabulary[piece] = None
    return list(vocabulary)


def _alphabet(words: Counter[str], min_frequency: int, most: int) -> set[str]:
    """The one-character pieces: as the start of a word and, except for marks and ideographs, within one (##)."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for char in word:
            counts[char] += count
    alphabet: set[str] = set()
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        pieces = {char} if is_cjk(char) or is_punctuation(char) else {char, f"##{char}"}
        if count < min_frequency or len(alphabet) + len(pieces) > most:
            break
        alphabet |= pieces
    return alphabet


class _Merger:
    """Words as sequences of pieces, and the counts of neighbouring pairs, kept up to date while pairs are merged."""

    def __init__(self, words: Counter[str], alphabet: set[str]):
        frequent = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:MAX_MERGED_WORDS]
        self._words: list[list[str]] = []
        self._counts: list[int] = []
        self._pairs: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)  # the words that (once) had a pair
        for word, count in frequent:
            pieces = [word[0], *(f"##{char}" for char in word[1:])]
            if len(pieces) > 1 and alphabet.issuperset(pieces):
                for pair in zip(pieces, pieces[1:]):
                    self._pairs[pair] += count
                    self._places[pair].append(len(self._words))
                self._words.append(pieces)
                self._counts.append(count)
        self._queue = [(-count, pair) for pair, count in self._pairs.items()]
        heapq.heapify(self._queue)

    def merge_most_frequent(self, min_frequency: int) -> str | None:
        """Merges the most frequent pair (of equal ones, the first by alphabet) everywhere; gives the merged piece."""
        while self._queue:
            count, pair = heapq.heappop(self._queue)
            now = self._pairs.get(pair, 0)
            if now < min_frequency:
                continue
            if now == -count:
                return self._merge(pair)
            heapq.heappush(self._queue, (-now, pair))  # it was counted before other merges took some of it
        return None

    def _merge(self, pair: tuple[str, str]) -> str:
        merged = pair[0] + pair[1][2:]
        grown: set[tuple[str, str]] = set()
        for place in self._places.pop(pair):
            old = self._words[place]
            new = _merged(old, pair, merged)
            if len(new) == len(old):
                continue  # the pair was here once, and another merge has taken it
            count = self._counts[place]
            for neighbours in zip(old, old[1:]):
                self._pairs[neighbours] -= count
            for neighbours in zip(new, new[1:]):
                self._pairs[neighbours] += count
                if merged in neighbours:
                    self._places[neighbours].append(place)
                    grown.add(neighbours)
            self._words[place] = new
        self._pairs.pop(pair, None)
        for neighbours in grown:
            heapq.heappush(self._queue, (-self._pairs[neighbours], neighbours))
        return merged


def _merged(pieces: list[str], pair: tuple[str, str], merged: str) -> list[str]:
    """The pieces of a word with each occurrence of a pair, from left to right, merged."""
    result: list[str] = []
    i = 0
    while i < len(pieces):
        if pieces[i] == pair[0] and i + 1 < len(pieces) and pieces[i + 1] == pair[1]:
            result.append(merged)
            i += 2
        else:
            result.append(pieces[i])
            i += 1
    return result


def pieces_a_word(words: Counter[str], vocabulary: Sequence[str]) -> tuple[float, float]:
    """How many pieces a word takes on average, and the share of the words that are [UNK]."""
    known = set(vocabulary)
    pieces = unknown = 0
    for word, count in words.items():
        cut = word_pieces(word, known)
        pieces += len(cut) * count
        unknown += count * (cut == [UNK])
    return pieces / words.total(), unknown / words.total()
