#!/usr/bin/env bash
# Sets copied in the order of their hashes, beside Redis: COPY, DUMP into RESTORE, SUNIONSTORE and SADD of
# what SMEMBERS returned, for growing sets. Prints milliseconds of the server's busiest thread by its CPU
# clock, so that other work on the machine does not count. Ends with an error if COPY of the largest set takes
# more than twice Redis's time, or grows faster than the set does.
#
#   scripts/bench-hash-order.sh
#   SIZES="50000 100000 200000 400000 800000 1600000" scripts/bench-hash-order.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli
build
make_work

sizes=${SIZES:-50000 100000 200000 400000 800000 1600000}

# cpu PID: the busiest thread's time on a processor, microseconds.
cpu() {
    cat /proc/"$1"/task/*/schedstat | awk '$1 > most { most = $1 } END { print int(most / 1000) }'
}

# timed PORT PID COMMAND...: milliseconds that the command took.
timed() {
    local port=$1 pid=$2 before
    shift 2
    before=$(cpu "$pid")
    "$@" >/dev/null
    echo $((($(cpu "$pid") - before + 500) / 1000))
}

members() {
    seq 1 "$1" | sed 's/^/member:/' | xargs -n 500 echo SADD "$2" | redis-cli -p "$3" --pipe >/dev/null
}

# RESTORE takes its payload from a file, without the newline that redis-cli adds.
restore() {
    redis-cli -p "$1" dump source | head -c -1 | redis-cli -p "$1" -x restore restored 0
}

again() {
    redis-cli -p "$1" smembers source | xargs -n 500 echo SADD again | redis-cli -p "$1" --pipe
}

start_perdura "$work/perdura" "$(free_port)"
ours=("$last_port" "$last_pid")
start_redis "$work/redis" "$(free_port)"
theirs=("$last_port" "$last_pid")
await "${ours[0]}"
await "${theirs[0]}"

printf '%-8s %10s %8s %8s %12s %8s\n' server members COPY RESTORE SUNIONSTORE SADD
declare -A copy
for size in $sizes; do
    for server in perdura redis; do
        if [ $server = perdura ]; then at=("${ours[@]}"); else at=("${theirs[@]}"); fi
        port=${at[0]}
        redis-cli -p "$port" flushall >/dev/null
        members "$size" source "$port"
        copy[$server$size]=$(timed "${at[@]}" redis-cli -p "$port" copy source copied)
        restore=$(timed "${at[@]}" restore "$port")
        union=$(timed "${at[@]}" redis-cli -p "$port" sunionstore joined source)
        sadd=$(timed "${at[@]}" again "$port")
        printf '%-8s %10d %8d %8d %12d %8d\n' $server "$size" "${copy[$server$size]}" "$restore" "$union" "$sadd"
    done
    largest=$size
done

first=${sizes%% *}
share=$((copy[perdura$largest] * 100 / (copy[redis$largest] + 1)))
growth=$((copy[perdura$largest] * 100 / (copy[perdura$first] + 1)))
echo "COPY of $largest: $share % of Redis's time; $growth % of the time of $first"
[ "$share" -le 200 ] || die "COPY takes more than twice Redis's time"
[ "$growth" -le $((300 * largest / first)) ] || die "COPY grows faster than the set"
