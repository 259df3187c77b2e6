"""Work in several processes."""

import os
import signal
import time

import psutil
import pytest

from util.errors import UserError
from util.workers import run_workers


def double(number, report):
    for step in range(3):
        report(step)
    return number * 2


def sleep_or(what, report):
    report(os.getpid())
    if what == "sleep":
        time.sleep(60)
    elif what == "mend":
        raise UserError("mend this")
    elif what == "crash":
        raise ValueError("a fault of ours")
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def test_results_come_in_order_and_reports_arrive():
    reports = []
    assert run_workers(double, [(3,), (4,)], lambda i, value: reports.append((i, value))) == [6, 8]
    assert sorted(reports) == [(i, step) for i in range(2) for step in range(3)]


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [("mend", UserError, "mend this"), ("kill", UserError, "SIGKILL"), ("crash", RuntimeError, "exit code 1")],
)
def test_one_failure_ends_all(what, error, message, capfd):
    pids = []
    with pytest.raises(error, match=message):
        run_workers(sleep_or, [("sleep",), (what,)], lambda _, pid: pids.append(pid))
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert ("ValueError: a fault of ours" in capfd.readouterr().err) is (what == "crash")
