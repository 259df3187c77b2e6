"""What an experiment compares: one JSON file, read and checked before anything runs. Needs no TensorFlow."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from experiments.runs import Run, check_equal, make_run
from pretrain.variants import OBJECTIVES
from util import filesystem
from util.errors import UserError, nearest_hint
from util.files import read_json

KEYS = {  # of the file, with what each holds
    "data_dir": (str, "the path of a data folder, relative to the file"),
    "pretraining": (dict, "an object: hparams of run_pretraining.py that all objectives share"),
    "objectives": (dict, "an object: names, each with the hparams that are its own"),
    "budgets": (list, "a list of training FLOPs"),
    "eval_tfrecords": (str, "globs of held-out shards, relative to the data folder"),
    "tasks": (dict, "an object: tasks, each with its hparams of run_finetuning.py"),
    "seeds": (int, "how many times each task is fine-tuned"),
}
OPTIONAL = ("data_dir", "pretraining")


@dataclass(frozen=True)
class Experiment:
    """What is compared, and on what data."""

    name: str  # the file's, without its ending; models and results are named after it
    data_dir: str
    values: dict[str, Any]  # the file's content
    runs: list[Run]  # every objective at the first budget, then at the next

    @property
    def folder(self) -> str:
        """Where results go."""
        return os.path.join(self.data_dir, "experiments", self.name)


def read_experiment(path: str, data_dir: str | None = None) -> Experiment:
    """Reads a configuration and works out its runs.

    Args:
      path: of the JSON file.
      data_dir: wins over the file's own.

    Raises:
      UserError: something is missing, unknown or of another kind, hparams are wrong, or the FLOPs are not equal.
    """
    values = read_json(path, "configuration")
    _check_keys(path, values)
    if data_dir is None:
        if "data_dir" not in values:
            raise UserError(f'{path} names no data folder; pass --data-dir, or add "data_dir"')
        data_dir = os.path.join(os.path.dirname(filesystem.abspath(path)), values["data_dir"])
    if not filesystem.isdir(data_dir):
        raise UserError(f"there is no data folder {data_dir}; pass another with --data-dir")
    name = os.path.splitext(os.path.basename(path))[0]
    values = {"pretraining": {}, **values, "data_dir": filesystem.abspath(data_dir)}
    runs = [
        make_run(name, values, objective, _objective_hparams(path, objective, own), float(budget))
        for budget in sorted(values["budgets"])
        for objective, own in values["objectives"].items()
    ]
    check_equal(runs)
    return Experiment(name, values["data_dir"], values, runs)


def _check_keys(path: str, values: Any) -> None:
    """The file's own keys and the kinds of their values."""
    if not isinstance(values, dict):
        raise UserError(f"the configuration {path} must hold an object with {', '.join(KEYS)}")
    if unknown := [key for key in values if key not in KEYS]:
        hint = nearest_hint(unknown[0], KEYS) or "."
        raise UserError(f'{path}: unknown key "{unknown[0]}"{hint} Keys: {", ".join(KEYS)}')
    for key, (kind, meaning) in KEYS.items():
        if key not in values and key not in OPTIONAL:
            raise UserError(f'{path}: "{key}" is missing; expected {meaning}')
        if type(values.get(key, kind())) is not kind:
            raise UserError(f'{path}: "{key}" must be {meaning}; got {values[key]!r}')
    for key in ("objectives", "budgets", "eval_tfrecords", "tasks"):
        if not values[key]:
            raise UserError(f'{path}: "{key}" is empty; expected {KEYS[key][1]}')
    for key in ("objectives", "tasks"):
        for name, hparams in values[key].items():
            if name in ("", ".", "..") or os.path.basename(name) != name:
                raise UserError(f'{path}: "{name}" in "{key}" must be the name of a folder, without "/"')
            if not isinstance(hparams, dict):
                raise UserError(f'{path}: "{name}" in "{key}" must be an object of hparams; got {hparams!r}')
    _check_numbers(path, values["budgets"], values["seeds"])


def _check_numbers(path: str, budgets: Iterable[Any], seeds: int) -> None:
    for budget in budgets:
        if type(budget) not in (int, float) or not 0 < budget < float("inf"):
            raise UserError(f'{path}: "budgets" must hold training FLOPs above 0; got {budget!r}')
    names = [f"{budget:g}" for budget in budgets]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f'{path}: "budgets" has {twice[0]} twice')
    if seeds < 1:
        raise UserError(f'{path}: "seeds" must be at least 1; got {seeds}')


def _objective_hparams(path: str, name: str, own: dict[str, Any]) -> dict[str, Any]:
    """An entry's hparams; its name says the objective where they do not."""
    if own.get("objective") is not None:
        return own
    if name not in OBJECTIVES:
        hint = nearest_hint(name, OBJECTIVES) or "."
        raise UserError(
            f'{path}: "{name}" in "objectives" is none of {", ".join(OBJECTIVES)}{hint} Under a name of your own, say '
            'which it is: {"objective": ...}'
        )
    return {**own, "objective": name}
