#!/usr/bin/env bash
# Resident bytes an element of hashes, sets and sorted sets of several sizes, beside Redis.
# Each size is filled with the same number of elements in all, into a fresh server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli
build
make_work

total=${ELEMENTS:-1000000}
sizes=${SIZES:-"10 50 100 1000 $total"}

# requests TYPE SIZE: the commands that make collections of SIZE elements each, as RESP.
requests() {
    awk -v type="$1" -v size="$2" -v total="$total" '
        function bulk(s) { return "$" length(s) "\r\n" s "\r\n" }
        BEGIN {
            for (n = 0; n < total; n++) {
                # Names and values of mixed length, as an application has them.
                name = sprintf("name:%d", (n * 7919) % 1000003)
                key = sprintf("key:%d", int(n / size))
                if (type == "hash") out = "*4\r\n" bulk("HSET") bulk(key) bulk(name) bulk("value:" n)
                if (type == "set") out = "*3\r\n" bulk("SADD") bulk(key) bulk(name)
                if (type == "ints") out = "*3\r\n" bulk("SADD") bulk(key) bulk((n * 7919) % 1000003)
                if (type == "zset") out = "*4\r\n" bulk("ZADD") bulk(key) bulk((n * 31) % 100000) bulk(name)
                printf "%s", out
            }
        }'
}

rss() { awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$last_pid/status"; }

# measure NAME TYPE SIZE: sets `each` to bytes an element.
measure() {
    local port empty
    port=$(free_port)
    rm -rf "${work:?}/$1"
    if [ "$1" = perdura ]; then
        start_perdura "$work/$1" "$port"
    else
        start_redis "$work/$1" "$port" --appendonly no
    fi
    await "$port"
    empty=$(rss)
    requests "$2" "$3" | redis-cli -p "$port" --pipe >/dev/null
    sleep 1
    each=$(awk -v a="$(rss)" -v b="$empty" -v n="$total" 'BEGIN { printf "%.1f", (a - b) / n }')
    kill -9 "$last_pid"
    wait "$last_pid" 2>/dev/null || true
}

printf '%-6s %9s %9s %9s %6s\n' type size perdura redis ratio
for type in ${TYPES:-hash set ints zset}; do
    for size in $sizes; do
        measure perdura "$type" "$size"
        ours=$each
        measure redis "$type" "$size"
        printf '%-6s %9s %9s %9s %6s\n' "$type" "$size" "$ours" "$each" \
            "$(awk -v a="$ours" -v b="$each" 'BEGIN { printf "%.2f", a / b }')"
    done
done
