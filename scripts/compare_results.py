"""Prints results of fine-tuning side by side: median, lowest and highest of each metric over the trials.

    python -m scripts.compare_results NAME=RESULTS.json [NAME=RESULTS.json ...]

RESULTS.json is what run_finetuning.py writes beside its results_txt.
"""

import statistics
import sys

from util.errors import UserError, run_main
from util.files import read_json
from util.log import say, table


def values(path: str) -> dict[str, list[float]]:
    """The values over trials by "task split metric"."""
    found: dict[str, list[float]] = {}
    for trial in read_json(path, "results")["trials"]:
        for task, splits in trial["results"].items():
            for split, metrics in splits.items():
                for metric, value in metrics.items():
                    found.setdefault(f"{task} {split} {metric}", []).append(value)
    return found


def main() -> None:
    """Prints a row for each metric and file."""
    pairs = [argument.partition("=") for argument in sys.argv[1:]]
    if not pairs or not all(name and path for name, _, path in pairs):
        raise UserError("usage: python -m scripts.compare_results NAME=RESULTS.json [NAME=RESULTS.json ...]")
    sides = {name: values(path) for name, _, path in pairs}
    rows = [
        [metric, name, f"{statistics.median(found):.2f}", f"{min(found):.2f}-{max(found):.2f}", len(found)]
        for metric in next(iter(sides.values()))
        for name, side in sides.items()
        if (found := side.get(metric))
    ]
    say(table(["metric", "", "median", "lowest-highest", "trials"], rows))


if __name__ == "__main__":
    run_main(main)
