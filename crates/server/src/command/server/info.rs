//! INFO: the server's figures, in sections. A figure that Redis has, too, is shown under Redis's name, so programs for
//! Redis can read it. Perdura has no replicas, no forks and no custom allocator. It still shows Redis's fields for
//! them, each with its only possible value. The sections `alarms`, `log`, `checkpoint`, `archive` and `recovery`
//! exist only in Perdura.
//!
//! `/metrics` and the status page show these fields, too: see [`crate::http`].

use super::{stats, system};
use crate::alarms;
use crate::command::Cx;
use crate::command::connection::hello::REDIS_VERSION;
use crate::command::flag::{APART, DANGEROUS, LOADING};
use crate::command::scripts::runtime_bytes;
use crate::command::server::keyspace;
use crate::command::spec::{Command, plain};
use crate::engine::{Db, Epoch};
use crate::loading;
use crate::pubsub::Topic;
use crate::resp::parse::Args;
use crate::state::figures::LoopFigures;
use crate::state::{Stage, State, unix_seconds};
use serde_json::Value;
use std::fmt::{Display, Write};

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[plain("info", -1, LOADING | DANGEROUS | APART, info)];

/// The requests that show a section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Always,
    WithAll,
    WithEverything,
}

/// The prefix of the names of alarm fields.
const ALARM: &str = "alarm_";

/// Adds the fields of a section.
type Fill = fn(&State, &mut Fields, &Sources<'_>);

/// The figures that INFO shows.
struct Sources<'a> {
    /// The figures of the engine.
    engine: &'a Value,
    /// The figures of all loops together.
    sum: LoopFigures,
    /// The figures of each loop.
    loops: Vec<LoopFigures>,
}

const SECTIONS: &[(&str, Shown, Fill)] = &[
    ("Server", Shown::Always, server),
    ("Alarms", Shown::Always, alarms),
    ("Clients", Shown::Always, clients),
    ("Memory", Shown::Always, memory),
    ("Persistence", Shown::Always, persistence),
    ("Stats", Shown::Always, counters),
    ("Replication", Shown::Always, replication),
    ("CPU", Shown::Always, cpu),
    ("Loops", Shown::Always, loops),
    ("Modules", Shown::WithEverything, |_, _, _| {}),
    ("Commandstats", Shown::WithAll, |state, to, of| {
        to.all(stats::command_stats(
            &of.sum.stats.by_command,
            &state.lookup,
        ))
    }),
    ("Errorstats", Shown::Always, |_, to, of| {
        to.all(stats::error_stats(&of.sum.stats.by_command))
    }),
    ("Latencystats", Shown::WithAll, |state, to, of| {
        let commands = &of.sum.stats.by_command;
        to.all(stats::latency_stats(
            commands,
            &state.lookup,
            &state.options,
        ))
    }),
    ("Cluster", Shown::Always, |_, to, _| {
        to.put("cluster_enabled", 0)
    }),
    ("Log", Shown::Always, log),
    ("Checkpoint", Shown::Always, checkpoint),
    ("Archive", Shown::Always, archive),
    ("Recovery", Shown::Always, recovery),
    ("Keyspace", Shown::Always, databases),
];

/// Figures: sections of names and values.
#[derive(Debug, Default, Clone)]
pub(crate) struct Fields {
    sections: Vec<(&'static str, Vec<(String, String)>)>,
    /// The newest epoch that the figures depend on.
    epoch: Epoch,
}

impl Fields {
    fn put(&mut self, name: &str, value: impl Display) {
        if let Some((_, fields)) = self.sections.last_mut() {
            fields.push((name.to_owned(), value.to_string()));
        }
    }

    /// Adds fields under the given names.
    fn all(&mut self, fields: Vec<(String, String)>) {
        for (name, value) in fields {
            self.put(&name, value);
        }
    }

    /// Adds several fields.
    fn list(&mut self, fields: &[(&str, &str)]) {
        for (name, value) in fields {
            self.put(name, value);
        }
    }

    /// Adds a tree of the engine's counters. A field's name consists of all names on the path to its value, joined
    /// by `_`.
    fn tree(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(parts) => {
                for (part, value) in parts {
                    self.tree(&format!("{name}_{part}"), value);
                }
            }
            Value::Array(parts) => {
                for (i, value) in parts.iter().enumerate() {
                    self.tree(&format!("{name}_{i}"), value);
                }
            }
            Value::Null => self.put(name, ""),
            Value::Bool(yes) => self.put(name, u8::from(*yes)),
            Value::String(text) => self.put(name, text.replace(['\r', '\n'], " ")),
            Value::Number(number) => self.put(name, number),
        }
    }

    /// Returns all names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.sections.iter().flat_map(|(_, fields)| fields);
        all.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the names and reasons of the alarms.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(ALARM)?, value)))
    }

    /// Returns the value of a name.
    pub(crate) fn get(&self, wanted: &str) -> Option<&str> {
        self.iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (title, fields) in &self.sections {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string cannot fail.
            let _ = write!(text, "{gap}# {title}\r\n");
            for (name, value) in fields {
                let _ = write!(text, "{name}:{value}\r\n");
            }
        }
        text
    }
}

/// `INFO [section …]`
pub(crate) fn info(cx: &mut Cx<'_>, args: &Args<'_>) {
    let wanted: Vec<String> = args
        .from(1)
        .map(|word| String::from_utf8_lossy(word).to_ascii_lowercase())
        .collect();
    let asks = |word: &str| wanted.iter().any(|wanted| wanted == word);
    let shown = match () {
        () if asks("everything") => Some(Shown::WithEverything),
        () if asks("all") => Some(Shown::WithAll),
        () if wanted.is_empty() || asks("default") => Some(Shown::Always),
        () => None,
    };
    let fields = collect(cx.state, |title, when| {
        shown.is_some_and(|shown| when <= shown) || asks(&title.to_ascii_lowercase())
    });
    // In a stopped database a reply that waits would never leave, so there INFO does not wait.
    if cx.state.stopped.is_none() {
        cx.effects.epoch = cx.effects.epoch.max(fields.epoch);
    }
    cx.out.text(&fields.text());
}

/// Returns all figures, for readers that are not clients. The figures may show writes that are not
/// on the disk yet.
pub(crate) fn everything(state: &mut State) -> Fields {
    collect(state, |_, _| true)
}

fn collect(state: &mut State, chosen: impl Fn(&str, Shown) -> bool) -> Fields {
    let stats = state.db().map(Db::stats);
    let stats = stats.and_then(|stats| serde_json::to_value(stats).ok());
    let stats = stats.unwrap_or(Value::Null);
    let loops = state.figures_of_loops();
    let figures = Sources {
        engine: &stats,
        sum: LoopFigures::sum(&loops),
        loops,
    };
    let mut fields = Fields::default();
    for (title, when, fill) in SECTIONS {
        if chosen(title, *when) {
            fields.sections.push((title, Vec::new()));
            fill(state, &mut fields, &figures);
        }
    }
    fields
}

fn server(state: &State, to: &mut Fields, _: &Sources<'_>) {
    let seconds = state.now.duration_since(state.common.started).as_secs();
    let micros = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_micros());
    let executable = std::env::current_exe().unwrap_or_default();
    let file = state.options.config_file.clone().unwrap_or_default();
    to.put("redis_version", REDIS_VERSION);
    to.put("perdura_version", env!("CARGO_PKG_VERSION"));
    to.list(&[
        ("redis_git_sha1", "00000000"),
        ("redis_git_dirty", "0"),
        ("redis_build_id", "0"),
        ("redis_mode", "standalone"),
    ]);
    to.put("os", system::name());
    to.put("arch_bits", usize::BITS);
    to.put("monotonic_clock", "POSIX clock_gettime");
    to.put("multiplexing_api", "epoll");
    to.put("process_id", std::process::id());
    let supervised = if state.supervisor.is_some() {
        "systemd"
    } else {
        "no"
    };
    to.put("process_supervised", supervised);
    to.put("run_id", &state.common.run_id);
    to.put("tcp_port", state.port);
    to.put("server_time_usec", micros);
    to.put("uptime_in_seconds", seconds);
    to.put("uptime_in_days", seconds / 86_400);
    to.put("hz", 10);
    to.put("configured_hz", 10);
    to.put("lru_clock", unix_seconds() % (1 << 24));
    to.put("executable", executable.display());
    to.put("config_file", file.display());
    to.put("io_threads_active", 0);
    to.put("stopped", state.stopped.as_deref().unwrap_or(""));
    let delayed: Vec<&str> = state.delayed.iter().map(|d| d.work.as_str()).collect();
    to.put("delayed", delayed.join(", "));
}

fn alarms(state: &State, to: &mut Fields, of: &Sources<'_>) {
    let stats = of.engine;
    let alarms = alarms::of(state, stats);
    to.put("alarms", alarms.len());
    for alarm in alarms {
        to.put(&format!("{ALARM}{}", alarm.name), alarm.why);
    }
}

fn clients(state: &State, to: &mut Fields, of: &Sources<'_>) {
    let of = &of.sum;
    to.put("connected_clients", state.common.crowd.clients());
    to.put("cluster_connections", 0);
    to.put("maxclients", state.options.maxclients);
    // These figures are maxima at this moment. Redis shows maxima over the last seconds.
    to.put("client_recent_max_input_buffer", of.input_max);
    to.put("client_recent_max_output_buffer", of.output_max);
    let saving = usize::from(state.common.is_saving());
    let waiting = state.common.blocking.with(|blocking| blocking.count()) + of.rung_waits;
    to.put("blocked_clients", waiting + saving);
    let [tracking, ..] = state.common.tracking.with(|tracking| tracking.counts());
    to.put("tracking_clients", tracking);
    to.put("clients_in_timeout_table", of.timeouts);
}

fn memory(state: &State, to: &mut Fields, of: &Sources<'_>) {
    let stats = of.engine;
    let account = state.db().map(|db| db.memory());
    let used = account.as_ref().map_or(0, |a| a.used());
    let limit = account.as_ref().map_or(0, |a| a.limit());
    let limit = if limit == u64::MAX { 0 } else { limit };
    let peak = state.common.memory_peak(used);
    let (resident, machine) = (system::resident_bytes(), system::machine_bytes());
    let of_pages = stats.pointer("/memory/pages").and_then(Value::as_u64);
    let dataset = of_pages.unwrap_or(0).min(used);
    let mut with_human = |name: &str, bytes: u64| {
        to.put(name, bytes);
        to.put(&format!("{name}_human"), human(bytes));
    };
    with_human("used_memory", used);
    with_human("used_memory_rss", resident);
    with_human("used_memory_peak", peak);
    with_human("total_system_memory", machine);
    with_human("maxmemory", limit);
    let cache = state.common.scripts.lock();
    let (scripts, script_bytes) = (cache.len(), cache.bytes());
    drop(cache);
    let script_bytes = u64::try_from(script_bytes).unwrap_or(u64::MAX);
    let machine_bytes = u64::try_from(runtime_bytes()).unwrap_or(u64::MAX);
    with_human("used_memory_lua", machine_bytes);
    with_human("used_memory_vm_total", machine_bytes);
    with_human("used_memory_scripts", script_bytes);
    to.put("used_memory_vm_eval", machine_bytes);
    to.put("used_memory_scripts_eval", script_bytes);
    to.put("number_of_cached_scripts", scripts);
    let (libraries, functions) = state.scripts.libraries();
    to.put("number_of_functions", functions);
    to.put("number_of_libraries", libraries);
    to.put("used_memory_peak_perc", percent(used, peak));
    to.put("used_memory_overhead", used - dataset);
    to.put("used_memory_startup", 0);
    to.put("used_memory_dataset", dataset);
    to.put("used_memory_dataset_perc", percent(dataset, used));
    to.put("maxmemory_policy", "noeviction");
    let ratio = hundredths(resident, used);
    to.put("mem_fragmentation_ratio", ratio);
    to.put(
        "mem_fragmentation_bytes",
        i128::from(resident) - i128::from(used),
    );
    to.list(&[
        ("mem_not_counted_for_evict", "0"),
        ("mem_replication_backlog", "0"),
        ("mem_clients_slaves", "0"),
    ]);
    let clients = stats.pointer("/memory/clients").and_then(Value::as_u64);
    to.put("mem_clients_normal", clients.unwrap_or(0));
    let log = stats.pointer("/memory/log").and_then(Value::as_u64);
    to.put("mem_aof_buffer", log.unwrap_or(0));
    to.list(&[
        ("mem_allocator", "libc"),
        ("active_defrag_running", "0"),
        ("lazyfree_pending_objects", "0"),
        ("lazyfreed_objects", "0"),
    ]);
    if let Some(value) = stats.get("memory") {
        to.tree("memory", value);
    }
}

fn human(bytes: u64) -> String {
    let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    for (unit, name) in units {
        if bytes >= unit {
            return format!("{}.{:02}{name}", bytes / unit, bytes % unit * 100 / unit);
        }
    }
    format!("{bytes}B")
}

/// Returns `a / b` with two digits after the point.
fn hundredths(a: u64, b: u64) -> String {
    let hundred = u128::from(a) * 100 / u128::from(b.max(1));
    format!("{}.{:02}", hundred / 100, hundred % 100)
}

fn percent(part: u64, whole: u64) -> String {
    hundredths(part.saturating_mul(100), whole) + "%"
}

/// Adds the databases that have keys. Counts one partition at a time, so that no client waits.
fn databases(state: &State, to: &mut Fields, _: &Sources<'_>) {
    let Some(Ok((counts, epoch))) = state.db().map(keyspace) else {
        return;
    };
    for (index, (keys, expires)) in counts.iter().enumerate().filter(|(_, c)| c.0 > 0) {
        let value = format!("keys={keys},expires={expires},avg_ttl=0");
        to.put(&format!("db{index}"), value);
    }
    to.epoch = to.epoch.max(epoch);
}

fn persistence(state: &State, to: &mut Fields, of: &Sources<'_>) {
    let stats = of.engine;
    let (loads, absent) = match &state.stage {
        Stage::Loading(progress) => {
            let elapsed = state.now.duration_since(state.common.started);
            (Some((&**progress, elapsed)), 0)
        }
        Stage::Ready(db) => (None, db.absent_partitions().iter().count()),
    };
    for (name, value) in loading::info(loads, absent) {
        to.put(name, value);
    }
    let checkpoint = stats.get("checkpoint").unwrap_or(&Value::Null);
    let count = |name: &str| checkpoint.get(name).and_then(Value::as_u64).unwrap_or(0);
    let running = checkpoint.get("running").and_then(Value::as_bool) == Some(true);
    let running = running || state.common.is_saving();
    to.list(&[
        ("current_cow_peak", "0"),
        ("current_cow_size", "0"),
        ("current_cow_size_age", "0"),
        ("current_fork_perc", "0.00"),
    ]);
    to.put("current_save_keys_processed", 0);
    to.put("current_save_keys_total", 0);
    to.put("rdb_changes_since_last_save", of.sum.unsaved);
    to.put("rdb_bgsave_in_progress", u8::from(running));
    to.put("rdb_last_save_time", state.last_save(count("last_end_us")));
    let failed = state
        .common
        .checkpoints
        .lock()
        .failed(count("completed"), count("cancelled"));
    to.put("rdb_last_bgsave_status", if failed { "err" } else { "ok" });
    match count("completed") {
        0 => to.put("rdb_last_bgsave_time_sec", -1),
        _ => to.put("rdb_last_bgsave_time_sec", count("last_us") / 1_000_000),
    }
    to.put("rdb_current_bgsave_time_sec", -1);
    to.put("rdb_saves", count("completed"));
    to.list(&[
        ("rdb_last_cow_size", "0"),
        ("aof_enabled", "1"),
        ("aof_rewrite_in_progress", "0"),
        ("aof_rewrite_scheduled", "0"),
        ("aof_last_rewrite_time_sec", "-1"),
        ("aof_current_rewrite_time_sec", "-1"),
        ("aof_last_bgrewrite_status", "ok"),
        ("aof_rewrites", "0"),
    ]);
    let written = if state.stopped.is_some() { "err" } else { "ok" };
    to.put("aof_last_write_status", written);
    to.put("aof_last_cow_size", 0);
    let bytes = stats.pointer("/log/file_bytes").and_then(Value::as_u64);
    to.put("aof_current_size", bytes.unwrap_or(0));
    to.list(&[
        ("module_fork_in_progress", "0"),
        ("module_fork_last_cow_size", "0"),
    ]);
    if let Some(db) = state.db() {
        let exposure = db.exposure();
        to.put("durable_epoch", exposure.durable);
        to.put("current_epoch", exposure.current);
        let oldest = exposure
            .oldest_unsynced
            .map_or(String::new(), |e| e.to_string());
        to.put("oldest_unsynced_epoch", oldest);
        to.put("oldest_unsynced_age_us", exposure.age_us);
    }
}

fn counters(state: &State, to: &mut Fields, of: &Sources<'_>) {
    let (all, of) = (of.engine, &of.sum);
    let stats = &of.stats;
    to.put("total_connections_received", stats.accepted);
    to.put("total_commands_processed", stats.commands);
    let [commands, input, output] = stats.per_second;
    to.put("instantaneous_ops_per_sec", commands);
    to.put("loop_longest_round_us", of.longest_us);
    to.put("loop_longest_round_cpu_us", of.longest_cpu_us);
    to.put("total_net_input_bytes", stats.input_bytes);
    to.put("total_net_output_bytes", stats.output_bytes);
    to.put("instantaneous_input_kbps", hundredths(input, 1024));
    to.put("instantaneous_output_kbps", hundredths(output, 1024));
    to.put("rejected_connections", stats.rejected);
    to.put("foreign_protocol_connections", stats.foreign);
    to.put("passwords_tried", of.tries);
    to.list(&[
        ("sync_full", "0"),
        ("sync_partial_ok", "0"),
        ("sync_partial_err", "0"),
    ]);
    let expired = state.common.expired();
    to.put("expired_keys", expired.saturating_sub(stats.expired_before));
    to.put("evicted_keys", 0);
    to.put("evicted_clients", stats.evicted_clients);
    let (input, output) = (
        stats.query_limit_disconnections,
        stats.output_limit_disconnections,
    );
    to.put("client_query_buffer_limit_disconnections", input);
    to.put("client_output_buffer_limit_disconnections", output);
    let lines = perdura_logging::figures();
    to.put("stderr_lines_written", lines.written);
    to.put("stderr_lines_lost", lines.lost);
    to.put("keyspace_hits", stats.hits);
    to.put("keyspace_misses", stats.misses);
    let count = |topic| state.common.topics.with(|topics| topics.count(topic));
    to.put("pubsub_channels", count(Topic::Channel));
    to.put("pubsub_patterns", count(Topic::Pattern));
    to.put("pubsubshard_channels", count(Topic::Shard));
    to.list(&[
        ("latest_fork_usec", "0"),
        ("total_forks", "0"),
        ("migrate_cached_sockets", "0"),
        ("slave_expires_tracked_keys", "0"),
        ("active_defrag_hits", "0"),
        ("active_defrag_misses", "0"),
    ]);
    let [_, keys, items, prefixes] = state.common.tracking.with(|tracking| tracking.counts());
    to.put("tracking_total_keys", keys);
    to.put("tracking_total_items", items);
    to.put("tracking_total_prefixes", prefixes);
    to.put("unexpected_error_replies", 0);
    to.put("total_error_replies", stats.errors);
    to.put("total_reads_processed", stats.reads);
    to.put("total_writes_processed", stats.writes);
    // The engine's counters that no other section shows.
    if let Value::Object(parts) = all {
        for (name, value) in parts {
            if !["memory", "log", "checkpoint"].contains(&name.as_str()) {
                to.tree(name, value);
            }
        }
    }
}

fn replication(state: &State, to: &mut Fields, _: &Sources<'_>) {
    to.list(&[
        ("role", "master"),
        ("connected_slaves", "0"),
        ("master_failover_state", "no-failover"),
    ]);
    to.put("master_replid", &state.common.run_id);
    to.put("master_replid2", "0".repeat(40));
    to.list(&[
        ("master_repl_offset", "0"),
        ("second_repl_offset", "-1"),
        ("repl_backlog_active", "0"),
        ("repl_backlog_size", "1048576"),
        ("repl_backlog_first_byte_offset", "0"),
        ("repl_backlog_histlen", "0"),
    ]);
}

fn cpu(_: &State, to: &mut Fields, _: &Sources<'_>) {
    let (whole, own) = (
        system::cpu_seconds("self"),
        system::cpu_seconds("thread-self"),
    );
    to.put("used_cpu_sys", format!("{:.6}", whole.1));
    to.put("used_cpu_user", format!("{:.6}", whole.0));
    to.put("used_cpu_sys_children", "0.000000");
    to.put("used_cpu_user_children", "0.000000");
    to.put("used_cpu_sys_main_thread", format!("{:.6}", own.1));
    to.put("used_cpu_user_main_thread", format!("{:.6}", own.0));
}

/// Adds the number of loops, and the figures of each.
fn loops(state: &State, to: &mut Fields, of: &Sources<'_>) {
    to.put("loops", of.loops.len());
    for (at, one) in of.loops.iter().enumerate() {
        let clients = state.common.crowd.clients_of(at);
        to.put(&format!("loop_{at}_clients"), clients);
        to.put(&format!("loop_{at}_requests"), one.stats.commands);
        to.put(&format!("loop_{at}_busy_us"), one.busy_us);
        to.put(&format!("loop_{at}_letters"), one.letters);
    }
}

fn log(_: &State, to: &mut Fields, of: &Sources<'_>) {
    let stats = of.engine;
    if let Some(value) = stats.get("log") {
        to.tree("log", value);
    }
}

fn checkpoint(_: &State, to: &mut Fields, of: &Sources<'_>) {
    let stats = of.engine;
    if let Some(value) = stats.get("checkpoint") {
        to.tree("checkpoint", value);
    }
}

fn archive(_: &State, to: &mut Fields, of: &Sources<'_>) {
    let stats = of.engine;
    let value = stats.get("archive").filter(|value| !value.is_null());
    to.put("archive_enabled", u8::from(value.is_some()));
    if let Some(value) = value {
        to.tree("archive", value);
    }
}

fn recovery(state: &State, to: &mut Fields, _: &Sources<'_>) {
    let report = state
        .db()
        .and_then(|db| serde_json::to_value(db.report()).ok());
    if let Some(report) = report {
        to.tree("restart", &report);
    }
}
