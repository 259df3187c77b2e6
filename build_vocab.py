"""Learns a WordPiece vocabulary from a folder of raw text. Recipes: docs/building_data.md."""

import argparse
import os
import time
from collections import Counter
from collections.abc import Sequence

from model.tokenization import SPECIAL_TOKENS
from pretrain.build_shards import add_text_arguments, check_folder, usable_sources
from pretrain.example_building import Counts
from pretrain.parts import Part, deal, find_parts
from pretrain.runner import Runner, add_runner_arguments, chosen_runner
from pretrain.text_files import find_files, is_binary
from pretrain.vocab_learning import MAX_WORDS, count_words, forget_rare, learn_vocabulary, pieces_a_word
from util import filesystem
from util.errors import UserError, run_main
from util.files import write_text
from util.log import say, seconds_text, table
from util.progress import Progress
from util.workers import run_workers, sigterm_interrupts

LEAST_ROOM = 100  # entries beside the special ones


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--corpus-dir", required=True, help="text files, in sub-folders too; plain, .gz .xz .bz2 .zst")
    parser.add_argument("--vocab-size", type=int, required=True, help="number of entries, special ones included")
    parser.add_argument("--output-file", required=True, help="the vocabulary, one piece a line")
    parser.add_argument("--min-frequency", type=int, default=2, help="least count of a character and of a merged pair")
    parser.add_argument("--num-unused", type=int, default=10, help="number of [unusedN] entries for later use")
    parser.add_argument("--num-processes", type=int, default=1, help="processes that count words")
    parser.add_argument("--overwrite", action="store_true", help="replace the output file")
    add_text_arguments(parser)
    add_runner_arguments(parser)
    return parser.parse_args()


def check_args(args: argparse.Namespace) -> None:
    """Everything that can be found wrong before the corpus is read."""
    check_folder(args.corpus_dir, "--corpus-dir")
    for flag, value, least in (
        ("--min-frequency", args.min_frequency, 1),
        ("--num-unused", args.num_unused, 0),
        ("--num-processes", args.num_processes, 1),
        ("--vocab-size", args.vocab_size, len(SPECIAL_TOKENS) + max(0, args.num_unused) + LEAST_ROOM),
    ):
        if value < least:
            raise UserError(f"{flag} {value} is too small: expected {least} or more")
    if filesystem.isdir(args.output_file):
        raise UserError(f"--output-file {args.output_file} is a folder: expected the name of a file")
    folder = os.path.dirname(os.path.abspath(args.output_file))  # a scheme is as the name of one below this one
    while not os.path.exists(folder):  # it is made when the vocabulary is written
        folder = os.path.dirname(folder)
    if not os.path.basename(args.output_file) or not os.path.isdir(folder):
        raise UserError(f'--output-file "{args.output_file}": expected the name of a file, below folders')
    if filesystem.exists(args.output_file) and not args.overwrite:
        raise UserError(f"--output-file {args.output_file} exists: name another, or replace it with --overwrite")


def count_corpus(args: argparse.Namespace, runner: Runner | None) -> tuple[Counter, Counts]:
    """The words of the corpus with their counts, and what was read."""
    paths = find_files(args.corpus_dir)
    sources = usable_sources(paths, lambda path: not is_binary(path), args.corpus_dir, "text files")
    parts = find_parts(args.corpus_dir, sources, cut=True)
    if runner:
        from pretrain import beam_build  # needs an extra

        lower, strip_accents = args.do_lower_case, args.do_strip_accents
        words, read = beam_build.count_words(runner, parts, lower, strip_accents, args.output_file)
    else:
        words, read = count_in_processes(parts, args)
    if not words:
        raise UserError(f"the {len(sources)} files in {args.corpus_dir} hold no words")
    read.skipped_files += len(paths) - len(sources)
    return words, read


def count_in_processes(parts: Sequence[Part], args: argparse.Namespace) -> tuple[Counter, Counts]:
    """The words of parts of text files with their counts, and what was read."""
    total = sum(part.size for part in parts)
    progress = Progress("counting words", total / 1e6, "MB")
    jobs = [(hand, args.do_lower_case, args.do_strip_accents) for hand in deal(parts, args.num_processes)]
    latest = [Counts() for _ in jobs]

    def on_report(job: int, counts: Counts) -> None:
        latest[job] = counts
        progress.update(sum(c.bytes_read for c in latest) / 1e6)

    words: Counter[str] = Counter()
    read = Counts()
    for job_words, job_counts in run_workers(count_words, jobs, on_report):
        words.update(job_words)
        read.add(job_counts)
    forget_rare(words, MAX_WORDS)
    progress.update(total / 1e6)
    progress.close()
    return words, read


def main() -> int:
    """Counts words, learns pieces, writes the file."""
    start = time.monotonic()
    args = parse_args()
    runner = chosen_runner(args)
    check_args(args)
    with sigterm_interrupts():
        words, read = count_corpus(args, runner)
        say(f"learning {args.vocab_size} pieces from {len(words)} different words")
        vocabulary = learn_vocabulary(words, args.vocab_size, args.min_frequency, args.num_unused)
        pieces, unknown = pieces_a_word(words, vocabulary)
        try:
            write_text(args.output_file, "\n".join(vocabulary) + "\n")
        except OSError as error:
            raise UserError(f"cannot write --output-file {args.output_file}: {error.strerror}") from error
    rows = [
        ("files read", read.files),
        ("files skipped (no text)", read.skipped_files),
        ("undecodable bytes dropped", read.invalid_bytes),
        ("words", words.total()),
        ("different words", len(words)),
        ("entries", len(vocabulary)),
        ("one-character entries", sum(len(piece.removeprefix("##")) == 1 for piece in vocabulary)),
        ("pieces a word", f"{pieces:.3f}"),
        ("words that are [UNK]", f"{unknown:.3%}"),
        ("time", seconds_text(time.monotonic() - start)),
    ]
    say(f"\n{table(('summary', ''), rows)}\nwritten to {args.output_file}")
    if len(vocabulary) < args.vocab_size:
        say(f"note: the text gives no more than {len(vocabulary)} entries of --min-frequency {args.min_frequency}")
    return 0


if __name__ == "__main__":
    run_main(main)
