"""Tasks on one's own data, described by the hparam custom_tasks; docs/custom_tasks.md has examples.

Every entry is an object with a name and a kind; the other keys depend on the kind. Files are paths, absolute or below
DATA_DIR/finetuning_data/NAME/.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from configure_finetuning import FinetuningConfig
from finetune import tables
from finetune.classification.classification_metrics import (
    CLASSIFICATION_METRICS,
    MULTI_LABEL_METRICS,
    REGRESSION_METRICS,
)
from finetune.classification.classification_tasks import (
    ClassificationTask,
    Columns,
    RegressionTask,
    as_label,
    expected_file,
    split_labels,
    wrong_label,
)
from finetune.qa.qa_tasks import CustomQA
from finetune.tagging.spans import SCHEMES
from finetune.tagging.tagging_metrics import TAGGING_METRICS
from finetune.tagging.tagging_tasks import TaggingTask
from finetune.task import Task
from model.tokenization import FullTokenizer
from util import filesystem
from util.errors import UserError, nearest_hint
from util.files import read_json, write_json, writing

SPLITS = ("train", "dev", "test")
_COLUMN, _LIST = (str, int), (list,)
_FILES = dict.fromkeys(SPLITS, (str,))
_TABLE = {**_FILES, "format": (str,), "text_a": _COLUMN, "text_b": _COLUMN, "label": _COLUMN, "id": _COLUMN,
          "header": (bool,), "metrics": _LIST}  # fmt: skip
KEYS: dict[str, dict[str, tuple[type, ...]]] = {  # of a kind's descriptions, with the types of their values
    "classification": {**_TABLE, "labels": _LIST, "multi_label": (bool,), "label_separator": (str,)},
    "regression": {**_TABLE, "range": _LIST},
    "tagging": {**_FILES, "format": (str,), "scheme": (str,), "word": _COLUMN, "tag": _COLUMN, "labels": _LIST,
                "metrics": _LIST},
    "qa": {**_FILES, "unanswerable": (bool,)},
}  # fmt: skip
REQUIRED = {"classification": ("text_a", "label"), "regression": ("text_a", "label", "range"), "tagging": (), "qa": ()}
FORMATS = {"classification": ("tsv", "csv", "jsonl"), "regression": ("tsv", "csv", "jsonl"),
           "tagging": ("conll", "jsonl")}  # fmt: skip
_NAMES = {str: "a text", int: "a whole number", bool: "true or false", list: "a list"}

Description = dict[str, Any]


def check_descriptions(descriptions: list[Any], taken: Iterable[str]) -> dict[str, Description]:
    """The descriptions by name.

    Args:
      taken: names of tasks that exist.

    Raises:
      UserError: one is wrong; says where, and what would be right.
    """
    found: dict[str, Description] = {}
    for number, description in enumerate(descriptions):
        if not isinstance(description, dict):
            raise UserError(f"hparam custom_tasks: entry {number} must be an object, got {description!r}")
        name = description.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            raise UserError(f'hparam custom_tasks: the "name" of entry {number} must consist of letters, digits, _ . '
                            f"and -, got {name!r}")  # fmt: skip
        if name in found or name in taken:
            raise UserError(f'hparam custom_tasks: there is a task "{name}" already; choose another name')
        _check_description(f'custom task "{name}"', description)
        found[name] = description
    return found


def _check_description(where: str, description: Description) -> None:
    kind = description.get("kind")
    _check_choice(where, "kind", kind, KEYS)
    keys = KEYS[kind]
    for key, value in description.items():
        if key in ("name", "kind"):
            continue
        if key not in keys:
            hint = nearest_hint(key, keys) or "."
            raise UserError(f'{where}: unknown key "{key}"{hint} {kind} tasks have: name, kind, {", ".join(keys)}')
        if not isinstance(value, keys[key]) or (isinstance(value, bool) and bool not in keys[key]):
            expected = " or ".join(_NAMES[one] for one in keys[key])
            raise UserError(f'{where}: "{key}" must be {expected}, got {value!r}')
    if missing := [key for key in REQUIRED[kind] if key not in description]:
        raise UserError(f'{where}: "{missing[0]}" is missing; {kind} tasks need {", ".join(REQUIRED[kind])}')
    _check_values(where, kind, description)


def _check_values(where: str, kind: str, description: Description) -> None:
    if "format" in description:
        _check_choice(where, "format", description["format"], FORMATS[kind])
    if "scheme" in description:
        _check_choice(where, "scheme", description["scheme"], SCHEMES)
    for metric in description.get("metrics", ()):
        _check_choice(where, "metric", metric, _metrics(description))
    if description.get("metrics") == []:
        raise UserError(f'{where}: "metrics" is empty; name one or more of: {", ".join(_metrics(description))}')
    if "labels" in description:
        labels = description["labels"]
        texts = all(isinstance(label, str) and label and label == label.strip() for label in labels)
        if not labels or not texts or len(set(labels)) < len(labels):
            raise UserError(f'{where}: "labels" must be a list of different texts, none of them empty or with white '
                            f"space around it, got {labels!r}")  # fmt: skip
    if kind == "regression":
        bounds = description["range"]
        numbers = len(bounds) == 2 and all(type(bound) in (int, float) for bound in bounds)
        if not numbers or not bounds[0] < bounds[1]:
            raise UserError(f'{where}: "range" must be two numbers, the lower one first, got {bounds!r}')
    if description.get("label_separator") == "":
        raise UserError(f'{where}: "label_separator" is empty')


def _check_choice(where: str, what: str, value: Any, valid: Iterable[str]) -> None:
    if not isinstance(value, str) or value not in valid:
        hint = nearest_hint(str(value), valid) or "."
        raise UserError(f"{where}: unknown {what} {value!r}{hint} Expected one of: {', '.join(valid)}")


def _metrics(description: Description) -> Sequence[str]:
    """The metrics that a task may name."""
    kind = description["kind"]
    if kind == "classification":
        return MULTI_LABEL_METRICS if description.get("multi_label") else CLASSIFICATION_METRICS
    if kind == "tagging":
        return ("accuracy",) if description.get("scheme") == "plain" else TAGGING_METRICS
    return REGRESSION_METRICS


def make_custom_task(config: FinetuningConfig, description: Description, tokenizer: FullTokenizer) -> Task:
    """The task of a description that was checked.

    Raises:
      UserError: its files are missing, or its labels are to be collected from them and can't be.
    """
    return _CLASSES[description["kind"]](config, description["name"], tokenizer, description)


# ---------------------------------------------------------------------------------------------------------------------
# Files


class DescribedFiles:
    """The files and columns of a task that a description names."""

    config: FinetuningConfig
    name: str
    description: Description

    def files(self, split: str) -> list[str]:
        """The file of a split: the one that is described, else the one in the task's folder that is called so."""
        if split not in SPLITS:
            raise UserError(f'{self.name} has no split "{split}"; it has: {", ".join(SPLITS)}')
        return [expected_file(self.config.raw_data_dir(self.name), self.file_name(split), self._expected())]

    def file_name(self, split: str) -> str:
        """The name of a split's file.

        Raises:
          UserError: there are two that it could be.
        """
        return tables.one_of_files(self.config.raw_data_dir(self.name), split, self._names(split))

    def _names(self, split: str) -> list[str]:
        if split in self.description:
            return [self.description[split]]
        formats = [self.description["format"]] if "format" in self.description else FORMATS[self.description["kind"]]
        return [f"{split}.{ending}" for ending, form in tables.FORMATS.items() if form in formats]

    def _expected(self) -> list[str]:
        return [" or ".join(self._names(split)) for split in SPLITS]

    def file_names(self) -> dict[str, str]:
        """The name of each split's file."""
        return {split: self.file_name(split) for split in SPLITS}

    def format(self, path: str) -> str:
        """The format of a file: as described, else by its ending."""
        formats = FORMATS[self.description["kind"]]
        found = self.description.get("format") or tables.format_of(path)
        if found in formats:
            return found
        if "conll" in formats:
            return "conll"
        raise UserError(f'{path}: its ending does not tell its format; give "format" as one of: {", ".join(formats)}')

    def read_table(self, path: str, header: bool) -> tables.Table:
        """Reads a file of the task."""
        return tables.Table(path, self.format(path), header, tables.DEBUG_LINES if self.config.debug else 0)

    def columns(self, split: str) -> Columns:
        """Where the files have what. Labels of the test split are not looked at: it may have none."""
        described = self.description
        label = None if split == "test" else described["label"]
        header = described.get("header", True)
        return Columns(described["text_a"], described.get("text_b"), label, header, described.get("id"))


# ---------------------------------------------------------------------------------------------------------------------
# Tasks


class CustomClassification(DescribedFiles, ClassificationTask):
    """Classes, or several labels at once, of the rows of a table."""

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer, description: Description):
        self.config, self.name, self.description = config, name, description
        several, separator = description.get("multi_label", False), description.get("label_separator", ",")
        labels = description.get("labels") or self._collected_labels(several, separator)
        metrics = description.get("metrics", ["f1", "accuracy"] if several else ["accuracy"])
        super().__init__(config, name, tokenizer, labels, metrics, several, separator)

    def _collected_labels(self, several: bool, separator: str) -> list[str]:
        """The labels of the training file, sorted; kept as JSON, for when it is not there any more."""
        kept = os.path.join(self.config.preprocessed_data_dir, f"{self.name}_labels.json")
        if filesystem.isfile(kept) and not self._is_there("train"):
            return read_json(kept, "labels")
        (path,) = self.files("train")
        table = self.read_table(path, self.description.get("header", True))
        column = table.resolve(self.description["label"]) if table.rows else 0
        labels: set[str] = set()
        types: set[bool] = set()  # whether truth values
        for row in table.rows:
            try:
                written = table.field(row, column)
                labels.update(split_labels(written, separator) if several else [as_label(written)])
                types.add(isinstance(written, bool))
                if len(types) > 1:
                    raise ValueError("is one of truth values among other labels; write all of them as texts")
            except tables.MalformedRow as error:
                table.malformed.add(row.line, str(error), row.fields)
            except ValueError as error:
                raise tables.refused(path, wrong_label(table, row, written, error)) from None
        table.check()
        if len(labels) < 2 - several:
            raise UserError(f'{path}: {len(labels)} label(s) in the column "{self.description["label"]}"; expected at '
                            f'least {2 - several}, or a list "labels"')  # fmt: skip
        with writing(f"the labels {kept}"):
            write_json(kept, sorted(labels))
        return sorted(labels)

    def _is_there(self, split: str) -> bool:
        return filesystem.isfile(os.path.join(self.config.raw_data_dir(self.name), self.file_name(split)))


class CustomRegression(DescribedFiles, RegressionTask):
    """A number for each row of a table."""

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer, description: Description):
        self.description = description
        lowest, highest = description["range"]
        super().__init__(config, name, tokenizer, lowest, highest, description.get("metrics", REGRESSION_METRICS))


class CustomTagging(DescribedFiles, TaggingTask):
    """Tags for the words of CoNLL columns, or of JSONL with a list of words and one of tags."""

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer, description: Description):
        self.description = description
        scheme = description.get("scheme", "bio")
        metrics = description.get("metrics", ["accuracy"] if scheme == "plain" else ["precision", "recall", "f1"])
        self.keys = description.get("word", "words"), description.get("tag", "tags")  # of JSONL
        word, tag = (value if isinstance(value, int) else default
                     for value, default in zip((description.get("word"), description.get("tag")), (0, -1)))  # fmt: skip
        super().__init__(config, name, tokenizer, scheme, description.get("labels"), metrics, word, tag)

    def read_sentences(self, path: str) -> list[list[tables.Token]]:
        if self.format(path) == "conll":
            if named := [key for key in ("word", "tag") if isinstance(self.description.get(key), str)]:
                raise UserError(f'custom task "{self.name}": "{named[0]}" must be a number: {path} has columns')
            return super().read_sentences(path)
        table = tables.Table(path, "jsonl", False, tables.DEBUG_SENTENCES if self.config.debug else 0)
        sentences = []
        for row in table.rows:
            try:
                sentences.append(self._tokens(table, row))
            except tables.MalformedRow as error:
                table.malformed.add(row.line, str(error), row.fields)
        table.malformed.check(table.total)
        return sentences

    def _tokens(self, table: tables.Table, row: tables.Row) -> list[tables.Token]:
        word_key, tag_key = self.keys
        columns = [table.field(row, key) for key in self.keys if key == word_key or key in row.fields]
        for key, values in zip(self.keys, columns):
            if not (isinstance(values, list) and values and all(isinstance(value, str) for value in values)):
                raise tables.MalformedRow(f'"{key}" is not a list of texts')
        if len(columns) == 2 and len(columns[0]) != len(columns[1]):
            raise tables.MalformedRow(f'{len(columns[0])} in "{word_key}", {len(columns[1])} in "{tag_key}"')
        return [tables.Token(row.line, list(values)) for values in zip(*columns)]


_CLASSES = {"classification": CustomClassification, "regression": CustomRegression, "tagging": CustomTagging,
            "qa": CustomQA}  # fmt: skip
