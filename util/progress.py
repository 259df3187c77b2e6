"""Progress of long work: one line that rewrites itself on a terminal, one line each few seconds elsewhere."""

import sys
import time

from util.log import count_text, seconds_text


class Progress:
    """Prints how far a piece of work is, its rate and the time that remains.

    Args:
      label: what is being done, e.g. "building examples".
      total: the amount of work in `unit`s; None where nobody knows.
      unit: what is counted, e.g. "MB" or "steps".
      every_seconds: the least time between two lines without a terminal (a terminal gets two a second).
      done: the amount that was done before this run; it counts in the percentage, not in the rate.
    """

    def __init__(self, label: str, total: float | None, unit: str, every_seconds: float = 5.0, done: float = 0.0):
        self.label, self.total, self.unit = label, total, unit
        self.terminal = sys.stdout.isatty()
        self.every = 0.5 if self.terminal else every_seconds
        self.first = self.done = done
        self.start = self.last = time.monotonic()
        self.note = ""

    def update(self, done: float, note: str = "", force: bool = False) -> None:
        """Records that `done` units are finished and prints a line when one is due."""
        self.done, self.note = done, note
        now = time.monotonic()
        if force or now - self.last >= self.every:
            self.last = now
            self._print(self.line(note))

    def line(self, note: str = "") -> str:
        elapsed = time.monotonic() - self.start
        rate = (self.done - self.first) / elapsed if elapsed > 0 else 0.0
        parts = [self.label]
        if self.total:
            share = 100 * self.done / self.total
            parts.append(f"{count_text(self.done)}/{count_text(self.total)} {self.unit} = {share:.1f}%")
        else:
            parts.append(f"{count_text(self.done)} {self.unit}")
        parts.append(f"{rate:.3g} {self.unit}/s, elapsed {seconds_text(elapsed)}")
        if self.total and rate > 0:
            parts.append(f"ETA {seconds_text(max(0.0, self.total - self.done) / rate)}")
        if note:
            parts.append(note)
        return ", ".join(parts)

    def close(self, note: str = "") -> None:
        """Prints the last line; without a note it has that of the last update."""
        self._print(self.line(note or self.note))
        if self.terminal:
            print(flush=True)

    def _print(self, line: str) -> None:
        if self.terminal:
            print(f"\r\x1b[K{line}", end="", flush=True)
        else:
            print(line, flush=True)
