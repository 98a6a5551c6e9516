//! The metrics of each command.

use super::metrics::Unit::{As, Micro};
use super::metrics::{convert, head, part_of};
use crate::command::server::info::Fields;
use std::fmt::Write;

/// Appends the calls, the time and the failures of each command.
pub(super) fn metrics(fields: &Fields, page: &mut String) {
    let found: Vec<(&str, &str)> = fields
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("cmdstat_")?, value)))
        .collect();
    for (part, name, unit, help) in [
        ("calls", "command_calls_total", As, "Calls of a command."),
        (
            "usec",
            "command_seconds_total",
            Micro,
            "Time of these calls.",
        ),
        (
            "rejected_calls",
            "command_rejected_total",
            As,
            "Calls refused before they ran.",
        ),
        (
            "failed_calls",
            "command_failed_total",
            As,
            "Calls that failed.",
        ),
    ] {
        let values: Vec<(&str, String)> = found
            .iter()
            .filter_map(|(command, value)| Some((*command, convert(part_of(value, part)?, unit)?)))
            .collect();
        if values.is_empty() {
            continue;
        }
        head(page, name, "counter", help);
        for (command, value) in values {
            let _ = writeln!(page, "perdura_{name}{{command=\"{command}\"}} {value}");
        }
    }
}
