"""Sentences to examples to records: the released rules, what is kept and lost, and bytes that TensorFlow reads."""

import io
import random

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from model.tokenization import SPECIAL_TOKENS, FullTokenizer, Vocabulary
from pretrain.example_building import (
    LONGEST_SENTENCE,
    Counts,
    Example,
    ExampleBuilder,
    ExampleWriter,
    Piece,
    Serializer,
    varint,
)
from util.tfrecords import record_bytes

VOCABULARY = Vocabulary("made up", [*SPECIAL_TOKENS, *(f"w{i}" for i in range(20_000))], "")
PAD, UNK, CLS, SEP, MASK = range(5)

DOCUMENTS = st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=5)


class FixedRandom:
    """Gives the numbers that a test wants drawn."""

    def __init__(self, *numbers: float, length: int = 5):
        self.numbers, self.length = list(numbers), length

    def random(self) -> float:
        return self.numbers.pop(0)

    def randint(self, low: int, high: int) -> int:
        assert low <= self.length <= high
        return self.length


def build(documents, max_length, seed=1, keep=False):
    """All examples of documents that are lists of sentence lengths, their tokens numbered through."""
    counts = Counts()
    builder = ExampleBuilder(max_length, random.Random(seed), keep, counts)
    token = 5
    examples = []
    for document in documents:
        for length in document:
            examples += builder.add_sentence(list(range(token, token + length)))
            token += length
        examples += builder.end_document()
    return examples, counts, token - 5


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, st.integers(5, 40), st.integers(0, 99), st.booleans())
def test_examples_fit_and_no_token_is_lost_unnoticed(documents, max_length, seed, keep):
    examples, counts, total = build(documents, max_length, seed, keep)
    tokens = [token for example in examples for token in example.first + example.second]
    assert len(set(tokens)) == len(tokens)
    assert len(tokens) + counts.lost_tokens == total
    for first, second in examples:
        assert 1 <= len(first) <= max_length - 2
        assert not second or len(first) + len(second) <= max_length - 3
    if keep:
        assert counts.lost_tokens == 0


def test_segments_are_chosen_as_released():
    # target 20, first target (20 - 3) // 2 = 8; draws: one segment?, second segment may go on with the first?, short?
    def example(*draws):
        builder = ExampleBuilder(20, FixedRandom(*draws), False, Counts())
        assert builder.add_sentence([1] * 5) == []
        assert builder.add_sentence([2] * 2) == []  # fits below 8: no draw
        assert builder.add_sentence([3] * 4) == []  # does not
        return builder.add_sentence([4] * 9)[0]

    assert example(0.5, 0.9, 0.5) == Example([1] * 5 + [2] * 2, [3] * 4 + [4] * 6)
    assert example(0.5, 0.4, 0.5) == Example([1] * 5 + [2] * 2 + [3] * 4, [4] * 6)
    assert example(0.09, 0.5) == Example([1] * 5 + [2] * 2 + [3] * 4 + [4] * 7, [])


def test_random_target_carries_over_to_the_next_document():
    builder = ExampleBuilder(20, FixedRandom(0.5, 0.04, 0.5, 0.5, length=6), False, Counts())
    builder.add_sentence([1])
    assert builder.end_document() == [Example([1], [])]
    assert builder.add_sentence([2] * 5) == []
    assert builder.add_sentence([3]) == [Example([2] * 5, [3])]


def test_empty_sentences_change_nothing():
    assert build([[7, 0, 30, 0], [0], [0, 50, 0, 3]], 16)[0] == build([[7, 30], [50, 3]], 16)[0]


def test_one_long_line_is_cut_or_kept():
    examples, counts, _ = build([[1000]], 32)
    assert [len(first) for first, _ in examples] == [30]
    assert counts.lost_tokens == 970
    examples, counts, _ = build([[1000]], 32, keep=True)
    assert [token for first, second in examples for token in first + second] == list(range(5, 1005))


# ---------------------------------------------------------------------------------------------------------------------
# Bytes


@given(st.integers(0, 2**40))
def test_varint(number):
    encoded = varint(number)
    assert sum((byte & 0x7F) << 7 * i for i, byte in enumerate(encoded)) == number
    assert all(byte & 0x80 for byte in encoded[:-1]) and not encoded[-1] & 0x80


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(5, 20_004), max_size=14), st.lists(st.integers(5, 20_004), max_size=15), st.integers(0, 600)
)
def test_serialized_examples_are_what_tensorflow_reads(first, second, more):
    length = 32 + more
    record = Serializer(length, VOCABULARY.ids).serialize(Example(first, second))
    features = tf.train.Example.FromString(record).features.feature
    lists = {name: list(feature.int64_list.value) for name, feature in features.items()}
    ids = [CLS, *first, SEP] + ([*second, SEP] if second else [])
    padding = [0] * (length - len(ids))
    assert lists == {
        "input_ids": ids + padding,
        "input_mask": [1] * len(ids) + padding,
        "segment_ids": [0] * (len(first) + 2) + [1] * (len(second) + 1 if second else 0) + padding,
    }


def test_records_are_what_tensorflow_reads(tmp_path):
    contents = [b"", b"a", bytes(range(256)) * 300]
    (tmp_path / "records").write_bytes(b"".join(map(record_bytes, contents)))
    assert list(tf.data.TFRecordDataset(str(tmp_path / "records")).as_numpy_iterator()) == contents


# ---------------------------------------------------------------------------------------------------------------------
# Files


def write(pieces, blanks_separate_docs=True, keep=False, shards=2, max_length=16):
    """Feeds one file to a writer; gives the counts, the records of each shard, and the number of records of each."""
    counts = Counts()
    tokenizer = FullTokenizer(VOCABULARY)
    files = [io.BytesIO() for _ in range(shards)]
    rng = random.Random(5)
    writer = ExampleWriter(tokenizer, files, max_length, blanks_separate_docs, keep, rng, counts)
    writer.add_file(pieces)
    return counts, [file.getvalue() for file in files], writer.records


def words(number):
    return " ".join(f"w{i}" for i in range(number))


def test_blank_lines_end_documents_if_asked():
    pieces = [Piece(text, True) for text in ("w1 w2", "", " \t", "w3", "\x1f", "w4", "\u200b", "w5")]
    counts, _, records = write(pieces)
    assert (counts.documents, counts.examples, records) == (3, 3, [2, 1])
    assert counts.sentences == 5  # a line whose characters are all deleted is no blank line
    assert counts.tokens == 5 + 3 * 2
    counts, _, records = write(pieces, blanks_separate_docs=False)
    assert (counts.documents, counts.examples, records) == (1, 1, [1, 0])


def test_unknown_tokens_are_counted():
    counts, _, _ = write([Piece("w1 nothing w2 " + "w" * 201, True)])
    assert (counts.unknown_tokens, counts.text_tokens, counts.long_words) == (2, 4, 1)


@pytest.mark.parametrize("keep", [False, True])
def test_a_line_in_pieces_is_one_line(keep):
    whole = [Piece(words(200), True), Piece("w9", True)]
    parts = [
        Piece(words(100) + " ", False),
        *(Piece(f"w{i}", False) for i in range(100, 200)),
        Piece("", True),
        whole[1],
    ]
    counts, records, _ = write(parts, keep=keep)
    assert counts.text_tokens == 201
    assert counts.documents == 1
    if keep:
        assert counts.lost_tokens == 0
        assert counts.tokens == 201 + sum(write(parts, keep=True)[2]) * 2 + two_segment_examples(records)
    else:
        expected, expected_records, _ = write(whole)
        assert records == expected_records
        assert counts == expected


def two_segment_examples(records):
    """The number of examples with a second segment in shards as bytes."""
    number = 0
    for content in records:
        while content:
            length = int.from_bytes(content[:8], "little")
            features = tf.train.Example.FromString(content[12 : 12 + length]).features.feature
            number += any(features["segment_ids"].int64_list.value)
            content = content[16 + length :]
    return number


def test_the_memory_of_a_long_line_is_bounded(monkeypatch):
    lengths = []
    monkeypatch.setattr(ExampleBuilder, "add_sentence", lambda self, ids: lengths.append(len(ids)) or [])
    piece = Piece(words(10_000), False)
    counts, _, _ = write([piece] * 50 + [Piece("", True)])
    assert lengths == [LONGEST_SENTENCE]
    assert counts.text_tokens == 500_000
    assert counts.lost_tokens == 500_000 - LONGEST_SENTENCE
