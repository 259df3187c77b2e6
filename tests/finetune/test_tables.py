"""Tables: what is read of files as people have them, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.tables import Table, notes_on, read_conll
from util.errors import UserError


def table(tmp_path, kind: str, content: str | bytes, header: bool = True) -> Table:
    path = tmp_path / f"t.{kind}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Table(str(path), kind, header)


def test_tsv_has_no_quotes(tmp_path):
    rows = table(tmp_path, "tsv", 'a\tb\n"x\ty"\n').rows
    assert [(row.number, row.line, row.fields) for row in rows] == [(0, 2, ['"x', 'y"'])]


def test_bom_crlf_and_blank_lines_at_the_end(tmp_path):
    found = table(tmp_path, "tsv", b"\xef\xbb\xbfa\tb\r\nx\ty\r\n\r\n\n")
    assert found.header == ["a", "b"]
    assert [row.fields for row in found.rows] == [["x", "y"]]


def test_invalid_bytes_are_dropped_and_counted(tmp_path):
    found = table(tmp_path, "tsv", "a\tb\ncaf\xe9 \xfc\ty\n".encode("latin-1"))
    assert found.rows[0].fields == ["caf ", "y"]
    (note,) = notes_on(found.path)
    assert "2 bytes are not UTF-8" in note


def test_csv_has_quotes_and_line_numbers(tmp_path):
    found = table(tmp_path, "csv", 'a,b\r\n"x, ""y""\nz",1\r\nu,2\r\n')
    assert [(row.line, row.fields) for row in found.rows] == [(2, ['x, "y"\nz', "1"]), (4, ["u", "2"])]


def test_csv_with_an_open_quote_is_refused(tmp_path):
    with pytest.raises(UserError, match="line 2"):
        table(tmp_path, "csv", 'a,b\n"x,1\ny,2\n')


def test_long_fields(tmp_path):
    text = "word " * 100_000
    assert table(tmp_path, "csv", f"a\n{text}\n").rows[0].fields == [text]


def test_jsonl_skips_what_is_no_object(tmp_path):
    found = table(tmp_path, "jsonl", '{"a": 1}\n[1]\n{"a"\n{"a": "x"}\n')
    assert [(row.number, found.text(row, "a")) for row in found.rows] == [(0, "1"), (3, "x")]
    assert (found.malformed.count, found.total) == (2, 4)


def test_jsonl_with_half_a_surrogate_pair_or_too_deep(tmp_path):
    """The first cannot be written as UTF-8, the second not be parsed."""
    found = table(tmp_path, "jsonl", '{"a": "\\ud83d x \\uD83D\\uDE00"}\n' + "[" * 100_000 + "\n")
    assert [row.fields for row in found.rows] == [{"a": "\ufffd x \U0001f600"}] and found.malformed.count == 1


def test_unknown_column_names_the_nearest(tmp_path):
    with pytest.raises(UserError, match='no column "sentense".*"sentence"'):
        table(tmp_path, "tsv", "sentence\tlabel\nx\t1\n").resolve("sentense")
    with pytest.raises(UserError, match="must be a number"):
        table(tmp_path, "tsv", "x\t1\n", header=False).resolve("label")
    with pytest.raises(UserError, match="names, not numbers"):
        table(tmp_path, "jsonl", '{"a": 1}\n').resolve(0)


@given(st.lists(st.lists(st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\t\0")),
                         min_size=2, max_size=4), min_size=1, max_size=5))  # fmt: skip
def test_what_is_written_is_read(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("tables")
    rows = [[f"{i}", *row] for i, row in enumerate(rows)]
    tsv = "".join("\t".join(row) + "\n" for row in rows)
    assert [row.fields for row in table(folder, "tsv", tsv, header=False).rows] == rows
    jsonl = "".join(json.dumps(dict(enumerate(row))) + "\n" for row in rows)
    assert [list(row.fields.values()) for row in table(folder, "jsonl", jsonl).rows] == rows


def test_conll(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes("\ufeff-DOCSTART- O\r\n\r\na DT O\r\nb NN B-X\r\n\r\n\t \r\n\r\nc NN O".encode())
    sentences = read_conll(str(path))
    assert [[token.columns[0] for token in sentence] for sentence in sentences] == [["a", "b"], ["c"]]
    assert sentences[0][1] == (4, ["b", "NN", "B-X"])


def test_conll_splits_at_tabs_where_there_are_some(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("New York\tB-LOC\n")
    assert read_conll(str(path))[0][0].columns == ["New York", "B-LOC"]


@pytest.mark.parametrize("bad, rows, refused", [(5, 1000, False), (50, 1000, True)])
def test_malformed_lines_of_columns(tmp_path, bad, rows, refused):
    path = tmp_path / "t.txt"
    path.write_text("".join("w O extra\n" if 0 < i <= bad else "w O\n" for i in range(rows)))
    if refused:
        with pytest.raises(UserError, match="50 of 1000 rows"):
            read_conll(str(path))
    else:
        assert len(read_conll(str(path))[0]) == 995
        (said,) = notes_on(str(path))
        assert "5 of 1000 rows" in said and said.count("  line ") == 3 and "  line 2: 3 columns" in said


def test_what_is_told_is_that_of_the_last_reading(tmp_path):
    found = table(tmp_path, "tsv", b"a\n\xff\n")
    assert len(notes_on(found.path)) == 1
    table(tmp_path, "tsv", b"a\n\xff\n")
    assert len(notes_on(found.path)) == 1
    table(tmp_path, "tsv", b"a\nb\n")
    assert notes_on(found.path) == []


@pytest.mark.parametrize("content", ['[{"a": 1}, {"a": 2}]', '\n[\n  {"a": 1},\n  {"a": 2}\n]\n'])
def test_a_json_array_is_no_jsonl(tmp_path, content):
    with pytest.raises(UserError, match=r"t.jsonl is a JSON array; expected JSONL: an object a line"):
        table(tmp_path, "jsonl", content)


def test_columns_with_the_same_name(tmp_path):
    found = table(tmp_path, "csv", "a,b,a\n1,2,3\n")
    assert found.resolve("b") == 1 and found.resolve(2) == 2
    with pytest.raises(UserError, match=r'several columns "a" \(0, 2, counted from 0\); rename one, or give'):
        found.resolve("a")
