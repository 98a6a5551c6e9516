#!/usr/bin/env bash
# The user instructions that two builds of Perdura need for a durable SET and a GET of 100 bytes by 50
# clients, counted by an emulator: a figure that another load on the machine does not change, but for
# about 2 % (how many requests a round of the loop finds). Beside it stands bench-builds.sh, whose times have the
# kernel and the memory in them. With SHOW=1 it lists the functions.
#
#   OLD=path/to/old/perdura scripts/bench-instructions.sh
#   OLD=... PIPELINES="1 16" MIXES="set get" TRIES=3 scripts/bench-instructions.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
for tool in qemu-x86_64 gcc nm python3; do
    command -v "$tool" >/dev/null || die "$tool is needed: apt-get install qemu-user gcc binutils python3"
done
old=${OLD:?the binary to compare with}
[ -x "$old" ] || die "there is no $old"
build
make_work
gcc -O2 -Wall -Wextra -shared -fPIC -o "$work/plugin.so" "$here/scripts/instructions/plugin.c"

# count BINARY MIX PIPELINE: the median of the tries
count() {
    local try
    for ((try = 0; try < ${TRIES:-3}; try++)); do
        python3 "$here/scripts/instructions/count.py" "$work/plugin.so" "$1" "$2" "$3" 2>"$work/functions"
    done | median
    [ -z "${SHOW:-}" ] || cat "$work/functions" >&2
}

printf '%-4s %-4s %12s %12s %10s\n' mix P old new new/old
for mix in ${MIXES:-set get}; do
    for pipeline in ${PIPELINES:-16}; do
        before=$(count "$old" "$mix" "$pipeline")
        now=$(count "$perdura" "$mix" "$pipeline")
        printf '%-4s %-4s %12.0f %12.0f %10.3f\n' "$mix" "$pipeline" "$before" "$now" \
            "$(awk "BEGIN { print $now / $before }")"
    done
done
