"""A model folder in use is locked by a small file, so that two runs never write into one."""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from typing import TextIO

from util import filesystem
from util.errors import UserError
from util.leaving import tidied
from util.log import say

LOCK_NAME = "in_use.json"
HEARTBEAT_SECONDS = 20.0
STALE_SECONDS = 120.0


class FolderLock:
    """Holds a folder for this process while the `with` block runs.

    A lock whose process on this host is dead, or that had no heartbeat for two minutes, is taken over with a message.
    A remote folder cannot be held: of two processes that make a file there, none is told that it was the second.

    Raises:
      UserError: another run holds the folder, or the folder cannot be written.
    """

    def __init__(self, folder: str):
        self.path = os.path.join(folder, LOCK_NAME)
        self.folder = folder
        self._stop = threading.Event()
        self._tidied = tidied(self._remove_for_good)
        self._changing, self._made = threading.Lock(), False
        self._thread = threading.Thread(target=self._beat, daemon=True, name="heartbeat")
        self._mine = {"host": socket.gethostname(), "process": os.getpid(), "start": _process_start(os.getpid())}

    def __enter__(self) -> "FolderLock":
        if filesystem.is_remote(self.folder):
            say(f"note: {self.folder} cannot be locked; take care that no other run writes in it")
            return self
        with contextlib.ExitStack() as failed:
            failed.enter_context(self._tidied)  # before there is a lock, which must not be left behind
            with self._changing:
                self._hold()
            failed.pop_all()
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        if filesystem.is_remote(self.folder):
            return
        self._tidied.__exit__(*exception)
        self._stop.set()
        self._thread.join()
        with self._changing:
            self._remove()

    def _hold(self) -> None:
        self._made = not os.path.isdir(self.folder)
        try:
            os.makedirs(self.folder, exist_ok=True)
            while not (self._create() or self._take_over()):
                pass
        except OSError as error:
            raise UserError(
                f"cannot write in the model folder {self.folder}: {error.strerror}; check the folder and its rights, "
                "or set model_dir to another"
            ) from error

    def _remove_for_good(self) -> None:
        """Removes the lock where the process leaves; the main thread, which runs on, can make none any more."""
        self._changing.acquire()
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            with open(self.path, encoding="utf-8") as file:
                mine = _holder(file) == self._mine
            if mine:
                os.remove(self.path)
            if self._made and not os.listdir(self.folder):  # the run failed before it began
                os.rmdir(self.folder)

    def _create(self) -> bool:
        """Makes the lock; False where there is one."""
        try:
            with open(self.path, "x", encoding="utf-8") as file:
                json.dump(self._mine, file)
        except FileExistsError:
            return False
        except OSError:  # such as a full disk
            with contextlib.suppress(OSError):
                os.remove(self.path)
            raise
        return True

    def _take_over(self) -> bool:
        """Writes this process into a lock that nobody holds any more; False where the lock has gone meanwhile."""
        try:
            with open(self.path, "r+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # of two runs that find a dead lock, the second sees the first's name
                if os.fstat(file.fileno()).st_nlink == 0:
                    return False
                say(f"note: took over the model folder from {self._dead_holder(file)}")
                file.seek(0)
                file.truncate()
                json.dump(self._mine, file)
        except FileNotFoundError:
            return False
        return True

    def _dead_holder(self, file: TextIO) -> str:
        """Who held the lock and why that is over; a `UserError` where it is not."""
        age = time.time() - os.fstat(file.fileno()).st_mtime
        holder = _holder(file)
        who = f"process {holder.get('process')} on {holder.get('host')}" if holder else "another run"
        if holder.get("host") == self._mine["host"] and _process_start(holder.get("process")) != holder.get("start"):
            return f"{who}, which is no longer running"
        if age >= STALE_SECONDS:
            return f"{who}, which gave no sign for {age:.0f} s"
        raise UserError(
            f"the model folder {self.folder} is in use by {who} (heartbeat {max(0, age):.0f} s ago); wait for it, "
            "stop it, or give this run another --model-name"
        )

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(FileNotFoundError):  # someone removed the lock by hand
                os.utime(self.path)


def _holder(file: TextIO) -> dict:
    """What a lock says of the process that holds it; nothing where that has not been written yet."""
    try:
        value = json.load(file)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _process_start(process: int | None) -> str | None:
    """When a process of this host started, as its kernel counts; "running" where that is not told; None if dead."""
    if not isinstance(process, int):
        return None
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "running"
