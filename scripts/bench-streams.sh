#!/usr/bin/env bash
# Streams beside Redis with everysec: requests a second of XADD, XREADGROUP and XACK (medians of some rounds in which the servers take
# turns), the bytes that each writes into the log here, one by one and on average, and resident bytes an entry. Ends with an error if a
# target is missed.
#
# Entries are acknowledged twice over: half of them in the order in which they were delivered, as workers do it (redis-cli --pipe,
# because redis-benchmark knows no numbers but random ones), the other half in random order, which has no target.
#
#   scripts/bench-streams.sh
#   ROUNDS=5 ENTRIES=1000000 PIPELINE=16 scripts/bench-streams.sh
#   TARGETS=no scripts/bench-streams.sh             only measures
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli redis-benchmark
build
make_work

rounds=${ROUNDS:-5}
entries=${ENTRIES:-1000000}
pipeline=${PIPELINE:-16}
clients=${CLIENTS:-50}
missed=0
ratio=()

start() {
    rm -rf "${work:?}/$1"
    case $1 in
    perdura) start_perdura "$work/perdura" "$(free_port)" ;;
    redis) start_redis "$work/redis" "$(free_port)" --appendonly yes --appendfsync everysec ;;
    esac
    await "$last_port"
}

stop() {
    kill -9 "$last_pid"
    wait "$last_pid" 2>/dev/null || true
}

cli() { redis-cli -p "$last_port" "$@"; }

rss() { awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$last_pid/status"; }

# The bytes in the log, when all of it is written.
log_bytes() { cli info log | tr -d '\r' | awk -F: '$1 == "log_log_bytes" { print $2 }'; }

# bench COMMAND...: requests a second.
bench() {
    redis-benchmark -p "$last_port" -c "$clients" -P "$pipeline" -n "$entries" -r "$entries" --csv "$@" 2>/dev/null |
        tail -n 1 | cut -d'"' -f4
}

# judge NAME VALUE TARGET below|above
judge() {
    printf '%-44s %12s %12s\n' "$1" "$2" "$4 $3"
    awk -v v="$2" -v t="$3" -v how="$4" 'BEGIN { exit !(how == "below" ? v > t : v < t) }' || return 0
    missed=$((missed + 1))
}

# A stream whose entries have the ids 1-0, 2-0 and so on, so that each can be named.
fill() {
    awk -v n="$entries" 'function bulk(s) { return "$" length(s) "\r\n" s "\r\n" }
        BEGIN { for (i = 1; i <= n; i++) printf "*7\r\n%s", bulk("XADD") bulk("events") bulk(i "-0") bulk("user") \
            bulk((i * 7919) % 1000003) bulk("action") bulk("bought:" i % 100) }' | redis-cli -p "$last_port" --pipe >/dev/null
}

# Acknowledges the first half of the entries in their order: requests a second.
acknowledge_half() {
    local begin end
    awk -v n="$((entries / 2))" 'function bulk(s) { return "$" length(s) "\r\n" s "\r\n" }
        BEGIN { for (i = 1; i <= n; i++) printf "*4\r\n%s", bulk("XACK") bulk("events") bulk("group") bulk(i "-0") }' \
        >"$work/acknowledge"
    begin=$(date +%s%N)
    redis-cli -p "$last_port" --pipe <"$work/acknowledge" >/dev/null
    end=$(date +%s%N)
    echo $((entries / 2 * 1000000000 / (end - begin)))
}

one_round() {
    start "$1"
    quiet
    bench XADD added '*' user __rand_int__ action bought:__rand_int__ >>"$work/xadd.$1"
    cli flushall >/dev/null
    fill
    cli xgroup create events group 0 >/dev/null
    quiet
    read_rate=$(bench XREADGROUP GROUP group worker COUNT 1 STREAMS events '>')
    acknowledge_rate=$(acknowledge_half)
    echo "$read_rate" >>"$work/xreadgroup.$1"
    echo "$acknowledge_rate" >>"$work/xack.$1"
    bench XACK events group __rand_int__-0 >>"$work/random-xack.$1"
    # The time of one of each.
    awk -v a="$read_rate" -v b="$acknowledge_rate" 'BEGIN { printf "%.0f\n", 1 / (1 / a + 1 / b) }' >>"$work/both.$1"
    stop
}

for ((round = 1; round <= rounds; round++)); do
    for name in perdura redis; do one_round "$name"; done
done
printf 'P%s, %s clients, %s entries, %s rounds, medians\n' "$pipeline" "$clients" "$entries" "$rounds"
printf '%-22s %12s %12s %6s\n' command perdura/s redis/s ratio
for command in xadd xreadgroup xack both random-xack; do
    ours=$(median <"$work/$command.perdura")
    theirs=$(median <"$work/$command.redis")
    ratio[${#ratio[@]}]=$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.2f", a / b }')
    printf '%-22s %12.0f %12.0f %6s\n' "$command" "$ours" "$theirs" "${ratio[-1]}"
done

printf '\n%-44s %12s %12s\n' what found target
judge "XADD, ratio" "${ratio[0]}" 0.8 above
judge "XREADGROUP and XACK, ratio" "${ratio[3]}" 0.8 above

start perdura
empty=$(rss)
before=$(log_bytes)
fill
sleep 1
judge "log bytes of an XADD, average" "$((($(log_bytes) - before) / entries))" 256 below
ours=$((($(rss) - empty) / entries))
# One at a time, so that each has its flush: what a block has beside its records counts, too.
most() {
    local most=0 before after
    before=$(log_bytes)
    for ((i = 1; i <= 300; i++)); do
        cli "${@//%i/$i}" >/dev/null
        after=$(log_bytes)
        [ $((after - before)) -le $most ] || most=$((after - before))
        before=$after
    done
    echo "$most"
}
judge "log bytes of an XADD alone, at most" "$(most xadd events "$((entries + 1))-%i" user %i action bought:7)" 4096 below
cli xgroup create events group 0 >/dev/null
judge "log bytes of an XREADGROUP alone, at most" "$(most xreadgroup group group worker count 1 streams events '>')" 4096 below
before=$(log_bytes)
bench XREADGROUP GROUP group worker COUNT 1 STREAMS events '>' >/dev/null
judge "log bytes of an XREADGROUP, average" "$((($(log_bytes) - before) / entries))" 256 below
before=$(log_bytes)
pending=$(cli xpending events group | head -n 1)
bench XACK events group __rand_int__-0 >/dev/null
acknowledged=$((pending - $(cli xpending events group | head -n 1)))
judge "log bytes of an XACK, average" "$((($(log_bytes) - before) / acknowledged))" 256 below
stop
start redis
empty=$(rss)
fill
sleep 1
theirs=$((($(rss) - empty) / entries))
stop
echo "resident bytes of an entry: $ours, Redis $theirs"
judge "resident bytes of an entry, ratio" "$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.2f", a / b }')" 1.2 below
[ "$missed" -eq 0 ] || [ "${TARGETS:-yes}" = no ] || die "$missed target(s) missed"
