#!/usr/bin/env bash
# Resident bytes a key for 16-byte keys and 100-byte values, beside Redis.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli
build
make_work

keys=${KEYS:-2000000}
declare -A each
for name in perdura redis; do
    port=$(free_port)
    if [ "$name" = perdura ]; then
        start_perdura "$work/$name" "$port"
    else
        start_redis "$work/$name" "$port" --appendonly no
    fi
    await "$port"
    rss() { awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$last_pid/status"; }
    empty=$(rss)
    "$perdura" bench kv --server "127.0.0.1:$port" --keys "$keys" --fill "$keys" --value-bytes 100 \
        --seconds 0 --json >/dev/null
    sleep 1
    full=$(rss)
    each[$name]=$(((full - empty) / keys))
    used=$(redis-cli -p "$port" info memory | tr -d '\r' | sed -n 's/^used_memory://p')
    echo "$name: ${each[$name]} bytes resident a key, $((used / keys)) by its own account"
    kill -9 "$last_pid"
done
awk -v a="${each[perdura]}" -v b="${each[redis]}" 'BEGIN { printf "perdura / redis  %.2f\n", a / b }'
