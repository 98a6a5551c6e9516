#!/usr/bin/env bash
# Runs every command of README.md and of the pages in docs/, word for word, from the files themselves.
#
# A document's ```sh blocks are one session. They run in order in one shell and one empty directory, and end at the
# first command that fails. The session has its own network and processes, so the ports in the text are free and
# nothing outlives it. The script reads three comments:
#
#   <!-- not run: REASON -->          the next block is shown and not run: it needs privileges
#   <!-- with: redis at db1:6379 -->  the session has a Redis of that name, with some keys
#   <!-- expects: MISCONF -->         the page shows replies that begin with this word; any other error fails
#
#   scripts/test-docs.sh                            README.md and each page of docs/ that has a ```sh block
#   PERDURA=target/debug/perdura scripts/test-docs.sh README.md
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli unshare ip curl prlimit
build
make_work
unshare -rnpm --fork true 2>/dev/null || die "this machine allows no namespaces (unshare -rnpm)"

perdura=$(realpath "$perdura")
documents=("$@")
if [ ${#documents[@]} -eq 0 ]; then
    mapfile -t documents < <(cd "$here" && grep -rl --include='*.md' '^```sh$' README.md docs | sort)
fi

# commands DOCUMENT: what is to be run; what is not goes to stderr.
commands() {
    awk -v document="$1" '
        function fail(why) { print document ":" NR ": " why >"/dev/stderr"; bad = 1; exit 1 }
        /^<!-- not run: / { reason = $0; gsub(/^<!-- not run: | -->$/, "", reason); next }
        !inside && /^```(console|shell|bash)/ { fail("commands stand in a block of the language sh, without prompts") }
        !inside && /^```sh$/ {
            inside = 1
            if (reason != "") print "not run, " reason ":" >"/dev/stderr"
            next
        }
        inside && /^```$/ { inside = 0; reason = ""; next }
        inside { count++ }
        inside && reason == "" { print }
        inside && reason != "" { print "    " $0 >"/dev/stderr" }
        !inside && reason != "" && NF { fail("a mark stands right before its block") }
        END { if (!bad && !count) { print document ": no command" >"/dev/stderr"; exit 1 } }
    ' "$here/$1"
}

# What the session has before the document's first command.
prelude() {
    cat <<PRELUDE
set -e
ip link set lo up
mount --bind "$work/hosts" /etc/hosts
cd "$work/session"
export PATH="$work/bin:\$PATH"
# Builds happen in the repository; one that PERDURA names is taken as it is.
cargo() { ${PERDURA:+true ||} (cd "$here" && command cargo "\$@" --locked); }
PRELUDE
    grep -q '^<!-- with: redis at db1:6379 -->' "$here/$1" && cat <<'REDIS'
redis-server --port 6379 --bind 127.0.0.1 --save "" --loglevel warning >/dev/null &
until redis-cli -h db1 ping >/dev/null 2>&1; do sleep 0.05; done
redis-cli -h db1 mset a 1 b 2 >/dev/null
redis-cli -h db1 rpush list 1 2 3 >/dev/null
redis-cli -h db1 zadd zset 1.5 one >/dev/null
REDIS
    echo "set -v"
}

mkdir -p "$work/bin"
ln -s "$perdura" "$work/bin/perdura"
{ cat /etc/hosts; echo "127.0.0.1 db1"; } >"$work/hosts"
for document in "${documents[@]}"; do
    echo "== $document"
    rm -rf "$work/session"
    mkdir -p "$work/session/target/release"
    ln -s "$perdura" "$work/session/target/release/perdura"
    ln -s "$here/packaging" "$work/session/packaging"
    { prelude "$document"; commands "$document"; } >"$work/script"
    if ! timeout 600 unshare -rnpm --fork --kill-child --mount-proc \
        bash "$work/script" >"$work/output" 2>&1 </dev/null; then
        cat "$work/output" >&2
        die "$document: the last command above failed"
    fi
    # redis-cli ends with 0 whatever the reply.
    expected=$(sed -n 's/^<!-- expects: \([A-Z]*\) -->$/\1/p' "$here/$document")
    errors=$(grep -E '^(\(error\) )?(ERR|WRONGTYPE|NOAUTH|NOPERM|OOM|MISCONF) ' "$work/output" || true)
    if [ -n "$expected" ]; then
        errors=$(grep -vE "^(\(error\) )?$expected " <<<"$errors" || true)
    fi
    if [ -n "$errors" ]; then
        echo "$errors" >&2
        die "$document: a reply was an error"
    fi
    echo "$(commands "$document" 2>/dev/null | grep -c . || true) lines ran"
done
