"""What the runs of an experiment left: read from their folders, as a table in Markdown and as JSON."""

import os
import statistics
from typing import Any

from experiments.runs import Judged, Run, TaskRun
from finetune.trials import TRIAL
from scripts.plot_curves import read_metrics
from util import filesystem
from util.errors import UserError
from util.files import read_object, write_json, write_text, writing

HELD_OUT = {  # metrics of the held-out shards, with their columns
    "masked_lm_loss": "masked LM loss",
    "masked_lm_accuracy": "masked LM accuracy",
    "token_loss": "token loss",
    "token_accuracy": "token accuracy",
    "disc_auc": "disc_auc",
}

Row = dict[str, Any]


def row_of(run: Run, judged: dict[str, Judged], entropy: float) -> Row:
    """What a run has given so far; what it has not is None, or a task without scores.

    Args:
      judged: by task.
      entropy: nats a token; below it the masked language model has left the plateau.
    """
    row: Row = {"objective": run.objective, "budget": run.budget, "flops": run.flops}
    row |= {"steps": run.config.num_train_steps, "finished": run.pretrained(), "seconds": None}
    row |= {"held_out": {}, "below_entropy_at": None}
    if row["finished"]:
        metrics = read_metrics(os.path.join(run.config.model_dir, "metrics.jsonl"))
        last = metrics["eval"][-1] if metrics["eval"] else {}
        row["seconds"] = training_seconds(metrics["train"])
        row["held_out"] = {name: last[name] for name in HELD_OUT if last.get(name) is not None}
        row["below_entropy_at"] = first_below(metrics["train"], entropy)
    row["tasks"] = {task.name: _scores(task, judged[task.name]) for task in run.tasks}
    return row


def training_seconds(rows: list[Row]) -> float:
    """Time inside the training steps, compilation included; the same for a run that was killed and resumed."""
    before, seconds = 0, 0.0
    for row in rows:
        seconds += (row["step"] - before) / row["steps_per_second"]
        before = row["step"]
    return seconds


def first_below(rows: list[Row], entropy: float) -> int | None:
    """The first logged step whose masked LM training loss, a mean since the line before, is below the entropy."""
    below = (row["step"] for row in rows if (row.get("masked_lm_loss") or entropy) < entropy)
    return next(below, None)


def _scores(task: TaskRun, judged: Judged) -> Row:
    """Scores of the trials that are finished, with median, lowest and highest."""
    scores = []
    for number in range(1, task.config.num_trials + 1):
        path = os.path.join(task.config.trial_dir(number), TRIAL)
        if filesystem.exists(path):
            try:
                results = read_object(path, "results", what="note")["results"]
                scores.append(results[task.name][judged.split][judged.metric])
            except (KeyError, TypeError) as error:
                raise UserError(f"the note {path} holds no {judged.metric} of {task.name}; is it damaged?") from error
    found: Row = {"metric": judged.metric, "split": judged.split, "n": len(scores), "scores": scores}
    if scores:
        found |= {"median": statistics.median(scores), "lowest": min(scores), "highest": max(scores)}
    return found


# ---- the table ------------------------------------------------------------------------------------------------------


def write_results(folder: str, name: str, entropy: float, rows: list[Row]) -> None:
    """Writes results.json and results.md."""
    with writing(f"the results in {folder}"):
        write_json(os.path.join(folder, "results.json"), {"unigram_entropy": entropy, "runs": rows})
        write_text(os.path.join(folder, "results.md"), markdown(name, entropy, rows))


def markdown(name: str, entropy: float, rows: list[Row]) -> str:
    """A row a run; columns that no run fills are left out."""
    columns = {"objective": [row["objective"] for row in rows]}
    columns["FLOPs"] = [f"{row['flops']:.4g}" for row in rows]
    columns["steps"] = [f"{row['steps']:,}" for row in rows]
    columns["minutes"] = ["" if row["seconds"] is None else f"{row['seconds'] / 60:.1f}" for row in rows]
    for metric, title in HELD_OUT.items():
        columns[title] = [_number(row["held_out"].get(metric), 3) for row in rows]
    columns["below the entropy at step"] = [_plateau_text(row) for row in rows]
    for task in rows[0]["tasks"]:
        columns[f"{task} {rows[0]['tasks'][task]['metric']}"] = [_spread_text(row["tasks"][task]) for row in rows]
    columns = {title: cells for title, cells in columns.items() if any(cells)}
    lines = [list(columns), ["---"] * len(columns), *zip(*columns.values())]
    table = "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
    return (
        f"# {name}\n\nPre-training at equal FLOPs, then fine-tuning: median (lowest–highest) over n seeds. Losses are\n"
        f"of the held-out text, in nats; the unigram entropy of the training shards is {entropy:.3f} nats.\n\n{table}"
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _plateau_text(row: Row) -> str:
    if not row["finished"]:
        return ""
    return "never" if row["below_entropy_at"] is None else f"{row['below_entropy_at']:,}"


def _spread_text(scores: Row) -> str:
    if not scores["n"]:
        return ""
    return f"{scores['median']:.2f} ({scores['lowest']:.2f}–{scores['highest']:.2f}), n = {scores['n']}"
