"""A task: files to examples, examples to features, a head, and a scorer. Needs no TensorFlow but for the head."""

import abc
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from configure_finetuning import FinetuningConfig
from finetune.feature_spec import Features, FeatureSpec
from model.tokenization import FullTokenizer

if TYPE_CHECKING:
    from model.modeling import Initializer, NamedLayer

Outputs = dict[str, np.ndarray]  # what a head gives for one example, by name
Results = dict[str, float]  # metrics by name, in the order in which they are printed


class Metric(NamedTuple):
    """A metric that runs are judged by."""

    name: str
    scale: float = 100.0  # what a perfect score is printed as
    chance: float | None = None  # the score without learning anything, on that scale; None where nobody knows


class Scorer(abc.ABC):
    """Collects the outputs for the examples of one split, then gives metrics."""

    @abc.abstractmethod
    def update(self, features: Features, outputs: Outputs) -> None:
        """Takes one example's (one window's) features, as stored, and the head's outputs, cut to its true length."""

    @abc.abstractmethod
    def results(self) -> Results:
        """Metrics of everything that was collected."""

    def write(self, config: FinetuningConfig) -> list[str]:
        """Writes what a task leaves beside its metrics, such as answers; gives the paths."""
        return []


class Task(abc.ABC):
    """One task.

    Args:
      config: the hparams.
      name: of the task, its folder, and its head's variables (task_specific/<name>/...).
      tokenizer: of the model.
    """

    kind: str  # classification, regression, tagging or qa
    evaluation_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer):
        self.config, self.name, self.tokenizer = config, name, tokenizer

    @property
    def head_name(self) -> str:
        """The task whose head is used, and its features' names; another's where this one has nothing to train on."""
        return self.name

    @property
    @abc.abstractmethod
    def metric(self) -> Metric:
        """The metric that runs are judged by where none is named."""

    @property
    @abc.abstractmethod
    def metric_names(self) -> Sequence[str]:
        """The metrics that a scorer always gives, beside the loss: those that weights can be kept by."""

    @property
    @abc.abstractmethod
    def feature_specs(self) -> list[FeatureSpec]:
        """The features of an example beside input_ids and segment_ids."""

    @abc.abstractmethod
    def files(self, split: str) -> list[str]:
        """The files that a split is read from.

        Raises:
          UserError: one is missing (the names that are expected are listed).
        """

    @abc.abstractmethod
    def examples(self, split: str) -> list[Any]:
        """Reads a split; what is skipped is counted and said.

        Raises:
          UserError: nothing was found, or too much is wrong with it.
        """

    @abc.abstractmethod
    def featurize(self, example: Any, is_training: bool) -> list[Features]:
        """The features of an example: one dict, for QA one a window; none where it cannot be trained on."""

    @abc.abstractmethod
    def make_head(self, hidden_size: int, init: "Initializer") -> "NamedLayer":
        """The head; see `finetune.finetuning_model.Head`."""

    @abc.abstractmethod
    def scorer(self, split: str) -> Scorer:
        """A scorer of a split."""

    def shown(self, example: Any) -> tuple[str, str]:
        """An example's text and label, for the log."""
        return str(example), ""

    def label_counts(self, examples: list[Any]) -> dict[str, int]:
        """How often each label occurs; nothing where there are no labels to count."""
        return {}

    def is_cut(self, example: Any, features: list[Features]) -> bool:
        """Whether something of the example did not fit into its features."""
        return False

    def shaped_by(self) -> dict[str, Any]:
        """What shapes the features, beyond the split's files, the vocabulary and max_seq_length."""
        return {}

    def described(self) -> dict[str, Any]:
        """What a fine-tuned model's folder keeps of the task: its kind, and what its head's outputs stand for."""
        return {"kind": self.kind}

    def write_predictions(self, split: str, rows: Iterable[tuple[Features, Outputs]], path: str) -> list[str]:
        """Writes predictions for unlabelled examples to `path` plus an ending, and gives the paths."""
        raise NotImplementedError(f"predictions of {self.kind} tasks")
