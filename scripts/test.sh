#!/usr/bin/env bash
# All tests: units and integration, the seeded recovery bugs, 20,000 simulated crash runs,
# 20,000 random commands beside a real Redis 7.0, the book, every command of the documents, and the tools of Redis.
#
#   PERDURA_KILL_ROUNDS=200 PERDURA_POWERCUT_ROUNDS=50 scripts/test.sh    the long way
#   PERDURA_KILL_LOOPS_ROUNDS=200 PERDURA_POWERCUT_LOOPS_ROUNDS=50 PERDURA_LINEAR_OPS=10000000 scripts/test.sh   with four event loops
#   PERDURA_KILL_SYNC_ROUNDS=50 PERDURA_POWERCUT_SYNC_ROUNDS=50 scripts/test.sh   with --log-io sync
#   PERDURA_CRASH_RUNS=1000000 scripts/test.sh                            more crash runs
#   PERDURA_TABLES_RUNS=200000 scripts/test.sh                            more crash runs of typed tables
#   PERDURA_TREE_RUNS=200000 scripts/test.sh                              more crash runs of trees
#   PERDURA_MIXED_RUNS=100000 scripts/test.sh                             more crash runs of tables and a tree in one database
#   PERDURA_ARCHIVE_RUNS=90000 scripts/test.sh                            a million crashes of database and archive
#   PERDURA_MIRROR_RUNS=1000000 scripts/test.sh                           more crash runs of the log in nodes
#   PERDURA_MIRROR_ROUNDS=200 scripts/test.sh                             more failures of nodes and of links to them
#   PERDURA_SECTOR_ROUNDS=50 scripts/test.sh                              more power cuts of a disk that loses sectors
#   PERDURA_KILL_MODEL_ROUNDS=132 scripts/test.sh                        more kills under groups, scripts and tracking
#   PERDURA_FAULT_CASES=100000 scripts/test.sh                            every system call of a session fails once (hours)
#   PERDURA_KILL_TABLES_ROUNDS=20 scripts/test.sh                         more kills of TPC-C
#   PERDURA_DIFF_COMMANDS=1000000 scripts/test.sh                         more commands beside Redis
#   PERDURA_DIFF_LOOPS=4 PERDURA_DIFF_COMMANDS=1000000 cargo test -p perdura-differ   the same on four event loops
#   PERDURA=target/release/perdura scripts/test.sh                        the last steps with a release build
#
# One build serves all steps, with assertions. A release takes minutes to compile, and its crash runs take two thirds of the
# time.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-test-deps.sh
PATH=$PATH:/usr/sbin:/sbin

step() {
    printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"
}

# The mistakes of all crates can be armed, and their assertions are on.
step "units, integration, simulator, and the seeded bugs: each must be caught"
cargo test --locked --workspace --features perdura-page/flaws,perdura-archive/flaws

# The programs are those of the step before: only the settings differ.
again() {
    cargo test --locked --workspace --features perdura-page/flaws,perdura-archive/flaws --test "$@"
}
step "the protocol's tests, with the clients on three event loops"
PERDURA_TEST_LOOPS=3 again redis
step "random commands beside a real Redis, with the clients on three event loops"
PERDURA_DIFF_LOOPS=3 PERDURA_DIFF_COMMANDS=5000 PERDURA_DIFF_ENCODINGS=1000 PERDURA_DIFF_SKETCHES=300 \
    PERDURA_DIFF_TRACKING=1000 again differential

step "programs that embed the database"
# The tests have built them.
for example in crates/engine/examples/*.rs; do
    "${CARGO_TARGET_DIR:-target}/debug/examples/$(basename "$example" .rs)"
done

step "interleavings of the log's few locks"
cargo test --locked -p perdura-wal --features shuttle,flaws --test interleave

step "interleavings of the tables that loops share"
# With the packages and features of the first step, so that only the server is built again.
cargo test --locked --workspace --lib \
    --features perdura-page/flaws,perdura-archive/flaws,perdura-server/shuttle interleave

step "partitions between a database and its nodes"
scripts/test-mirror-net.sh

# From here on the program that the tests have built, or another one.
PERDURA=$(realpath "${PERDURA:-${CARGO_TARGET_DIR:-target}/debug/perdura}")
export PERDURA

crash() {
    step "crash runs, mode $1"
    "$PERDURA" crash --mode "$1" --seed 1 --runs "$2" --jobs "$(nproc)" --json
}
crash both "${PERDURA_CRASH_RUNS:-20000}"
crash tables "${PERDURA_TABLES_RUNS:-3000}"
crash tree "${PERDURA_TREE_RUNS:-3000}"
crash mixed "${PERDURA_MIXED_RUNS:-2000}"
crash archive "${PERDURA_ARCHIVE_RUNS:-3000}"
crash mirror "${PERDURA_MIRROR_RUNS:-2000}"

step "three figures of the papers: no verdict is worse than the recorded one"
for figure in 000-volume 001-bytes 002-fig2b; do
    "$PERDURA" reproduce "$figure" --recorded docs/papers --out "${CARGO_TARGET_DIR:-target}/figures"
done

step "the book: pictures, pages and links"
scripts/book.sh

step "every command of the documents"
scripts/test-docs.sh

step "the tools of Redis"
scripts/test-clients.sh

step "all is well"
