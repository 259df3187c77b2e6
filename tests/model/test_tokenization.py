"""The tokenizer: its definition piece by piece, the fast path against it, and vocabularies that cannot be used."""

import itertools
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.tokenization import (
    MAX_WORD_LENGTH,
    SPECIAL_TOKENS,
    FullTokenizer,
    Vocabulary,
    WordSplitter,
    load_vocab,
    split_words,
    tokenize_by_definition,
    word_pieces,
)
from util.errors import UserError

PIECES = [*SPECIAL_TOKENS, "un", "##aff", "##able", "able", "a", "##a", "b", "##b", "é", "e", "##e", "σ", "##ς", "##σ"]
PIECES += list("!'.,-$[]…“”’0123456789") + ["日", "本", "the", "##s", "ß", "##ss", "i", "##i", "##\u0307", "A", "##A"]
VOCABULARY = Vocabulary("made up", PIECES, "")
SETTINGS = list(itertools.product((True, False), repeat=2))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello,  World!", ["hello", ",", "world", "!"]),
        ("naïve Élan", ["naive", "elan"]),
        ("don't", ["don", "'", "t"]),
        ("日本go", ["日", "本", "go"]),
        ("a\x00b\u200bc\ufffdd\x85e", ["abcde"]),  # control, format and replacement characters are deleted
        ("a\x1cb\x0bc", ["abc"]),  # str.split would split here
        ("a\tb\rc\u00a0d\u2028e", ["a", "b", "c", "d", "e"]),
        ("ΑΣ ΑΣΑ", ["ας", "ασα"]),  # the case of a sigma depends on its place
        ("a$b^c`d", ["a", "$", "b", "^", "c", "`", "d"]),
        ("\u0301", []),  # an accent alone
        ("[MASK]", ["[", "mask", "]"]),
        ("x\u0378y", ["xy"]),  # unassigned
        ("", []),
    ],
)
def test_split_words(text, words):
    assert split_words(text, lower=True, strip_accents=True) == words


def test_accents_are_stripped_only_with_lower_case():
    assert split_words("Élan", lower=False, strip_accents=True) == ["Élan"]
    assert split_words("Élan", lower=True, strip_accents=False) == ["élan"]


def test_word_pieces():
    assert word_pieces("unaffable", VOCABULARY.ids) == ["un", "##aff", "##able"]
    assert word_pieces("unaffablex", VOCABULARY.ids) == ["[UNK]"]
    assert word_pieces("a" * MAX_WORD_LENGTH, VOCABULARY.ids) == ["a"] + ["##a"] * (MAX_WORD_LENGTH - 1)
    assert word_pieces("a" * (MAX_WORD_LENGTH + 1), VOCABULARY.ids) == ["[UNK]"]


ALPHABET = st.one_of(
    st.sampled_from(
        "abesAÉéΣσßİı'.,$[]…日本\t\r\x00\x0b\x0c\x1c\x1f\x85\u00a0\u00ad\u0301\u200b\u2028\u3000\ufeff\ufffd ½™ﬁ\u0378"
    ),
    st.characters(max_codepoint=0x3FF),
    st.characters(max_codepoint=sys.maxunicode, exclude_categories=()),
)


@settings(max_examples=300, deadline=None)
@given(st.text(ALPHABET, max_size=60), st.sampled_from(SETTINGS))
def test_fast_path_equals_the_definition(text, case):
    tokenizer = FullTokenizer(VOCABULARY, *case, memo_size=3)
    expected = tokenize_by_definition(text, VOCABULARY.ids, *case)
    assert tokenizer.tokenize(text) == expected
    assert tokenizer.tokenize(text) == expected  # from memory
    assert WordSplitter(*case).words(text) == split_words(text, *case)


@pytest.mark.parametrize("case", SETTINGS)
def test_fast_path_treats_characters_of_all_planes_as_the_definition_does(case):
    tokenizer = FullTokenizer(VOCABULARY, *case)
    for start in range(0, sys.maxunicode + 1, 251):
        text = " ".join(f"a{chr(code)}b" for code in range(start, min(start + 251, sys.maxunicode + 1), 7))
        assert tokenizer.tokenize(text) == tokenize_by_definition(text, VOCABULARY.ids, *case)


def test_memory_is_bounded():
    tokenizer = FullTokenizer(VOCABULARY, memo_size=100)
    for i in range(1000):
        tokenizer.encode(f"{i}a {i}é")
        tokenizer.encode("…" + "a" * i)
    assert len(tokenizer._ids_of_word) <= 100
    assert len(tokenizer._ids_of_chunk) <= 100
    assert max(map(len, tokenizer._ids_of_chunk)) <= 64


def test_long_words_are_counted():
    tokenizer = FullTokenizer(VOCABULARY)
    long = "a" * 201
    assert tokenizer.tokenize(f"{long} a {long} é{long}") == ["[UNK]", "a", "[UNK]", "[UNK]"]
    assert tokenizer.tokenize(long) == ["[UNK]"]
    assert tokenizer.long_words == 4


def test_conversions():
    tokenizer = FullTokenizer(VOCABULARY)
    ids = tokenizer.convert_tokens_to_ids(["un", "##aff", "[CLS]"])
    assert ids == [5, 6, 2]
    assert tokenizer.convert_ids_to_tokens(ids) == ["un", "##aff", "[CLS]"]
    assert tokenizer.encode("unaff") == [5, 6]
    assert [tokenizer.inv_vocab[i] for i in tokenizer.vocab.values()] == PIECES
    with pytest.raises(KeyError):
        tokenizer.convert_tokens_to_ids(["nothing"])


# ---------------------------------------------------------------------------------------------------------------------
# Vocabulary files


def write_vocab(path, lines) -> str:
    path.write_bytes("\n".join(lines).encode() + b"\n")
    return str(path)


def test_load_vocab(tmp_path):
    path = write_vocab(tmp_path / "vocab.txt", ["[PAD]\r", " [UNK]", *SPECIAL_TOKENS[2:], "a", ""])
    vocabulary = load_vocab(path)
    assert vocabulary.tokens == [*SPECIAL_TOKENS, "a"]
    assert vocabulary.ids["a"] == 5
    assert len(vocabulary) == 6
    assert len(vocabulary.sha256) == 64


@pytest.mark.parametrize("missing", SPECIAL_TOKENS)
def test_vocab_without_a_special_token(tmp_path, missing):
    path = write_vocab(tmp_path / "vocab.txt", [token for token in SPECIAL_TOKENS if token != missing])
    with pytest.raises(UserError) as error:
        load_vocab(path)
    assert path in str(error.value) and missing in str(error.value)
    assert len(load_vocab(path, required=())) == 4


def test_vocab_with_duplicates(tmp_path):
    path = write_vocab(tmp_path / "vocab.txt", [*SPECIAL_TOKENS, "a", "b", "a "])
    with pytest.raises(UserError, match="'a' twice, in lines 6 and 8"):
        load_vocab(path)


def test_vocab_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        load_vocab(str(tmp_path))
    with pytest.raises(UserError, match="No such file"):
        load_vocab(str(tmp_path / "none.txt"))
    (tmp_path / "empty.txt").write_text(" \n\n")
    with pytest.raises(UserError, match="is empty"):
        load_vocab(str(tmp_path / "empty.txt"))
    (tmp_path / "latin.txt").write_bytes(b"[PAD]\n[UNK]\ncaf\xe9\n")
    with pytest.raises(UserError, match="not UTF-8 text: line 3"):
        load_vocab(str(tmp_path / "latin.txt"))
