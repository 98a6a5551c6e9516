#!/usr/bin/env bash
# How long a restore takes beside a copy of its backup, on modelled disks: for images of 1, 2 and 4 GB with a log of 0.6 of
# them, and for one image with a log of 0.1 to 10 times its size. Rounds in turn, medians. Archives and copies are in
# memory (SHM, 12 GB for the largest size), databases in the place to work in.
#
#     scripts/bench-restore.sh [sizes|curve|merge-join]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need jq
build
make_work

shm=$(mktemp -d "${SHM:-/dev/shm}/bench.XXXXXX")
trap 'rm -rf "$shm"; finish' EXIT
sizes_mb=${SIZES_MB:-1000 2000 4000}
curve_mb=${CURVE_MB:-500}
changed=${CHANGED:-200}
rounds=${ROUNDS:-5}

# archive NAME IMAGE_MB PERCENT [OPTION ...]: an image in $shm/NAME, and a log of so many percent of it.
archive() {
    local name=$1 mb=$2 percent=$3
    shift 3
    # 63 rows of 256 bytes in a page of 16 KiB; a record has some 12 bytes beside those that change.
    local rows=$((mb * 1000000 / 16384 * 63)) updates=$((mb * 10000 * percent / (changed + 12)))
    local on=(--data "$work/$name" --rows "$rows" --slot-bytes 256 --changed-bytes "$changed" --json)
    "$perdura" bench update "${on[@]}" --txns 1 >/dev/null
    # A rate is an open loop, which has no clients.
    [[ " $* " = *" --rate "* ]] || on+=(--clients 20000)
    "$perdura" bench update "${on[@]}" --archive "$shm/$name" --backup --txns "$updates" "$@" >/dev/null
    rm -rf "${work:?}/$name"
}

# measure NAME [OPTION ...]: a line, and the ratio in $ratio.
measure() {
    local name=$1 found
    shift
    quiet
    found=$("$perdura" bench restore --from "$shm/$name" --work "$shm" --rounds "$rounds" --json "$@")
    jq -r '"backup \(.backup_bytes / 1e6 | floor) MB, log \(.log_of_backup * 100 | round / 100) of it in \(.runs) runs: " +
        "copy \(.copy_seconds | sort[length / 2 | floor] * 1000 | round / 1000) s, " +
        "restore \(.restore_seconds | sort[length / 2 | floor] * 1000 | round / 1000) s " +
        "(\(.restore_cpu_seconds * 100 | round / 100) s of CPU, \(.restore_own_seconds * 100 | round / 100) without the kernel, \(.image_mb_per_s | round) MB/s of image), " +
        "restore / copy \(.restore_of_copy * 1000 | round / 1000), " +
        "restore / larger input \(.restore_of_larger * 1000 | round / 1000)"' <<<"$found"
}

case ${1:-sizes} in
sizes)
    for mb in $sizes_mb; do
        archive a "$mb" 60
        measure a
        rm -rf "$shm/a"
    done
    ;;
curve)
    # The merger keeps up, so that a restore finds few runs: each log is that of an archive of its own.
    for percent in ${CURVE_PERCENTS:-10 30 60 100 200 300 600 1000}; do
        archive a "$curve_mb" "$percent"
        measure a
        rm -rf "$shm/a"
    done
    ;;
merge-join)
    # One core, disks without a limit. A run is cut each second, and nobody merges.
    mb=${JOIN_MB:-200}
    for runs in 8 64; do
        archive "r$runs" "$mb" 60 --rate "$((mb * 10000 * 60 / (changed + 12) / runs))" --archive-merge=no
        measure "r$runs" --threads 1 --source-mbps 0 --target-mbps 0
        rm -rf "$shm/r$runs"
    done
    ;;
*) die "sizes, curve or merge-join" ;;
esac
