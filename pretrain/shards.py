"""Shards of pre-training examples without TensorFlow: which there are, whether they fit the hparams, their order.

Which examples step s reads is a function of (seed, s): nothing has to be saved to resume. An epoch takes the shards
in an order drawn for it, groups them into windows of about `WINDOW` examples, and reads each window's examples in an
order drawn for the window. Step s reads the examples s * batch to (s + 1) * batch of the endless row of epochs.
"""

import bisect
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError

from model.tokenization import Vocabulary
from pretrain.manifest import COUNTS_NAME, MANIFEST_NAME, read_manifest
from util import filesystem
from util.errors import UserError
from util.files import expand_globs, sha256_of
from util.log import say
from util.tf_example import read_example
from util.tfrecords import CorruptRecord, Shard, first_record

WINDOW = 1 << 20  # examples that are shuffled together: 8 MB of offsets; the data stay in the files


@dataclass
class ShardList:
    """The shards of a data set and how many records each holds."""

    paths: list[str]
    counts: list[int]
    manifests: dict[str, dict]  # by folder
    skip_corrupt: bool = False
    skipped: int = 0  # records that could not be read

    @property
    def total(self) -> int:
        """Number of examples."""
        return sum(self.counts)

    def fingerprint(self) -> str:
        """A hash of the shards' names, sizes and numbers of records, in their order."""
        lines = (
            f"{os.path.basename(path)} {filesystem.size(path)} {count}\n"
            for path, count in zip(self.paths, self.counts)
        )
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def summary(self) -> str:
        """What tells these shards from others, in a line."""
        return f"{len(self.paths)} with {self.total} examples ({self.fingerprint()[:12]})"

    def description(self) -> dict:
        """What is noted beside a model that is trained on these shards."""
        return {
            "shards": len(self.paths),
            "examples": self.total,
            "files_sha256": self.fingerprint(),
            "manifests": {folder: sha256_of(os.path.join(folder, MANIFEST_NAME)) for folder in self.manifests},
        }


def find_shards(patterns: str, skip_corrupt: bool = False) -> ShardList:
    """Finds the shards and counts their records, from the manifest where there is one, else by walking through them.

    Raises:
      UserError: no file matches (the folder's content is named), no record in them, or a broken shard.
    """
    paths = _shard_paths(patterns)
    if not paths:
        raise UserError(
            f"no TFRecords match {patterns}; {_content(patterns)}. "
            "Set pretrain_tfrecords (or eval_tfrecords) to a glob of the shards"
        )
    manifests = {
        folder: manifest
        for folder in sorted({os.path.dirname(path) for path in paths})
        if (manifest := read_manifest(folder)) is not None
    }
    shards = ShardList(paths, [], manifests, skip_corrupt)
    for folder, manifest in manifests.items():
        if missing := sorted(manifest["shards"].keys() - {os.path.basename(path) for path in paths}):
            say(
                f"note: {len(missing)} of the {len(manifest['shards'])} shards that the manifest in {folder} lists are "
                f"not read, {missing[0]} among them"
            )
    for path in paths:
        known = manifests.get(os.path.dirname(path), {}).get("shards", {}).get(os.path.basename(path))
        shards.counts.append(len(_open(path, shards)) if known is None else int(known))
    if shards.total == 0:
        raise UserError(f"the {len(paths)} TFRecords that match {patterns} hold no example")
    return shards


def known_examples(patterns: str) -> int | None:
    """The examples of the shards by their manifests alone; None where there are no shards, or one is in none."""
    paths = [os.path.split(path) for path in _shard_paths(patterns)]
    manifests = {folder: (read_manifest(folder) or {}).get("shards", {}) for folder in {folder for folder, _ in paths}}
    counts = [manifests[folder].get(name) for folder, name in paths]
    return sum(counts) if counts and None not in counts else None


def check_manifests(shards: ShardList, length: int, vocab: Vocabulary, lower_case: bool) -> None:
    """Compares what the manifests say with the hparams.

    Raises:
      UserError: built with another length, vocabulary or case; the hparam to change is named.
    """
    for folder, manifest in shards.manifests.items():
        built = f"the shards in {folder} were built with"
        if manifest["max_seq_length"] != length:
            raise UserError(
                f"{built} length {manifest['max_seq_length']}, max_seq_length is {length}; set max_seq_length "
                f"to {manifest['max_seq_length']} or build them again with --max-seq-length {length}"
            )
        if manifest["vocab_sha256"] != vocab.sha256:
            raise UserError(
                f"{built} another vocabulary ({manifest.get('vocab_file', 'unnamed')}, "
                f"{manifest['vocab_size']} pieces) than {vocab.path} ({len(vocab)} pieces); set vocab_file to "
                "theirs or build them again"
            )
        if manifest["do_lower_case"] != lower_case:
            raise UserError(
                f"{built} do_lower_case {manifest['do_lower_case']}, the hparam do_lower_case is {lower_case}; "
                "make them equal"
            )


FEATURES = ("input_ids", "input_mask", "segment_ids")


def check_examples(shards: ShardList, length: int, vocab_size: int, cls: int) -> None:
    """Looks at the first example of every shard.

    Raises:
      UserError: no pre-training example, or one of another length or vocabulary.
    """
    for path in shards.paths:
        try:
            data = first_record(path)
            features = read_example(data) if data else None
        except CorruptRecord as error:
            if shards.skip_corrupt:
                continue
            raise _corrupt(error) from error
        except DecodeError as error:
            raise UserError(f"the first record of {path} is not a tf.train.Example: {error}") from error
        except OSError as error:
            raise UserError(f"cannot read the TFRecord {path}: {error.strerror or error}") from error
        if features is None:
            continue
        ids = {name: features.get(name, []) for name in FEATURES}
        if not all(len(values) == length for values in ids.values()):
            found = ", ".join(f"{name} of length {len(values)}" for name, values in ids.items())
            raise UserError(
                f"the first example of {path} has {found}; max_seq_length is {length}: set it to the shards' "
                "length or build them again"
            )
        if max(ids["input_ids"]) >= vocab_size or ids["input_ids"][0] != cls:
            raise UserError(
                f"the first example of {path} begins with the id {ids['input_ids'][0]} and has ids up to "
                f"{max(ids['input_ids'])}; with this vocabulary it would begin with [CLS] = {cls} and stay "
                f"below vocab_size {vocab_size}: the shards were built with another vocabulary"
            )


def _shard_paths(patterns: str) -> list[str]:
    """What the patterns match, without what lies beside shards."""
    names = {path: os.path.basename(path) for path in expand_globs(patterns)}
    return [path for path, name in names.items() if name not in (MANIFEST_NAME, COUNTS_NAME) and ".tmp" not in name]


def _content(patterns: str) -> str:
    folder = os.path.dirname(patterns.split(",")[0]) or "."
    if not filesystem.isdir(folder):
        return f"there is no folder {folder}"
    names = sorted(filesystem.listdir(folder))
    return f"the folder {folder} holds " + (", ".join(names[:5]) + (" ..." if len(names) > 5 else "") or "nothing")


def _open(path: str, shards: ShardList) -> Shard:
    try:
        shard = Shard(path, tolerant=shards.skip_corrupt)
    except CorruptRecord as error:
        raise _corrupt(error) from error
    except OSError as error:
        raise UserError(f"cannot read the TFRecord {path}: {error.strerror or error}") from error
    if shard.fault:
        say(f"note: {shard.fault}; the {len(shard)} records before it are used")
    return shard


def _corrupt(error: CorruptRecord) -> UserError:
    return UserError(f"{error}; build or copy the shard again, or set skip_corrupt_records true to go on without it")


class Window:
    """Some shards whose records are read in one drawn order (`order` None: as they stand)."""

    def __init__(self, shards: ShardList, members: list[int], order: np.ndarray | None):
        self.shards, self.members, self.order = shards, members, order
        self.starts = np.cumsum([0] + [shards.counts[member] for member in members]).tolist()
        self.open: dict[int, Shard] = {}

    def __len__(self) -> int:
        return self.starts[-1]

    def read(self, number: int) -> bytes:
        """The record at a place of the window; where it is corrupt and may be skipped, the next one that is not."""
        for attempt in range(len(self)):
            place = (number + attempt) % len(self)
            try:
                return self._read(place if self.order is None else int(self.order[place]))
            except CorruptRecord as error:
                if not self.shards.skip_corrupt:
                    raise _corrupt(error) from error
                if self.shards.skipped == 0:
                    say(f"note: {error}; skipped (skip_corrupt_records), as all that follow")
                self.shards.skipped += 1
        raise UserError("no readable record in " + ", ".join(self.shards.paths[member] for member in self.members[:3]))

    def _read(self, place: int) -> bytes:
        member = bisect.bisect_right(self.starts, place) - 1
        index = self.members[member]
        if index not in self.open:
            self.open[index] = self._opened(index)
        shard, record = self.open[index], place - self.starts[member]
        if record >= len(shard):
            raise CorruptRecord(shard.fault or f"{shard.path}: no record {record}")
        return shard[record]

    def _opened(self, index: int) -> Shard:
        shard = _open(self.shards.paths[index], self.shards)
        if not shard.fault and len(shard) != self.shards.counts[index]:
            raise UserError(
                f"{shard.path} holds {len(shard)} records where its manifest says "
                f"{self.shards.counts[index]}; build the data again or remove {MANIFEST_NAME}"
            )
        return shard


class ExampleRow:
    """The endless row of epochs: example n is the n-th that training reads. Fast for rising n, exact for any."""

    def __init__(self, shards: ShardList, seed: int):
        self.shards, self.seed = shards, seed & 0xFFFFFFFF
        self.begin = self.end = self.epoch = -1
        self.windows: Iterator[Window] = iter(())
        self.window: Window

    def __getitem__(self, number: int) -> bytes:
        if not self.begin <= number < self.end:
            self._seek(number)
        return self.window.read(number - self.begin)

    def _seek(self, number: int) -> None:
        epoch = number // self.shards.total
        if epoch != self.epoch or number < self.begin:
            self.epoch, self.end = epoch, epoch * self.shards.total
            self.windows = self._epoch_windows(epoch)
        while number >= self.end:
            self.window = next(self.windows)
            self.begin, self.end = self.end, self.end + len(self.window)

    def _epoch_windows(self, epoch: int) -> Iterator[Window]:
        """Shards in the epoch's order, as many at a time as hold `WINDOW` examples."""
        counts, members = self.shards.counts, []
        order = np.random.RandomState([self.seed, epoch]).permutation(len(counts)).tolist()
        for number, member in enumerate(order):
            members.append(member)
            size = sum(counts[m] for m in members)
            if size >= WINDOW or member == order[-1]:
                draw = np.random.RandomState([self.seed, epoch, number + 1])
                yield Window(self.shards, members, draw.permutation(size))
                members = []
