"""How the workers of TF_CONFIG find each other before TensorFlow starts.

Every worker listens on its own port; the others connect to the chief, worker 0, and say who they are. The chief looks
whether they agree on TF_CONFIG and can be reached at their addresses, and answers all of them. Then nobody listens any
more, so that TensorFlow's servers get the ports; the connections to the chief stay open beside them.
"""

import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from util.errors import UserError
from util.log import say

WAIT_SECONDS = 60.0  # for the others to come
ANSWER_SECONDS = 10.0  # for what comes at once where all is well
LATER_SECONDS = 5.0  # once something is wrong: for others to come and hear of it
LONGEST_LINE = 1 << 22
STRANGER = "what answers there is no worker of this training"


class Link:
    """A connection that carries JSON objects, one a line."""

    def __init__(self, connection: socket.socket):
        connection.settimeout(ANSWER_SECONDS)
        self.socket, self._rest, self._sending = connection, b"", threading.Lock()

    def fileno(self) -> int:
        """For `select`."""
        return self.socket.fileno()

    def send(self, **message: Any) -> None:
        """Sends one object; an OSError where the connection is closed."""
        with self._sending:
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """The objects that have come whole; waits for the next bytes.

        Raises:
          EOFError: the other side has closed the connection.
          OSError: it is broken, or nothing came in time.
          ValueError: what came is no JSON object.
        """
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError("the connection was closed")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ValueError(STRANGER)
        return [_object(line) for line in lines]

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next object, and no byte more; fails as `receive` does, or where so many seconds bring nothing."""
        self.socket.settimeout(seconds)
        line = b""
        while not line.endswith(b"\n"):
            if not (byte := self.socket.recv(1)):
                raise EOFError("the connection was closed")
            line += byte
        self.socket.settimeout(ANSWER_SECONDS)
        return _object(line)

    def tell(self, **message: Any) -> None:
        """Sends one object where the other side still listens."""
        try:
            self.send(**message)
        except OSError:  # whoever reads from this connection finds that out
            pass

    def close(self) -> None:
        self.socket.close()


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(STRANGER)
    return value


def meet(workers: Sequence[str], index: int) -> dict[int, Link]:
    """Waits until all workers have come, 60 seconds at most.

    Args:
      workers: their addresses, host:port, the chief's first.
      index: of this one.

    Returns:
      A connection to each of the others for the chief, the one to the chief for them.

    Raises:
      UserError: somebody did not come, TF_CONFIG is not the same everywhere, or this host's port is in use.
    """
    with _listener(workers[index]) as listener:
        return _Chief(workers, listener).meet() if index == 0 else _meet_chief(workers, index, listener)


def named(workers: Sequence[str], index: int) -> str:
    """A worker as messages name it."""
    return f"worker {index} ({workers[index]}{', the chief' if index == 0 else ''})"


def _address(worker: str) -> tuple[str, int]:
    host, _, port = worker.rpartition(":")
    return host.strip("[]"), int(port)


@contextmanager
def _listener(worker: str) -> Iterator[socket.socket]:
    """Listens on the port of a worker's address on all devices of this host, as TensorFlow will."""
    host, port = _address(worker)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server(("", port), family=family)  # sets SO_REUSEADDR
    except OSError as error:
        raise UserError(
            f"this host cannot listen at {worker}, its address in TF_CONFIG: "
            f"{os.strerror(error.errno) if (error.errno or 0) > 0 else error}; stop what uses the port (is this worker "
            "there already?), or take another address on all hosts"
        ) from error
    with closing(listener):
        yield listener


# ---- the chief ------------------------------------------------------------------------------------------------------


class _Chief:
    """The chief's side: collects those who come, then answers them."""

    def __init__(self, workers: Sequence[str], listener: socket.socket):
        self.workers, self.listener = list(workers), listener
        self.came: dict[int, Link] = {}
        self.strangers: list[Link] = []  # connections that have not said yet who they are
        self.refused: list[Link] = []
        self.problems: list[str] = []

    def meet(self) -> dict[int, Link]:
        missing = ", ".join(named(self.workers, i) for i in range(1, len(self.workers)))
        say(f"waiting for {missing}: {WAIT_SECONDS:.0f} s at most")
        deadline = time.monotonic() + WAIT_SECONDS
        while self._incomplete() and (left := deadline - time.monotonic()) > 0:
            self._listen(left)
            if self.problems:
                deadline = min(deadline, time.monotonic() + LATER_SECONDS)
        for link in self.strangers:
            link.close()
        if not self.problems:
            self._check_all_can_be_reached()
        answer = {"stop": "; ".join(self.problems)} if self.problems else {"welcome": True}
        for link in (*self.came.values(), *self.refused):
            link.tell(**answer)
        if self.problems:
            raise UserError(answer["stop"])
        return self.came

    def _incomplete(self) -> bool:
        return len(self.came) + len(self.refused) < len(self.workers) - 1

    def _listen(self, seconds: float) -> None:
        """Takes notice of what comes next."""
        for ready in select.select([self.listener, *self.strangers, *self.came.values()], [], [], seconds)[0]:
            if ready is self.listener:
                self.strangers.append(Link(ready.accept()[0]))
            else:
                self._hear(ready)

    def _hear(self, link: Link) -> None:
        try:
            messages = link.receive()
            for message in messages:
                index, workers = message["worker"], message["workers"]
                self.strangers.remove(link)
                self._place(link, index, workers)
        except (EOFError, OSError):  # a worker that gave up, or was killed and comes again
            self._forget(link)
        except (ValueError, KeyError, TypeError):
            say(f"note: a connection from {_peer(link)} is no worker's, it is closed")
            self._forget(link)

    def _forget(self, link: Link) -> None:
        link.close()
        self.strangers = [other for other in self.strangers if other is not link]
        self.came = {index: other for index, other in self.came.items() if other is not link}

    def _place(self, link: Link, index: int, workers: list[str]) -> None:
        if type(index) is not int or not isinstance(workers, list):
            raise ValueError("no worker")
        if workers != self.workers:
            self.problems.append(
                f"TF_CONFIG is not the same on all hosts: worker {index} (from {_peer(link)}) has {len(workers)} "
                f"workers ({', '.join(map(str, workers))}), the chief has {len(self.workers)} "
                f"({', '.join(self.workers)})"
            )
        elif index in self.came or index == 0:
            other = f"from {_peer(self.came[index])}" if index else "the chief here"
            self.problems.append(
                f"two processes are worker {index} ({other}, the other from {_peer(link)}); give each host an index of "
                "its own in TF_CONFIG"
            )
        else:
            self.came[index] = link
            return
        self.refused.append(link)

    def _check_all_can_be_reached(self) -> None:
        """A worker that came may still be where TF_CONFIG does not say, or behind a closed port."""
        missing = [i for i in range(1, len(self.workers)) if i not in self.came]
        if missing:
            self.problems.append(
                f"{' and '.join(named(self.workers, i) for i in missing)} did not come within {WAIT_SECONDS:.0f} s; "
                "start the same command there, or check the addresses in TF_CONFIG and the network between the hosts"
            )
        for index in () if missing else self.came:
            try:
                with closing(socket.create_connection(_address(self.workers[index]), ANSWER_SECONDS)) as connection:
                    found = Link(connection).answer(ANSWER_SECONDS).get("worker")
            except (OSError, EOFError, ValueError) as error:
                found = getattr(error, "strerror", None) or str(error)
            if found != index:
                return self.problems.append(
                    f"worker {index} came to the chief from {_peer(self.came[index])}, but the chief does not find it "
                    f"at {self.workers[index]} ({found}); mend the address in TF_CONFIG, or open the port"
                )


def _peer(link: Link) -> str:
    try:
        return ":".join(map(str, link.socket.getpeername()[:2]))
    except OSError:
        return "a connection that is closed"


# ---- the others -----------------------------------------------------------------------------------------------------


def _meet_chief(workers: Sequence[str], index: int, listener: socket.socket) -> dict[int, Link]:
    say(f"waiting for {named(workers, 0)} and the other workers: {WAIT_SECONDS:.0f} s at most")
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with ExitStack() as failed:
            try:
                link = Link(socket.create_connection(_address(workers[0]), ANSWER_SECONDS))
                failed.callback(link.close)
                link.send(worker=index, workers=list(workers))
                answer = _answer_of_chief(link, index, listener)
            except (OSError, EOFError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            else:
                if "welcome" in answer:
                    failed.pop_all()
                    return {0: link}
                if "stop" in answer:
                    raise UserError(answer["stop"])
                reason = STRANGER
        if time.monotonic() > deadline:
            raise UserError(
                f"{named(workers, 0)} was not there within {WAIT_SECONDS:.0f} s: {reason}; start the same command "
                "there, or check the addresses in TF_CONFIG and the network between the hosts; where it trains "
                f"already, another process is worker {index}"
            )
        time.sleep(0.5)


def _answer_of_chief(link: Link, index: int, listener: socket.socket) -> dict[str, Any]:
    """Waits for the chief's answer and meanwhile says who listens here."""
    deadline = time.monotonic() + WAIT_SECONDS + 2 * ANSWER_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        ready = select.select([link, listener], [], [], left)[0]
        if listener in ready:
            with closing(listener.accept()[0]) as connection:
                Link(connection).tell(worker=index)
        if link in ready:
            return link.answer(ANSWER_SECONDS)
    raise TimeoutError("no answer")
