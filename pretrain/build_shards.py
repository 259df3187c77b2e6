"""What the two builder commands share: jobs, shards that appear when they are complete, manifest, summary."""

import argparse
import dataclasses
import errno
import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from model.tokenization import FullTokenizer, Vocabulary, load_vocab
from pretrain.example_building import LEAST_SEQ_LENGTH, LONGEST_SEQ_LENGTH, Counts, ExampleWriter
from pretrain.manifest import MANIFEST_NAME
from pretrain.parts import Job, Part, find_parts, plan_jobs
from pretrain.runner import Runner, add_runner_arguments, chosen_runner
from pretrain.shard_folder import BUILDING, building_folder, publish
from util import filesystem
from util.errors import UserError
from util.log import count_text, say, seconds_text, table
from util.progress import Progress
from util.workers import run_workers, sigterm_interrupts

DEFAULT_SEED = 42


@dataclasses.dataclass(frozen=True)
class BuildSettings:
    """Everything that shapes the shards; `read_source` is a function of text_files, `sources` the files it reads.

    `corpus` is the folder that the names of sources are relative to. With a `runner`, `seed_per_file` holds too.
    """

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
    corpus: str = ""
    seed_per_file: bool = False
    runner: Runner | None = None


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
    parser.add_argument(
        "--seed-per-file",
        action="store_true",
        help="records that depend on the seed and their own file, not on the processes or the other files",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the shards in the output folder")
    parser.add_argument(
        "--keep-long-lines", action="store_true", help="carry what does not fit into an example over to the next one"
    )
    add_text_arguments(parser)
    add_runner_arguments(parser)


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
        "seed_per_file": args.seed_per_file or args.runner is not None,
        "runner": chosen_runner(args),
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
        filesystem.listdir(folder)
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
        f"{settings.runner or f'{settings.num_processes} processes'}, {settings.num_out_files} shards, "
        f"seed {settings.seed}{' for each file' if settings.seed_per_file else ''}"
    )
    with sigterm_interrupts(), building_folder(settings.output_dir, settings.overwrite) as building:
        files: dict[str, str] = {}
        if settings.runner:
            from pretrain import beam_build  # needs an extra

            counts, shards, files = beam_build.write_shards(settings, vocabulary, _jobs(settings), building)
        else:
            counts, shards = _run_jobs(settings, vocabulary)
        counts.skipped_files += settings.skipped_files
        if not counts.examples:
            raise UserError(f"the {len(settings.sources)} input files hold no text that the vocabulary can express")
        manifest = _manifest(settings, vocabulary, counts, shards)
        publish(settings.output_dir, building, manifest, files)
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
    if settings.num_processes > len(settings.sources) and not settings.seed_per_file:
        say(
            f"note: {settings.num_processes} processes share {len(settings.sources)} input files: some have nothing to "
            "do and leave their shards empty; split the files or use fewer processes"
        )


def _jobs(settings: BuildSettings) -> list[Job]:
    """What there is to do with `seed_per_file`: a job a process, or as many as there can be for a runner."""
    parts = find_parts(settings.corpus, settings.sources, cut=settings.blanks_separate_docs)
    num_jobs = len(parts) if settings.runner else settings.num_processes
    return plan_jobs(parts, num_jobs, shard_names(settings))


def _run_jobs(settings: BuildSettings, vocabulary: Vocabulary) -> tuple[Counts, dict[str, int]]:
    """The counts of all jobs together, and the number of records in each shard."""
    jobs: list[tuple]
    if settings.seed_per_file:
        work = write_parts
        folder = os.path.join(settings.output_dir, BUILDING)
        jobs = [(job.parts, job.shards, folder, settings, vocabulary) for job in _jobs(settings)]
    else:
        work = write_examples
        jobs = [(job, settings) for job in range(settings.num_processes)]
    total = sum(filesystem.size(path) for path in settings.sources if filesystem.exists(path))
    progress = Progress("building examples", total / 1e6, "MB")
    latest = [Counts() for _ in jobs]

    def on_report(job: int, counts: Counts) -> None:
        latest[job] = counts
        progress.update(sum(c.bytes_read for c in latest) / 1e6, f"{sum(c.examples for c in latest)} examples")

    counts = Counts()
    shards: dict[str, int] = {}
    for job_counts, job_shards in run_workers(work, jobs, on_report):
        counts.add(job_counts)
        shards |= job_shards
    progress.update(total / 1e6)
    progress.close(f"{counts.examples} examples")
    return counts, {name: shards[name] for name in shard_names(settings)}


def _manifest(
    settings: BuildSettings, vocabulary: Vocabulary, counts: Counts, shards: dict[str, int]
) -> dict[str, Any]:
    names = "max_seq_length do_lower_case strip_accents blanks_separate_docs keep_long_lines seed seed_per_file"
    return {
        "command": settings.command,
        **{name: getattr(settings, name) for name in names.split()},
        "num_processes": settings.num_processes,
        "runner": settings.runner.name if settings.runner else None,
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
# Jobs


def shard_names(settings: BuildSettings) -> list[str]:
    """The names of all shards."""
    return [f"pretrain_data.tfrecord-{i}-of-{settings.num_out_files}" for i in range(settings.num_out_files)]


def job_rng(seed: int, job: int) -> random.Random:
    """The randomness of a job: of its own, and for the first that of the released code with this seed."""
    return random.Random(f"{seed}-{job}" if job else seed)


def write_examples(job: int, settings: BuildSettings, report: Callable[[Counts], None] | None = None):
    """Does the work of one of the processes as released: its share of the files into its share of the shards.

    Returns: its counts, and {name of a shard: number of its records}. The shards lie in `BUILDING` within the output
    folder.
    """
    rng = job_rng(settings.seed, job)
    paths = list(settings.sources[job :: settings.num_processes])
    rng.shuffle(paths)
    names = shard_names(settings)[job :: settings.num_processes]
    counts = Counts()
    folder = os.path.join(settings.output_dir, BUILDING)
    with _example_writer(folder, names, settings, load_vocab(settings.vocab_file), rng, counts) as writer:
        for path in paths:
            for pieces in settings.read_source(path, rng, counts):
                writer.add_file(_reporting(pieces, counts, report))
    return counts, dict(zip(names, writer.records))


def write_parts(
    parts: Sequence[Part],
    names: Sequence[str],
    folder: str,
    settings: BuildSettings,
    vocabulary: Vocabulary,
    report: Callable[[Counts], None] | None = None,
):
    """Writes the examples of parts, each with randomness of its own, to shards of these names in a folder.

    Returns: the counts, and {name of a shard: number of its records}.
    """
    rng = random.Random()
    counts = Counts()
    with _example_writer(folder, names, settings, vocabulary, rng, counts) as writer:
        for part in parts:
            rng.seed(part.seed(settings.seed))
            writer.forget()
            for pieces in settings.read_source(part.path, rng, counts, *part.section):
                writer.add_file(_reporting(pieces, counts, report))
    return counts, dict(zip(names, writer.records))


@contextmanager
def _example_writer(
    folder: str,
    names: Sequence[str],
    settings: BuildSettings,
    vocabulary: Vocabulary,
    rng: random.Random,
    counts: Counts,
) -> Iterator[ExampleWriter]:
    """A writer to shards of these names in a folder."""
    tokenizer = FullTokenizer(vocabulary, settings.do_lower_case, settings.strip_accents)
    with _open_shards(folder, names) as shards:
        yield ExampleWriter(
            tokenizer,
            shards,
            settings.max_seq_length,
            settings.blanks_separate_docs,
            settings.keep_long_lines,
            rng,
            counts,
        )


def _reporting(pieces: Iterator, counts: Counts, report: Callable[[Counts], None] | None) -> Iterator:
    """Hands pieces on and reports the counts twice a second."""
    last = time.monotonic()
    for number, piece in enumerate(pieces):
        if report and number % 64 == 0 and time.monotonic() - last > 0.5:
            last = time.monotonic()
            report(counts)
        yield piece


@contextmanager
def _open_shards(folder: str, names: Sequence[str]) -> Iterator[list[BinaryIO]]:
    """Opens a job's shards for writing; what goes wrong with them is the user's to mend."""
    _allow_open_files(len(names) + 64)
    try:
        with ExitStack() as stack:
            shards = [stack.enter_context(filesystem.open(os.path.join(folder, name), "xb")) for name in names]
            yield shards
            for shard in shards:
                filesystem.settle(shard)
    except OSError as error:
        hint = "; use fewer --num-out-files or more --num-processes" if error.errno == errno.EMFILE else ""
        raise UserError(f"cannot write the shards in {folder}: {error.strerror}{hint}; they are removed") from error


def _allow_open_files(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number if hard < 0 else min(number, hard), hard))
