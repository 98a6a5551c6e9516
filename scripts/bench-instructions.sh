#!/usr/bin/env bash
# The user instructions that the loop's thread needs for a request, by phase, with 50 clients that send pipelines. An
# emulator counts them, so another load on the machine changes a figure by less than 1 %. The kernel, the memory and the
# log's writer are not in it: for times see bench-builds.sh. Functions have phases in scripts/instructions/phases.txt.
#
#   scripts/bench-instructions.sh                              a table of this build: commands by phases
#   scripts/bench-instructions.sh check                        fails if a command needs 3 % more than is recorded
#   scripts/bench-instructions.sh record                       lowers the recorded figures; it raises none
#   OLD=path/to/old/perdura scripts/bench-instructions.sh      two builds beside each other
#   LOOPS="1 2 4 8" scripts/bench-instructions.sh              numbers of event loops beside each other
#   COMMANDS="SET GET" PIPELINES="1 16" TRIES=3 scripts/bench-instructions.sh
#   SHOW=1 COMMANDS=RPOP scripts/bench-instructions.sh         lists the functions as well
#
# The record has a table for each profile: the folder of the program, `debug` or `release`. CI checks the program that its
# tests have built, with the settings of .ci/run. An incremental build needs 4 % more instructions, and one with other
# features differs as well. Only a person raises a recorded figure, in the same change as its reason.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
for tool in qemu-x86_64 gcc nm python3; do
    command -v "$tool" >/dev/null || die "$tool is needed: apt-get install qemu-user gcc binutils python3"
done
counter=$here/scripts/instructions
mode=${1:-table}
commands=${COMMANDS:-SET GET INCR LPUSH RPOP SADD HSET ZADD XADD EVALSHA LPUSH-small RPOP-small}
# The most that a command may need, in percent of the recorded figure.
percent_max=${PERCENT_MAX:-103}
build
make_work
gcc -O2 -Wall -Wextra -shared -fPIC -o "$work/plugin.so" "$counter/plugin.c"
record=$counter/$(basename "$(dirname "$(realpath "$perdura")")").txt

# count BINARY COMMAND PIPELINE [LOOPS]: the instructions by phase, and their sum; of a few tries the least.
count() {
    local try
    for ((try = 0; try < ${TRIES:-1}; try++)); do
        python3 "$counter/count.py" "$work/plugin.so" "$@" 2>"$work/$2.functions" ||
            die "$2: $(tail -n 1 "$work/$2.functions")"
    done | sort -n -k "$sum" | head -n 1
    [ -z "${SHOW:-}" ] || cat "$work/$2.functions" >&2
}

# count_all BINARY PIPELINE [LOOPS]: a line for each command, in their order. As many at a time as there are processors.
count_all() {
    local command running=0
    for command in $commands; do
        if [ "$running" -ge "$(nproc)" ]; then
            wait -n || die "a command could not be counted"
            running=$((running - 1))
        fi
        count "$1" "$command" "${@:2}" >"$work/$command.line" &
        running=$((running + 1))
    done
    for ((; running > 0; running--)); do wait -n || die "a command could not be counted"; done
    for command in $commands; do echo "$command $(cat "$work/$command.line")"; done
}

phases=$(awk '/^[a-z]/ && !seen[$1]++ { print $1 }' "$counter/phases.txt")
sum=$(wc -w <<<"$phases sum")

columns() {
    awk '{ printf "%-12s", $1; for (i = 2; i <= NF; i++) printf "%9s", $i; print "" }'
}

table() {
    # shellcheck disable=SC2086 # one word for each column
    {
        echo command $phases sum
        count_all "$perdura" "${PIPELINES:-16}"
    } | columns
}

# by_loops: a table for each number of loops.
by_loops() {
    local number
    for number in $LOOPS; do
        # shellcheck disable=SC2086 # one word for each column
        {
            echo "loops=$number" $phases sum
            count_all "$perdura" "${PIPELINES:-16}" "$number"
        } | columns
    done
}

compare() {
    local pipeline old=$1
    printf '%-12s %-4s %9s %9s %8s\n' command P old new new/old
    for pipeline in ${PIPELINES:-16}; do
        count_all "$old" "$pipeline" >"$work/old"
        count_all "$perdura" "$pipeline" >"$work/new"
        paste -d ' ' "$work/old" "$work/new" |
            awk -v P="$pipeline" -v at="$((1 + sum))" '{
                old = $at
                new = $(at + NF / 2)
                printf "%-12s %-4s %9d %9d %8.3f\n", $1, P, old, new, new / old
            }'
    done
}

# recorded COMMAND: the recorded figure, or nothing.
recorded() {
    [ ! -f "$record" ] || awk -v command="$1" '$1 == command { print $2 }' "$record"
}

check() {
    local command line now was missed=0
    [ -f "$record" ] || die "there is no $record"
    count_all "$perdura" 16 >"$work/now"
    printf '%-12s %9s %9s\n' command recorded now
    while read -r command line; do
        was=$(recorded "$command")
        [ -n "$was" ] || die "$record has no $command: run scripts/bench-instructions.sh record"
        now=$(cut -d ' ' -f "$sum" <<<"$line")
        # A figure over the limit is counted again, alone. Only a lasting one counts.
        if [ $((now * 100)) -gt $((was * percent_max)) ]; then
            now=$(TRIES=3 count "$perdura" "$command" 16 | cut -d ' ' -f "$sum")
        fi
        printf '%-12s %9d %9d\n' "$command" "$was" "$now"
        if [ $((now * 100)) -gt $((was * percent_max)) ]; then
            echo "$command needs $(((now - was) * 100 / was)) % more instructions than recorded; see SHOW=1" >&2
            missed=$((missed + 1))
        elif [ $((now * percent_max)) -lt $((was * 100)) ]; then
            echo "$command needs fewer instructions than recorded: run scripts/bench-instructions.sh record" >&2
        fi
    done <"$work/now"
    [ "$missed" -eq 0 ] || die "$missed command(s) need more instructions than recorded"
}

record() {
    local command line now was
    [ -z "${COMMANDS:-}" ] || die "all commands are recorded together"
    count_all "$perdura" 16 >"$work/now"
    while read -r command line; do
        was=$(recorded "$command")
        now=$(cut -d ' ' -f "$sum" <<<"$line")
        [ -z "$was" ] || [ "$now" -lt "$was" ] || now=$was
        printf '%-12s %d\n' "$command" "$now"
    done <"$work/now" | tee "$work/record"
    cp "$work/record" "$record"
}

case $mode in
table)
    if [ -n "${LOOPS:-}" ]; then
        by_loops
    elif [ -z "${OLD:-}" ]; then
        table
    else
        [ -x "$OLD" ] || die "there is no $OLD"
        compare "$OLD"
    fi
    ;;
check) check ;;
record) record ;;
*) die "unknown mode $mode" ;;
esac
