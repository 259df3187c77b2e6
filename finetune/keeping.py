"""Keeping the weights with the best dev metric, and ending a trial that no longer gets better."""

import os
from collections.abc import Callable

import tensorflow as tf

from finetune.finetuning_model import FinetuningModel
from finetune.task import Metric
from finetune.trials import BEST, DESCRIBING, Scores, Trial
from model import checkpoints
from model.checkpoints import STATE
from util import filesystem
from util.files import writing
from util.log import say

LOWER_IS_BETTER = ("loss", "mse")


class BestKeeper:
    """Evaluates while training and remembers the best.

    Its state is part of the trial's checkpoints, so that a resumed trial keeps and ends as an uninterrupted one.

    Args:
      trial: its hparams keep_best, early_stopping_patience, and its folder.
      model: what is trained.
      scores: evaluates the model.
      metrics: what each task is judged by where keep_best names no metric.
      is_chief: this process writes the weights.
    """

    def __init__(
        self,
        trial: Trial,
        model: FinetuningModel,
        scores: Callable[[], Scores],
        metrics: dict[str, Metric],
        is_chief: bool = True,
    ):
        self.trial, self.model, self.scores, self.metrics, self.is_chief = trial, model, scores, metrics, is_chief
        self.patience, self.name = trial.config.early_stopping_patience, trial.config.keep_best
        self.wanted = bool(self.name or self.patience)
        self.best = tf.Variable(tf.float32.min, trainable=False, dtype=tf.float32)
        self.since = tf.Variable(0, trainable=False, dtype=tf.int64)
        state = {f"{STATE}best_metric": self.best, f"{STATE}evaluations_since_best": self.since}
        self.state: dict[str, tf.Variable] = state if self.wanted else {}

    def evaluate(self) -> dict[str, float]:
        """Dev metrics by "task/metric"; keeps the weights where they are the best so far."""
        scores = self.scores()
        values = {
            f"{task}{'' if split == 'dev' else ' ' + split}/{metric}": value
            for task, splits in scores.items()
            for split, metrics in splits.items()
            for metric, value in metrics.items()
        }
        if self.wanted:
            self._compare(self.value_of(scores))
        return values

    def value_of(self, scores: Scores) -> float:
        """What is to be as high as possible: the metric that keep_best names, or the mean of the tasks' own."""
        found = []
        for task, splits in scores.items():
            results = next(iter(splits.values()))
            metric = self.name or self.metrics[task].name
            task_of, _, name = metric.rpartition("/")
            if task_of in ("", task):
                found.append(-results[name] if name in LOWER_IS_BETTER else results[name])
        return sum(found) / len(found)

    def enough(self) -> bool:
        """Whether early_stopping_patience is used up."""
        return bool(self.patience) and int(self.since.numpy()) >= self.patience

    def restore_best(self) -> None:
        """Puts the best weights back into the model."""
        folder = self.trial.path(BEST)
        if self.name and filesystem.isdir(folder):
            prefix = checkpoints.find(folder)
            checkpoints.restore(prefix, self.model.variables)
            say(f"the best weights are those of {prefix}")

    def _compare(self, value: float) -> None:
        if not value > float(self.best.numpy()):
            self.since.assign_add(1)
            return
        self.best.assign(value)
        self.since.assign(0)
        if self.name and self.is_chief:
            self._keep()

    def _keep(self) -> None:
        folder, beside = self.trial.path(BEST), self.trial.path(BEST + ".new")
        values = {name: variable.read_value() for name, variable in self.model.variables.items()}
        with writing(f"the best weights in {folder}"):
            filesystem.rmtree(beside, ignore_errors=True)
            filesystem.makedirs(beside)
            try:
                checkpoints.write(os.path.join(beside, f"{checkpoints.PREFIX}-0"), values)
            except tf.errors.OpError as error:
                raise OSError(error.message.splitlines()[0]) from error
            checkpoints.write_state(beside, [0])
            for name in DESCRIBING:
                filesystem.copy(self.trial.path(name), os.path.join(beside, name))
            filesystem.rmtree(folder, ignore_errors=True)
            filesystem.rename(beside, folder)
