#!/usr/bin/env python3
"""Shows what a trained ELECTRA says of text: for each token the discriminator's probability that it was replaced, for
each [MASK] written in the text what the generator would put there; or writes sentence vectors.

Recipes: docs/scoring.md.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, BinaryIO

from model.tokenization import UNK
from scoring.lines import STDIN, Seen, check_input, chunks, count_lines, encoded, read_lines
from scoring.source import Source, add_model_arguments, find_source
from util.errors import UserError, run_main
from util.files import check_new, whole_file, writing
from util.log import say
from util.progress import Progress

OUTPUTS, POOLINGS = ("terminal", "tsv", "jsonl", "html"), ("first", "mean")


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--input", default=STDIN, metavar="FILE", help="one text a line, compressed or not; default: "
                        "-, standard input")  # fmt: skip
    parser.add_argument("--output", choices=OUTPUTS, help="default: terminal (coloured) on one, else tsv")
    parser.add_argument("--output-file", metavar="FILE", help="default: standard output")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    parser.add_argument("--fillers", type=int, default=5, metavar="K", help="for each [MASK]; default: 5")
    group = parser.add_argument_group("sentence vectors")
    group.add_argument("--embed", metavar="FILE.npy", help="write a vector a line there, and nothing else")
    group.add_argument("--pooling", choices=POOLINGS, help="the first position's state, or the mean "
                       "over the text's tokens; default: first")  # fmt: skip
    group.add_argument("--layer", type=int, help="0: what the first layer reads; default: the last layer's output")
    return parser.parse_args()


def main() -> int:
    """Checks what can be checked, loads the model, then goes through the lines."""
    args = parse_args()
    with redirect_stdout(sys.stdout if args.output_file or args.embed else sys.stderr):  # the result alone goes there
        if args.fillers < 1:
            raise UserError(f"--fillers must be at least 1; got {args.fillers}")
        if args.embed and (args.output or args.output_file):
            raise UserError("--embed writes vectors alone; leave --output and --output-file out")
        if not args.embed and (args.pooling or args.layer is not None):
            raise UserError("--pooling and --layer are for sentence vectors; name their file with --embed")
        check_input(args.input)
        for flag, path in (("--output-file", args.output_file), ("--embed", args.embed)):
            if path:
                check_new(path, flag, args.overwrite, args.input)
        source = find_source(args)

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        from scoring.networks import Model  # starts TensorFlow

        model = Model(source)
        seen = embed(args, source, model) if args.embed else inspect(args, source, model)
        say("; ".join(seen.summary(model.longest)))
    return 0


def inspect(args: argparse.Namespace, source: Source, model: Any) -> Seen:
    """Writes what is said of each line's tokens."""
    from scoring.inspection import Inspector
    from scoring.pages import FORMATS

    inspector, seen = Inspector(model, args.fillers), Seen()
    form = FORMATS[args.output or ("terminal" if not args.output_file and sys.__stdout__.isatty() else "tsv")]()
    with output(args.output_file) as file:
        file.write(form.head.encode())
        for chunk in progressing(args.input, seen):
            for line, tokens in zip(chunk, inspector(chunk)):
                seen.add([judged.token.id for judged in tokens], model.longest, source.id(UNK))
                file.write(form.line(line, tokens).encode())
            file.flush()
        file.write(form.tail.encode())
    if args.output_file:
        say(f"written to {args.output_file}")
    return seen


def embed(args: argparse.Namespace, source: Source, model: Any) -> Seen:
    """Writes a vector a line."""
    from scoring.vectors import Embedder, NumpyRows

    embedder, seen = Embedder(model, args.pooling or "first", args.layer), Seen()
    with output(args.embed) as file:
        vectors = NumpyRows(file)
        for chunk in progressing(args.input, seen):
            texts = encoded(chunk, source.tokenizer)
            for ids in texts:
                seen.add(ids, model.longest, source.id(UNK))
            vectors.add(embedder(texts))
        rows, width = vectors.finish()
    say(f"written to {args.embed}: {rows} vectors of {width} numbers, float32")
    return seen


def progressing(path: str, seen: Seen) -> Iterator[list]:
    """The input in chunks, with a line now and then that says how far it is."""
    progress, last = Progress("reading", count_lines(path), "lines"), 0
    for chunk in chunks(read_lines(path, seen.files)):
        yield chunk
        progress.update(last := chunk[-1].number)
    if not last:
        raise UserError(f"--input {path} has no line")
    progress.close()


@contextmanager
def output(path: str | None) -> Iterator[BinaryIO]:
    """Where the result goes: a file that is there whole or not at all, or standard output."""
    if path:
        with writing(path), whole_file(path) as file:
            yield file
        return
    try:
        yield sys.__stdout__.buffer
        sys.__stdout__.buffer.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # nothing is left to fail at the end
        raise UserError("standard output was closed before everything was written") from error


if __name__ == "__main__":
    run_main(main)
