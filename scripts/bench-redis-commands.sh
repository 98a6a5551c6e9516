#!/usr/bin/env bash
# Perdura beside Redis with everysec, command by command, with redis-benchmark at pipeline 16: requests
# a second, the median of some rounds in which the servers take turns, and the ratio. Every write is
# durable on our side before it is answered. Ends with an error if a ratio is below its target.
#
#   scripts/bench-redis-commands.sh
#   ROUNDS=5 REQUESTS=1000000 PIPELINE=16 KEYS=1000000 scripts/bench-redis-commands.sh
#   TESTS= scripts/bench-redis-commands.sh          only what redis-benchmark has no test of
#   TARGETS=no scripts/bench-redis-commands.sh      only measures
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli redis-benchmark
build
make_work

rounds=${ROUNDS:-5}
requests=${REQUESTS:-500000}
pipeline=${PIPELINE:-16}
keys=${KEYS:-1000000}
clients=${CLIENTS:-50}
# The order is redis-benchmark's own: what is popped was pushed before.
tests=${TESTS-set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset}
# Commands that redis-benchmark has no test of; a million places, one in each square kilometre.
random=__rand_int__
others=(
    "GEOADD places ${random}e-5 ${random}e-5 $random"
    "GEOSEARCH places FROMLONLAT ${random}e-5 ${random}e-5 BYRADIUS 5 km ASC COUNT 10"
    "PFADD visitors:$random $random"
    # Into one sketch, four adds of five change nothing: Redis answers those without its log, while here a
    # pipeline waits for the disk if one of its sixteen writes. Without a target.
    "pfadd visitors $random"
)
# A script of five commands, which both are given before the rounds.
source="local v = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) redis.call('INCR', KEYS[2])
redis.call('EXPIRE', KEYS[2], 1000) return redis.call('GET', KEYS[2])"
declare -A port target

start_perdura "$work/perdura" "$(free_port)" && port[perdura]=$last_port
start_redis "$work/redis" "$(free_port)" --appendonly yes --appendfsync everysec &&
    port[redis]=$last_port
for name in perdura redis; do
    await "${port[$name]}"
    sha=$(redis-cli -p "${port[$name]}" script load "$source")
done
others+=("EVALSHA $sha 2 key:$random counter:$random value:$random")

for ((round = 1; round <= rounds; round++)); do
    for name in perdura redis; do
        redis-cli -p "${port[$name]}" flushall >/dev/null
        quiet
        bench=(redis-benchmark -p "${port[$name]}" -c "$clients" -P "$pipeline" -n "$requests" -r "$keys"
            --csv)
        {
            [ -z "$tests" ] || "${bench[@]}" -t "$tests" 2>/dev/null | tail -n +2
            for other in "${others[@]}"; do
                # shellcheck disable=SC2086 # the words of a command
                "${bench[@]}" $other 2>/dev/null | tail -n +2
            done
        } >"$work/$name.$round.csv"
    done
done

for name in SET INCR LPUSH RPOP SADD HSET ZADD MSET GEOADD GEOSEARCH PFADD; do target[$name]=0.8; done
target[GET]=1
target[EVALSHA]=0.7

printf 'P%s, %s clients, %s requests of each, %s rounds, medians\n' \
    "$pipeline" "$clients" "$requests" "$rounds"
printf '%-36s %12s %12s %6s %7s\n' command perdura/s redis/s ratio target
missed=0
while IFS= read -r line; do
    label=$(cut -d'"' -f2 <<<"$line")
    of() { grep -hF "\"$label\"," "$work/$1".*.csv | cut -d'"' -f4 | median; }
    ours=$(of perdura)
    theirs=$(of redis)
    wanted=${target[${label%% *}]:-}
    case $label in *needed*) wanted= ;; esac
    ratio=$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.2f", a / b }')
    printf '%-36.36s %12.0f %12.0f %6s %7s\n' "$label" "$ours" "$theirs" "$ratio" "${wanted:--}"
    if [ -n "$wanted" ] && awk -v r="$ratio" -v w="$wanted" 'BEGIN { exit !(r < w) }'; then
        missed=$((missed + 1))
    fi
done <"$work/perdura.1.csv"
[ "$missed" -eq 0 ] || [ "${TARGETS:-yes}" = no ] || die "$missed target(s) missed"
