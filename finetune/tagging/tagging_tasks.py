"""Tasks that give every word of a sentence a tag."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from configure_finetuning import FinetuningConfig
from finetune import submissions
from finetune.classification.classification_tasks import expected_file
from finetune.feature_spec import LENGTH, Features, FeatureSpec
from finetune.tables import DEBUG_SENTENCES, Token, read_conll
from finetune.tagging.spans import is_tag, spans_of, tags_of
from finetune.tagging.tagging_metrics import TaggingScorer
from finetune.task import Metric, Outputs, Scorer, Task
from model.tokenization import (
    CLS,
    SEP,
    FullTokenizer,
    is_cjk,
    is_deleted,
    is_punctuation,
    is_space,
    without_accents,
    word_pieces,
)
from util import filesystem
from util.errors import UserError
from util.files import read_json, write_json, writing
from util.log import say

if TYPE_CHECKING:
    from model.modeling import Initializer, NamedLayer


class Sentence(NamedTuple):
    """A sentence: its number, counted from 0, its words, and the label of each (BIOES); None where unknown."""

    eid: int
    words: list[str]
    labels: list[str] | None


class TaggingTask(Task):
    """A task on words, read from CoNLL columns.

    Args:
      scheme: of the tags in its files, one of `spans.SCHEMES`.
      classes: of the spans (of the words, where `scheme` is plain); None: those in the files of all splits.
      metrics: names of `tagging_metrics`; runs are judged by f1 where it is among them, else by the first.
      word, tag: the columns.

    With `released_quirks` text is always lower-cased, a last sentence without a blank line after it is dropped, long
    sentences are cut too early (see `_fits`), and losses are reported doubled.
    """

    kind = "tagging"

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer, scheme: str = "bio",
                 classes: Sequence[str] | None = None, metrics: Sequence[str] = ("precision", "recall", "f1"),
                 word: int = 0, tag: int = -1):  # fmt: skip
        if config.released_quirks and not tokenizer.do_lower_case:
            tokenizer = FullTokenizer(tokenizer.vocabulary)
        super().__init__(config, name, tokenizer)
        self.scheme, self.classes, self.metrics, self.word, self.tag = scheme, classes, metrics, word, tag
        self._read: dict[str, list[Sentence]] = {}
        self._special = {CLS: [tokenizer.vocab[CLS]], SEP: [tokenizer.vocab[SEP]]}

    @property
    def metric(self) -> Metric:
        if "f1" not in self.metrics:
            return Metric(self.metrics[0])
        dev = self._read.get("dev", ())
        no_spans = self.scheme != "plain" and all(set(example.labels or "O") == {"O"} for example in dev)
        return Metric("f1", chance=None if dev and no_spans else 0.0)

    @property
    def metric_names(self) -> Sequence[str]:
        return self.metrics

    @property
    def feature_specs(self) -> list[FeatureSpec]:
        return [
            FeatureSpec(f"{self.name}_eid"),
            FeatureSpec(f"{self.name}_labels", (LENGTH,)),
            FeatureSpec(f"{self.name}_labels_mask", (LENGTH,), is_int=False),
            FeatureSpec(f"{self.name}_labeled_positions", (LENGTH,)),
        ]

    # ---- sentences and labels --------------------------------------------------------------------------------------

    def file_names(self) -> dict[str, str]:
        """The name of each split's file."""
        return {split: f"{split}.txt" for split in ("train", *self.evaluation_splits, *self.test_splits)}

    def files(self, split: str) -> list[str]:
        names = self.file_names()
        if split not in names:
            raise UserError(f'{self.name} has no split "{split}"; it has: {", ".join(names)}')
        return [expected_file(self.config.raw_data_dir(self.name), names[split], names.values())]

    def read_sentences(self, path: str) -> list[list[Token]]:
        """The sentences of a file: tokens with their columns."""
        most = DEBUG_SENTENCES if self.config.debug else 0
        return read_conll(path, most, keep_open_end=not self.config.released_quirks)

    def examples(self, split: str) -> list[Sentence]:
        if split not in self._read:
            sentences: list[Sentence] = []
            for path in self.files(split):
                for tokens in self.read_sentences(path):
                    sentences.append(self._sentence(len(sentences), tokens, path, split in self.test_splits))
                if not sentences:
                    raise UserError(f"{path} holds no sentences; expected a word and its tag a line")
            self._read[split] = sentences
        return self._read[split]

    def _sentence(self, eid: int, tokens: list[Token], path: str, may_lack_tags: bool) -> Sentence:
        width = len(tokens[0].columns)
        for column, what in ((self.word, "word"), (self.tag, "tag")):
            if not -width <= column < width:
                if what == "tag" and may_lack_tags:
                    return Sentence(eid, [token.columns[self.word] for token in tokens], None)
                raise UserError(f"{path}, line {tokens[0].line}: {width} columns, none for the {what} ({column})")
        words = [token.columns[self.word] for token in tokens]
        if width == 1 and may_lack_tags:
            return Sentence(eid, words, None)
        if width == 1:
            raise UserError(f"{path}, line {tokens[0].line} has one column; expected a word and its tag")
        tags = [token.columns[self.tag] for token in tokens]
        for token, tag in zip(tokens, tags):
            if not is_tag(tag, self.scheme):
                raise UserError(f"{path}, line {token.line}: the tag {tag!r} {self._expected_tags(tag)}")
        if self.scheme != "plain":
            tags = tags_of(spans_of(tags, self.scheme), len(tags))
        return Sentence(eid, words, tags)

    def _expected_tags(self, tag: str) -> str:
        if self.scheme == "plain":
            return "holds white space; write it without"
        if self.scheme != "bioes" and is_tag(tag, "bioes"):
            return f'is none of {self.scheme.upper()}; where E- ends spans and S- is one of a single word, give the ' \
                   'custom task "scheme": "bioes"'  # fmt: skip
        prefixes = "B-X, I-X, E-X or S-X" if self.scheme == "bioes" else "B-X or I-X"
        return f"is none of {self.scheme.upper()}; expected O or, for a class X, {prefixes}, without white space"

    @cached_property
    def labels(self) -> list[str]:
        """The labels by their ids: those of all splits, sorted, kept as JSON beside the features."""
        if self.classes is not None:
            prefixes = [""] if self.scheme == "plain" else ["B-", "I-", "E-", "S-"]
            names = {prefix + name for prefix in prefixes for name in self.classes}
            return sorted(names if self.scheme == "plain" else names | {"O"})
        path = os.path.join(self.config.preprocessed_data_dir, f"{self.name}_label_mapping.json")
        there = [split for split in self.file_names() if self._is_there(split)]
        if "train" not in there and filesystem.exists(path):
            return list(read_json(path, "labels"))
        sentences = self.examples("train") + [example for split in there[1:] for example in self.examples(split)]
        labels = sorted({label for sentence in sentences for label in sentence.labels or ()})
        with writing(f"the labels {path}"):
            write_json(path, {label: i for i, label in enumerate(labels)})
        return labels

    def _is_there(self, split: str) -> bool:
        return filesystem.isfile(os.path.join(self.config.raw_data_dir(self.name), self.file_names()[split]))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    # ---- features --------------------------------------------------------------------------------------------------

    def word_ids(self, word: str) -> list[int]:
        """The pieces of a word, as released: [CLS] and [SEP] stay what they are, ideographs are not set apart."""
        if word.isascii() and word.isprintable():
            return self._special.get(word) or self.tokenizer.encode(word)
        cleaned = "".join(" " if is_space(char) else char for char in word if not is_deleted(char))
        if cleaned in self._special:
            return self._special[cleaned]
        if not any(map(is_cjk, cleaned)):
            return self.tokenizer.encode(cleaned)
        if self.tokenizer.do_lower_case:
            cleaned = cleaned.lower()
            if self.tokenizer.strip_accents:
                cleaned = without_accents(cleaned)
        parts = "".join(f" {char} " if is_punctuation(char) else char for char in cleaned).split()
        pieces = [piece for part in parts for piece in word_pieces(part, self.tokenizer.vocab)]
        return self.tokenizer.convert_tokens_to_ids(pieces)

    def featurize(self, example: Sentence, is_training: bool) -> list[Features]:
        """As many whole words as fit; a word without pieces has the position of the next one."""
        ids: list[int] = []
        positions: list[int] = []
        for pieces in (self._special[CLS], *map(self.word_ids, example.words)):
            if not self._fits(len(ids), len(pieces), len(example.words)):
                break
            positions.append(len(ids))
            ids += pieces
        ids += self._special[SEP]
        positions = positions[1 : len(ids) + 1]  # not [CLS]; fewer than there are of many words without pieces
        n = len(positions)
        labels = [self._id(label, example) for label in example.labels[:n]] if example.labels else [0] * n
        return [{
            "input_ids": ids,
            "segment_ids": [1] * len(ids),
            f"{self.name}_eid": example.eid,
            f"{self.name}_labels": labels,
            f"{self.name}_labels_mask": [1.0] * n,
            f"{self.name}_labeled_positions": positions,
        }]  # fmt: skip

    def _fits(self, length: int, pieces: int, words: int) -> bool:
        """Whether a word of some pieces fits behind `length` others, before [SEP].

        The released code asks for room for as many pieces as the sentence has words, [CLS] and [SEP] among them.
        """
        most = self.config.max_seq_length - 1
        return length + pieces <= most and not (self.config.released_quirks and length + words + 2 > most)

    def _id(self, label: str, example: Sentence) -> int:
        if label not in self._ids:
            raise UserError(f"{self.name}: {label} in the sentence {' '.join(example.words)[:80]!r} is none of the "
                            f"labels: {', '.join(self.labels)}")  # fmt: skip
        return self._ids[label]

    def is_cut(self, example: Sentence, features: list[Features]) -> bool:
        return len(features[0][f"{self.name}_labels"]) < len(example.words)

    def shown(self, example: Sentence) -> tuple[str, str]:
        return " ".join(example.words), " ".join(example.labels or ["unknown"])

    def label_counts(self, examples: list[Sentence]) -> dict[str, int]:
        counts = Counter(label for example in examples for label in example.labels or ())
        return dict(sorted(counts.items()))

    def shaped_by(self) -> dict[str, Any]:
        return {"labels": self.labels, "scheme": self.scheme, "word": self.word, "tag": self.tag,
                "released_quirks": self.config.released_quirks}  # fmt: skip

    # ---- head and scores -------------------------------------------------------------------------------------------

    def make_head(self, hidden_size: int, init: "Initializer") -> "NamedLayer":
        from finetune.tagging.tagging_heads import TaggingHead

        return TaggingHead(self.head_name, hidden_size, len(self.labels), init)

    def scorer(self, split: str) -> Scorer:
        return TaggingScorer(self.name, self.labels, self.metrics, 2.0 if self.config.released_quirks else 1.0)

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "labels": self.labels, "scheme": self.scheme}

    def write_predictions(self, split: str, rows: Iterable[tuple[Features, Outputs]], path: str) -> list[str]:
        sentences = {example.eid: example for example in self.examples(split)}
        found, cut = [], 0
        for features, outputs in rows:
            words = sentences[features[f"{self.name}_eid"]].words
            tags = [self.labels[int(label)] for label in outputs["predictions"][: len(features[f"{self.name}_labels"])]]
            if self.scheme != "plain":
                tags = tags_of(spans_of(tags), len(tags), self.scheme)
            cut += len(words) - len(tags)
            found.append((words, tags + ["O"] * (len(words) - len(tags))))
        if cut:
            say(f"{self.name}: {cut} words beyond max_seq_length {self.config.max_seq_length} are written as O")
        return [submissions.write_tags(path + ".txt", found)]


class Chunking(TaggingTask):
    """Text chunking (CoNLL-2000)."""
