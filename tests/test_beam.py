"""--runner with Apache Beam's direct runner: records, one process or two, repeated bundles, failures, object stores."""

import functools
import gzip
import importlib.util
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil
import pytest

import build_openwebtext_pretraining_dataset
import build_pretraining_dataset
import build_vocab
from pretrain import parts
from pretrain.runner import Runner
from tests import builders
from tests.builders import BUILDING, VOCAB, fails, files, manifest, run, shards
from tests.pretrain.test_text_files import write_archive
from tests.test_seed_per_file import records, text
from util.errors import UserError

pytestmark = [
    pytest.mark.beam,
    pytest.mark.skipif(
        importlib.util.find_spec("apache_beam") is None,
        reason="Apache Beam is not installed: pip install -r requirements-beam.txt",
    ),
]

SCRIPT = "build_pretraining_dataset.py"
DIRECT = ["--runner", "DirectRunner"]
TWO_PROCESSES = "--direct_num_workers=2 --direct_running_mode=multi_processing"
TWICE = " --direct_runner_bundle_repeat=1"  # Beam does every bundle once more than it should


@pytest.fixture
def data(tmp_path):
    """A folder with a vocabulary and a corpus of six files, two of them compressed or no text."""
    folder = tmp_path / "corpus"
    (folder / "more").mkdir(parents=True)
    for i, name in enumerate(("a.txt", "b.txt", "more/a.txt", "more/c.txt")):
        (folder / name).write_text(text(i))
    (folder / "d.gz").write_bytes(gzip.compress(text(7).encode()))
    (folder / "picture").write_bytes(b"\0" * 99)
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    return tmp_path


def flags(data: Path, output: object) -> list[object]:
    found = ["--corpus-dir", data / "corpus", "--vocab-file", data / "vocab.txt", "--output-dir", output]
    return [*found, "--max-seq-length", 16, "--num-out-files", 7]


def call(module, monkeypatch, *args: object) -> int:
    """Runs a command in this process, where Beam finds the file system of tests/beam_files.py."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, args)])
    return module.main()


def counts_of(folder: Path) -> dict:
    return {name: value for name, value in manifest(folder).items() if name.startswith("num_") or "share" in name}


# ---------------------------------------------------------------------------------------------------------------------
# What is written


def test_the_records_of_the_processes_and_the_same_bytes_however_often_a_bundle_is_done(data):
    assert run(SCRIPT, *flags(data, data / "processes"), "--seed-per-file", "--num-processes", 2).returncode == 0
    contents = []
    for name, options in (("one", ""), ("two", TWO_PROCESSES), ("twice", TWO_PROCESSES + TWICE), ("again", TWICE)):
        result = run(SCRIPT, *flags(data, data / name), *DIRECT, f"--beam-options={options}")
        assert (result.returncode, result.stderr) == (0, "")
        assert records(data / name) == records(data / "processes")
        assert files(data / name) == sorted([*shards(data / name), "manifest.json"])
        found = manifest(data / name)
        assert (found["runner"], found["seed_per_file"], found["num_skipped_files"]) == ("DirectRunner", True, 1)
        assert list(found["shards"]) == [f"pretrain_data.tfrecord-{i}-of-7" for i in range(7)]
        assert found["shards"] == {name: builders.number_of_records(c) for name, c in shards(data / name).items()}
        expected = {**counts_of(data / "processes"), "num_processes": 1}
        assert counts_of(data / name) == expected
        assert "5 jobs for DirectRunner" in result.stdout and "tokens cut off and lost" in result.stdout
        contents.append(shards(data / name))
    assert contents[0] == contents[1] == contents[2] == contents[3]


def test_from_another_folder_and_below_odd_names(data):
    folder = data / "a 'folder'"
    folder.mkdir()
    (data / "corpus").rename(folder / "corpus")
    (folder / os.fsdecode(b"corpus/\xff.txt")).write_text(text(9))  # a name that is no UTF-8
    args = ["--corpus-dir", "corpus", "--vocab-file", data / "vocab.txt", "--output-dir", "out", "--num-out-files", 4]
    result = run(SCRIPT, *args, *DIRECT, f"--beam-options={TWO_PROCESSES}", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert manifest(folder / "out")["num_files"] == 6


def test_large_files_are_shared_out(data, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    assert call(build_pretraining_dataset, monkeypatch, *flags(data, data / "beam"), *DIRECT) == 0
    processes = ["--seed-per-file", "--num-processes", 3]
    assert call(build_pretraining_dataset, monkeypatch, *flags(data, data / "processes"), *processes) == 0
    assert records(data / "beam") == records(data / "processes")
    assert manifest(data / "beam")["num_files"] == 5


def write_archives(folder: Path) -> None:
    folder.mkdir()
    for i in range(3):
        write_archive(folder / f"{i}.tar", [(f"{j}", text(10 * i + j).encode()) for j in range(4)])


def test_archives(data, monkeypatch):
    write_archives(data / "openwebtext")
    args = ["--data-dir", data, "--max-seq-length", 16, "--num-out-files", 4]
    assert call(build_openwebtext_pretraining_dataset, monkeypatch, *args, *DIRECT) == 0
    found = records(data / "pretrain_tfrecords")
    assert manifest(data / "pretrain_tfrecords")["num_documents"] == 12
    again = [*args, "--overwrite", "--seed-per-file", "--num-processes", 2]
    assert call(build_openwebtext_pretraining_dataset, monkeypatch, *again) == 0
    assert records(data / "pretrain_tfrecords") == found


def test_the_same_vocabulary(data):
    args = ["--corpus-dir", data / "corpus", "--vocab-size", 125, "--min-frequency", 1]
    assert run("build_vocab.py", *args, "--output-file", data / "plain").returncode == 0
    result = run(
        "build_vocab.py", *args, "--output-file", data / "beam", *DIRECT, f"--beam-options={TWO_PROCESSES}{TWICE}"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert (data / "beam").read_bytes() == (data / "plain").read_bytes()
    assert files(data) == ["beam", "corpus", "plain", "vocab.txt"]


def test_memory_does_not_grow_with_the_text(data, tmp_path):
    peaks = []
    for times in (1, 12):
        for i in range(4):
            (data / "corpus" / f"{i}").write_text("".join(text(i, 1000) for _ in range(20 * times)))
        peaks.append(builders.peak_memory_of(SCRIPT, *flags(data, tmp_path / f"{times}"), *DIRECT)[0])
    assert manifest(tmp_path / "12")["num_examples"] > 8 * manifest(tmp_path / "1")["num_examples"]
    assert peaks[1] < peaks[0] + 15


def note_and_give(job: int, folder: str, report) -> list[int]:
    """A job that leaves a file behind each time that it is done."""
    fd, _ = tempfile.mkstemp(prefix=f"{job}-", dir=folder)
    os.close(fd)
    return [job]


def test_a_job_that_is_done_again_counts_once(tmp_path):
    from pretrain import beam_build

    runner = Runner("DirectRunner", tuple(TWICE.split()))
    (tmp_path / "notes").mkdir()
    work = functools.partial(note_and_give, folder=str(tmp_path / "notes"))
    results = beam_build.run_jobs(runner, range(20), work, beam_build._joined, str(tmp_path))
    assert sorted(results) == list(range(20))
    assert Counter(int(name.split("-")[0]) for name in files(tmp_path / "notes")) == dict.fromkeys(range(20), 2)


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong


def damage(path: Path) -> None:
    """Leaves half of a compressed text, so that its start can be read."""
    content = gzip.compress(text(7, 20_000).encode())
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("options", ["", TWO_PROCESSES])
def test_a_damaged_file_is_one_message(data, options):
    damage(data / "corpus" / "d.gz")
    fails(run(SCRIPT, *flags(data, data / "out"), *DIRECT, f"--beam-options={options}"), "d.gz", "mend the file")
    assert files(data / "out") == []
    args = ["--corpus-dir", data / "corpus", "--vocab-size", 125, "--output-file", data / "vocabulary"]
    fails(run("build_vocab.py", *args, *DIRECT, f"--beam-options={options}"), "d.gz", "mend the file")
    assert files(data) == ["corpus", "out", "vocab.txt"]


def test_leftovers_are_removed_only_when_asked(data):
    leftover = data / "out" / BUILDING
    leftover.mkdir(parents=True)
    for name in (f"pretrain_data.tfrecord-0-of-7.{'a' * 32}", "result.json", "failure.txt"):
        (leftover / name).write_text("[]")
    fails(run(SCRIPT, *flags(data, data / "out"), *DIRECT), "leftovers of an interrupted build", "--overwrite")
    assert len(files(leftover)) == 3
    assert run(SCRIPT, *flags(data, data / "out"), *DIRECT, "--overwrite").returncode == 0
    assert files(data / "out") == sorted([*manifest(data / "out")["shards"], "manifest.json"])
    assert run(SCRIPT, *flags(data, data / "new"), *DIRECT).returncode == 0
    assert shards(data / "out") == shards(data / "new")


@pytest.fixture
def large(data):
    for i in range(6):
        (data / "corpus" / f"{i}").write_text(text(i, 1000) * 100)
    return data


@pytest.mark.parametrize("options", ["", TWO_PROCESSES])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(large, options, number):
    process = builders.start(SCRIPT, *flags(large, large / "out"), *DIRECT, f"--beam-options={options}")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted\n")
    assert files(large / "out") == []
    assert len(children) == (2 if options else 0) and not any(child.is_running() for child in children)


def test_killed_outright_and_run_again(large):
    args = [*flags(large, large / "out"), *DIRECT, f"--beam-options={TWO_PROCESSES}"]
    process = builders.start(SCRIPT, *args)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=60)
    assert files(large / "out") == [BUILDING]
    builders.wait_for(lambda: not any(child.is_running() for child in children))  # long before their jobs are done
    fails(run(SCRIPT, *args), "leftovers")
    assert run(SCRIPT, *args, "--overwrite").returncode == 0
    assert files(large / "out") == sorted([*manifest(large / "out")["shards"], "manifest.json"])
    assert run(SCRIPT, *flags(large, large / "new"), *DIRECT).returncode == 0
    assert shards(large / "out") == shards(large / "new")


@pytest.mark.parametrize(
    ("args", "parts_of_message"),
    [
        (["--runner", "DirectRuner"], ["unknown --runner DirectRuner", 'did you mean "DirectRunner"', "SparkRunner"]),
        (["--runner", "DataflowRunner"], ["DataflowRunner", "temp_location", "project"]),
        ([*DIRECT, "--beam-options=--direct_num_worker=2"], ["--direct_num_worker", '"--direct_num_workers"']),
        ([*DIRECT, "--beam-options=--direct_num_workers=two"], ["--direct_num_workers", "'two'"]),
        ([*DIRECT, "--beam-options=stray"], ["stray"]),
        ([*DIRECT, "--beam-options='"], ["quotation"]),
        ([*DIRECT, "--beam-options=--runner=FlinkRunner"], ["--runner"]),
        ([*DIRECT, "--num-processes", 2], ["--num-processes 2", "direct_num_workers 2"]),
        (["--corpus-dir", "nowhere://a/b"], ["nowhere://a/b", "no file system"]),
    ],
)
def test_wrong_flags(data, args, parts_of_message):
    result = run(SCRIPT, *flags(data, data / "out"), *args)
    errors = [line for line in result.stderr.splitlines() if not line.startswith(("INFO:", "WARNING:"))]
    result.stderr = "\n".join(errors)
    fails(result, *parts_of_message)
    assert files(data / "out") == []


# ---------------------------------------------------------------------------------------------------------------------
# Paths with a scheme


@pytest.fixture
def store(data):
    """The same data as an object store has it."""
    from tests import beam_files

    return beam_files.SCHEME[:-1] + str(data)


def test_an_object_store(data, store, monkeypatch):
    assert call(build_pretraining_dataset, monkeypatch, *flags(data, data / "local"), *DIRECT) == 0
    remote = ["--corpus-dir", f"{store}/corpus", "--vocab-file", f"{store}/vocab.txt", "--output-dir", f"{store}/out"]
    remote += ["--max-seq-length", 16, "--num-out-files", 7, *DIRECT]
    assert call(build_pretraining_dataset, monkeypatch, *remote) == 0
    assert shards(data / "out") == shards(data / "local")
    assert manifest(data / "out") == manifest(data / "local")
    assert files(data / "out") == files(data / "local")
    with pytest.raises(UserError, match="holds files: name another"):
        call(build_pretraining_dataset, monkeypatch, *remote)
    (data / "out" / "notes").write_text("mine")
    assert call(build_pretraining_dataset, monkeypatch, *remote, "--overwrite", "--seed", 43) == 0
    assert files(data / "out") == sorted([*files(data / "local"), "notes"])
    assert records(data / "out") != records(data / "local")
    damage(data / "corpus" / "d.gz")
    with pytest.raises(UserError, match="cannot read test://.*d.gz"):
        call(build_pretraining_dataset, monkeypatch, *remote, "--overwrite")
    assert manifest(data / "out")["seed"] == 43 and BUILDING not in files(data / "out")
    (data / "out" / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match="is no manifest of shards"):
        call(build_pretraining_dataset, monkeypatch, *remote, "--overwrite")
    with pytest.raises(UserError, match="with --runner only"):
        call(build_pretraining_dataset, monkeypatch, *remote[:-2])


def test_a_vocabulary_and_archives_in_an_object_store(data, store, monkeypatch):
    args = ["--vocab-size", 125, "--min-frequency", 1, *DIRECT]
    local = [*args, "--corpus-dir", data / "corpus", "--output-file", data / "local"]
    remote = [*args, "--corpus-dir", f"{store}/corpus", "--output-file", f"{store}/remote"]
    assert call(build_vocab, monkeypatch, *local) == call(build_vocab, monkeypatch, *remote) == 0
    assert (data / "local").read_bytes() == (data / "remote").read_bytes()
    with pytest.raises(UserError, match="exists: name another"):
        call(build_vocab, monkeypatch, *remote)
    assert files(data) == ["corpus", "local", "remote", "vocab.txt"]
    write_archives(data / "openwebtext")
    args = ["--max-seq-length", 16, "--num-out-files", 4, *DIRECT]
    assert call(build_openwebtext_pretraining_dataset, monkeypatch, "--data-dir", data, *args) == 0
    found = shards(data / "pretrain_tfrecords")
    remote = ["--data-dir", store, "--overwrite", *args]
    assert call(build_openwebtext_pretraining_dataset, monkeypatch, *remote) == 0
    assert shards(data / "pretrain_tfrecords") == found and sum(map(len, found.values())) > 1000


def test_parts_of_files_in_an_object_store(data, store, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    contents: list[Counter] = []
    for corpus, name in ((data / "corpus", "local"), (f"{store}/corpus", "remote")):
        args = [*flags(data, data / name), "--corpus-dir", corpus, *DIRECT]
        assert call(build_pretraining_dataset, monkeypatch, *args) == 0
        contents.append(records(data / name))
    assert contents[0] == contents[1]
