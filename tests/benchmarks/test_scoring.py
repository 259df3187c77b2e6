"""The benchmark of scoring runs and tells how much faster Electric is."""

import re

from tests.builders import run


def test_runs_on_a_small_network():
    sizes = ("--hidden", 64, "--layers", 1, "--tokens", 25, "--sentences", 40, "--rounds", 1)
    result = run("benchmarks/scoring.py", *sizes)
    assert result.returncode == 0, result.stderr
    assert float(re.search(r"Electric is ([\d.]+) times as fast", result.stdout)[1]) > 2
