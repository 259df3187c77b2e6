"""Lines of progress."""

import sys

import pytest

from util import progress
from util.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_share_rate_and_remaining_time(clock, capsys):
    line = Progress("training", 1000, "steps")
    clock[0] += 60
    line.update(250, "loss: 3", force=True)
    assert (
        capsys.readouterr().out == "training, 250/1000 steps = 25.0%, 4.17 steps/s, elapsed 1m00s, ETA 3m00s, loss: 3\n"
    )


def test_what_was_done_before_counts_in_the_share_alone(clock):
    line = Progress("training", 1000, "steps", done=500)
    clock[0] += 10
    line.update(600)
    assert line.line() == "training, 600/1000 steps = 60.0%, 10 steps/s, elapsed 10s, ETA 40s"


def test_unknown_total_and_no_time_gone(clock):
    assert Progress("reading", None, "MB").line() == "reading, 0 MB, 0 MB/s, elapsed 0s"
    assert "ETA" not in Progress("reading", 10, "MB").line()


def test_lines_are_rare_without_a_terminal(clock, capsys):
    line = Progress("training", 100, "steps", every_seconds=5)
    for step in range(1, 21):
        clock[0] += 1
        line.update(step)
    line.close()
    printed = capsys.readouterr().out.splitlines()
    assert [text.split("/")[0] for text in printed] == [f"training, {step}" for step in (5, 10, 15, 20, 20)]


def test_a_terminal_gets_one_line_that_rewrites_itself(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    line = Progress("training", 10, "steps")
    for step in (1, 2):
        clock[0] += 1
        line.update(step, "good")
    line.close()
    out = capsys.readouterr().out
    assert out.count("\r\x1b[K") == 3 and out.count("\n") == 1 and out.endswith("good\n")
