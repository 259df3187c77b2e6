"""Makes the demo's task out of text: is a sentence as it was written, or are two of its words swapped?

    python -m scripts.demo_acceptability TEXT FOLDER

Every sentence of TEXT (one a line) with 5 to 20 words is taken twice, as it is and with two words swapped. Writes
train.tsv and dev.tsv, the documents at the end being for dev, so that a sentence and its neighbours are on one side.
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


def examples(lines: list[str], chance: random.Random) -> list[str]:
    """Two rows of the task's file for each line: as it is, and swapped."""
    rows = []
    for line in lines:
        other = swapped(line.split(), chance)
        if other is not None:
            rows += [f"{line}\toriginal\n", f"{' '.join(other)}\tswapped\n"]
    return rows


def main() -> None:
    """Writes FOLDER/train.tsv and FOLDER/dev.tsv."""
    if len(sys.argv) != 3:
        raise UserError("usage: python -m scripts.demo_acceptability TEXT FOLDER")
    paths = {name: Path(sys.argv[2]) / f"{name}.tsv" for name in ("train", "dev")}
    if there := [str(path) for path in paths.values() if path.exists()]:
        raise UserError(f"{' and '.join(there)} exist; remove them or name another folder")
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if LEAST <= len(line.split()) <= MOST]
    if len(lines) < 100:
        raise UserError(f"{sys.argv[1]} holds only {len(lines)} sentences of {LEAST} to {MOST} words")
    first_dev, chance = int(len(lines) * (1 - DEV_SHARE)), random.Random(0)
    for name, part in (("train", lines[:first_dev]), ("dev", lines[first_dev:])):
        rows = examples(part, chance)
        write_text(str(paths[name]), HEADER + "".join(rows))
        say(f"{name}: {len(rows)} sentences")


if __name__ == "__main__":
    run_main(main)
