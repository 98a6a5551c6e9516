#!/usr/bin/env bash
# The tools of Redis against Perdura, unchanged: redis-cli in RESP2 and RESP3 (what it prints must be
# what it prints beside Redis), the whole default list of redis-benchmark, and a session of redis-py
# over all types, which is also held against Redis so that it asks for nothing Redis does not do. With go
# there is also rueidis, whose client-side cache must follow what another client writes. Then programs: the lock of
# redis-py and RQ, and with PROGRAMS=1 those in other languages (scripts/test-programs.sh), which take four minutes more.
#
#   scripts/test-clients.sh
#   PROGRAMS=1 scripts/test-clients.sh
#   REDIS_PY=5.0.8 REQUESTS=100000 scripts/test-clients.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli redis-benchmark
build
make_work

clients=$here/scripts/clients
requests=${REQUESTS:-2000}
start_perdura "$work/data" "$(free_port)" && ours=$last_port
start_redis "$work/redis" "$(free_port)" --appendonly no && theirs=$last_port
await "$ours"
await "$theirs"

for protocol in -2 -3; do
    for port in "$ours" "$theirs"; do
        redis-cli -p "$port" "$protocol" --no-raw <"$clients/smoke.txt" >"$work/cli.$port" 2>&1
    done
    diff -u --label redis --label perdura "$work/cli.$theirs" "$work/cli.$ours" ||
        die "redis-cli $protocol shows something else"
    echo "redis-cli $protocol: $(wc -l <"$clients/smoke.txt") commands look the same"
done

for pipeline in 1 16; do
    redis-benchmark -p "$ours" -n "$requests" -P "$pipeline" -r 1000 --csv >"$work/benchmark" 2>"$work/errors" ||
        die "redis-benchmark -P $pipeline ended with an error: $(cat "$work/benchmark" "$work/errors")"
    grep -v '^WARNING: Could not fetch server CONFIG' "$work/errors" |
        grep . && die "redis-benchmark -P $pipeline complains"
    grep -i error "$work/benchmark" && die "redis-benchmark -P $pipeline had errors"
    echo "redis-benchmark -P $pipeline: $(($(wc -l <"$work/benchmark") - 1)) tests without an error"
done
redis-cli -p "$ours" flushall >/dev/null

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "redis==${REDIS_PY:-5.0.8}"
for port in "$theirs" "$ours"; do
    timeout 120 "$work/venv/bin/python" "$clients/session.py" "$port"
done

# A client-side cache of other people, in two modes of CLIENT TRACKING.
if command -v go >/dev/null; then
    (cd "$clients/cache" && go build -o "$work/cache" .)
    for port in "$theirs" "$ours"; do
        timeout 120 "$work/cache" "$port"
    done
else
    echo "rueidis: skipped, because there is no go"
fi

if [ -n "${PROGRAMS:-}" ]; then
    programs=()
else
    programs=(lock rq)
fi
PERDURA=$perdura "$here/scripts/test-programs.sh" "${programs[@]}"
