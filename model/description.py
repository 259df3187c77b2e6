"""What a checkpoint holds, from its shapes and from the JSON that lies beside it. Needs no TensorFlow."""

import dataclasses
import os
from collections import Counter
from typing import Any

import numpy as np

from model.config import DEFAULT_EMBEDDING_SIZE, MODEL_SIZES, TransformerConfig
from model.disentangled import DIFFERENCE, added_up
from model.heads import KNOWN_TASKS, tasks
from model.parts import GENERATOR_HEAD, MAIN_HEAD, TOWERS, generator_of, has_generator, tower_of
from model.readers import SLOTS, STATE, STEP, Tensors, View, has, is_weight, kept, under
from util import filesystem
from util.errors import UserError
from util.files import read_object

NETWORKS, HPARAMS, TASKS = "transformer_configs.json", "hparams.json", "tasks.json"
_HEADS = (MAIN_HEAD, GENERATOR_HEAD, "cloze_predictions", "token_predictions", "copy_gate", "baseline_predictions")
_FIELDS = {field.name: field.type for field in dataclasses.fields(TransformerConfig)}


def main_of(reader: Tensors) -> View:
    """The main network alone, without heads."""
    whole = added_up(reader)
    return View(kept(whole, under(whole, "electra")))


def fields_beside(reader: Tensors, network: str = "discriminator") -> dict[str, Any]:
    """What the files beside a checkpoint say of a network; see `fields_of_folder`."""
    return fields_of_folder(os.path.dirname(reader.prefix), network)


def fields_of_folder(folder: str, network: str) -> dict[str, Any]:
    """What the JSON in a checkpoint's folder says of a network: some fields of `TransformerConfig`.

    Args:
      network: "discriminator" (the main one) or "generator". A Hugging Face folder holds one network, either.

    Raises:
      UserError: the file holds something else.
    """
    for name in (NETWORKS, HPARAMS, "bert_config.json", "config.json"):
        if filesystem.exists(path := os.path.join(folder, name)):
            break
    else:
        return {}
    found = read_object(path)
    if name == NETWORKS:
        found = found.get(network) or {}
    elif network == "generator" and found.get("model_type") is None:
        found = {}  # released configs tell of the main network alone
    found = found.get("hparams", found) if isinstance(found, dict) else found
    overrides = found.get("model_hparam_overrides", {}) if isinstance(found, dict) else None
    if not isinstance(overrides, dict):
        raise UserError(f"{path} is damaged: it does not tell the sizes of a network; copy it again or remove it")
    found = {**found, **overrides}
    fields = {name: found[name] for name in _FIELDS if found.get(name) is not None}
    for name, value in fields.items():
        if not isinstance(value, (int, _FIELDS[name])) or isinstance(value, bool):
            raise UserError(f'{path} is damaged: "{name}" must be of type {_FIELDS[name].__name__}, got {value!r}')
    return fields


def tasks_of_folder(folder: str) -> dict[str, dict[str, Any]]:
    """What a fine-tuned model's folder tells of its heads, by task: "kind", "labels" and more; nothing without a note.

    Raises:
      UserError: the note is damaged.
    """
    path = os.path.join(folder, TASKS)
    if not filesystem.exists(path):
        return {}
    found = read_object(path, "tasks")["tasks"]
    if not isinstance(found, dict) or not all(isinstance(task, dict) and "kind" in task for task in found.values()):
        raise UserError(f'{path} is damaged: "tasks" must hold an object with a "kind" for each task; copy it again')
    return found


def tasks_beside(reader: Tensors) -> dict[str, dict[str, Any]]:
    """What the files beside a checkpoint say of its heads; see `tasks_of_folder`."""
    return tasks_of_folder(os.path.dirname(reader.prefix))


def check_heads(checkpoint: str, ours: TransformerConfig, network: str = "discriminator") -> None:
    """No shape tells the number of attention heads, so that another one would go unnoticed; files beside may tell."""
    theirs = fields_of_folder(os.path.dirname(checkpoint), network)
    count = theirs.get("num_attention_heads", ours.num_attention_heads)
    if theirs.get("hidden_size", ours.hidden_size) == ours.hidden_size and count != ours.num_attention_heads:
        what = "num_attention_heads in model_hparam_overrides"
        raise UserError(
            f"the {network} of the checkpoint {checkpoint} has {count} attention heads, this run's has "
            f"{ours.num_attention_heads}; "
            + (f"set {what} to {count}" if network == "discriminator" else "a generator has hidden size / 64")
        )


def sizes_of(network: Tensors, beside: dict[str, Any], heads: int | None = None) -> TransformerConfig:
    """The sizes of one network, called electra/ in `network`.

    Args:
      beside: fields known from elsewhere; shapes win.
      heads: num_attention_heads, which no shape tells; default: `beside`'s, else max(1, hidden // 64).

    Raises:
      UserError: the shapes are no encoder's.
    """
    shapes, layer = network.shapes, "electra/encoder/layer_0"
    tables = [f"electra/embeddings/{name}_embeddings" for name in ("word", "position", "token_type")]
    if missing := [name for name in (*tables, f"{layer}/intermediate/dense/kernel") if name not in shapes]:
        raise UserError(f"the checkpoint {network.prefix} holds no whole encoder: {missing[0]} is missing")
    hidden, wide = shapes[f"{layer}/intermediate/dense/kernel"]
    layers = {name.split("/")[2] for name in shapes if name.startswith("electra/encoder/layer_")}
    config = TransformerConfig(
        **{
            **beside,
            **dict(zip(("vocab_size", "max_position_embeddings", "type_vocab_size"), (shapes[t][0] for t in tables))),
            "hidden_size": hidden,
            "intermediate_size": wide,
            "num_hidden_layers": len(layers),
            "num_attention_heads": heads or beside.get("num_attention_heads") or max(1, hidden // 64),
            "hidden_act": "gelu",
        }
    )
    config.validate(f"the checkpoint {network.prefix}", "--num-attention-heads")
    return config


def embedding_size(network: Tensors) -> int:
    """E of a network called electra/."""
    return network.shapes["electra/embeddings/word_embeddings"][1]


def networks(reader: Tensors, beside: dict[str, dict] | None = None, heads: int | None = None) -> dict[str, Any]:
    """The sizes of both networks, as a model folder's transformer_configs.json holds them; None where there is none.

    A generator that shares all weights has the main network's sizes.

    Args:
      beside: what is known of the "discriminator" and the "generator" from elsewhere; default: `fields_beside`.
      heads: num_attention_heads of the main network, where nothing tells.
    """
    beside = beside or {network: fields_beside(reader, network) for network in ("discriminator", "generator")}
    found: dict[str, Any] = {"discriminator": None, "generator": None, "embedding_size": None}
    if has(reader, "electra/encoder"):
        main = main_of(reader)
        found["discriminator"] = dataclasses.asdict(sizes_of(main, beside["discriminator"], heads))
        found["embedding_size"] = embedding_size(main)
    if has(reader, "generator/encoder"):
        alone = generator_of(reader, "electra")
        found["generator"] = dataclasses.asdict(sizes_of(alone, beside["generator"]))
        found["embedding_size"] = found["embedding_size"] or embedding_size(alone)
    elif has(reader, f"{TOWERS[0]}/encoder"):
        found["generator"] = dataclasses.asdict(sizes_of(tower_of(reader), beside["generator"]))
    elif has_generator(reader):
        found["generator"] = found["discriminator"]
    return found


def check_generator(found: dict[str, Any], path: str) -> None:
    """Raises a `UserError` for a generator that a pre-training run cannot have: its heads and FFN follow its width."""
    generator = found["generator"]
    if generator is None or generator == found["discriminator"]:
        return
    hidden = generator["hidden_size"]
    for name, rule in (("num_attention_heads", max(1, hidden // 64)), ("intermediate_size", 4 * hidden)):
        if generator[name] != rule:
            raise UserError(
                f"{path} cannot become a generator: {name} is {generator[name]}, that of a generator with hidden size "
                f"{hidden} is always {rule}; it can be the main network: --part discriminator"
            )


def hparams(reader: Tensors, found: dict[str, Any]) -> dict[str, Any]:
    """The hparams of run_pretraining.py that make the networks of a checkpoint, from what `networks` gave."""
    main, generator = found["discriminator"], found["generator"]
    if main is None:
        return {}
    sizes = ("hidden_size", "num_hidden_layers")
    size = next((name for name, preset in MODEL_SIZES.items() if all(main[s] == preset[s] for s in sizes)), "small")
    usual = dataclasses.asdict(TransformerConfig(main["vocab_size"], *[0] * 4)) | MODEL_SIZES[size]
    usual |= {"num_attention_heads": max(1, main["hidden_size"] // 64), "intermediate_size": 4 * main["hidden_size"]}
    values = {
        "model_size": size,
        "vocab_size": main["vocab_size"],
        "embedding_size": found["embedding_size"],
        "model_hparam_overrides": {name: value for name, value in main.items() if value != usual[name]},
        "electra_objective": has(reader, MAIN_HEAD) or has(reader, "generator") or not has_generator(reader),
        **_variant(reader),
    }
    if found["embedding_size"] == DEFAULT_EMBEDDING_SIZE.get(size, main["hidden_size"]):
        del values["embedding_size"]
    if generator and has(reader, "generator", *TOWERS):
        values["generator_layers"] = generator["num_hidden_layers"] / main["num_hidden_layers"]
        values["generator_hidden_size"] = generator["hidden_size"] / main["hidden_size"]
        own = has(reader, "generator/embeddings", f"{TOWERS[0]}/embeddings")
        values["untied_generator_embeddings"] = own and DIFFERENCE not in reader
    elif generator and values["electra_objective"]:
        values["untied_generator"] = False
    return values


def _variant(reader: Tensors) -> dict[str, Any]:
    """The hparams that tell which of the papers' variants has these parts."""
    if has(reader, *TOWERS):
        return {"electra_objective": False, "electric_objective": True}
    values: dict[str, Any] = {"weight_sharing": "gdes"} if DIFFERENCE in reader else {}
    if has(reader, "token_predictions"):
        objective = "all_tokens_mlm" if has(reader, "copy_gate") else "replace_mlm"
        return {**values, "electra_objective": False, "objective": objective}
    if has(reader, "baseline_predictions"):
        return {**values, "objective": "adversarial"}
    if not values and has(reader, "generator/embeddings") and has(reader, "generator/embeddings_project"):
        return {"objective": "two_stage"}
    return values


def describe(reader: Tensors, heads: int | None = None, values: bool = True) -> dict[str, Any]:
    """Everything that can be said of a checkpoint.

    Args:
      heads: num_attention_heads of the main network, where nothing beside the checkpoint tells.
      values: read the tensors too, to find those with NaN or infinite values.
    """
    weights = [name for name in reader.shapes if is_weight(name)]
    found = networks(reader, heads=heads)
    folder = os.path.dirname(reader.prefix)
    own = any(name.startswith(STATE) for name in reader.shapes) or all(
        filesystem.exists(os.path.join(folder, name)) for name in (HPARAMS, NETWORKS)
    )
    told = heads or found["discriminator"] is None or "num_attention_heads" in fields_beside(reader)
    return {
        "path": reader.prefix,
        "format": "project" if own and reader.kind == "tf1" else reader.kind,
        "step": reader.step if STEP in reader or reader.step else None,
        "parameters": sum(int(np.prod(reader.shapes[name])) for name in weights),
        "variables": len(weights),
        **found,
        "attention_heads_from": "known" if told else "assumed: hidden size / 64, no shape tells",
        "generator_kind": _generator_kind(reader),
        "heads": [head for head in _HEADS if has(reader, head)],
        "tasks": {task: _task(reader, task) for task in tasks(reader.shapes)},
        "slots": dict(Counter(name.split("/")[-1] for name in reader.shapes if name.split("/")[-1] in SLOTS)),
        "training_state": sorted(name for name in reader.shapes if name.startswith(STATE)),
        "left_out": reader.left_out,
        "not_finite": [n for n in weights if not np.isfinite(reader[n]).all()] if values else None,
        "hparams": hparams(reader, found),
    }


def _generator_kind(reader: Tensors) -> str | None:
    if has(reader, *TOWERS):
        return "two towers (Electric)"
    if DIFFERENCE in reader:
        return "own embeddings, which the discriminator adds a difference to (gdes)"
    if has(reader, "generator"):
        return "own embeddings" if has(reader, "generator/embeddings") else "embeddings tied to the discriminator's"
    return "shares all weights with the main network" if has_generator(reader) else None


def _task(reader: Tensors, task: str) -> dict[str, Any]:
    head = {name.removeprefix(f"task_specific/{task}/"): reader.shapes[name] for name in reader.shapes
            if name.startswith(f"task_specific/{task}/") and is_weight(name)}  # fmt: skip
    kind = tasks_beside(reader).get(task, {}).get("kind") or KNOWN_TASKS.get(task)
    if kind is None and "dense_1/kernel" in head:
        kind = "qa"
    elif kind is None and head.get("dense/kernel", [0, 0])[1] == 1:
        kind = "regression"
    return {"kind": kind, "shapes": head}
