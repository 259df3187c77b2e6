"""Tasks that give one answer for one text or two: a class, several classes, or a number."""

import abc
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from configure_finetuning import FinetuningConfig
from finetune import submissions, tables
from finetune.classification.classification_metrics import ClassificationScorer, RegressionScorer
from finetune.feature_spec import Features, FeatureSpec
from finetune.task import Metric, Outputs, Scorer, Task
from model.tokenization import CLS, SEP, FullTokenizer
from util import filesystem
from util.errors import UserError

if TYPE_CHECKING:
    from model.modeling import Initializer, NamedLayer


class Example(NamedTuple):
    """One text or two, and what is known of them.

    Attributes:
      eid: the number of its row, counted from 0 without the header; the second order of a pair counts on from there.
      label: None where it is not known.
      ident: what its row calls it; its number where there is no such column.
    """

    eid: int
    text_a: str
    text_b: str | None
    label: Any
    ident: str


class Columns(NamedTuple):
    """Where a table has what: columns by position (-k: from the end) or by name in the header."""

    text_a: int | str
    text_b: int | str | None = None
    label: int | str | None = None
    header: bool = True
    ident: int | str | None = None


def cut_pair(length_a: int, length_b: int, most: int) -> tuple[int, int]:
    """The lengths of two texts that together have room for `most` pieces: the longer one loses, the second on a tie."""
    if length_a + length_b <= most:
        return length_a, length_b
    half = most // 2
    if length_b <= half:
        return most - length_b, length_b
    if length_a <= most - half:
        return length_a, most - length_a
    return most - half, half


class TextTask(Task):
    """A task on one text or two, read from tables."""

    both_orders = False  # whether training takes pairs in both orders

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer):
        super().__init__(config, name, tokenizer)
        self._cls, self._sep = tokenizer.vocab[CLS], tokenizer.vocab[SEP]
        self._read: dict[str, list[Example]] = {}  # of all splits but the training one

    @abc.abstractmethod
    def columns(self, split: str) -> Columns:
        """Where the files of a split have what; without a label where there is none."""

    @abc.abstractmethod
    def parse_label(self, value: Any) -> Any:
        """A label as it is kept.

        Raises:
          ValueError: says what is wrong with it, and what was expected.
        """

    @abc.abstractmethod
    def label_features(self, label: Any) -> Features:
        """The features of a label, which may be None: unknown."""

    def files(self, split: str) -> list[str]:
        names = self.file_names()
        if split not in names:
            raise UserError(f'{self.name} has no split "{split}"; it has: {", ".join(names)}')
        return [expected_file(self.config.raw_data_dir(self.name), names[split], names.values())]

    def file_names(self) -> dict[str, str]:
        """The name of each split's file, in the order in which they are listed."""
        splits = ("train", *self.evaluation_splits, *self.test_splits)
        return {split: f"{split}.tsv" for split in splits}

    def read_table(self, path: str, header: bool) -> tables.Table:
        """Reads a file of the task."""
        return tables.Table(path, "tsv", header, tables.DEBUG_LINES if self.config.debug else 0)

    def examples(self, split: str) -> list[Example]:
        if split in self._read:
            return self._read[split]
        examples: list[Example] = []
        for path in self.files(split):
            examples += self._examples_of(path, self.columns(split), len(examples))
        if split != "train":
            self._read[split] = examples
        elif self.both_orders and self.config.double_unordered:
            start = examples[-1].eid + 1
            examples += [
                Example(start + eid, text_b, text_a, label, ident) for eid, text_a, text_b, label, ident in examples
            ]
        return examples

    def _examples_of(self, path: str, columns: Columns, first: int) -> list[Example]:
        table = self.read_table(path, columns.header)
        places = columns._replace(
            **{name: table.resolve(place) for name, place in columns._asdict().items()
               if name != "header" and place is not None and table.rows}
        )  # fmt: skip
        examples = []
        for row in table.rows:
            try:
                examples.append(self._example(table, row, places, first))
            except tables.MalformedRow as error:
                table.malformed.add(row.line, str(error), row.fields)
        table.check()
        return examples

    def _example(self, table: tables.Table, row: tables.Row, places: Columns, first: int) -> Example:
        text_a = table.text(row, places.text_a)
        text_b = None if places.text_b is None else table.text(row, places.text_b)
        label = None
        if places.label is not None:
            written = table.field(row, places.label)
            try:
                label = self.parse_label(written)
            except ValueError as error:
                raise tables.refused(table.path, wrong_label(table, row, written, error)) from None
        ident = str(row.number) if places.ident is None else table.text(row, places.ident)
        return Example(first + row.number, text_a, text_b, label, ident)

    def featurize(self, example: Example, is_training: bool) -> list[Features]:
        encode, most = self.tokenizer.encode, self.config.max_seq_length
        ids_a = encode(example.text_a)
        ids_b = encode(example.text_b) if example.text_b else []
        if ids_b:
            length_a, length_b = cut_pair(len(ids_a), len(ids_b), most - 3)
            first = [self._cls, *ids_a[:length_a], self._sep]
            second = [*ids_b[:length_b], self._sep]
        else:
            first, second = [self._cls, *ids_a[: most - 2], self._sep], []
        features: Features = {
            "input_ids": first + second,
            "segment_ids": [0] * len(first) + [1] * len(second),
            f"{self.head_name}_eid": example.eid,
        }
        return [features | self.label_features(example.label)]

    def is_cut(self, example: Example, features: list[Features]) -> bool:
        if len(features[0]["input_ids"]) < self.config.max_seq_length:
            return False
        lengths = [len(self.tokenizer.encode(text)) for text in (example.text_a, example.text_b) if text]
        return sum(lengths) + 1 + sum(map(bool, lengths)) > self.config.max_seq_length

    def shown(self, example: Example) -> tuple[str, str]:
        texts = example.text_a if example.text_b is None else f"{example.text_a} ||| {example.text_b}"
        return texts, "unknown" if example.label is None else str(example.label)

    def shaped_by(self) -> dict[str, Any]:
        return {"columns": {split: list(self.columns(split)) for split in self.file_names()},
                "both_orders": self.both_orders and self.config.double_unordered}  # fmt: skip

    def _rows_with_ids(self, split: str, rows: Iterable[tuple[Features, Outputs]]):
        """Predictions with what the examples' rows are called."""
        idents = {example.eid: example.ident for example in self.examples(split)}
        for features, outputs in rows:
            yield idents[features[f"{self.head_name}_eid"]], outputs


class ClassificationTask(TextTask):
    """A task with classes.

    Args:
      labels: the classes, in the order of their ids.
      metrics: names of `classification_metrics`; runs are judged by the first.
      multi_label: whether an example may have several classes, or none.
      separator: between the classes of an example, in a table.
    """

    kind = "classification"
    glue_file: dict[str, str] = {}  # split to the name of GLUE's submission file

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer, labels: Sequence[str],
                 metrics: Sequence[str] = ("accuracy",), multi_label: bool = False, separator: str = ","):  # fmt: skip
        super().__init__(config, name, tokenizer)
        self.labels, self.metrics, self.multi_label, self.separator = list(labels), metrics, multi_label, separator
        self._ids = {label: i for i, label in enumerate(self.labels)}

    @property
    def metric(self) -> Metric:
        majority = self._majority
        chance = {"mcc": None if majority is None else 0.0, "accuracy": majority}
        return Metric(self.metrics[0], chance=chance.get(self.metrics[0]))

    @property
    def metric_names(self) -> Sequence[str]:
        return self.metrics

    @cached_property
    def _majority(self) -> float | None:
        """The accuracy of always giving the most frequent class of the split that runs are judged on.

        None where that split is not read, or has one class alone: nobody is better than that.
        """
        if not self.config.evaluates or not self.evaluation_splits or self.multi_label:
            return None
        counts = self.label_counts(self.examples(self.evaluation_splits[0]))
        share = max(counts.values()) / sum(counts.values())
        return 100.0 * share if share < 1 else None

    @property
    def feature_specs(self) -> list[FeatureSpec]:
        shape = (len(self.labels),) if self.multi_label else ()
        return [FeatureSpec(f"{self.head_name}_eid"), FeatureSpec(f"{self.head_name}_label_ids", shape)]

    def parse_label(self, value: Any) -> str | tuple[str, ...]:
        if not self.multi_label:
            label = as_label(value)
            if label not in self._ids:
                raise ValueError(f"is none of the task's; expected one of: {', '.join(self.labels)}")
            return label
        labels = split_labels(value, self.separator)
        if unknown := [label for label in labels if label not in self._ids]:
            raise ValueError(f'has "{unknown[0]}", none of the task\'s; expected some of: {", ".join(self.labels)}')
        return tuple(labels)

    def label_features(self, label: str | tuple[str, ...] | None) -> Features:
        if self.multi_label:
            return {f"{self.head_name}_label_ids": [int(name in (label or ())) for name in self.labels]}
        return {f"{self.head_name}_label_ids": self._ids.get(label, 0)}

    def label_counts(self, examples: list[Example]) -> dict[str, int]:
        several = self.multi_label
        counts = Counter(label for example in examples if example.label is not None
                         for label in (example.label if several else (example.label,)))  # fmt: skip
        return {label: counts[label] for label in self.labels} if counts else {}

    def make_head(self, hidden_size: int, init: "Initializer") -> "NamedLayer":
        from finetune.classification.classification_heads import ClassificationHead

        return ClassificationHead(self.head_name, hidden_size, len(self.labels), self.multi_label, init)

    def scorer(self, split: str) -> Scorer:
        return ClassificationScorer(self.head_name, self.metrics, len(self.labels), self.multi_label)

    def shaped_by(self) -> dict[str, Any]:
        return {**super().shaped_by(), "labels": self.labels, "multi_label": self.multi_label}

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "labels": self.labels, "multi_label": self.multi_label}

    def write_predictions(self, split: str, rows: Iterable[tuple[Features, Outputs]], path: str) -> list[str]:
        found = list(self._rows_with_ids(split, rows))
        paths = [submissions.write_classes(path + ".tsv", self.labels, found, self.multi_label, self.separator)]
        if split in self.glue_file:
            answers = [(ident, self.labels[int(outputs["predictions"])]) for ident, outputs in found]
            paths.append(submissions.write_glue(path, self.name, split, self.glue_file[split], answers))
        return paths


class RegressionTask(TextTask):
    """A task whose answer is a number between `lowest` and `highest`; its target is scaled to 0 to 1."""

    kind = "regression"
    glue_file: dict[str, str] = {}

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer, lowest: float, highest: float,
                 metrics: Sequence[str] = ("pearson", "spearman", "mse")):  # fmt: skip
        super().__init__(config, name, tokenizer)
        self.lowest, self.highest, self.metrics = lowest, highest, metrics

    @property
    def metric(self) -> Metric:
        return Metric(self.metrics[0], chance=None if self.metrics[0] == "mse" else 0.0)

    @property
    def metric_names(self) -> Sequence[str]:
        return self.metrics

    @property
    def feature_specs(self) -> list[FeatureSpec]:
        return [FeatureSpec(f"{self.head_name}_eid"), FeatureSpec(f"{self.head_name}_targets", is_int=False)]

    def parse_label(self, value: Any) -> float:
        expected = f"expected a number from {self.lowest:g} to {self.highest:g}"
        try:
            score = float("" if isinstance(value, bool) else value)
        except (TypeError, ValueError):
            raise ValueError(f"is not a number; {expected}") from None
        if math.isnan(score) or not self.lowest <= score <= self.highest:
            raise ValueError(f"is outside the range; {expected}")
        return score

    def label_features(self, label: float | None) -> Features:
        target = 0.0 if label is None else (label - self.lowest) / (self.highest - self.lowest)
        return {f"{self.head_name}_targets": target}

    def make_head(self, hidden_size: int, init: "Initializer") -> "NamedLayer":
        from finetune.classification.classification_heads import RegressionHead

        return RegressionHead(self.head_name, hidden_size, init)

    def scorer(self, split: str) -> Scorer:
        return RegressionScorer(self.head_name, self.metrics)

    def shaped_by(self) -> dict[str, Any]:
        return {**super().shaped_by(), "range": [self.lowest, self.highest]}

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "range": [self.lowest, self.highest]}

    def write_predictions(self, split: str, rows: Iterable[tuple[Features, Outputs]], path: str) -> list[str]:
        width = self.highest - self.lowest
        found = [(ident, self.lowest + width * float(outputs["predictions"]))
                 for ident, outputs in self._rows_with_ids(split, rows)]  # fmt: skip
        paths = [submissions.write_values(path + ".tsv", found)]
        if split in self.glue_file:
            inside = [(ident, f"{min(max(value, self.lowest), self.highest):.3f}") for ident, value in found]
            paths.append(submissions.write_glue(path, self.name, split, self.glue_file[split], inside))
        return paths


def expected_file(folder: str, name: str, names: Iterable[str]) -> str:
    """The path of a task's file.

    Raises:
      UserError: it is missing; lists the names that are expected.
    """
    path = os.path.join(folder, name)
    if filesystem.isfile(path):
        return path
    missing = f"{path} is missing" if filesystem.isdir(folder) else f"the folder {folder} is missing"
    raise UserError(f"{missing}; expected there: {', '.join(dict.fromkeys(names))}")


def split_labels(value: Any, separator: str) -> list[str]:
    """The labels of an example that may have several, none twice: a list, or a text with a separator.

    Raises:
      ValueError: it is neither.
    """
    if isinstance(value, list):
        return list(dict.fromkeys(map(as_label, value)))
    parts = [part.strip() for part in (value if isinstance(value, str) else as_label(value)).split(separator)]
    return list(dict.fromkeys(part for part in parts if part))


def as_label(value: Any) -> str:
    """A label of a table as text, without white space around it; JSON's 1 and 1.0 are both "1", its true is "true".

    Raises:
      ValueError: it is empty or something else.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty; give every example a label, or leave the row out")
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (int, float)) and math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        raise ValueError('is a list; an example has several labels where "multi_label" is true')
    raise ValueError("is neither a text nor a number nor true or false")


def wrong_label(table: tables.Table, row: tables.Row, label: Any, why: ValueError) -> str:
    """What is said of a label that cannot be used."""
    return f"{table.path}, line {row.line}: the label {label!r} {why}"
