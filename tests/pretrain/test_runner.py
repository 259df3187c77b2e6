"""The flags of --runner where Apache Beam is not installed; where it is: tests/test_beam.py."""

import argparse
import importlib.util

import pytest

from pretrain.runner import chosen_runner
from util.errors import UserError


def arguments(**values) -> argparse.Namespace:
    return argparse.Namespace(**{"runner": None, "beam_options": None, "num_processes": 1, **values})


def test_no_runner():
    assert chosen_runner(arguments(num_processes=3)) is None
    with pytest.raises(UserError, match="pass --runner too"):
        chosen_runner(arguments(beam_options="--streaming"))


def test_without_beam_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match="--runner DirectRunner needs Apache Beam.*pip install -r requirements-beam.txt"
    ):
        chosen_runner(arguments(runner="DirectRunner"))
