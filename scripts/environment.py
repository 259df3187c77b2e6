"""Fills .venv at the repository's root with what requirements-dev.txt pins. Called by scripts/setup.sh.

`check`, run by the .venv's own Python, tells by its exit code whether the .venv is up to date; `fill`, run by any
Python, makes it so. Only the standard library is used: nothing is installed yet.
"""

import contextlib
import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from util.errors import UserError, run_main
from util.log import say

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv"
PYTHON = FOLDER / "bin" / "python"
MADE_HERE = FOLDER / ".made-by-setup"  # the first thing in the folder: it may be deleted and made again
FILLED = FOLDER / ".filled"  # the last thing: the hash of what the folder holds


def wanted() -> str:
    """One hash of what the .venv depends on: the Python that runs this, and the requirements."""
    parts = [*map(str, sys.version_info[:2]), platform.machine(), sys.platform]
    parts += [(ROOT / name).read_text() for name in ("requirements.txt", "requirements-dev.txt")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_filled() -> bool:
    """Whether the .venv is up to date. Its own Python is asked, since that may have been replaced underneath."""
    command = [PYTHON, "-m", "scripts.environment", "check"]
    return PYTHON.exists() and subprocess.run(command, cwd=ROOT, check=False).returncode == 0


@contextlib.contextmanager
def lock() -> Iterator[int]:
    """Waits for the sole right to change the .venv. The system ends it with the last process that holds it."""
    with open(ROOT / ".venv.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is filling .venv; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def fill(held: int) -> None:
    """Makes the .venv anew. The children hold the lock too: one that outlives a kill keeps others out."""
    if FOLDER.is_symlink() or FOLDER.exists() and any(FOLDER.iterdir()) and not MADE_HERE.exists():
        raise UserError(f"{FOLDER} was not made by this set-up, so it is left alone; move it away and run this again")
    say(f"setting up {FOLDER} with Python {platform.python_version()}: about 2 GB, a few minutes, once")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    MADE_HERE.touch()
    make = [sys.executable, "-m", "venv", FOLDER]
    if subprocess.run(make, pass_fds=[held], check=False).returncode:
        raise UserError(f"{sys.executable} could not make {FOLDER}: see its message above")
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    install += ["-r", ROOT / "requirements-dev.txt"]
    if subprocess.run(install, pass_fds=[held], check=False).returncode:
        raise UserError(
            "pip could not install requirements-dev.txt: see its message above. It needs a package registry, that is"
            " the network or a mirror set in pip's configuration, and free disk space; then run this again"
        )
    FILLED.write_text(wanted())


def main() -> int:
    """Checks (exit code 0 or 1) or fills the .venv."""
    if sys.argv[1] == "check":
        return 0 if FILLED.exists() and FILLED.read_text() == wanted() else 1
    try:
        with lock() as held:
            if not is_filled():  # another set-up may have just filled it
                fill(held)
    except OSError as error:
        raise UserError(f"cannot set up {FOLDER}: {error}; mend that and run this again") from error
    return 0


if __name__ == "__main__":
    run_main(main)
