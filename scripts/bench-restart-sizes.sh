#!/usr/bin/env bash
# The chart of the README: seconds from kill -9 to the first correct answer by the number of keys, half of them changed
# since the checkpoint, Perdura beside Redis. Writes docs/pictures/restart.tsv and draws the picture.
#
#   scripts/bench-restart-sizes.sh
#   SIZES="500000 1000000" ROUNDS=5 scripts/bench-restart-sizes.sh
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
table=$(mktemp)
trap 'rm -f "$table"' EXIT
echo "# keys, seconds of Perdura, seconds of Redis: ROUNDS=${ROUNDS:-3} scripts/bench-restart-sizes.sh" >"$table"
for keys in ${SIZES:-500000 1000000 2000000 4000000}; do
    found=$(KEYS=$keys UPDATES=$((keys / 2)) ROUNDS=${ROUNDS:-3} "$here/scripts/bench-restart.sh")
    echo "$found" >&2
    awk -v keys="$keys" '/^perdura +[0-9]/ { ours = $2 } /^redis / { peer = $2 }
        END { printf "%d %.2f %.2f\n", keys, ours, peer }' <<<"$found" >>"$table"
done
cp "$table" "$here/docs/pictures/restart.tsv"
"$here/docs/pictures/draw.py"
