#!/bin/sh
# Write tests/golden/loo_stacking.json anew, by R's loo as Debian has it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
"$here/ensure_loo.sh"
mkdir -p "$here/../tests/golden"
Rscript "$here/golden_loo.R" "$here/../tests/golden/loo_stacking.json"
