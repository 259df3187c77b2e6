"""Pseudo-log-likelihoods against their definition: one text at a time, nothing padded, one masked copy a token."""

import numpy as np
import pytest

from model.tokenization import CLS, MASK, SEP
from scoring.pseudo_likelihood import make_scorer
from tests.conversions import converted, outputs, read
from tests.scoring_models import load, trained

SENTENCES = (
    "you may not use this file except in compliance with the license",
    "This program is free software: you can redistribute it and/or modify it.",
    "warranty",
    "The licensor, the contributors!",
)


def texts_of(model) -> list[list[int]]:
    return [model.source.tokenizer.encode(text) for text in SENTENCES]


def with_specials(model, ids) -> np.ndarray:
    return np.array([[model.source.id(CLS), *ids, model.source.id(SEP)]], np.int32)


def reference(model, ids: list[int], method: str, heads: dict) -> np.ndarray:
    """Each token's log p."""
    text = with_specials(model, ids)
    one, none = np.ones_like(text), np.zeros_like(text)
    reader = read(model.source.path)
    if method == "electric":
        return -outputs(reader, text, one, none, **heads)["discriminator"][0, 1:-1].astype(np.float64)
    found = []
    for place in range(1, text.shape[1] - 1):
        masked = text.copy()
        masked[0, place] = model.source.id(MASK)
        logits = outputs(reader, masked, one, none, **heads)["generator"][0, place].astype(np.float64)
        found.append(logits[text[0, place]] - logits.max() - np.log(np.sum(np.exp(logits - logits.max()))))
    return np.array(found)


@pytest.mark.parametrize("kind, method", [("electric", "electric"), ("electra", "mlm"), ("mlm", "mlm")])
def test_scores_are_those_of_the_definition(training_data, kind, method):
    model = load(trained(training_data, kind))
    heads = {"heads": 2, "generator_heads": 1}
    scorer = make_scorer(model, None)
    assert scorer.method == method
    texts = texts_of(model)
    for ids, scores in zip(texts[:3], scorer(texts)):
        expected = reference(model, ids, method, heads)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
        assert len(scores) == 1 or np.ptp(expected) > 0.05, "a network that says the same everywhere hides mistakes"


@pytest.mark.parametrize("kind", ["electric", "electra"])
def test_batches_change_no_score(training_data, kind):
    model = load(trained(training_data, kind))
    scorer, texts = make_scorer(model, None), texts_of(load(trained(training_data, "mlm")))
    many = texts + [ids[:n] for ids in texts for n in range(0, len(ids), 3)]
    together = scorer(many)
    for ids, scores in zip(many, together):
        np.testing.assert_allclose(scores, scorer([ids])[0], rtol=1e-5, atol=2e-6)
    assert [len(scores) for scores in together] == [len(ids) for ids in many]
    assert scorer([]) == []


@pytest.mark.parametrize("kind", ["electric", "electra"])
def test_a_long_text_is_scored_in_windows(training_data, kind):
    """Near the start a token sees what it sees in the first window alone; every token has a score."""
    model = load(trained(training_data, kind), "--max-seq-length", 16)
    scorer = make_scorer(model, None)
    assert scorer.longest == 16
    long = [token for ids in texts_of(model) for token in ids]
    scores = scorer([long])[0]
    assert len(scores) == len(long) > 40
    first = scorer([long[:14]])[0]
    np.testing.assert_allclose(scores[:10], first[:10], rtol=1e-5, atol=2e-6)
    last = scorer([long[-14:]])[0]
    np.testing.assert_allclose(scores[-4:], last[-4:], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("format, part", [("tf1", "both"), ("project", "both"), ("huggingface", "generator")])
def test_converted_models_give_the_same_scores(training_data, tmp_path, format, part):
    folder = trained(training_data, "electra")
    copy = converted(folder, tmp_path / "copy", format, "--part", part)
    texts = texts_of(load(folder))
    scores = [make_scorer(load(path, "--max-seq-length", 32), "mlm")(texts) for path in (folder, copy)]
    for one, other in zip(*scores):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_electric_is_known_by_its_towers_where_no_notes_are(training_data, tmp_path):
    folder = trained(training_data, "electric")
    copy = converted(folder, tmp_path / "copy", "tf1")
    assert not (copy / "hparams.json").exists()
    model = load(copy)
    assert make_scorer(model, None).method == "electric"
    assert (model.longest, load(folder).longest) == (512, 32), "the position table's length, that of training"
