"""One run at a time in a model folder."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from tests.training_runs import ROOT
from util import folder_lock
from util.errors import UserError
from util.folder_lock import LOCK_NAME, STALE_SECONDS, FolderLock

HOLD = """
import sys
from util.errors import UserError
from util.folder_lock import FolderLock
sys.stdin.readline()
try:
    with FolderLock(sys.argv[1]):
        print("held", flush=True)
        sys.stdin.readline()
except UserError as error:
    print(f"refused: {error}", flush=True)
"""


def start(folder) -> subprocess.Popen:
    """A process that takes the lock at a line on its input and gives it back at the next."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def tell(process: subprocess.Popen) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


def answer(process: subprocess.Popen) -> str:
    """Its next line that is no note."""
    return next(line for line in process.stdout if not line.startswith("note"))


def dead_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def write_lock(folder, age: float = 0.0, **holder) -> None:
    path = folder / LOCK_NAME
    path.write_text(json.dumps({"host": socket.gethostname(), **holder}))
    os.utime(path, (time.time() - age, time.time() - age))


def test_the_lock_is_there_while_it_is_held(tmp_path):
    folder = tmp_path / "models" / "m"
    with FolderLock(str(folder)):
        assert json.loads((folder / LOCK_NAME).read_text())["process"] == os.getpid()
        (folder / "hparams.json").touch()
    assert os.listdir(folder) == ["hparams.json"]


def test_a_folder_that_the_lock_made_and_nobody_used_goes_with_it(tmp_path):
    (tmp_path / "old").mkdir()
    for name in ("new", "old"):
        with pytest.raises(ValueError), FolderLock(str(tmp_path / name)):
            raise ValueError
    assert os.listdir(tmp_path) == ["old"]


def test_a_live_process_keeps_it(tmp_path):
    holder = start(tmp_path)
    tell(holder)
    assert answer(holder) == "held\n"
    with pytest.raises(UserError, match=f"is in use by process {holder.pid} on .*another --model-name"):
        with FolderLock(str(tmp_path)):
            pass
    assert json.loads((tmp_path / LOCK_NAME).read_text())["process"] == holder.pid
    tell(holder)
    holder.wait()
    with FolderLock(str(tmp_path)):
        pass


def test_a_killed_process_loses_it(tmp_path, capsys):
    holder = start(tmp_path)
    tell(holder)
    assert answer(holder) == "held\n"
    holder.kill()
    holder.wait()
    with FolderLock(str(tmp_path)):
        assert f"took over the model folder from process {holder.pid}" in capsys.readouterr().out
    assert not os.listdir(tmp_path)


def test_another_process_under_the_same_number_does_not_keep_it(tmp_path, capsys):
    write_lock(tmp_path, process=os.getpid(), start="an earlier time")
    with FolderLock(str(tmp_path)):
        assert "is no longer running" in capsys.readouterr().out


def test_heartbeat(tmp_path, capsys, monkeypatch):
    """Of another host the heartbeat alone can tell."""
    write_lock(tmp_path, age=STALE_SECONDS - 30, host="elsewhere", process=1, start="1")
    with pytest.raises(UserError, match=r"process 1 on elsewhere \(heartbeat 9\d s ago\)"), FolderLock(str(tmp_path)):
        pass
    write_lock(tmp_path, age=STALE_SECONDS + 5, host="elsewhere", process=1, start="1")
    monkeypatch.setattr(folder_lock, "HEARTBEAT_SECONDS", 0.01)
    with FolderLock(str(tmp_path)):
        assert "process 1 on elsewhere, which gave no sign for 125 s" in capsys.readouterr().out
        os.utime(tmp_path / LOCK_NAME, (0, 0))
        end = time.monotonic() + 10
        while os.stat(tmp_path / LOCK_NAME).st_mtime == 0:
            assert time.monotonic() < end, "no heartbeat"
            time.sleep(0.01)
        os.remove(tmp_path / LOCK_NAME)  # by hand: the run goes on
        time.sleep(0.05)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"process": "x"}'])
def test_a_lock_that_says_nothing_is_held_until_it_is_stale(tmp_path, content):
    (tmp_path / LOCK_NAME).write_text(content)
    with pytest.raises(UserError, match="is in use by"), FolderLock(str(tmp_path)):
        pass
    os.utime(tmp_path / LOCK_NAME, (0, 0))
    with FolderLock(str(tmp_path)):
        pass


def test_someone_elses_lock_is_left_alone(tmp_path):
    with FolderLock(str(tmp_path)):
        write_lock(tmp_path, host="elsewhere", process=1, start="1")
    assert json.loads((tmp_path / LOCK_NAME).read_text())["host"] == "elsewhere"


@pytest.mark.parametrize("dead", [True, False], ids=["dead lock", "no lock"])
def test_of_processes_at_once_one_gets_it(tmp_path, dead):
    pid = dead_process()
    for _ in range(5):
        if dead:
            write_lock(tmp_path, process=pid, start="1")
        racers = [start(tmp_path) for _ in range(4)]
        for racer in racers:
            tell(racer)
        answers = sorted(answer(racer) for racer in racers)
        assert answers[0] == "held\n" and all(line.startswith("refused: ") for line in answers[1:]), answers
        for racer in racers:
            racer.communicate("\n")
        assert not os.listdir(tmp_path)


def test_a_second_run_while_the_first_takes_over(tmp_path, monkeypatch):
    """It begins when the first has judged the lock dead but has not yet written its own name into it."""
    write_lock(tmp_path, process=dead_process(), start="1")
    second = start(tmp_path)

    def meanwhile(_):
        tell(second)
        time.sleep(1)

    monkeypatch.setattr(folder_lock, "say", meanwhile)
    with FolderLock(str(tmp_path)):
        assert answer(second).startswith(f"refused: the model folder {tmp_path} is in use by process {os.getpid()}")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "m"):
        with pytest.raises(UserError, match=f"cannot write in the model folder {folder}: "), FolderLock(str(folder)):
            pass


LEAVE = """
import json, sys, threading, time
from util.folder_lock import FolderLock
from util.leaving import leave
write = json.dump

def leave_meanwhile(*arguments):
    threading.Thread(target=leave, args=("over",)).start()
    time.sleep(0.3)
    write(*arguments)

json.dump = leave_meanwhile
with FolderLock(sys.argv[1]):
    time.sleep(10)
"""


def test_a_process_that_leaves_while_it_makes_the_lock(tmp_path):
    """Another thread ends it at the worst moment: the lock is there and says nothing yet."""
    command = [sys.executable, "-c", LEAVE, str(tmp_path / "m")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 2 and result.stderr == "error: over\n"
    assert not (tmp_path / "m").exists()
