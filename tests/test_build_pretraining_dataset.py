"""The builder as its users run it: what it writes, and what it says and leaves when something is wrong."""

import gzip
import os
import random
import resource
import shutil
import signal
import subprocess
from contextlib import contextmanager

import pytest

from pretrain.build_shards import BuildSettings, write_examples
from pretrain.text_files import find_files, text_file
from tests import builders
from tests.builders import BUILDING, VOCAB, fails, files, manifest, run, shards

SCRIPT = "build_pretraining_dataset.py"


def text(seed: int, lines: int) -> str:
    rng = random.Random(seed)
    pick = ["the cat sat on the mat.", "a a a", "", "The Mat sat on the unknown cat", "aaa a the"]
    return "".join(f"{rng.choice(pick)}\n" for _ in range(lines))


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n")
    return path


@pytest.fixture
def corpus(tmp_path):
    """Four small files, one of them compressed and one in a sub-folder."""
    folder = tmp_path / "corpus"
    (folder / "more").mkdir(parents=True)
    for i, name in enumerate(("a.txt", "b.txt", "more/c.txt")):
        (folder / name).write_text(text(i, 300))
    (folder / "d.txt.gz").write_bytes(gzip.compress(text(3, 300).encode()))
    return folder


@pytest.fixture
def large_corpus(tmp_path):
    """Two files that take a second or so."""
    folder = tmp_path / "large"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text(text(1, 1000) * 300)
    return folder


@pytest.fixture
def output(tmp_path):
    return tmp_path / "shards"


@pytest.fixture
def args(corpus, vocab, output):
    flags = ["--corpus-dir", corpus, "--vocab-file", vocab, "--output-dir", output]
    return [*flags, "--max-seq-length", 16, "--num-out-files", 4]


# ---------------------------------------------------------------------------------------------------------------------
# What it writes


def test_shards_manifest_and_summary(args, output, vocab):
    result = run(SCRIPT, *args)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    written = shards(output)
    assert files(output) == sorted([*written, "manifest.json"])
    found = manifest(output)
    assert found["shards"] == {name: builders.number_of_records(content) for name, content in sorted(written.items())}
    assert found["num_examples"] == sum(found["shards"].values()) > 100
    assert max(found["shards"].values()) - min(found["shards"].values()) <= 1
    assert (found["format"], found["max_seq_length"], found["vocab_size"], found["seed"]) == (1, 16, len(VOCAB), 42)
    assert (found["vocab_file"], found["num_files"], found["num_out_files"]) == ("vocab.txt", 4, 4)
    assert 0.01 < found["unk_share"] < 0.3 and 0 < found["padding_share"] < 0.9
    assert found["do_lower_case"] is found["strip_accents"] is found["blanks_separate_docs"] is True
    for words in ("files read", "documents", "share of [UNK]", "share of padding", "tokens cut off and lost", "ETA"):
        assert words in result.stdout


def test_two_processes_write_what_two_single_jobs_write(args, output, corpus, vocab, tmp_path):
    assert run(SCRIPT, *args, "--num-processes", 2).returncode == 0
    settings = BuildSettings(
        command=SCRIPT,
        vocab_file=str(vocab),
        output_dir=str(tmp_path / "single"),
        sources=tuple(find_files(str(corpus))),
        read_source=text_file,
        max_seq_length=16,
        num_processes=2,
        num_out_files=4,
    )
    folder = tmp_path / "single" / BUILDING
    folder.mkdir(parents=True)
    for job in range(2):
        write_examples(job, settings)
    assert shards(folder) == shards(output)
    assert all(shards(output).values())


def test_the_seed_decides(args, output):
    contents = []
    for flags in ([], ["--seed", 42], ["--seed", 43]):
        assert run(SCRIPT, *args, *flags, "--overwrite").returncode == 0
        contents.append(shards(output))
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        (["--blanks-separate-docs", "false"], "blanks_separate_docs", False),
        (["--blanks-separate-docs", "True"], "blanks_separate_docs", True),
        (["--no-lower-case"], "do_lower_case", False),
        (["--do-lower-case"], "do_lower_case", True),
        (["--no-strip-accents"], "strip_accents", False),
        (["--keep-long-lines"], "keep_long_lines", True),
    ],
)
def test_flags_reach_the_records(args, output, flags, name, value):
    assert run(SCRIPT, *args).returncode == 0
    plain, plain_manifest = shards(output), manifest(output)
    assert run(SCRIPT, *args, *flags, "--overwrite").returncode == 0
    assert manifest(output)[name] is value
    same = value == plain_manifest[name] or name == "strip_accents"  # the text has no accents
    assert (shards(output) == plain) is same
    if name == "keep_long_lines":
        assert manifest(output)["num_lost_tokens"] == 0 < plain_manifest["num_lost_tokens"]


def test_more_shards_than_examples(args, output, corpus):
    shutil.rmtree(corpus)
    corpus.mkdir()
    (corpus / "a").write_text("the cat")
    result = run(SCRIPT, *args, "--num-processes", 2)
    assert result.returncode == 0
    assert list(manifest(output)["shards"].values()) == [1, 0, 0, 0]
    assert "empty shards" in result.stdout and "some have nothing to do" in result.stdout


def test_overwrite_replaces_shards_and_nothing_else(args, output):
    assert run(SCRIPT, *args, "--seed", 1).returncode == 0
    (output / "pretrain_data.tfrecord-7-of-9").write_text("older")
    (output / "pretrain_data.tfrecord-notes").write_text("mine")
    (output / BUILDING).mkdir()
    (output / BUILDING / "pretrain_data.tfrecord-0-of-4").write_text("left by a kill")
    before = {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()}
    fails(run(SCRIPT, *args), str(output), "--overwrite")
    assert {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()} == before
    assert run(SCRIPT, *args, "--overwrite").returncode == 0
    assert files(output) == sorted([*manifest(output)["shards"], "manifest.json", "pretrain_data.tfrecord-notes"])
    assert manifest(output)["seed"] == 42


# ---------------------------------------------------------------------------------------------------------------------
# What is reported and goes on


def test_invalid_bytes_and_binary_files_are_counted(args, corpus, output):
    (corpus / "a.txt").write_bytes(b"the c\xffat\n\xc3\n" * 10)
    (corpus / "picture").write_bytes(b"\x89PNG\0\0" * 100)
    result = run(SCRIPT, *args)
    assert result.returncode == 0
    assert manifest(output)["num_invalid_bytes"] == 20
    assert (manifest(output)["num_files"], manifest(output)["num_skipped_files"]) == (4, 1)
    assert "undecodable bytes dropped" in result.stdout


@pytest.mark.parametrize("flags", [[], ["--keep-long-lines"]])
def test_a_line_of_50_mb(args, corpus, output, flags):
    (corpus / "a.txt").write_bytes(b"the cat sat " * (50_000_000 // 12) + b"\nthe mat\n" + b"a" * 300 + b"\n")
    memory, printed = builders.peak_memory_of(SCRIPT, *args, *flags, "--max-seq-length", 512)
    assert memory < 150
    found = manifest(output)
    assert (found["num_long_lines"], found["num_long_words"]) == (1, 1)
    if flags:
        assert found["num_lost_tokens"] == 0
        assert found["num_tokens"] > 12_500_000
    else:
        assert found["num_lost_tokens"] > 12_490_000
    assert "lines too long for one piece" in printed


# ---------------------------------------------------------------------------------------------------------------------
# What is wrong from the start


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--max-seq-length", 2], ["--max-seq-length 2", "5"]),
        (["--num-processes", 0], ["--num-processes 0"]),
        (["--num-processes", 5], ["--num-out-files 4", "--num-processes 5"]),
        (["--vocab-file", "nowhere.txt"], ["nowhere.txt", "No such file"]),
        (["--vocab-file", "/tmp"], ["/tmp", "folder"]),
        (["--corpus-dir", "nowhere"], ["nowhere", "--corpus-dir"]),
    ],
)
def test_wrong_flags(args, output, flags, parts):
    fails(run(SCRIPT, *args, *flags), *parts)
    assert files(output) == []


@pytest.mark.parametrize(
    ("lines", "part"),
    [([], "empty"), (VOCAB[:4] + VOCAB[5:], "[MASK]"), ([*VOCAB, "cat"], "lines 7 and 14")],
)
def test_wrong_vocabulary(args, output, vocab, lines, part):
    vocab.write_text("\n".join(lines))
    fails(run(SCRIPT, *args), str(vocab), part)
    assert files(output) == []


def test_corpus_without_text(args, corpus, output):
    shutil.rmtree(corpus)
    corpus.mkdir()
    fails(run(SCRIPT, *args), str(corpus), "it is empty")
    (corpus / "a").write_bytes(b"\0" * 100)
    (corpus / "b").write_bytes(b"\x7fELF\0")
    fails(run(SCRIPT, *args), str(corpus), "none of its 2 files")
    for name in "ab":
        (corpus / name).write_text(" \n\n")
    fails(run(SCRIPT, *args), "no text")
    assert files(output) == []


def test_corpus_that_cannot_be_read(args, corpus, output):
    (corpus / "c.gz").write_bytes(gzip.compress(text(1, 1000).encode())[:-100])
    fails(run(SCRIPT, *args), "c.gz")
    (corpus / "c.gz").unlink()
    (corpus / "dead").symlink_to(corpus / "nowhere")
    fails(run(SCRIPT, *args), "dead")
    assert files(output) == []


def test_output_folders_that_will_not_do(args, corpus, output, tmp_path):
    fails(run(SCRIPT, *args, "--output-dir", corpus / "shards"), "within --corpus-dir")
    (tmp_path / "file").write_text("mine")
    fails(run(SCRIPT, *args, "--output-dir", tmp_path / "file"), str(tmp_path / "file"))
    output.mkdir()
    (output / "manifest.json").write_text('{"name": "a web application"}')
    fails(run(SCRIPT, *args, "--overwrite"), "manifest.json")
    assert files(output) == ["manifest.json"]


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong on the way


@pytest.fixture
def large_args(large_corpus, vocab, output):
    flags = ["--corpus-dir", large_corpus, "--vocab-file", vocab, "--output-dir", output]
    return [*flags, "--max-seq-length", 16, "--num-out-files", 4]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(large_args, output, number):
    process = builders.start(SCRIPT, *large_args, "--num-processes", 2)
    children = builders.workers(process)
    process.send_signal(number)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert errors == "interrupted\n"
    assert files(output) == []
    assert len(children) == 2 and not any(child.is_running() for child in children)


def test_killed_outright_and_run_again(large_args, output):
    process = builders.start(SCRIPT, *large_args, "--num-processes", 2)
    children = builders.workers(process)
    process.kill()
    process.communicate(timeout=120)
    assert files(output) == [BUILDING]  # nothing under a final name
    builders.wait_for(lambda: not any(child.is_running() for child in children))
    fails(run(SCRIPT, *large_args), "leftovers of an interrupted build", "--overwrite")
    assert run(SCRIPT, *large_args, "--overwrite").returncode == 0
    assert files(output) == sorted([*manifest(output)["shards"], "manifest.json"])


def test_a_killed_worker_fails_the_command(large_args, output):
    process = builders.start(SCRIPT, *large_args, "--num-processes", 2)
    builders.workers(process)[1].kill()
    printed, errors = process.communicate(timeout=120)
    fails(subprocess.CompletedProcess([], process.returncode, printed, errors), "SIGKILL", "worker process")
    assert files(output) == []


def test_a_file_vanishes(large_args, large_corpus, output):
    order = ["a", "b"]
    random.Random(42).shuffle(order)
    process = builders.start(SCRIPT, *large_args)
    (large_corpus / order[1]).unlink()
    printed, errors = process.communicate(timeout=120)
    result = subprocess.CompletedProcess([], process.returncode, printed, errors)
    fails(result, str(large_corpus / order[1]), "No such file")
    assert files(output) == []


def test_files_may_not_grow(args, output):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))  # noqa: E731
    fails(run(SCRIPT, *args, preexec_fn=limit), str(output), "File too large")
    assert files(output) == []


def test_too_many_open_files(args, output):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # noqa: E731
    fails(run(SCRIPT, *args, "--num-out-files", 200, preexec_fn=limit), "Too many open files", "--num-out-files")
    assert files(output) == []


@contextmanager
def small_disk(folder):
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "none", folder], check=False).returncode
    ):
        pytest.skip("needs the right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_disk_full(args, output):
    with small_disk(output):
        fails(run(SCRIPT, *args), str(output), "No space left on device")
        assert files(output) == []
