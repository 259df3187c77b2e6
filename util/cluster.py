"""The workers that train together: whether they agree, whether all of them live, and how they end. No TensorFlow.

TensorFlow's collectives wait for ever for a worker that hangs, and fail with many words where one dies. So each worker
keeps a connection to the chief beside them, on which both sides say every few seconds that they live. What a worker
says goes to the chief, who passes it on: that it stopped and why, or that it was lost. Then all leave with one message
and exit code 2, and the same command on all hosts goes on from the last checkpoint.
"""

import json
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from util.errors import UserError
from util.leaving import leave
from util.log import say
from util.meeting import Link, meet, named

BEAT_SECONDS = 3.0
SILENCE_SECONDS = 30.0  # without a sign of life: a worker hangs, or is cut off
LOADING_SECONDS = 55.0  # the same while TensorFlow is loaded, when no other thread runs for seconds on a slow disk

# what TensorFlow raises in a step whose collectives broke, which is often the first sign that a worker died
BROKEN = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "InternalError",
          "UnknownError", "FailedPreconditionError")  # fmt: skip


class Disagreement(UserError):
    """Workers have other facts; the message is that of all of them."""


class Cluster:
    """The workers of TF_CONFIG in a `with` block: it begins once all have come, and ends once all are done.

    Args:
      workers: their addresses, the chief's first; a single one has nobody to wait for.
      index: of this one.
      advice: gives what to do when a worker is lost.

    Raises:
      UserError: at the beginning as `meet` does.
    """

    def __init__(self, workers: Sequence[str] = ("localhost:0",), index: int = 0, advice: Callable[[], str] = str):
        self.workers, self.index, self.advice = list(workers), index, advice
        self._links: dict[int, Link] = {}
        self._heard: dict[int, float] = {}  # when each last gave a sign of life
        self._facts: dict[int, dict[str, Any]] = {}
        self._done: set[int] = set()
        self._agreed, self._patience = 0, LOADING_SECONDS
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="workers")

    @classmethod
    def of(cls, cluster: Mapping[str, Any] | None, advice: Callable[[], str]) -> "Cluster":
        """The cluster that `read_cluster` gave; this host alone where it gave none."""
        return cls(cluster["workers"], cluster["index"], advice) if cluster else cls()

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that the others are connected to and that writes the files."""
        return self.index == 0

    def __enter__(self) -> "Cluster":
        if len(self.workers) > 1:
            self._links = meet(self.workers, self.index)
            self._heard = dict.fromkeys(self._links, time.monotonic())
            self._thread.start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        if not self._links:
            return
        if error is None:
            self._finish()
        elif kind.__name__ in BROKEN:
            say(f"a step failed ({_first_line(error)}): looking whether all workers live")
            self._leaving.wait(SILENCE_SECONDS + 2 * BEAT_SECONDS)
        self._over.set()
        self._thread.join()  # where a worker was lost, this thread ends the process
        if isinstance(error, Disagreement):
            self._tell(stop=str(error))
        elif error is not None:
            self._tell(stop=f"{named(self.workers, self.index)} stopped: {_first_line(error)}")
        for link in self._links.values():
            link.close()

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Returns once all workers have called it with the same facts: JSON values by what they are.

        Raises:
          Disagreement: on the chief, where they differ: who has what. The others leave with the same message.
        """
        if not self._links:
            return
        facts = json.loads(json.dumps(facts))
        if self.is_chief:
            self._wait(lambda: self._facts.keys() == self._links.keys())
            told, self._facts = {0: facts, **self._facts}, {}
            if found := differences(told, self.workers):
                raise Disagreement(found)
            self._tell(agreed=True)
        else:
            before = self._agreed
            self._tell(facts=facts)
            self._wait(lambda: self._agreed > before)

    def loaded(self) -> None:
        """TensorFlow is loaded on all workers: from here on silence means more."""
        self._patience = SILENCE_SECONDS

    def _finish(self) -> None:
        """Waits until all workers are done, so that none is done while another failed."""
        if self.is_chief:
            self._wait(lambda: self._done == self._links.keys())
            self._tell(done=True)
        else:
            self._tell(done=True)
            self._wait(lambda: bool(self._done))

    def _wait(self, until: Callable[[], bool]) -> None:
        with self._changed:
            while not self._changed.wait_for(until, 1.0):  # not for ever at once, so that Ctrl-C gets through
                pass

    def _tell(self, **message: Any) -> None:
        for link in self._links.values():
            link.tell(**message)

    # ---- in a thread of its own --------------------------------------------------------------------------------------

    def _watch(self) -> None:
        next_beat = 0.0
        while not self._over.is_set():
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + BEAT_SECONDS
                self._tell(beat=True)
            waiting = {link: worker for worker, link in self._links.items() if worker not in self._done}
            ready = select.select(list(waiting), [], [], 0.2)[0]
            for link in ready:
                self._hear(waiting[link], link)
            now = time.monotonic()  # after what was there was read: this process itself may have been stopped meanwhile
            for worker in waiting.values():
                if now - self._heard[worker] > self._patience:
                    self._lose(worker, f"gave no sign of life for {self._patience:.0f} s: it hangs or is cut off")

    def _hear(self, worker: int, link: Link) -> None:
        try:
            messages = link.receive()
        except (EOFError, OSError, ValueError):
            self._lose(worker, "is gone: its connection was closed")
        self._heard[worker] = time.monotonic()
        for message in messages:
            if (text := message.get("stop")) is not None:
                self._leave(text, stop=text)
            if "lost" in message:
                self._lose(*message["lost"])
            with self._changed:
                if "facts" in message:
                    self._facts[worker] = message["facts"]
                elif "agreed" in message:
                    self._agreed += 1
                elif "done" in message:
                    self._done.add(worker)
                self._changed.notify_all()

    def _lose(self, worker: int, how: str) -> NoReturn:
        self._leave(f"{named(self.workers, worker)} {how}.", self.advice, lost=[worker, how])

    def _leave(self, message: str, advice: Callable[[], str] = str, **told: Any) -> NoReturn:
        self._leaving.set()
        if self.is_chief:
            self._tell(**told)
        leave(message, advice)


def differences(told: Mapping[int, Mapping[str, Any]], workers: Sequence[str], most: int = 10) -> str:
    """What workers say otherwise than the chief, as one message; nothing where they agree."""
    found = []
    for worker, facts in told.items():
        for name in dict.fromkeys([*told[0], *facts]):
            ours, theirs = told[0].get(name), facts.get(name)
            if ours != theirs:
                sides = ((0, ours), (worker, theirs))
                found.append(f"{name}: " + ", ".join(f"{_short(v)} on {named(workers, w)}" for w, v in sides))
    if not found:
        return ""
    more = [f"and {len(found) - most} more"] if len(found) > most else []
    return (
        "the workers do not agree:\n  "
        + "\n  ".join(found[:most] + more)
        + "\nStart the same command on all hosts, with the same code, environment and data, and one model folder that "
        "all of them see"
    )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _first_line(error: BaseException) -> str:
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
