"""Hparams of fine-tuning: names, defaults by task and size, and the checks that need no TensorFlow."""

import dataclasses
import math
import os
from dataclasses import dataclass, field
from typing import Any

from configure_pretraining import DISTRIBUTIONS, LARGEST, PRECISIONS
from model.config import DEBUG_NETWORK, DEFAULT_EMBEDDING_SIZE, MODEL_SIZES, TransformerConfig, transformer_config
from util import filesystem
from util.errors import UserError
from util.hparams import check_hparams

QA_TASKS = ("squad", "squadv1", "newsqa", "naturalqs", "triviaqa", "searchqa")
IGNORED = ("results_pkl", "write_distill_outputs")  # of the released code, accepted and not used
DEBUG_DEFAULTS = {
    "train_batch_size": 32,
    "num_train_epochs": 3.0,
    "num_trials": 1,
    "iterations_per_loop": 1,
    "use_tfrecords_if_existing": False,
    "log_examples": True,
}


# fmt: off
@dataclass
class FinetuningConfig:
    """Every hparam of run_finetuning.py; the defaults are those of the released code."""

    model_name: str                            # names the pre-trained model's folder
    data_dir: str                              # holds the vocabulary, finetuning_data/ and the model folders

    # ---- what is trained -------------------------------------------------------------------------------------------
    task_names: list = field(default_factory=lambda: ["chunk"])  # several train one encoder together
    custom_tasks: list = field(default_factory=list)  # tasks on one's own data: docs/custom_tasks.md
    debug: bool = False                        # a tiny network on the first examples, to try things out
    do_train: bool = True
    do_eval: bool = True                       # on the dev split
    do_predict: bool = False                   # on predict_split, which needs no labels
    predict_split: str = "test"
    num_trials: int = 1                        # runs with seeds seed, seed + 1, ...; below 0: for ever
    seed: int = 42                             # of fresh weights, data order and dropout
    model_size: str = "small"                  # small, base or large
    model_hparam_overrides: dict = field(default_factory=dict)  # any field of TransformerConfig
    embedding_size: int | None = None          # null: the hidden size, 128 for small
    vocab_size: int = 30522                    # rows of the token table
    do_lower_case: bool = True
    strip_accents: bool | None = None          # null: as in pre-training, else whenever lower-casing
    init_checkpoint: str | None = None         # default: the pre-trained model's folder; null passed: random weights
    learning_rate: float = 1e-4                # the highest; 5e-5 for large
    weight_decay_rate: float = 0.01
    layerwise_lr_decay: float = 0.8            # rate of a layer over that of the one above; 0.9 for large; <= 0: off
    lr_decay_power: float = 1.0                # polynomial decay to 0 at the last step
    num_train_epochs: float = 3.0              # 10 for rte and sts, 2 for QA
    warmup_proportion: float = 0.1             # share of the steps with a rising rate
    max_seq_length: int = 128                  # 512 for QA, 256 for chunk
    train_batch_size: int = 32                 # global, over all devices
    eval_batch_size: int = 32
    predict_batch_size: int = 32
    freeze_layers: int | None = None           # embeddings and the first n layers stay as they are; 0: the former alone
    double_unordered: bool = True              # mrpc and sts: both orders in training
    keep_best: str | None = None               # keep the weights with the best dev metric of this name: see README
    eval_every_steps: int = 0                  # dev metrics while training; 0: every epoch where keep_best is set
    early_stopping_patience: int = 0           # end after this many evaluations without a better one; 0: never
    released_quirks: bool = False              # the released code's numeric faults

    # ---- question answering ----------------------------------------------------------------------------------------
    max_query_length: int = 64                 # pieces of the question
    doc_stride: int = 128                      # pieces between the beginnings of two windows
    n_best_size: int = 20
    max_answer_length: int = 30                # pieces
    answerable_classifier: bool = True         # a head for "the text does not hold the answer" (squad 2.0)
    answerable_uses_start_logits: bool = True
    answerable_weight: float = 0.5             # of its loss
    joint_prediction: bool = True              # the end is predicted given the start
    beam_size: int = 20                        # starts and ends that are tried
    qa_na_threshold: float = -2.75             # of null odds, for squad's test outputs

    # ---- how, where and how often ----------------------------------------------------------------------------------
    keep_all_models: bool = True               # false: the last trial's checkpoints alone
    save_checkpoints_steps: int = 1_000_000    # beside the one at the end of each trial
    iterations_per_loop: int = 1000            # the most steps between two looks at the clock and at signals
    log_every_steps: int = 50                  # lines of metrics.jsonl and TensorBoard
    use_tensorboard: bool = True
    write_test_outputs: bool = False           # predictions on the test splits; GLUE's submission files
    n_writes_test: int = 5                     # of the first so many trials
    log_examples: bool = False                 # every example's text and pieces, not three alone
    use_tfrecords_if_existing: bool = True     # the cache of features
    num_processes: int = 1                     # that make features
    bucketing: bool = True                     # pad a batch to its own length, not to max_seq_length
    overwrite: bool = False                    # train anew although trials are there
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
    use_tpu: bool = False
    num_tpu_cores: int = 1                     # accepted; the TPU says itself how many it has
    tpu_job_name: str | None = None
    tpu_name: str | None = None
    tpu_zone: str | None = None
    gcp_project: str | None = None
    vocab_file: str | None = None              # default: the model folder's vocab.txt, else DATA_DIR/vocab.txt
    model_dir: str | None = None               # default: DATA_DIR/models/MODEL_NAME/finetuning_models/TASKS_model
    results_txt: str | None = None             # default: DATA_DIR/models/MODEL_NAME/results/TASKS_results.txt
    preprocessed_data_dir: str | None = None   # default: .../finetuning_tfrecords/TASKS_tfrecords
    qa_eval_file: str | None = None            # defaults: .../results/TASKS_qa/{}_eval.json and so on, {} the task
    qa_na_file: str | None = None
    qa_preds_file: str | None = None
    test_predictions: str | None = None        # default: .../test_predictions/{}_{}_{}_predictions: task, split, trial

    # fmt: on

    def network(self) -> TransformerConfig:
        """Sizes of the encoder."""
        return transformer_config(self.model_size, self.vocab_size, self.model_hparam_overrides,
                                  DEBUG_NETWORK if self.debug else None)

    @property
    def pretrained_dir(self) -> str:
        """The pre-trained model's folder."""
        return os.path.join(self.data_dir, "models", self.model_name)

    @property
    def evaluates(self) -> bool:
        """Whether the dev split is evaluated, at the end or while training."""
        return self.do_eval or self.do_train and bool(self.keep_best or self.early_stopping_patience)

    def raw_data_dir(self, task: str) -> str:
        """The folder of a task's files."""
        return os.path.join(self.data_dir, "finetuning_data", task)

    def trial_dir(self, trial: int) -> str:
        """The folder of a trial, counted from 1."""
        return f"{self.model_dir}_{trial}"

    def predictions_path(self, task: str, split: str, trial: int) -> str:
        """The path of a trial's predictions for a split, without its ending."""
        return self.filled("test_predictions", task, split, trial)

    def qa_path(self, kind: str, task: str) -> str:
        """The path of what is left of a question answering task; `kind`: eval, na or preds."""
        return self.filled(f"qa_{kind}_file", task)

    def filled(self, name: str, *parts: str | int) -> str:
        """A pattern with its parts; of a default one, the file's name alone is a pattern, not the folders."""
        pattern = getattr(self, name)
        folder, file = os.path.split(pattern) if pattern == default_paths(self)[name] else ("", pattern)
        return os.path.join(folder, file.format(*parts))

    def in_force(self) -> dict[str, Any]:
        """All hparams with their values."""
        return dataclasses.asdict(self)


def make_config(model_name: str, data_dir: str, hparams: dict[str, Any],
                adopted: dict[str, Any] | None = None) -> FinetuningConfig:
    """The config in force: defaults, those of the size, the tasks and debug, then the passed hparams; checked.

    Args:
      adopted: sizes and tokenizer settings of the pre-trained model, where they are not passed.

    Raises:
      UserError: for an unknown name, a wrong type or an impossible value.
    """
    if isinstance(names := hparams.get("task_names"), str):
        hparams = {**hparams, "task_names": names.split(",")}
    passed = check_hparams(FinetuningConfig, hparams, IGNORED)
    values = {**(adopted or {}), **passed}
    defaults = _defaults_of(values)
    config = FinetuningConfig(**{"model_name": model_name, "data_dir": data_dir, **defaults, **values})
    if config.model_size in MODEL_SIZES and config.embedding_size is None:
        config.embedding_size = DEFAULT_EMBEDDING_SIZE.get(config.model_size)
    if "init_checkpoint" not in values and not config.debug:
        config.init_checkpoint = config.pretrained_dir
    _set_paths(config)
    return config


def _defaults_of(values: dict[str, Any]) -> dict[str, Any]:
    defaults = dict(DEBUG_DEFAULTS) if values.get("debug") else {}
    if values.get("model_size") == "large":
        defaults |= {"learning_rate": 5e-5, "layerwise_lr_decay": 0.9}
    tasks = values.get("task_names", ["chunk"])
    if len(tasks) != 1:
        return defaults
    own = [task for task in values.get("custom_tasks", []) if isinstance(task, dict)]  # checked when they are made
    if tasks[0] in (*QA_TASKS, *(task.get("name") for task in own if task.get("kind") == "qa")):
        return {"max_seq_length": 512, "num_train_epochs": 2.0, **defaults}
    if tasks[0] == "chunk":
        return {"max_seq_length": 256, **defaults}
    return {"num_train_epochs": 10.0, **defaults} if tasks[0] in ("rte", "sts") else defaults


def default_paths(config: FinetuningConfig) -> dict[str, str]:
    """The paths of what a run leaves, by hparam, where they are not passed."""
    root, suffix = config.pretrained_dir, "-debug" if config.debug else ""
    tasks = ",".join(name for name in config.task_names if isinstance(name, str))  # they are checked when they are made
    return {
        "model_dir": os.path.join(root, "finetuning_models", f"{tasks}_model{suffix}"),
        "results_txt": os.path.join(root, "results", f"{tasks}_results{suffix}.txt"),
        "preprocessed_data_dir": os.path.join(root, "finetuning_tfrecords", f"{tasks}_tfrecords{suffix}"),
        "qa_eval_file": os.path.join(root, "results", f"{tasks}_qa{suffix}", "{}_eval.json"),
        "qa_na_file": os.path.join(root, "results", f"{tasks}_qa{suffix}", "{}_null_odds.json"),
        "qa_preds_file": os.path.join(root, "results", f"{tasks}_qa{suffix}", "{}_preds.json"),
        "test_predictions": os.path.join(root, "test_predictions" + suffix, "{}_{}_{}_predictions"),
    }


def _set_paths(config: FinetuningConfig) -> None:
    """Fills in the paths that are not given."""
    for name, path in default_paths(config).items():
        setattr(config, name, getattr(config, name) or path)
    if config.vocab_file is None:
        own = os.path.join(config.pretrained_dir, "vocab.txt")
        config.vocab_file = own if filesystem.exists(own) else os.path.join(config.data_dir, "vocab.txt")


_AT_LEAST = {
    "learning_rate": 0, "weight_decay_rate": 0, "lr_decay_power": 0, "warmup_proportion": 0, "max_seq_length": 5,
    "train_batch_size": 1, "eval_batch_size": 1, "predict_batch_size": 1, "eval_every_steps": 0, "embedding_size": 1,
    "early_stopping_patience": 0, "max_query_length": 1, "doc_stride": 1, "n_best_size": 1, "max_answer_length": 1,
    "answerable_weight": 0, "beam_size": 1, "save_checkpoints_steps": 1, "iterations_per_loop": 1, "vocab_size": 6,
    "log_every_steps": 1, "n_writes_test": 0, "num_processes": 1, "gradient_accumulation_steps": 1, "logical_cpus": 0,
    "seed": 0, "num_tpu_cores": 1, "freeze_layers": 0}


def validate(config: FinetuningConfig) -> None:
    """Raises a `UserError` for values that cannot work together."""
    _check_numbers(config)
    _check_choices(config)
    _check_paths(config)
    network = config.network()
    network.validate("the model")
    if network.vocab_size != config.vocab_size:
        raise UserError(f"model_hparam_overrides has vocab_size {network.vocab_size}, the hparam vocab_size is "
                        f"{config.vocab_size}; pass the hparam alone")
    if config.max_seq_length > network.max_position_embeddings:
        raise UserError(f"max_seq_length {config.max_seq_length} is over the position table of "
                        f"{network.max_position_embeddings}; shorten it, or raise max_position_embeddings in "
                        "model_hparam_overrides (the rows beyond the checkpoint's start fresh)")
    if (config.freeze_layers or 0) > network.num_hidden_layers:
        raise UserError(f"freeze_layers {config.freeze_layers} is over the encoder's {network.num_hidden_layers} "
                        f"layers; take at most {network.num_hidden_layers}, which trains the heads alone")
    if config.max_query_length > config.max_seq_length - 4:
        config.max_query_length = config.max_seq_length - 4


def _check_numbers(config: FinetuningConfig) -> None:
    for name, value in config.in_force().items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f'hparam "{name}" must be finite; got {value}')
        if isinstance(value, int) and value > LARGEST:
            raise UserError(f'hparam "{name}" must be at most {LARGEST}; got {value}')
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise UserError(f'hparam "{name}" must be at least {least}; got {value}')
    if not config.num_train_epochs > 0:
        raise UserError(f'hparam "num_train_epochs" must be above 0; got {config.num_train_epochs}')
    if config.num_trials == 0:
        raise UserError('hparam "num_trials" must be at least 1, or below 0 for trials without end; got 0')
    if config.train_batch_size % config.gradient_accumulation_steps:
        raise UserError(f"train_batch_size {config.train_batch_size} is not divisible by gradient_accumulation_steps "
                        f"{config.gradient_accumulation_steps}")


def _check_choices(config: FinetuningConfig) -> None:
    if config.model_name in ("", ".", "..") or os.path.basename(config.model_name) != config.model_name:
        raise UserError(f'--model-name must be the name of one folder below {config.data_dir}/models, without "/"; got '
                        f'"{config.model_name}"')
    if not (config.do_train or config.do_eval or config.do_predict):
        raise UserError("do_train, do_eval and do_predict are all false: there is nothing to do")
    for name, choices in (("precision", PRECISIONS), ("distribution", DISTRIBUTIONS)):
        if getattr(config, name) not in choices:
            raise UserError(f'hparam "{name}" must be one of {", ".join(choices)}; got "{getattr(config, name)}"')
    if config.use_tpu and config.distribution not in ("auto", "tpu"):
        raise UserError(f'use_tpu true contradicts distribution "{config.distribution}"')
    if config.num_trials < 0 and not config.do_train:
        raise UserError("num_trials below 0 trains without end, but do_train is false")


def _check_paths(config: FinetuningConfig) -> None:
    """Patterns of paths have {} where the task's name goes, and predictions the split and the trial."""
    for name in ("qa_eval_file", "qa_na_file", "qa_preds_file", "test_predictions"):
        parts = ("task", "split", 1) if name == "test_predictions" else ("task",)
        try:
            config.filled(name, *parts)
        except (LookupError, ValueError, AttributeError) as error:
            raise UserError(f'hparam "{name}" must be a path with up to {len(parts)} "{{}}", got '
                            f'"{getattr(config, name)}"') from error
