//! `perdura archive merge`, `prune` and `agent`: work on an archive outside the process of its database.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use perdura_archive::retention::retaining::{Removed, Retaining};
use perdura_archive::retention::words::parse_age;
use perdura_archive::{
    Agent, MergedRun, MergerOptions, MergerStep, Progress, Retention, Store, UpkeepStep,
};
use perdura_base::num::to_u64;
use perdura_base::{Epoch, Error};
use perdura_device::{Clock, SystemClock};
use perdura_restore::RestoreProgress;
use perdura_restore::virtual_backup::VirtualBackup;
use perdura_server::settings::Settings;
use serde::Serialize;

use super::archive::{Which, passed_over};
use crate::exit::Usage;
use crate::output;
use crate::setting_args::LogArgs;

/// The pause between an idle agent's searches for new runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause after a failure. Each further failure doubles it.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The moments that the archive keeps.
#[derive(Debug, Clone, clap::Args)]
struct Promised {
    /// Remove moments older than this age (example: `30d`), and the runs and backups that no newer moment needs
    /// [default: remove none].
    #[arg(long, value_name = "AGE")]
    keep: Option<String>,
    /// Keep only some moments, depending on their age. `all 1h, 1s 1d, 1min` keeps every moment up to an age of one
    /// hour. It keeps one moment a second up to an age of one day, and one a minute beyond [default: keep every
    /// moment].
    #[arg(long, value_name = "GRAINS", default_value = "")]
    moments: String,
}

impl Promised {
    fn retention(&self) -> Result<Retention> {
        Ok(Retention::parse(self.keep.as_deref(), &self.moments).map_err(Usage)?)
    }
}

/// Merge the runs of an archive, and end.
///
/// Merges ten neighbouring runs of similar size into one run, repeatedly. A restore then reads fewer files. The
/// database may be running if its setting `archive-merge` is `no`. Does not change the database's log and data.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura archive merge --archive /backup/perdura --all")]
pub struct Merge {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    promised: Promised,
    /// Merge all runs into as few runs as possible, each of 16 GiB at most.
    #[arg(long)]
    all: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Remove the unneeded backups and runs of an archive, and end.
///
/// A backup or run is unneeded if no restore to a kept moment needs it. Keeps a backup for restores to the oldest kept
/// moment. Always keeps the newest intact backup.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura archive prune --archive /backup/perdura --keep 30d")]
pub struct Prune {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    promised: Promised,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Work on an archive in the background, until this process is ended.
///
/// Merges the database's new runs. Removes backups and runs that no kept moment needs. To leave merging to the agent,
/// set the database's `archive-merge` to `no`. The agent needs only the archive's directory. An archive can have one
/// agent at a time. You may kill the agent at any time. The next agent repeats unfinished work. When the disk fails,
/// the agent reports the failure and tries again. The agent's log is on stderr.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura archive agent --archive /backup/perdura\n  \
    perdura archive agent --archive /backup/perdura --virtual-every 6h --keep 30d --moments 'all 1d, 1s'")]
pub struct Run {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    promised: Promised,
    /// Make a virtual backup at this interval, if something was archived since the previous backup [default: none].
    #[arg(long, value_name = "AGE")]
    virtual_every: Option<String>,
    #[command(flatten)]
    flags: LogArgs,
}

fn agent(which: &Which, promised: &Promised, all: bool) -> Result<Agent> {
    let store = which.open()?;
    let retention = promised.retention()?;
    let options = MergerOptions {
        all,
        policy: retention.policy(Arc::new(now_us)),
        ..MergerOptions::default()
    };
    let life = RandomState::new().hash_one(std::process::id());
    let disk = which.disk_to_write()?;
    Ok(Agent::new(disk, *store.uuid(), life, options, retention))
}

fn now_us() -> u64 {
    SystemClock::new().wall_us()
}

/// Returns the error for the user. If another process holds the lock, the text names this process and its work.
fn explained(error: Error, which: &Which) -> anyhow::Error {
    let shown = which.dir();
    let shown = shown.display();
    let context = match &error {
        Error::Locked { dir } if dir.contains("agent.lock") => {
            format!("{shown}: another agent works on this archive. Only one may run at a time")
        }
        Error::Locked { dir } if dir.contains("merging.lock") => {
            format!(
                "{shown}: the server of this database merges the archive. Set `archive-merge no` \
                 there to use an agent"
            )
        }
        _ => shown.to_string(),
    };
    anyhow::Error::new(error).context(context)
}

#[derive(Default, Serialize)]
struct Done {
    uuid: String,
    merges: u64,
    runs_before: u64,
    runs: u64,
    bytes_in: u64,
    bytes_out: u64,
}

pub fn merge(args: &Merge) -> Result<()> {
    let count = |store: &Store| to_u64(store.manifest().runs().count());
    let store = args.which.open()?;
    let mut done = Done {
        uuid: store.uuid().to_string(),
        runs_before: count(&store),
        ..Done::default()
    };
    let mut agent = agent(&args.which, &args.promised, args.all)?;
    loop {
        match agent.step(now_us()) {
            Ok(UpkeepStep::Merger(MergerStep::Idle)) => break,
            Ok(UpkeepStep::Merger(MergerStep::Merged(merged))) => {
                done.merges += 1;
                done.bytes_in += merged.bytes_in;
                done.bytes_out += merged.bytes_out;
            }
            Ok(_) => {}
            Err(error) => return Err(explained(error, &args.which)),
        }
    }
    let store = args.which.open()?;
    done.runs = count(&store);
    if args.json {
        return output::json(&done);
    }
    output::text(&format!(
        "archive   of database {}\nmerged    {} times: {} bytes became {}\nruns      {}, {} before\n",
        done.uuid, done.merges, done.bytes_in, done.bytes_out, done.runs, done.runs_before
    ))
}

#[derive(Serialize)]
struct Pruned {
    backups_removed: usize,
    runs_removed: usize,
}

pub fn prune(args: &Prune) -> Result<()> {
    let retention = args.promised.retention()?;
    let store = args.which.open_to_write()?;
    let lease = store.lease_merging();
    let _lease = lease.map_err(|error| explained(error, &args.which))?;
    let removed = match Retaining::new(store, &retention, now_us()) {
        None => {
            let why = "nothing is removed without --keep. Give the age from which moments may be \
                       removed";
            return Err(Usage(why.into()).into());
        }
        Some(retaining) => retaining.run(),
    };
    let Removed { backups, runs } = removed.map_err(|error| explained(error, &args.which))?;
    if args.json {
        return output::json(&Pruned {
            backups_removed: backups,
            runs_removed: runs,
        });
    }
    output::text(&format!("removed   {backups} backups, {runs} runs\n"))
}

/// Virtual backups at an interval.
struct Virtual {
    every: Option<Duration>,
    next: Instant,
    running: Option<VirtualBackup>,
    /// The last epoch of the previous virtual backup.
    last: Option<Epoch>,
}

impl Virtual {
    /// Takes a step of the running backup, or begins a backup that is due. Returns whether the next step can follow at
    /// once.
    fn step(&mut self, store: Option<&Arc<Store>>) -> Result<bool, Error> {
        if let Some(mut running) = self.running.take() {
            match running.step()? {
                Progress::More => self.running = Some(running),
                Progress::Done(made) => {
                    let header = made.backup.header;
                    tracing::info!(
                        target: "cli", "backup {}: the state of epoch {}",
                        header.id.name(),
                        header.id.end
                    );
                }
            }
            return Ok(true);
        }
        debug_assert!(self.running.is_none(), "one backup is made at a time");
        let (Some(every), Some(store)) = (self.every, store) else {
            return Ok(false);
        };
        let end = store.manifest().held().0;
        if Instant::now() < self.next || self.last == Some(end) {
            return Ok(false);
        }
        self.next = Instant::now() + every;
        self.last = Some(end);
        if store.manifest().backups().any(|id| id.end == end) {
            return Ok(false);
        }
        let progress = Arc::new(RestoreProgress::default());
        match VirtualBackup::begin(store, None, progress, passed_over) {
            Ok(begun) => self.running = Some(begun),
            // The database is making a backup or an increment at the moment.
            Err(Error::Locked { .. }) => {
                (self.next, self.last) = (Instant::now() + LOOK_EVERY, None);
                return Ok(false);
            }
            // There is nothing to back up yet.
            Err(error @ Error::Usage(_)) => {
                tracing::info!(target: "cli", "{error}");
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

pub fn run(args: &Run) -> Result<()> {
    let mut settings = Settings::default();
    args.flags.0.apply(&mut settings)?;
    let every = args.virtual_every.as_deref().map(parse_age).transpose();
    let every = every.map_err(Usage)?.map(Duration::from_micros);
    let mut agent = agent(&args.which, &args.promised, false)?;
    output::start_log(&settings.server)?;
    let mut backups = Virtual {
        every,
        next: Instant::now() + every.unwrap_or_default(),
        running: None,
        last: None,
    };
    let shown = args.which.dir().display().to_string();
    let mut at_work = false;
    let mut pause = PAUSE;
    let mut told = String::new();
    loop {
        let step = agent.step(now_us()).and_then(|step| {
            if !at_work {
                tracing::info!(target: "cli", "the agent works on the archive in {shown}");
                at_work = true;
            }
            let more = backups.step(agent.store())?;
            Ok((step, more))
        });
        match step {
            Ok((UpkeepStep::Merger(MergerStep::Idle), false)) => {
                if !told.is_empty() {
                    tracing::info!(target: "cli", "{shown}: the archive's disk works again");
                }
                (pause, told) = (PAUSE, String::new());
                std::thread::sleep(LOOK_EVERY);
            }
            Ok((step, _)) => say(&step),
            Err(error @ (Error::Locked { .. } | Error::ArchiveTaken { .. })) => {
                return Err(explained(error, &args.which));
            }
            Err(error) => {
                let what = error.to_string();
                if what != told {
                    tracing::warn!(target: "cli", "{shown}: {what}. It is tried again");
                    told = what;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

fn say(step: &UpkeepStep) {
    match step {
        UpkeepStep::Merger(MergerStep::Merged(MergedRun {
            id,
            inputs,
            bytes_in,
            bytes_out,
            ..
        })) => tracing::info!(
            target: "cli", "merged {inputs} runs of {bytes_in} bytes: {} of {bytes_out}",
            id.name()
        ),
        UpkeepStep::Merger(MergerStep::GivenUp(id, why)) => {
            tracing::warn!(target: "cli", "{}: {why}", id.name())
        }
        UpkeepStep::Removed(removed) if *removed != Removed::default() => {
            tracing::info!(target: "cli", "removed {} backups, {} runs", removed.backups, removed.runs);
        }
        UpkeepStep::Merger(MergerStep::Idle | MergerStep::Worked)
        | UpkeepStep::Looked
        | UpkeepStep::Removed(_) => {}
    }
}
