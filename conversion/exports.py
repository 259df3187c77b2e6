"""A checkpoint written in each of the formats."""

import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from conversion.companions import DATA, HPARAMS, NETWORKS, Companions, write_hugging_face_tokenizer, write_vocab
from conversion.model_card import model_card
from model import checkpoints, heads, huggingface
from model.config import TransformerConfig
from model.description import TASKS, hparams, tasks_beside
from model.parts import MAIN_HEAD, generator_of, has_generator, published
from model.readers import STEP, Tensors, View, has, is_weight, kept, under
from util import filesystem
from util.errors import UserError
from util.files import write_json, write_text
from util.log import say


class Source(NamedTuple):
    """What is to be written."""

    tensors: Tensors
    networks: dict[str, Any]  # what `model.description.networks` says of it
    companions: Companions

    def config(self, network: str) -> TransformerConfig:
        """Sizes of the "discriminator" or the "generator"."""
        return TransformerConfig(**self.networks[network])


def write_tf1(folder: str, source: Source, slots: bool) -> None:
    """A checkpoint as they are published: weights and step (slots if wanted), vocabulary, configs, a card."""
    _write_checkpoint(folder, published(source.tensors, slots))
    write_vocab(folder, source.companions)
    write_json(os.path.join(folder, NETWORKS), source.networks)
    _write_tasks(folder, source)
    write_text(os.path.join(folder, "README.md"), model_card(source.tensors, source.networks, source.companions.notes))


def write_project(folder: str, source: Source, whole: bool) -> None:
    """A model folder: what the source has of weights, slots, step and the training's state, and the files beside them.

    Args:
      whole: nothing was left out, so that a run's notes still hold and the run can go on from here.
    """
    _write_checkpoint(folder, source.tensors)
    write_vocab(folder, source.companions)
    notes = {name: source.companions.notes[name] for name in (HPARAMS, DATA) if name in source.companions.notes}
    if whole and len(notes) == 2:
        for name, value in notes.items():
            write_json(os.path.join(folder, name), value)
    else:
        values = hparams(source.tensors, source.networks) | {"do_lower_case": source.companions.do_lower_case}
        write_json(os.path.join(folder, HPARAMS), values)
    write_json(os.path.join(folder, NETWORKS), source.networks)
    _write_tasks(folder, source)


def _write_tasks(folder: str, source: Source) -> None:
    """What the outputs of fine-tuned heads stand for, where that is known."""
    there = heads.tasks(source.tensors.shapes)
    if noted := {task: told for task, told in tasks_beside(source.tensors).items() if task in there}:
        write_json(os.path.join(folder, TASKS), {"tasks": noted})


def _write_checkpoint(folder: str, tensors: Tensors) -> None:
    with tf.device("CPU:0"):
        # identity: a tensor made from an array holds on to memory of both
        values = {name: tf.identity(tf.convert_to_tensor(tensors[name])) for name in tensors.shapes}
        if tensors.step and STEP not in values:
            values[STEP] = tf.constant(tensors.step, tf.int64)
    try:
        checkpoints.write(os.path.join(folder, f"{checkpoints.PREFIX}-{tensors.step}"), values)
    except tf.errors.OpError as error:
        raise UserError(f"cannot write the checkpoint: {str(error).splitlines()[0]}; free some space or check the "
                        "rights, then run the same command again") from error  # fmt: skip
    checkpoints.write_state(folder, [tensors.step])


def write_hugging_face(folder: str, source: Source, part: str | None, task: str | None, kind: str | None) -> None:
    """One network as a Hugging Face folder, or two in folders below it.

    Args:
      part: "discriminator" (the encoder alone where it has no head), "generator", "finetuned", or "both" of the first
        two; None: what one uses such a checkpoint for.
      task, kind: of the fine-tuned head, where the checkpoint does not tell.

    Raises:
      UserError: the checkpoint does not hold it, or Hugging Face has no such head.
    """
    if part != "both":
        _write_network(folder, source, part or default_part(source.tensors), task, kind)
        return
    _write_network(os.path.join(folder, "discriminator"), source, "discriminator", task, kind)
    if has_generator(source.tensors):
        _write_network(os.path.join(folder, "generator"), source, "generator", task, kind)
    else:
        say("generator: there is none that Hugging Face has a shape for")


def _write_network(folder: str, source: Source, part: str, task: str | None, kind: str | None) -> None:
    reader, head, more, told = source.tensors, None, {}, {}
    if part == "generator":
        network, sizes = generator_of(reader, "electra"), source.config("generator")
        architecture = "ElectraForMaskedLM"
    else:
        names = under(reader, "electra", *([MAIN_HEAD] if part == "discriminator" else []))
        network, sizes = View(kept(reader, filter(is_weight, names))), source.config("discriminator")
        architecture = "ElectraForPreTraining" if has(network, MAIN_HEAD) else "ElectraModel"
    if part == "finetuned":
        task = _task(reader, task)
        told = tasks_beside(reader).get(task, {})
        kind = _kind(reader, task, kind or told.get("kind"))
        head, architecture = heads.to_hugging_face(task, kind, _head(reader, task)), heads.ARCHITECTURES[kind]
        more = {huggingface.TASK_KEY: task, **_label_fields(task, kind, _head(reader, task), told)}
    filesystem.makedirs(folder)
    huggingface.write_model(folder, network, sizes, architecture, head, {**more, huggingface.STEP_KEY: reader.step})
    write_hugging_face_tokenizer(folder, source.companions, sizes.max_position_embeddings)
    card = model_card(reader, source.networks, source.companions.notes, architecture)
    if "range" in told:
        card += "\nThe output is 0 for {} and 1 for {}.\n".format(*told["range"])
    write_text(os.path.join(folder, "README.md"), card)
    say(f"{part}: {architecture}")


def _head(reader: Tensors, task: str) -> dict[str, np.ndarray]:
    prefix = f"task_specific/{task}/"
    return {name.removeprefix(prefix): reader[name] for name in reader.shapes
            if name.startswith(prefix) and is_weight(name)}  # fmt: skip


def _task(reader: Tensors, task: str | None) -> str:
    known = heads.tasks(reader.shapes)
    if not known:
        raise UserError(f"the checkpoint {reader.prefix} holds no fine-tuned head; choose another --part")
    if task is None and len(known) > 1 or task is not None and task not in known:
        raise UserError(f"name one of the checkpoint's tasks with --task: {', '.join(known)}")
    return task or known[0]


def _kind(reader: Tensors, task: str, kind: str | None) -> str:
    kind = kind or heads.KNOWN_TASKS.get(task)
    if kind is None and f"task_specific/{task}/dense_1/kernel" in reader:
        kind = "qa"
    if kind is None:
        raise UserError(
            f"no file tells what kind of task {task} is; pass --kind classification, regression, tagging or qa"
        )
    return kind


def _label_fields(task: str, kind: str, head: dict[str, np.ndarray], told: dict[str, Any]) -> dict[str, Any]:
    """What config.json says of a head's outputs.

    Args:
      told: what the source's folder says of the task.
    """
    if kind == "qa":
        return {}
    count = len(head["dense/bias"])
    names = told.get("labels") or heads.LABELS.get(task, ())
    if len(names) != count:
        names = [f"LABEL_{i}" for i in range(count)]
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    several = "multi_label" if told.get("multi_label") else "single_label"
    problem = {"classification": f"{several}_classification", "regression": "regression"}
    return labels | ({"problem_type": problem[kind]} if kind in problem else {})


def default_part(reader: Tensors) -> str:
    """What of a checkpoint is exported to Hugging Face unless told: what one uses it for."""
    if heads.tasks(reader.shapes):
        return "finetuned"
    main = has(reader, MAIN_HEAD, "token_predictions") or not has_generator(reader)
    return "discriminator" if main else "generator"
