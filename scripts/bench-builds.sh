#!/usr/bin/env bash
# Two builds of Perdura beside each other on this machine: durable SET and GET of 100 random bytes over
# 1M random keys by 50 clients, at pipeline 1 and 16. Both servers stand at once and take turns, the one
# that goes first changes every round; what counts is the median of the rounds' ratios. The client is
# the new build's for both.
#
#   OLD=path/to/old/perdura scripts/bench-builds.sh
#   OLD=... ROUNDS=9 SECONDS_EACH=3 PIPELINES="1 16" MIXES="set get" scripts/bench-builds.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
two_builds

rounds=${ROUNDS:-9}
seconds=${SECONDS_EACH:-3}
clients=${CLIENTS:-50}
keys=${KEYS:-1000000}
declare -A port

for name in old new; do
    port[$name]=$(free_port)
    perdura=${!name}
    start_perdura "$work/$name" "${port[$name]}"
    await "${port[$name]}"
    "$new" bench kv --server "127.0.0.1:${port[$name]}" --keys "$keys" --fill "$keys" \
        --seconds 0 --json >/dev/null
done

# once NAME MIX PIPELINE SEED: requests a second
once() {
    "$new" bench kv --server "127.0.0.1:${port[$1]}" --clients "$clients" --pipeline "$3" \
        --seconds "$seconds" --keys "$keys" --value-bytes 100 --mix "$2" --seed "$4" --json | jq -r .tps
}

printf '%-4s %-4s %12s %12s %10s %s\n' mix P old/s new/s new/old 'ratio of each round'
for mix in ${MIXES:-set get}; do
    for pipeline in ${PIPELINES:-1 16}; do
        : >"$work/old.tps" && : >"$work/new.tps" && : >"$work/ratios"
        for ((round = 1; round <= rounds; round++)); do
            quiet
            order="old new"
            [ $((round % 2)) = 0 ] && order="new old"
            for name in $order; do
                once "$name" "$mix" "$pipeline" "$((round * 100 + pipeline))" >>"$work/$name.tps"
            done
            paste <(tail -n 1 "$work/new.tps") <(tail -n 1 "$work/old.tps") |
                awk '{ printf "%.3f\n", $1 / $2 }' >>"$work/ratios"
        done
        printf '%-4s %-4s %12.0f %12.0f %10.3f %s\n' "$mix" "$pipeline" "$(median <"$work/old.tps")" \
            "$(median <"$work/new.tps")" "$(median <"$work/ratios")" "$(paste -sd' ' "$work/ratios")"
    done
done
