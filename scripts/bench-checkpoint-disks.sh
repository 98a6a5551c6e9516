#!/usr/bin/env bash
# The time of a checkpoint, and of the restart after it, onto one, two and four image disks of 29 MB/s each. The disks
# are loop devices that the kernel throttles (scripts/throttled-disks.sh), so this needs root. Medians of rounds in one
# run; each round makes a new database for each number of disks.
#
#   scripts/bench-checkpoint-disks.sh               three rounds of 200,000 keys of 1,000 bytes, about four minutes
#   KEYS=50000 ROUNDS=1 COUNTS="1 2" scripts/bench-checkpoint-disks.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-cli jq
build
make_work

keys=${KEYS:-200000}
rounds=${ROUNDS:-3}
rate=${RATE_MB:-29}
read -r -a counts <<<"${COUNTS:-1 2 4}"
most=$(printf '%s\n' "${counts[@]}" | sort -n | tail -1)

disks=$(mktemp -d "${DISKS:-/dev/shm}/perdura-disks.XXXXXX")
remove_disks() { "$here/scripts/throttled-disks.sh" --remove "$disks"; }
trap 'finish; remove_disks; rm -rf "$disks"' EXIT
mapfile -t dirs < <(SIZE_MB=2000 "$here/scripts/throttled-disks.sh" "$most" "$rate" "$disks")
[ ${#dirs[@]} -eq "$most" ] || die "there are ${#dirs[@]} disks, not $most"

fill() {
    "$perdura" bench kv --server "127.0.0.1:$port" --keys "$keys" --value-bytes 1000 --fill "$keys" --seconds 0 \
        --seed "$1" --json >/dev/null
}
# A field of the section $1 of INFO.
field() { redis-cli -p "$port" info "$1" | tr -d '\r' | sed -n "s/^$2://p"; }

for ((round = 1; round <= rounds; round++)); do
    for count in "${counts[@]}"; do
        quiet
        images=()
        for ((disk = 0; disk < count; disk++)); do
            rm -rf "${dirs[disk]}/images"
            images+=(--image-dir "${dirs[disk]}/images")
        done
        rm -rf "$work/data"
        port=$(free_port)
        # A checkpoint takes as long as its disks need.
        options=(--checkpoint-log-size 100GiB --checkpoint-max 1s "${images[@]}")
        start_perdura "$work/data" "$port" "${options[@]}"
        await "$port"
        fill "$round"
        redis-cli -p "$port" save >/dev/null
        # The second image is written over zeros, and the third over pages of the first.
        fill "$((round + 100))"
        redis-cli -p "$port" save >/dev/null
        fill "$((round + 200))"
        redis-cli -p "$port" save >/dev/null
        field checkpoint checkpoint_last_us >>"$work/checkpoint.$count"
        field checkpoint checkpoint_last_bytes >>"$work/bytes.$count"
        kill -9 "$last_pid"
        wait "$last_pid" 2>/dev/null || true
        sync
        echo 3 >/proc/sys/vm/drop_caches
        start_perdura "$work/data" "$port" "${options[@]}"
        await "$port"
        field recovery restart_seconds_total >>"$work/restart.$count"
        kill -9 "$last_pid"
        wait "$last_pid" 2>/dev/null || true
    done
done

printf '%-12s %12s %8s %14s\n' 'image disks' 'checkpoint s' MB/s 'restart s'
for count in "${counts[@]}"; do
    awk -v n="$count" -v us="$(median <"$work/checkpoint.$count")" -v b="$(median <"$work/bytes.$count")" \
        -v r="$(median <"$work/restart.$count")" \
        'BEGIN { printf "%-12d %12.2f %8.1f %14.2f\n", n, us / 1e6, b / us, r }'
done
for count in "${counts[@]:1}"; do
    awk -v a="$(median <"$work/checkpoint.${counts[0]}")" -v b="$(median <"$work/checkpoint.$count")" \
        -v c="$(median <"$work/restart.${counts[0]}")" -v d="$(median <"$work/restart.$count")" -v n="$count" \
        -v first="${counts[0]}" \
        'BEGIN { printf "%d disk / %d disks: checkpoint %.2f, restart %.2f\n", first, n, a / b, c / d }'
done
