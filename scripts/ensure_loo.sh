#!/bin/sh
# Install R's loo, as Debian has it, where it is not there yet.
set -eu
if ! Rscript -e 'for (p in c("loo", "jsonlite")) loadNamespace(p)' >/dev/null 2>&1; then
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        r-base-core r-cran-loo r-cran-jsonlite
fi
