"""The folder of a trial: what a run leaves in it, and whether another may go on from there. Needs no TensorFlow."""

import copy
import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from configure_finetuning import FinetuningConfig
from finetune.task import Results, Task
from model.checkpoint_files import PREFIX, find
from model.tokenization import Vocabulary
from util import filesystem
from util.distribution import DEVICES
from util.errors import UserError
from util.files import read_object, write_json, write_text, writing
from util.log import heading, say, table

HPARAMS, NETWORKS, TASKS, TRIAL = "hparams.json", "transformer_configs.json", "tasks.json", "trial.json"
TOKENIZER, DEBUG_MARKER, BEST = "tokenizer_config.json", "debug_run", "best"
DESCRIBING = ("vocab.txt", TOKENIZER, NETWORKS, TASKS, HPARAMS)  # what says of weights what they are

# hparams by what a change of theirs means for a trial that is resumed
DATA_ORDER = ("train_batch_size", "seed", "max_seq_length", "do_lower_case", "strip_accents", "double_unordered")
SHAPE = ("joint_prediction", "answerable_classifier", "answerable_uses_start_logits")
TRAINING = (
    "learning_rate",
    "weight_decay_rate",
    "layerwise_lr_decay",
    "lr_decay_power",
    "num_train_epochs",
    "warmup_proportion",
    "keep_best",
    "eval_every_steps",
    "early_stopping_patience",
    "released_quirks",
    "answerable_weight",
    "gradient_accumulation_steps",
    "precision",
    "bfloat16_slots",
    "freeze_layers",
    "bucketing",
    "init_checkpoint",
)

_ANEW = "set model_dir to another folder, or overwrite true to train anew"
Scores = dict[str, dict[str, Results]]  # task, split, metric


class Trial:
    """One of the runs with the same hparams and seeds of their own.

    Args:
      config: the hparams of the whole command.
      number: counted from 1; its seed is seed + number - 1.
      tasks: what is learned.
      data: what tells one set of training examples from another.
    """

    def __init__(self, config: FinetuningConfig, number: int, tasks: Sequence[Task], data: dict[str, str]):
        self.number, self.folder = number, config.trial_dir(number)
        self.config = dataclasses.replace(config, seed=config.seed + number - 1)
        self.tasks = {task.name: task.described() for task in tasks}
        self.data = data

    def another(self, number: int) -> "Trial":
        """Another trial of the same command."""
        other = copy.copy(self)
        other.number, other.folder = number, self.config.trial_dir(number)
        other.config = dataclasses.replace(self.config, seed=self.config.seed + number - self.number)
        return other

    @property
    def is_alike(self) -> bool:
        """Whether the trial in the folder was made with the same hparams and data."""
        before, now = self._noted(HPARAMS), self.config.in_force()
        names = (*SHAPE, *DATA_ORDER, *TRAINING)
        return all(before.get(name) == now[name] for name in names) and self._noted(TASKS, "data")["data"] == self.data

    def path(self, name: str) -> str:
        """A file of the trial's folder."""
        return os.path.join(self.folder, name)

    def networks(self) -> dict[str, Any]:
        """The encoder's sizes, as a pre-training run notes them."""
        network = self.config.network()
        size = self.config.embedding_size or network.hidden_size
        return {"discriminator": dataclasses.asdict(network), "generator": None, "embedding_size": size}

    @property
    def starts_afresh(self) -> bool:
        """Whether training takes no notice of what lies in the folder."""
        return self.config.do_train and (self.config.debug or self.config.overwrite)

    @property
    def record(self) -> dict[str, Any] | None:
        """What the finished trial left: its number, seed, steps, seconds and results; None before its end."""
        return None if self.starts_afresh or not filesystem.exists(self.path(TRIAL)) else self.finished_record()

    def finished_record(self) -> dict[str, Any]:
        """The record of a trial that has come to its end, also of one that started afresh."""
        record = self._noted(TRIAL, "trial", "seed", "results")
        if not _is_nested(record["results"], 3):
            raise UserError(f"the note {self.path(TRIAL)} is damaged: its results are no numbers; {_ANEW}")
        return {**record, "results": _replaced(record["results"], lambda value: value is None, math.nan)}

    def _noted(self, name: str, *keys: str) -> dict[str, Any]:
        """What an earlier run noted in the folder: an object that has these keys."""
        try:
            return read_object(self.path(name), *keys, what="note")
        except UserError as error:
            raise UserError(f"{error}; {_ANEW}") from error

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint to go on from."""
        return None if self.starts_afresh or not filesystem.isdir(self.folder) else find(self.folder)

    @property
    def weights(self) -> str | None:
        """The checkpoint to predict with: the best where one was kept."""
        best = self.path(BEST)
        return (find(best) if filesystem.isdir(best) else None) or find(self.folder)

    def check(self) -> None:
        """Compares the trial with what lies in its folder; changes nothing.

        Raises:
          UserError: another network, other labels, or a finished trial with other hparams lies there.
        """
        if self.config.debug:
            self._check_debug()
        if self.starts_afresh or not filesystem.exists(self.path(HPARAMS)):
            if not self.starts_afresh and filesystem.isdir(self.folder) and find(self.folder):
                raise UserError(
                    f"{self.folder} holds a checkpoint but not {HPARAMS}, so nobody can tell how it was trained; set "
                    "model_dir to another folder, or init_checkpoint to this one, or overwrite true to train anew"
                )
            return
        before, now = self._noted(HPARAMS), self.config.in_force()
        changed = [name for name in (*DATA_ORDER, *TRAINING) if name in before and before[name] != now[name]]
        shape = [f"{n}: {before[n]} there, {now[n]} here" for n in SHAPE if n in before and before[n] != now[n]]
        for name, value in ((NETWORKS, self.networks()), (TASKS, {"tasks": self.tasks})):
            there = self._noted(name)
            shape += [f"{k}: {there.get(k)} there, {value[k]} here" for k in value if there.get(k) != value[k]]
        data = self._noted(TASKS, "data")["data"] != self.data
        if shape:
            raise UserError(
                f"{self.folder} holds a trial with another network or other labels:\n  "
                + "\n  ".join(shape)
                + f"\nPass the same hparams, {_ANEW}"
            )
        told = ", ".join(f"{name} {before[name]} -> {now[name]}" for name in changed)
        if self.record and (changed or data):
            raise UserError(
                f"{self.folder} holds a finished trial with other hparams or data ({told or 'the training examples'});"
                f" pass the same ones, {_ANEW}"
            )
        if data or any(name in DATA_ORDER for name in changed):
            say("note: the order of the data differs from here on")
        if changed or data:
            say(f"note: changed since trial {self.number} began: {told or 'the training examples'}")

    def _check_debug(self) -> None:
        if filesystem.isdir(self.folder) and not filesystem.exists(self.path(DEBUG_MARKER)):
            if filesystem.exists(self.path(HPARAMS)) or find(self.folder):
                raise UserError(
                    f"debug starts the folder {self.folder} afresh, but no debug run made it; set model_dir to another "
                    "or remove the folder yourself"
                )

    def prepare(self, vocab: Vocabulary, strip_accents: bool) -> None:
        """Empties the folder where that is asked for, then writes what describes the trial that begins."""
        with writing(f"in the folder {self.folder}"):
            filesystem.makedirs(self.folder)
            if self.starts_afresh:
                self.empty()
            if self.config.debug:
                write_text(self.path(DEBUG_MARKER), "made by a run with debug true, which starts this folder afresh\n")
            write_text(self.path("vocab.txt"), "\n".join(vocab.tokens) + "\n")
            tokenizer = {"do_lower_case": self.config.do_lower_case, "strip_accents": strip_accents}
            write_json(self.path(TOKENIZER), tokenizer)
            write_json(self.path(NETWORKS), self.networks())
            write_json(self.path(TASKS), {"tasks": self.tasks, "data": self.data})
            write_json(self.path(HPARAMS), self.config.in_force())

    def finish(self, steps: int, seconds: float, results: Scores) -> None:
        """Writes the record of a trial that has come to its end."""
        record = {"trial": self.number, "seed": self.config.seed, "steps": steps, "train_seconds": round(seconds, 1)}
        with writing(f"in the folder {self.folder}"):
            write_json(self.path(TRIAL), {**record, "results": _replaced(results, _is_nan, None)})

    def empty(self) -> None:
        """Removes what a trial writes into its folder, and nothing else; the user asked for it."""
        for name in ("tensorboard", BEST):
            filesystem.rmtree(self.path(name), ignore_errors=True)
        notes = ("metrics.jsonl", DEVICES, TRIAL, DEBUG_MARKER, *DESCRIBING)
        for name in filesystem.listdir(self.folder) if filesystem.isdir(self.folder) else ():
            if name in notes:
                filesystem.remove(self.path(name))
        self.remove_checkpoints()

    def remove_checkpoints(self) -> None:
        """Removes the folder's checkpoints (keep_all_models false, overwrite, debug)."""
        for name in filesystem.listdir(self.folder) if filesystem.isdir(self.folder) else ():
            if name == "checkpoint" or name.startswith(PREFIX + "-"):
                filesystem.remove(self.path(name))
        filesystem.rmtree(self.path(BEST), ignore_errors=True)


def seed_of(checkpoint: str) -> int | None:
    """The seed that a fine-tuned checkpoint was trained with, where the files beside it tell."""
    path = os.path.join(os.path.dirname(checkpoint), HPARAMS)
    return read_object(path).get("seed") if filesystem.exists(path) else None


# ---- results --------------------------------------------------------------------------------------------------------


def results_lines(results: Scores) -> list[str]:
    """One line a task and split, as released: "mnli: accuracy: 81.30 - loss: 0.52"."""
    return [
        f"{task}{'' if split == 'dev' else ' ' + split}: "
        + " - ".join(f"{metric}: {value:.2f}" for metric, value in scores.items())
        for task, splits in results.items()
        for split, scores in splits.items()
    ]


def summary(all_results: Sequence[Scores]) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Median, mean and standard deviation (of the sample) over the trials that have it, by task, split and metric."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for results in all_results:
        for task, splits in results.items():
            for split, metrics in splits.items():
                for metric, value in metrics.items():
                    found.setdefault(task, {}).setdefault(split, {}).setdefault(metric, []).append(value)
    return {
        task: {
            split: {metric: _statistics(values) for metric, values in metrics.items()}
            for split, metrics in splits.items()
        }
        for task, splits in found.items()
    }


def _is_nested(value: Any, depth: int) -> bool:
    """Whether a value is numbers in dicts, so many one within the other."""
    if depth == 0:
        return isinstance(value, (int, float, type(None)))
    return isinstance(value, dict) and all(_is_nested(inner, depth - 1) for inner in value.values())


def _replaced(value: Any, is_old: Callable[[Any], bool], new: float | None) -> Any:
    """Dicts and lists with another value in the place of some: NaN, which JSON does not have, is null there."""
    if isinstance(value, dict):
        return {name: _replaced(inner, is_old, new) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, is_old, new) for inner in value]
    return new if is_old(value) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _statistics(values: Sequence[float]) -> dict[str, float]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"median": float(np.median(values)), "mean": float(np.mean(values)), "std": deviation, "n": len(values)}


def write_results(path: str, records: Sequence[dict[str, Any]]) -> None:
    """Writes results of trials: a text file with a line a task, split and trial, and JSON with their statistics."""
    lines = [line for record in records for line in results_lines(record["results"])]
    with writing(f"the results {path}"):
        write_text(path, "".join(line + "\n" for line in lines))
        everything = {"trials": list(records), "summary": summary([record["results"] for record in records])}
        write_json(os.path.splitext(path)[0] + ".json", _replaced(everything, _is_nan, None))


def report(config: FinetuningConfig, records: list[dict]) -> None:
    """Writes and prints the results of all trials."""
    records = [record for record in records if record["results"]]
    if not records:
        return
    write_results(config.results_txt, records)
    heading("results")
    for record in records:
        for line in results_lines(record["results"]):
            say(f"trial {record['trial']} (seed {record['seed']}): {line}")
    if len(records) > 1:
        rows = [
            [f"{task} {split} {metric}", *(f"{value[key]:.2f}" for key in ("median", "mean", "std")), value["n"]]
            for task, splits in summary([record["results"] for record in records]).items()
            for split, metrics in splits.items()
            for metric, value in metrics.items()
        ]
        say(table(["", "median", "mean", "std", "trials"], rows))
    say(f"written: {config.results_txt} and {os.path.splitext(config.results_txt)[0]}.json")
