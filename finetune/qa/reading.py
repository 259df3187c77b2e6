"""Reading questions: SQuAD's JSON and MRQA's JSONL, labelled or not."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from finetune.qa.examples import Answer, AnswerNotFound, Paragraph, QAExample, locate
from finetune.tables import MOST_MALFORMED, SHOWN, note, read_text, refused
from util.errors import UserError

DEBUG_LINES = 11  # of JSONL, its header among them, in debug runs; of JSON, paragraphs
_SURROGATES = re.compile("[\ud800-\udfff]")  # lone ones can be written in JSON, but not in UTF-8

Place = str  # where something is in a file, such as "line 3, question 2"


class _Malformed(Exception):
    """Says what is wrong with a paragraph or a question."""


class _Skipped:
    """What was skipped for one reason: counted, the first ones kept to be shown."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, line: str) -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(f"  {line}")

    def shown(self) -> str:
        return "\n".join(self.first)


class _Labels(NamedTuple):
    """What a file tells of a question's answers: the first one with its offset, all of them, and whether it has none.

    `golds` is None where the file does not tell.
    """

    first: tuple[str, int] | None
    golds: tuple[str, ...] | None
    is_impossible: bool


class QuestionReader:
    """Reads one file of questions.

    Args:
      path: SQuAD's JSON, or MRQA's JSONL where the name ends in .jsonl.
      unanswerable: some questions have no answer in the text, as in SQuAD 2.0.
      training: answers are looked for in the text, and questions whose answer is not there are skipped.
      most_paragraphs: where reading ends; 0 for the end of the file.
    """

    def __init__(self, path: str, unanswerable: bool, training: bool, most_paragraphs: int = 0):
        self.path, self.unanswerable, self.training, self.most = path, unanswerable, training, most_paragraphs
        self.is_mrqa = path.endswith(".jsonl")
        self.paragraphs = self.questions = 0
        self.bad_paragraphs, self.bad_questions = _Skipped(), _Skipped()
        self.not_found, self.repeated = _Skipped(), _Skipped()
        self.places: dict[str, Place] = {}  # of the questions' ids

    def examples(self) -> list[QAExample]:
        """All questions in order; what was skipped is counted and noted.

        Raises:
          UserError: the file cannot be read, is not of its format, holds no question, is malformed in more than one
            paragraph or question of a hundred, or, where predictions are keyed by it, lacks or repeats an id.
        """
        examples: list[QAExample] = []
        for place, content in self._mrqa() if self.is_mrqa else self._squad():
            self.paragraphs += 1
            try:
                paragraph, questions = Paragraph(_text(content, "context")), _list(content, "qas")
            except _Malformed as error:
                self.bad_paragraphs.add(f"{place}: {error}")
                continue
            for number, question in enumerate(questions, 1):
                self.questions += 1
                example = self._example(len(examples), f"{place}, question {number}", paragraph, question)
                if example:
                    examples.append(example)
        self._report(len(examples))
        return examples

    # -----------------------------------------------------------------------------------------------------------------
    # Paragraphs

    def _squad(self) -> Iterator[tuple[Place, Any]]:
        try:
            content = json.loads(read_text(self.path))
        except ValueError as error:
            raise UserError(f"{self.path} is not valid JSON: {error}") from error
        except RecursionError as error:
            raise UserError(f"{self.path} is nested too deeply for a file of questions") from error
        try:
            articles = _list(content, "data")
        except _Malformed as error:
            raise UserError(
                f'{self.path} is not in SQuAD\'s format: {error}; expected {{"data": [{{"paragraphs": [{{"context": '
                '"...", "qas": [{"id": "...", "question": "...", "answers": [...]}]}]}]}'
            ) from error
        count = 0
        for number, article in enumerate(articles, 1):
            try:
                paragraphs = _list(article, "paragraphs")
            except _Malformed as error:
                self.paragraphs += 1
                self.bad_paragraphs.add(f"article {number}: {error}")
                continue
            for inner, paragraph in enumerate(paragraphs, 1):
                if self.most and count >= self.most:
                    return
                count += 1
                yield f"article {number}, paragraph {inner}", paragraph

    def _mrqa(self) -> Iterator[tuple[Place, Any]]:
        lines = read_text(self.path).rstrip("\n").split("\n")
        for number, line in enumerate(lines[: self.most] if self.most else lines, 1):
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                if line.strip():
                    self.paragraphs += 1
                    self.bad_paragraphs.add(f"line {number}: not JSON: {line[:80]}")
                continue
            if not (isinstance(content, dict) and "header" in content):
                yield f"line {number}", content

    # -----------------------------------------------------------------------------------------------------------------
    # Questions

    def _example(self, eid: int, place: Place, paragraph: Paragraph, content: Any) -> QAExample | None:
        try:
            question = _text(content, "question")
            labels = self._mrqa_labels(content) if self.is_mrqa else self._squad_labels(content)
            if self.training and not labels.is_impossible and labels.first is None:
                raise _Malformed("no answer to train on")
        except _Malformed as error:
            self.bad_questions.add(f"{place}: {error}")
            return None
        name = self._id(content, place)
        if not self.training:
            return QAExample(eid, name, question, paragraph, golds=labels.golds)
        answer: Answer | None = None
        if not labels.is_impossible:
            try:
                answer = locate(paragraph, *labels.first)
            except AnswerNotFound as error:
                self.not_found.add(f"{place}: {error}")
                return None
        return QAExample(eid, name, question, paragraph, answer, labels.is_impossible, labels.golds)

    def _id(self, content: dict, place: Place) -> str | None:
        key = "qid" if self.is_mrqa else "id"
        name = content.get(key)
        if name is None or name == "":
            if self.training:
                return None
            raise UserError(f'{self.path}, {place} has no "{key}"; predictions are keyed by it, so give it one')
        name = _SURROGATES.sub("\ufffd", name if isinstance(name, str) else json.dumps(name))
        if name in self.places:
            if not self.training:
                raise UserError(
                    f'{self.path}: {place} has the "{key}" {name!r} of {self.places[name]}; predictions are keyed by '
                    "it, so remove one of the two or give it another"
                )
            self.repeated.add(f"{place}: {name!r}, also in {self.places[name]}")
        self.places.setdefault(name, place)
        return name

    def _squad_labels(self, content: dict) -> _Labels:
        told = content.get("is_impossible")
        answers = [] if content.get("answers") is None else _list(content, "answers")
        golds = tuple(_text(answer, "text") for answer in answers)
        is_impossible = self.unanswerable and bool(not golds if told is None else told)
        first = (golds[0], _offset(answers[0].get("answer_start"))) if golds and self.training else None
        told_all = "answers" in content and (golds or self.unanswerable)
        return _Labels(first, golds if told_all or is_impossible and told else None, is_impossible)

    def _mrqa_labels(self, content: dict) -> _Labels:
        answers = [] if content.get("answers") is None else _list(content, "answers")
        if not all(isinstance(answer, str) for answer in answers):
            raise _Malformed('"answers" are not all texts')
        golds = tuple(_SURROGATES.sub("\ufffd", answer) for answer in answers)
        told = content.get("is_impossible")
        detected = _list(content, "detected_answers") if content.get("detected_answers") and self.training else []
        is_impossible = self.unanswerable and bool(not (golds or detected) if told is None else told)
        first = None
        if detected:
            try:
                offset = detected[0]["char_spans"][0][0]
            except (LookupError, TypeError) as error:
                raise _Malformed('the first of "detected_answers" has no "char_spans"') from error
            first = _text(detected[0], "text"), _offset(offset)
        told_all = "answers" in content and (golds or self.unanswerable)
        return _Labels(first, golds if told_all or is_impossible and told else None, is_impossible)

    # -----------------------------------------------------------------------------------------------------------------
    # What is noted

    def _report(self, found: int) -> None:
        for skipped, total, what in (
            (self.bad_paragraphs, self.paragraphs, "paragraphs"),
            (self.bad_questions, self.questions, "questions"),
        ):
            if skipped.count > MOST_MALFORMED * total:
                raise refused(
                    self.path,
                    f"{self.path}: {skipped.count} of {total} {what} are malformed, more than {MOST_MALFORMED:.0%}; "
                    f"mend or remove them. The first:\n{skipped.shown()}",
                )
            if skipped.count:
                self._note(f"{skipped.count} of {total} {what} are malformed and skipped:\n{skipped.shown()}")
        number = f"{self.not_found.count} of {self.questions}"
        lost = f"the answers to {number} questions are not in the text where they should be"
        if not found and self.not_found.count:
            raise refused(
                self.path,
                f"{self.path}: {lost}, and no other question can be used; mend the answers' texts or "
                f"places (characters from the beginning of the context, from 0). The first:\n{self.not_found.shown()}",
            )
        if self.not_found.count:
            self._note(f"{lost}; these are not trained on, such as\n{self.not_found.shown()}")
        if self.repeated.count:
            self._note(f"{self.repeated.count} ids of questions are there twice:\n{self.repeated.shown()}")
        if not found:
            raise refused(
                self.path,
                f"{self.path}: not one question was found in {self.paragraphs} paragraphs that can be used; "
                + ("expected lines of MRQA's JSONL" if self.is_mrqa else "expected SQuAD's JSON"),
            )

    def _note(self, message: str) -> None:
        note(self.path, f"{self.path}: {message}")


def _list(content: Any, name: str) -> list:
    value = content.get(name) if isinstance(content, dict) else None
    if not isinstance(value, list):
        raise _Malformed(f'no list "{name}"')
    return value


def _text(content: Any, name: str) -> str:
    value = content.get(name) if isinstance(content, dict) else None
    if not isinstance(value, str):
        raise _Malformed(f'no text "{name}"')
    return _SURROGATES.sub("\ufffd", value)


def _offset(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Malformed(f"an answer's place is not a number of characters but {value!r}")
    return value
