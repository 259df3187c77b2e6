"""Makes the demo's task out of text: is a sentence as it was written, or are two of its words swapped?

    python -m scripts.demo_acceptability TEXT FOLDER

Every sentence of TEXT (one a line) with 5 to 20 words is taken once, half of them as they are. Writes train.tsv and
dev.tsv, the documents at the end being for dev, so that a sentence and its neighbours are on one side.
"""

import random
import sys
from pathlib import Path

from util.errors import UserError, run_main
from util.files import write_text
from util.log import say

HEADER = "sentence\tlabel\n"
LEAST, MOST = 5, 20  # words
DEV_SHARE = 0.25
ATTEMPTS = 20


def swapped(words: list[str], chance: random.Random) -> list[str] | None:
    """The words with two of them in each other's place (never the last, which ends in a full stop); None for none."""
    for _ in range(ATTEMPTS):
        i, j = sorted(chance.sample(range(len(words) - 1), 2))
        if words[i].lower() != words[j].lower():
            return [*words[:i], words[j], *words[i + 1 : j], words[i], *words[j + 1 :]]
    return None


def examples(lines: list[str], seed: int = 0) -> list[str]:
    """A line of the task's file for each sentence that suits."""
    chance, rows = random.Random(seed), []
    for line in lines:
        words = line.split()
        if LEAST <= len(words) <= MOST:
            other = swapped(words, chance) if len(rows) % 2 else words
            if other is not None:
                rows.append(f"{' '.join(other)}\t{'swapped' if len(rows) % 2 else 'original'}\n")
    return rows


def main() -> None:
    """Writes FOLDER/train.tsv and FOLDER/dev.tsv."""
    if len(sys.argv) != 3:
        raise UserError("usage: python -m scripts.demo_acceptability TEXT FOLDER")
    rows = examples(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
    if len(rows) < 100:
        raise UserError(f"{sys.argv[1]} holds only {len(rows)} sentences of {LEAST} to {MOST} words")
    first_dev = int(len(rows) * (1 - DEV_SHARE))
    for name, part in (("train", rows[:first_dev]), ("dev", rows[first_dev:])):
        write_text(str(Path(sys.argv[2]) / f"{name}.tsv"), HEADER + "".join(part))
        say(f"{name}: {len(part)} sentences")


if __name__ == "__main__":
    run_main(main)
