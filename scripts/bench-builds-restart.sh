#!/usr/bin/env bash
# The restarts of two builds beside each other, and their memory for a key: 2M keys of 100 bytes, a
# checkpoint, 1M updates, kill -9; then dry restarts, which change nothing, in turns. For each round:
# seconds in all, seconds of log play, and the CPU seconds that the whole command used.
#
#   OLD=path/to/old/perdura scripts/bench-builds-restart.sh
#   OLD=... ROUNDS=9 THREADS=1 LEVEL=1 scripts/bench-builds-restart.sh
#   OLD=... COLD=1 scripts/bench-builds-restart.sh       each restart reads from the disk; needs root. Beside
#                                                        it, how long a direct read of the same bytes takes
set -euo pipefail
. "$(dirname "$0")/lib.sh"
two_builds

keys=${KEYS:-2000000}
updates=${UPDATES:-1000000}
rounds=${ROUNDS:-9}
options=(--threads "${THREADS:-0}" --level "${LEVEL:-4}")
figures="total log_play cpu"
declare -A bytes

load() { # PORT SEED COUNT
    "$new" bench kv --server "127.0.0.1:$1" --keys "$keys" --fill "$3" --seed "$2" --value-bytes 100 \
        --seconds 0 --json >/dev/null
}

chill() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

# read_directly DIR: seconds that a direct read of an image and the log takes
read_directly() {
    local begin end file
    begin=$(date +%s.%N)
    # Both images hold about the same; one is loaded.
    for file in "$1"/log/s*.log "$(find "$1" -name '*.pages' -printf '%b %p\n' | sort -n | tail -1 | cut -d' ' -f2-)"; do
        dd if="$file" of=/dev/null bs=4M iflag=direct status=none
    done
    end=$(date +%s.%N)
    awk -v a="$begin" -v b="$end" 'BEGIN { print b - a }'
}

rss() { awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$last_pid/status"; }

for name in old new; do
    perdura=${!name}
    port=$(free_port)
    start_perdura "$work/$name" "$port" --checkpoint-log-size 100GiB
    await "$port"
    empty=$(rss)
    load "$port" 1 "$keys"
    sleep 1
    bytes[$name]=$((($(rss) - empty) / keys))
    redis-cli -p "$port" save >/dev/null
    load "$port" 2 "$updates"
    sleep 2
    kill -9 "$last_pid"
    wait "$last_pid" 2>/dev/null || true
done

# once NAME: adds a figure to each of the files NAME.total, NAME.log_play and NAME.cpu
once() {
    local program=${!1} TIMEFORMAT='%U %S'
    [ -z "${COLD:-}" ] || chill
    { time "$program" restart --data "$work/$1" --dry-run "${options[@]}" --json \
        >"$work/restart.json"; } 2>"$work/cpu"
    jq -r .seconds.total "$work/restart.json" >>"$work/$1.total"
    jq -r .seconds.log_play "$work/restart.json" >>"$work/$1.log_play"
    awk '{ print $1 + $2 }' "$work/cpu" >>"$work/$1.cpu"
    [ "$(jq -r .records.applied "$work/restart.json")" -gt 0 ] || die "$1 has played no record"
}

for ((round = 1; round <= rounds; round++)); do
    quiet
    order="old new"
    [ $((round % 2)) = 0 ] && order="new old"
    for name in $order; do once "$name"; done
done

echo "$keys keys, $updates updates since the checkpoint, ${options[*]}; medians of $rounds"
printf '%-9s %10s %10s %8s %s\n' figure old new new/old 'ratio of each round'
for figure in $figures; do
    paste "$work/new.$figure" "$work/old.$figure" | awk '{ printf "%.3f\n", $1 / $2 }' >"$work/ratios"
    printf '%-9s %10.3f %10.3f %8.3f %s\n' "$figure" "$(median <"$work/old.$figure")" \
        "$(median <"$work/new.$figure")" "$(median <"$work/ratios")" "$(paste -sd' ' "$work/ratios")"
done
awk -v o="${bytes[old]}" -v n="${bytes[new]}" \
    'BEGIN { printf "%-9s %10d %10d %8.3f\n", "bytes/key", o, n, n / o }'
if [ -n "${COLD:-}" ]; then
    for ((round = 1; round <= 3; round++)); do read_directly "$work/new" >>"$work/direct"; done
    awk -v d="$(median <"$work/direct")" -v n="$(median <"$work/new.total")" -v o="$(median <"$work/old.total")" \
        'BEGIN { printf "a direct read of image and log: %.3f s; old %.2f, new %.2f times that\n", d, o / d, n / d }'
fi
