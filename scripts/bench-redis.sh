#!/usr/bin/env bash
# Perdura beside Redis on this machine: SET of 100 random bytes over 1M random keys by 50 clients,
# at pipeline 1 and 16. All servers stand at once, rounds take turns, the median of five counts.
# The client is the same for all: `perdura bench kv`.
#
#   scripts/bench-redis.sh
#   ROUNDS=3 SECONDS_EACH=10 PIPELINES="1 16" scripts/bench-redis.sh
#   REDIS_BENCHMARK=1 scripts/bench-redis.sh      also once each with redis-benchmark
#   LOOPS=2 VALKEY=path/to/valkey-server scripts/bench-redis.sh
#                                                 two event loops, and Valkey with two threads for sockets beside
#
# scripts/bench-redis-commands.sh has the other commands.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli jq
build
make_work

rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-5}
pipelines=${PIPELINES:-1 16}
clients=${CLIENTS:-50}
keys=${KEYS:-1000000}
loops=${LOOPS:-1}
names=(perdura redis-none redis-everysec redis-always)
[ -n "${VALKEY:-}" ] && names+=(valkey-none valkey-everysec)
declare -A port

for name in "${names[@]}"; do
    port[$name]=$(free_port)
    case $name in
    perdura) start_perdura "$work/$name" "${port[$name]}" --loops "$loops" ;;
    redis-none) start_redis "$work/$name" "${port[$name]}" --appendonly no ;;
    valkey-none) redis_server=$VALKEY start_redis "$work/$name" "${port[$name]}" --io-threads 2 --appendonly no ;;
    valkey-*) redis_server=$VALKEY start_redis "$work/$name" "${port[$name]}" --io-threads 2 \
        --appendonly yes --appendfsync "${name#valkey-}" ;;
    redis-*) start_redis "$work/$name" "${port[$name]}" --appendonly yes \
        --appendfsync "${name#redis-}" ;;
    esac
    await "${port[$name]}"
    "$perdura" bench kv --server "127.0.0.1:${port[$name]}" --keys "$keys" --fill "$keys" \
        --seconds 0 --json >/dev/null
done

for pipeline in $pipelines; do
    for ((round = 1; round <= rounds; round++)); do
        for name in "${names[@]}"; do
            quiet
            "$perdura" bench kv --server "127.0.0.1:${port[$name]}" --clients "$clients" \
                --pipeline "$pipeline" --seconds "$seconds" --keys "$keys" --value-bytes 100 \
                --mix set --seed "$((round * 100 + pipeline))" --json \
                >"$work/$name.$pipeline.$round.json"
        done
    done
    printf '\nP%s, %s clients, %s rounds of %s s, medians\n' "$pipeline" "$clients" "$rounds" "$seconds"
    printf '%-16s %10s %8s %8s %9s %8s\n' server SET/s p50us p99us syncs CPUs
    for name in "${names[@]}"; do
        of() { jq -r "$1" "$work/$name.$pipeline".*.json | median; }
        syncs=-
        [ "$name" = perdura ] && syncs=$(of .syncs)
        printf '%-16s %10.0f %8.0f %8.0f %9s %8.2f\n' "$name" "$(of .tps)" \
            "$(of .latency_us.p50)" "$(of .latency_us.p99)" "$syncs" "$(of .cpu_seconds)"
    done
    base=$(jq -r .tps "$work/perdura.$pipeline".*.json | median)
    for name in "${names[@]:1}"; do
        peer=$(jq -r .tps "$work/$name.$pipeline".*.json | median)
        awk -v a="$base" -v b="$peer" -v n="$name" 'BEGIN { printf "perdura / %-16s %.2f\n", n, a / b }'
    done
done

if [ -n "${REDIS_BENCHMARK:-}" ]; then
    for pipeline in $pipelines; do
        for name in "${names[@]}"; do
            quiet
            printf '%s P%s: ' "$name" "$pipeline"
            redis-benchmark -p "${port[$name]}" -c "$clients" -P "$pipeline" -n 500000 -r "$keys" -q \
                SET key:__rand_int__ "$(printf '%.0s__rand_int__' 1 2 3 4 5 6 7 8)xxxx" | tail -1
        done
    done
fi
