#!/usr/bin/env bash
# How long a lost disk takes with a command log, against the differential log: restore and first start together. TPC-C fills
# a database, a backup is made, and TXNS transactions follow. Its clean end takes a checkpoint. The next life begins with an
# increment of that image. TXNS more transactions follow, and the process ends as in a power cut. The restore of the command
# log replays the calls after the increment. Rounds, medians; "together" is the
# median of the sums. WORK_DIR names the disk; in memory (/dev/shm) the restore waits for no disk.
set -euo pipefail
shopt -s inherit_errexit
. "$(dirname "$0")/lib.sh"
need jq
build
make_work

# A run warms up for half a second, so it has more transactions than these.
txns=${TXNS:-45000}
rounds=${ROUNDS:-3}
warehouses=${WAREHOUSES:-10}

# Prints the seconds of a command.
timed() {
    local begun
    begun=$(date +%s%N)
    "$@" >"$work/said"
    awk -v ns="$(($(date +%s%N) - begun))" 'BEGIN { printf "%.3f\n", ns / 1e9 }'
}

for scheme in command differential; do
    on=(bench tpcc --warehouses "$warehouses" --workers 2 --scheme "$scheme" --data "$work/$scheme" --archive
        "$work/archive-$scheme" --txns "$txns" --json)
    "$perdura" "${on[@]}" --backup >"$work/first"
    "$perdura" "${on[@]}" --crash --seed 2 >"$work/second"
    pages=$(du -sb "$work/$scheme" | cut -f1)
    echo "$scheme: $pages bytes of data and log, $(du -sb "$work/archive-$scheme" | cut -f1) of archive," \
        "$(find "$work/archive-$scheme" -name 'increment-*' | wc -l) increments"
    rm -rf "${work:?}/$scheme"
done

for ((round = 0; round < rounds; round++)); do
    ways=(command differential command)
    for scheme in "${ways[@]:$((round % 2)):2}"; do
        quiet
        restore=$(timed "$perdura" restore --from "$work/archive-$scheme" --to "$work/restored" --json)
        frames=$(jq '.effects_to_replay + .calls_to_replay' "$work/said")
        # The command also computes a digest of all rows, which is no part of a start.
        "$perdura" restart --data "$work/restored" --dry-run --json >"$work/said"
        start=$(jq .seconds.total "$work/said")
        replay=$(jq '.ordered.seconds // 0' "$work/said")
        echo "$restore $start $frames $replay" >>"$work/$scheme.found"
        rm -rf "$work/restored"
    done
done

echo "TPC-C with $warehouses warehouses, medians of $rounds"
for scheme in command differential; do
    restore=$(awk '{ print $1 }' "$work/$scheme.found" | median)
    start=$(awk '{ print $2 }' "$work/$scheme.found" | median)
    both=$(awk '{ print $1 + $2 }' "$work/$scheme.found" | median)
    frames=$(awk '{ print $3 }' "$work/$scheme.found" | median)
    replay=$(awk '{ print $4 }' "$work/$scheme.found" | median)
    echo "$scheme restore $restore s, first start $start s, together $both s; $frames calls replayed in $replay s"
    echo "$both" >"$work/$scheme.both"
done
awk -v a="$(cat "$work/command.both")" -v b="$(cat "$work/differential.both")" \
    'BEGIN { printf "command / differential %.2f\n", a / b }'
