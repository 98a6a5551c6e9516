//! Log lines about changes of the database's state. Each change is logged once, when it happens.
//!
//! Four kinds of changes are logged. Writes are refused or resume. Work fails or succeeds again. The archive or a
//! node is lost or is back. An alarm begins or ends.

use crate::alarms::{self, Alarm};
use crate::engine::{Db, Delayed};
use crate::state::State;
use tracing::Level;

/// The conditions that the operator's log has reported.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// True if the log has no room.
    log_full: bool,
    /// The state of the archive's backlog: `none`, `waiting` or `draining`, as in INFO. Empty if there is no
    /// archive.
    backlog: String,
    /// The number of runs that wait for the archive.
    runs: u64,
    /// The number of runs that first waited and then reached the archive. If it has grown since the last check, there
    /// was a backlog, even if no check saw it.
    drained: u64,
    /// The alarm about the archive. `None`: there is no alarm.
    alarm: Option<String>,
}

/// A line of the operator's log.
type Said = (Level, String);

impl Conditions {
    fn of(db: &Db) -> Conditions {
        let stats = db.stats();
        let backlog = stats.archive.map(|archive| archive.backlog);
        let backlog = backlog.unwrap_or_default();
        Conditions {
            log_full: stats.log.disk_full,
            backlog: backlog.state.into(),
            runs: backlog.runs,
            drained: backlog.drained_runs,
            alarm: db.alarm(),
        }
    }

    /// Stores the present conditions. Returns log lines about the changed conditions. `refused` is true if a write has
    /// been refused since the last check because the log had no room, even if the log has room again.
    fn replace(&mut self, mut now: Conditions, refused: bool) -> Vec<Said> {
        now.log_full |= refused;
        let mut lines = Vec::new();
        if now.log_full != self.log_full {
            lines.push(match now.log_full {
                true => (
                    Level::ERROR,
                    "The log has no room: writes are refused and reads \
                                        continue. Free space on the disk of the log"
                        .into(),
                ),
                false => (Level::INFO, "The log has room again: writes resume".into()),
            });
        }
        let is_away = now.backlog == "waiting";
        let has_drained = now.drained > self.drained;
        if now.backlog != self.backlog || has_drained {
            let was_away = self.backlog == "waiting";
            let had_waited = was_away || self.backlog == "draining" || has_drained;
            let alarm = now.alarm.clone().unwrap_or_default();
            match now.backlog.as_str() {
                "waiting" if !was_away => {
                    lines.push((Level::ERROR, format!("Archive away: {alarm}")));
                }
                "waiting" => {}
                "draining" if was_away => {
                    lines.push((
                        Level::INFO,
                        format!(
                            "Archive back: {} waiting runs are being written to it",
                            now.runs
                        ),
                    ));
                }
                "draining" => {}
                _ if had_waited => {
                    lines.push((
                        Level::INFO,
                        "Archive back: all waiting runs were written to it".into(),
                    ));
                }
                _ => {}
            }
        }
        // While the archive is away, the archive's alarm names the amount that waits. A growing amount is not a
        // change of state.
        let of_archive = |alarm: &Option<String>, is_away: bool| alarm.clone().filter(|_| !is_away);
        let before = of_archive(&self.alarm, self.backlog == "waiting");
        let alarm = of_archive(&now.alarm, is_away);
        match (&before, &alarm) {
            (Some(before), Some(alarm)) if without_numbers(before) == without_numbers(alarm) => {}
            (_, Some(alarm)) => lines.push((Level::ERROR, format!("ALARM: the archive: {alarm}"))),
            (Some(_), None) if !is_away => {
                lines.push((
                    Level::INFO,
                    "No longer an alarm: the archive is proven".into(),
                ));
            }
            (Some(_) | None, None) => {}
        }
        *self = now;
        lines
    }
}

/// Returns a text without its digits. Two alarms that differ only in digits are equal.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Returns the lines about newly failing work, and about work that succeeds again.
fn changes_of_delays(before: &[Delayed], now: &[Delayed]) -> Vec<Said> {
    let lacks = |list: &[Delayed], work: &str| list.iter().all(|one| one.work != work);
    let begun = now.iter().filter(|one| lacks(before, &one.work));
    let begun = begun.map(|Delayed { work, error, .. }| {
        let line = format!("{} failed and is tried again: {error}", capital(work));
        (Level::WARN, line)
    });
    let ended = before.iter().filter(|one| lacks(now, &one.work));
    let ended = ended.map(|one| (Level::INFO, format!("{} works again", capital(&one.work))));
    begun.chain(ended).collect()
}

/// Returns the lines about new and ended alarms.
fn changes_of_alarms(before: &[Alarm], now: &[Alarm]) -> Vec<Said> {
    let lacks = |list: &[Alarm], name: &str| list.iter().all(|one| one.name != name);
    let raised = now.iter().filter(|one| lacks(before, one.name));
    let raised = raised.map(|one| (Level::ERROR, format!("ALARM: {}: {}", one.name, one.why)));
    let ended = before.iter().filter(|one| lacks(now, one.name));
    let ended = ended.map(|one| (Level::INFO, format!("No longer an alarm: {}", one.name)));
    raised.chain(ended).collect()
}

/// Returns the text with a capital first letter.
fn capital(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(rest).collect()
}

fn say(lines: Vec<Said>) {
    for (level, line) in lines {
        match level {
            Level::ERROR => tracing::error!("{line}"),
            Level::WARN => tracing::warn!("{line}"),
            _ => tracing::info!("{line}"),
        }
    }
}

impl State {
    /// Returns whether this loop reports the conditions of the whole server.
    pub(crate) fn leads(&self) -> bool {
        self.event_loop == 0
    }

    /// Reports the changes of the database's conditions.
    pub(crate) fn look_at_conditions(&mut self) {
        if let Some(now) = self.db().filter(|_| self.leads()).map(Conditions::of) {
            let refused = self.common.take_refusal();
            say(self.conditions.replace(now, refused));
        }
    }

    /// Reports the alarms that no other function of this module reports.
    pub(crate) fn look_for_alarms(&mut self) {
        self.lost_lines
            .look(perdura_logging::figures().lost, self.now);
        let mut now = alarms::of_now(self);
        now.retain(|alarm| alarm.has_own_line());
        if self.leads() {
            say(changes_of_alarms(&self.alarms, &now));
        }
        self.alarms = now;
    }

    /// Reports work that a failing disk has begun to delay, and the end of each delay.
    pub(crate) fn look_for_delays(&mut self) {
        if let Some(now) = self.db().map(Db::delayed) {
            if self.leads() {
                say(changes_of_delays(&self.delayed, &now));
            }
            self.delayed = now;
        }
    }

    /// Reports changes of the mirror's view. The view is the choice of nodes that store the log's blocks.
    pub(crate) fn tell_views(&self) {
        let db = self.db().filter(|_| self.leads());
        for line in db.map(Db::take_views).unwrap_or_default() {
            // A line with this ending reports that a node is back. Any other line reports a failure, or a change
            // of the rules of acknowledgement.
            match line.ends_with("takes blocks") {
                true => tracing::info!("The log's nodes: {line}"),
                false => tracing::warn!("The log's nodes: {line}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(backlog: &str, alarm: Option<&str>) -> Conditions {
        Conditions {
            backlog: backlog.into(),
            runs: 3,
            alarm: alarm.map(Into::into),
            ..Conditions::default()
        }
    }

    #[test]
    fn each_change_of_state_is_one_line_and_no_change_is_none() {
        let mut known = Conditions::default();
        let full = Conditions {
            log_full: true,
            ..archive("none", None)
        };
        let steps = [
            (archive("none", None), vec![]),
            (full.clone(), vec!["ERROR The log has no room"]),
            (full, vec![]),
            (
                archive("none", None),
                vec!["INFO The log has room again: writes resume"],
            ),
            (
                archive("waiting", Some("the archive is away (no); 1 runs")),
                vec!["ERROR Archive away: the archive is away"],
            ),
            (
                archive("waiting", Some("the archive is away (no); 2 runs")),
                vec![],
            ),
            (
                archive("draining", None),
                vec!["INFO Archive back: 3 waiting runs"],
            ),
            (
                archive("none", None),
                vec!["INFO Archive back: all waiting runs"],
            ),
            (
                archive("none", Some("4 checkpoints")),
                vec!["ERROR ALARM: the archive: 4 checkpoints"],
            ),
            (archive("none", Some("5 checkpoints")), vec![]),
            (
                archive("none", Some("a proof failed")),
                vec!["ERROR ALARM: the archive: a proof"],
            ),
            (archive("none", None), vec!["INFO No longer an alarm"]),
        ];
        for (number, (now, wanted)) in steps.into_iter().enumerate() {
            let said = known.replace(now, false);
            let lines: Vec<String> = said
                .iter()
                .map(|(level, line)| format!("{level} {line}"))
                .collect();
            assert_eq!(lines.len(), wanted.len(), "{number}: {lines:?}");
            let all = lines
                .iter()
                .zip(&wanted)
                .all(|(line, start)| line.starts_with(start));
            assert!(all, "{number}: {lines:?}");
        }
    }

    #[test]
    fn a_disk_that_is_full_between_two_looks_alone_is_reported_too() {
        let mut known = Conditions::default();
        let full = known.replace(Conditions::default(), true);
        assert!(matches!(&full[..], [(Level::ERROR, _)]), "{full:?}");
        let resumed = known.replace(Conditions::default(), false);
        assert!(matches!(&resumed[..], [(Level::INFO, _)]), "{resumed:?}");
        assert!(known.replace(Conditions::default(), false).is_empty());
    }

    #[test]
    fn work_that_fails_is_reported_once_and_when_it_works_again() {
        let failing = |attempts| Delayed {
            work: "a checkpoint".into(),
            error: "no space".into(),
            attempts,
        };
        let lines = |before: &[Delayed], now: &[Delayed]| {
            let lines = changes_of_delays(before, now);
            lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(&[], &[failing(1)]),
            ["A checkpoint failed and is tried again: no space"]
        );
        assert!(lines(&[failing(1)], &[failing(2)]).is_empty());
        assert_eq!(lines(&[failing(2)], &[]), ["A checkpoint works again"]);
    }
}
