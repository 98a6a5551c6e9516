//! The report of a restore.

use std::time::Duration;

use anyhow::Result;
use perdura_base::moment::moment;
use perdura_restore::{CarriedFrames, ReplayReport, RestoreReport};
use serde::Serialize;

use super::sources::Planned;
use super::{Args, Method, OfDeadlines};
use crate::output;

#[derive(Serialize)]
struct Told {
    method: &'static str,
    seconds: f64,
    #[serde(flatten)]
    replay: Option<Replayed>,
    epoch: u64,
    /// The time that was asked for, RFC 3339, in UTC. `None`: an epoch or the last state was asked for.
    asked: Option<String>,
    /// The time of the epoch, RFC 3339, in UTC. `None`: the archive has no time for the epoch.
    time: Option<String>,
    /// The highest acknowledged epoch that is lost, if its loss was accepted.
    lost_to: Option<u64>,
    uuid: String,
    parent: String,
    backup: String,
    /// The increment with the rows of key-addressed tables. `None`: the backup has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    increment: Option<String>,
    bytes_read: u64,
    bytes_written: u64,
    pages_restored: u64,
    /// The number of runs that the restore reads at the same time. `runs_merged` counts the runs that were first merged
    /// into fewer runs, because too many runs existed.
    runs: usize,
    runs_merged: usize,
    page_reads: u64,
    page_writes: u64,
    records_applied: u64,
    records_taken_out: u64,
    records_skipped: u64,
    /// Keys whose deadline had passed at the time of the restore.
    deadlines_passed: u64,
    deadlines_changed: u64,
    /// The frames of key-addressed tables in the new log. The first open replays them.
    effects_to_replay: u64,
    calls_to_replay: u64,
    /// The procedures that these calls need.
    procedures: Vec<Called>,
}

/// The calls of a procedure. The epochs are those of the archived database.
#[derive(Serialize)]
struct Called {
    /// The id of the procedure.
    procedure: u32,
    calls: u64,
    from_epoch: u64,
    to_epoch: u64,
}

/// The measurements of `--method replay`. The field `seconds` of the report includes the copy, the replay, and the wait
/// for sorting.
#[derive(Serialize)]
struct Replayed {
    buffer_pages: usize,
    copy_seconds: f64,
    replay_seconds: f64,
    replay_page_reads: u64,
    replay_page_writes: u64,
}

/// Prints the report of a restore that took `took`.
pub fn tell(args: &Args, planned: &Planned, replay: &ReplayReport, took: Duration) -> Result<()> {
    let plan = &planned.plan;
    let report: &RestoreReport = &replay.restored;
    let seconds = |ns| Duration::from_nanos(ns).as_secs_f64();
    let is_replay = args.method == Method::Replay;
    let buffers = args.buffer_pages.filter(|_| is_replay);
    debug_assert!(buffers.is_some() || !is_replay, "a replay has its buffers");
    let told = Told {
        method: if is_replay { "replay" } else { "single-pass" },
        replay: buffers.map(|buffer_pages| Replayed {
            buffer_pages,
            copy_seconds: seconds(replay.copy_ns),
            replay_seconds: seconds(replay.replay_ns),
            replay_page_reads: replay.page_reads,
            replay_page_writes: replay.page_writes,
        }),
        seconds: took.as_secs_f64(),
        epoch: report.epoch.0,
        asked: planned.asked_us.map(moment),
        lost_to: planned.lost_to,
        time: (report.wall_us > 0).then(|| moment(report.wall_us)),
        uuid: report.uuid.to_string(),
        parent: report.parent.to_string(),
        backup: plan.backup().name(),
        increment: plan.increment().map(|id| id.increment_name()),
        bytes_read: report.bytes_read,
        bytes_written: report.bytes_written,
        pages_restored: report.pages,
        runs: plan.runs(),
        runs_merged: plan.runs_merged(),
        page_reads: report.page_reads,
        page_writes: report.page_writes,
        records_applied: report.applied,
        records_taken_out: report.taken_out,
        records_skipped: report.skipped,
        deadlines_passed: report.deadlines_passed,
        deadlines_changed: report.deadlines_changed,
        effects_to_replay: report.carried.effects,
        calls_to_replay: report.carried.all_calls(),
        procedures: calls_of(&report.carried),
    };
    if args.json {
        return output::json(&told);
    }
    output::text(&told_text(args, &told))
}

/// Returns the calls to replay, by procedure.
fn calls_of(carried: &CarriedFrames) -> Vec<Called> {
    let calls = carried.calls.iter();
    calls
        .map(|(procedure, calls)| Called {
            procedure: *procedure,
            calls: calls.count,
            from_epoch: calls.first.0,
            to_epoch: calls.last.0,
        })
        .collect()
}

/// Returns the names of the files that a restore begins with.
pub fn sources_text(backup: &str, increment: Option<&str>) -> String {
    match increment {
        Some(increment) => format!("{backup}, {increment}"),
        None => backup.to_owned(),
    }
}

/// Returns the line with the time that was asked for, if one was.
pub fn asked_text(asked: Option<&str>) -> String {
    asked.map_or_else(String::new, |asked| format!("asked     {asked}\n"))
}

/// Returns the time of an epoch, in commas. Empty if the archive has no time for the epoch.
pub fn time_text(time: Option<&str>) -> String {
    time.map_or_else(String::new, |time| format!(", {time},"))
}

/// Returns the lines about the frames that the first open replays. Returns nothing if there are no frames.
fn carried_text(told: &Told) -> String {
    let (effects, calls) = (told.effects_to_replay, told.calls_to_replay);
    match (effects, calls) {
        (0, 0) => String::new(),
        (_, 0) => {
            format!("to replay {effects} changes of key-addressed tables, at the first start\n")
        }
        _ => {
            let first = told.procedures.iter().map(|one| one.from_epoch).min();
            let last = told.procedures.iter().map(|one| one.to_epoch).max();
            format!(
                "to replay {effects} changes of key-addressed tables and {calls} calls of {} procedures, at the first start.\n\
                 {:10}The calls were made in epochs {} to {} of database {}.\n\
                 {:10}Start it with the program that has the procedures: no other can replay the calls\n",
                told.procedures.len(),
                "",
                first.unwrap_or(0),
                last.unwrap_or(0),
                told.parent,
                ""
            )
        }
    }
}

/// Returns the report of a restore as text for people.
fn told_text(args: &Args, told: &Told) -> String {
    let mut text = asked_text(told.asked.as_deref());
    text += &format!(
        "restored  epoch {}{} of database {} in {:.2} s, from {}\n\
         pages     {} ({} bytes read, {} written); records: {} applied, {} taken out, {} skipped\n\
         made      {}, database {}\n",
        told.epoch,
        time_text(told.time.as_deref()),
        told.parent,
        told.seconds,
        sources_text(&told.backup, told.increment.as_deref()),
        told.pages_restored,
        told.bytes_read,
        told.bytes_written,
        told.records_applied,
        told.records_taken_out,
        told.records_skipped,
        args.to.display(),
        told.uuid,
    );
    let passed = told.deadlines_passed;
    text += &match args.deadlines {
        OfDeadlines::Keep if passed > 0 => format!(
            "deadlines {passed} keys had passed theirs: the server will remove them (see --deadlines)\n"
        ),
        OfDeadlines::Keep => String::new(),
        OfDeadlines::Shift => format!(
            "deadlines {} keys have the time to live that they had\n",
            told.deadlines_changed
        ),
        OfDeadlines::Drop => format!("deadlines {} keys lost theirs\n", told.deadlines_changed),
    };
    text += &carried_text(told);
    if let Some(replay) = &told.replay {
        text += &format!(
            "replay    {} buffers: {} page reads and {} writes in {:.2} s, after {:.2} s of \
             writing the backup\n",
            replay.buffer_pages,
            replay.replay_page_reads,
            replay.replay_page_writes,
            replay.replay_seconds,
            replay.copy_seconds,
        );
    }
    text
}
