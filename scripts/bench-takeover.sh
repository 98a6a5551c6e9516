#!/usr/bin/env bash
# What it costs a restart that the end of the log is in the memory of nodes. A server writes some 100 MB of log and is killed; then it
# writes as much, every write to its disk is stalled, clients go on until the tail is as long as the log's files allow, and it is killed
# again. Shown for each: from the start to the first reply, and how much of that was the log's redo, which both have.
#
#   scripts/bench-takeover.sh                one node shares its memory with the server, one is reached by TCP
#   ROUNDS=5 TAIL=32MiB scripts/bench-takeover.sh
#
# The stall is strace's, which must be allowed to attach to the server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-cli
command -v strace >/dev/null || die "strace is needed: apt-get install strace"
build
make_work

rounds=${ROUNDS:-3}
tail=${TAIL:-64MiB}
# The system calls that write, and for how long each is held, microseconds.
writes=pwrite64,pwritev,pwritev2,io_uring_enter
held=60000000

address=("127.0.0.1:$(free_port)" "127.0.0.2:$(free_port)")
for number in 0 1; do
    options=()
    [ "$number" = 1 ] && options=(--no-share)
    "$perdura" logd --listen "${address[$number]}" --ring 128MiB ${options[@]+"${options[@]}"} 2>>"$work/node.stderr" &
    pids+=("$!")
done
sleep 0.5
port=$(free_port)

# info SECTION FIELD
info() { redis-cli -p "$port" info "$1" | tr -d '\r' | awk -F: -v f="$2" '$1 == f { print $2 }'; }

# start WHAT: starts the server; prints how long that took.
start() {
    local begun
    begun=$(date +%s.%N)
    start_perdura "$work/data" "$port" --log-nodes "${address[0]},${address[1]}" --log-view "$work/view" --log-one-machine \
        --log-tail "$tail" --durability mirror
    await "$port"
    [ -z "$1" ] ||
        awk -v what="$1" -v a="$begun" -v b="$(date +%s.%N)" -v redo="$(info recovery restart_seconds_log_span)" \
            -v bytes="$(info recovery restart_bytes_log)" \
            'BEGIN { printf "%s: up after %.2f s, %.2f of it redo of %.0f MB of log\n", what, b - a, redo, bytes / 1e6 }'
    while [ "$(info log log_mirror_mode)" != mirror ]; do sleep 0.01; done
}

loads=0
load() {
    "$perdura" bench kv --server "127.0.0.1:$port" --clients 20 --pipeline 8 --seconds 2 --keys 20000 --seed "$((loads += 1))" --value-bytes 1000 \
        >/dev/null 2>&1 || true
}

crash() {
    kill -9 "$last_pid"
    wait "$last_pid" 2>/dev/null || true
}

quiet
start ""
for ((round = 0; round < rounds; round++)); do
    redis-cli -p "$port" save >/dev/null
    load
    while [ "$(info log log_unsynced_bytes)" != 0 ]; do sleep 0.01; done
    crash
    start "all on disk  "
    redis-cli -p "$port" save >/dev/null
    load
    strace -f -p "$last_pid" -o /dev/null -e "trace=$writes" -e "inject=$writes:delay_enter=$held" 2>/dev/null &
    stall=$!
    pids+=("$stall")
    sleep 1
    load &
    writer=$!
    sleep 5
    unsynced=$(info log log_unsynced_bytes)
    crash
    kill -9 "$stall" 2>/dev/null || true
    wait "$writer" "$stall" 2>/dev/null || true
    start "$(awk -v b="$unsynced" 'BEGIN { printf "%.0f MB in nodes", b / 1e6 }')"
done
