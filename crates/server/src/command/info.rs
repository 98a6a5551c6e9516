//! INFO: fields by Redis's names where Redis has them; beside them all that the engine's own
//! counters say, each prefixed with its section.

use super::Cx;
use super::Group;
use super::flag::{DANGEROUS, LOADING};
use super::hello::REDIS_VERSION;
use super::server::keyspace;
use super::spec::{Command, plain};
use crate::engine::Db;
use crate::loading;
use crate::resp::parse::Args;
use crate::state::{Stage, State};
use serde_json::Value;
use std::fmt::{Display, Write};

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[plain("info", -1, LOADING | DANGEROUS, info).doc(
    Group::Server,
    "1.0.0",
    "Figures of the server.",
)];

const SECTIONS: [&str; 9] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "log",
    "checkpoint",
    "recovery",
    "keyspace",
];

/// The text of INFO while it grows.
#[derive(Default)]
struct Text(String);

impl Text {
    fn section(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        let (first, rest) = name.split_at(1);
        self.0
            .push_str(&format!("# {}{rest}\r\n", first.to_ascii_uppercase()));
    }

    fn field(&mut self, name: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    /// A value of the engine's counters, its parts joined to their names by `_`.
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
            Value::Null => self.field(name, ""),
            Value::Bool(yes) => self.field(name, u8::from(*yes)),
            Value::String(text) => self.field(name, text.replace(['\r', '\n'], " ")),
            Value::Number(number) => self.field(name, number),
        }
    }
}

/// `INFO [section …]`
pub(crate) fn info(cx: &mut Cx<'_>, args: &Args<'_>) {
    let wanted: Vec<String> = args
        .from(1)
        .map(|word| String::from_utf8_lossy(word).to_ascii_lowercase())
        .collect();
    let all = ["all", "everything", "default"];
    let every = wanted.is_empty() || wanted.iter().any(|word| all.contains(&word.as_str()));
    let chosen = |section: &str| every || wanted.iter().any(|word| word == section);
    let figures = ["memory", "persistence", "stats", "log", "checkpoint"];
    let stats = cx
        .state
        .db()
        .filter(|_| figures.iter().any(|section| chosen(section)))
        .map(Db::stats);
    let stats = stats.and_then(|stats| serde_json::to_value(stats).ok());
    let stats = stats.unwrap_or(Value::Null);
    let mut text = Text::default();
    for section in SECTIONS {
        if !chosen(section) {
            continue;
        }
        text.section(section);
        match section {
            "server" => server(cx, &mut text),
            "clients" => clients(cx, &mut text),
            "memory" => memory(cx, &mut text, &stats),
            "persistence" => persistence(cx.state, &mut text, &stats),
            "stats" => counters(cx, &mut text, &stats),
            "recovery" => recovery(cx, &mut text),
            "keyspace" => databases(cx, &mut text),
            _ => {
                if let Some(value) = stats.get(section) {
                    text.tree(section, value);
                }
            }
        }
    }
    cx.out.text(&text.0);
}

fn server(cx: &Cx<'_>, text: &mut Text) {
    let state = &cx.state;
    let seconds = state.now.duration_since(state.started).as_secs();
    text.field("redis_version", REDIS_VERSION);
    text.field("perdura_version", env!("CARGO_PKG_VERSION"));
    text.field("redis_mode", "standalone");
    text.field("os", std::env::consts::OS);
    text.field("arch_bits", usize::BITS);
    text.field("multiplexing_api", "epoll");
    text.field("process_id", std::process::id());
    text.field("run_id", &state.run_id);
    text.field("tcp_port", state.port);
    text.field("uptime_in_seconds", seconds);
    text.field("uptime_in_days", seconds / 86_400);
    text.field("stopped", state.stopped.as_deref().unwrap_or(""));
}

fn clients(cx: &Cx<'_>, text: &mut Text) {
    let state = &cx.state;
    text.field("connected_clients", state.connections.count());
    text.field("maxclients", state.options.maxclients);
    text.field("blocked_clients", u8::from(state.saving.is_some()));
}

fn memory(cx: &Cx<'_>, text: &mut Text, stats: &Value) {
    let account = cx.state.db().map(|db| db.memory());
    let used = account.as_ref().map_or(0, |a| a.used());
    let limit = account.as_ref().map_or(0, |a| a.limit());
    text.field("used_memory", used);
    text.field("used_memory_human", human(used));
    text.field("maxmemory", if limit == u64::MAX { 0 } else { limit });
    text.field(
        "maxmemory_human",
        human(if limit == u64::MAX { 0 } else { limit }),
    );
    text.field("maxmemory_policy", "noeviction");
    if let Some(value) = stats.get("memory") {
        text.tree("memory", value);
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

/// The counts rest on transactions like any reply, unless the database has stopped: then no
/// reply would ever leave, and what is told is told of a stopped database.
fn databases(cx: &mut Cx<'_>, text: &mut Text) {
    let Some(Ok((counts, epoch))) = cx.state.db().map(keyspace) else {
        return;
    };
    for (index, (keys, expires)) in counts.iter().enumerate().filter(|(_, c)| c.0 > 0) {
        let name = format!("db{index}");
        text.field(&name, format!("keys={keys},expires={expires},avg_ttl=0"));
    }
    if cx.state.stopped.is_none() {
        cx.epoch = cx.epoch.max(epoch);
    }
}

fn persistence(state: &mut State, text: &mut Text, stats: &Value) {
    text.field(
        "loading",
        u8::from(matches!(state.stage, Stage::Loading(_))),
    );
    if let Stage::Loading(progress) = &state.stage {
        loading::info(
            progress,
            state.now.duration_since(state.started),
            &mut text.0,
        );
    }
    let checkpoint = stats.get("checkpoint").unwrap_or(&Value::Null);
    let count = |name: &str| checkpoint.get(name).and_then(Value::as_u64).unwrap_or(0);
    let running = checkpoint.get("running").and_then(Value::as_bool) == Some(true);
    let running = running || state.saving.is_some();
    text.field("rdb_bgsave_in_progress", u8::from(running));
    text.field("rdb_last_save_time", state.last_save(count("last_end_us")));
    let failed = state
        .checkpoints
        .failed(count("completed"), count("cancelled"));
    text.field("rdb_last_bgsave_status", if failed { "err" } else { "ok" });
    let seconds = count("last_us") / 1_000_000;
    match count("completed") {
        0 => text.field("rdb_last_bgsave_time_sec", -1),
        _ => text.field("rdb_last_bgsave_time_sec", seconds),
    }
    text.field("aof_enabled", 1);
    text.field("aof_rewrite_in_progress", 0);
    text.field(
        "aof_last_write_status",
        if state.stopped.is_some() { "err" } else { "ok" },
    );
    if let Some(db) = state.db() {
        let exposure = db.exposure();
        text.field("durable_epoch", exposure.durable);
        text.field("current_epoch", exposure.current);
        let oldest = exposure
            .oldest_unsynced
            .map_or(String::new(), |e| e.to_string());
        text.field("oldest_unsynced_epoch", oldest);
        text.field("oldest_unsynced_age_us", exposure.age_us);
    }
}

fn counters(cx: &Cx<'_>, text: &mut Text, all: &Value) {
    let stats = &cx.state.stats;
    text.field("total_connections_received", stats.accepted);
    text.field("total_commands_processed", stats.commands);
    text.field("instantaneous_ops_per_sec", stats.ops_per_sec);
    text.field("total_net_input_bytes", stats.input_bytes);
    text.field("total_net_output_bytes", stats.output_bytes);
    text.field("rejected_connections", stats.rejected);
    text.field("keyspace_hits", stats.hits);
    text.field("keyspace_misses", stats.misses);
    text.field("total_error_replies", stats.errors);
    // What the engine counts and no other section shows.
    if let Value::Object(parts) = all {
        for (name, value) in parts {
            if !["memory", "log", "checkpoint"].contains(&name.as_str()) {
                text.tree(name, value);
            }
        }
    }
}

fn recovery(cx: &Cx<'_>, text: &mut Text) {
    let report = cx
        .state
        .db()
        .and_then(|db| serde_json::to_value(db.report()).ok());
    if let Some(report) = report {
        text.tree("restart", &report);
    }
}
