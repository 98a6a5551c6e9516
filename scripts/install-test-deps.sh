#!/usr/bin/env bash
# Installs what the tests need beside Rust: mkfs.ext4, mount and perl for the power-cut test.
# Does nothing if all of it is there.
set -euo pipefail

missing=()
command -v mkfs.ext4 >/dev/null || [ -x /usr/sbin/mkfs.ext4 ] || missing+=(e2fsprogs)
command -v mount >/dev/null || missing+=(mount)
command -v perl >/dev/null || missing+=(perl-base)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]}; install them with this system's package manager" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "missing: ${missing[*]}; run: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"
