#!/usr/bin/env bash
# A lost data disk, restored by Perdura, PostgreSQL 15, pgBackRest and Redis: the same number of rows, a backup, the same number
# of updates of random rows, the data gone; then the seconds until the last update can be read again.
#
# Source and target are two ext4 file systems on loop devices that the kernel holds to a modelled speed (blkio.throttle):
# the source, with backups and archived log, 1,200 MB/s, the target 400 MB/s. A restore is timed from its first
# command, with a cold page cache, to the first answer of the restored server.
#
#   - Perdura: `perdura restore` from the archive, then a server on what it made.
#   - PostgreSQL: pg_basebackup's copy laid down, then the archived WAL replayed (recovery_prefetch on); full_page_writes on
#     and off. It is given what makes its log short and its replay fast: fillfactor 80, shared buffers for the whole
#     database, max_wal_size 64 GB (one checkpoint), 100 updates a transaction where the others have one each.
#   - pgBackRest: a full backup, an incremental one after each quarter of the updates but the last, restored with `--delta` off.
#   - Redis: the RDB of the rewrite and the AOF behind it, copied and loaded.
#
#   scripts/bench-restore-peers.sh
#   ROWS=1000000 UPDATES=1000000 ROUNDS=3 PEERS="perdura postgres-fpw postgres redis" scripts/bench-restore-peers.sh
#
# Needs root, loop devices, the blkio controller of cgroup v1, and postgresql-15, pgbackrest, redis-server, jq.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need redis-cli redis-server jq losetup mkfs.ext4
build
make_work

rows=${ROWS:-12000000}
updates=${UPDATES:-12000000}
rounds=${ROUNDS:-5}
peers=${PEERS:-perdura postgres-fpw postgres pgbackrest redis}
source_mbps=${SOURCE_MBPS:-1200}
target_mbps=${TARGET_MBPS:-400}
disk_bytes=${DISK_BYTES:-60G}
pg=${PG_BIN:-/usr/lib/postgresql/15/bin}
blkio=/sys/fs/cgroup/blkio

[ "$(id -u)" -eq 0 ] || die "mounting file systems needs root"
[ -e $blkio/blkio.throttle.read_bps_device ] || die "$blkio has no throttle: the disks cannot be modelled"

loops=()
# modelled NAME MBPS: a file system at $work/NAME
modelled() {
    local loop device
    truncate -s "$disk_bytes" "$work/$1.img"
    mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1 "$work/$1.img"
    loop=$(losetup -f --show --direct-io=on "$work/$1.img")
    loops+=("$loop")
    mkdir "$work/$1"
    mount "$loop" "$work/$1"
    chmod 777 "$work/$1"
    device=$(cat "/sys/class/block/${loop#/dev/}/dev")
    echo "$device $(($2 * 1000000))" >$blkio/blkio.throttle.read_bps_device
    echo "$device $(($2 * 1000000))" >$blkio/blkio.throttle.write_bps_device
}
unmodelled() {
    local name loop
    pkill -9 -F "$dst/pg/postmaster.pid" 2>/dev/null || true
    pkill -9 -F "$dst/again/postmaster.pid" 2>/dev/null || true
    for name in source target; do umount "$work/$name" 2>/dev/null || umount -l "$work/$name" || true; done
    for loop in "${loops[@]}"; do losetup -d "$loop" || true; done
    finish
}
trap unmodelled EXIT
chmod 755 "$work"
mkdir "$work/run"
chmod 777 "$work/run"
modelled source "$source_mbps"
modelled target "$target_mbps"
src=$work/source
dst=$work/target

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.3f\n", b - a }'; }
chill() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
mb() { du -sm --apparent-size "$@" | awk '{ s += $1 } END { print s }'; }
# note PEER FIGURE VALUE
note() { echo "$3" >>"$work/$1.$2"; }
stop_last() {
    kill "$last_pid"
    wait "$last_pid" 2>/dev/null || true
}

# load PORT SEED: as many updates of random keys
load() { "$perdura" bench kv --server "127.0.0.1:$1" --keys "$rows" --seed "$2" --txns "$updates" --seconds 1h --pipeline 64 --json >/dev/null; }
fill() { "$perdura" bench kv --server "127.0.0.1:$1" --keys "$rows" --fill "$rows" --seed 1 --seconds 0 --pipeline 64 --json >/dev/null; }

# --- Perdura
prepare_perdura() {
    local port
    port=$(free_port)
    start_perdura "$dst/perdura" "$port" --archive "$src/archive"
    await "$port"
    fill "$port"
    stop_last
    "$perdura" backup create --data "$dst/perdura" --archive "$src/archive" >/dev/null
    note perdura backup_mb "$(mb "$src/archive")"
    start_perdura "$dst/perdura" "$port" --archive "$src/archive"
    await "$port"
    load "$port" 2
    stop_last
    note perdura log_mb "$(($(mb "$src/archive") - $(cat "$work/perdura.backup_mb")))"
    "$perdura" digest --data "$dst/perdura" >"$work/perdura.digest"
    rm -rf "$dst/perdura"
}
restore_perdura() {
    local begin port
    port=$(free_port)
    chill
    begin=$(now)
    "$perdura" restore --from "$src/archive" --to "$dst/again" --json >"$work/restore.json"
    note perdura laid "$(since "$begin")"
    start_perdura "$dst/again" "$port"
    await "$port"
    note perdura serving "$(since "$begin")"
    stop_last
    "$perdura" digest --data "$dst/again" | cmp - "$work/perdura.digest" || die "Perdura restored other rows"
    rm -rf "$dst/again"
}

# --- Redis
redis_options=(--appendonly yes --appendfsync everysec --auto-aof-rewrite-percentage 0)
prepare_redis() {
    local port
    port=$(free_port)
    start_redis "$dst/redis" "$port" "${redis_options[@]}"
    await "$port"
    fill "$port"
    redis-cli -p "$port" bgrewriteaof >/dev/null
    until redis-cli -p "$port" info persistence | grep -q 'aof_rewrite_in_progress:0' &&
        redis-cli -p "$port" info persistence | grep -q 'aof_rewrite_scheduled:0'; do sleep 0.2; done
    note redis backup_mb "$(mb "$dst/redis/appendonlydir")"
    load "$port" 2
    stop_last
    mkdir -p "$src/redis"
    cp -r "$dst/redis/appendonlydir" "$src/redis/"
    note redis log_mb "$(($(mb "$src/redis") - $(cat "$work/redis.backup_mb")))"
    rm -rf "$dst/redis"
}
restore_redis() {
    local begin port
    port=$(free_port)
    chill
    begin=$(now)
    mkdir -p "$dst/again"
    cp -r "$src/redis/appendonlydir" "$dst/again/"
    note redis laid "$(since "$begin")"
    start_redis "$dst/again" "$port" "${redis_options[@]}"
    await "$port"
    note redis serving "$(since "$begin")"
    [ "$(redis-cli -p "$port" dbsize)" = "$rows" ] || die "Redis restored other rows"
    stop_last
    rm -rf "$dst/again"
}

# --- PostgreSQL
as_postgres() { runuser -u postgres -- "$@"; }
pg_sql() { as_postgres "$pg/psql" -qAtX -h "$work/run" -p 5499 -d postgres -c "$1"; }
pg_start() { # DIR
    as_postgres "$pg/pg_ctl" -D "$1" -l "$work/run/pg.log" -t 3600 -w start >/dev/null ||
        die "PostgreSQL does not start: $(tail -5 "$work/run/pg.log")"
}
pg_stop() { as_postgres "$pg/pg_ctl" -D "$1" -m fast -t 3600 -w stop >/dev/null; }
pg_digest() { pg_sql "select count(*), sum(hashtext(v)::bigint), sum(id::bigint * (hashtext(v) % 1000)) from t"; }
pg_configure() { # DIR FULL_PAGE_WRITES ARCHIVE_COMMAND RESTORE_COMMAND
    cat >>"$1/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$work/run'
port = 5499
shared_buffers = 6GB
max_wal_size = 64GB
checkpoint_timeout = 1d
wal_level = replica
full_page_writes = $2
recovery_prefetch = on
maintenance_io_concurrency = 64
archive_mode = on
archive_command = '$3'
restore_command = '$4'
synchronous_commit = off
autovacuum = off
END
}
pg_create() { # DIR FULL_PAGE_WRITES ARCHIVE_COMMAND RESTORE_COMMAND
    as_postgres "$pg/initdb" -D "$1" --no-sync -A trust -U postgres >/dev/null
    pg_configure "$@"
    pg_start "$1"
    pg_sql "create table t (id int primary key, v text) with (fillfactor = 80)"
    pg_sql "insert into t select i, repeat(md5(i::text), 3) || 'perd' from generate_series(0, $rows - 1) i"
    pg_sql "create procedure change(n int, seed float) language plpgsql as \$\$
      declare k int;
      begin
        perform setseed(seed);
        for i in 1..n loop
          k := floor(random() * $rows)::int;
          update t set v = repeat(md5((i * seed)::text), 3) || 'perd' where id = k;
          if i % 100 = 0 then commit; end if;
        end loop;
      end \$\$"
    pg_sql "vacuum freeze t"
    pg_sql "checkpoint"
}
# pg_change SEED COUNT
pg_change() { pg_sql "call change($2, $1)"; }
# Waits until the log is archived up to its end.
pg_archived() {
    local last
    last=$(pg_sql "select pg_walfile_name(pg_switch_wal())")
    until [[ ! "$(pg_sql "select coalesce(last_archived_wal, '') from pg_stat_archiver")" < "$last" ]]; do sleep 0.2; done
}
# pg_await DIR: until recovery has ended
pg_await() {
    until [ "$(pg_sql 'select pg_is_in_recovery()' 2>/dev/null)" = f ]; do sleep 0.01; done
}
prepare_plain() { # PEER FULL_PAGE_WRITES
    local wal=$src/$1/wal before
    mkdir -p "$wal"
    chown -R postgres "$src/$1"
    pg_create "$dst/pg" "$2" "cp %p $wal/%f" "cp $wal/%f %p"
    as_postgres "$pg/pg_basebackup" -h "$work/run" -p 5499 -U postgres -D "$src/$1/base" -X none -c fast --no-sync 2>/dev/null
    note "$1" backup_mb "$(mb "$src/$1/base")"
    before=$(mb "$wal")
    pg_change 0.5 "$updates"
    pg_archived
    pg_digest >"$work/$1.digest"
    note "$1" log_mb "$(($(mb "$wal") - before))"
    pg_stop "$dst/pg"
    rm -rf "$dst/pg"
}
prepare_postgres-fpw() { prepare_plain postgres-fpw on; }
prepare_postgres() { prepare_plain postgres off; }
restore_plain() { # PEER
    local begin
    chill
    begin=$(now)
    cp -r "$src/$1/base" "$dst/again"
    sync -f "$dst"
    chown -R postgres "$dst/again"
    chmod 700 "$dst/again"
    note "$1" laid "$(since "$begin")"
    touch "$dst/again/recovery.signal"
    pg_start "$dst/again"
    pg_await
    note "$1" serving "$(since "$begin")"
    pg_digest | cmp - "$work/$1.digest" || die "$1 restored other rows"
    pg_stop "$dst/again"
    rm -rf "$dst/again"
}
restore_postgres-fpw() { restore_plain postgres-fpw; }
restore_postgres() { restore_plain postgres; }

# --- pgBackRest
backrest() {
    as_postgres pgbackrest --config="$work/run/pgbackrest.conf" --stanza=bench "$@"
}
prepare_pgbackrest() {
    local quarter=$((updates / 4)) i
    mkdir -p "$src/pgbackrest"
    chown postgres "$src/pgbackrest"
    cat >"$work/run/pgbackrest.conf" <<END
[global]
repo1-path=$src/pgbackrest
repo1-retention-full=1
compress-type=none
process-max=2
start-fast=y
log-level-console=off
log-level-file=off
lock-path=$src/pgbackrest/lock
spool-path=$src/pgbackrest/spool
[bench]
pg1-path=$dst/pg
pg1-port=5499
pg1-socket-path=$work/run
pg1-user=postgres
END
    chmod 644 "$work/run/pgbackrest.conf"
    pg_create "$dst/pg" on "pgbackrest --config=$work/run/pgbackrest.conf --stanza=bench archive-push %p" \
        "pgbackrest --config=$work/run/pgbackrest.conf --stanza=bench archive-get %f %p"
    backrest stanza-create
    backrest --type=full backup
    note pgbackrest backup_mb "$(mb "$src/pgbackrest/backup")"
    for i in 1 2 3; do
        pg_change "0.$i" "$quarter"
        backrest --type=incr backup
    done
    pg_change 0.4 "$quarter"
    pg_archived
    pg_digest >"$work/pgbackrest.digest"
    note pgbackrest log_mb "$(($(mb "$src/pgbackrest") - $(cat "$work/pgbackrest.backup_mb")))"
    pg_stop "$dst/pg"
    rm -rf "$dst/pg"
}
restore_pgbackrest() {
    local begin
    mkdir -p "$dst/pg"
    chown postgres "$dst/pg"
    chmod 700 "$dst/pg"
    chill
    begin=$(now)
    backrest restore
    note pgbackrest laid "$(since "$begin")"
    pg_start "$dst/pg"
    pg_await
    note pgbackrest serving "$(since "$begin")"
    pg_digest | cmp - "$work/pgbackrest.digest" || die "pgBackRest restored other rows"
    pg_stop "$dst/pg"
    rm -rf "$dst/pg"
}

quiet
for peer in $peers; do
    "prepare_$peer"
done
for ((round = 0; round < rounds; round++)); do
    for peer in $peers; do
        "restore_$peer"
    done
done

printf '%-14s %10s %10s %10s %10s %8s  %s\n' restored backup_mb log_mb laid serving ratio rounds
for peer in $peers; do
    printf '%-14s %10s %10s %10.2f %10.2f %8s  %s\n' "$peer" "$(cat "$work/$peer.backup_mb")" "$(cat "$work/$peer.log_mb")" \
        "$(median <"$work/$peer.laid")" "$(median <"$work/$peer.serving")" \
        "$(paste "$work/$peer.serving" "$work/perdura.serving" 2>/dev/null | awk '{ print $1 / $2 }' | median | xargs printf '%.2f')" \
        "$(tr '\n' ' ' <"$work/$peer.serving")"
done
