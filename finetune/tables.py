"""Reading task files: TSV, CSV, JSONL and CoNLL columns.

Lines end at LF, every CR and a byte order mark are dropped, and so are bytes that are not UTF-8 (they are counted). A
malformed row is skipped, counted and shown; too many of them are an error. What reading a file tells is kept by its
path until the file is read again: it is said when features are made or come from the cache, however often and from
wherever the file is read.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from util import filesystem
from util.errors import UserError, nearest_hint

FORMATS = {"tsv": "tsv", "csv": "csv", "jsonl": "jsonl", "json": "jsonl", "txt": "conll", "conll": "conll"}
MOST_MALFORMED = 0.01  # the share of malformed rows above which a file is refused
_SURROGATES = re.compile("[\ud800-\udfff]")
SHOWN = 3  # malformed rows that are shown
DEBUG_LINES = 100  # of a table, in debug runs
DEBUG_SENTENCES = 101
_notes: dict[str, list[str]] = {}  # by path


def notes_on(path: str) -> list[str]:
    """What the last reading of a file told: bytes that were dropped, rows that were skipped."""
    return list(_notes.get(path, ()))


def note(path: str, message: str) -> None:
    """Keeps what the reading of a file tells."""
    _notes.setdefault(path, []).append(message)


def refused(path: str, message: str) -> UserError:
    """The error of a file that cannot be used, with what its reading told before: that may be the cause."""
    return UserError("\n".join([message, *notes_on(path)]))


class MalformedRow(Exception):
    """A row that does not hold what is looked for in it; says what is missing."""


class Row(NamedTuple):
    """A row of data: its number, counted from 0 without the header; its line in the file, from 1; its fields."""

    number: int
    line: int
    fields: list[str] | dict[str, Any]


class Malformed:
    """The malformed rows of a file: counted, the first ones kept to be shown."""

    def __init__(self, path: str):
        self.path, self.count = path, 0
        self.first: list[str] = []

    def add(self, line: int, why: str, content: Any = None) -> None:
        """Notes one."""
        self.count += 1
        if len(self.first) < SHOWN:
            text = "" if content is None else f": {str(content)[:80]}"
            self.first.append(f"  line {line}: {why}{text}")

    def check(self, rows: int) -> None:
        """Notes what was skipped of so many rows.

        Raises:
          UserError: it was too much.
        """
        if not self.count:
            return
        shown = "\n".join(self.first)
        found = f"{self.path}: {self.count} of {rows} rows {'is' if self.count == 1 else 'are'} malformed"
        if self.count > MOST_MALFORMED * rows:
            most = f"{MOST_MALFORMED:.0%}"
            raise refused(
                self.path, f"{found}, more than {most}; mend or remove them, or check the columns. The first:\n{shown}"
            )
        note(self.path, f"{found} and skipped, such as\n{shown}")


class Table:
    """The rows of a TSV, CSV or JSONL file, and its columns by name or number.

    Args:
      path: the file.
      kind: tsv, csv or jsonl.
      has_header: whether the first row names the columns.
      most_lines: where reading ends; 0 for the end of the file.

    Raises:
      UserError: it cannot be read, a CSV file's quotes do not match, or JSONL is one JSON array.
    """

    def __init__(self, path: str, kind: str, has_header: bool, most_lines: int = 0):
        self.path, self.kind = path, kind
        self.malformed = Malformed(path)
        self.header: list[str] | None = None
        readers = {"tsv": _tsv_rows, "csv": _csv_rows, "jsonl": self._jsonl_rows}
        rows = list(readers[kind](path, read_text(path), most_lines))
        if has_header and kind != "jsonl" and rows:
            self.header = rows.pop(0).fields
            rows = [Row(number - 1, line, fields) for number, line, fields in rows]
        self.rows = rows
        self.total = len(rows) + self.malformed.count  # rows, malformed ones too

    def check(self) -> None:
        """Notes what was skipped.

        Raises:
          UserError: it was too much, or there are no rows.
        """
        self.malformed.check(self.total)
        if not self.total:
            below = " below the header" if self.header is not None else ""
            raise refused(self.path, f"{self.path} holds no rows{below}; expected one for each example")

    def _jsonl_rows(self, path: str, text: str, most_lines: int) -> Iterator[Row]:
        if text.lstrip().startswith("[") and _is_array(text):
            raise UserError(f"{path} is a JSON array; expected JSONL: an object a line, without brackets and commas "
                            "around")  # fmt: skip
        for number, line in enumerate(_lines(text, most_lines)):
            try:
                fields = parse_json(line)
            except (ValueError, RecursionError):
                self.malformed.add(number + 1, "not JSON", line)
                continue
            if isinstance(fields, dict):
                yield Row(number, number + 1, fields)
            else:
                self.malformed.add(number + 1, "a JSON value, but not an object", line)

    def has(self, column: str | int) -> bool:
        """Whether the file has a column: in its header, or else in its first row."""
        if self.header is not None and isinstance(column, str):
            return column in self.header
        if not self.rows:
            return False
        fields = self.header or self.rows[0].fields
        return column in fields if isinstance(fields, dict) else -len(fields) <= column < len(fields)

    def resolve(self, column: str | int) -> str | int:
        """A column as a key of its rows' fields: a position, or for JSONL a name.

        Raises:
          UserError: the header does not have it.
        """
        if self.kind == "jsonl":
            names = list(dict.fromkeys(name for row in self.rows[:100] for name in row.fields))
            if not isinstance(column, str):
                raise UserError(f"{self.path} is JSONL: its columns have names, not numbers; got {column}")
            if column in names or any(column in row.fields for row in self.rows):
                return column
        elif isinstance(column, int):
            return column
        elif self.header is None:
            raise UserError(f'{self.path} is read without a header: the column "{column}" must be a number from 0')
        elif column in self.header:
            if self.header.count(column) > 1:
                places = ", ".join(str(i) for i, name in enumerate(self.header) if name == column)
                raise UserError(f'{self.path} has several columns "{column}" ({places}, counted from 0); rename one, '
                                "or give the column's number")  # fmt: skip
            return self.header.index(column)
        else:
            names = self.header
        hint = nearest_hint(column, names) or "."
        raise UserError(f'{self.path} has no column "{column}"{hint} Its columns: {", ".join(names)}')

    def field(self, row: Row, column: str | int) -> Any:
        """What a row holds in a column (as `resolve` gives it).

        Raises:
          MalformedRow: nothing.
        """
        fields = row.fields
        if isinstance(fields, dict):
            if fields.get(column) is None:
                raise MalformedRow(f'"{column}" is missing')
            return fields[column]
        if not -len(fields) <= column < len(fields):
            raise MalformedRow(f"{len(fields)} columns, column {column} is missing")
        return fields[column]

    def text(self, row: Row, column: str | int) -> str:
        """A column's text; numbers of JSONL are turned into text."""
        value = self.field(row, column)
        if isinstance(value, str):
            return value
        if isinstance(value, (int, float)):
            return json.dumps(value)
        raise MalformedRow(f'"{column}" is not a text')


def parse_json(line: str) -> Any:
    """What a line of JSONL holds; halves of surrogate pairs, which UTF-8 cannot write, become U+FFFD."""
    value = json.loads(line)
    if "\\ud" in line.lower():
        value = json.loads(_SURROGATES.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    return value


def _is_array(text: str) -> bool:
    """Whether a text that begins with a bracket is one JSON array with objects in it."""
    try:
        return any(isinstance(value, dict) for value in json.loads(text))
    except (ValueError, RecursionError):
        return False


def read_text(path: str) -> str:
    """A file's text; bytes that are not UTF-8 are dropped, and their number is noted.

    Raises:
      UserError: it cannot be read.
    """
    _notes[path] = []
    try:
        with filesystem.open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    text = data.decode("utf-8", "ignore")
    if invalid := len(data) - len(text.encode("utf-8")):
        note(path, f"{path}: {invalid} bytes are not UTF-8 and dropped; convert the file if this is not its encoding")
    return text.removeprefix("\ufeff").replace("\r", "")


def _lines(text: str, most_lines: int) -> list[str]:
    """The lines of a text; blank ones at its end do not count."""
    lines = text.rstrip("\n").split("\n") if text else []
    return lines[:most_lines] if most_lines else lines


def _tsv_rows(path: str, text: str, most_lines: int) -> Iterator[Row]:
    for number, line in enumerate(_lines(text, most_lines)):
        yield Row(number, number + 1, line.split("\t") if line else [])


def _csv_rows(path: str, text: str, most_lines: int) -> Iterator[Row]:
    csv.field_size_limit(1 << 30)
    reader = csv.reader(io.StringIO(text.rstrip("\n"), newline=""), strict=True)
    line = number = 0
    while not most_lines or number < most_lines:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{path} is not valid CSV: the row that begins in line {line + 1}: {error}") from error
        yield Row(number, line + 1, fields)
        line, number = reader.line_num, number + 1


def one_of_files(folder: str, split: str, names: Sequence[str]) -> str:
    """The name of a split's file among those that it may have: the one that is there, else the first.

    Raises:
      UserError: several are there.
    """
    there = [name for name in names if filesystem.isfile(os.path.join(folder, name))]
    if len(there) > 1:
        raise UserError(f'{folder} holds {" and ".join(there)}, and each could be the split {split}; name one in the '
                        f'task\'s "{split}", or move the others away')  # fmt: skip
    return (there or list(names))[0]


def format_of(path: str) -> str | None:
    """The format that a file's ending stands for; None where it is not known."""
    return FORMATS.get(os.path.splitext(path)[1].lstrip(".").lower())


# ---------------------------------------------------------------------------------------------------------------------
# CoNLL columns


class Token(NamedTuple):
    """A line of a CoNLL file: its number in the file, from 1, and its columns."""

    line: int
    columns: list[str]


def read_conll(path: str, most_sentences: int = 0, keep_open_end: bool = True) -> list[list[Token]]:
    """The sentences of a file of columns: a word a line, a blank line after each sentence.

    Columns are split at tabs where a line holds one, at white space otherwise. Lines with -DOCSTART- are skipped. A
    line with another number of columns than the file's first is malformed.

    Args:
      most_sentences: where reading ends; 0 for the end of the file.
      keep_open_end: a last sentence without a blank line after it counts.

    Raises:
      UserError: it cannot be read, or too many lines are malformed.
    """
    malformed = Malformed(path)
    sentences: list[list[Token]] = [[]]
    rows, width = 0, 0
    for number, line in enumerate(read_text(path).removesuffix("\n").split("\n"), 1):
        if not line.strip():
            if len(sentences) == most_sentences and sentences[-1]:
                break
            if sentences[-1]:
                sentences.append([])
            continue
        stripped = line.strip(" ")
        columns = [column.strip(" ") for column in stripped.split("\t")] if "\t" in stripped else stripped.split()
        if columns[0] == "-DOCSTART-":
            continue
        rows, width = rows + 1, width or len(columns)
        if len(columns) == width:
            sentences[-1].append(Token(number, columns))
        else:
            malformed.add(number, f"{len(columns)} columns, {width} before", line)
    malformed.check(rows)
    if sentences[-1] and not keep_open_end and len(sentences) != most_sentences:
        sentences.pop()
    return [sentence for sentence in sentences if sentence]
