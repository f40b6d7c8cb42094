#!/bin/sh
# Install the wheel, then the source distribution, from dist/ into an empty environment, and use each.
# usage: scripts/smoke.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${1:-python3}" -m venv "$place/venv"
python=$place/venv/bin/python
for built in dist/*.whl dist/*.tar.gz; do
    echo "== $built with $("$python" --version)"
    "$python" -m pip uninstall --quiet --yes lockquack
    "$python" -m pip install --quiet "$built"
    "$python" -I scripts/smoke.py "$place"
done
# Extras can be added to what is installed, whether or not an index knows lockquack.
"$python" -m pip install --quiet 'lockquack[cli]'
"$python" -I scripts/smoke.py "$place" cli
