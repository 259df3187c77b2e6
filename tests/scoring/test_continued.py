"""The output that goes on where it stopped."""

import json

import pytest

from scoring.continued import ContinuedFile
from util.errors import UserError

SETTINGS = {"checkpoint": "c", "method": "mlm", "tokens": False}


def rows_of(path, header="h") -> ContinuedFile:
    return ContinuedFile(str(path), SETTINGS, header)


@pytest.mark.parametrize("left, done, last", [
    (b"", 0, None), (b"h", 0, None), (b"h\n", 0, None), (b"h\nro", 0, None), (b"h\none\n", 1, "one"),
    (b"h\none\ntw\xc3", 1, "one"), (b"h\none\ntwo\n", 2, "two"),
])  # fmt: skip
def test_whatever_a_kill_left_is_taken_up(tmp_path, left, done, last):
    path = tmp_path / "out"
    rows_of(path).close()
    path.write_bytes(left)
    output = rows_of(path)
    assert (output.done, output.last) == (done, last)
    output.write(["new"])
    output.close()
    assert path.read_text().splitlines() == ["h", "one", "two"][: done + 1] + ["new"]


def test_a_long_file_and_long_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("scoring.continued.BLOCK", 7)
    output = rows_of(tmp_path / "out", None)
    rows = ["x" * n for n in range(1, 40)]
    output.write(rows)
    output.close()
    output = rows_of(tmp_path / "out", None)
    assert (output.done, output.last) == (39, rows[-1])


def test_other_settings_strangers_files_and_a_second_writer_are_refused(tmp_path):
    path = tmp_path / "out"
    output = rows_of(path)
    with pytest.raises(UserError, match="another run"):
        rows_of(path)
    output.close()
    with pytest.raises(UserError, match="tokens: False there, True here"):
        ContinuedFile(str(path), {**SETTINGS, "tokens": True}, "h")
    assert json.loads((tmp_path / "out.json").read_text()) == SETTINGS
    stranger = tmp_path / "thesis.txt"
    stranger.write_text("precious")
    with pytest.raises(UserError, match="says that this command wrote it"):
        rows_of(stranger)
    assert stranger.read_text() == "precious"
