"""Messages for people: plain lines on standard output, flushed at once."""

from collections.abc import Iterable, Sequence


def say(message: str = "") -> None:
    """Prints one message."""
    print(message, flush=True)


def heading(title: str) -> None:
    """Prints a title that stands out in a long log."""
    say(f"\n== {title} ==")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lays rows out in columns: the first column to the left, the others to the right."""
    cells = [list(header)] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        first, *others = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        lines.append("  ".join([first, *others]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def seconds_text(seconds: float) -> str:
    """A duration as people read it: 42s, 3m05s, 2h07m."""
    seconds = int(round(seconds))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds // 60 % 60:02d}m"


def count_text(number: float) -> str:
    """A large number in four characters or so: 950, 12.3k, 4.56M, 1.20e+12 from a trillion on."""
    for limit, divisor, suffix in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if abs(number) < limit:
            value = number / divisor
            return f"{value:.0f}{suffix}" if divisor == 1 else f"{value:.3g}{suffix}"
    return f"{number:.2e}"
