#!/usr/bin/env bash
# One event loop, several event loops, and the ceiling of several: as many servers of one loop, each with its share of the
# clients. All servers stand at once, and rounds take turns. As many generators run as there are loops, each with its share
# of the clients. The ratios are medians of the rounds' ratios.
#
#   scripts/bench-loops.sh
#   LOOPS=4 ROUNDS=7 SECONDS_EACH=5 PIPELINES="1 16 64" MIX=set CLIENTS=64 scripts/bench-loops.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-cli jq
build
make_work

loops=${LOOPS:-2}
rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-3}
pipelines=${PIPELINES:-1 16 64}
clients=${CLIENTS:-50}
keys=${KEYS:-100000}
mix=${MIX:-set}
declare -A port
servers=(one several)
for ((at = 0; at < loops; at++)); do servers+=("each-$at"); done

for name in "${servers[@]}"; do
    port[$name]=$(free_port)
    case $name in
    several) start_perdura "$work/$name" "${port[$name]}" --loops "$loops" ;;
    *) start_perdura "$work/$name" "${port[$name]}" --loops 1 ;;
    esac
    await "${port[$name]}"
    "$perdura" bench kv --server "127.0.0.1:${port[$name]}" --keys "$keys" --fill "$keys" \
        --seconds 0 --json >/dev/null
done

# load NAME PIPELINE ROUND: all generators at once. With NAME each, each generator has its own server.
load() {
    local at server waiting=()
    for ((at = 0; at < loops; at++)); do
        server=$1
        [ "$1" = each ] && server=each-$at
        "$perdura" bench kv --server "127.0.0.1:${port[$server]}" --clients "$((clients / loops))" \
            --pipeline "$2" --seconds "$seconds" --keys "$keys" --value-bytes 100 --mix "$mix" \
            --seed "$(($3 * 100 + at))" --json >"$work/$1.$2.$3.$at.json" &
        waiting+=("$!")
    done
    wait "${waiting[@]}"
}

# ratio A B: the median of the rounds' ratios of requests a second.
ratio() {
    local round
    for ((round = 1; round <= rounds; round++)); do
        jq -s 'map(.tps) | add' "$work/$1.$pipeline.$round".*.json >"$work/a"
        jq -s 'map(.tps) | add' "$work/$2.$pipeline.$round".*.json >"$work/b"
        jq -n --slurpfile a "$work/a" --slurpfile b "$work/b" '$a[0] / $b[0]'
    done | median
}

for pipeline in $pipelines; do
    for ((round = 1; round <= rounds; round++)); do
        for name in one several each; do
            quiet
            load "$name" "$pipeline" "$round"
        done
    done
    printf '\nP%s, %s, %s clients, %s loops, %s rounds of %s s, medians\n' \
        "$pipeline" "$mix" "$clients" "$loops" "$rounds" "$seconds"
    for name in one several each; do
        of() { for ((round = 1; round <= rounds; round++)); do jq -s "$1" "$work/$name.$pipeline.$round".*.json; done | median; }
        printf '%-8s %10.0f a second, p50 %.0f us, p99 %.0f us\n' "$name" \
            "$(of 'map(.tps) | add')" "$(of 'map(.latency_us.p50) | max')" "$(of 'map(.latency_us.p99) | max')"
    done
    printf 'several / each %.2f, several / one %.2f\n' "$(ratio several each)" "$(ratio several one)"
done
