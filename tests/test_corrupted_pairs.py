"""The comparison of sentences with corrupted copies: what the copies are, and that shares come out per checkpoint."""

import io
import json
import sys
from contextlib import redirect_stdout
from unittest import mock

import pytest

from scripts import corrupted_pairs
from tests.scoring_models import load, trained
from util.errors import UserError


@pytest.fixture
def lines(training_data):
    text = (training_data / "corpus" / "GPL-3.txt").read_text()
    return [sentence.strip() for sentence in " ".join(text.split()).split(". ")]


def test_copies_differ_in_one_word_or_in_the_order_of_two(training_data, lines):
    tokenizer = load(trained(training_data, "electric")).source.tokenizer
    triples = corrupted_pairs.make_triples(lines, tokenizer, 60, 3)
    assert triples == corrupted_pairs.make_triples(lines, tokenizer, 60, 3)
    assert triples != corrupted_pairs.make_triples(lines, tokenizer, 60, 4)
    for original, replaced, swapped in triples:
        assert " ".join(original) in [" ".join(line.split()) for line in lines]
        [place] = [i for i, (a, b) in enumerate(zip(original, replaced)) if a != b]
        sizes = [len(tokenizer.encode(words[place])) for words in (original, replaced)]
        assert sizes[0] == sizes[1] > 0 and len(original) == len(replaced)
        first, second = (i for i, (a, b) in enumerate(zip(original, swapped)) if a != b)
        assert second == first + 1 and sorted(original) == sorted(swapped)
    with pytest.raises(UserError, match="asks for 100000"):
        corrupted_pairs.make_triples(lines, tokenizer, 100000, 3)


@pytest.mark.parametrize("kind, method", [("electric", "electric"), ("electra", "mlm")])
def test_shares_of_a_model(training_data, lines, tmp_path, kind, method):
    (tmp_path / "text").write_text("\n".join(lines))
    results, picture = tmp_path / "results.json", tmp_path / "curve.png"
    command = ["corrupted_pairs", "--model-dir", trained(training_data, kind), "--input", tmp_path / "text",
               "--sentences", 20, "--results", results, "--picture", picture]  # fmt: skip
    with mock.patch.object(sys, "argv", list(map(str, command))), redirect_stdout(io.StringIO()) as printed:
        assert corrupted_pairs.main() == 0
    [result] = json.loads(results.read_text())
    assert (result["step"], result["method"], result["sentences"]) == (4, method, 20)
    assert 0 <= result["replaced"] <= 1 and 0 <= result["swapped"] <= 1
    assert f"{result['replaced']:.1%}" in printed.getvalue()
    assert picture.read_bytes().startswith(b"\x89PNG")
    for more, part in (([], "exists"), (["--overwrite", "--results", tmp_path / "text"], "is an input too")):
        with mock.patch.object(sys, "argv", list(map(str, [*command, *more]))), pytest.raises(UserError, match=part):
            corrupted_pairs.main()
