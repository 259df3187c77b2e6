"""Hparams of pre-training: names, defaults, presets, and the checks that need no TensorFlow."""

import dataclasses
import math
import os
from dataclasses import dataclass, field
from typing import Any

from model.config import (
    DEBUG_NETWORK,
    DEFAULT_EMBEDDING_SIZE,
    MODEL_SIZES,
    TransformerConfig,
    generator_config,
    transformer_config,
)
from pretrain.variants import MASKING_UNITS, TOKEN_OBJECTIVES, WITHOUT_WEIGHTS, resolve
from util.errors import UserError
from util.hparams import check_hparams

# The papers' settings (ELECTRA, tables 6 and 7; Small++ as released). Passed hparams win over a preset.
_SMALL = {
    "model_size": "small",
    "generator_hidden_size": 0.25,
    "mask_prob": 0.15,
    "learning_rate": 5e-4,
    "num_warmup_steps": 10000,
    "train_batch_size": 128,
    "max_seq_length": 128,
    "num_train_steps": 1_000_000,
}
PRESETS: dict[str, dict[str, Any]] = {
    "small": _SMALL,
    "small_pp": {**_SMALL, "generator_hidden_size": 1.0, "max_seq_length": 512, "num_train_steps": 4_000_000},
    "base": {
        "model_size": "base",
        "generator_hidden_size": 1 / 3,
        "mask_prob": 0.15,
        "learning_rate": 2e-4,
        "num_warmup_steps": 10000,
        "train_batch_size": 256,
        "max_seq_length": 512,
        "num_train_steps": 766_000,
    },
    "large": {
        "model_size": "large",
        "generator_hidden_size": 0.25,
        "mask_prob": 0.25,
        "learning_rate": 2e-4,
        "num_warmup_steps": 10000,
        "train_batch_size": 2048,
        "max_seq_length": 512,
        "num_train_steps": 400_000,
    },
}
DEBUG_DEFAULTS = {
    "train_batch_size": 8,
    "num_train_steps": 20,
    "eval_batch_size": 4,
    "num_eval_steps": 2,
    "iterations_per_loop": 1,
}
IGNORED = ("results_pkl",)  # of the released code, accepted and not used: results are text and JSON
PRECISIONS = ("float32", "bfloat16", "float16")
DISTRIBUTIONS = ("auto", "default", "mirrored", "multi_worker", "tpu")


# fmt: off
@dataclass
class PretrainingConfig:
    """Every hparam of run_pretraining.py; the defaults are those of the released code."""

    model_name: str                            # names the model folder
    data_dir: str                              # holds the vocabulary, the TFRecords and the model folders

    # ---- what is trained -------------------------------------------------------------------------------------------
    preset: str | None = None                  # small, small_pp, base or large: the papers' settings
    debug: bool = False                        # a tiny network and 20 steps, to try things out
    do_train: bool = True                      # exactly one of do_train and do_eval
    do_eval: bool = False
    objective: str | None = None               # a variant by name (docs/objectives.md); null: the next two
    electra_objective: bool = True             # replaced-token detection; false: a BERT-style masked language model
    electric_objective: bool = False           # Electric: an energy-based cloze model
    generator: str | None = None               # small, tied, uniform, unigram, two_tower; null: the booleans below
    weight_sharing: str | None = None          # none, embeddings, all, gdes; null: the booleans below
    generator_steps: int | None = None         # two_stage: steps of the generator alone; null: half of all
    gen_weight: float = 1.0                    # weight of the generator's loss
    disc_weight: float = 50.0                  # weight of the main network's loss (lambda); 1 where it predicts tokens
    mask_prob: float = 0.15                    # share of the tokens that is masked
    masking_unit: str = "token"                # token, whole_word, or span (of 1 to 10 words, geometric)
    model_size: str = "small"                  # small, base or large
    model_hparam_overrides: dict = field(default_factory=dict)  # any field of TransformerConfig
    embedding_size: int | None = None          # null: the hidden size, 128 for small
    vocab_size: int = 30522                    # rows of the token table
    do_lower_case: bool = True                 # how the text was tokenized
    uniform_generator: bool = False            # replacements drawn uniformly from the vocabulary
    two_tower_generator: bool = False          # Electric's generator; forced true by electric_objective
    untied_generator_embeddings: bool = False  # the generator has tables of its own
    untied_generator: bool = True              # false: generator and discriminator share all weights
    generator_layers: float = 1.0              # fraction of the discriminator's layers
    generator_hidden_size: float = 0.25        # fraction of the discriminator's hidden size
    disallow_correct: bool = False             # the generator never samples the original token
    temperature: float = 1.0                   # of the generator's samples
    max_seq_length: int = 128                  # L; the shards' length
    learning_rate: float = 5e-4                # the highest
    lr_decay_power: float = 1.0                # polynomial decay to 0 at num_train_steps
    weight_decay_rate: float = 0.01
    num_warmup_steps: int = 10000
    num_train_steps: int = 1_000_000
    train_batch_size: int = 128                # global, over all devices
    eval_batch_size: int = 128                 # global
    seed: int = 42                             # of fresh weights, data order, masking, sampling, dropout
    released_quirks: bool = False              # the released code's numeric faults (masks drawn with replacement)
    init_checkpoint: str | None = None         # start from these weights, with fresh step and optimizer; any format
    init_generator_checkpoint: str | None = None  # the generator's weights from there

    # ---- how, where and how often ----------------------------------------------------------------------------------
    num_eval_steps: int | None = 100           # batches of an evaluation; null: the whole set
    eval_tfrecords: str | None = None          # held-out shards; do_eval takes pretrain_tfrecords where null
    eval_every_steps: int = 0                  # evaluate on eval_tfrecords while training; 0: never
    iterations_per_loop: int = 200             # the most steps between two looks at the clock and at signals
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int | None = 5        # 0 or null: all
    log_every_steps: int = 100                 # lines of metrics.jsonl and TensorBoard
    use_tensorboard: bool = True
    overwrite: bool = False                    # train anew although the model folder holds a run
    gradient_accumulation_steps: int = 1       # micro-batches a step and device
    recompute_layers: bool = False             # compute the blocks again in the backward pass: less memory, more time
    bfloat16_slots: bool = False               # keep Adam's moments in bfloat16: half their memory
    precision: str = "float32"                 # of activations: float32, bfloat16 or float16 (with loss scaling)
    use_xla: bool = False                      # compile the gradient computation
    distribution: str = "auto"                 # auto, default (one device), mirrored, multi_worker or tpu
    logical_cpus: int = 0                      # split the CPU into this many devices, to try mirrored without GPUs
    require_gpu: bool = False                  # an error where no GPU is visible
    gpu_memory_growth: bool = True             # take GPU memory as it is needed; false: all of it at the start
    deterministic: bool = True                 # same bits every time, some GPU speed given up
    skip_corrupt_records: bool = False         # go on without them, counted
    use_tpu: bool = False
    num_tpu_cores: int = 1                     # accepted; the TPU says itself how many it has
    tpu_job_name: str | None = None
    tpu_name: str | None = None
    tpu_zone: str | None = None
    gcp_project: str | None = None
    pretrain_tfrecords: str | None = None      # comma-separated globs; default: DATA_DIR/pretrain_tfrecords/...
    vocab_file: str | None = None              # default: DATA_DIR/vocab.txt
    model_dir: str | None = None               # default: DATA_DIR/models/MODEL_NAME
    results_txt: str | None = None             # default: MODEL_DIR/results/unsup_results.txt

    # fmt: on

    @property
    def max_predictions_per_seq(self) -> int:
        """N, the most masked positions of an example."""
        return int((self.mask_prob + 0.005) * self.max_seq_length)

    def discriminator_config(self) -> TransformerConfig:
        """Sizes of the main network."""
        return transformer_config(self.model_size, self.vocab_size, self.model_hparam_overrides,
                                  DEBUG_NETWORK if self.debug else None)

    def generator_config(self) -> TransformerConfig:
        """Sizes of the generator; the main network's where they share all weights or sizes or it is the only one."""
        config = self.discriminator_config()
        if self.objective in ("mlm", "two_stage") or self.generator == "tied":
            return config
        return generator_config(config, self.generator_layers, self.generator_hidden_size)

    @property
    def main_embedding_size(self) -> int:
        """E of the main network's tables."""
        return self.embedding_size or self.discriminator_config().hidden_size

    @property
    def generator_embedding_size(self) -> int:
        """E of the tables that the generator uses: its hidden size where they are its own, as released.

        Tables that are added to the main network's (gdes) or become them (two_stage) are as wide as those.
        """
        own = self.weight_sharing == "none" and self.objective != "two_stage"
        return self.generator_config().hidden_size if own else self.main_embedding_size

    def in_force(self) -> dict[str, Any]:
        """All hparams with their values, and what follows from them."""
        return {**dataclasses.asdict(self), "max_predictions_per_seq": self.max_predictions_per_seq}


def make_config(model_name: str, data_dir: str, hparams: dict[str, Any]) -> PretrainingConfig:
    """The config in force: defaults, then preset, then debug's, then the passed hparams; checked.

    Raises:
      UserError: for an unknown name, a wrong type or an impossible value.
    """
    passed = check_hparams(PretrainingConfig, hparams, IGNORED)
    preset = passed.get("preset")
    if preset is not None and preset not in PRESETS:
        raise UserError(f'hparam "preset" must be one of {", ".join(PRESETS)}; got "{preset}"')
    values = {**PRESETS.get(preset, {}), **(DEBUG_DEFAULTS if passed.get("debug") else {}), **passed, **resolve(passed)}
    if values.get("do_eval") and "do_train" not in values:
        values["do_train"] = False
    config = PretrainingConfig(**{"model_name": model_name, "data_dir": data_dir, **values})
    if config.model_size in MODEL_SIZES and config.embedding_size is None:
        config.embedding_size = DEFAULT_EMBEDDING_SIZE.get(config.model_size)
    if config.objective in TOKEN_OBJECTIVES and "disc_weight" not in passed:
        config.disc_weight = 1.0
    if config.objective == "two_stage" and config.generator_steps is None:
        config.generator_steps = config.num_train_steps // 2
    config.pretrain_tfrecords = config.pretrain_tfrecords or os.path.join(
        data_dir, "pretrain_tfrecords", "pretrain_data.tfrecord*")
    config.vocab_file = config.vocab_file or os.path.join(data_dir, "vocab.txt")
    config.model_dir = config.model_dir or os.path.join(data_dir, "models", config.model_name)
    config.results_txt = config.results_txt or os.path.join(config.model_dir, "results", "unsup_results.txt")
    return config


def validate(config: PretrainingConfig) -> None:
    """Raises a `UserError` for values that cannot work together."""
    _check_numbers(config)
    _check_choices(config)
    main = config.discriminator_config()
    main.validate("the model")
    if main.vocab_size != config.vocab_size:
        raise UserError(f"model_hparam_overrides has vocab_size {main.vocab_size}, the hparam vocab_size is "
                        f"{config.vocab_size}; pass the hparam alone")
    _check_variant(config)
    if config.generator not in (None, *WITHOUT_WEIGHTS):
        config.generator_config().validate("the generator (generator_layers, generator_hidden_size)",
                                           "generator_hidden_size")
    if config.max_seq_length > main.max_position_embeddings:
        raise UserError(f"max_seq_length {config.max_seq_length} is over the position table of "
                        f"{main.max_position_embeddings}; shorten it or raise max_position_embeddings in "
                        "model_hparam_overrides")
    if config.max_predictions_per_seq < 1:
        raise UserError(f"mask_prob {config.mask_prob} of max_seq_length {config.max_seq_length} masks nothing; "
                        "raise one of them")


_AT_LEAST = {
    "num_train_steps": 1, "train_batch_size": 1, "eval_batch_size": 1, "iterations_per_loop": 1, "num_warmup_steps": 0,
    "save_checkpoints_steps": 1, "log_every_steps": 1, "eval_every_steps": 0, "gradient_accumulation_steps": 1,
    "logical_cpus": 0, "vocab_size": 6, "max_seq_length": 5, "seed": 0, "num_eval_steps": 1, "embedding_size": 1,
    "keep_checkpoint_max": 0, "learning_rate": 0, "weight_decay_rate": 0, "lr_decay_power": 0, "gen_weight": 0,
    "disc_weight": 0, "num_tpu_cores": 1}
LARGEST = 2**31 - 1
_POSITIVE = ("temperature", "generator_layers", "generator_hidden_size")


def _check_numbers(config: PretrainingConfig) -> None:
    for name, value in dataclasses.asdict(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f'hparam "{name}" must be finite; got {value}')
        if isinstance(value, int) and value > LARGEST:
            raise UserError(f'hparam "{name}" must be at most {LARGEST}; got {value}')
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise UserError(f'hparam "{name}" must be at least {least}; got {value}')
    for name in _POSITIVE:
        if not getattr(config, name) > 0:
            raise UserError(f'hparam "{name}" must be above 0; got {getattr(config, name)}')
    if not 0 < config.mask_prob < 1:
        raise UserError(f'hparam "mask_prob" must be between 0 and 1; got {config.mask_prob}')
    if config.train_batch_size % config.gradient_accumulation_steps:
        raise UserError(f"train_batch_size {config.train_batch_size} is not divisible by gradient_accumulation_steps "
                        f"{config.gradient_accumulation_steps}")


def _check_choices(config: PretrainingConfig) -> None:
    if config.model_name in ("", ".", "..") or os.path.basename(config.model_name) != config.model_name:
        raise UserError(f'--model-name must be the name of one folder below {config.data_dir}/models, without "/"; got '
                        f'"{config.model_name}"')
    if config.do_train == config.do_eval:
        raise UserError("exactly one of do_train and do_eval must be true; got "
                        f"do_train {config.do_train}, do_eval {config.do_eval}")
    for name, choices in (("precision", PRECISIONS), ("distribution", DISTRIBUTIONS),
                          ("masking_unit", MASKING_UNITS)):
        if getattr(config, name) not in choices:
            raise UserError(f'hparam "{name}" must be one of {", ".join(choices)}; got "{getattr(config, name)}"')
    if config.use_tpu and config.distribution not in ("auto", "tpu"):
        raise UserError(f'use_tpu true contradicts distribution "{config.distribution}"')


def _check_variant(config: PretrainingConfig) -> None:
    """What an objective, a generator and a way of sharing need beyond what `resolve` has checked."""
    if config.uniform_generator and config.objective == "mlm":
        raise UserError("uniform_generator needs electra_objective")
    if config.init_generator_checkpoint and config.generator != "small":
        raise UserError("init_generator_checkpoint needs a generator with weights of its own (generator small); "
                        "init_checkpoint sets the main network")
    if config.masking_unit != "token" and config.released_quirks:
        raise UserError(f'masking_unit "{config.masking_unit}" contradicts released_quirks, which draws single tokens '
                        "with replacement; choose one")
    if config.objective == "adversarial" and config.generator not in ("small", "tied"):
        raise UserError(f'objective "adversarial" trains its generator, which generator "{config.generator}" is not '
                        "made for; take small or tied")
    if config.objective == "two_stage":
        _check_two_stage(config)
    elif config.generator_steps is not None:
        raise UserError(f'generator_steps needs objective "two_stage"; the objective is "{config.objective}"')


def _check_two_stage(config: PretrainingConfig) -> None:
    if config.generator != "small":
        raise UserError('objective "two_stage" starts the discriminator from a generator with weights of its own; '
                        f'take generator "small" instead of "{config.generator}"')
    if config.generator_layers != 1 or config.generator_hidden_size != 1:
        raise UserError('objective "two_stage" starts the discriminator from the generator, so both must be of one '
                        f"size; set generator_layers (now {config.generator_layers:g}) and generator_hidden_size (now "
                        f"{config.generator_hidden_size:g}) to 1")
    if not 1 <= config.generator_steps < config.num_train_steps:
        raise UserError(f"generator_steps must be at least 1 and below num_train_steps {config.num_train_steps}; got "
                        f"{config.generator_steps}")
