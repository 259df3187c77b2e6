"""Checkpoints in the name-based format of released ones (TF1): reading, restoring with a report, writing.

A training checkpoint of this project *is* a released one: the variables under their released names, the optimizer's
slots as `<name>/adam_m` and `<name>/adam_v`, `global_step`, and the training's own state under `training/`.
"""

import os
import re
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from util.errors import UserError
from util.files import write_text

SLOTS = ("adam_m", "adam_v")
STEP = "global_step"
STATE = "training/"
PREFIX = "model.ckpt"
_SHAPE_HPARAMS = (  # which hparam sets a shape: (part of the name, axis or None, hparam)
    ("word_embeddings", 0, "vocab_size"),
    ("output_bias", 0, "vocab_size"),
    ("word_embeddings", 1, "embedding_size"),
    ("token_type_embeddings", 0, "type_vocab_size in model_hparam_overrides"),
    ("position_embeddings", 0, "max_position_embeddings in model_hparam_overrides"),
    ("_embeddings", 1, "embedding_size"),
    ("embeddings/LayerNorm", None, "embedding_size"),
    ("embeddings_project", 0, "embedding_size"),
    ("generator", None, "generator_hidden_size, embedding_size"),
    ("", None, "model_size, model_hparam_overrides"),
)


def find(path: str) -> str | None:
    """The prefix of the checkpoint at a path; None where a folder holds none.

    Args:
      path: a folder (its `checkpoint` file says which is the latest), a prefix (`.../model.ckpt-1000`) or one of a
        checkpoint's files.

    Raises:
      UserError: the path or a file of the checkpoint is missing.
    """
    if os.path.isdir(path):
        return _latest(path)
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if not os.path.exists(prefix + ".index"):
        raise UserError(
            f"there is no checkpoint {path}: expected a folder with a `checkpoint` file, or a prefix such as "
            f"{os.path.join(os.path.dirname(path), PREFIX)}-1000 with its .index and .data files"
        )
    return prefix


def _latest(folder: str) -> str | None:
    """The checkpoint that the `checkpoint` file names (beside it, if it has moved), else the newest whole one."""
    state = os.path.join(folder, "checkpoint")
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            named = re.search(r'^model_checkpoint_path:\s*"(.*)"', file.read(), re.M)
        if named:
            for prefix in (os.path.join(folder, named[1]), os.path.join(folder, os.path.basename(named[1]))):
                if os.path.exists(prefix + ".index"):
                    return prefix
    whole = whole_checkpoints(folder)
    return os.path.join(folder, f"{PREFIX}-{whole[-1]}") if whole else None


def whole_checkpoints(folder: str) -> list[int]:
    """The steps of the complete checkpoints of a folder, rising."""
    names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    found = (re.fullmatch(re.escape(PREFIX) + r"-(\d+)\.index", name) for name in names)
    steps = [int(match[1]) for match in found if match]
    return sorted(step for step in steps if f"{PREFIX}-{step}.data-00000-of-00001" in names)


class Reader:
    """The tensors of a checkpoint by name, read when they are asked for."""

    def __init__(self, prefix: str):
        self.prefix = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise UserError(f"cannot read the checkpoint {prefix}: {_first_line(error)}") from error

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._reader.get_tensor(name)
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise UserError(
                f"cannot read {name} of the checkpoint {self.prefix}: {_first_line(error)}. A data file "
                "beside its .index is missing or cut short; copy it again"
            ) from error

    @property
    def step(self) -> int:
        """The training step; 0 where the checkpoint has none."""
        return int(self[STEP]) if STEP in self else 0


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@dataclass
class Report:
    """What restoring did."""

    prefix: str
    step: int
    restored: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)  # of the model, not in the checkpoint
    unused: list[str] = field(default_factory=list)  # in the checkpoint, not of the model
    zero_slots: list[str] = field(default_factory=list)  # slots that the checkpoint lacks: they start at zero

    def lines(self) -> list[str]:
        """One clear line a kind."""
        lines = [f"restored {len(self.restored)} variables from {self.prefix} (step {self.step})"]
        if self.fresh:
            lines.append(f"fresh, not in the checkpoint: {_grouped(self.fresh)}")
        if self.zero_slots:
            lines.append(f"{len(self.zero_slots)} optimizer slots are not in the checkpoint and start at zero")
        if self.unused:
            lines.append(f"in the checkpoint, not used: {_grouped(self.unused)}")
        return lines


def _grouped(names: list[str]) -> str:
    groups: dict[str, int] = {}
    for name in names:
        group = name.split("/")[0] + ("/*" if "/" in name else "")
        groups[group] = groups.get(group, 0) + 1
    return ", ".join(f"{group} ({count})" for group, count in groups.items())


def restore(
    prefix: str,
    variables: dict[str, tf.Variable],
    slots: dict[str, tf.Variable] | None = None,
    state: dict[str, tf.Variable] | None = None,
) -> Report:
    """Reads a checkpoint into variables by name.

    Args:
      prefix: of the checkpoint.
      variables: the model's, by released name. What the checkpoint lacks stays fresh.
      slots: the optimizer's by name; those the checkpoint lacks become zero. None: the slots are not wanted.
      state: the training's own variables by name (`global_step`, `training/...`); missing ones stay as they are.

    Raises:
      UserError: unreadable, another shape (the hparam to change is named), or none of the variables in it.
    """
    reader = Reader(prefix)
    report = Report(prefix, reader.step)
    for name, variable in variables.items():
        if name not in reader:
            report.fresh.append(name)
            continue
        _check_shape(name, variable, reader)
        report.restored.append(name)
    if not report.restored:
        raise UserError(
            f"the checkpoint {prefix} holds none of the model's variables; it has " + _grouped(sorted(reader.shapes))
        )
    for name in report.restored:
        variables[name].assign(reader[name])
    for name, slot in (slots or {}).items():
        if name in reader:
            slot.assign(reader[name])
        else:
            slot.assign(tf.zeros_like(slot))
            report.zero_slots.append(name)
    for name, variable in (state or {}).items():
        if name in reader:
            variable.assign(tf.cast(reader[name], variable.dtype))
    report.unused = sorted(
        name
        for name in reader.shapes
        if name not in variables and name != STEP and not name.startswith(STATE) and name.split("/")[-1] not in SLOTS
    )
    return report


def _check_shape(name: str, variable: tf.Variable, reader: Reader) -> None:
    here, there = variable.shape.as_list(), reader.shapes[name]
    if here == there:
        return
    for part, axis, hparam in _SHAPE_HPARAMS:
        differs = axis is None or (len(here) == len(there) > axis and here[axis] != there[axis])
        if part in name and differs:
            raise UserError(f"{name} has shape {there} in {reader.prefix} and {here} in the model: change {hparam}")


def write(prefix: str, tensors: dict[str, tf.Tensor]) -> None:
    """Writes a checkpoint that TensorFlow 1 and 2 restore by name; complete under its name or not there at all."""
    folder, name = os.path.split(prefix)
    beside = os.path.join(folder, SAVING)
    os.makedirs(beside, exist_ok=True)
    names = sorted(tensors)
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=os.path.join(beside, name),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tensors[n] for n in names],
        )
    for suffix in (".data-00000-of-00001", ".index"):  # the index last: with it the checkpoint is complete
        with open(os.path.join(beside, name + suffix), "rb") as file:
            os.fsync(file.fileno())
        os.replace(os.path.join(beside, name + suffix), prefix + suffix)
    os.rmdir(beside)


SAVING = ".saving"  # the folder of half-written checkpoints


def write_state(folder: str, steps: list[int]) -> None:
    """Writes the `checkpoint` file, which names the latest checkpoint and all that are kept."""
    lines = [f'model_checkpoint_path: "{PREFIX}-{steps[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{PREFIX}-{step}"' for step in steps]
    write_text(os.path.join(folder, "checkpoint"), "\n".join(lines) + "\n")
