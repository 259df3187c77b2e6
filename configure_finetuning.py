"""Hparams of fine-tuning: names, defaults by task and size, and the checks that need no TensorFlow."""

import dataclasses
import math
import os
from dataclasses import dataclass, field
from typing import Any

from configure_pretraining import DISTRIBUTIONS, LARGEST, PRECISIONS
from model.config import DEBUG_NETWORK, DEFAULT_EMBEDDING_SIZE, MODEL_SIZES, TransformerConfig, transformer_config
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
    init_checkpoint: str | None = None         # default: the pre-trained model's folder; "" for random weights
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

    def raw_data_dir(self, task: str) -> str:
        """The folder of a task's files."""
        return os.path.join(self.data_dir, "finetuning_data", task)

    def trial_dir(self, trial: int) -> str:
        """The folder of a trial, counted from 1."""
        return f"{self.model_dir}_{trial}"

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
    passed = check_hparams(FinetuningConfig, hparams, IGNORED)
    values = {**(adopted or {}), **passed}
    defaults = _defaults_of(values)
    config = FinetuningConfig(**{"model_name": model_name, "data_dir": data_dir, **defaults, **values})
    if config.model_size in MODEL_SIZES and config.embedding_size is None:
        config.embedding_size = DEFAULT_EMBEDDING_SIZE.get(config.model_size)
    _set_paths(config)
    return config


def _defaults_of(values: dict[str, Any]) -> dict[str, Any]:
    defaults = dict(DEBUG_DEFAULTS) if values.get("debug") else {}
    if values.get("model_size") == "large":
        defaults |= {"learning_rate": 5e-5, "layerwise_lr_decay": 0.9}
    tasks = values.get("task_names", ["chunk"])
    if len(tasks) != 1:
        return defaults
    kinds = {task.get("name"): task.get("kind") for task in values.get("custom_tasks", []) if isinstance(task, dict)}
    if tasks[0] in QA_TASKS or kinds.get(tasks[0]) == "qa":
        return {"max_seq_length": 512, "num_train_epochs": 2.0, **defaults}
    if tasks[0] == "chunk":
        return {"max_seq_length": 256, **defaults}
    return {"num_train_epochs": 10.0, **defaults} if tasks[0] in ("rte", "sts") else defaults


def _set_paths(config: FinetuningConfig) -> None:
    """Fills in the paths that are not given."""
    root, suffix = config.pretrained_dir, "-debug" if config.debug else ""
    tasks = ",".join(map(str, config.task_names))
    defaults = {
        "model_dir": os.path.join(root, "finetuning_models", f"{tasks}_model{suffix}"),
        "results_txt": os.path.join(root, "results", f"{tasks}_results{suffix}.txt"),
        "preprocessed_data_dir": os.path.join(root, "finetuning_tfrecords", f"{tasks}_tfrecords{suffix}"),
        "qa_eval_file": os.path.join(root, "results", f"{tasks}_qa{suffix}", "{}_eval.json"),
        "qa_na_file": os.path.join(root, "results", f"{tasks}_qa{suffix}", "{}_null_odds.json"),
        "qa_preds_file": os.path.join(root, "results", f"{tasks}_qa{suffix}", "{}_preds.json"),
        "test_predictions": os.path.join(root, "test_predictions" + suffix, "{}_{}_{}_predictions"),
    }
    for name, path in defaults.items():
        setattr(config, name, getattr(config, name) or path)
    if config.vocab_file is None:
        own = os.path.join(root, "vocab.txt")
        config.vocab_file = own if os.path.exists(own) else os.path.join(config.data_dir, "vocab.txt")
