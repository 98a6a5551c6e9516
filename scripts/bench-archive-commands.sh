#!/usr/bin/env bash
# What archiving costs a program with typed tables, and how many bytes a transaction has in the archive. TPC-C and Voter run
# under the command log, the value log and the differential log, with an archive and without one, in turn. Each run has a new
# database and a backup of it. Rounds, medians. Bytes are of the archive's runs and increments after the last transaction was
# archived, for each transaction. WORK_DIR should be in memory (/dev/shm) if the disk's syncs are not what is measured.
set -euo pipefail
shopt -s inherit_errexit
. "$(dirname "$0")/lib.sh"
need jq
build
make_work

seconds=${SECONDS_EACH:-10}
rounds=${ROUNDS:-5}
checkpoint=${CHECKPOINT_LOG_SIZE:-512mb}
read -r -a loads <<<"${LOADS:-tpcc voter}"
read -r -a schemes <<<"${SCHEMES:-command value differential}"
declare -A sizes=(
    [tpcc]="--warehouses 4 --items 20000 --customers 600 --workers 2"
    [voter]="--contestants 6 --workers 2"
)

# Prints the bytes of the archive's runs and of its increments.
archived() {
    local kind
    for kind in run increment; do
        find "$work" -path "$work/archive/*" -name "$kind-*" -printf '%s\n' | awk '{ sum += $1 } END { printf "%d ", sum }'
    done
}

for ((round = 0; round < rounds; round++)); do
    for load in "${loads[@]}"; do
        for scheme in "${schemes[@]}"; do
            ways=(off on off)
            for way in "${ways[@]:$((round % 2)):2}"; do
                archive=()
                [[ $way == on ]] && archive=(--archive "$work/archive" --backup)
                # shellcheck disable=SC2206
                run=(bench "$load" ${sizes[$load]} --scheme "$scheme" --checkpoint-log-size "$checkpoint" --data "$work/data" --json
                    "${archive[@]}")
                "$perdura" "${run[@]}" --txns 1 >/dev/null
                loaded=$(archived)
                quiet
                "$perdura" "${run[@]}" --seconds "$seconds" >"$work/report"
                jq -r --arg a "$loaded" --arg b "$(archived)" '"\(.tps) \(.txns) \($a) \($b) \(.log_bytes_per_txn)"' \
                    "$work/report" >>"$work/$load-$scheme-$way.found"
                rm -rf "$work/data" "$work/archive"
            done
        done
    done
done

echo "${seconds} s, medians of $rounds, a checkpoint each $checkpoint of log"
for load in "${loads[@]}"; do
    for scheme in "${schemes[@]}"; do
        found="$work/$load-$scheme"
        off=$(awk '{ print $1 }' "$found-off.found" | median)
        on=$(awk '{ print $1 }' "$found-on.found" | median)
        # A run warms up for half a second, whose transactions are archived and not counted.
        each() { awk -v s="$seconds" -v a="$1" -v b="$2" '{ print ($b - $a) / ($2 * (s + 0.5) / s) }' "$found-on.found" | median; }
        log=$(awk '{ print $7 }' "$found-on.found" | median)
        awk -v load="$load" -v scheme="$scheme" -v off="$off" -v on="$on" -v log_="$log" -v runs="$(each 3 5)" \
            -v inc="$(each 4 6)" 'BEGIN {
            printf "%-6s %-13s %9.0f/s, archived %9.0f/s: %.3f of it; bytes of a transaction: log %.0f, runs %.0f, increments %.0f\n",
                load, scheme, off, on, on / off, log_, runs, inc }'
    done
done
