"""One run of an experiment: an objective trained on a budget of FLOPs, then fine-tuned on each task."""

import bisect
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import configure_finetuning
import configure_pretraining
from configure_finetuning import FinetuningConfig
from configure_pretraining import PretrainingConfig
from finetune.trials import TRIAL
from model.checkpoint_files import find, step_in_name
from pretrain.flops import training_flops
from pretrain.model_folder import has_run
from util import filesystem
from util.errors import UserError

TOLERANCE = 0.01  # of the FLOPs of runs that are compared
_EVERYWHERE = ("model_name", "data_dir", "model_dir", "results_txt", "do_train", "do_eval", "overwrite", "debug")
SET_HERE = {  # hparams that follow from the configuration
    "pretraining": (*_EVERYWHERE, "eval_tfrecords"),
    "tasks": (*_EVERYWHERE, "task_names", "num_trials"),
}


class Judged(NamedTuple):
    """What a task is judged by."""

    split: str
    metric: str


@dataclass(frozen=True)
class TaskRun:
    """A task that a run's model is fine-tuned on, a trial a seed."""

    name: str
    hparams: dict[str, Any]  # as passed to run_finetuning.py
    config: FinetuningConfig

    def unfinished(self) -> str | None:
        """The folder of the first trial that is not finished."""
        folders = (self.config.trial_dir(i) for i in range(1, self.config.num_trials + 1))
        return next((folder for folder in folders if not filesystem.exists(os.path.join(folder, TRIAL))), None)

    def finished(self) -> bool:
        """Whether all trials are."""
        return self.unfinished() is None


@dataclass(frozen=True)
class Run:
    """An objective at a budget."""

    objective: str  # its name in the configuration
    budget: float  # FLOPs
    hparams: dict[str, Any]  # as passed to run_pretraining.py
    config: PretrainingConfig
    tasks: list[TaskRun]

    @property
    def flops(self) -> float:
        """What the training costs, by the papers' counting rules."""
        return training_flops(self.config, self.config.num_train_steps)

    @property
    def title(self) -> str:
        """The run in a few words."""
        return f"{self.objective}, {self.budget:g} FLOPs"

    def pretrained(self) -> bool:
        """Whether the pre-training has come to its last step."""
        folder = self.config.model_dir
        return has_run(folder) and step_in_name(find(folder)) >= self.config.num_train_steps


def make_run(experiment: str, values: dict[str, Any], objective: str, own: dict[str, Any], budget: float) -> Run:
    """The run of an objective on a budget, its hparams checked.

    Args:
      experiment: its name, the first part of the model's.
      values: of the configuration, data_dir absolute.
      objective: its name in the configuration; `own`: the hparams that are its own, "objective" among them.
      budget: FLOPs.
    """
    data, name = values["data_dir"], f"{experiment}-{objective}-{budget:g}"
    hparams = {**values["pretraining"], **own}
    _refuse("pretraining", f'objective "{objective}"', hparams)
    hparams["eval_tfrecords"] = below(data, values["eval_tfrecords"])
    if hparams.get("pretrain_tfrecords"):
        hparams["pretrain_tfrecords"] = below(data, hparams["pretrain_tfrecords"])
    try:
        hparams.setdefault("num_train_steps", steps_for(name, data, hparams, budget))
        hparams["eval_every_steps"] = hparams.get("eval_every_steps") or hparams["num_train_steps"]
        config = configure_pretraining.make_config(name, data, hparams)
        configure_pretraining.validate(config)
    except UserError as error:
        raise UserError(f'objective "{objective}" at {budget:g} FLOPs: {error}') from error
    tasks = [_task_run(config, task, hparams, values["seeds"]) for task, hparams in values["tasks"].items()]
    return Run(objective, budget, hparams, config, tasks)


def steps_for(name: str, data: str, hparams: dict[str, Any], budget: float) -> int:
    """The number of steps whose FLOPs are nearest to the budget, stages of their own lengths included."""

    def cost(steps: int) -> float:
        config = configure_pretraining.make_config(name, data, {**hparams, "num_train_steps": steps})
        return training_flops(config, steps)

    first = 1 + bisect.bisect_left(range(1, configure_pretraining.LARGEST), budget, key=cost)
    return min(max(1, first - 1), first, key=lambda steps: abs(cost(steps) - budget))


def check_equal(runs: list[Run]) -> None:
    """Raises a `UserError` where the runs of a budget differ from it, or from each other, by more than 1%."""
    for budget in sorted({run.budget for run in runs}):
        costs = {run.objective: run.flops for run in runs if run.budget == budget}
        if max(budget, *costs.values()) > min(budget, *costs.values()) * (1 + TOLERANCE):
            told = ", ".join(
                f"{run.objective} {run.flops:.4g} ({run.config.num_train_steps} steps)"
                for run in runs
                if run.budget == budget
            )
            raise UserError(
                f"the FLOPs at the budget {budget:g} differ by more than {TOLERANCE:.0%}: {told}; leave "
                "num_train_steps to the budget, and take a budget of 100 steps or more"
            )


def _task_run(pretrained: PretrainingConfig, task: str, hparams: dict[str, Any], seeds: int) -> TaskRun:
    """A task's hparams; the sizes are those of the model that will have been trained."""
    _refuse("tasks", f'task "{task}"', hparams)
    hparams = {**hparams, "task_names": [task], "num_trials": seeds}
    sizes = ("model_size", "model_hparam_overrides", "embedding_size", "vocab_size", "do_lower_case", "vocab_file")
    adopted = {name: getattr(pretrained, name) for name in sizes}
    try:
        config = configure_finetuning.make_config(pretrained.model_name, pretrained.data_dir, hparams, adopted)
        configure_finetuning.validate(config)
    except UserError as error:
        raise UserError(f'task "{task}": {error}') from error
    return TaskRun(task, hparams, config)


def _refuse(section: str, where: str, hparams: dict[str, Any]) -> None:
    if found := [name for name in SET_HERE[section] if name in hparams]:
        raise UserError(f'{where}: the hparam "{found[0]}" follows from the configuration; leave it out')


def below(folder: str, patterns: str) -> str:
    """Comma-separated globs, the relative ones taken from a folder."""
    return ",".join(os.path.join(folder, pattern.strip()) for pattern in patterns.split(","))
