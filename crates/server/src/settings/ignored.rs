//! Names that Redis 7.0 has and this server does not need: tuning of structures, forks, replicas and files that do not
//! exist here. The server checks the form of a value and stores the value, so that tools can set and read these names.
//! The names have no further effect, and the documentation says so. Names that promise safety are in [`super::fixed`]
//! instead.

use super::kind::Kind;

/// A setting without effect.
#[derive(Debug)]
pub struct Ignored {
    /// Its name.
    pub name: &'static str,
    /// Its initial value.
    pub default: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// True if CONFIG SET refuses it, as Redis does.
    pub immutable: bool,
}

const ANY: Kind = Kind::Integer {
    min: i64::MIN,
    max: i64::MAX,
};
const BYTES: Kind = Kind::Bytes {
    min: 0,
    max: u64::MAX,
};
const BOOL: Kind = Kind::Bool;
const TEXT: Kind = Kind::Text;

const fn free(name: &'static str, default: &'static str, kind: Kind) -> Ignored {
    Ignored {
        name,
        default,
        kind,
        immutable: false,
    }
}

const fn fixed(name: &'static str, default: &'static str, kind: Kind) -> Ignored {
    Ignored {
        name,
        default,
        kind,
        immutable: true,
    }
}

/// All settings without effect.
#[rustfmt::skip]
pub const IGNORED: &[Ignored] = &[
    free("active-defrag-cycle-max", "25", ANY),
    free("active-defrag-cycle-min", "1", ANY),
    free("active-defrag-ignore-bytes", "104857600", BYTES),
    free("active-defrag-max-scan-fields", "1000", ANY),
    free("active-defrag-threshold-lower", "10", ANY),
    free("active-defrag-threshold-upper", "100", ANY),
    free("active-expire-effort", "1", ANY),
    free("activedefrag", "no", BOOL),
    free("activerehashing", "yes", BOOL),
    fixed("always-show-logo", "no", BOOL),
    free("aof-disable-auto-gc", "no", BOOL),
    free("aof-load-truncated", "yes", BOOL),
    free("aof-rewrite-incremental-fsync", "yes", BOOL),
    free("aof-timestamp-enabled", "no", BOOL),
    free("aof-use-rdb-preamble", "yes", BOOL),
    fixed("aof_rewrite_cpulist", "", TEXT),
    fixed("appenddirname", "appendonlydir", TEXT),
    fixed("appendfilename", "appendonly.aof", TEXT),
    free("auto-aof-rewrite-min-size", "67108864", BYTES),
    free("auto-aof-rewrite-percentage", "100", ANY),
    fixed("bgsave_cpulist", "", TEXT),
    free("bind-source-addr", "", TEXT),
    fixed("bio_cpulist", "", TEXT),
    free("busy-reply-threshold", "5000", ANY),
    free("cluster-allow-pubsubshard-when-down", "yes", BOOL),
    free("cluster-allow-reads-when-down", "no", BOOL),
    free("cluster-allow-replica-migration", "yes", BOOL),
    free("cluster-announce-bus-port", "0", ANY),
    free("cluster-announce-hostname", "", TEXT),
    free("cluster-announce-ip", "", TEXT),
    free("cluster-announce-port", "0", ANY),
    free("cluster-announce-tls-port", "0", ANY),
    fixed("cluster-config-file", "nodes.conf", TEXT),
    free("cluster-link-sendbuf-limit", "0", BYTES),
    free("cluster-migration-barrier", "1", ANY),
    free("cluster-node-timeout", "15000", ANY),
    fixed("cluster-port", "0", ANY),
    free("cluster-preferred-endpoint-type", "ip", Kind::Choice(&["ip", "hostname", "unknown-endpoint"])),
    free("cluster-replica-no-failover", "no", BOOL),
    free("cluster-replica-validity-factor", "10", ANY),
    free("cluster-require-full-coverage", "yes", BOOL),
    free("crash-log-enabled", "yes", BOOL),
    free("crash-memcheck-enabled", "yes", BOOL),
    fixed("daemonize", "no", BOOL),
    fixed("dbfilename", "dump.rdb", TEXT),
    fixed("disable-thp", "yes", BOOL),
    free("dynamic-hz", "yes", BOOL),
    fixed("enable-module-command", "no", BOOL),
    fixed("enable-protected-configs", "no", BOOL),
    free("hz", "10", ANY),
    free("ignore-warnings", "", TEXT),
    fixed("io-threads", "1", ANY),
    fixed("io-threads-do-reads", "no", BOOL),
    free("jemalloc-bg-thread", "yes", BOOL),
    free("lazyfree-lazy-eviction", "no", BOOL),
    free("lazyfree-lazy-expire", "no", BOOL),
    free("lazyfree-lazy-server-del", "no", BOOL),
    free("lazyfree-lazy-user-del", "no", BOOL),
    free("lazyfree-lazy-user-flush", "no", BOOL),
    free("lfu-decay-time", "1", ANY),
    free("lfu-log-factor", "10", ANY),
    free("list-compress-depth", "0", ANY),
    fixed("logfile", "", TEXT),
    free("masterauth", "", TEXT),
    free("masteruser", "", TEXT),
    free("maxmemory-eviction-tenacity", "10", ANY),
    free("maxmemory-samples", "5", ANY),
    free("min-replicas-max-lag", "10", ANY),
    free("no-appendfsync-on-rewrite", "no", BOOL),
    free("oom-score-adj", "no", Kind::Choice(&["no", "yes", "relative", "absolute"])),
    free("oom-score-adj-values", "0 200 800", TEXT),
    fixed("pidfile", "", TEXT),
    free("proc-title-template", "{title} {listen-addr} {server-mode}", TEXT),
    free("propagation-error-behavior", "ignore", Kind::Choice(&["ignore", "panic", "panic-on-replicas"])),
    free("rdb-del-sync-files", "no", BOOL),
    free("rdb-save-incremental-fsync", "yes", BOOL),
    fixed("rdbchecksum", "yes", BOOL),
    free("rdbcompression", "yes", BOOL),
    free("repl-backlog-size", "1048576", BYTES),
    free("repl-backlog-ttl", "3600", ANY),
    free("repl-disable-tcp-nodelay", "no", BOOL),
    free("repl-diskless-load", "disabled", Kind::Choice(&["disabled", "on-empty-db", "swapdb"])),
    free("repl-diskless-sync", "yes", BOOL),
    free("repl-diskless-sync-delay", "5", ANY),
    free("repl-diskless-sync-max-replicas", "0", ANY),
    free("repl-ping-replica-period", "10", ANY),
    free("repl-timeout", "60", ANY),
    free("replica-announce-ip", "", TEXT),
    free("replica-announce-port", "0", ANY),
    free("replica-announced", "yes", BOOL),
    free("replica-ignore-disk-write-errors", "no", BOOL),
    free("replica-ignore-maxmemory", "yes", BOOL),
    free("replica-lazy-flush", "no", BOOL),
    free("replica-priority", "100", ANY),
    free("replica-read-only", "yes", BOOL),
    free("replica-serve-stale-data", "yes", BOOL),
    free("sanitize-dump-payload", "no", Kind::Choice(&["no", "yes", "clients"])),
    fixed("server_cpulist", "", TEXT),
    fixed("set-proc-title", "yes", BOOL),
    free("shutdown-on-sigint", "default", TEXT),
    free("shutdown-on-sigterm", "default", TEXT),
    free("shutdown-timeout", "10", ANY),
    fixed("socket-mark-id", "0", ANY),
    free("stop-writes-on-bgsave-error", "yes", BOOL),
    free("stream-node-max-bytes", "4096", BYTES),
    free("stream-node-max-entries", "100", ANY),
    fixed("supervised", "no", BOOL),
    fixed("syslog-enabled", "no", BOOL),
    fixed("syslog-facility", "local0", TEXT),
    fixed("syslog-ident", "redis", TEXT),
    fixed("tcp-backlog", "511", ANY),
    free("tls-cluster", "no", BOOL),
    free("tls-replication", "no", BOOL),
    free("tls-session-cache-size", "20480", ANY),
    free("tls-session-cache-timeout", "300", ANY),
    free("tls-session-caching", "yes", BOOL),
    fixed("unixsocketperm", "0", ANY),
];

/// Older names, each with its present name. The present name belongs to a setting, or has no effect.
pub const ALIASES: &[(&str, &str)] = &[
    ("cluster-slave-no-failover", "cluster-replica-no-failover"),
    (
        "cluster-slave-validity-factor",
        "cluster-replica-validity-factor",
    ),
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("lua-time-limit", "busy-reply-threshold"),
    ("min-slaves-max-lag", "min-replicas-max-lag"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
    ("slave-announce-ip", "replica-announce-ip"),
    ("slave-announce-port", "replica-announce-port"),
    ("slave-ignore-maxmemory", "replica-ignore-maxmemory"),
    ("slave-lazy-flush", "replica-lazy-flush"),
    ("slave-priority", "replica-priority"),
    ("slave-read-only", "replica-read-only"),
    ("slave-serve-stale-data", "replica-serve-stale-data"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

/// Returns the current name for an older name. Returns any other name unchanged.
#[must_use]
pub fn resolve(name: &str) -> &str {
    let mut aliases = ALIASES.iter();
    let found = aliases.find(|(alias, _)| *alias == name);
    found.map_or(name, |(_, of)| of)
}

/// Returns the row of a name, which may be an older name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Ignored> {
    let name = resolve(name);
    IGNORED.iter().find(|row| row.name == name)
}
