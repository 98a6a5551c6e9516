//! The alarms as `/healthz` and `/metrics` show them.

use super::metrics::head;
use crate::alarms;
use crate::command::server::info::Fields;
use std::fmt::Write;

/// Returns the reasons why the server is not healthy, a line for each; `None` if it is healthy.
pub(super) fn reasons(fields: &Fields) -> Option<String> {
    let mut lines = String::new();
    if fields.get("loading") == Some("1") {
        let percent = fields.get("loading_loaded_perc").unwrap_or("0");
        lines += &format!("loading: {percent} %\n");
    }
    for (name, why) in fields.alarms() {
        lines += &format!("{name}: {why}\n");
    }
    (!lines.is_empty()).then_some(lines)
}

/// Appends a metric for each alarm: 1 if it is raised.
pub(super) fn metric(fields: &Fields, page: &mut String) {
    head(page, "alarm", "gauge", "Whether something is wrong.");
    for name in alarms::NAMES {
        let is_raised = fields.alarms().any(|(raised, _)| raised == *name);
        let value = u8::from(is_raised);
        // Writing to a string cannot fail.
        let _ = writeln!(page, "perdura_alarm{{name=\"{name}\"}} {value}");
    }
}
