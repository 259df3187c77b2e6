"""Parts of a corpus with randomness of their own, so that they can be read anywhere, in any order, and again.

A part is a file, or some `PART_BYTES` of a large text file, cut where a blank line ends a document. Its random numbers
are a function of (seed, path relative to the corpus, number of the part), and nothing carries over from one part to the
next: the records of a part depend on neither the other files nor on which process reads it.
"""

import dataclasses
import heapq
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pretrain.text_files import guarded_reading, open_source
from util import filesystem

PART_BYTES = 64 << 20
CUT_WINDOW = 1 << 20  # bytes after each multiple of PART_BYTES among which a blank line is looked for
_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")  # other white space makes a blank line too, but no place to cut


class Part(NamedTuple):
    """`size` bytes, from `start` to `end` (None: the file's), of a file; `name` is its path relative to the corpus."""

    path: str
    name: str
    size: int
    number: int = 0
    start: int = 0
    end: int | None = None

    @property
    def section(self) -> tuple[int, int | None] | tuple[()]:
        """The bytes to read, nothing for a whole file."""
        return (self.start, self.end) if self.start or self.end is not None else ()

    def seed(self, seed: int) -> bytes:
        """What the random numbers of this part are seeded with."""
        return f"{seed}/{self.number}/".encode() + os.fsencode(self.name)


@dataclasses.dataclass(frozen=True)
class Job:
    """Parts whose examples go to the same shards, in this order."""

    parts: tuple[Part, ...]
    shards: tuple[str, ...]


def find_parts(folder: str, paths: Sequence[str], cut: bool) -> list[Part]:
    """The parts of files below a folder.

    Args:
      folder: the corpus.
      paths: the files.
      cut: whether blank lines end documents, so that files of text may be cut there.
    """
    parts = []
    for path in paths:
        with guarded_reading(path):
            size = filesystem.size(path)
        name = os.path.relpath(path, folder)
        places = [0, *(_cuts(path, size) if cut and size > PART_BYTES else ()), size]
        for number, (start, end) in enumerate(zip(places, places[1:])):
            parts.append(Part(path, name, end - start, number, start, end if end < size else None))
    return parts


def _cuts(path: str, size: int) -> list[int]:
    """Where a text file is cut; one that is compressed cannot be."""
    cuts = []
    with guarded_reading(path), open_source(path) as (content, file):
        if content is not file:
            return []
        for place in range(PART_BYTES, size, PART_BYTES):
            file.seek(place)
            blank = _BLANK_LINE.search(file.read(CUT_WINDOW))
            if blank and place + blank.end() < size:
                cuts.append(place + blank.end())
    return cuts


def deal(parts: Sequence[Part], num_hands: int) -> list[list[Part]]:
    """Deals parts out into hands of about equal numbers of bytes, none of them empty.

    The same arguments give the same hands.
    """
    hands: list[list[int]] = [[] for _ in range(min(num_hands, len(parts)))]
    queue = [(0, 0, hand) for hand in range(len(hands))]  # bytes, parts (some are empty), which hand
    for i in sorted(range(len(parts)), key=lambda i: -parts[i].size):  # the largest first, to where the least is
        load, held, hand = queue[0]
        heapq.heapreplace(queue, (load + parts[i].size, held + 1, hand))
        hands[hand].append(i)
    return [[parts[i] for i in sorted(hand)] for hand in hands]


def plan_jobs(parts: Sequence[Part], num_jobs: int, shards: Sequence[str]) -> list[Job]:
    """Deals parts and shards out to jobs, no more than there are of either, for shards of about the same size."""
    hands = deal(parts, min(num_jobs, len(shards)))
    loads = [sum(part.size for part in hand) for hand in hands]
    names = [[shard] for shard in shards[: len(hands)]]
    queue = [(-load / 2, job) for job, load in enumerate(loads)]
    heapq.heapify(queue)
    for shard in shards[len(hands) :]:  # to the job whose shards would be the largest with one more
        _, job = queue[0]
        names[job].append(shard)
        heapq.heapreplace(queue, (-loads[job] / (len(names[job]) + 1), job))
    return [Job(tuple(hand), tuple(own)) for hand, own in zip(hands, names)]
