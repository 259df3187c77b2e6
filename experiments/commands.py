"""Runs the project's commands one after the other: signals are handed on, failures are kept, killed runs waited for."""

import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from util.errors import UserError
from util.folder_lock import STALE_SECONDS, FolderLock
from util.log import say

ROOT = Path(__file__).parent.parent
LAST_LINES = 15
STOPS = {signal.SIGINT: 130, signal.SIGTERM: 0}  # the exit codes of a run that a signal ended in order


class Stopped(Exception):
    """A signal ended a command before its end; `code` is the exit code that goes with it."""

    def __init__(self, code: int):
        self.code = code


@dataclass(frozen=True)
class Failure:
    """A command that failed."""

    title: str
    command: str
    code: int
    last_lines: str

    def __str__(self) -> str:
        ended = f"was ended by {signal.Signals(-self.code).name}" if self.code < 0 else f"ended with code {self.code}"
        return f"{self.title}: the command\n  {self.command}\n{ended}. Its last lines:\n{self.last_lines}"


class Commands:
    """Runs commands in a `with` block, in which SIGINT and SIGTERM are handed on to the one that runs.

    A command has a session of its own, so that Ctrl-C reaches it once. Its output comes through a pipe: when this
    process is killed, the command ends at the next line that it prints.
    """

    def __init__(self):
        self.failures: list[Failure] = []
        self.process: subprocess.Popen | None = None
        self.received: int | None = None

    def __enter__(self) -> "Commands":
        self.before = {number: signal.signal(number, self._hand_on) for number in STOPS}
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def run(self, title: str, finished: Callable[[], bool], *arguments: str) -> bool:
        """Runs a script of the project; whether it succeeded. A failure is kept and said.

        Args:
          title: what it does.
          finished: whether it has come to its end; asked where its exit code is 0, as it is after SIGTERM too.
          arguments: the script and its arguments.

        Raises:
          Stopped: a signal ended it.
        """
        self._stop_if_asked()
        command = [sys.executable, str(ROOT / arguments[0]), *arguments[1:]]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        last: deque[str] = deque(maxlen=LAST_LINES)
        self.process = subprocess.Popen(command, start_new_session=True, text=True, errors="replace", **pipes)
        if self.received:  # it came while the command started
            self.process.send_signal(self.received)
        for line in self.process.stdout:
            print(line, end="", flush=True)
            last.append(line)
        code, self.process = self.process.wait(), None
        self._stop_if_asked()
        if code == STOPS[signal.SIGINT] or code == 0 and not finished():
            raise Stopped(code)
        if code != 0:
            self.failures.append(Failure(title, shlex.join(command), code, "".join(last).rstrip()))
            say(f"\nfailed: {title}; going on without it")
        return code == 0

    def wait_until_free(self, folder: str) -> None:
        """Waits while a command that a killed experiment has left behind still holds a folder.

        Raises:
          UserError: it is still held after two minutes.
          Stopped: a signal came.
        """
        end, told = time.monotonic() + STALE_SECONDS, False
        while True:
            self._stop_if_asked()
            try:
                with FolderLock(folder):
                    return
            except UserError as error:
                if time.monotonic() > end:
                    raise
                if not told:
                    say(f"waiting: {error}")
                told = True
                time.sleep(1)

    def _hand_on(self, number, frame) -> None:
        self.received = number
        if self.process:
            self.process.send_signal(number)

    def _stop_if_asked(self) -> None:
        if self.received:
            raise Stopped(STOPS[signal.Signals(self.received)])
