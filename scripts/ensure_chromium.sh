#!/bin/sh
# Print the path of a Chromium or Chrome; install Debian's if there is none and apt may.
# Exits with status 1, and says why, if none can be had.
set -eu

find_browser() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$name"; then return 0; fi
    done
    return 1
}

find_browser && exit 0

if [ -z "${CI:-}" ]; then
    echo "There is no chromium; it is installed by itself in CI only (CI=1 $0)." >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "There is no chromium, and no apt-get to install it with." >&2
    exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
{ $as_root apt-get update --quiet && $as_root apt-get install --yes --quiet --no-install-recommends chromium; } >&2
find_browser
