"""The table and the plot, from results as runs leave them."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import image

from configure_pretraining import make_config
from experiments import checks, results
from experiments.plot import draw
from experiments.results import first_below, markdown, training_seconds, write_results
from experiments.runs import Judged, Run, TaskRun, steps_for
from pretrain.flops import training_flops
from pretrain.variants import OBJECTIVES
from util.errors import UserError


def row(objective: str, budget: float, scores: list[float], **values) -> dict:
    task = {"metric": "f1", "split": "dev", "n": len(scores), "scores": scores}
    if scores:
        task |= {"median": sorted(scores)[len(scores) // 2], "lowest": min(scores), "highest": max(scores)}
    found = {"objective": objective, "budget": budget, "flops": budget * 1.001, "steps": 1200, "finished": True}
    found |= {"seconds": 90.0, "held_out": {"masked_lm_loss": 4.5}, "below_entropy_at": 300, "tasks": {"chunk": task}}
    return found | values


ROWS = [
    row("mlm", 1e12, [80.0, 82.0, 81.0]),
    row("electra", 1e12, [85.0, 84.0, 86.0], held_out={"masked_lm_loss": 5.0, "disc_auc": 0.9}, below_entropy_at=None),
    row("replace_mlm", 1e12, [], finished=False, seconds=None, held_out={}, below_entropy_at=None),
]


def test_the_table_has_a_row_a_run_and_leaves_out_what_none_has():
    lines = markdown("x", 6.25, ROWS).splitlines()
    assert "6.250 nats" in " ".join(lines)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert cells[0] == ["objective", "FLOPs", "steps", "minutes", "masked LM loss", "disc_auc",
                        "below the entropy at step", "chunk f1"]  # fmt: skip
    assert cells[2] == ["mlm", "1.001e+12", "1,200", "1.5", "4.500", "", "300", "81.00 (80.00–82.00), n = 3"]
    assert cells[3][5:] == ["0.900", "never", "85.00 (84.00–86.00), n = 3"]
    assert cells[4] == ["replace_mlm", "1.001e+12", "1,200", "", "", "", "", ""]


@pytest.mark.parametrize("rows", [ROWS, [*ROWS, row("mlm", 4e12, [90.0]), row("electra", 4e12, [91.0])], ROWS[2:]],
                         ids=["one budget", "two budgets", "no scores"])  # fmt: skip
def test_files_are_whole_and_the_plot_is_not_empty(tmp_path, rows):
    write_results(str(tmp_path), "x", 6.0, rows)
    draw(str(tmp_path), rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "results.md", "scores.png"]
    assert json.loads((tmp_path / "results.json").read_text())["runs"] == rows
    picture = image.imread(tmp_path / "scores.png")
    coloured = np.ptp(picture[..., :3], axis=-1) > 0.2
    assert coloured.any() == any(row["tasks"]["chunk"]["n"] for row in rows)


def test_time_and_plateau_come_from_the_logged_steps():
    """Time is steps over speed, whatever the distance of the lines; a loss at the entropy is not below it."""
    rows = [
        {"step": 100, "steps_per_second": 10.0, "masked_lm_loss": 7.0},
        {"step": 150, "steps_per_second": 25.0, "masked_lm_loss": 6.0},
        {"step": 250, "steps_per_second": 50.0, "masked_lm_loss": None},
        {"step": 300, "steps_per_second": 50.0, "masked_lm_loss": 5.9},
    ]
    assert training_seconds(rows) == pytest.approx(10 + 2 + 2 + 1)
    assert first_below(rows, 6.0) == 300 and first_below(rows, 7.5) == 100 and first_below(rows, 5.0) is None


def test_unfinished_runs_have_the_scores_that_are_there(tmp_path):
    config = SimpleNamespace(num_trials=3, trial_dir=lambda number: str(tmp_path / f"trial_{number}"))
    task, judged = TaskRun("rte", {}, config), {"rte": Judged("dev", "accuracy")}
    for number, score in ((1, 60.0), (3, 50.0)):
        (tmp_path / f"trial_{number}").mkdir()
        note = {"results": {"rte": {"dev": {"accuracy": score, "loss": 0.7}}}}
        (tmp_path / f"trial_{number}" / "trial.json").write_text(json.dumps(note))
    assert task.unfinished() == str(tmp_path / "trial_2") and not task.finished()
    found = results._scores(task, judged["rte"])
    assert (found["n"], found["median"], found["lowest"], found["highest"]) == (2, 55.0, 50.0, 60.0)
    with pytest.raises(UserError, match="trial_1.* holds no f1 of rte"):
        results._scores(task, Judged("dev", "f1"))


SMALL = {"vocab_size": 400, "max_seq_length": 32, "train_batch_size": 8, "embedding_size": 16,
         "model_hparam_overrides": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}}  # fmt: skip


@given(objective=st.sampled_from(sorted(OBJECTIVES)), steps=st.integers(2, 10**6), off=st.floats(-0.49, 0.49))
def test_the_steps_are_the_nearest_to_the_budget(objective, steps, off):
    """Also where the steps set the length of the stages; a budget between two numbers of steps gives the nearer."""
    hparams = {**SMALL, "objective": objective}
    if objective == "two_stage":
        steps, off = 2 * steps, off / 4  # a step more may be one of either stage

    def cost(number):
        return training_flops(make_config("m", "d", {**hparams, "num_train_steps": number}), number)

    budget = cost(steps) + off * min(cost(steps) - cost(steps - 1), cost(steps + 1) - cost(steps))
    assert steps_for("m", "d", hparams, budget) == steps


def test_the_entropy_is_that_of_the_shards_without_special_tokens(training_data):
    """Against a count of every token of every example."""
    import tensorflow as tf

    paths = sorted(str(path) for path in (training_data / "pretrain_tfrecords").glob("pretrain_data*"))
    counts = np.zeros(400)
    for record in tf.data.TFRecordDataset(paths):
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        real = sum(feature["input_mask"].int64_list.value)
        for token in feature["input_ids"].int64_list.value[:real]:
            counts[token] += 1
    names = (training_data / "vocab.txt").read_text().splitlines()
    shares = [n for name, n in zip(names, counts) if n and name not in ("[CLS]", "[SEP]", "[MASK]")]
    expected = -sum(n / sum(shares) * math.log(n / sum(shares)) for n in shares)

    run = Run("mlm", 1.0, {}, make_config("m", str(training_data), SMALL), [])
    assert checks.unigram_entropy(SimpleNamespace(runs=[run])) == pytest.approx(expected, rel=1e-9)
    assert 0 < expected < math.log(400)
