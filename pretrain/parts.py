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

from pretrain.text_files import guarded_reading, is_compressed
from util import storage

PART_BYTES = 64 << 20
CUT_WINDOW = 1 << 20  # bytes after each multiple of PART_BYTES among which a blank line is looked for
_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")  # other white space makes a blank line too, but no place to cut


class Part(NamedTuple):
    """Bytes `start` to `end` of a file (None: to its end); `name` is its path relative to the corpus."""

    path: str
    name: str
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


def find_parts(folder: str, paths: Sequence[str], cut: bool) -> tuple[list[Part], list[int]]:
    """The parts of files below a folder, and about how many bytes each has.

    Args:
      folder: the corpus.
      paths: the files.
      cut: whether blank lines end documents, so that files of text may be cut there.
    """
    remote = storage.remote_sizes(folder) if storage.is_remote(folder) else None
    parts: list[Part] = []
    sizes: list[int] = []
    for path in paths:
        with guarded_reading(path):
            size = os.path.getsize(path) if remote is None else remote[path]
        name = os.path.relpath(path, folder) if remote is None else path[len(folder.rstrip("/")) + 1 :]
        places = [0, *(_cuts(path, size) if cut and size > PART_BYTES else ()), size]
        for number, (start, end) in enumerate(zip(places, places[1:])):
            parts.append(Part(path, name.replace(os.sep, "/"), number, start, end if end < size else None))
            sizes.append(end - start)
    return parts, sizes


def _cuts(path: str, size: int) -> list[int]:
    """Where a text file is cut; one that is compressed cannot be."""
    cuts = []
    with guarded_reading(path), storage.open_binary(path) as file:
        if is_compressed(file):
            return []
        for place in range(PART_BYTES, size, PART_BYTES):
            file.seek(place)
            blank = _BLANK_LINE.search(file.read(CUT_WINDOW))
            if blank and place + blank.end() < size:
                cuts.append(place + blank.end())
    return cuts


def deal(parts: Sequence[Part], sizes: Sequence[int], num_hands: int) -> list[list[int]]:
    """Deals parts out into about equal numbers of bytes: the numbers of the parts of each hand, none of them empty.

    The same arguments give the same hands.
    """
    queue = [(0, 0, hand) for hand in range(min(num_hands, len(parts)))]  # bytes, parts (some are empty), which hand
    hands: list[list[int]] = [[] for _ in queue]
    for i in sorted(range(len(parts)), key=lambda i: (-sizes[i], i)):  # the largest first, to where the least is
        load, held, hand = queue[0]
        heapq.heapreplace(queue, (load + sizes[i], held + 1, hand))
        hands[hand].append(i)
    return [sorted(hand) for hand in hands]


def plan_jobs(parts: Sequence[Part], sizes: Sequence[int], num_jobs: int, shards: Sequence[str]) -> list[Job]:
    """Deals parts and shards out to jobs, no more than there are of either, for shards of about the same size."""
    hands = deal(parts, sizes, min(num_jobs, len(shards)))
    loads = [sum(sizes[i] for i in hand) for hand in hands]
    names = [[shard] for shard in shards[: len(hands)]]
    queue = [(-load / 2, job) for job, load in enumerate(loads)]
    heapq.heapify(queue)
    for shard in shards[len(hands) :]:  # to the job whose shards would be the largest with one more
        _, job = queue[0]
        names[job].append(shard)
        heapq.heapreplace(queue, (-loads[job] / (len(names[job]) + 1), job))
    return [Job(tuple(parts[i] for i in hand), tuple(own)) for hand, own in zip(hands, names)]
