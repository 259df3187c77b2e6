"""What the two builder commands share: jobs, shards that appear when they are complete, manifest, summary."""

import argparse
import dataclasses
import errno
import os
import random
import re
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from model.tokenization import FullTokenizer, Vocabulary, load_vocab
from pretrain.example_building import LEAST_SEQ_LENGTH, LONGEST_SEQ_LENGTH, Counts, ExampleWriter
from pretrain.manifest import MANIFEST_NAME, read_manifest, write_manifest
from util.errors import UserError
from util.log import count_text, say, seconds_text, table
from util.progress import Progress
from util.workers import run_workers, sigterm_interrupts, uninterrupted

BUILDING = "building.tmp"  # the folder, within the output folder, of shards that are not complete
_SHARD_NAME = re.compile(r"pretrain_data\.tfrecord-\d+-of-\d+")
DEFAULT_SEED = 42


@dataclasses.dataclass(frozen=True)
class BuildSettings:
    """Everything that shapes the shards; `read_source` is a function of text_files, `sources` the files it reads."""

    command: str
    vocab_file: str
    output_dir: str
    sources: tuple[str, ...]
    read_source: Callable
    skipped_files: int = 0
    max_seq_length: int = 128
    num_processes: int = 1
    num_out_files: int = 1000
    blanks_separate_docs: bool = True
    do_lower_case: bool = True
    strip_accents: bool = True
    keep_long_lines: bool = False
    seed: int = DEFAULT_SEED
    overwrite: bool = False


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of every command that tokenizes."""
    for name, other, what in (
        ("--do-lower-case", "--no-lower-case", "lower-case the text"),
        ("--do-strip-accents", "--no-strip-accents", "drop accents when lower-casing"),
    ):
        parser.add_argument(name, action="store_true", default=True, help=what)
        parser.add_argument(other, dest=name[2:].replace("-", "_"), action="store_false", help=f"do not {what}")


def add_build_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of both builders."""
    parser.add_argument("--max-seq-length", type=int, default=128, help="tokens of an example")
    parser.add_argument("--num-processes", type=int, default=1, help="processes that share the input files")
    parser.add_argument("--num-out-files", type=int, default=1000, help="shards to write, at least one a process")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="same seed and processes: same records")
    parser.add_argument("--overwrite", action="store_true", help="replace the shards in the output folder")
    parser.add_argument(
        "--keep-long-lines", action="store_true", help="carry what does not fit into an example over to the next one"
    )
    add_text_arguments(parser)


def truth(text: str) -> bool:
    """The value of a flag that takes true or false."""
    value = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower())
    if value is None:
        raise argparse.ArgumentTypeError(f"expected true or false, found {text!r}")
    return value


def common_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of BuildSettings that the flags of both builders give."""
    return {
        "max_seq_length": args.max_seq_length,
        "num_processes": args.num_processes,
        "num_out_files": args.num_out_files,
        "do_lower_case": args.do_lower_case,
        "strip_accents": args.do_strip_accents,
        "keep_long_lines": args.keep_long_lines,
        "seed": args.seed,
        "overwrite": args.overwrite,
    }


def usable_sources(paths: list[str], usable: Callable[[str], bool], folder: str, expected: str) -> tuple[str, ...]:
    """The files that a builder can read; a `UserError` where there is none."""
    sources = tuple(path for path in paths if usable(path))
    if not sources:
        found = f"none of its {len(paths)} files is one" if paths else "it is empty"
        raise UserError(f"nothing to read in {folder}: expected {expected}; {found}")
    return sources


def check_folder(folder: str, flag: str) -> None:
    """A `UserError` unless a folder is there and can be listed."""
    try:
        os.listdir(folder)
    except OSError as error:
        raise UserError(f"cannot read the folder {folder} ({flag}): {error.strerror}") from error


# ---------------------------------------------------------------------------------------------------------------------
# The command


def build(settings: BuildSettings) -> int:
    """Builds all shards and their manifest; gives the exit code."""
    start = time.monotonic()
    _check_settings(settings)
    vocabulary = load_vocab(settings.vocab_file)
    say(
        f"{len(settings.sources)} input files, {len(vocabulary)} pieces, length {settings.max_seq_length}, "
        f"{settings.num_processes} processes, {settings.num_out_files} shards, seed {settings.seed}"
    )
    with sigterm_interrupts(), _building_folder(settings) as building:
        counts, shards = _run_jobs(settings)
        if not counts.examples:
            raise UserError(f"the {len(settings.sources)} input files hold no text that the vocabulary can express")
        manifest = _manifest(settings, vocabulary, counts, shards)
        _publish(settings.output_dir, building, manifest)
    say(summary(manifest, time.monotonic() - start))
    say(f"written to {settings.output_dir}, described in {MANIFEST_NAME}")
    return 0


def _check_settings(settings: BuildSettings) -> None:
    if settings.max_seq_length < LEAST_SEQ_LENGTH:
        raise UserError(f"--max-seq-length {settings.max_seq_length} is too short: expected {LEAST_SEQ_LENGTH} or more")
    if settings.max_seq_length > LONGEST_SEQ_LENGTH:
        raise UserError(
            f"--max-seq-length {settings.max_seq_length} is too long: expected {LONGEST_SEQ_LENGTH} or less"
        )
    if settings.num_processes < 1:
        raise UserError(f"--num-processes {settings.num_processes}: expected 1 or more")
    if settings.num_out_files < settings.num_processes:
        raise UserError(
            f"--num-out-files {settings.num_out_files} is less than --num-processes {settings.num_processes}: each "
            "process needs a shard of its own"
        )
    if settings.num_processes > len(settings.sources):
        say(
            f"note: {settings.num_processes} processes share {len(settings.sources)} input files: some have nothing to "
            "do and leave their shards empty; split the files or use fewer processes"
        )


def _run_jobs(settings: BuildSettings) -> tuple[Counts, dict[str, int]]:
    """The counts of all jobs together, and the number of records in each shard."""
    total = sum(os.path.getsize(path) for path in settings.sources if os.path.exists(path))
    progress = Progress("building examples", total / 1e6, "MB")
    latest = [Counts() for _ in range(settings.num_processes)]

    def on_report(job: int, counts: Counts) -> None:
        latest[job] = counts
        progress.update(sum(c.bytes_read for c in latest) / 1e6, f"{sum(c.examples for c in latest)} examples")

    jobs = [(job, settings) for job in range(settings.num_processes)]
    counts = Counts()
    shards: dict[str, int] = {}
    for job_counts, job_shards in run_workers(write_examples, jobs, on_report):
        counts.add(job_counts)
        shards |= job_shards
    counts.skipped_files += settings.skipped_files
    progress.update(total / 1e6)
    progress.close(f"{counts.examples} examples")
    return counts, {name: shards[name] for name in shard_names(settings)}


def _manifest(
    settings: BuildSettings, vocabulary: Vocabulary, counts: Counts, shards: dict[str, int]
) -> dict[str, Any]:
    names = "max_seq_length do_lower_case strip_accents blanks_separate_docs keep_long_lines seed num_processes"
    return {
        "command": settings.command,
        **{name: getattr(settings, name) for name in names.split()},
        "vocab_file": os.path.basename(settings.vocab_file),
        "vocab_size": len(vocabulary),
        "vocab_sha256": vocabulary.sha256,
        "num_out_files": settings.num_out_files,
        "num_files": counts.files,
        "num_skipped_files": counts.skipped_files,
        "num_documents": counts.documents,
        "num_sentences": counts.sentences,
        "num_examples": counts.examples,
        "num_tokens": counts.tokens,
        "num_text_tokens": counts.text_tokens,
        "num_lost_tokens": counts.lost_tokens,
        "num_invalid_bytes": counts.invalid_bytes,
        "num_long_lines": counts.long_lines,
        "num_long_words": counts.long_words,
        "unk_share": round(counts.unknown_tokens / counts.tokens, 6),
        "padding_share": round(1 - counts.tokens / (counts.examples * settings.max_seq_length), 6),
        "shards": shards,
    }


def summary(manifest: dict[str, Any], seconds: float) -> str:
    """The closing summary of a build, as a table."""
    text_tokens, lost = manifest["num_text_tokens"], manifest["num_lost_tokens"]
    rows = [
        ("files read", manifest["num_files"]),
        ("files skipped (no text)", manifest["num_skipped_files"]),
        ("documents", manifest["num_documents"]),
        ("lines", manifest["num_sentences"]),
        ("tokens of text", text_tokens),
        ("tokens cut off and lost", f"{lost} = {lost / max(1, text_tokens):.1%} of the text"),
        ("examples", manifest["num_examples"]),
        ("tokens in examples", manifest["num_tokens"]),
        ("share of [UNK]", f"{manifest['unk_share']:.3%}"),
        ("share of padding", f"{manifest['padding_share']:.2%}"),
        ("shards", len(manifest["shards"])),
        ("empty shards", sum(not records for records in manifest["shards"].values())),
        ("undecodable bytes dropped", manifest["num_invalid_bytes"]),
        ("lines too long for one piece", manifest["num_long_lines"]),
        ("words over 200 characters", manifest["num_long_words"]),
        ("time", f"{seconds_text(seconds)}, {count_text(text_tokens / max(seconds, 1e-9))} tokens/s"),
    ]
    return f"\n{table(('summary', ''), rows)}"


# ---------------------------------------------------------------------------------------------------------------------
# One job


def shard_names(settings: BuildSettings) -> list[str]:
    """The names of all shards."""
    return [f"pretrain_data.tfrecord-{i}-of-{settings.num_out_files}" for i in range(settings.num_out_files)]


def job_rng(seed: int, job: int) -> random.Random:
    """The randomness of a job: of its own, and for the first that of the released code with this seed."""
    return random.Random(f"{seed}-{job}" if job else seed)


def write_examples(job: int, settings: BuildSettings, report: Callable[[Counts], None] | None = None):
    """Does the work of one of the processes: its share of the files into its share of the shards.

    Returns: its counts, and {name of a shard: number of its records}. The shards lie in `BUILDING` within the output
    folder.
    """
    rng = job_rng(settings.seed, job)
    paths = list(settings.sources[job :: settings.num_processes])
    rng.shuffle(paths)
    names = shard_names(settings)[job :: settings.num_processes]
    tokenizer = FullTokenizer(settings.vocab_file, settings.do_lower_case, settings.strip_accents)
    counts = Counts()
    with _open_shards(os.path.join(settings.output_dir, BUILDING), names) as shards:
        writer = ExampleWriter(
            tokenizer,
            shards,
            settings.max_seq_length,
            settings.blanks_separate_docs,
            settings.keep_long_lines,
            rng,
            counts,
        )
        for path in paths:
            for pieces in settings.read_source(path, rng, counts):
                writer.add_file(_reporting(pieces, counts, report))
    return counts, dict(zip(names, writer.records))


def _reporting(pieces: Iterator, counts: Counts, report: Callable[[Counts], None] | None) -> Iterator:
    """Hands pieces on and reports the counts twice a second."""
    last = time.monotonic()
    for number, piece in enumerate(pieces):
        if report and number % 64 == 0 and time.monotonic() - last > 0.5:
            last = time.monotonic()
            report(counts)
        yield piece


@contextmanager
def _open_shards(folder: str, names: list[str]) -> Iterator[list[BinaryIO]]:
    """Opens a job's shards for writing; what goes wrong with them is the user's to mend."""
    _allow_open_files(len(names) + 64)
    try:
        with ExitStack() as stack:
            shards = [stack.enter_context(open(os.path.join(folder, name), "xb", 1 << 14)) for name in names]
            yield shards
            for shard in shards:
                shard.flush()
                os.fsync(shard.fileno())
    except OSError as error:
        hint = "; use fewer --num-out-files or more --num-processes" if error.errno == errno.EMFILE else ""
        raise UserError(f"cannot write the shards in {folder}: {error.strerror}{hint}; they are removed") from error


def _allow_open_files(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number if hard < 0 else min(number, hard), hard))


# ---------------------------------------------------------------------------------------------------------------------
# The output folder


@contextmanager
def _building_folder(settings: BuildSettings) -> Iterator[str]:
    """The folder of incomplete shards; it is gone afterwards, whatever happens."""
    output = settings.output_dir
    building = os.path.join(output, BUILDING)
    try:
        os.makedirs(output, exist_ok=True)
        if os.listdir(output) and not settings.overwrite:
            what = "leftovers of an interrupted build" if os.path.exists(building) else "files"
            raise UserError(f"the output folder {output} holds {what}: name another, or replace them with --overwrite")
        read_manifest(output)  # a manifest.json that is not a builder's is not ours to replace
        _remove_folder(building)
        os.mkdir(building)
    except OSError as error:
        raise UserError(f"cannot write to the output folder {output}: {error.strerror}") from error
    try:
        yield building
    finally:
        with uninterrupted():
            _remove_folder(building)


def _remove_folder(building: str) -> None:
    if os.path.isdir(building):
        for name in os.listdir(building):
            if _SHARD_NAME.fullmatch(name) or name == MANIFEST_NAME:
                os.remove(os.path.join(building, name))
        os.rmdir(building)


def _publish(output: str, building: str, manifest: dict[str, Any]) -> None:
    """Puts complete shards under their names: old ones go first, the new manifest comes last."""
    try:
        write_manifest(building, manifest)
    except OSError as error:
        raise UserError(f"cannot write the manifest in {building}: {error.strerror}") from error
    with uninterrupted():
        for name in os.listdir(output):
            if _SHARD_NAME.fullmatch(name) or name == MANIFEST_NAME:
                os.remove(os.path.join(output, name))
        for name in (*manifest["shards"], MANIFEST_NAME):
            os.rename(os.path.join(building, name), os.path.join(output, name))
