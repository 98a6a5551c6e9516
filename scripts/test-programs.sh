#!/usr/bin/env bash
# Programs that people run on Redis, unchanged, each to its end beside Redis and beside Perdura: locks, job runners,
# caches. They kill their own workers, and the server too: the one they kill is started anew on its data, as systemd
# would do it.
#
#   scripts/test-programs.sh                   all whose language is installed
#   scripts/test-programs.sh lock rq           some of them
#
# Each is in scripts/clients and gets the ports of three servers; it says in a line what it saw, or fails. Redis writes
# its log before it replies, so that it too keeps what it acknowledged when its process is killed; the log is in memory
# where it can be, so that a busy disk is no reason for Redis to be late.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-server redis-cli
build
make_work
memory=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "$work")")
trap 'end_served; rm -rf "$memory"; finish' EXIT

clients=$here/scripts/clients
running=()
all=(lock rq pottery bullmq node-redlock asynq redsync redisson)

# serve PORT COMMAND ...: keeps a server on the port, also after a kill.
serve() {
    local port=$1 server=
    shift
    trap 'kill -9 $server; exit 0' TERM
    while :; do
        "$@" >>"$work/$port.output" 2>&1 &
        server=$!
        wait $server || true
    done 2>/dev/null
}

end_served() {
    kill "${pids[@]}" "${running[@]}" 2>/dev/null || true
    wait
    pids=()
}

theirs=() ours=()
for _ in 1 2 3; do
    port=$(free_port) && mkdir "$memory/$port" && theirs+=("$port")
    serve "$port" redis-server --port "$port" --bind 127.0.0.1 --dir "$memory/$port" --save "" \
        --appendonly yes --appendfsync no &
    pids+=($!)
    port=$(free_port) && ours+=("$port")
    serve "$port" "$perdura" serve --data "$work/$port" --listen "127.0.0.1:$port" &
    pids+=($!)
done
for port in "${theirs[@]}" "${ours[@]}"; do
    (await "$port") || { tail -n 20 "$work/$port.output"; exit 1; }
done

# python NAME: a virtual environment with what scripts/clients/NAME/requirements.txt pins.
python() {
    [ -d "$work/$1" ] && return 0
    python3 -m venv "$work/$1"
    "$work/$1/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$clients/$1/requirements.txt"
}

# What scripts/clients/node/package-lock.json pins, beside copies of the programs.
node_modules() {
    [ -d "$work/node" ] && return 0
    cp -r "$clients/node" "$work/node"
    (cd "$work/node" && npm ci --silent --ignore-scripts --no-audit --no-fund)
}

# has TOOL ...: whether they are installed; the program is left out otherwise.
has() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "$program: left out, because there is no $tool" && return 1; }
    done
}

# end_of FILE: the end of what a program said, without the frames of Java's stacks.
end_of() { grep -v $'^\tat ' "$1" | tail -n 40; }

# beside COMMAND ...: once beside Redis, so that it asks for nothing that Redis does not do, and once beside Perdura.
beside() {
    local port
    # ASYNC, because the other kind was seen to keep Redis 7.0.15 from answering for more than ten seconds.
    for port in "${theirs[@]}" "${ours[@]}"; do redis-cli -p "$port" flushall async >/dev/null; done
    timeout 300 "$@" "${theirs[@]}" >"$work/redis.output" 2>&1 </dev/null &
    running[0]=$!
    timeout 300 "$@" "${ours[@]}" >"$work/perdura.output" 2>&1 </dev/null &
    running[1]=$!
    wait "${running[0]}" || { end_of "$work/redis.output"; die "$program fails beside Redis"; }
    wait "${running[1]}" || { end_of "$work/perdura.output"; die "$program fails beside Perdura"; }
    running=()
    tail -n 1 "$work/perdura.output"
}

[ $# -gt 0 ] || set -- "${all[@]}"
for program in "$@"; do
    case $program in
    lock | rq)
        python python
        beside "$work/python/bin/python" "$clients/python/${program}_session.py"
        ;;
    pottery)
        python python-more
        beside "$work/python-more/bin/python" "$clients/python-more/${program}_session.py"
        ;;
    bullmq | node-redlock)
        if has node npm; then
            node_modules
            beside node "$work/node/${program}_session.mjs"
        fi
        ;;
    asynq | redsync)
        if has go; then
            (cd "$clients/go" && go build -o "$work/$program" "./$program")
            beside "$work/$program"
        fi
        ;;
    redisson)
        if has java mvn; then
            cp -r "$clients/java" "$work/java"
            (cd "$work/java" && mvn -q -B -Dstyle.color=never compile dependency:copy-dependencies)
            beside java -cp "$work/java/target/classes:$work/java/target/dependency/*" Session
        fi
        ;;
    *) die "no program $program; there are: ${all[*]}" ;;
    esac
done
