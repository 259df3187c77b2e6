"""The model folder: what a run leaves in it, and whether another run may go on from there. Needs no TensorFlow."""

import dataclasses
import os
import shutil
from typing import Any

from configure_pretraining import PretrainingConfig
from model.tokenization import Vocabulary
from pretrain.shards import ShardList
from util.errors import UserError
from util.files import read_json, write_json, write_text
from util.log import say

HPARAMS, NETWORKS, DATA, TOKENIZER = "hparams.json", "transformer_configs.json", "data.json", "tokenizer_config.json"
DEBUG_MARKER = "debug_run"

# hparams by what a change of theirs means for a run that is resumed (SPEC of the networks apart, which are compared
# by the sizes that follow from them)
OBJECTIVE = (
    "electra_objective",
    "electric_objective",
    "uniform_generator",
    "untied_generator",
    "untied_generator_embeddings",
    "two_tower_generator",
    "gen_weight",
    "disc_weight",
    "mask_prob",
    "disallow_correct",
    "temperature",
    "released_quirks",
)
DATA_ORDER = (
    "pretrain_tfrecords",
    "train_batch_size",
    "max_seq_length",
    "seed",
    "do_lower_case",
    "skip_corrupt_records",
)
IRRELEVANT = (
    "model_name",
    "data_dir",
    "model_dir",
    "vocab_file",
    "results_txt",
    "do_train",
    "do_eval",
    "overwrite",
    "preset",
    "model_size",
    "model_hparam_overrides",
    "embedding_size",
    "vocab_size",
    "generator_layers",
    "generator_hidden_size",
    "init_checkpoint",
)


def networks(config: PretrainingConfig) -> dict[str, Any]:
    """The sizes of both networks."""
    return {
        "discriminator": dataclasses.asdict(config.discriminator_config()),
        "generator": dataclasses.asdict(config.generator_config()),
        "embedding_size": config.embedding_size or config.discriminator_config().hidden_size,
    }


def has_checkpoint(folder: str) -> bool:
    """Whether a folder holds a checkpoint of any origin."""
    return os.path.isdir(folder) and any(name.endswith(".index") for name in os.listdir(folder))


def prepare(config: PretrainingConfig, vocab: Vocabulary, shards: ShardList) -> None:
    """Makes the folder ready for training: checks it against an earlier run's hparams, then writes those in force.

    Raises:
      UserError: the networks, the objective or the vocabulary differ from the earlier run's.
    """
    folder = config.model_dir
    if config.debug:
        _start_debug_afresh(folder)
    elif config.overwrite:
        empty(folder)
    if os.path.exists(os.path.join(folder, HPARAMS)) and has_checkpoint(folder):
        check_resumed(config, vocab)
    os.makedirs(folder, exist_ok=True)
    kept_vocab = os.path.join(folder, "vocab.txt")
    if os.path.abspath(vocab.path) != os.path.abspath(kept_vocab):
        write_text(kept_vocab, "\n".join(vocab.tokens) + "\n")
    strip = {manifest["strip_accents"] for manifest in shards.manifests.values()}
    write_json(
        os.path.join(folder, TOKENIZER),
        {
            "do_lower_case": config.do_lower_case,
            "strip_accents": strip.pop() if len(strip) == 1 else config.do_lower_case,
        },
    )
    write_json(os.path.join(folder, NETWORKS), networks(config))
    write_json(os.path.join(folder, DATA), {"vocab_sha256": vocab.sha256, **shards.description()})
    write_json(os.path.join(folder, HPARAMS), config.in_force())


def check_resumed(config: PretrainingConfig, vocab: Vocabulary) -> None:
    """Compares the hparams with those of the folder's run: errors for its shape, messages for the rest."""
    folder = config.model_dir
    before, now = read_json(os.path.join(folder, HPARAMS)), config.in_force()
    changed = [name for name in OBJECTIVE if name in before and before[name] != now[name]]
    differences = [f"{name}: {before[name]} there, {now[name]} here" for name in changed]
    differences += _network_differences(read_json(os.path.join(folder, NETWORKS)), networks(config))
    if differences:
        raise UserError(
            f"the model folder {folder} holds a run with other networks or another objective:\n  "
            + "\n  ".join(differences)
            + "\nPass the same hparams, choose another --model-name, or set "
            "overwrite true to train anew"
        )
    vocab_before = read_json(os.path.join(folder, DATA)).get("vocab_sha256")
    if vocab_before != vocab.sha256:
        raise UserError(
            f"the model folder {folder} was trained with another vocabulary ({folder}/vocab.txt) than "
            f"{vocab.path}; pass vocab_file, choose another --model-name, or set overwrite true"
        )
    changed = [name for name in before if name in now and before[name] != now[name] and name not in IRRELEVANT]
    order = [name for name in changed if name in DATA_ORDER]
    others = [name for name in changed if name not in DATA_ORDER and name != "max_predictions_per_seq"]
    if order:
        say("note: the order of the data differs from here on, changed: " + _changes(order, before, now))
    if others:
        say("note: changed since the folder's last run: " + _changes(others, before, now))


def _changes(names: list[str], before: dict, now: dict) -> str:
    return ", ".join(f"{name} {before[name]} -> {now[name]}" for name in names)


def _network_differences(before: dict, now: dict) -> list[str]:
    if before == now:
        return []
    lines = (
        [f"embedding_size: {before['embedding_size']} there, {now['embedding_size']} here"]
        if (before["embedding_size"] != now["embedding_size"])
        else []
    )
    for network in ("discriminator", "generator"):
        for name, value in now[network].items():
            if before[network].get(name) != value:
                lines.append(f"{network} {name}: {before[network].get(name)} there, {value} here")
    return lines


def saved_shape(folder: str) -> dict[str, Any]:
    """The hparams that an evaluation takes over from the folder's run where they are not passed."""
    path = os.path.join(folder, HPARAMS)
    if not os.path.exists(path):
        return {}
    names = {
        *OBJECTIVE,
        "model_size",
        "model_hparam_overrides",
        "embedding_size",
        "vocab_size",
        "generator_layers",
        "generator_hidden_size",
        "max_seq_length",
        "do_lower_case",
    }
    return {name: value for name, value in read_json(path).items() if name in names}


def empty(folder: str) -> None:
    """Removes what a run writes into a model folder, and nothing else; the user asked for it."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if name in ("tensorboard", ".saving"):
            shutil.rmtree(path)
        elif name in ("checkpoint", "metrics.jsonl", HPARAMS, NETWORKS, DATA, TOKENIZER) or name.startswith(
            "model.ckpt-"
        ):
            os.remove(path)


def _start_debug_afresh(folder: str) -> None:
    marker = os.path.join(folder, DEBUG_MARKER)
    if has_checkpoint(folder) and not os.path.exists(marker):
        raise UserError(
            f"debug starts a model folder afresh, but {folder} holds a run that was not a debug run; choose "
            "another --model-name or remove the folder yourself"
        )
    empty(folder)
    write_text(marker, "made by a run with debug true, which starts this folder afresh\n")
