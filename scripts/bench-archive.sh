#!/usr/bin/env bash
# What archiving costs a server whose clients keep it saturated: SET of random keys, 50 clients, pipelines of 16. Four servers
# take turns: B archives nothing, T copies the log unsorted, S sorts it into runs, S+M also merges them. Rounds, each with a new
# database, medians; the lag is the largest at the end of a round. WORK_DIR should be in memory (/dev/shm) if the disk's syncs
# are not what is measured.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-cli jq
build
make_work

keys=${KEYS:-1000000}
seconds=${SECONDS_EACH:-10}
rounds=${ROUNDS:-5}

settings() {
    case $1 in
    B) ;;
    T) echo --archive "$work/archive" --archive-generation unsorted --archive-merge=no ;;
    S) echo --archive "$work/archive" --archive-merge=no ;;
    S+M) echo --archive "$work/archive" ;;
    esac
}

for ((round = 0; round < rounds; round++)); do
    ways=(B T S S+M B T S S+M)
    for way in "${ways[@]:$((round % 4)):4}"; do
        port=$(free_port)
        # shellcheck disable=SC2046
        start_perdura "$work/data" "$port" $(settings "$way")
        await "$port"
        on=(bench kv --server "127.0.0.1:$port" --keys "$keys" --clients 50 --pipeline 16 --json)
        "$perdura" "${on[@]}" --fill "$keys" --seconds 0 >/dev/null
        sleep 2
        quiet
        "$perdura" "${on[@]}" --seconds "$seconds" >"$work/report"
        lag=$(redis-cli -p "$port" info archive | tr -d '\r' | sed -n 's/^archive_lag_us://p')
        jq -r --arg lag "${lag:-0}" '"\(.tps) \(.latency_us.p99) \($lag)"' "$work/report" >>"$work/$way.found"
        kill -9 "$last_pid"
        wait "$last_pid" 2>/dev/null || true
        rm -rf "$work/data" "$work/archive"
    done
done

echo "$keys keys, ${seconds} s, medians of $rounds"
base=$(awk '{ print $1 }' "$work/B.found" | median)
copy=$(awk '{ print $1 }' "$work/T.found" | median)
for way in B T S S+M; do
    tps=$(awk '{ print $1 }' "$work/$way.found" | median)
    p99=$(awk '{ print $2 }' "$work/$way.found" | median)
    lag=$(awk '{ print $3 }' "$work/$way.found" | sort -n | tail -1)
    awk -v way="$way" -v tps="$tps" -v p99="$p99" -v base="$base" -v copy="$copy" -v lag="$lag" 'BEGIN {
        printf "%-4s %9.0f requests/s, p99 %6.0f us; of B %.3f, of T %.3f; archive behind by at most %.2f s\n",
            way, tps, p99, tps / base, tps / copy, lag / 1e6 }'
done
