#!/usr/bin/env bash
# Installs what the tests need beside Rust: mkfs.ext4, mkfs.xfs, mount and perl for the power-cut tests, sqlite3 for a
# disk in the memories of nodes, iproute2 for the documents' sessions (with curl), a C++ compiler for Luau, Redis 7.0 and
# a Python of which virtual environments can be made to compare with and to be a client, and the emulator that counts
# instructions.
# Does nothing if all of it is there.
set -euo pipefail

missing=()
command -v mkfs.ext4 >/dev/null || [ -x /usr/sbin/mkfs.ext4 ] || missing+=(e2fsprogs)
command -v mkfs.xfs >/dev/null || [ -x /usr/sbin/mkfs.xfs ] || missing+=(xfsprogs)
command -v mount >/dev/null || missing+=(mount)
command -v ip >/dev/null || [ -x /usr/sbin/ip ] || missing+=(iproute2)
command -v perl >/dev/null || missing+=(perl-base)
command -v sqlite3 >/dev/null || missing+=(sqlite3)
command -v curl >/dev/null || missing+=(curl)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v c++ >/dev/null || missing+=(g++)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v redis-cli >/dev/null && command -v redis-benchmark >/dev/null || missing+=(redis-tools)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v chromium >/dev/null || missing+=(chromium)
command -v qemu-x86_64 >/dev/null || missing+=(qemu-user)
command -v nm >/dev/null || missing+=(binutils)
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
