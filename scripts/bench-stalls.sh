#!/usr/bin/env bash
# What each heavy command of one client does to another one, beside Redis: the worst PING of another client, and
# the longest round of the loop by its thread's CPU clock (Redis's: the most that its main thread ran between a PING
# and the answer). Prints a row for each command of size N, milliseconds. Ends with an error if a
# PING takes more than 50 ms, or a round more than twice Redis's and 20 ms.
#
#   scripts/bench-stalls.sh
#   N=100000 LOADS=SORT scripts/bench-stalls.sh     only the loads with SORT in their names
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server
cd "$here"
cargo test --locked --quiet --release -p perdura-differ --test differential --no-run
quiet
PERDURA_STALL_SIZE=${N:-1000000} PERDURA_STALL_LOADS=${LOADS:-} \
    cargo test --locked --quiet --release -p perdura-differ --test differential stall -- --nocapture
