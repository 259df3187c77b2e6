"""How commands of an experiment end, with small scripts in the place of the project's."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from experiments.commands import Commands, Stopped
from tests.builders import wait_for
from tests.training_runs import ROOT
from util.folder_lock import FolderLock


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text("import os, signal, sys, time\n" + text)
    return str(path)


def test_a_failure_has_its_last_lines_and_its_command(tmp_path, capfd):
    lines = "[print(f'line {i}', flush=True) for i in range(30)]\n"
    text = lines + "print('error: no such thing', file=sys.stderr)\nsys.exit(2)\n"
    with Commands() as commands:
        assert not commands.run("a title", lambda: True, script(tmp_path, text), "--hparams", '{"a b": 1}')
        assert commands.run("another", lambda: True, script(tmp_path, "print('fine')"))
    [failure] = commands.failures
    told = str(failure)
    assert told.startswith("a title: the command\n") and "--hparams '{\"a b\": 1}'" in told
    assert "ended with code 2" in told and told.endswith("line 29\nerror: no such thing") and "line 3\n" not in told
    assert "line 3\n" in capfd.readouterr().out, "everything is passed on as it comes"


def test_a_killed_command_is_a_failure(tmp_path):
    with Commands() as commands:
        assert not commands.run("x", lambda: True, script(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert "was ended by SIGKILL" in str(commands.failures[0])


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_signals_are_handed_on_once_and_nothing_starts_after_them(tmp_path, number, code):
    """The command saves and leaves with the code of its signal, as training does."""
    text = f"""
def leave(number, frame):
    open({str(tmp_path / "signals")!r}, 'a').write('x')
    time.sleep(0.3)
    sys.exit({code})
signal.signal(signal.{number.name}, leave)
open({str(tmp_path / "ready")!r}, 'w').close()
time.sleep(60)
"""

    def send() -> None:
        wait_for((tmp_path / "ready").exists)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    with Commands() as commands:
        sender.start()
        for _ in range(2):
            with pytest.raises(Stopped) as stopped:
                commands.run("x", lambda: False, script(tmp_path, text))
            assert stopped.value.code == code
    sender.join()
    assert (tmp_path / "signals").read_text() == "x" and commands.failures == []


def test_a_command_that_someone_else_stopped_is_not_finished(tmp_path):
    with Commands() as commands, pytest.raises(Stopped) as stopped:
        commands.run("x", lambda: False, script(tmp_path, "print('stopped at step 3')"))
    assert stopped.value.code == 0


def test_the_command_of_a_killed_experiment_ends_with_its_next_line_and_is_waited_for(tmp_path):
    text = f"""
sys.path.insert(0, {str(ROOT)!r})
from util.folder_lock import FolderLock
with FolderLock({str(tmp_path / "model")!r}):
    while True:
        print('a line', flush=True)
        time.sleep(1)
"""
    driver = f"""
from experiments.commands import Commands
with Commands() as commands:
    commands.run("x", lambda: True, {script(tmp_path, text)!r})
"""
    process = subprocess.Popen([sys.executable, "-c", driver], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "a line\n"
    orphan = json.loads((tmp_path / "model" / "in_use.json").read_text())["process"]
    process.kill()
    process.communicate()
    begin = time.monotonic()
    with Commands() as commands:
        commands.wait_until_free(str(tmp_path / "model"))
    assert time.monotonic() - begin < 30
    wait_for(lambda: not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE)
    with FolderLock(str(tmp_path / "model")):
        pass
