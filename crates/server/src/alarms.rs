//! The list of the server's current alarms. The status page, `/status.json`, `/healthz`, `/metrics`, INFO and the log
//! all show this list.
//!
//! An alarm asks a person to do something, or reports that clients are refused. Loading raises no alarm;
//! `/healthz` reports it separately.

use crate::engine::Db;
use crate::state::State;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The names of all alarms.
pub(crate) const NAMES: &[&str] = &[
    STOPPED, DISK_FULL, LOG_STUCK, DELAYED, MEMORY, NODES, ARCHIVE, BACKLOG, LINES,
];

const STOPPED: &str = "stopped";
const DISK_FULL: &str = "disk_full";
const LOG_STUCK: &str = "log_stuck";
const DELAYED: &str = "delayed";
const MEMORY: &str = "memory_full";
const NODES: &str = "nodes_lost";
const ARCHIVE: &str = "archive";
const BACKLOG: &str = "archive_backlog_full";
const LINES: &str = "log_lines_lost";

/// The time that the alarm for lost log lines lasts after the newest loss.
const LATELY: Duration = Duration::from_secs(60);

/// The number of log lines lost because stderr did not accept them, and the time when the loop last saw
/// this number grow.
#[derive(Debug, Default)]
pub(crate) struct LostLines {
    count: u64,
    at: Option<Instant>,
}

impl LostLines {
    /// Notes the current number of lost lines. The event loop calls this about once a second.
    pub(crate) fn look(&mut self, count: u64, now: Instant) {
        if count > self.count {
            (self.count, self.at) = (count, Some(now));
        }
    }

    fn why(&self, now: Instant) -> Option<String> {
        let at = self.at?;
        let is_recent = now.saturating_duration_since(at) < LATELY;
        is_recent.then(|| {
            let count = self.count;
            format!(
                "stderr does not accept the lines of the log: {count} were lost since the \
                     start"
            )
        })
    }
}

/// An alarm of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// The alarm's name, one of [`NAMES`].
    pub name: &'static str,
    /// The reason, in one line.
    pub why: String,
}

impl Alarm {
    /// Returns whether the log gets a line that is made from this alarm. For every other alarm, another part of the
    /// server logs a more detailed line.
    pub(crate) fn has_own_line(&self) -> bool {
        [LOG_STUCK, MEMORY, NODES].contains(&self.name)
    }
}

/// Returns the current alarms, from the engine's current figures.
pub(crate) fn of_now(state: &State) -> Vec<Alarm> {
    let stats = state.db().map(Db::stats);
    let stats = stats.and_then(|stats| serde_json::to_value(stats).ok());
    of(state, &stats.unwrap_or(Value::Null))
}

/// Returns the current alarms, from the engine's figures `stats`.
pub(crate) fn of(state: &State, stats: &Value) -> Vec<Alarm> {
    let found = [
        (STOPPED, state.stopped.clone()),
        (DISK_FULL, disk_full(state)),
        (LOG_STUCK, log_stuck(state)),
        (DELAYED, delayed(state)),
        (MEMORY, memory_full(state)),
        (NODES, nodes_lost(stats)),
        (ARCHIVE, text(stats, "/archive/alarm")),
        (BACKLOG, backlog_full(stats)),
        (LINES, state.lost_lines.why(state.now)),
    ];
    let alarm = |(name, why): (_, Option<String>)| {
        let why = why?.replace(['\r', '\n'], " ");
        Some(Alarm { name, why })
    };
    found.into_iter().filter_map(alarm).collect()
}

fn disk_full(state: &State) -> Option<String> {
    let db = state.db().filter(|db| db.is_disk_full())?;
    let consequence = match db.is_stuck() {
        true => "writes are refused",
        false => "writes are refused once the prepared files are full",
    };
    Some(format!(
        "no space is left on the disk of the log: {consequence}, reads continue. Free space \
         there. Writes then resume by themselves"
    ))
}

fn log_stuck(state: &State) -> Option<String> {
    let db = state.db()?;
    let is_stuck = db.is_stuck() && !db.is_disk_full();
    is_stuck.then(|| {
        String::from(
            "the log can be neither extended nor written, so writes are refused. Check the disk \
             of the log. It is tried again",
        )
    })
}

fn delayed(state: &State) -> Option<String> {
    let now = state.db()?.delayed();
    let each = now.iter().map(|one| format!("{}: {}", one.work, one.error));
    let all: Vec<String> = each.collect();
    (!all.is_empty()).then(|| {
        format!(
            "a disk or a node fails, and is tried again: {}",
            all.join("; ")
        )
    })
}

fn memory_full(state: &State) -> Option<String> {
    let memory = state.db()?.memory();
    (!memory.has_room(1)).then(|| {
        format!(
            "{} of {} bytes (maxmemory) are in use, so commands that need memory are refused. \
             Remove keys or raise maxmemory",
            memory.used(),
            memory.limit()
        )
    })
}

fn nodes_lost(stats: &Value) -> Option<String> {
    let nodes = stats.pointer("/log/mirror/nodes")?.as_array()?;
    let lost: Vec<String> = nodes
        .iter()
        .filter(|node| node.get("ready").and_then(Value::as_bool) != Some(true))
        .map(|node| {
            let of = |name: &str| node.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("{} ({})", of("address"), of("trouble"))
        })
        .collect();
    let mode = text(stats, "/log/mirror/mode").unwrap_or_default();
    (!lost.is_empty()).then(|| {
        format!(
            "nodes of the log accept no blocks: {}. Writes are now acknowledged by: {mode}",
            lost.join(", ")
        )
    })
}

fn backlog_full(stats: &Value) -> Option<String> {
    let is_full = stats.pointer("/archive/backlog/full")?.as_bool()?;
    is_full.then(|| {
        String::from(
            "the changes that wait for the archive have reached their limit (archive-backlog), \
             so writes are refused. Make the archive reachable",
        )
    })
}

/// Returns the text at the JSON pointer `at` in the engine's figures. Returns `None` if there is no text or it is
/// empty.
fn text(stats: &Value, at: &str) -> Option<String> {
    let text = stats.pointer(at)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lost_lines_are_an_alarm_for_a_minute() {
        let mut lost = LostLines::default();
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        lost.look(0, begin);
        assert_eq!(lost.why(begin), None);
        lost.look(3, after(5));
        assert!(
            lost.why(after(60))
                .is_some_and(|why| why.contains("3 were lost"))
        );
        lost.look(3, after(60));
        assert_eq!(lost.why(after(65)), None);
    }

    #[test]
    fn a_node_that_takes_no_blocks_and_a_backlog_at_its_bound_are_alarms() {
        let node =
            |address, ready| json!({"address": address, "ready": ready, "trouble": "refused"});
        let stats = |second| {
            json!({
                "log": {"mirror": {"mode": "solo", "nodes": [node("a:1", true), node("b:2", second)]}},
                "archive": {"alarm": null, "backlog": {"full": !second}},
            })
        };
        assert_eq!(nodes_lost(&stats(true)), None);
        assert_eq!(backlog_full(&stats(true)), None);
        let why = nodes_lost(&stats(false)).expect("an alarm");
        assert!(
            why.contains("b:2 (refused)") && why.contains("solo"),
            "{why}"
        );
        assert!(!why.contains("a:1"), "{why}");
        assert!(backlog_full(&stats(false)).is_some());
        assert_eq!(text(&stats(true), "/archive/alarm"), None);
        assert_eq!(nodes_lost(&Value::Null), None);
    }
}
