"""What is said of tokens: against the networks' own outputs, in texts with [MASK], and how it is shown."""

import html
import json
from html.parser import HTMLParser

import numpy as np
import pytest

from model.tokenization import CLS, MASK, SEP
from scoring.inspection import Filler, Inspector, Judged
from scoring.lines import Line
from scoring.pages import FORMATS, stretches
from scoring.spans import Token
from scoring.vectors import Embedder
from tests.conversions import converted, outputs, read
from tests.scoring_models import load, trained

HEADS = {"heads": 2, "generator_heads": 1}


@pytest.fixture
def model(training_data):
    return load(trained(training_data, "electra"))


def computed(model, ids: list[int]) -> dict[str, np.ndarray]:
    text = np.array([[model.source.id(CLS), *ids, model.source.id(SEP)]], np.int32)
    found = outputs(read(model.source.path), text, np.ones_like(text), np.zeros_like(text), **HEADS)
    return {name: values[0, 1:-1].astype(np.float64) for name, values in found.items()}


def test_masks_are_filled_and_the_filled_text_is_judged(model):
    lines = [Line(1, "the [MASK] of this license, [MASK]."), Line(2, ""), Line(3, "no warranty")]
    judged = Inspector(model, 3)(lines)
    ids = [one.token.id for one in judged[0]]
    masks = [place for place, token in enumerate(ids) if token == model.source.id(MASK)]
    assert len(masks) == 2
    logits = computed(model, ids)["generator"]
    for place in masks:
        p = np.exp(logits[place] - logits[place].max())
        best = np.argsort(-p)[:3]
        fillers = judged[0][place].fillers
        assert [filler.piece for filler in fillers] == model.source.tokenizer.convert_ids_to_tokens(best)
        np.testing.assert_allclose([filler.probability for filler in fillers], (p / p.sum())[best], rtol=1e-4)
        ids[place] = best[0]
    for one, text in zip(judged, (ids, [], model.source.tokenizer.encode("no warranty"))):
        expected = 1 / (1 + np.exp(-computed(model, text)["discriminator"])) if text else []
        np.testing.assert_allclose([token.replaced for token in one], expected, rtol=1e-4, atol=1e-6)
    assert all(not token.fillers for place, token in enumerate(judged[0]) if place not in masks)


def test_embeddings_that_are_a_sum_are_added_up(training_data, tmp_path):
    """A discriminator whose table is the generator's plus a difference says what its export says."""
    folder = trained(training_data, "gdes")
    copy = converted(folder, tmp_path / "copy", "tf1")
    lines = [Line(1, "the [MASK] of this license")]
    one, other = (Inspector(load(path, "--max-seq-length", 32), 2)(lines)[0] for path in (folder, copy))
    assert "electra/embeddings/word_embeddings_difference" not in read(copy).shapes
    np.testing.assert_allclose([token.replaced for token in one], [token.replaced for token in other], rtol=1e-5)
    assert one[1].fillers[0].piece == other[1].fillers[0].piece


def test_a_long_text_with_masks(training_data):
    model = load(trained(training_data, "electra"), "--max-seq-length", 12)
    judged = Inspector(model, 1)([Line(1, "you [MASK] not use this file " * 6)])[0]
    assert [len(one.fillers) for one in judged if one.token.is_mask] == [1] * 6
    assert all(0 < one.replaced < 1 for one in judged)


def test_vectors(model):
    texts = [model.source.tokenizer.encode(text) for text in ("this license", "", "a " * 70)]
    sequence = computed(model, texts[0])["sequence"]
    mean = Embedder(model, "mean", None)(texts)
    np.testing.assert_allclose(mean[0], sequence.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean[1], np.zeros(32))
    assert mean.dtype == np.float32 and mean.shape == (3, 32) and np.all(np.isfinite(mean))
    first = Embedder(model, "first", 2)(texts)
    whole = np.array([[model.source.id(CLS), *texts[0], model.source.id(SEP)]], np.int32)
    found = outputs(read(model.source.path), whole, np.ones_like(whole), np.zeros_like(whole), **HEADS)["sequence"]
    np.testing.assert_allclose(first[0], found[0, 0], rtol=1e-4, atol=1e-5)
    assert np.abs(Embedder(model, "first", 1)(texts)[0] - first[0]).max() > 0.01


# ---- how it is shown ---------------------------------------------------------------------------------------------

LINE = Line(7, 'The <b>"x"</b>\t& [MASK] \x1b[31mred')
TOKENS = [
    Judged(Token("the", 5, 0, 3), 0.25, []),
    Judged(Token("<", 6, 4, 5), 0.5, []),
    Judged(Token("x", 7, 8, 9), 1.0, []),
    Judged(Token(MASK, 4, 17, 23), 0.0, [Filler("<i>", 0.75), Filler("b", 0.125)]),
]


class Text(HTMLParser):
    """The characters of a page's body, and its tags."""

    def __init__(self, page: str):
        super().__init__()
        self.text, self.tags, self.links = "", [], []
        self.feed(page)

    def handle_data(self, data):
        self.text += data

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]


def test_html_shows_the_text_itself_escaped_and_needs_nothing_else():
    form = FORMATS["html"]()
    body = form.line(LINE, TOKENS)
    found = Text(body)
    assert found.text == 'The <b>"x"</b> & [MASK] [31mred\n[MASK] <i> 0.750 b 0.125\n\n'[:-1]
    assert set(found.tags) == {"p", "span"}
    assert "rgba(214,69,65,0.250)" in body and 'title="the 0.250"' in body
    assert html.escape("[MASK] 0.000: <i> 0.750 b 0.125") in body
    page = Text(form.head + body + form.tail)
    assert page.links == [] and "script" not in page.tags and "http" not in form.head


def test_terminal_shades_and_obeys_no_control_characters():
    shown = FORMATS["terminal"]().line(LINE, TOKENS)
    assert "\x1b[30;48;2;245;208;208mThe\x1b[0m" in shown
    assert "\x1b[30;48;2;214;69;65mx\x1b[0m" in shown and "\x1b[31m" not in shown
    assert shown.endswith("    [MASK] <i> 0.750 b 0.125\n")


def test_tsv_and_jsonl():
    rows = [row.split("\t") for row in FORMATS["tsv"]().line(LINE, TOKENS).splitlines()]
    assert rows[0] == ["7", "1", "the", "0", "3", "0.2500", ""]
    assert rows[3][-1] == "<i> 0.750 b 0.125"
    found = json.loads(FORMATS["jsonl"]().line(LINE, TOKENS))
    assert found["text"] == LINE.text and found["tokens"][3]["fillers"][1] == {"piece": "b", "probability": 0.125}
    none = [Judged(token, None, []) for token, _, _ in TOKENS]
    assert json.loads(FORMATS["jsonl"]().line(LINE, none))["tokens"][0]["replaced"] is None


def test_pieces_that_share_characters_are_one_stretch():
    tokens = [Judged(Token("a", 1, 0, 4), 0.1, []), Judged(Token("##b", 2, 0, 4), 0.9, []),
              Judged(Token("c", 3, 4, 5), 0.2, [])]  # fmt: skip
    found = list(stretches(Line(1, "wordc!"), tokens))
    assert [(stretch.text, stretch.judged and stretch.judged.replaced) for stretch in found] == [
        ("word", 0.9), ("c", 0.2), ("!", None),
    ]  # fmt: skip
