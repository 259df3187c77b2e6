"""Tokens with their places in the text: the pieces of the tokenizer, at the characters that they came from."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model.tokenization import MASK, FullTokenizer, load_vocab
from scoring.spans import SpanTokenizer
from tests.conftest import SMALL_COPY

TOKENIZERS = {(lower, strip): FullTokenizer(load_vocab(str(SMALL_COPY / "vocab_30522.txt")), lower, strip)
              for lower in (True, False) for strip in (True, False)}  # fmt: skip
ODD = "aZé\u0301İßΣς中\u200b\t\x00\x1c!.-[]#½ﬁ\u0345\U0001d15e \ufffd\u2028"
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters(codec="utf-8")), max_size=40)


def spans(text, lower=True, strip=True):
    return SpanTokenizer(TOKENIZERS[lower, strip], lower, strip)(text)


@settings(max_examples=300)
@given(TEXTS, st.booleans(), st.booleans())
def test_pieces_are_the_tokenizers_and_places_rise(text, lower, strip):
    assume(MASK not in text)
    tokens = spans(text, lower, strip)
    assert [token.id for token in tokens] == TOKENIZERS[lower, strip].encode(text)
    for token, after in zip(tokens, tokens[1:]):
        assert token.start <= after.start and token.end <= after.end
    for token in tokens:
        assert 0 <= token.start < token.end <= len(text)


def test_places_are_the_characters_that_a_piece_came_from():
    text = "The Naïve\u200b, unaffable 中文 ＳＴＲＡẞＥ!"
    found = [(token.piece, text[token.start : token.end]) for token in spans(text)]
    assert found[:5] == [("the", "The"), ("naive", "Naïve"), (",", ","), ("una", "una"), ("##ffa", "ffa")]
    assert ("中", "中") in found and found[-1] == ("!", "!")


def test_a_written_mask_is_one_token_whatever_stands_beside_it():
    text = "a[MASK]b [MASK]"
    assert [(token.piece, token.start, token.end) for token in spans(text)] == [
        ("a", 0, 1), (MASK, 1, 7), ("b", 7, 8), (MASK, 9, 15),
    ]  # fmt: skip
    assert [token.piece for token in spans("[mask]")] == ["[", "mask", "]"]
