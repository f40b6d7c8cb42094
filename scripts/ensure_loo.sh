#!/bin/sh
# Install R and the newest loo that can be had, where they are not there yet: into the folder that
# R_LIBS names, from CRAN, or else the packages of Debian's newest suite that need no compiler.
set -eu
OLDEST=2.10
DEBIAN=http://deb.debian.org/debian

new_enough() {
    Rscript -e "stopifnot(packageVersion('loo') >= '$OLDEST'); loadNamespace('jsonlite')
        loo::loo(array(-1 - rexp(2000), c(250, 4, 2)), r_eff = c(1, 1))" >/dev/null 2>&1
}

if new_enough; then exit; fi
# Debian's own loo may be old, but what it needs is there then.
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    r-base-core r-cran-loo r-cran-jsonlite r-cran-posterior
if new_enough; then exit; fi

library=${R_LIBS:-build/R}
mkdir -p "$library"
Rscript -e "install.packages('loo', '$library', 'https://cloud.r-project.org')" || true
if new_enough; then exit; fi

found=$(mktemp -d)
curl --fail --silent "$DEBIAN/dists/sid/main/binary-amd64/Packages.xz" | xz -d >"$found/packages"
for package in r-cran-loo r-cran-posterior r-cran-abind; do
    file=$(awk -v package="$package" '$1 == "Package:" { name = $2 } $1 == "Filename:" && name == package { print $2 }' \
        "$found/packages")
    curl --fail --silent "$DEBIAN/$file" -o "$found/package.deb"
    dpkg-deb --extract "$found/package.deb" "$found/tree"
done
cp -r "$found"/tree/usr/lib/R/site-library/* "$library"
rm -r "$found"
new_enough
