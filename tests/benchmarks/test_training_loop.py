"""The benchmark of the training loop runs, and tells all parts and their operations."""

import re

import pytest

from tests.builders import run


@pytest.mark.slow
def test_runs_on_few_tokens():
    result = run("benchmarks/training_loop.py", "--batch", 1, "--seq", 16, "--steps", 2, "--rounds", 1)
    assert result.returncode == 0, result.stderr
    seconds = dict(re.findall(r"^(\w+) +([\d.]+) +[\d.]+-[\d.]+", result.stdout, re.MULTILINE))
    assert list(seconds) == ["input", "step", "loop", "forward", "evaluation"]
    assert float(seconds["forward"]) < float(seconds["step"]) and result.stdout.count("MatMul") >= 2
