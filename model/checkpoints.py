"""Checkpoints in the name-based format of released ones (TF1): reading, restoring with a report, writing.

A training checkpoint of this project *is* a released one: the variables under their released names, the optimizer's
slots as `<name>/adam_m` and `<name>/adam_v`, `global_step`, and the training's own state under `training/`.
"""

import os
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from model.checkpoint_files import PREFIX, SAVING, find, missing_shards, whole_checkpoints, write_state
from model.disentangled import fitted
from model.huggingface import HuggingFaceReader
from model.readers import STATE, STEP, Tensors, is_weight, not_finite
from util import filesystem
from util.errors import UserError

__all__ = ["PREFIX", "SAVING", "STATE", "STEP", "Reader", "Report", "find", "open_reader", "position_rows", "restore",
           "whole_checkpoints", "write", "write_state"]  # fmt: skip

POSITIONS = "position_embeddings"
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


class Reader:
    """The tensors of a TensorFlow checkpoint, as `model.readers.Tensors`."""

    kind = "tf1"

    def __init__(self, prefix: str):
        self.prefix, self.left_out = prefix, []
        if missing := missing_shards(prefix):
            raise UserError(
                f"the checkpoint {prefix} lacks {', '.join(missing)}; copy all of its files, or remove them to take "
                "the checkpoint before it"
            )
        try:
            self._reader = tf.compat.v1.train.NewCheckpointReader(prefix)
            self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise UserError(f"cannot read the checkpoint {prefix}: {_first_line(error)}") from error

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._reader.get_tensor(name)
        except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
            raise UserError(
                f"cannot read {name} of the checkpoint {self.prefix}: {_first_line(error)}. A data file "
                "beside its .index is missing, cut short or damaged; copy it again, or remove the checkpoint's files "
                "to take the one before it"
            ) from error

    @property
    def step(self) -> int:
        """The training step; 0 where the checkpoint has none."""
        return int(self[STEP]) if STEP in self else 0


def open_reader(path: str) -> Tensors:
    """The tensors of the checkpoint at a path that `find` gave, whatever its format."""
    return HuggingFaceReader(path) if path.endswith((".safetensors", ".index.json")) else Reader(path)


def position_rows(path: str) -> int | None:
    """Rows of the position table in the checkpoint at a path that `find` gave; None where it has none."""
    return open_reader(path).shapes.get("electra/embeddings/position_embeddings", [None])[0]


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
    grown: list[str] = field(default_factory=list)  # tables whose last rows the checkpoint lacks, and which

    def lines(self) -> list[str]:
        """One clear line a kind."""
        lines = [f"restored {len(self.restored)} variables from {self.prefix} (step {self.step})"]
        if self.fresh:
            lines.append(f"fresh, not in the checkpoint: {_grouped(self.fresh)}")
        if self.grown:
            lines.append(f"fresh, beyond the checkpoint's rows: {', '.join(self.grown)}")
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
    source: str | Tensors,
    variables: dict[str, tf.Variable],
    slots: dict[str, tf.Variable] | None = None,
    state: dict[str, tf.Variable] | None = None,
) -> Report:
    """Reads a checkpoint into variables by name.

    Args:
      source: the checkpoint: what `find` gave, or its tensors.
      variables: the model's, by released name. What the checkpoint lacks stays fresh, also the last rows of a longer
        position table.
      slots: the optimizer's by name; those the checkpoint lacks become zero. None: the slots are not wanted.
      state: the training's own variables by name (`global_step`, `training/...`); missing ones stay as they are.

    Raises:
      UserError: unreadable, another shape (the hparam to change is named), none of the variables in it, or values
        that are not finite.
    """
    reader = fitted(open_reader(source) if isinstance(source, str) else source, variables)
    report = Report(reader.prefix, reader.step)
    for name in variables:
        (report.restored if name in reader else report.fresh).append(name)
    if not report.restored:
        raise UserError(
            f"the checkpoint {reader.prefix} holds none of the model's variables; it has "
            + _grouped(sorted(reader.shapes))
        )
    _check_shapes({name: variables[name] for name in report.restored}, reader)
    check_finite(reader, report.restored)
    for name in report.restored:
        if assign(variables[name], reader[name]):
            report.grown.append(f"{name}[{reader.shapes[name][0]}:]")
    for name, slot in (slots or {}).items():
        if name in reader:
            assign(slot, reader[name])
        else:
            slot.assign(tf.zeros_like(slot))
            report.zero_slots.append(name)
    for name, variable in (state or {}).items():
        if name in reader:
            variable.assign(tf.cast(reader[name], variable.dtype))
    report.unused = sorted(
        [name for name in reader.shapes if name not in variables and is_weight(name)] + reader.left_out
    )
    return report


def assign(variable: tf.Variable, value: np.ndarray) -> bool:
    """Assigns a value, the first rows of a longer table alone; says whether rows remain as they were."""
    value = np.asarray(value).astype(variable.dtype.as_numpy_dtype)
    if variable.shape.as_list() == list(value.shape):
        variable.assign(value)
        return False
    rows = variable.read_value().numpy()
    rows[: len(value)] = value
    variable.assign(rows)
    return True


def check_finite(reader: Tensors, names: list[str]) -> None:
    """Raises a `UserError` where some tensors hold NaN or infinite values."""
    if bad := not_finite(reader, names):
        raise UserError(
            f"the checkpoint {reader.prefix} holds NaN or infinite values in {len(bad)} variables, {bad[0]} first; "
            "take an earlier checkpoint, or copy it again"
        )


def _check_shapes(variables: dict[str, tf.Variable], reader: Tensors) -> None:
    """Names the hparams that make the shapes another, each with the first variable that shows it.

    A position table may be longer than the checkpoint's.
    """
    wrong: dict[str, str] = {}
    for name, variable in variables.items():
        here, there = variable.shape.as_list(), reader.shapes[name]
        grown = name.endswith(POSITIONS) and here[1:] == there[1:] and here[0] > there[0]
        if here != there and not grown:
            wrong.setdefault(_hparam_of(name, here, there), f"{name} has shape {there} there and {here} here")
    if wrong:
        raise UserError(
            f"the checkpoint {reader.prefix} is of a model of another size:"
            + "".join(f"\n  {what}: change {hparam}" for hparam, what in wrong.items())
        )


def _hparam_of(name: str, here: list[int], there: list[int]) -> str:
    for part, axis, hparam in _SHAPE_HPARAMS:
        differs = axis is None or (len(here) == len(there) > axis and here[axis] != there[axis])
        if part in name and differs:
            return hparam
    raise ValueError(f"no hparam is known to shape {name}")


def write(prefix: str, tensors: dict[str, tf.Tensor]) -> None:
    """Writes a checkpoint that TensorFlow 1 and 2 restore by name; complete under its name or not there at all."""
    folder, name = os.path.split(prefix)
    beside = os.path.join(folder, SAVING)
    filesystem.makedirs(beside)
    names = sorted(tensors)
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=os.path.join(beside, name),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tensors[n] for n in names],
            )
        for suffix in (".data-00000-of-00001", ".index"):  # the index last: with it the checkpoint is complete
            with filesystem.open(os.path.join(beside, name + suffix), "rb") as file:
                filesystem.settle(file)
            filesystem.rename(os.path.join(beside, name + suffix), prefix + suffix)
    finally:
        filesystem.rmtree(beside)
