#!/usr/bin/env bash
# Checks the code and runs the tests. Arguments go to pytest; paths among them are relative to the repository's root.
#   bash scripts/test.sh
#   bash scripts/test.sh tests/parity --golden ../golden
#   bash scripts/test.sh -m slow
# Two processes at a time; another number by TEST_PROCESSES (0: in this one, for a debugger).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
unset PYTHONHOME PYTHONPATH
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
.venv/bin/python -m ruff check .
exec .venv/bin/python -m pytest -n "${TEST_PROCESSES:-2}" "$@"
