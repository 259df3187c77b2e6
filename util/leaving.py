"""Leaving the process at once, from any thread, while the main thread may be stuck inside TensorFlow."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

TIDY_SECONDS = 20.0  # the most that tidying up may take

_TIDYING: list[Callable[[], None]] = []


@contextmanager
def tidied(tidy: Callable[[], None]) -> Iterator[None]:
    """Calls `tidy` where the process leaves by `leave` while the `with` block runs; it must bear any thread."""
    _TIDYING.append(tidy)
    try:
        yield
    finally:
        _TIDYING.remove(tidy)


def leave(message: str, advice: Callable[[], str] = str) -> NoReturn:
    """Tidies up, prints one message on stderr and ends the process with exit code 2; no `finally` block runs.

    Args:
      message: what happened.
      advice: gives what else to say, asked for once everything is tidied up. It is left out where that takes too long,
        as where the model folder is across the network that was cut.
    """
    parts = [message]

    def tidy_and_ask() -> None:
        for tidy in reversed(_TIDYING):
            tidy()
        parts.append(advice())

    tidying = threading.Thread(target=tidy_and_ask, daemon=True, name="tidying")
    tidying.start()
    tidying.join(TIDY_SECONDS)
    print("error: " + " ".join(filter(None, parts)), file=sys.stderr, flush=True)
    os._exit(2)
