"""Sentences to examples to TFRecords, as released.

Nothing here knows of commands, processes or folders: an `ExampleBuilder` with a `random.Random` of its own turns
sentences into examples, a `Serializer` makes bytes of one, and `ExampleWriter` feeds files through both. One
`random.Random(seed)` gives the records of the released code seeded alike.
"""

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from model.tokenization import CLS, SEP, UNK, FullTokenizer
from util.tfrecords import record_bytes

LEAST_SEQ_LENGTH = 5  # the shortest random target
LONGEST_SEQ_LENGTH = 16_384  # attention needs memory with the square of it
LONGEST_SENTENCE = 200_000  # tokens that are held of one line; beyond 100,000 no decision depends on them


class Piece(NamedTuple):
    """A line of text, or a part of a very long one; `ends` tells whether its line ends here."""

    text: str
    ends: bool


class Example(NamedTuple):
    """The token ids of one example's segments, without [CLS] and [SEP]; the second may be empty."""

    first: list[int]
    second: list[int]


@dataclasses.dataclass
class Counts:
    """What a builder has read, written and lost so far."""

    bytes_read: int = 0  # of the input files as they lie on the disk
    files: int = 0
    skipped_files: int = 0  # members of archives that are no text
    documents: int = 0
    sentences: int = 0
    text_tokens: int = 0
    lost_tokens: int = 0  # cut from the end of an example's segments
    examples: int = 0
    tokens: int = 0  # in the examples: [CLS] and [SEP] count, padding does not
    unknown_tokens: int = 0  # [UNK] in the examples
    invalid_bytes: int = 0
    long_lines: int = 0  # handed on in pieces
    long_words: int = 0  # over 200 characters: [UNK]

    def add(self, other: "Counts") -> None:
        """Adds the counts of another job."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


# ---------------------------------------------------------------------------------------------------------------------
# Sentences to examples


class ExampleBuilder:
    """Collects sentences until an example is full.

    Args:
      max_length: length of an example, [CLS] and [SEP] included.
      rng: every decision is drawn from it, in the released order.
      keep_long_lines: what is cut from an example begins the next one of its document, instead of being lost.
      counts: where the lost tokens are counted.
    """

    def __init__(self, max_length: int, rng: random.Random, keep_long_lines: bool, counts: Counts):
        self._max_length, self._rng, self._keep, self._counts = max_length, rng, keep_long_lines, counts
        self._target_length = max_length
        self._sentences: list[list[int]] = []
        self._length = 0

    def add_sentence(self, ids: list[int]) -> list[Example]:
        """Adds a sentence; gives the example that it fills (several only with `keep_long_lines`)."""
        self._sentences.append(ids)
        self._length += len(ids)
        examples = []
        while self._length >= self._target_length:
            examples.append(self._create_example())
        return examples

    def end_document(self) -> list[Example]:
        """Gives the example that was begun, if any."""
        examples = []
        while self._length:
            examples.append(self._create_example())
        return examples

    def _create_example(self) -> Example:
        first, second = self._choose_segments()
        room = self._max_length - 2
        first, first_rest = first[:room], first[room:]
        room = max(0, self._max_length - len(first) - 3)
        second, second_rest = second[:room], second[room:]
        if self._keep:
            self._sentences = [rest for rest in (first_rest, second_rest) if rest]
            self._length = len(first_rest) + len(second_rest)
        else:
            self._sentences = []
            self._length = 0
            self._counts.lost_tokens += len(first_rest) + len(second_rest)
        self._target_length = self._max_length
        if self._rng.random() < 0.05:
            self._target_length = self._rng.randint(5, self._max_length)
        return Example(first, second)

    def _choose_segments(self) -> tuple[list[int], list[int]]:
        """Deals the sentences out to the two segments."""
        single = self._rng.random() < 0.1
        first_target = 100_000 if single else (self._target_length - 3) // 2
        first: list[int] = []
        second: list[int] = []
        for sentence in self._sentences:
            if (
                not first
                or len(first) + len(sentence) < first_target
                or (not second and len(first) < first_target and self._rng.random() < 0.5)
            ):
                first += sentence
            else:
                second += sentence
        return first, second


# ---------------------------------------------------------------------------------------------------------------------
# Examples to bytes


def varint(number: int) -> bytes:
    """A non-negative number in the variable-length encoding of protocol buffers."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return bytes((number << 3 | 2,)) + varint(len(payload)) + payload


class Serializer:
    """Makes the bytes of a tf.train.Example with `input_ids`, `input_mask` and `segment_ids`, padded with 0.

    Written out by hand: importing TensorFlow costs more than building ten megabytes of text.
    """

    def __init__(self, max_length: int, vocab: dict[str, int]):
        self._max_length = max_length
        self._cls, self._sep = vocab[CLS], vocab[SEP]
        self._varints = [varint(i) for i in range(max(vocab.values()) + 1)]
        masks = (b"\1" * real + bytes(max_length - real) for real in range(max_length + 1))
        self._masks = [_feature(b"input_mask", mask) for mask in masks]
        zeros = bytes(max_length)
        self._segments_head = _feature(b"segment_ids", zeros).removesuffix(zeros)

    def ids(self, example: Example) -> list[int]:
        """[CLS] first [SEP] and, unless the second segment is empty, second [SEP]."""
        ids = [self._cls, *example.first, self._sep]
        if example.second:
            ids += [*example.second, self._sep]
        return ids

    def serialize(self, example: Example) -> bytes:
        """The bytes of an example."""
        ids = self.ids(example)
        first = len(example.first) + 2
        padding = bytes(self._max_length - len(ids))
        features = (
            _feature(b"input_ids", b"".join(map(self._varints.__getitem__, ids)) + padding),
            self._masks[len(ids)],
            self._segments_head,
            bytes(first),
            b"\1" * (len(ids) - first),
            padding,
        )
        return _field(1, b"".join(features))


def _feature(name: bytes, numbers: bytes) -> bytes:
    """An entry of the map of features: a name and a packed list of int64."""
    return _field(1, _field(1, name) + _field(2, _field(3, _field(1, numbers))))


# ---------------------------------------------------------------------------------------------------------------------
# Files of lines to shards


class ExampleWriter:
    """Writes the examples of files of lines to shards: example j to shard j modulo their number.

    Attributes:
      records: the number of records in each shard.
    """

    def __init__(
        self,
        tokenizer: FullTokenizer,
        shards: Sequence[BinaryIO],
        max_seq_length: int,
        blanks_separate_docs: bool,
        keep_long_lines: bool,
        rng: random.Random,
        counts: Counts,
    ):
        self._tokenizer, self._shards, self._counts = tokenizer, shards, counts
        self._blanks_separate_docs, self._keep_long_lines = blanks_separate_docs, keep_long_lines
        self._new_builder = lambda: ExampleBuilder(max_seq_length, rng, keep_long_lines, counts)
        self._builder = self._new_builder()
        self._serializer = Serializer(max_seq_length, tokenizer.vocab)
        self._unknown = tokenizer.vocab[UNK]
        self._in_document = False
        self.records = [0] * len(shards)

    def forget(self) -> None:
        """Carries nothing over from the files before; the random numbers are the caller's to seed anew."""
        self._builder = self._new_builder()

    def add_file(self, pieces: Iterable[Piece]) -> None:
        """Writes the examples of a file, whose end ends the last of them."""
        for sentence in self._read_sentences(pieces):
            if sentence is not None:
                self._counts.sentences += 1
                self._counts.text_tokens += len(sentence)
                self._counts.documents += not self._in_document
                self._in_document = True
                for example in self._builder.add_sentence(sentence):
                    self._write(example)
            elif self._blanks_separate_docs:
                self._end_document()
        self._end_document()
        self._counts.long_words = self._tokenizer.long_words

    def _end_document(self) -> None:
        self._in_document = False
        for example in self._builder.end_document():
            self._write(example)

    def _read_sentences(self, pieces: Iterable[Piece]) -> Iterator[list[int] | None]:
        """The ids of each line, None for a blank one."""
        begun: list[int] = []
        continues = False
        for text, ends in pieces:
            ids = self._tokenizer.encode(text)
            if ends and not continues:
                yield ids if ids or text.strip() else None
            elif self._keep_long_lines:
                yield ids
            else:
                room = LONGEST_SENTENCE - len(begun)
                begun += ids[:room]
                self._counts.text_tokens += len(ids[room:])
                self._counts.lost_tokens += len(ids[room:])
                if ends:
                    yield begun
                    begun = []
            continues = not ends

    def _write(self, example: Example) -> None:
        shard = self._counts.examples % len(self._shards)
        self._shards[shard].write(record_bytes(self._serializer.serialize(example)))
        self.records[shard] += 1
        self._counts.examples += 1
        self._counts.tokens += len(example.first) + len(example.second) + (3 if example.second else 2)
        self._counts.unknown_tokens += example.first.count(self._unknown) + example.second.count(self._unknown)
