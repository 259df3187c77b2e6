"""Draws the scores of an experiment against training FLOPs: a panel a task."""

import os
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from util.files import whole_file, writing

Row = dict[str, Any]


def draw(folder: str, rows: list[Row]) -> None:
    """Writes scores.png: medians with the range over the seeds.

    With several budgets a curve for each objective over FLOPs (the paper's Figure 3); with one, a point for each
    objective (its Table 5). Tasks without scores have empty panels.
    """
    tasks = rows[0]["tasks"]
    figure, axes = pyplot.subplots(1, len(tasks), figsize=(5 * len(tasks), 4), layout="constrained", squeeze=False)
    several = len({row["budget"] for row in rows}) > 1
    for axis, task in zip(axes[0], tasks):
        scored = [row for row in rows if row["tasks"][task]["n"]]
        (_curves if several else _points)(axis, task, scored)
        if several:
            _flops_axis(axis, sorted({row["budget"] for row in rows}))
        axis.set(title=task, ylabel=f"{tasks[task]['metric']}, {tasks[task]['split']}")
        axis.grid(alpha=0.3)
    path = os.path.join(folder, "scores.png")
    with writing(f"the plot {path}"), whole_file(path) as file:
        figure.savefig(file, format="png", dpi=120)
    pyplot.close(figure)


def _curves(axis: Axes, task: str, rows: list[Row]) -> None:
    for objective in dict.fromkeys(row["objective"] for row in rows):
        mine = [row for row in rows if row["objective"] == objective]
        _with_range(axis, [row["flops"] for row in mine], [row["tasks"][task] for row in mine], "o-", objective)
    if rows:
        axis.legend()


def _flops_axis(axis: Axes, budgets: list[float]) -> None:
    """A logarithmic axis with a mark for each budget."""
    axis.set(xscale="log", xlabel="training FLOPs", xlim=(budgets[0] / 1.3, budgets[-1] * 1.3))
    axis.set_xticks(budgets, [f"{budget:.3g}" for budget in budgets])
    axis.set_xticks([], minor=True)


def _points(axis: Axes, task: str, rows: list[Row]) -> None:
    _with_range(axis, [row["objective"] for row in rows], [row["tasks"][task] for row in rows], "o", None)
    for place, row in enumerate(rows):
        scores = row["tasks"][task]["scores"]
        axis.plot([place] * len(scores), scores, "_", color="gray")
    axis.tick_params("x", rotation=30)
    axis.set(xlabel=f"objective, {rows[0]['budget']:.3g} training FLOPs" if rows else "objective")


def _with_range(axis: Axes, x: list, scores: list[Row], style: str, label: str | None) -> None:
    medians = [found["median"] for found in scores]
    below = [found["median"] - found["lowest"] for found in scores]
    above = [found["highest"] - found["median"] for found in scores]
    axis.errorbar(x, medians, [below, above], fmt=style, capsize=4, label=label)
