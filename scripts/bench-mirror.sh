#!/usr/bin/env bash
# A server whose log two nodes mirror, beside one that waits for its disk, in turns: SET a second of one client, of 50, and of 50 with
# pipelines of 16 (medians of some rounds), and their ratio. Then one node is killed under 50 clients and started again: when the server has
# noticed, and the rate alone and during the return, as shares of the rate before.
#
#   scripts/bench-mirror.sh                  both nodes share their memory with the server
#   NODES=tcp scripts/bench-mirror.sh        the second one is reached by TCP, as on another machine
#   BUSY_DISK=1 scripts/bench-mirror.sh      beside a process that writes to the same disk all the time
#   ROUNDS=5 SECONDS_EACH=4 scripts/bench-mirror.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-cli jq
build
make_work

rounds=${ROUNDS:-3}
seconds=${SECONDS_EACH:-2}
second=()
[ "${NODES:-shared}" = tcp ] && second=(--no-share)

# start_node NUMBER [OPTION ...]
start_node() {
    local number=$1
    shift
    "$perdura" logd --listen "${address[$number]}" --ring 64MiB "$@" 2>>"$work/node.stderr" &
    node[number]=$!
    pids+=("$!")
}

# rate PORT CLIENTS PIPELINE SEED: SET a second. A seed that a server has seen repeats values, and such a SET changes nothing.
rate() {
    "$perdura" bench kv --server "127.0.0.1:$1" --clients "$2" --pipeline "$3" --seconds "$seconds" --keys 100000 \
        --seed "$4" --json |
        jq .tps
}

# mode PORT: what acknowledgements rest on.
mode() { redis-cli -p "$1" info log | tr -d '\r' | awk -F: '$1 == "log_mirror_mode" { print $2 }'; }

commands() { redis-cli -p "$1" info stats | tr -d '\r' | awk -F: '$1 == "total_commands_processed" { print $2 }'; }

now() { date +%s.%N; }

# since TIME COMMANDS: commands a second since then.
since() { awk -v t="$(now)" -v n="$(commands "$mirrored")" -v t0="$1" -v n0="$2" 'BEGIN { print (n - n0) / (t - t0) }'; }

# over SECONDS: commands a second in that time.
over() {
    local time count
    time=$(now) count=$(commands "$mirrored")
    sleep "$1"
    since "$time" "$count"
}

# until_mode WORD yes|no: waits until the mode is that one, or is not; prints the seconds.
until_mode() {
    local begun try is
    begun=$(now)
    for ((try = 0; try < 10000; try++)); do
        is=no
        [ "$(mode "$mirrored")" = "$1" ] && is=yes
        if [ "$is" = "$2" ]; then
            awk -v a="$begun" -v b="$(now)" 'BEGIN { printf "%.2f\n", b - a }'
            return
        fi
        sleep 0.002
    done
    die "the mode stays $(mode "$mirrored")"
}

address=("127.0.0.1:$(free_port)" "127.0.0.2:$(free_port)")
node=()
start_node 0
start_node 1 ${second[@]+"${second[@]}"}
sleep 0.5
mirrored=$(free_port)
start_perdura "$work/mirrored" "$mirrored" --log-nodes "${address[0]},${address[1]}" --log-view "$work/view" \
    --log-one-machine --log-tail 64MiB --durability mirror
await "$mirrored"
disk=$(free_port)
start_perdura "$work/disk" "$disk" --durability disk
await "$disk"
until_mode mirror yes >/dev/null

quiet
if [ -n "${BUSY_DISK:-}" ]; then
    while :; do
        dd if=/dev/zero of="$work/busy" bs=1M count=512 oflag=direct conv=notrunc status=none
    done &
    pids+=("$!")
fi
for load in "1 1" "50 1" "50 16"; do
    read -r clients pipeline <<<"$load"
    for ((round = 0; round < rounds; round++)); do
        seed=$((clients * 1000 + pipeline * 100 + round + 2))
        a=$(rate "$mirrored" "$clients" "$pipeline" "$seed")
        b=$(rate "$disk" "$clients" "$pipeline" "$seed")
        echo "$a" >>"$work/mirror.$clients.$pipeline"
        echo "$b" >>"$work/disk.$clients.$pipeline"
        awk -v a="$a" -v b="$b" 'BEGIN { print a / b }' >>"$work/ratio.$clients.$pipeline"
    done
    printf '%2d clients, pipelines of %2d: disk %9.0f  mirror %9.0f  ratio %.2f\n' "$clients" "$pipeline" \
        "$(median <"$work/disk.$clients.$pipeline")" "$(median <"$work/mirror.$clients.$pipeline")" \
        "$(median <"$work/ratio.$clients.$pipeline")"
done

"$perdura" bench kv --server "127.0.0.1:$mirrored" --clients 50 --seconds $((rounds * 10 + 10)) --keys 100000 --json \
    >/dev/null &
pids+=("$!")
sleep 1
for ((round = 0; round < rounds; round++)); do
    before=$(over 2)
    kill -9 "${node[1]}"
    wait "${node[1]}" 2>/dev/null || true
    noticed=$(until_mode mirror no)
    alone=$(over 2)
    time=$(now) count=$(commands "$mirrored")
    start_node 1 ${second[@]+"${second[@]}"}
    returned=$(until_mode mirror yes)
    during=$(since "$time" "$count")
    awk -v n="$noticed" -v r="$returned" -v b="$before" -v a="$alone" -v d="$during" 'BEGIN {
        printf "a node is gone: noticed after %.2f s, then %.2f of %.0f a second; returned within %.2f s, at %.2f of the rate alone\n",
            n, a / b, b, r, d / a }'
done
