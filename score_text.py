#!/usr/bin/env python3
"""Scores lines of text with a trained model: pseudo-log-likelihoods by Electric (one pass a text) or by a masked
language model (one pass a token). With --rerank, chooses among hypotheses of another system.

Recipes: docs/scoring.md.
"""

import argparse
import math
import os
import sys
from contextlib import ExitStack, closing, redirect_stdout
from typing import Any

from scoring import rerank
from scoring.continued import ContinuedFile, Stream, check_continued
from scoring.lines import check_input
from scoring.score_rows import FORMATS
from scoring.source import Source, add_model_arguments, find_source
from util import filesystem
from util.errors import UserError, run_main
from util.files import check_new, whole_file, writing
from util.log import say


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--input", required=True, metavar="FILE", help="one text a line, compressed or not; - is "
                        "standard input. With --rerank: id, system score, text, separated by tabs")  # fmt: skip
    parser.add_argument("--method", choices=("electric", "mlm"), help="default: what the model is")
    parser.add_argument("--normalize", choices=("length",), help="length: the mean over the tokens, not the sum")
    parser.add_argument("--output", choices=tuple(FORMATS), default="tsv", help="default: tsv")
    parser.add_argument("--output-file", metavar="FILE", help="default: standard output. A file that a stopped run "
                        "left is continued")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace the output file instead of continuing it")
    parser.add_argument("--tokens", action="store_true", help="each token's score too")
    group = parser.add_argument_group("choosing among hypotheses")
    group.add_argument("--rerank", action="store_true", help="score = system score + LAMBDA times the "
                       "pseudo-log-likelihood; the best of each list is written")  # fmt: skip
    group.add_argument("--weight", type=float, metavar="LAMBDA", help="default: the one with the fewest word errors on "
                       "this input")  # fmt: skip
    group.add_argument("--references", metavar="FILE", help="id, text, separated by a tab: word error rates are told")
    return parser.parse_args()


def main() -> int:
    """Checks what can be checked, loads the model, then scores."""
    args = parse_args()
    with redirect_stdout(sys.stdout if args.output_file else sys.stderr):  # scores alone on standard output
        check(args)
        source = find_source(args)
        lists = rerank.read_lists(args.input, args.references) if args.rerank else None

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        from scoring.networks import Model  # starts TensorFlow
        from scoring.pseudo_likelihood import make_scorer

        scorer = make_scorer(Model(source), args.method)
        say(f"method {scorer.method}, at most {scorer.longest} tokens at once, checkpoint {source.path}")
        if lists:
            choose(args, source, scorer, lists)
        else:
            score(args, source, scorer)
    return 0


def check(args: argparse.Namespace) -> None:
    """Raises a `UserError` for flags that do not go together or an input that is no text."""
    check_input(args.input)
    if args.references is not None:
        if args.references == args.input:
            raise UserError(f"--input and --references are both {args.input}; the one has lines id, score, text, the "
                            "other id, text")  # fmt: skip
        check_input(args.references, "--references")
    if args.output_file:
        check_output(args)
    if args.rerank:
        if args.weight is None and args.references is None:
            raise UserError("--rerank needs --weight LAMBDA, or --references FILE to find the best one")
        if args.weight is not None and not (math.isfinite(args.weight) and args.weight >= 0):
            raise UserError(f"--weight must be a number, 0 or above; got {args.weight}")
        if args.tokens:
            raise UserError("--tokens is for lines of text, not for --rerank")
    elif args.weight is not None or args.references is not None:
        raise UserError("--weight and --references need --rerank")


def check_output(args: argparse.Namespace) -> None:
    """Raises a `UserError` where --output-file, or the JSON beside it, would take the place of something else."""
    path, inputs = args.output_file, [name for name in (args.input, args.references) if name]
    for name in (path, path + ".json"):
        check_new(name, "--output-file", args.overwrite or continues(args), *inputs)
    if continues(args) and not args.overwrite:
        check_continued(path)


def continues(args: argparse.Namespace) -> bool:
    """Whether the output is a file to which rows are added as they come: of lines of text, and local."""
    return not args.rerank and bool(args.output_file) and not filesystem.is_remote(args.output_file)


def score(args: argparse.Namespace, source: Source, scorer: Any) -> None:
    """Scores a stream of lines."""
    from scoring.score_stream import score_stream

    form = FORMATS[args.output](args.tokens, args.normalize == "length")
    with ExitStack() as stack:
        if continues(args):
            output = ContinuedFile(args.output_file, settings(args, source, scorer), form.header, args.overwrite)
            stack.enter_context(closing(output))
        elif args.output_file:
            stack.enter_context(writing(f"the scores {args.output_file}"))
            output = Stream(stack.enter_context(whole_file(args.output_file)), form.header)
            say(f"note: {args.output_file} is remote: it is written when all lines are scored")
        else:
            output = Stream(sys.__stdout__.buffer, form.header)
        score_stream(args.input, source.tokenizer, scorer, form, output)
    if args.output_file:
        say(f"written to {args.output_file}")


def settings(args: argparse.Namespace, source: Source, scorer: Any) -> dict[str, Any]:
    """What scores depend on."""
    return {
        "checkpoint": filesystem.abspath(source.path),
        "method": scorer.method,
        "max_seq_length": scorer.longest,
        "normalize": args.normalize,
        "vocabulary_sha256": source.tokenizer.vocabulary.sha256,
        "do_lower_case": source.do_lower_case,
        "strip_accents": source.strip_accents,
        "num_attention_heads": args.num_attention_heads,
        "output": args.output,
        "tokens": args.tokens,
    }


def choose(args: argparse.Namespace, source: Source, scorer: Any, lists: list[rerank.HypothesisList]) -> None:
    """Scores all hypotheses, takes or finds the weight, and writes the best ones and the error rates."""
    scored = rerank.scored(lists, source.tokenizer, scorer, args.normalize == "length")
    weight = rerank.best_weight(scored) if args.weight is None else args.weight
    chosen = rerank.chosen(scored, weight)
    rows = rerank.rows(chosen, args.output)
    if args.output_file:
        notes = {**settings(args, source, scorer), "weight": weight, **rerank.rates(chosen)}
        rerank.write(args.output_file, rows, notes)
    else:
        Stream(sys.__stdout__.buffer, None).write(rows)
    say(rerank.summary(chosen, weight, tuned=args.weight is None))


if __name__ == "__main__":
    run_main(main)
