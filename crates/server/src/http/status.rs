//! The figures that the status page requests twice a second.

use crate::command::server::info::Fields;
use serde_json::{Map, Value, json};

/// Fields of INFO that the page shows unchanged. A value that is not a number becomes `null`.
const NUMBERS: &[&str] = &[
    "uptime_in_seconds",
    "connected_clients",
    "maxclients",
    "total_commands_processed",
    "instantaneous_ops_per_sec",
    "total_error_replies",
    "used_memory",
    "maxmemory",
    "log_durable_lag_us",
    "log_durable_lag_max_us",
    "log_mirror_lag_us",
    "log_unsynced_bytes",
    "log_unsynced_max_bytes",
    "log_durable_epoch",
    "log_epoch",
    "log_log_device_bytes",
    "log_syncs",
    "log_file_bytes",
    "checkpoint_running",
    "checkpoint_completed",
    "checkpoint_cancelled",
    "checkpoint_partitions_done",
    "checkpoint_last_us",
    "checkpoint_last_end_us",
    "checkpoint_last_bytes",
    "loading_total_bytes",
    "loading_loaded_bytes",
    "loading_eta_seconds",
    "restart_seconds_total",
    "restart_transactions",
    "restart_rows",
    "restart_bytes_log",
    "restart_bytes_backup",
];

/// Returns the figures as one JSON object.
pub(super) fn json(fields: &Fields) -> String {
    let mut object = Map::new();
    let text = |name: &str| fields.get(name).unwrap_or("");
    let alarms: Vec<Value> = fields
        .alarms()
        .map(|(name, why)| json!({"name": name, "why": why}))
        .collect();
    let stage = match () {
        () if !text("stopped").is_empty() => "stopped",
        () if text("loading") == "1" => "loading",
        () if !alarms.is_empty() => "alarm",
        () => "serving",
    };
    object.insert("stage".into(), json!(stage));
    object.insert("alarms".into(), Value::Array(alarms));
    for name in ["perdura_version", "stopped", "loading_phase"] {
        object.insert(name.into(), json!(text(name)));
    }
    let percent = text("loading_loaded_perc").parse::<f64>().ok();
    object.insert("loading_percent".into(), json!(percent));
    for name in NUMBERS {
        let value = fields.get(name).and_then(number).unwrap_or(Value::Null);
        object.insert((*name).into(), value);
    }
    let keys: u64 = fields
        .iter()
        .filter_map(|(_, value)| {
            value
                .strip_prefix("keys=")?
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum();
    object.insert("keys".into(), json!(keys));
    Value::Object(object).to_string()
}

fn number(text: &str) -> Option<Value> {
    let whole = text.parse::<i64>().ok().map(Value::from);
    whole.or_else(|| text.parse::<f64>().ok().map(Value::from))
}
