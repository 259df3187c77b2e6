"""The model folder: what a run leaves in it, and whether another run may go on from there. Needs no TensorFlow."""

import dataclasses
import os
from typing import Any, NamedTuple

from configure_pretraining import PretrainingConfig
from model.checkpoint_files import PREFIX, SAVING, find, step_in_name
from model.description import check_heads
from model.tokenization import Vocabulary, load_vocab
from pretrain.shards import ShardList
from util import filesystem
from util.distribution import DEVICES
from util.errors import UserError
from util.files import read_json, write_json, write_text, writing
from util.log import say

HPARAMS, NETWORKS, DATA, TOKENIZER = "hparams.json", "transformer_configs.json", "data.json", "tokenizer_config.json"
DEBUG_MARKER = "debug_run"

# hparams by what a change of theirs means for a run that is resumed (sizes of the networks apart: they are compared
# after heads, FFN and generator have followed from them)
OBJECTIVE = (
    "objective",
    "generator",
    "weight_sharing",
    "generator_steps",
    "masking_unit",
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
SIZES = (
    "model_size",
    "model_hparam_overrides",
    "embedding_size",
    "vocab_size",
    "generator_layers",
    "generator_hidden_size",
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
    *SIZES,
    "init_checkpoint",
    "init_generator_checkpoint",
)


def networks(config: PretrainingConfig) -> dict[str, Any]:
    """The sizes of both networks."""
    return {
        "discriminator": dataclasses.asdict(config.discriminator_config()),
        "generator": dataclasses.asdict(config.generator_config()),
        "embedding_size": config.embedding_size or config.discriminator_config().hidden_size,
    }


def has_run(folder: str) -> bool:
    """Whether a folder holds what a run of this project left, a checkpoint included."""
    notes = all(filesystem.exists(os.path.join(folder, name)) for name in (HPARAMS, NETWORKS, DATA))
    return notes and find(folder) is not None


def starts_afresh(config: PretrainingConfig) -> bool:
    """Whether training takes no notice of a checkpoint in the model folder."""
    return config.do_train and (config.debug or config.overwrite)


class Start(NamedTuple):
    """Where the weights come from."""

    checkpoint: str | None  # its prefix; None: fresh weights
    resumed: bool  # it is the model folder's, so that step and optimizer go on too
    generator: str | None = None  # another one's prefix, of the generator alone


def find_start(config: PretrainingConfig) -> Start:
    """The checkpoint to start from: the model folder's, else init_checkpoint and init_generator_checkpoint, else none.

    Raises:
      UserError: an init checkpoint holds none or is of a network with other attention heads, or there is none to
        evaluate.
    """
    if filesystem.isdir(config.model_dir) and not starts_afresh(config):
        if prefix := find(config.model_dir):
            if not has_run(config.model_dir):
                check_heads(prefix, config.discriminator_config())
            return Start(prefix, True)
    main, generator = (_find_init(config, name) for name in ("init_checkpoint", "init_generator_checkpoint"))
    if main:
        check_heads(main, config.discriminator_config())
    if generator:
        check_heads(generator, config.generator_config(), "generator")
    if config.do_eval and not main:
        raise UserError(
            f"do_eval: the model folder {config.model_dir} holds no checkpoint; train it first, or set init_checkpoint"
        )
    return Start(main, False, generator)


def _find_init(config: PretrainingConfig, hparam: str) -> str | None:
    path = getattr(config, hparam)
    prefix = find(path) if path else None
    if path and prefix is None:
        raise UserError(f"{hparam} {path} is a folder without a checkpoint")
    return prefix


def check(config: PretrainingConfig, vocab: Vocabulary, shards: ShardList) -> None:
    """Whether this run may train in the folder, compared with what lies there; changes nothing.

    The position table of an earlier run sets `max_position_embeddings` where that is not passed.

    Raises:
      UserError: the networks, the objective or the vocabulary differ from the earlier run's, or debug would empty a
        folder that no debug run made.
    """
    folder = config.model_dir
    if config.debug:
        _check_debug(folder)
    elif config.overwrite or not filesystem.isdir(folder):
        return
    elif has_run(folder):
        rows = read_json(os.path.join(folder, NETWORKS))["discriminator"]["max_position_embeddings"]
        config.model_hparam_overrides = {"max_position_embeddings": rows, **config.model_hparam_overrides}
        check_resumed(config, vocab, shards)
    elif find(folder):
        _check_foreign(folder, vocab)


def _check_foreign(folder: str, vocab: Vocabulary) -> None:
    path = os.path.join(folder, "vocab.txt")
    if filesystem.exists(path) and load_vocab(path).tokens != vocab.tokens:
        raise UserError(
            f"the vocabulary {path} beside the checkpoint is not {vocab.path}; set vocab_file to the one that the "
            "checkpoint and the shards were made with"
        )


def _check_debug(folder: str) -> None:
    if filesystem.exists(os.path.join(folder, DEBUG_MARKER)) or not filesystem.isdir(folder):
        return
    if filesystem.exists(os.path.join(folder, HPARAMS)) or find(folder):
        raise UserError(
            f"debug starts a model folder afresh, but {folder} holds a run that was not a debug run; choose "
            "another --model-name or remove the folder yourself"
        )


def prepare(config: PretrainingConfig, vocab: Vocabulary, shards: ShardList) -> None:
    """Empties the folder where that is asked for, then writes what describes the run that begins.

    Raises:
      UserError: the disk is full or the folder cannot be written.
    """
    folder = config.model_dir
    marker, kept_vocab = os.path.join(folder, DEBUG_MARKER), os.path.join(folder, "vocab.txt")
    strip = {manifest["strip_accents"] for manifest in shards.manifests.values()}
    tokenizer = {
        "do_lower_case": config.do_lower_case,
        "strip_accents": strip.pop() if len(strip) == 1 else config.do_lower_case,
    }
    with writing(f"in the model folder {folder}"):
        filesystem.makedirs(folder)
        if starts_afresh(config):
            empty(folder)
        if config.debug:
            write_text(marker, "made by a run with debug true, which starts this folder afresh\n")
        elif filesystem.exists(marker):
            filesystem.remove(marker)
        if filesystem.abspath(vocab.path) != filesystem.abspath(kept_vocab):
            write_text(kept_vocab, "\n".join(vocab.tokens) + "\n")
        write_json(os.path.join(folder, TOKENIZER), tokenizer)
        write_json(os.path.join(folder, NETWORKS), networks(config))
        write_json(os.path.join(folder, DATA), {"vocab_sha256": vocab.sha256, **shards.description()})
        write_json(os.path.join(folder, HPARAMS), config.in_force())


def finished(config: PretrainingConfig) -> bool:
    """Whether the folder's run has reached num_train_steps; says so."""
    if starts_afresh(config) or not has_run(config.model_dir):
        return False
    step = step_in_name(find(config.model_dir))
    if step < config.num_train_steps:
        return False
    say(
        f"nothing to do: the model in {config.model_dir} was trained for {step} steps, num_train_steps is "
        f"{config.num_train_steps}. Its metrics are in {config.model_dir}/metrics.jsonl; set num_train_steps higher "
        "to go on, or overwrite true to train anew"
    )
    return True


def how_to_go_on(config: PretrainingConfig) -> str:
    """What to do after a worker was lost."""
    last = find(config.model_dir) if filesystem.isdir(config.model_dir) else None
    return f"The last checkpoint is {last or 'none'}; run the same command on all hosts to go on"


def check_steps(config: PretrainingConfig, step: int) -> None:
    """A `UserError` where num_train_steps does not go beyond the step of a checkpoint that came from elsewhere.

    To train n more steps from step s, from rate r down to 0: T = s + n steps and the learning rate r * (T / n) ** p,
    since the rate at s is learning_rate * (1 - s / T) ** p with p = lr_decay_power.
    """
    if step < config.num_train_steps:
        return
    more, rate = max(1, step // 10), 1e-4
    steps = step + more
    power = "" if config.lr_decay_power == 1 else f" ** {config.lr_decay_power:g}"
    raise UserError(
        f"the checkpoint in {config.model_dir} is at step {step}, so num_train_steps {config.num_train_steps} leaves "
        f"nothing to train. For n more steps from rate r down to 0 set num_train_steps to {step} + n and learning_rate "
        f"to r * (({step} + n) / n){power}: e.g. for {more} more from {rate:g}, num_train_steps {steps} and "
        f"learning_rate {rate * (steps / more) ** config.lr_decay_power:.6g}. Or name it as init_checkpoint of a new "
        "--model-name: the weights are kept, the step starts at 0"
    )


def check_resumed(config: PretrainingConfig, vocab: Vocabulary, shards: ShardList) -> None:
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
    data_before, data_now = read_json(os.path.join(folder, DATA)), shards.description()
    vocab_before = data_before.get("vocab_sha256")
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
    if not order and data_before.get("files_sha256") != data_now["files_sha256"]:
        say(
            "note: the order of the data differs from here on: these are other shards than before ("
            f"{data_before.get('shards')} with {data_before.get('examples')} examples then, {data_now['shards']} with "
            f"{data_now['examples']} now)"
        )
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
    if not filesystem.exists(path):
        return {}
    names = {
        *OBJECTIVE,
        *SIZES,
        "max_seq_length",
        "do_lower_case",
    }
    return {name: value for name, value in read_json(path).items() if name in names}


def empty(folder: str) -> None:
    """Removes what a run writes into a model folder, and nothing else; the user asked for it."""
    for name in filesystem.listdir(folder) if filesystem.isdir(folder) else ():
        path = os.path.join(folder, name)
        if name in ("tensorboard", SAVING):
            filesystem.rmtree(path)
        elif name in ("checkpoint", "metrics.jsonl", DEVICES, HPARAMS, NETWORKS, DATA, TOKENIZER, DEBUG_MARKER):
            filesystem.remove(path)
        elif name.startswith(PREFIX + "-"):
            filesystem.remove(path)
