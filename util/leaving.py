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


def leave(message: Callable[[], str]) -> NoReturn:
    """Tidies up, prints one message on stderr and ends the process with exit code 2; no `finally` block runs.

    Args:
      message: gives the text, asked for once everything is tidied up.
    """
    tidying = threading.Thread(target=_tidy, daemon=True, name="tidying")
    tidying.start()
    tidying.join(TIDY_SECONDS)
    print(f"error: {message()}", file=sys.stderr, flush=True)
    os._exit(2)


def _tidy() -> None:
    for tidy in reversed(_TIDYING):
        tidy()
