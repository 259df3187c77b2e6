"""Hyperparameters: from the command line into a dataclass, with errors that name the nearest valid thing."""

import dataclasses
import json
import types
import typing
from collections.abc import Iterable
from typing import Any

from util import filesystem
from util.errors import UserError, nearest_hint
from util.files import read_json


def parse_hparams(arguments: Iterable[str]) -> dict[str, Any]:
    """Reads `--hparams` arguments; later ones win.

    Each argument is a JSON object, the path of a file that holds one, or `name=value` (the value as JSON, as
    True/False/None, or else as plain text).
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        values.update(_parse_one(argument))
    return values


def _parse_one(argument: str) -> dict[str, Any]:
    text = argument.strip()
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise UserError(f"--hparams is not valid JSON: {error}; got: {_short(text)}") from error
    elif "=" in text and not filesystem.exists(text):
        name, _, written = text.partition("=")
        return {name.strip(): _parse_value(written.strip())}
    elif text:
        value = read_json(text, "hparams file (--hparams takes a JSON object, a .json file or name=value)")
    else:
        value = {}
    if not isinstance(value, dict):
        raise UserError(f"--hparams must hold a JSON object of names and values; got: {_short(argument)}")
    return value


def _parse_value(written: str) -> Any:
    named = {"True": True, "False": False, "None": None}
    if written in named:
        return named[written]
    try:
        return json.loads(written)
    except ValueError:
        return written


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def check_hparams(config_class: type, values: dict[str, Any], ignored: Iterable[str] = ()) -> dict[str, Any]:
    """Checks names and types against a dataclass; gives the values as the fields' types.

    Raises:
      UserError: for an unknown name (the nearest valid one is named) or a value of the wrong type.
    """
    fields = {field.name for field in dataclasses.fields(config_class) if field.init}
    hints = typing.get_type_hints(config_class)
    checked = {}
    for name, value in values.items():
        if name in ignored:
            continue
        if name not in fields:
            raise UserError(f'unknown hparam "{name}"{nearest_hint(name, fields)} (configure_*.py lists them all)')
        checked[name] = _as_type(name, value, hints[name])
    return checked


def _as_type(name: str, value: Any, hint: Any) -> Any:
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(typing.get_origin(kind) or kind for kind in accepted)
    if isinstance(value, bool):
        if bool in kinds:
            return value
    elif isinstance(value, kinds):
        return value
    elif isinstance(value, int) and float in kinds:
        return float(value)
    elif isinstance(value, float) and int in kinds and value.is_integer():
        return int(value)
    elif value is None and types.NoneType in kinds:
        return None
    expected = " or ".join("null" if kind is types.NoneType else _NAMES.get(kind, kind.__name__) for kind in kinds)
    raise UserError(f'hparam "{name}" must be {expected}; got {json.dumps(value)}')


_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "an object",
    list: "a list",
}
