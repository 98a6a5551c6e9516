#!/usr/bin/env bash
# The restarts of two builds beside each other, and their memory for a key: 2M keys of 100 bytes, a
# checkpoint, 1M updates, kill -9; then, in turns, dry restarts, which change nothing, and starts of a server
# on a copy. For each round: a dry restart's seconds in all and of log play; a start's seconds from exec to
# the first reply, and the processor time of its process and of the whole machine until then.
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
figures="total log_play start cpu machine"
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
    for file in "$1"/log/s*.log "$(find "$1" -path '*image-*' -name pages -printf '%b %p\n' | sort -n | tail -1 | cut -d' ' -f2-)"; do
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

# once NAME: adds a figure to each of the files NAME.total and NAME.log_play
once() {
    local program=${!1}
    [ -z "${COLD:-}" ] || chill
    "$program" restart --data "$work/$1" --dry-run "${options[@]}" --json >"$work/restart.json"
    jq -r .seconds.total "$work/restart.json" >>"$work/$1.total"
    jq -r .seconds.log_play "$work/restart.json" >>"$work/$1.log_play"
    [ "$(jq -r .records.applied "$work/restart.json")" -gt 0 ] || die "$1 has played no record"
}

# Seconds of processor time that the machine has spent, but for what it spent idle or waiting.
machine() { awk '/^cpu / { print ($2 + $3 + $4 + $7 + $8) / 100 }' /proc/stat; }

# start NAME: adds a figure to each of the files NAME.start, NAME.cpu and NAME.machine
start() {
    local perdura=${!1} port begin end before after
    rm -rf "$work/copy"
    cp -a --sparse=always "$work/$1" "$work/copy"
    [ -z "${COLD:-}" ] || chill
    quiet
    port=$(free_port)
    before=$(machine)
    begin=$(date +%s.%N)
    start_perdura "$work/copy" "$port" --restart-level "${LEVEL:-4}" --threads "${THREADS:-0}"
    await "$port"
    end=$(date +%s.%N)
    after=$(machine)
    awk '{ print ($14 + $15) / 100 }' "/proc/$last_pid/stat" >>"$work/$1.cpu"
    awk -v a="$begin" -v b="$end" 'BEGIN { print b - a }' >>"$work/$1.start"
    awk -v a="$before" -v b="$after" 'BEGIN { print b - a }' >>"$work/$1.machine"
    kill -9 "$last_pid"
    wait "$last_pid" 2>/dev/null || true
}

for ((round = 1; round <= rounds; round++)); do
    quiet
    order="old new"
    [ $((round % 2)) = 0 ] && order="new old"
    for name in $order; do once "$name"; done
    for name in $order; do start "$name"; done
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
