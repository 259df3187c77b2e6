"""Draws the two loss curves of a pre-training run and prints its last metrics.

    python -m scripts.plot_curves MODEL_FOLDER/metrics.jsonl CURVES.png
"""

import json
import os
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from util.errors import UserError, run_main
from util.log import say, table

SPLITS = {"train": "training", "eval": "held out"}
PANELS = {"masked_lm_loss": "generator: masked LM loss", "disc_loss": "discriminator: loss"}
UNIT = "nats a token"
PRINTED = ("masked_lm_loss", "masked_lm_accuracy", "disc_loss", "disc_accuracy", "disc_auc")

Row = dict[str, Any]


def read_metrics(path: str) -> dict[str, list[Row]]:
    """The rows of a metrics.jsonl by split. A half line at the end, left by a kill, is passed over."""
    rows: dict[str, list[Row]] = {split: [] for split in SPLITS}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines(keepends=True)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; it is written by run_pretraining.py") from error
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            break
        try:
            row = json.loads(line)
            rows[row["split"]].append(row)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}, line {number}: not a row of metrics: {error}") from error
    if not any(rows.values()):
        raise UserError(f"{path} holds no metrics yet")
    return rows


def draw(rows: dict[str, list[Row]], path: str) -> None:
    """Draws a panel for each loss, a curve for each split, and puts the PNG under its name at once."""
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(10, 4), layout="constrained")
    for axis, (metric, title) in zip(axes, PANELS.items()):
        for split, label in SPLITS.items():
            points = [(row["step"], row[metric]) for row in rows[split] if row.get(metric) is not None]
            if points:
                axis.plot(*zip(*points), label=label, marker="o" if split == "eval" else None)
        axis.set(title=title, xlabel="step", ylabel=UNIT)
        axis.grid(alpha=0.3)
        axis.legend()
    beside = f"{path}.tmp-{os.getpid()}"
    figure.savefig(beside, format="png", dpi=120)
    os.replace(beside, path)


def last_metrics(rows: dict[str, list[Row]]) -> str:
    """The last value of each metric, in a column for each split."""
    last = {split: rows[split][-1] for split in SPLITS if rows[split]}
    lines = [["step", *(row["step"] for row in last.values())]]
    for metric in PRINTED:
        values = [row.get(metric) for row in last.values()]
        lines.append([metric, *("" if value is None else f"{value:.3f}" for value in values)])
    return table(["", *(SPLITS[split] for split in last)], lines)


def main() -> None:
    """Reads the metrics, prints the last ones and draws the curves."""
    if len(sys.argv) != 3:
        raise UserError("usage: python -m scripts.plot_curves METRICS.jsonl CURVES.png")
    if not sys.argv[2].endswith(".png"):
        raise UserError(f"the curves are a PNG, and {sys.argv[2]} does not end in .png")
    rows = read_metrics(sys.argv[1])
    say(last_metrics(rows))
    try:
        draw(rows, sys.argv[2])
    except OSError as error:
        raise UserError(f"cannot write {sys.argv[2]}: {error.strerror}") from error
    say(f"curves: {sys.argv[2]}")


if __name__ == "__main__":
    run_main(main)
