"""Work in several processes: what they report, and a plain end when one of them fails or is killed."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from util.errors import UserError


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Lets SIGTERM stop the block as Ctrl-C does, with a KeyboardInterrupt."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignores SIGINT and SIGTERM in a block that is short and must not be left half done."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_workers(work: Callable, arguments: Sequence[tuple], on_report: Callable[[int, Any], None]) -> list:
    """Calls work(*arguments[i], report) in a process for each i (one alone: here) and gives their results in order.

    Whatever a worker hands to `report` reaches `on_report(i, ...)` here. A `UserError` in a worker is raised here; a
    worker that is killed is a `UserError` too. Any other failure shows its traceback and is a RuntimeError. However
    this ends, no worker is left running.
    """
    if len(arguments) == 1:
        return [work(*arguments[0], lambda value: on_report(0, value))]
    context = multiprocessing.get_context("spawn")
    results: list = [None] * len(arguments)
    processes: list[BaseProcess] = []
    connections: dict[Connection, int] = {}
    try:
        for i, args in enumerate(arguments):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(work, args, sender), daemon=True)
            process.start()
            sender.close()  # so that the end of the process is the end of the pipe
            processes.append(process)
            connections[receiver] = i
        while connections:
            for connection in wait(list(connections)):
                i = connections[connection]
                try:
                    kind, value = connection.recv()
                except EOFError:
                    raise _explained_end(i, processes[i]) from None
                if kind == "report":
                    on_report(i, value)
                elif kind == "error":
                    raise UserError(value)
                else:
                    results[i] = value
                    del connections[connection]
        return results
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _work(work: Callable, args: tuple, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        result = work(*args, lambda value: sender.send(("report", value)))
    except UserError as error:
        sender.send(("error", str(error)))
    else:
        sender.send(("result", result))


def _explained_end(i: int, process: BaseProcess) -> Exception:
    process.join()
    if process.exitcode is not None and process.exitcode < 0:
        name = signal.Signals(-process.exitcode).name
        return UserError(
            f"worker process {i} (pid {process.pid}) was killed by {name}; where nobody did that on purpose, memory "
            "ran out: use fewer processes or free some"
        )
    return RuntimeError(f"worker process {i} failed with exit code {process.exitcode}; its traceback is above")
