"""Cutting a corpus into parts and dealing them out."""

import gzip
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain import parts
from pretrain.example_building import Counts
from pretrain.parts import Part, deal, find_parts, plan_jobs
from pretrain.text_files import text_file
from util.errors import UserError


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    monkeypatch.setattr(parts, "CUT_WINDOW", 40)


def lines(path: str, *section) -> list[str]:
    return [piece.text for pieces in text_file(path, None, Counts(), *section) for piece in pieces]


def documents(texts: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for text in texts:
        if text.strip():
            found[-1].append(text)
        else:
            found.append([])
    return [document for document in found if document]


@given(seed=st.integers(0, 1 << 30), blanks=st.sampled_from(["\n", " \t\n", "\r\n", "\n\n", "\u3000\n"]))
def test_parts_are_whole_documents(tmp_path_factory, seed, blanks):
    rng = random.Random(seed)
    text = "".join(rng.choice(["é" * rng.randint(1, 30) + "\n", blanks]) for _ in range(rng.randint(0, 80)))
    folder = tmp_path_factory.mktemp("corpus")
    path = str(folder / "text")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_BYTES", 100)
        patch.setattr(parts, "CUT_WINDOW", 40)
        found = find_parts(str(folder), [path], cut=True)
    assert [part.number for part in found] == list(range(len(found)))
    assert sum(part.size for part in found) == os.path.getsize(path)
    read = [documents(lines(path, *part.section)) for part in found]
    assert [document for part in read for document in part] == documents(lines(path))
    assert all(0 < part.start % 100 <= 40 for part in found[1:])


def test_a_long_text_is_cut_and_its_parts_are_even(tmp_path, small_parts):
    path = tmp_path / "sub" / "text"
    path.parent.mkdir()
    path.write_text("a line\n\n" * 100)
    found = find_parts(str(tmp_path), [str(path)], cut=True)
    assert len(found) == 8 and max(part.size for part in found) <= 116
    assert {part.name for part in found} == {"sub/text"}
    assert found[0].start == 0 and found[-1].end is None
    assert all(before.end == after.start for before, after in zip(found, found[1:]))
    counts = Counts()
    for part in found:
        for pieces in text_file(part.path, None, counts, *part.section):
            list(pieces)
    assert (counts.files, counts.bytes_read) == (1, path.stat().st_size)


@pytest.mark.parametrize("what", ["no blank line", "blank lines mean nothing", "compressed", "short"])
def test_what_is_not_cut(tmp_path, small_parts, what):
    path = tmp_path / "text"
    text = b"a line\n" * 200 if what == "no blank line" else b"a line\n\n" * 200
    if what == "compressed":
        text = gzip.compress(text, compresslevel=0)  # the blank lines stay visible
    path.write_bytes(text[:100] if what == "short" else text)
    found = find_parts(str(tmp_path), [str(path)], cut=what != "blank lines mean nothing")
    assert found == [Part(str(path), "text", path.stat().st_size)] and found[0].section == ()


def test_each_part_has_a_seed_of_its_own():
    known = [
        Part("/x", name, 5, number).seed(seed) for seed in (1, 11) for name in ("a", "b/a", "1/a") for number in (0, 1)
    ]
    assert len(set(known)) == len(known) == 12
    assert Part("/x/a", "a", 5).seed(1) == Part("/y/a", "a", 6).seed(1)  # where the corpus lies means nothing
    Part("/x/\udcff", "\udcff", 5).seed(1)  # a name that is no UTF-8


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(UserError, match="gone"):
        find_parts(str(tmp_path), [str(tmp_path / "gone")], cut=True)


SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


def parts_of(sizes: list[int]) -> list[Part]:
    return [Part(str(i), str(i), size) for i, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 12))
def test_every_part_is_dealt_out_once_and_evenly(sizes, hands):
    given_parts = parts_of(sizes)
    dealt = deal(given_parts, hands)
    assert sorted(part for hand in dealt for part in hand) == sorted(given_parts)
    assert all(hand == sorted(hand, key=given_parts.index) for hand in dealt)
    assert len(dealt) == min(hands, len(sizes)) and all(dealt)
    loads = [sum(part.size for part in hand) for hand in dealt]
    assert max(loads) - min(loads) <= max(sizes)


@given(SIZES, st.integers(1, 60), st.integers(1, 60))
def test_every_shard_is_dealt_out_once_and_evenly(sizes, num_jobs, num_shards):
    given_parts = parts_of(sizes)
    shards = [f"shard {i}" for i in range(num_shards)]
    jobs = plan_jobs(given_parts, num_jobs, shards)
    assert jobs == plan_jobs(given_parts, num_jobs, shards)
    assert sorted(shard for job in jobs for shard in job.shards) == sorted(shards)
    assert sorted(part for job in jobs for part in job.parts) == sorted(given_parts)
    loads = [sum(part.size for part in job.parts) for job in jobs]
    for job, load in zip(jobs, loads):  # another job's shards would not be smaller with one of this job's
        if len(job.shards) > 1:
            assert all(load / len(job.shards) >= other / (len(more.shards) + 1) for more, other in zip(jobs, loads))
