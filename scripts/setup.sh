#!/usr/bin/env bash
# The set-up that demo.sh and test.sh share: fills .venv at the repository's root, unless it is up to date.
# Here a Python is found; scripts/environment.py does the rest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONHOME PYTHONPATH

if .venv/bin/python -m scripts.environment check 2>/dev/null; then exit 0; fi

in_range='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
version='import sys; print("is Python %d.%d" % sys.version_info[:2])'
reasons=
for name in python3.13 python3.12 python3.11 python3 python; do
  python=$(command -v "$name") || continue
  if ! reason=$("$python" -c "$version" 2>/dev/null); then
    reason="does not start"
  elif "$python" -c "$in_range" && reason="lacks the module venv or ensurepip" &&
    "$python" -c "import venv, ensurepip" 2>/dev/null; then
    exec "$python" -m scripts.environment fill
  fi
  reasons+=${reasons:+$'\n'}"  $python $reason"
done

cat >&2 <<EOF
error: no usable Python was found: 3.11, 3.12 or 3.13, with its modules venv and ensurepip, must be on PATH.
${reasons:-  no command called python3 or python is on PATH}
Install one (Debian and Ubuntu: apt-get install python3 python3-venv) and run this again.
EOF
exit 2
