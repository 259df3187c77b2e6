"""--seed-per-file: the records of a file depend on the file, its name and the seed, and on nothing else."""

import dataclasses
import random
from collections import Counter

import pytest

import build_pretraining_dataset
from model.tokenization import load_vocab
from pretrain import parts
from pretrain.build_shards import BuildSettings, shard_names, write_parts
from pretrain.parts import find_parts, plan_jobs
from pretrain.text_files import archive_members, find_files, text_file
from tests.builders import VOCAB, manifest, run, shards
from tests.pretrain.test_text_files import write_archive
from util.tfrecords import Shard

SCRIPT = "build_pretraining_dataset.py"


def text(seed: int, lines: int = 120) -> str:
    rng = random.Random(seed)
    pick = ["the cat sat on the mat.", "a a a", "", "The Mat sat on the unknown cat", "aaa a the", ""]
    return "".join(f"{rng.choice(pick)}\n" for _ in range(lines))


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n")
    return path


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    (folder / "more").mkdir(parents=True)
    for i, name in enumerate(("a.txt", "b.txt", "c.txt", "more/a.txt", "more/d.txt")):
        (folder / name).write_text(text(i))
    return folder


def records(folder) -> Counter:
    """The records of all shards in a folder, with how often each is there."""
    found: Counter[bytes] = Counter()
    for path in folder.glob("pretrain_data.tfrecord-*"):
        shard = Shard(str(path))
        found.update(bytes(shard[i]) for i in range(len(shard)))
    return found


def built(folder, vocab, corpus, num_jobs=1, paths=None, **changes) -> Counter:
    """The records that jobs write of files below a folder."""
    settings = BuildSettings(
        command=SCRIPT,
        vocab_file=str(vocab),
        output_dir="",
        sources=tuple(paths or find_files(str(corpus))),
        read_source=text_file,
        max_seq_length=16,
        num_out_files=7,
        corpus=str(corpus),
    )
    settings = dataclasses.replace(settings, **changes)
    folder.mkdir()
    found = find_parts(settings.corpus, settings.sources, cut=settings.blanks_separate_docs)
    for job in plan_jobs(found, num_jobs, shard_names(settings)):
        write_parts(job.parts, job.shards, str(folder), settings, load_vocab(str(vocab)))
    return records(folder)


@pytest.mark.parametrize("keep_long_lines", [False, True])
def test_neither_order_nor_jobs_nor_other_files_matter(tmp_path, vocab, corpus, keep_long_lines):
    paths = find_files(str(corpus))
    alone = {
        path: built(tmp_path / f"alone{i}", vocab, corpus, paths=[path], keep_long_lines=keep_long_lines)
        for i, path in enumerate(paths)
    }
    assert all(sum(found.values()) > 20 for found in alone.values())
    rng = random.Random(1)
    for trial, num_jobs in enumerate((1, 1, 2, 3, 5, 7)):
        some = rng.sample(paths, rng.randint(2, len(paths)))
        found = built(tmp_path / f"some{trial}", vocab, corpus, num_jobs, paths=some, keep_long_lines=keep_long_lines)
        assert found == sum((alone[path] for path in some), Counter())


def test_what_does_matter(tmp_path, vocab, corpus):
    plain = built(tmp_path / "plain", vocab, corpus)
    assert built(tmp_path / "seed", vocab, corpus, seed=43) != plain
    (corpus / "a.txt").rename(corpus / "z.txt")
    assert built(tmp_path / "renamed", vocab, corpus) != plain
    (corpus / "z.txt").rename(corpus / "a.txt")
    moved = corpus.rename(tmp_path / "elsewhere")
    assert built(tmp_path / "moved", vocab, moved) == plain


def test_large_files_are_read_in_parts(tmp_path, vocab, corpus, monkeypatch):
    whole = built(tmp_path / "whole", vocab, corpus)
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    in_parts = built(tmp_path / "1", vocab, corpus)
    assert in_parts != whole  # each part has random numbers of its own
    assert abs(sum(in_parts.values()) - sum(whole.values())) < 30
    for num_jobs in (2, 5):
        assert built(tmp_path / f"{num_jobs}", vocab, corpus, num_jobs) == in_parts


def test_archives(tmp_path, vocab):
    folder = tmp_path / "archives"
    folder.mkdir()
    for i in range(3):
        write_archive(folder / f"{i}.tar", [(f"{j}", text(10 * i + j).encode()) for j in range(4)])
    kind = {"read_source": archive_members, "blanks_separate_docs": False}
    alone = [built(tmp_path / f"alone{i}", vocab, folder, paths=[str(folder / f"{i}.tar")], **kind) for i in range(3)]
    assert built(tmp_path / "all", vocab, folder, 2, **kind) == sum(alone, Counter())


def test_the_command(tmp_path, vocab, corpus):
    flags = ["--corpus-dir", corpus, "--vocab-file", vocab, "--max-seq-length", 16, "--num-out-files", 8]
    for processes in (1, 2, 7):  # the last are more than there are files
        result = run(
            SCRIPT, *flags, "--output-dir", tmp_path / f"{processes}", "--num-processes", processes, "--seed-per-file"
        )
        assert result.returncode == 0, result.stderr
        assert records(tmp_path / f"{processes}") == records(tmp_path / "1")
        found = manifest(tmp_path / f"{processes}")
        assert (found["seed_per_file"], found["runner"], found["num_processes"]) == (True, None, processes)
        assert found["num_files"] == 5 and found["num_examples"] == sum(records(tmp_path / "1").values())
        assert all(found["shards"].values())
    assert run(SCRIPT, *flags, "--output-dir", tmp_path / "released").returncode == 0
    assert manifest(tmp_path / "released")["seed_per_file"] is False
    assert records(tmp_path / "released") != records(tmp_path / "1")


def test_one_large_file_is_shared_by_processes(tmp_path, vocab, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 2000)
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "one").write_text(text(1, 1000))
    output = tmp_path / "shards"
    flags = ["--corpus-dir", folder, "--vocab-file", vocab, "--output-dir", output, "--max-seq-length", 16]
    flags += ["--num-out-files", 4, "--num-processes", 2, "--seed-per-file"]
    monkeypatch.setattr("sys.argv", [SCRIPT, *map(str, flags)])
    assert build_pretraining_dataset.main() == 0
    found = manifest(output)
    assert found["num_files"] == 1
    assert max(found["shards"].values()) < 1.3 * min(found["shards"].values())
    assert len(shards(output)) == 4
