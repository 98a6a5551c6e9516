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
declare -A sizes=(
    [tpcc]="--warehouses 4 --items 20000 --customers 600 --workers 2"
    [voter]="--contestants 6 --workers 2"
)

for ((round = 0; round < rounds; round++)); do
    for load in tpcc voter; do
        for scheme in command value differential; do
            ways=(off on off)
            for way in "${ways[@]:$((round % 2)):2}"; do
                archive=()
                [[ $way == on ]] && archive=(--archive "$work/archive" --backup)
                # shellcheck disable=SC2086
                "$perdura" bench "$load" ${sizes[$load]} --scheme "$scheme" --seconds "$seconds" \
                    --checkpoint-log-size 256mb --data "$work/data" --json "${archive[@]}" >"$work/report"
                runs=0 increments=0
                if [[ $way == on ]]; then
                    runs=$(cat "$work"/archive/*/runs/run-* | wc -c)
                    increments=$(cat "$work"/archive/*/backups/increment-* 2>/dev/null | wc -c)
                fi
                jq -r --arg r "$runs" --arg i "$increments" '"\(.tps) \(.transactions) \($r) \($i)"' "$work/report" \
                    >>"$work/$load-$scheme-$way.found"
                rm -rf "$work/data" "$work/archive"
            done
        done
    done
done

echo "${seconds} s, medians of $rounds"
for load in tpcc voter; do
    for scheme in command value differential; do
        found="$work/$load-$scheme"
        off=$(awk '{ print $1 }' "$found-off.found" | median)
        on=$(awk '{ print $1 }' "$found-on.found" | median)
        runs=$(awk '{ print $3 / $2 }' "$found-on.found" | median)
        increments=$(awk '{ print $4 / $2 }' "$found-on.found" | median)
        awk -v load="$load" -v scheme="$scheme" -v off="$off" -v on="$on" -v runs="$runs" -v inc="$increments" 'BEGIN {
            printf "%-6s %-13s %9.0f/s, archived %9.0f/s: %.3f of it; a transaction has %.0f bytes of runs, %.0f of increments\n",
                load, scheme, off, on, on / off, runs, inc }'
    done
done
