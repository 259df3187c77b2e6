"""How commands end."""

import signal
import subprocess
import sys

from tests.training_runs import ROOT

PROGRAM = """
import time
from util.errors import run_main

def main():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("let go", flush=True)

run_main(main)
"""


def test_signals_end_a_command_with_a_word():
    for number, code, word in ((signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, output, errors) == (code, "let go\n", f"{word}\n")
