#!/usr/bin/env bash
# Makes the figures of the papers at small scale, and fails if a verdict is worse than the recorded one in docs/papers.
# A figure with a worse verdict is made a second time: only a verdict that is worse both times counts.
#
#   scripts/reproduce-judged.sh                          all figures, about half an hour on two idle cores
#   scripts/reproduce-judged.sh 000-volume 004-fig4      some of them
#   OUT=figures scripts/reproduce-judged.sh              keeps the files of the figures in this folder
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$here"

build
quiet
out=${OUT:-$(mktemp -d)}
figures=("$@")
if [ ${#figures[@]} -eq 0 ]; then
    for file in docs/papers/*.json; do
        figures+=("$(basename "$file" .json)")
    done
fi
[ ${#figures[@]} -gt 0 ] || die "docs/papers has no figure"

worse=()
for figure in "${figures[@]}"; do
    judge=("$perdura" reproduce "$figure" --recorded docs/papers --out "$out")
    "${judge[@]}" || { echo "$figure again"; "${judge[@]}"; } || worse+=("$figure")
done
if [ ${#worse[@]} -gt 0 ]; then
    die "verdicts are worse than the recorded ones: ${worse[*]}"
fi
echo "${#figures[@]} figures: no verdict is worse than the recorded one"
