"""The loop's parts that need no model: signals at any moment, the log of metrics."""

import json
import os
import signal
import threading
from contextlib import redirect_stdout

import pytest

from util.errors import UserError
from util.training import MetricsLog, StopSignals


def test_signals_between_any_two_lines(tmp_path):
    """A handler that printed would meet a print that it interrupts, which Python's files do not bear."""
    before = signal.getsignal(signal.SIGTERM)
    done = threading.Event()

    def send():
        for _ in range(300):
            os.kill(os.getpid(), signal.SIGTERM)
        done.set()

    with open(tmp_path / "out", "w") as file, redirect_stdout(file), StopSignals() as signals:
        sender = threading.Thread(target=send)
        sender.start()
        while not done.is_set():
            print("x" * 5000, flush=True)
        sender.join()
    assert signals.received == signal.SIGTERM and signal.getsignal(signal.SIGTERM) is before


def test_the_second_interrupt_is_at_once():
    with pytest.raises(KeyboardInterrupt), StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_log_is_cut_back_to_the_checkpoint(tmp_path):
    log = MetricsLog(str(tmp_path), 0, use_tensorboard=False)
    for step in (10, 20, 30):
        log.write(step, "train", {"loss": 1.5 if step < 30 else float("nan")})
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 40, "spl')  # a kill in the middle of a line
    MetricsLog(str(tmp_path), 30, use_tensorboard=False)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["step"] for record in records] == [10, 20, 30] and records[-1]["loss"] is None
    MetricsLog(str(tmp_path), 20, use_tensorboard=False)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [10, 20]


def test_a_damaged_log_is_said_and_mended(tmp_path, capsys):
    good = [json.dumps({"step": step}) for step in (1, 2)]
    (tmp_path / "metrics.jsonl").write_bytes(f"{good[0]}\n[3]\n".encode() + b"\xff\xfe{\n" + f"{good[1]}\n".encode())
    MetricsLog(str(tmp_path), 5, use_tensorboard=False)
    assert (tmp_path / "metrics.jsonl").read_text().splitlines() == good
    assert "2 lines of" in capsys.readouterr().out


def test_what_stands_in_the_place_of_the_logs(tmp_path):
    (tmp_path / "tensorboard").write_text("x")
    with pytest.raises(UserError, match="TensorBoard's events"):
        MetricsLog(str(tmp_path), 0, use_tensorboard=True)
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match="metrics.jsonl"):
        MetricsLog(str(tmp_path), 0, use_tensorboard=False)
