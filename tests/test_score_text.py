"""score_text.py: its rows, going on after a kill, re-ranking, and what it says of input it cannot use."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.conversions import converted
from tests.scoring_models import failed, load, score, trained
from tests.training_runs import ROOT, run_script

LINES = ["you may not use\tthis file", "", "   ", "Ünïcode and x" + "y" * 250, "the license " * 40, "warranty\r"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("\n".join(LINES).encode() + b" \xff\xfe")
    return path


def test_rows_of_both_formats(training_data, text, tmp_path):
    folder, found = trained(training_data, "electric"), {}
    for form in ("tsv", "jsonl"):
        out = tmp_path / f"out.{form}"
        result = score(folder, text, "--output", form, "--tokens", "--output-file", out)
        assert result.returncode == 0, result.stderr
        found[form] = out.read_text().splitlines()
    for part in ("lines: 6", "without a token: 2", "longer than 32 tokens, read in overlapping windows: 1",
                 "tokens that are [UNK]: 1", "no UTF-8, dropped: 2"):  # fmt: skip
        assert part in result.stdout, part
    assert "perplexity" not in result.stdout, "Electric is not normalised"
    header, *rows = (row.split("\t") for row in found["tsv"])
    assert header == ["line", "score", "tokens", "text", "pieces", "piece_scores"]
    objects = [json.loads(row) for row in found["jsonl"]]
    assert [one["text"] for one in objects] == [*LINES[:5], "warranty "] and rows[0][3] == LINES[0].replace("\t", " ")
    assert [one["score"] is None for one in objects] == [False, True, True, False, False, False] and rows[1][1] == ""
    tokenizer = load(folder).source.tokenizer
    for row, one in zip(rows, objects):
        assert row[0] == str(one["line"]) and row[2] == str(one["tokens"]) == str(len(one["pieces"]))
        assert row[4].split() == one["pieces"] == tokenizer.tokenize(one["text"])
        np.testing.assert_allclose([float(x) for x in row[5].split()], one["piece_scores"])
        if one["pieces"]:
            assert float(row[1]) == one["score"] == pytest.approx(sum(one["piece_scores"]), abs=1e-3 * one["tokens"])


def test_normalized_by_length(training_data, text, tmp_path):
    found = []
    for flags in ((), ("--normalize", "length")):
        out = tmp_path / f"out{len(flags)}"
        result = score(trained(training_data, "electra"), text, "--output", "jsonl", "--output-file", out, *flags)
        assert result.returncode == 0 and "method mlm" in result.stdout and "pseudo-perplexity" in result.stdout
        found.append([json.loads(row) for row in out.read_text().splitlines()])
    for whole, mean in zip(*found):
        if whole["tokens"]:
            assert mean["score"] == pytest.approx(whole["score"] / whole["tokens"], abs=1e-4)


def test_scores_alone_go_to_standard_output(training_data, text):
    """And compressed text is read."""
    subprocess.run(["gzip", "-k", text], check=True)
    folder = trained(training_data, "electric")
    result = run_script("score_text.py", "--model-dir", str(folder), "--input", f"{text}.gz")
    assert result.returncode == 0, result.stderr
    assert [row.split("\t")[0] for row in result.stdout.splitlines()] == ["line", *"123456"]
    assert "lines: 6" in result.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Going on


@pytest.fixture
def many(tmp_path, training_data):
    """Lines enough for many chunks."""
    words = (training_data / "corpus" / "GPL-3.txt").read_text().split()
    path = tmp_path / "many.txt"
    path.write_text("\n".join(" ".join(words[i : i + 8]) for i in range(0, 3000, 2)) + "\n")
    return path


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(training_data, many, tmp_path):
    folder = trained(training_data, "electra")
    whole, killed = tmp_path / "whole.tsv", tmp_path / "killed.tsv"
    assert score(folder, many, "--output-file", whole).returncode == 0
    command = [sys.executable, "score_text.py", "--model-dir", str(folder), "--input", str(many), "--output-file",
               str(killed)]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (killed.exists() and killed.stat().st_size > 5000):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    left = killed.read_bytes()
    assert 5000 < len(left) < whole.stat().st_size
    killed.write_bytes(left[: 2 * len(left) // 3 + 1])  # as where the disk lost the last of it: a half line in a chunk
    done = killed.read_bytes().count(b"\n") - 1
    result = score(folder, many, "--output-file", killed)
    assert result.returncode == 0 and f"going on from line {done + 1}" in result.stdout, result.stderr
    assert killed.read_bytes() == whole.read_bytes()
    again = score(folder, many, "--output-file", killed)
    assert again.returncode == 0 and "nothing to do" in again.stdout
    assert killed.read_bytes() == whole.read_bytes()


def test_an_input_that_grew_is_scored_to_its_end(training_data, text, tmp_path):
    folder, out = trained(training_data, "electric"), tmp_path / "out"
    text.write_text("one\ntwo\n")
    score(folder, text, "--output-file", out)
    text.write_text("one\ntwo\nthree\n")
    assert "lines: 1" in score(folder, text, "--output-file", out).stdout
    assert [row.split("\t")[3] for row in out.read_text().splitlines()] == ["text", "one", "two", "three"]


def test_an_output_of_other_settings_or_another_text_is_left_alone(training_data, text, tmp_path):
    folder, out = trained(training_data, "electra"), tmp_path / "out"
    text.write_text("one\ntwo\n")
    score(folder, text, "--output-file", out)
    before = out.read_bytes()
    assert "normalize: None there, length here" in failed(
        score(folder, text, "--output-file", out, "--normalize", "length")
    )
    text.write_text("one\nother\nthree\n")
    message = failed(score(folder, text, "--output-file", out))
    assert "another input" in message and "'two'" in message and "'other'" in message
    text.write_text("one\n")
    assert "holds 2 lines" in failed(score(folder, text, "--output-file", out))
    assert out.read_bytes() == before


@pytest.mark.parametrize("rerank", [False, True], ids=["lines", "rerank"])
def test_no_file_of_the_users_is_lost(training_data, tmp_path, rerank):
    """Found before TensorFlow starts: the input as the output, a file of something else, also in the JSON's place."""
    folder, lists = trained(training_data, "electric"), tmp_path / "lists.tsv"
    lists.write_text("u1\t1\tthe license\nu1\t2\twarranty\n")
    for name in ("foreign", "beside.json"):
        (tmp_path / name).write_text('{"my": "own"}\n')
    (tmp_path / "folder").mkdir()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    flags = ("--rerank", "--weight", 1) if rerank else ()
    for name, part in (
        ("lists.tsv", "is an input too"),
        ("foreign", "exists; name another file" if rerank else "no " + str(tmp_path / "foreign.json")),
        ("beside", "beside.json exists" if rerank else "is another file"),
        ("folder", "is a folder"),
    ):
        result = score(folder, lists, *flags, "--output-file", tmp_path / name)
        assert part in failed(result) and "method" not in result.stdout, name
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert score(folder, lists, *flags, "--output-file", tmp_path / "foreign", "--overwrite").returncode == 0
    assert (tmp_path / "foreign").read_text().startswith("id\t" if rerank else "line\t")


def test_a_mark_at_the_beginning_is_no_text(training_data, tmp_path):
    """A byte-order mark neither becomes part of a text nor of a list's id."""
    folder, lists = trained(training_data, "electric"), tmp_path / "lists.tsv"
    lists.write_text("\ufeffu1\t1\tthe license\nu1\t2\twarranty\n")
    (tmp_path / "references").write_text("\ufeffu1\twarranty\n")
    flags = ("--rerank", "--references", tmp_path / "references", "--output-file", tmp_path / "best")
    result = score(folder, lists, *flags)
    assert result.returncode == 0, result.stderr
    assert [row.split("\t")[0] for row in (tmp_path / "best").read_text().splitlines()] == ["id", "u1"]


# ---------------------------------------------------------------------------------------------------------------------
# Re-ranking

LISTS = [("u1", -1.0, "you may not use this file"), ("u1", -1.2, "you may knot use this file"), ("u1", -1.1, ""),
         ("u2", -3.0, "the license"), ("u2", -2.5, "a license\tor so")]  # fmt: skip
REFERENCES = {"u1": "you may not use this file", "u2": "the license or so", "u3": "never said"}


@pytest.fixture
def nbest(tmp_path):
    path = tmp_path / "nbest.tsv"
    path.write_text("".join(f"{name}\t{score}\t{text}\n" for name, score, text in LISTS))
    return path


@pytest.fixture
def references(tmp_path):
    path = tmp_path / "references.tsv"
    path.write_text("".join(f"{name}\t{text}\n" for name, text in REFERENCES.items()))
    return path


def test_rerank_with_a_weight(training_data, nbest, references, tmp_path):
    """The choice is that of the scores that lines of text get."""
    folder, out, lines = trained(training_data, "electric"), tmp_path / "best.tsv", tmp_path / "lines.txt"
    lines.write_text("".join(f"{text}\n" for _, _, text in LISTS))
    assert score(folder, lines, "--output", "jsonl", "--output-file", tmp_path / "scores").returncode == 0
    pll = [json.loads(row)["score"] or 0.0 for row in (tmp_path / "scores").read_text().splitlines()]
    for weight in (0.0, 0.01, 0.3, 4.0):
        flags = ("--rerank", "--weight", weight, "--output-file", out, "--references", references, "--overwrite")
        result = score(folder, nbest, *flags)
        assert result.returncode == 0, result.stderr
        total = [system + weight * value for (_, system, _), value in zip(LISTS, pll)]
        best = [int(np.argmax(total[:3])), 3 + int(np.argmax(total[3:]))]
        rows = [row.split("\t") for row in out.read_text().splitlines()[1:]]
        assert [row[0] for row in rows] == ["u1", "u2"]
        assert [int(row[1]) for row in rows] == [best[0] + 1, best[1] - 2]
        assert [float(row[3]) for row in rows] == pytest.approx([pll[i] for i in best], abs=2e-4)
        assert [row[4] for row in rows] == [LISTS[i][2].replace("\t", " ") for i in best]
        notes = json.loads((tmp_path / "best.tsv.json").read_text())
        assert notes["weight"] == weight and notes["wer_oracle"] == 1 / 10
    assert "1 references have no list" in result.stdout and "word error rate" in result.stdout


def test_rerank_finds_a_weight(training_data, nbest, references, tmp_path):
    out = tmp_path / "best.jsonl"
    flags = ("--rerank", "--references", references, "--output", "jsonl", "--output-file", out)
    assert score(trained(training_data, "electra"), nbest, *flags).returncode == 0
    notes = json.loads((tmp_path / "best.jsonl.json").read_text())
    assert notes["wer_oracle"] <= notes["wer_reranked"] <= notes["wer_system"] and notes["weight"] >= 0
    assert [json.loads(row)["id"] for row in out.read_text().splitlines()] == ["u1", "u2"]


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


def test_a_model_without_the_head(training_data, text, tmp_path):
    electra, electric, mlm = (trained(training_data, kind) for kind in ("electra", "electric", "mlm"))
    message = failed(score(electra, text, "--method", "electric"))
    assert "a discriminator and a generator" in message and "--method mlm" in message
    assert "holds Electric" in failed(score(electric, text, "--method", "mlm"))
    assert "holds a masked language model" in failed(score(mlm, text, "--method", "electric"))
    alone = converted(electra, tmp_path / "d", "huggingface", "--part", "discriminator")
    assert "holds a discriminator, and --method mlm needs" in failed(score(alone, text))
    taken = score(alone, text, "--method", "electric", "--output-file", tmp_path / "out")
    assert taken.returncode == 0 and "nothing beside" in taken.stdout and "taken for Electric's" in taken.stdout


def test_bad_models(training_data, text, tmp_path):
    assert "there is no checkpoint" in failed(score(tmp_path / "nowhere", text))
    (tmp_path / "empty").mkdir()
    assert "folder without a checkpoint" in failed(score(tmp_path / "empty", text))
    golden = ROOT / "tests/golden/model/pretrain_ckpt"
    if not (golden / "vocab.txt").exists():
        assert "name it with --vocab-file" in failed(score(golden, text))
    large = ROOT / "tests/golden/vocab_30522.txt"
    assert "30522 pieces, the token table 400 rows" in failed(
        score(trained(training_data, "electra"), text, "--vocab-file", large)
    )


@pytest.mark.parametrize("content, part", [
    (b"", "has no line with text"), (b"\n  \n\t\n", "has no line with text"), (b"a\0b", "is no text"),
])  # fmt: skip
def test_bad_text(training_data, tmp_path, content, part):
    path = tmp_path / "text"
    path.write_bytes(content)
    assert part in failed(score(trained(training_data, "electric"), path, "--output-file", tmp_path / "out"))
    assert "is a folder" in failed(score(trained(training_data, "electric"), tmp_path))
    assert "does not exist" in failed(score(trained(training_data, "electric"), tmp_path / "nowhere"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lists, references, part", [
    ("u1\t1\ta\nu2\t1\tb\n", "u1\ta\n", "lacks 1 of 2 lists: u2"),
    ("u1\t1\ta\nu2\t1\tb\nu1\t2\tc\n", "u1\ta\nu2\tb\n", "line 3: the list 'u1' goes on after another one"),
    ("u1\tone\ta\n", "u1\ta\n", "line 1: the system score is no finite number: 'one'"),
    ("u1\tnan\ta\n", "u1\ta\n", "line 1: the system score is no finite number: 'nan'"),
    ("u1\t1\n", "u1\ta\n", "line 1: expected id, system score and text"),
    ("u1\t1\ta\n", "u1\ta\nu1\tb\n", "line 2: a second reference of 'u1'"),
    ("u1\t1\ta\n", "u1 a\n", "line 1: expected id and text"),
    ("u1\t1\ta\n", "u1\t\n", "has no word"),
])  # fmt: skip
def test_bad_lists(tmp_path, training_data, lists, references, part):
    paths = [tmp_path / "lists", tmp_path / "references"]
    for path, content in zip(paths, (lists, references)):
        path.write_text(content)
    folder, out = trained(training_data, "electric"), tmp_path / "out"
    assert part in failed(score(folder, paths[0], "--rerank", "--references", paths[1], "--output-file", out))
    assert not out.exists()


@pytest.mark.parametrize("flags, part", [
    (("--rerank",), "--rerank needs --weight LAMBDA, or --references"),
    (("--weight", 1), "need --rerank"),
    (("--rerank", "--weight", 1, "--tokens"), "--tokens is for lines of text"),
    (("--rerank", "--weight", "nan"), "--weight must be a number"),
    (("--rerank", "--weight", -1), "--weight must be a number, 0 or above"),
    (("--output-file", f"{__file__}/x.tsv"), "cannot write in the folder"),
    (("--rerank", "--references", "nowhere"), "--references nowhere does not exist"),
])  # fmt: skip
def test_bad_flags(training_data, text, flags, part):
    assert part in failed(score(trained(training_data, "electric"), text, *flags))


def test_a_pipe_is_read_once(training_data, tmp_path):
    """As in `--input <(command)`."""
    pipe, out = tmp_path / "pipe", tmp_path / "out.tsv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("the license\n\nwarranty\n",))
    writer.start()
    result = score(trained(training_data, "electric"), pipe, "--output-file", out)
    writer.join()
    assert result.returncode == 0, result.stderr
    assert [row.split("\t")[3] for row in out.read_text().splitlines()] == ["text", "the license", "", "warranty"]


def test_a_reader_that_goes_away_is_told_in_one_message(training_data, many):
    command = [sys.executable, "score_text.py", "--model-dir", trained(training_data, "electric"), "--input", many]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(list(map(str, command)), cwd=ROOT, **pipes) as process:
        assert process.stdout.readline().startswith("line\t")
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 2 and "Traceback" not in errors and "Exception ignored" not in errors, errors
    assert errors.count("error: standard output was closed") == 1
