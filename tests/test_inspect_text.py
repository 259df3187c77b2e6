"""inspect_text.py: the files it writes, and what it says of input it cannot use."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.conversions import converted
from tests.scoring_models import failed, inspect, trained
from tests.training_runs import ROOT

TEXT = "the [MASK] of this license\n\n<b>second</b> line\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("form", ["terminal", "tsv", "jsonl", "html"])
def test_every_format_holds_every_line(training_data, text, tmp_path, form):
    out = tmp_path / "deep" / f"out.{form}"
    result = inspect(trained(training_data, "electra"), text, "--output", form, "--output-file", out, "--fillers", 2)
    assert result.returncode == 0, result.stderr
    assert "lines: 3" in result.stdout and "lines without a token: 1" in result.stdout
    content = out.read_text()
    assert ("&lt;" if form == "html" else "<") in content and "[MASK]" in content
    if form == "jsonl":
        rows = [json.loads(row) for row in content.splitlines()]
        assert [row["text"] for row in rows] == TEXT.splitlines()
        assert [len(token.get("fillers", [])) for token in rows[0]["tokens"]][1] == 2
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_standard_input_to_standard_output(training_data, text):
    """The result alone goes to standard output: piped on, it is TSV."""
    command = [sys.executable, "inspect_text.py", "--model-dir", str(trained(training_data, "electra"))]
    with open(text) as file:
        result = subprocess.run(command, cwd=ROOT, stdin=file, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    rows = [row.split("\t") for row in result.stdout.splitlines()]
    assert rows[0] == ["line", "token", "piece", "start", "end", "replaced", "fillers"]
    assert {row[0] for row in rows[1:]} == {"1", "3"} and rows[2][2] == "[MASK]"
    assert "lines: 3" in result.stderr


@pytest.mark.parametrize("kind", ["electra", "electric", "mlm"])
def test_vectors_of_any_model(training_data, text, tmp_path, kind):
    out = tmp_path / "vectors.npy"
    result = inspect(trained(training_data, kind), text, "--embed", out, "--pooling", "mean", "--layer", 1)
    assert result.returncode == 0 and "3 vectors of 32 numbers" in result.stdout
    vectors = np.load(out, allow_pickle=False)
    assert vectors.shape == (3, 32) and vectors.dtype == np.float32
    assert not vectors[1].any() and np.abs(vectors[0] - vectors[2]).max() > 0.01
    assert [path.name for path in tmp_path.glob("vectors*")] == ["vectors.npy"]


def test_vectors_of_many_chunks_are_in_order(training_data, tmp_path, monkeypatch):
    monkeypatch.setattr("scoring.lines.chunks.__defaults__", (2,))
    (tmp_path / "many.txt").write_text("the license\na\nthe license\nb\nthe license\n")
    out = tmp_path / "vectors.npy"
    assert inspect(trained(training_data, "electra"), tmp_path / "many.txt", "--embed", out).returncode == 0
    vectors = np.load(out, allow_pickle=False)
    assert len(vectors) == 5
    np.testing.assert_allclose(vectors[0], vectors[4], rtol=1e-4, atol=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01


def test_what_a_model_lacks(training_data, text, tmp_path):
    out = tmp_path / "out.tsv"
    electra, electric, mlm = (trained(training_data, kind) for kind in ("electra", "electric", "mlm"))
    assert "holds Electric; a discriminator or" in failed(inspect(electric, text, "--output-file", out))
    discriminator = converted(electra, tmp_path / "d", "huggingface", "--part", "discriminator")
    message = failed(inspect(discriminator, text, "--output-file", out))
    assert message.startswith("line 1 has a [MASK]") and "no masked language model" in message
    assert not out.exists()
    result = inspect(mlm, text, "--output-file", out)
    assert result.returncode == 0 and "no discriminator, so nothing is said of replaced tokens" in result.stdout
    assert out.read_text().splitlines()[1].split("\t")[5] == ""


@pytest.mark.parametrize("flags, part", [
    (("--fillers", 0), "--fillers must be at least 1"),
    (("--embed", "x.npy", "--output", "tsv"), "--embed writes vectors alone"),
    (("--embed", "x.npy", "--layer", 3), "--layer must be from 0"),
    (("--pooling", "mean"), "--pooling and --layer are for sentence vectors"),
    (("--layer", 1), "--pooling and --layer are for sentence vectors"),
    (("--output-file", "text.txt"), "is an input too"),
    (("--embed", "."), "is a folder"),
    (("--max-seq-length", 4), "--max-seq-length must be at least 8"),
    (("--max-seq-length", 600), "over the model's position table of 512"),
    (("--vocab-file", "nowhere.txt"), "cannot read the vocabulary nowhere.txt"),
])  # fmt: skip
def test_bad_flags(training_data, text, tmp_path, monkeypatch, flags, part):
    monkeypatch.chdir(tmp_path)
    assert part in failed(inspect(trained(training_data, "electra"), text, *flags))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


@pytest.mark.parametrize("flag", ["--output-file", "--embed"])
def test_no_file_of_the_users_is_lost(training_data, text, tmp_path, flag):
    out = tmp_path / "mine"
    out.write_text("precious")
    assert "exists; name another file" in failed(inspect(trained(training_data, "electra"), text, flag, out))
    assert out.read_text() == "precious"
    assert inspect(trained(training_data, "electra"), text, flag, out, "--overwrite").returncode == 0
    assert out.read_bytes() != b"precious"
