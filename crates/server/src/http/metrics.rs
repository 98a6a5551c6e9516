//! The figures of INFO in the text format of Prometheus: one row says which field becomes which
//! metric. Base units: what INFO tells in microseconds is told in seconds here.

use super::{commands, ill};
use crate::command::server::info::Fields;
use std::fmt::Write;

/// What a field is multiplied with, as digits behind the point to shift.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    As,
    Micro,
    /// A word: 1 if it is `ok`.
    Ok,
    /// A text: 1 if there is any.
    Any,
    /// A text: 1 if it begins with `yes`.
    Yes,
}

use Unit::{Any, As, Micro, Ok as IsOk, Yes};

/// Field, metric, unit, meaning. A metric that ends in `_total` is a counter.
const ROWS: &[(&str, &str, Unit, &str)] = &[
    (
        "uptime_in_seconds",
        "uptime_seconds",
        As,
        "Time since the start of the server.",
    ),
    (
        "loading",
        "loading",
        As,
        "Whether the database is being loaded.",
    ),
    (
        "loading_total_bytes",
        "loading_bytes",
        As,
        "Bytes that the restart has to read.",
    ),
    (
        "loading_loaded_bytes",
        "loading_loaded_bytes",
        As,
        "Bytes that it has read.",
    ),
    (
        "stopped",
        "stopped",
        Any,
        "Whether the database has stopped after a failure of its disk.",
    ),
    ("connected_clients", "clients", As, "Clients connected."),
    ("maxclients", "clients_max", As, "The most clients at once."),
    (
        "blocked_clients",
        "clients_blocked",
        As,
        "Clients that wait for something.",
    ),
    (
        "total_connections_received",
        "connections_total",
        As,
        "Connections accepted.",
    ),
    (
        "rejected_connections",
        "connections_rejected_total",
        As,
        "Connections refused for maxclients.",
    ),
    (
        "stderr_lines_written",
        "stderr_lines_written_total",
        As,
        "Lines of the log for operators that stderr has taken.",
    ),
    (
        "stderr_lines_lost",
        "stderr_lines_lost_total",
        As,
        "Lines of the log for operators that were lost, because stderr did not take them.",
    ),
    (
        "foreign_protocol_connections",
        "connections_foreign_protocol_total",
        As,
        "Connections closed because they spoke HTTP or another foreign protocol.",
    ),
    (
        "total_commands_processed",
        "commands_total",
        As,
        "Requests with a command.",
    ),
    (
        "total_error_replies",
        "error_replies_total",
        As,
        "Error replies.",
    ),
    (
        "total_net_input_bytes",
        "network_input_bytes_total",
        As,
        "Bytes read from clients.",
    ),
    (
        "total_net_output_bytes",
        "network_output_bytes_total",
        As,
        "Bytes written to clients.",
    ),
    (
        "keyspace_hits",
        "keyspace_hits_total",
        As,
        "Keys looked up and found.",
    ),
    (
        "keyspace_misses",
        "keyspace_misses_total",
        As,
        "Keys looked up in vain.",
    ),
    (
        "expired_keys",
        "expired_keys_total",
        As,
        "Keys whose time was up.",
    ),
    (
        "pubsub_channels",
        "pubsub_channels",
        As,
        "Channels with subscribers.",
    ),
    (
        "pubsub_patterns",
        "pubsub_patterns",
        As,
        "Patterns with subscribers.",
    ),
    (
        "used_memory",
        "memory_used_bytes",
        As,
        "Memory for pages, indexes and buffers.",
    ),
    (
        "used_memory_peak",
        "memory_used_peak_bytes",
        As,
        "The most of it so far, as far as looked at.",
    ),
    (
        "used_memory_rss",
        "memory_resident_bytes",
        As,
        "Memory of the process.",
    ),
    ("maxmemory", "memory_max_bytes", As, "The limit; 0 none."),
    (
        "memory_pages",
        "memory_pages_bytes",
        As,
        "Memory for pages.",
    ),
    (
        "memory_indexes",
        "memory_indexes_bytes",
        As,
        "Memory for indexes.",
    ),
    (
        "memory_undo",
        "memory_undo_bytes",
        As,
        "Before-images of running transactions.",
    ),
    (
        "memory_staging",
        "memory_staging_bytes",
        As,
        "The checkpoint's buffer.",
    ),
    (
        "memory_log",
        "memory_log_bytes",
        As,
        "Log blocks that are not written yet.",
    ),
    (
        "memory_kept",
        "memory_kept_bytes",
        As,
        "What consistent checkpoints and snapshots need of pages that have changed since they began.",
    ),
    (
        "memory_clients",
        "memory_clients_bytes",
        As,
        "Buffers of clients: unfinished requests, queued transactions, replies and messages.",
    ),
    (
        "used_cpu_user",
        "cpu_user_seconds_total",
        As,
        "Processor time of the process, in the program.",
    ),
    (
        "used_cpu_sys",
        "cpu_system_seconds_total",
        As,
        "Processor time of the process, in the system.",
    ),
    (
        "log_log_bytes",
        "log_records_bytes_total",
        As,
        "Bytes of log records.",
    ),
    (
        "log_log_device_bytes",
        "log_written_bytes_total",
        As,
        "Bytes of log blocks written.",
    ),
    ("log_blocks", "log_blocks_total", As, "Log blocks written."),
    ("log_syncs", "log_syncs_total", As, "Syncs of the log."),
    (
        "log_in_flight",
        "log_writes_in_flight",
        As,
        "Durable writes of the log that have begun and not completed.",
    ),
    (
        "log_file_bytes",
        "log_file_bytes",
        As,
        "Bytes of all log segments.",
    ),
    ("log_epoch", "log_epoch", As, "The current commit epoch."),
    (
        "log_durable_epoch",
        "log_durable_epoch",
        As,
        "The durable commit epoch.",
    ),
    (
        "log_vouched_epoch",
        "log_vouched_epoch",
        As,
        "The commit epoch that the anchor vouches for.",
    ),
    (
        "log_durable_lag_us",
        "log_durable_lag_seconds",
        Micro,
        "Age of the oldest commit that is not durable.",
    ),
    (
        "log_durable_lag_max_us",
        "log_durable_lag_max_seconds",
        Micro,
        "The most that it was since the start.",
    ),
    (
        "log_mirror_lag_us",
        "log_mirror_lag_seconds",
        Micro,
        "Age of the oldest commit that the log's nodes lack; without nodes, that is not durable.",
    ),
    (
        "log_mirror_view",
        "log_mirror_view",
        As,
        "The number of the view that says what acknowledgements of the log's nodes rest on.",
    ),
    (
        "log_mirror_nodes_ready",
        "log_mirror_nodes_ready",
        As,
        "Nodes of the log that take blocks.",
    ),
    (
        "log_unsynced_bytes",
        "log_unsynced_bytes",
        As,
        "Bytes of the log that are not on its disks.",
    ),
    (
        "log_unsynced_max_bytes",
        "log_unsynced_max_bytes",
        As,
        "The most that they were since the start.",
    ),
    (
        "log_disk_full",
        "log_disk_full",
        As,
        "Whether the log's disk is full.",
    ),
    (
        "checkpoint_completed",
        "checkpoints_total",
        As,
        "Checkpoints completed.",
    ),
    (
        "checkpoint_cancelled",
        "checkpoints_cancelled_total",
        As,
        "Checkpoints cancelled.",
    ),
    (
        "checkpoint_running",
        "checkpoint_running",
        As,
        "Whether one is running.",
    ),
    (
        "checkpoint_partitions_done",
        "checkpoint_partitions_done",
        As,
        "Partitions that the running one has swept.",
    ),
    (
        "checkpoint_last_bytes",
        "checkpoint_last_bytes",
        As,
        "Bytes that the newest one wrote.",
    ),
    (
        "checkpoint_last_us",
        "checkpoint_last_seconds",
        Micro,
        "How long it took.",
    ),
    (
        "checkpoint_last_end_us",
        "checkpoint_last_end_timestamp_seconds",
        Micro,
        "When it ended; 0 if none since the start.",
    ),
    (
        "rdb_last_bgsave_status",
        "checkpoint_last_ok",
        IsOk,
        "Whether the newest one was completed.",
    ),
    (
        "archive_enabled",
        "archive_enabled",
        As,
        "Whether the log is archived.",
    ),
    (
        "archive_archived_epoch",
        "archive_epoch",
        As,
        "The commit epoch up to which the archive holds the log, or the backlog of one that is away.",
    ),
    (
        "archive_lag_epochs",
        "archive_lag_epochs",
        As,
        "Durable epochs that neither holds yet.",
    ),
    (
        "archive_lag_us",
        "archive_lag_seconds",
        Micro,
        "How long ago they held all that was durable.",
    ),
    (
        "archive_backlog_bytes",
        "archive_backlog_bytes",
        As,
        "Bytes of the runs that wait on the log's disk because the archive is away.",
    ),
    (
        "archive_backlog_full",
        "archive_backlog_full",
        As,
        "Whether writes are refused because so much waits for the archive.",
    ),
    (
        "archive_runs_now",
        "archive_runs",
        As,
        "Runs of the archive.",
    ),
    (
        "archive_run_bytes",
        "archive_run_bytes",
        As,
        "Bytes of the archive's runs.",
    ),
    (
        "archive_backups",
        "archive_backups",
        As,
        "Backups of the archive.",
    ),
    (
        "archive_backup_bytes",
        "archive_backup_bytes",
        As,
        "Bytes of the archive's backups.",
    ),
    (
        "archive_backup_last_us",
        "archive_backup_last_timestamp_seconds",
        Micro,
        "When the image of the last backup was complete.",
    ),
    (
        "archive_restorable",
        "archive_restorable",
        Yes,
        "Whether the database can be restored from its archive.",
    ),
    (
        "archive_proof_image",
        "archive_proof_checkpoint",
        As,
        "The checkpoint that was held against the archive last.",
    ),
    (
        "archive_proof_age_us",
        "archive_proof_age_seconds",
        Micro,
        "How long ago a checkpoint was found to agree with the archive.",
    ),
    (
        "archive_proof_unproven",
        "archive_proof_unproven_checkpoints",
        As,
        "Checkpoints that are not proven yet.",
    ),
    (
        "archive_proof_failed",
        "archive_proof_failures_total",
        As,
        "Proofs that found the archive not to agree with the database.",
    ),
    (
        "archive_drill_wall_us",
        "archive_drill_last_timestamp_seconds",
        Micro,
        "When the archive was restored for trial last.",
    ),
    (
        "archive_alarm",
        "archive_alarm",
        Any,
        "Whether the archive is away, a proof or a drill has failed, or no proof was made for some checkpoints.",
    ),
    (
        "restart_seconds_total",
        "restart_seconds",
        As,
        "How long the restart took.",
    ),
    (
        "restart_bytes_log",
        "restart_log_bytes",
        As,
        "Bytes of log that it read.",
    ),
    (
        "restart_bytes_backup",
        "restart_image_bytes",
        As,
        "Bytes of the image that it read.",
    ),
];

/// The page.
pub(super) fn text(fields: &Fields) -> String {
    let mut page = String::new();
    head(&mut page, "info", "gauge", "What is running.");
    let version = fields.get("perdura_version").unwrap_or("");
    // Writing to a string cannot fail.
    let _ = writeln!(page, "perdura_info{{version=\"{version}\"}} 1");
    for (field, name, unit, help) in ROWS {
        let Some(value) = fields.get(field).and_then(|value| convert(value, *unit)) else {
            continue;
        };
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        head(&mut page, name, kind, help);
        let _ = writeln!(page, "perdura_{name} {value}");
    }
    ill::metric(fields, &mut page);
    let databases: Vec<(&str, &str)> = fields.iter().filter(|(n, _)| is_database(n)).collect();
    for (part, name, help) in [
        ("keys", "keys", "Keys of a database."),
        ("expires", "keys_expiring", "Those of them that expire."),
    ] {
        head(&mut page, name, "gauge", help);
        for (database, value) in &databases {
            let value = part_of(value, part).unwrap_or("0");
            let _ = writeln!(page, "perdura_{name}{{db=\"{database}\"}} {value}");
        }
    }
    commands::metrics(fields, &mut page);
    page
}

pub(super) fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(
        page,
        "# HELP perdura_{name} {help}\n# TYPE perdura_{name} {kind}"
    );
}

pub(super) fn convert(value: &str, unit: Unit) -> Option<String> {
    match unit {
        As => value.parse::<f64>().ok().map(|_| value.to_owned()),
        Micro => {
            let micros: u64 = value.parse().ok()?;
            Some(format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000))
        }
        IsOk => Some(u8::from(value == "ok").to_string()),
        Any => Some(u8::from(!value.is_empty()).to_string()),
        Yes => Some(u8::from(value.starts_with("yes")).to_string()),
    }
}

fn is_database(name: &str) -> bool {
    let digits = name.strip_prefix("db");
    digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

/// The value of a name in `name=value,name=value`.
pub(super) fn part_of<'a>(value: &'a str, wanted: &str) -> Option<&'a str> {
    value
        .split(',')
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| *name == wanted)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests;
