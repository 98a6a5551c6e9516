#!/usr/bin/env bash
# p99.9 of SET under full write load, without a checkpoint and while one follows the other, and
# the memory a checkpoint takes on top. Interleaved rounds, medians.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-cli jq
build
make_work

keys=${KEYS:-1000000}
seconds=${SECONDS_EACH:-10}
rounds=${ROUNDS:-5}
pipeline=${PIPELINE:-16}

port=$(free_port)
start_perdura "$work/perdura" "$port" --checkpoint-log-size 100GiB --checkpoint-max 30s
await "$port"
server_pid=$last_pid
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$server_pid/status"; }
run() {
    "$perdura" bench kv --server "127.0.0.1:$port" --keys "$keys" --pipeline "$pipeline" \
        --seconds "$seconds" --seed "$1" --json
}
field() { redis-cli -p "$port" info checkpoint | tr -d '\r' | sed -n "s/^checkpoint_$1://p"; }

"$perdura" bench kv --server "127.0.0.1:$port" --keys "$keys" --fill "$keys" --seconds 0 --json \
    >/dev/null
redis-cli -p "$port" save >/dev/null

for ((round = 1; round <= rounds; round++)); do
    quiet
    run "$round" >"$work/without.$round.json"
    rss >>"$work/rss.without"
    quiet
    before=$(field completed)
    (while :; do
        redis-cli -p "$port" bgsave >/dev/null
        [ "$(field running)" = 1 ] && rss >>"$work/rss.during"
        sleep 0.2
    done) &
    loop=$!
    run "$((round + 100))" >"$work/with.$round.json"
    kill "$loop"
    wait "$loop" 2>/dev/null || true
    echo "$(($(field completed) - before))" >>"$work/completed"
    while [ "$(field running)" = 1 ]; do sleep 0.2; done
done

of() { jq -r "$2" "$work/$1".*.json | median; }
printf '%-22s %10s %8s %8s\n' "P$pipeline, $seconds s, medians" SET/s p99us p99.9us
for kind in without with; do
    printf '%-22s %10.0f %8.0f %8.0f\n' "$kind a checkpoint" "$(of $kind .tps)" \
        "$(of $kind .latency_us.p99)" "$(of $kind .latency_us.p999)"
done
awk -v a="$(of with .latency_us.p999)" -v b="$(of without .latency_us.p999)" \
    'BEGIN { printf "p99.9 with / without    %.2f\n", a / b }'
printf 'checkpoints completed in a round: %s\n' "$(median <"$work/completed")"
awk -v a="$(sort -n "$work/rss.during" | tail -1)" -v b="$(sort -n "$work/rss.without" | tail -1)" \
    'BEGIN { printf "memory: %d MiB without, %d MiB at most during, %d MiB more\n", b / 1024, a / 1024, (a - b) / 1024 }'
