#!/bin/sh
# Write tests/golden/loo_stacking.json anew, by R's loo as Debian has it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! Rscript -e 'for (p in c("loo", "jsonlite")) loadNamespace(p)' >/dev/null 2>&1; then
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        r-base-core r-cran-loo r-cran-jsonlite
fi
mkdir -p "$here/../tests/golden"
Rscript "$here/golden_loo.R" "$here/../tests/golden/loo_stacking.json"
