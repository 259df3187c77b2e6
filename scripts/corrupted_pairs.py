"""How often a model scores a sentence higher than the same one with a word replaced, or with two words swapped.

    python -m scripts.corrupted_pairs --model-dir DATA/models/electric --input HELDOUT.txt [--picture CURVE.png]

Takes sentences from the input at random. One copy of each has a word replaced by a random one of the input's, of as
many pieces; another has two neighbouring, different words swapped. Prints the share of the sentences that score higher
than their copy, with its standard error, for every checkpoint in the folder and every method that the model has.
"""

import argparse
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from model.checkpoint_files import PREFIX, step_in_name, whole_checkpoints
from model.tokenization import FullTokenizer
from pretrain.example_building import Counts
from scoring.lines import check_input, read_lines
from scoring.source import add_model_arguments, find_source
from util.errors import UserError, run_main
from util.files import check_new, write_json
from util.log import say, table

SHORTEST, LONGEST = 6, 40  # words of a sentence


class Triple(NamedTuple):
    """A sentence and its two copies, as words."""

    original: list[str]
    replaced: list[str]
    swapped: list[str]


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--input", required=True, metavar="FILE", help="held-out text, one sentence a line")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--results", metavar="FILE.json", help="the table as JSON")
    parser.add_argument("--picture", metavar="FILE.png", help="the shares over the training")
    parser.add_argument("--overwrite", action="store_true", help="replace --results and --picture")
    return parser.parse_args()


def main() -> int:
    """Makes the copies, scores all with each checkpoint, tells."""
    args = parse_args()
    check_input(args.input)
    for flag, path in (("--results", args.results), ("--picture", args.picture)):
        if path:
            check_new(path, flag, args.overwrite, args.input)
    if args.picture and not args.picture.endswith(".png"):
        raise UserError(f"--picture {args.picture} must end in .png")
    source = find_source(args)
    triples = make_triples(read_lines(args.input, Counts()), source.tokenizer, args.sentences, args.seed)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    results = []
    for path in checkpoints_of(args.model_dir, source.path):
        results += compare(source._replace(path=path), triples)
    rows = [[r["step"], r["method"], *(f"{r[copy]:.1%} ± {r[f'{copy}_error']:.1%}" for copy in Triple._fields[1:])]
            for r in results]  # fmt: skip
    say(f"{len(triples)} sentences of {args.input}, seed {args.seed}; the original scores higher in")
    say(table(["step", "method", "a word replaced", "two words swapped"], rows))
    if args.results:
        write_json(args.results, results)
    if args.picture:
        draw(results, args.picture)
    return 0


def checkpoints_of(model: str, latest: str) -> list[str]:
    """All checkpoints of a model folder, rising; of anything else the one that it is."""
    steps = whole_checkpoints(model) if os.path.isdir(model) else []
    return [os.path.join(model, f"{PREFIX}-{step}") for step in steps] or [latest]


def make_triples(lines: Iterable[str], tokenizer: FullTokenizer, count: int, seed: int) -> list[Triple]:
    """Sentences drawn from lines of fitting length, with their copies.

    Raises:
      UserError: the lines do not hold so many sentences.
    """
    sentences = [line.split() for line in dict.fromkeys(lines) if SHORTEST <= len(line.split()) <= LONGEST]
    by_pieces: dict[int, list[str]] = defaultdict(list)
    for word in sorted({word for sentence in sentences for word in sentence}):
        by_pieces[len(tokenizer.encode(word))].append(word)
    draws = random.Random(seed)
    draws.shuffle(sentences)
    copies = ((s, _replaced(s, by_pieces, tokenizer, draws), _swapped(s, tokenizer, draws)) for s in sentences)
    triples = [Triple(*copy) for copy in copies if all(copy)][:count]
    if len(triples) < count:
        raise UserError(
            f"the input has {len(triples)} sentences of {SHORTEST} to {LONGEST} words; --sentences asks for {count}"
        )
    return triples


def _replaced(sentence: list[str], by_pieces: dict[int, list[str]], tokenizer: FullTokenizer, draws: random.Random
              ) -> list[str] | None:  # fmt: skip
    """The sentence with one word exchanged for another with other pieces, as many; None where there is none."""
    places = list(range(len(sentence)))
    draws.shuffle(places)
    for place in places:
        ids = tokenizer.encode(sentence[place])
        others = by_pieces[len(ids)]
        other = draws.choice(others)
        if ids and tokenizer.encode(other) != ids:
            return [*sentence[:place], other, *sentence[place + 1 :]]
    return None


def _swapped(sentence: list[str], tokenizer: FullTokenizer, draws: random.Random) -> list[str] | None:
    """The sentence with two neighbouring words of different pieces exchanged; None where there are none."""
    ids = [tokenizer.encode(word) for word in sentence]
    different = [place for place, (one, next_one) in enumerate(zip(ids, ids[1:])) if one != next_one]
    if not different:
        return None
    place = draws.choice(different)
    return [*sentence[:place], sentence[place + 1], sentence[place], *sentence[place + 2 :]]


def compare(source: Any, triples: Sequence[Triple]) -> list[dict[str, Any]]:
    """The shares of one checkpoint, a dictionary a method."""
    from scoring.networks import Model  # starts TensorFlow
    from scoring.pseudo_likelihood import make_scorer

    model = Model(source)
    results = []
    for method in [name for name, has in (("electric", model.is_electric), ("mlm", model.is_masked_lm)) if has]:
        scorer = make_scorer(model, method)
        ids = [source.tokenizer.encode(" ".join(words)) for triple in triples for words in triple]
        scores = [float(values.sum()) for values in scorer(ids)]
        result = {"step": step_in_name(source.path), "method": method, "sentences": len(triples)}
        for number, copy in enumerate(Triple._fields[1:], 1):
            share = sum(a > b for a, b in zip(scores[::3], scores[number::3])) / len(triples)
            result |= {copy: share, f"{copy}_error": (share * (1 - share) / len(triples)) ** 0.5}
        results.append(result)
    if not results:
        raise UserError(f"the checkpoint {source.path} holds {model.description}; nothing in it scores text")
    return results


def draw(results: Sequence[dict[str, Any]], path: str) -> None:
    """The shares over the steps, a curve a method and kind of copy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for method in dict.fromkeys(result["method"] for result in results):
        mine = [result for result in results if result["method"] == method]
        for copy, style in zip(Triple._fields[1:], ("-", "--")):
            axes.plot([r["step"] for r in mine], [r[copy] for r in mine], style, marker=".", label=f"{method}, {copy}")
    axes.axhline(0.5, color="grey", linewidth=0.8)
    axes.set(xlabel="step", ylabel="the original scores higher", ylim=(0.3, 1))
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    run_main(main)
