# Shared by the benches: sourced, not run.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
perdura=${PERDURA:-${CARGO_TARGET_DIR:-$here/target}/release/perdura}
# The most of the machine that others may use before a round, percent.
busy_max=${BUSY_MAX:-10}
pids=()

die() {
    echo "$0: $*" >&2
    exit 1
}

build() {
    if [ -z "${PERDURA:-}" ]; then
        (cd "$here" && cargo build --locked --quiet --release -p perdura-cli)
    fi
    [ -x "$perdura" ] || die "there is no $perdura"
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || die "$tool is needed: apt-get install redis-server jq"
    done
}

# How busy the machine is over a second, percent.
busy() {
    local -a a b
    read -r -a a </proc/stat
    sleep 1
    read -r -a b </proc/stat
    local total=0 idle i
    for i in 1 2 3 4 5 6 7 8; do total=$((total + b[i] - a[i])); done
    idle=$((b[4] + b[5] - a[4] - a[5]))
    echo $(((total - idle) * 100 / (total > 0 ? total : 1)))
}

# Refuses to measure beside other work; BUSY_ANYWAY=1 measures none the less.
quiet() {
    local try load
    for try in 1 2 3 4 5 6 7 8 9 10; do
        load=$(busy)
        [ "$load" -le "$busy_max" ] && return 0
    done
    [ -n "${BUSY_ANYWAY:-}" ] && return 0
    die "the machine is $load % busy; figures would mean nothing (BUSY_ANYWAY=1 overrides)"
}

# Below the ports that the kernel gives to clients: one of theirs stays taken for a minute after its end.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

# await PORT: until the server there has loaded its data.
await() {
    local try
    for ((try = 0; try < 12000; try++)); do
        [ "$(redis-cli -p "$1" ping 2>/dev/null)" = PONG ] && return 0
        sleep 0.005
    done
    die "the server on port $1 does not answer"
}

# start_perdura DIR PORT [OPTION ...]
start_perdura() {
    local dir=$1 port=$2
    shift 2
    "$perdura" serve --data "$dir" --listen "127.0.0.1:$port" "$@" 2>>"$dir.stderr" &
    last_pid=$!
    last_port=$port
    pids+=("$last_pid")
}

# start_redis DIR PORT [OPTION ...]. The variable `redis_server` names another program with Redis's options.
start_redis() {
    local dir=$1 port=$2
    shift 2
    mkdir -p "$dir"
    "${redis_server:-redis-server}" --port "$port" --bind 127.0.0.1 --dir "$dir" --save "" --daemonize no \
        --loglevel warning "$@" >>"$dir.stdout" 2>&1 &
    last_pid=$!
    last_port=$port
    pids+=("$last_pid")
}

finish() {
    local pid
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}

make_work() {
    work=$(mktemp -d "${WORK_DIR:-$here/target}/bench.XXXXXX")
    trap finish EXIT
}

# Sets old and new to the programs of two builds, and makes the place to work in.
two_builds() {
    need redis-cli jq
    old=${OLD:?the binary to compare with}
    [ -x "$old" ] || die "there is no $old"
    build
    new=$perdura
    make_work
}

median() {
    sort -n | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'
}
