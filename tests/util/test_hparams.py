"""Hparams from the command line into a dataclass."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from util.errors import UserError
from util.hparams import check_hparams, parse_hparams


@dataclass
class Settings:
    steps: int = 1
    learning_rate: float = 0.1
    name: str | None = None
    sizes: dict | None = None
    tasks: list | None = None
    debug: bool = False


names = st.text("abcdefgh_", min_size=1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(names, inner),
    max_leaves=5,
)


@given(st.dictionaries(names, json_values), names, json_values)
def test_objects_and_assignments_say_the_same(values, name, value):
    assert parse_hparams([json.dumps(values), f"{name}={json.dumps(value)}"]) == {**values, name: value}


@pytest.mark.parametrize(
    ("written", "value"),
    [("True", True), ("None", None), ("1e-4", 1e-4), ("a b=c", "a b=c"), ("", ""), ('"7"', "7"), ("[1]", [1])],
)
def test_plain_values(written, value):
    assert parse_hparams([f"x={written}"]) == {"x": value}


def test_files(tmp_path):
    path = tmp_path / "a=b.json"
    path.write_text('{"steps": 3}')
    assert parse_hparams([str(path), " ", "debug=false"]) == {"steps": 3, "debug": False}
    path.write_text("[1, 2]")
    with pytest.raises(UserError, match="must hold a JSON object"):
        parse_hparams([str(path)])
    path.write_text('{"steps": 3,}')
    with pytest.raises(UserError, match=r"a=b.json is not valid JSON: .*line 1"):
        parse_hparams([str(path)])
    path.write_bytes(b'{"name": "\xff"}')
    with pytest.raises(UserError, match="is not valid JSON"):
        parse_hparams([str(path)])
    with pytest.raises(UserError, match="Is a directory"):
        parse_hparams([str(tmp_path)])
    with pytest.raises(UserError, match=r"--hparams is not valid JSON: .*got: \{steps: 3"):
        parse_hparams(["{steps: 3" + " " * 100 + "}"])


def test_types_are_taken_as_they_are_meant():
    checked = check_hparams(Settings, {"steps": 3.0, "learning_rate": 1, "name": None, "sizes": {"a": 1}, "tasks": []})
    assert checked == {"steps": 3, "learning_rate": 1.0, "name": None, "sizes": {"a": 1}, "tasks": []}
    assert type(checked["steps"]) is int and type(checked["learning_rate"]) is float


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 2.5}, '"steps" must be a whole number; got 2.5'),
        ({"steps": True}, '"steps" must be a whole number; got true'),
        ({"steps": None}, '"steps" must be a whole number; got null'),
        ({"debug": 1}, '"debug" must be true or false; got 1'),
        ({"learning_rate": "1"}, '"learning_rate" must be a number; got "1"'),
        ({"name": 1}, '"name" must be a text or null; got 1'),
        ({"sizes": [1]}, r'"sizes" must be an object or null; got \[1\]'),
        ({"step": 1}, 'unknown hparam "step"; did you mean "steps"?'),
        ({"zzz": 1}, r'unknown hparam "zzz" \('),
    ],
)
def test_faults(values, message):
    with pytest.raises(UserError, match=message):
        check_hparams(Settings, values)


def test_ignored_names():
    assert check_hparams(Settings, {"results_pkl": 1, "steps": 2}, ["results_pkl"]) == {"steps": 2}
