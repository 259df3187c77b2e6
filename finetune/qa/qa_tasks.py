"""Question answering tasks: SQuAD 2.0 and 1.1, MRQA's sets, and files of one's own in their formats."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from configure_finetuning import FinetuningConfig
from finetune.feature_spec import Features, FeatureSpec
from finetune.qa.answers import AnswerCollector
from finetune.qa.examples import QAExample
from finetune.qa.qa_scorer import QAScorer, answers_by_id
from finetune.qa.reading import DEBUG_LINES, QuestionReader
from finetune.qa.windows import Featurizer, WindowSettings
from finetune.tables import one_of_files
from finetune.task import Metric, Outputs, Task
from model.tokenization import FullTokenizer
from util import filesystem
from util.errors import UserError
from util.files import write_json

if TYPE_CHECKING:
    from model.modeling import Initializer, NamedLayer

RANDOM_SPANS_F1 = 7.0  # measured: 5.8 to 6.7 on SQuAD's paragraphs


class QATask(Task):
    """Questions about paragraphs; the answer is a span of the text.

    The base reads `<split>.json` in SQuAD's format; a subclass says more. `unanswerable`: some questions have no answer
    in the text.

    Raises:
      UserError: sizes of windows that leave no room.
    """

    kind = "qa"
    unanswerable = False
    ending = ".json"

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer):
        super().__init__(config, name, tokenizer)
        _check(config)
        settings = WindowSettings(config.max_seq_length, config.max_query_length, config.doc_stride)
        self.featurizer = Featurizer(name, tokenizer, settings)
        self._examples: dict[str, list[QAExample]] = {}  # of splits that are evaluated or predicted

    def __getstate__(self) -> dict[str, Any]:
        """Processes that make features get their examples; they need no others."""
        return self.__dict__ | {"_examples": {}}

    @property
    def metric(self) -> Metric:
        """F1 of the answers' words."""
        return Metric("f1", chance=self.chance)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Those that there are whatever the questions are."""
        return ("exact", "f1", "best_exact", "best_f1") if self.unanswerable else ("exact_match", "f1")

    @property
    def chance(self) -> float | None:
        """F1 of random spans, or of no answer at all where that may be right.

        None before the dev split was read, and where none of its questions has an answer.
        """
        if not self.unanswerable:
            return RANDOM_SPANS_F1
        dev = self._examples.get("dev")
        if not dev or not any(example.golds for example in dev):
            return None
        return 100.0 * sum(not example.golds for example in dev) / len(dev)

    @property
    def feature_specs(self) -> list[FeatureSpec]:
        """The window's number, which the scorer needs, and where the answer is in it."""
        names = ("start_positions", "end_positions", "is_impossible")
        specs = [FeatureSpec(f"{self.name}_{name}") for name in names]
        return [FeatureSpec(f"{self.name}_eid", on_device=False), *specs]

    def files(self, split: str) -> list[str]:
        """The split's file; in debug runs SQuAD's has `-debug` in its name."""
        path = self.path(split)
        if not filesystem.isfile(path):
            folder = os.path.dirname(path)
            there = ", ".join(sorted(filesystem.listdir(folder))) if filesystem.isdir(folder) else "no such folder"
            raise UserError(
                f"task {self.name}: the file {path} of the split {split!r} is missing; expected "
                f"{self.path('train')} and {self.path('dev')}, and for predictions a file for their split; "
                f"in {folder}: {there or 'nothing'}"
            )
        return [path]

    def path(self, split: str) -> str:
        """Where a split's file is expected."""
        debug = "-debug" if self.config.debug and self.ending == ".json" else ""
        return os.path.join(self.config.raw_data_dir(self.name), f"{split}{debug}{self.ending}")

    @property
    def most_paragraphs(self) -> int:
        """Where reading ends; 0 for the end of the file."""
        return DEBUG_LINES if self.config.debug and self.ending == ".jsonl" else 0

    def examples(self, split: str) -> list[QAExample]:
        """The split's questions, in training those with an answer in the text or that have none at all."""
        if split in self._examples:
            return self._examples[split]
        (path,) = self.files(split)
        training = split == "train"
        examples = QuestionReader(path, self.unanswerable, training, self.most_paragraphs).examples()
        if split in self.evaluation_splits and self.config.evaluates:
            self._check_answers(path, examples)
        if not training:
            self._examples[split] = examples
        return examples

    def _check_answers(self, path: str, examples: list[QAExample]) -> None:
        unlabelled = [example for example in examples if example.golds is None]
        if unlabelled:
            hint = "" if self.unanswerable else "; if the text need not hold an answer, this is a task like squad"
            raise UserError(
                f"{path}: {len(unlabelled)} of {len(examples)} questions, the first {unlabelled[0].id!r}, have no "
                f'"answers" to evaluate with; for predictions alone pass do_eval false and do_predict true{hint}'
            )

    def featurize(self, example: QAExample, is_training: bool) -> list[Features]:
        """The features of each window over the paragraph."""
        return self.featurizer.features(example)

    def shown(self, example: QAExample) -> tuple[str, str]:
        """The question and the text; the answer, or all that count as right."""
        text = f"{example.question} | {example.paragraph.text}"
        if example.answer:
            return text, example.answer.text
        golds = dict.fromkeys(example.golds or ())
        return text, " | ".join(golds) or ("" if example.golds is None else "(no answer)")

    def label_counts(self, examples: list[QAExample]) -> dict[str, int]:
        """How many questions have an answer in the text, where some have none."""
        labelled = [example for example in examples if example.golds is not None]
        if not self.unanswerable or not labelled:
            return {}
        answered = sum(bool(example.golds) and not example.is_impossible for example in labelled)
        return {"with an answer": answered, "without": len(labelled) - answered}

    def is_cut(self, example: QAExample, features: list[Features]) -> bool:
        """Whether the question was cut, or no window holds the answer whole."""
        if len(self.tokenizer.encode(example.question)) > self.featurizer.settings.longest_question:
            return True
        return bool(example.answer) and not any(window[f"{self.name}_start_positions"] for window in features)

    def make_head(self, hidden_size: int, init: "Initializer") -> "NamedLayer":
        """Start, end, and for SQuAD 2.0 whether there is an answer."""
        from finetune.qa.qa_heads import QAHead

        return QAHead(self.name, hidden_size, self.config, self.unanswerable, init)

    def scorer(self, split: str) -> QAScorer:
        """Exact match and F1, of SQuAD 2.0 or 1.1."""
        examples = self.examples(split)
        return QAScorer(self.name, self.config, self.unanswerable, self.collector(examples))

    def collector(self, examples: list[QAExample]) -> AnswerCollector:
        """Takes windows' outputs and gives answers."""
        return AnswerCollector(self.featurizer, self.config, self.unanswerable, examples)

    def shaped_by(self) -> dict[str, Any]:
        """Sizes of the windows, and which questions are read."""
        return {
            "max_query_length": self.config.max_query_length,
            "doc_stride": self.config.doc_stride,
            "unanswerable": self.unanswerable,
            "most_paragraphs": self.most_paragraphs,
        }

    def described(self) -> dict[str, Any]:
        """What the head's layers depend on."""
        names = ("joint_prediction", "answerable_classifier", "answerable_uses_start_logits")
        return {
            "kind": self.kind,
            "unanswerable": self.unanswerable,
            **{name: getattr(self.config, name) for name in names},
        }

    def write_predictions(self, split: str, rows: Iterable[tuple[Features, Outputs]], path: str) -> list[str]:
        """Writes {id: answer} as `path`.json.

        Where questions may be unanswerable, the answer is "" if its null odds are above qa_na_threshold, and the odds
        go to `path`_null_odds.json.
        """
        collector = self.collector(self.examples(split))
        for features, outputs in rows:
            collector.update(int(features[f"{self.name}_eid"]), outputs)
        answers, null_odds = answers_by_id(collector)
        if self.unanswerable:
            kept = {name: "" if null_odds[name] > self.config.qa_na_threshold else answers[name] for name in answers}
            write_json(f"{path}.json", kept)
            write_json(f"{path}_null_odds.json", null_odds)
            return [f"{path}.json", f"{path}_null_odds.json"]
        write_json(f"{path}.json", answers)
        return [f"{path}.json"]


class SQuAD(QATask):
    """SQuAD 2.0: train.json and dev.json."""

    unanswerable = True


class SQuADv1(QATask):
    """SQuAD 1.1: train.json and dev.json."""


class MRQA(QATask):
    """A set of the MRQA shared task, such as newsqa: train.jsonl and dev.jsonl."""

    ending = ".jsonl"


class CustomQA(QATask):
    """One's own questions, in SQuAD's JSON or MRQA's JSONL.

    Args:
      description: an entry of custom_tasks: "train", "dev", "test" are paths, absolute or below the task's folder (the
        split's name with .json or .jsonl where none is given); "unanswerable", false where not given; "metrics", of
        which the first one is what runs are judged by.

    Raises:
      UserError: for a wrong description.
    """

    def __init__(self, config: FinetuningConfig, name: str, tokenizer: FullTokenizer, description: dict[str, Any]):
        super().__init__(config, name, tokenizer)
        unanswerable = description.get("unanswerable", False)
        if not isinstance(unanswerable, bool):
            raise UserError(f'custom task {name}: "unanswerable" must be true or false, got {unanswerable!r}')
        self.unanswerable, self.description = unanswerable, description
        metrics = description.get("metrics") or ["f1"]
        known = ("f1", "exact") if unanswerable else ("f1", "exact_match")
        if not isinstance(metrics, list) or not all(name in known for name in metrics):
            raise UserError(f'custom task {name}: "metrics" must be some of {", ".join(known)}, got {metrics!r}')
        self.first_metric = metrics[0]
        for split in ("train", "dev", "test"):
            path = description.get(split)
            if path is not None and not (isinstance(path, str) and path.endswith((".json", ".jsonl"))):
                raise UserError(f'custom task {name}: "{split}" must be a .json or .jsonl file, got {path!r}')
            self.path(split)  # one file of several that could be it is an error

    @property
    def metric(self) -> Metric:
        """The first of "metrics", else F1."""
        return super().metric._replace(name=self.first_metric)

    def path(self, split: str) -> str:
        """The described file, or the one in the task's folder that is called like the split.

        Raises:
          UserError: there are two that are called so.
        """
        folder = self.config.raw_data_dir(self.name)
        if self.description.get(split):
            return os.path.join(folder, self.description[split])
        return os.path.join(folder, one_of_files(folder, split, [split + ending for ending in (".json", ".jsonl")]))

    @property
    def most_paragraphs(self) -> int:
        """A few in debug runs, whatever the format."""
        return DEBUG_LINES if self.config.debug else 0


def _check(config: FinetuningConfig) -> None:
    """Raises a `UserError` for sizes that no window fits in."""
    least = {"max_seq_length": 5, "max_query_length": 0, "doc_stride": 1, "n_best_size": 1, "max_answer_length": 1}
    for name, value in least.items():
        if getattr(config, name) < value:
            raise UserError(
                f"hparam {name} must be at least {value} for question answering, got {getattr(config, name)}"
            )
    if config.joint_prediction and config.beam_size < 1:
        raise UserError(f"hparam beam_size must be at least 1, got {config.beam_size}")
