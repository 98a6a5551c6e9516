#!/usr/bin/env bash
# Makes figures 5, 6, 8 and 9 of paper 000 on throttled disks of 29 MB/s, beside the modelled disks. Needs root, and at
# small scale up to half a GB for each disk.
#
#   scripts/reproduce-disks.sh                    1, 2 and 4 log disks, some 10 minutes
#   COUNT=8 scripts/reproduce-disks.sh            up to 8 log disks
#   scripts/reproduce-disks.sh 000-fig8           some of the figures
#   OUT=figures SCALE=full DISKS=/mnt/nvme/disks scripts/reproduce-disks.sh
#
# The files of the disks are in DISKS [default: /dev/shm, memory that nothing else disturbs, if it is there]. Below must be
# something faster than all throttled disks together. Syncs of other programs on a shared disk delay the throttled ones.
# Figure 8 needs image disks too: half of 8 devices.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$here"

build
quiet
figures=("$@")
[ ${#figures[@]} -gt 0 ] || figures=(000-fig5 000-fig6 000-fig8 000-fig9)
count=${COUNT:-4}
[[ $count =~ ^[1248]$ ]] || die "COUNT is $count; give 1, 2, 4 or 8 log disks"
# Figure 8 has up to four disks of each kind.
devices=$((count > 4 ? count : 2 * count))
images=$((count > 4 ? 4 : count))
out=${OUT:-$(mktemp -d)}
memory=/dev/shm
[ -d "$memory" ] || memory=${TMPDIR:-/tmp}
disks=${DISKS:-$(mktemp -d -p "$memory")}

# The file systems are unmounted whatever happens.
trap 'scripts/throttled-disks.sh --remove "$disks"' EXIT
scripts/throttled-disks.sh "$devices" "${RATE_MB:-29}" "$disks"

judged() {
    local figure=$1 logs=$count number args=()
    if [ "$figure" = 000-fig8 ]; then
        if [ "$count" -lt 2 ]; then
            echo "000-fig8 needs COUNT=2 or more; it is left out"
            return 0
        fi
        logs=$images
        for number in $(seq $((devices - images + 1)) "$devices"); do
            args+=(--image-dir "$disks/disk$number")
        done
    fi
    for number in $(seq 1 "$logs"); do args+=(--log-dir "$disks/disk$number"); done
    in_cgroup "$perdura" reproduce "$figure" --scale "${SCALE:-small}" --out "$out" "${args[@]}"
}

# Runs a program in the cgroup of the throttle, which only version 2 has apart.
in_cgroup() {
    [ -f "$disks/cgroup" ] || { "$@"; return; }
    (echo "$BASHPID" >"$(cat "$disks/cgroup")/cgroup.procs" && exec "$@")
}

failed=()
for figure in "${figures[@]}"; do
    judged "$figure" || failed+=("$figure")
done
echo "the figures are in $out"
if [ ${#failed[@]} -gt 0 ]; then
    die "claims fail in ${failed[*]}"
fi
