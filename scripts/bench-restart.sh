#!/usr/bin/env bash
# Time from exec to a full, correct DBSIZE and 1,000 checked values after kill -9: 2M keys, a
# checkpoint, 1M updates since. Perdura beside Redis with the same data in its append-only file
# (base file of the rewrite, then the updates). Interleaved rounds, medians.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli jq
build
make_work

keys=${KEYS:-2000000}
updates=${UPDATES:-1000000}
rounds=${ROUNDS:-5}
aof=(--appendonly yes --appendfsync everysec --aof-use-rdb-preamble yes
    --auto-aof-rewrite-percentage 0)

load() { # PORT SEED COUNT
    "$perdura" bench kv --server "127.0.0.1:$1" --keys "$keys" --fill "$3" --seed "$2" \
        --seconds 0 --json >/dev/null
}

settled() { # PORT
    while redis-cli -p "$1" info persistence |
        grep -Eq '(bgsave|rewrite)_in_progress:1|rewrite_scheduled:1'; do sleep 0.2; done
}

p=$(free_port)
start_perdura "$work/perdura" "$p" --checkpoint-log-size 100GiB
perdura_pid=$last_pid
await "$p"
r=$(free_port)
start_redis "$work/redis" "$r" "${aof[@]}"
redis_pid=$last_pid
await "$r"
for port in "$p" "$r"; do load "$port" 1 "$keys"; done
redis-cli -p "$p" save >/dev/null
redis-cli -p "$r" bgrewriteaof >/dev/null
sleep 1
settled "$r"
for port in "$p" "$r"; do load "$port" 2 "$updates"; done
sleep 2
kill -9 "$perdura_pid" "$redis_pid"
wait "$perdura_pid" "$redis_pid" 2>/dev/null || true

# A restart's first checkpoint would change what the next round sees: each works on a copy.
timed() { # NAME PORT
    local begin end size
    begin=$(date +%s.%N)
    "$3" "$work/copy" "$2" "${@:4}"
    await "$2"
    size=$(redis-cli -p "$2" dbsize)
    [ "$size" -eq "$keys" ] || die "$1 has $size keys of $keys"
    "$perdura" bench kv --server "127.0.0.1:$2" --keys "$keys" --filled "$updates" --seed 2 \
        --check 1000 --seconds 0 --json >/dev/null
    end=$(date +%s.%N)
    awk -v a="$begin" -v b="$end" 'BEGIN { print b - a }' >>"$work/$1.times"
}

for ((round = 1; round <= rounds; round++)); do
    for name in perdura redis; do
        rm -rf "$work/copy"
        cp -a "$work/$name" "$work/copy"
        sync
        quiet
        port=$(free_port)
        if [ "$name" = perdura ]; then
            timed perdura "$port" start_perdura
            redis-cli -p "$port" info recovery | tr -d '\r' |
                grep -E 'restart_(level|threads|seconds_(backup_read|backup_play|log_read|log_play|index|total)):' |
                sed -E 's/^restart_(seconds_)?//; s/(\.[0-9]{3})[0-9]*$/\1/' |
                tr '\n' ' ' >"$work/split"
        else
            timed redis "$port" start_redis "${aof[@]}"
        fi
        kill -9 "$last_pid"
        wait "$last_pid" 2>/dev/null || true
    done
done

ours=$(median <"$work/perdura.times")
peer=$(median <"$work/redis.times")
echo "$keys keys, $updates updates since the checkpoint, medians of $rounds"
printf 'perdura  %.3f s   %s\n' "$ours" "$(cat "$work/split")"
printf 'redis    %.3f s\n' "$peer"
awk -v a="$ours" -v b="$peer" 'BEGIN { printf "perdura / redis  %.2f\n", a / b }'
tr ' ' '\n' <"$work/split" | awk -F: '{ of[$1] = $2 } END {
    printf "index            %.0f %% of the restart in the last round\n", 100 * of["index"] / of["total"]
}'
