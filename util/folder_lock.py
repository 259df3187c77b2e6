"""A model folder in use is locked by a small file, so that two runs never write into one."""

import json
import os
import socket
import threading
import time

from util.errors import UserError
from util.log import say

LOCK_NAME = "in_use.json"
HEARTBEAT_SECONDS = 20.0
STALE_SECONDS = 120.0


class FolderLock:
    """Holds a folder for this process while the `with` block runs.

    A lock whose process on this host is dead, or that had no heartbeat for two minutes, is taken over with a message.

    Raises:
      UserError: another run holds the folder, or the folder cannot be written.
    """

    def __init__(self, folder: str):
        self.path = os.path.join(folder, LOCK_NAME)
        self.folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="heartbeat")
        self._mine = {"host": socket.gethostname(), "process": os.getpid(), "start": _process_start(os.getpid())}

    def __enter__(self) -> "FolderLock":
        try:
            os.makedirs(self.folder, exist_ok=True)
            while not self._create():
                self._take_over()
        except OSError as error:
            raise UserError(
                f"cannot write in the model folder {self.folder}: {error.strerror}; check its rights, or set "
                "model_dir to another"
            ) from error
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self._stop.set()
        self._thread.join()
        if self._read().get("process") == os.getpid():
            os.remove(self.path)

    def _create(self) -> bool:
        beside = f"{self.path}.tmp-{os.getpid()}"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(self._mine, file)
        try:
            os.link(beside, self.path)  # fails where the lock exists
        except FileExistsError:
            return False
        finally:
            os.remove(beside)
        return True

    def _take_over(self) -> None:
        try:
            age = time.time() - os.stat(self.path).st_mtime
        except FileNotFoundError:
            return
        holder = self._read()
        who = f"process {holder.get('process')} on {holder.get('host')}"
        dead = holder.get("host") == self._mine["host"] and _process_start(holder.get("process")) != holder.get("start")
        if not dead and age < STALE_SECONDS:
            raise UserError(
                f"the model folder {self.folder} is in use by {who} (heartbeat {age:.0f} s ago); wait for it, "
                "stop it, or give this run another --model-name"
            )
        say(
            f"note: took over the model folder from {who}, which "
            + ("is no longer running" if dead else f"gave no sign for {age:.0f} s")
        )
        os.replace(self.path, f"{self.path}.tmp-{os.getpid()}")
        os.remove(f"{self.path}.tmp-{os.getpid()}")

    def _read(self) -> dict:
        try:
            with open(self.path, encoding="utf-8") as file:
                value = json.load(file)
        except (FileNotFoundError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            os.utime(self.path)


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
