"""The one way a command fails for a reason that its user can mend."""

import difflib
import signal
import sys
from collections.abc import Callable, Iterable


class UserError(Exception):
    """Something the user can mend: says what, where, what was expected and what to do."""


def nearest_hint(name: str, valid: Iterable[str]) -> str:
    """For a message about an unknown name: '; did you mean "..."?', or nothing where no valid one is near."""
    near = difflib.get_close_matches(name, sorted(valid), n=1, cutoff=0.5)
    return f'; did you mean "{near[0]}"?' if near else ""


def run_main(main: Callable[[], int | None]) -> None:
    """Runs a command and leaves the process with its exit code.

    A `UserError` becomes one message on stderr and exit code 2, Ctrl-C the word "interrupted" and exit code 130,
    SIGTERM where nothing else takes care of it "terminated" and 143. Any other exception is a fault of this project and
    keeps its traceback.
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        code = 2
    except Terminated:
        print("terminated", file=sys.stderr, flush=True)
        code = 128 + signal.SIGTERM
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        code = 130
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which then ends a command as Ctrl-C does: whatever it holds is let go."""


def _terminate(*_) -> None:
    raise Terminated
