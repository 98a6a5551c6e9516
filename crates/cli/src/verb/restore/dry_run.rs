//! `perdura restore --dry-run`

use std::time::Duration;

use anyhow::Result;
use perdura_base::moment::moment;
use perdura_base::num::to_u64;
use perdura_device::SystemClock;
use perdura_restore::{RestorePlan, Trial, try_plan};
use serde::Serialize;

use super::Args;
use super::sources::Planned;
use super::told::{asked_text, sources_text, time_text};
use crate::offline::restore_threads;
use crate::output;
use crate::verb::archive::estimates::{seconds_of, to_replay_text};

/// The duration of the trial, unless one partition takes longer.
const TRIAL: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct DryRun {
    epoch: u64,
    /// The highest acknowledged epoch that is lost, if its loss was accepted.
    lost_to: Option<u64>,
    /// The time that was asked for, RFC 3339, in UTC. `None`: an epoch or the last state was asked for.
    asked: Option<String>,
    /// The time of the epoch, RFC 3339, in UTC. `None`: the archive has no time for the epoch.
    time: Option<String>,
    backup: String,
    /// The increment with the rows of key-addressed tables. `None`: the backup has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    increment: Option<String>,
    runs: usize,
    bytes_to_read: u64,
    /// The expected size of the new database, without its log.
    bytes_to_write: u64,
    /// The expected time to read and merge everything. Writing takes place at the same time.
    seconds: f64,
    /// The most changes of key-addressed tables that the first start replays.
    frames_to_replay: u64,
    /// The time in which these changes were made, by the clock. `None`: it is not known.
    frames_seconds: Option<f64>,
    /// The expected time of their replay, by the last restart with a long replay. `None`: no such restart is known.
    first_start_seconds: Option<f64>,
    /// The share of the partitions that was merged for the estimate.
    measured: f64,
}

/// Merges some partitions by a plan, and writes nothing.
pub fn try_out(args: &Args, plan: &RestorePlan) -> Result<Trial, perdura::Error> {
    let clock = SystemClock::new();
    let limit_ns = u64::try_from(TRIAL.as_nanos()).unwrap_or(u64::MAX);
    try_plan(plan, restore_threads(args.threads), &clock, limit_ns)
}

/// Prints what a restore by this plan would make. `first_start_seconds` is the expected time of the replay at the first
/// start of the new database.
pub fn tell(
    args: &Args,
    planned: &Planned,
    trial: &Trial,
    first_start_seconds: Option<f64>,
) -> Result<()> {
    let plan = &planned.plan;
    let told = DryRun {
        epoch: plan.target().0,
        asked: planned.asked_us.map(moment),
        lost_to: planned.lost_to,
        time: (plan.wall_us() > 0).then(|| moment(plan.wall_us())),
        backup: plan.backup().name(),
        increment: plan.increment().map(|id| id.increment_name()),
        runs: plan.runs(),
        bytes_to_read: plan.bytes(),
        bytes_to_write: trial.expected_bytes(),
        seconds: Duration::from_nanos(trial.expected_ns()).as_secs_f64(),
        frames_to_replay: plan.frames_at_most(),
        frames_seconds: seconds_of(plan.frames_span_us()),
        first_start_seconds,
        measured: f64::from(trial.partitions) / f64::from(trial.of),
    };
    if args.json {
        return output::json(&told);
    }
    output::text(&text(args, &told))
}

fn text(args: &Args, told: &DryRun) -> String {
    let mut text = asked_text(told.asked.as_deref());
    let time = time_text(told.time.as_deref());
    let backup = sources_text(&told.backup, told.increment.as_deref());
    let runs = to_u64(told.runs);
    text += &format!(
        "would be  epoch {}{time} from {backup} and {runs} runs\n",
        told.epoch
    );
    text += &format!(
        "reads     {} bytes in about {:.1} s, measured on {:.0} % of the partitions\n\
         writes    about {} bytes to {} at the same time; a slower disk there takes longer\n",
        told.bytes_to_read,
        told.seconds,
        100.0 * told.measured,
        told.bytes_to_write,
        args.to.display()
    );
    let times = [told.frames_seconds, told.first_start_seconds];
    text += &to_replay_text(told.frames_to_replay, times);
    text += "made      nothing\n";
    text
}
