#!/usr/bin/env bash
# Installs Debian's Chromium, which the tests of pages drive, and fonts for it; does nothing where there is one.
#
#   .ci/get-chromium.sh
#
# For Debian machines with internet access; as root, or with sudo.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        "$name" --version
        exit 0
    fi
done

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" apt-get -qq -y --no-install-recommends install chromium fonts-dejavu-core >/dev/null
chromium --version
