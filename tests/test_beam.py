"""--runner with Apache Beam's direct runner: records, one process or two, repeated bundles, failures, ram://."""

import functools
import gzip
import importlib.util
import os
import resource
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
from pretrain.manifest import read_manifest
from pretrain.runner import Runner
from tests import builders
from tests.builders import BUILDING, VOCAB, fails, files, manifest, run, shards
from tests.pretrain.test_text_files import write_archive
from tests.test_build_pretraining_dataset import small_disk
from tests.test_seed_per_file import records, text
from util import filesystem
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
    """Runs a command in this process, which alone sees its ram:// and what the test changes."""
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
    damage(data / "corpus" / os.fsdecode(b"\xff.gz"))
    fails(run(SCRIPT, *flags(data, data / "out"), *DIRECT, f"--beam-options={options}"), r"\udcff.gz", "mend the file")
    assert files(data / "out") == []
    args = ["--corpus-dir", data / "corpus", "--vocab-size", 125, "--output-file", data / "vocabulary"]
    fails(run("build_vocab.py", *args, *DIRECT, f"--beam-options={options}"), r"\udcff.gz", "mend the file")
    assert files(data) == ["corpus", "out", "vocab.txt"]


@pytest.mark.parametrize("options", ["", TWO_PROCESSES])
def test_no_more_may_be_written(data, options):
    args = [*flags(data, data / "out"), *DIRECT, f"--beam-options={options}"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # noqa: E731
    fails(run(SCRIPT, *args, preexec_fn=limit), str(data / "out"), "File too large")
    assert files(data / "out") == []
    with small_disk(data / "disk"):
        fails(run(SCRIPT, *args, "--output-dir", data / "disk"), str(data / "disk"), "No space left on device")
        assert files(data / "disk") == []


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


def copy_folder(source: str, target: str) -> None:
    for folder, _, names in filesystem.walk(source):
        place = target + folder.removeprefix(source)
        filesystem.makedirs(place)
        for name in names:
            filesystem.copy(f"{folder}/{name}", f"{place}/{name}")


@pytest.fixture
def remote(data):
    """The same data on a file system of TensorFlow's, that of this process's memory."""
    root = f"ram://{data.name}"
    copy_folder(str(data), root)
    return root


def test_text_and_shards_on_another_file_system(data, remote, monkeypatch):
    assert call(build_pretraining_dataset, monkeypatch, *flags(data, data / "local"), *DIRECT) == 0
    args = ["--corpus-dir", f"{remote}/corpus", "--vocab-file", f"{remote}/vocab.txt", "--output-dir", f"{remote}/out"]
    args += ["--max-seq-length", 16, "--num-out-files", 7, *DIRECT]
    assert call(build_pretraining_dataset, monkeypatch, *args) == 0
    copy_folder(f"{remote}/out", str(data / "out"))
    assert files(data / "out") == files(data / "local")
    assert shards(data / "out") == shards(data / "local")
    assert manifest(data / "out") == manifest(data / "local")
    with pytest.raises(UserError, match="holds files: name another"):
        call(build_pretraining_dataset, monkeypatch, *args)
    copy_folder(str(data / "corpus" / "more"), f"{remote}/out/notes")
    assert call(build_pretraining_dataset, monkeypatch, *args, "--overwrite", "--seed", 43) == 0
    assert sorted(filesystem.listdir(f"{remote}/out")) == sorted([*files(data / "local"), "notes"])
    copy_folder(f"{remote}/out", str(data / "again"))
    assert records(data / "again") != records(data / "local")
    damage(data / "corpus" / "d.gz")
    filesystem.copy(str(data / "corpus" / "d.gz"), f"{remote}/corpus/d.gz")
    with pytest.raises(UserError, match="cannot read ram://.*d.gz"):
        call(build_pretraining_dataset, monkeypatch, *args, "--overwrite")
    assert read_manifest(f"{remote}/out")["seed"] == 43 and BUILDING not in filesystem.listdir(f"{remote}/out")


def test_a_vocabulary_and_archives_on_another_file_system(data, remote, monkeypatch):
    args = ["--vocab-size", 125, "--min-frequency", 1, *DIRECT]
    for root in (data, remote):
        found = ["--corpus-dir", f"{root}/corpus", "--output-file", f"{root}/learned"]
        assert call(build_vocab, monkeypatch, *args, *found) == 0
    filesystem.copy(f"{remote}/learned", str(data / "remote"))
    assert (data / "learned").read_bytes() == (data / "remote").read_bytes()
    with pytest.raises(UserError, match="exists: name another"):
        call(build_vocab, monkeypatch, *args, *found)
    assert sorted(filesystem.listdir(remote)) == ["corpus", "learned", "vocab.txt"]
    write_archives(data / "openwebtext")
    copy_folder(str(data / "openwebtext"), f"{remote}/openwebtext")
    for root in (data, remote):
        args = ["--data-dir", root, "--max-seq-length", 16, "--num-out-files", 4, *DIRECT]
        assert call(build_openwebtext_pretraining_dataset, monkeypatch, *args) == 0
    copy_folder(f"{remote}/pretrain_tfrecords", str(data / "copy"))
    assert shards(data / "pretrain_tfrecords") == shards(data / "copy")
    assert sum(map(len, shards(data / "copy").values())) > 1000


def test_parts_of_files_on_another_file_system(data, remote, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    contents = []
    for root, output in ((data, "local"), (remote, "remote")):
        args = [*flags(data, data / output), "--corpus-dir", f"{root}/corpus", *DIRECT]
        assert call(build_pretraining_dataset, monkeypatch, *args) == 0
        contents.append(shards(data / output))
    assert contents[0] == contents[1]
