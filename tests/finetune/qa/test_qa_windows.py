"""Windows over a paragraph: equal to their definition, cover all of it, and answers are found again in them."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from configure_finetuning import FinetuningConfig
from finetune.qa.answers import AnswerCollector
from finetune.qa.examples import AnswerNotFound, Paragraph, QAExample, locate
from finetune.qa.windows import Featurizer, WindowSettings, best_windows, cut
from finetune.qa.word_by_word import featurize_word_by_word, is_max_context, split_at_white_space, window_starts
from model.tokenization import UNK
from tests.questions import make_tokenizer

SPACES = " \t\n\r\u202f"
ODD = "\u00a0\u3000\u200b\ufffd\u0301☃東京"  # other spaces, deleted characters, an accent alone, no piece, ideographs
texts = st.text(st.sampled_from("ab aab ese japan Äöé’.,-( " + SPACES + ODD), max_size=60)
any_texts = st.text(max_size=30)
sizes = st.builds(WindowSettings, st.integers(5, 24), st.integers(0, 8), st.integers(1, 9))
tokenizers = {settings: make_tokenizer(*settings) for settings in [(True, True), (True, False), (False, False)]}


@st.composite
def answered(draw, alphabet=texts) -> QAExample:
    """A question with an answer anywhere in the text."""
    paragraph = Paragraph(draw(alphabet))
    assume(paragraph.text.strip())
    first = draw(st.integers(0, len(paragraph.text) - 1))
    last = draw(st.integers(first, len(paragraph.text) - 1))
    try:
        answer = locate(paragraph, paragraph.text[first : last + 1], first)
    except AnswerNotFound:
        assume(False)
    return QAExample(draw(st.integers(0, 5000)), "q", draw(texts), paragraph, answer)


@given(st.one_of(texts, any_texts))
def test_words(text):
    words, word_at = split_at_white_space(text)
    paragraph = Paragraph(text)
    assert paragraph.words == words
    assert [paragraph.word_at(i) for i in range(len(text))] == word_at
    assert [text[start : start + len(word)] for start, word in zip(paragraph.starts, words)] == words


def test_white_space_is_five_characters():
    spaces = {chr(code) for code in range(0x3100) if Paragraph(f"a{chr(code)}b").words == ["a", "b"]}
    assert spaces == set(SPACES)


@settings(max_examples=200, deadline=None)
@given(answered(), sizes, st.sampled_from(sorted(tokenizers)), st.booleans())
def test_features_equal_their_definition(example, sizes, case, is_impossible):
    if is_impossible:
        example = example._replace(answer=None, is_impossible=True)
    featurizer = Featurizer("t", tokenizers[case], sizes)
    features = featurizer.features(example)
    assert features == featurize_word_by_word(featurizer, example)
    assert features == featurize_word_by_word(featurizer, example, tokenizers[case].tokenize)


@given(any_texts, any_texts, sizes)
def test_features_of_any_text_equal_their_definition(question, context, sizes):
    featurizer = Featurizer("t", tokenizers[True, True], sizes)
    example = QAExample(3, "q", question, Paragraph(context))
    assert featurizer.features(example) == featurize_word_by_word(featurizer, example)


@given(texts, texts, sizes)
def test_windows_cover_every_piece_and_fit(question, context, sizes):
    featurizer = Featurizer("t", tokenizers[True, True], sizes)
    example = QAExample(0, "q", question, Paragraph(context))
    pieces = tokenizers[True, True].encode(context)
    layout, features = featurizer.layout(example), featurizer.features(example)
    shown = {}
    for (start, length), window in zip(layout.windows, features, strict=True):
        assert len(window["input_ids"]) == len(window["segment_ids"]) <= sizes.max_seq_length
        text = [piece for piece, segment in zip(window["input_ids"], window["segment_ids"]) if segment][:-1]
        shown |= {start + i: piece for i, piece in enumerate(text)}
        assert len(text) == length > 0
    assert [shown[i] for i in range(len(pieces))] == pieces
    assert len(shown) == len(pieces)


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 25), st.integers(1, 30))
def test_max_context(n_pieces, room, stride):
    windows = cut(n_pieces, room, stride)
    assert windows == window_starts(n_pieces, room, stride)
    owner = best_windows(windows)
    assert len(owner) == n_pieces
    for piece in range(n_pieces):
        assert is_max_context(windows, owner[piece], piece)


def test_a_long_window_shows_more_than_a_short_one():
    windows = cut(550, 300, 200)  # the last one is 150 pieces long
    owner = best_windows(windows)
    assert [is_max_context(windows, owner[piece], piece) for piece in range(550)] == [True] * 550
    assert (windows[-1], owner[449], owner[450], owner[451]) == ((400, 150), 1, 1, 2)  # 49 + 3.00 beats 50 + 1.50


def test_numbers_of_windows_never_collide():
    featurizer = Featurizer("t", tokenizers[True, True], WindowSettings(8, 2, 1))
    paragraph = Paragraph("a " * 1500)
    numbers = [
        window["t_eid"] for eid in range(3) for window in featurizer.features(QAExample(eid, "", "a", paragraph))
    ]
    assert len(set(numbers)) == len(numbers) > 3 * 1000


@settings(max_examples=200, deadline=None)
@given(answered(), st.sampled_from(sorted(tokenizers)))
def test_answers_are_found_again(example, case):
    """From characters to pieces and back: what comes back holds all that the tokenizer sees of the answer."""
    tokenizer = tokenizers[case]
    assume(UNK not in tokenizer.tokenize(example.answer.text))  # it would match any other [UNK], as released
    featurizer = Featurizer("t", tokenizer, WindowSettings(500, 10, 500))
    config = FinetuningConfig("m", "d", joint_prediction=False, max_answer_length=500)
    (window,) = featurizer.features(example) or [None]
    assume(window and window["t_end_positions"] >= window["t_start_positions"] > 0)
    collector = AnswerCollector(featurizer, config, False, [example._replace(eid=0)])
    n_pieces = range(len(window["input_ids"]))
    collector.update(
        0,
        {
            "start_logits": [float(i == window["t_start_positions"]) for i in n_pieces],
            "end_logits": [float(i == window["t_end_positions"]) for i in n_pieces],
        },
    )
    ((_, prediction),) = collector.predictions()
    there, wanted = ("".join(tokenizer.words(text)) for text in (prediction.text, example.answer.text))
    assert wanted in there
    assert prediction.text in " ".join(example.paragraph.words)


def test_an_answer_within_a_word_is_narrowed_to_its_pieces():
    tokenizer = tokenizers[True, True]
    featurizer = Featurizer("t", tokenizer, WindowSettings(20, 4, 4))
    paragraph = Paragraph("a Japanese (1895) a")
    for text, pieces in (
        ("Japan", ["japan"]),
        ("1895", list("1") + ["##8", "##9", "##5"]),
        ("apan", ["japan", "##ese"]),
    ):
        answer = locate(paragraph, text, paragraph.text.index(text))
        (window,) = featurizer.features(QAExample(0, "q", "a", paragraph, answer))
        span = window["input_ids"][window["t_start_positions"] : window["t_end_positions"] + 1]
        assert tokenizer.convert_ids_to_tokens(span) == pieces
