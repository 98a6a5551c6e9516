//! `perdura repair`

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use perdura::databases::names_databases;
use perdura::{MemoryAccount, Progress};
use perdura_base::Uuid;
use perdura_device::{Clock, Disk, FileDisk, SystemClock};
use perdura_recovery::Disks;
use perdura_recovery::found::{mark_finished, mark_unfinished};
use perdura_recovery::salvage::{Condition, Missing, Salvaged, build, salvage, whole};
use perdura_recovery::{LogMemory, RestartOptions, Schedule, Tail, undrained};
use serde::Serialize;

use crate::exit::{Damaged, Usage};
use crate::offline::{Directories, Offline, threads_or_cores};
use crate::output;
use crate::programs::player;

/// Make a new database from the intact part of a damaged database.
///
/// Reads the database up to the last intact epoch and lists the missing parts. For each stream, the list has the
/// missing epochs and their times. The list also has the pages that no image has. With --accept-loss, the intact part
/// is written to --to as a new database, which `serve` can open. An intact database is written to --to even without
/// --accept-loss. The damaged directory is only read, never changed. Keep that directory until you have checked the new
/// database.
///
/// Exit code 0 if the database is intact, or the new database was made. Exit code 3 if something is missing and
/// --accept-loss is not given, or if nothing can be saved.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura repair --data perdura-data\n  \
    perdura repair --data perdura-data --to repaired --accept-loss\n  \
    perdura verify --data repaired")]
pub struct Args {
    #[command(flatten)]
    directories: Directories,
    /// The directory of the new database, with its log. It must be empty or missing.
    #[arg(long, value_name = "NEW")]
    to: Option<PathBuf>,
    /// Write the new database although something is missing.
    #[arg(long, requires = "to")]
    accept_loss: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told<'a> {
    opens: bool,
    missing: Option<&'a Missing>,
    made: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let offline = Offline::open_damaged(&args.directories)?;
    let dir = || args.directories.data.display().to_string();
    if let Some(text) = undrained(&offline.anchor, None) {
        output::note(&format!("note: {text}"));
    }
    let (methods, level) = offline.way("auto", None)?;
    let schedule = Schedule::new(level, threads_or_cores(0));
    let options = offline.restart_options(&methods, &schedule);
    let salvaged = match salvage(&options, &names_databases, &|| Some(player(None)))
        .with_context(dir)?
    {
        Condition::Whole => {
            let mut text =
                "whole     the database opens as it is; there is nothing to repair\n".to_owned();
            if let Some(to) = &args.to {
                // The database is intact, but a script that gives --to expects a new database.
                let unused = offline.restart_options(&methods, &schedule);
                let copied = whole(&unused).with_context(dir)?;
                make(&unused, copied, to).with_context(|| to.display().to_string())?;
                text += &format!("made      {}\n", to.display());
            }
            let told = Told {
                opens: true,
                missing: None,
                made: args.to.as_ref().map(|to| to.display().to_string()),
            };
            return tell(args, &told, &text);
        }
        Condition::Salvaged(salvaged) => *salvaged,
    };
    let missing = salvaged.missing.clone();
    let text = describe(&missing);
    let accepted = args.to.as_ref().filter(|_| args.accept_loss);
    let Some(to) = accepted else {
        let told = Told {
            opens: false,
            missing: Some(&missing),
            made: None,
        };
        let hint = "nothing was written. Give --to NEW --accept-loss to make a new database of \
                    the rest\n";
        tell(args, &told, &format!("{text}{hint}"))?;
        bail!(Damaged(1));
    };
    make(&options, salvaged, to).with_context(|| to.display().to_string())?;
    let told = Told {
        opens: false,
        missing: Some(&missing),
        made: Some(to.display().to_string()),
    };
    let made = format!("made      {}\n", to.display());
    tell(args, &told, &format!("{text}{made}"))
}

fn tell(args: &Args, told: &Told<'_>, text: &str) -> Result<()> {
    debug_assert_ne!(
        told.opens,
        told.missing.is_some(),
        "what does not open lacks something"
    );
    if args.json {
        return output::json(told);
    }
    output::text(&output::shown(text))
}

/// Writes the salvaged rows as a new database in `to`.
fn make(from: &RestartOptions, salvaged: Salvaged, to: &Path) -> Result<()> {
    must_be_empty(to)?;
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(to)?);
    let _lock = disk.lock("LOCK")?;
    let clock = Arc::new(SystemClock::new());
    let uuid = new_uuid(clock.as_ref());
    let options = RestartOptions {
        archived: None,
        disks: Disks::on_one(Arc::clone(&disk), from.disks.logs.len()),
        clock,
        memory: Arc::new(MemoryAccount::new(u64::MAX)),
        progress: Arc::new(Progress::default()),
        ordered: from.ordered.clone(),
        mode: perdura_recovery::RestartMode::Real,
        tail: Tail::OnDisk,
        catalog: Arc::clone(&from.catalog),
        methods: from.methods.clone(),
        ..*from
    };
    let defaults = perdura::CoreOptions::default();
    let memory = LogMemory {
        block_bytes_max: defaults.block_bytes_max,
        queue_bytes_max: defaults.queue_bytes_max,
        lanes: 1,
        mirror: None,
    };
    mark_unfinished(disk.as_ref(), "perdura repair")?;
    build(salvaged, &options, uuid, memory)?;
    Ok(mark_finished(disk.as_ref())?)
}

/// Fails if the directory for a new database is not empty.
pub fn must_be_empty(to: &Path) -> Result<()> {
    // A new file system has this folder.
    let is_empty = |entry: &std::fs::DirEntry| entry.file_name() == "lost+found";
    let mut found = std::fs::read_dir(to).into_iter().flatten().flatten();
    if !found.all(|entry| is_empty(&entry)) {
        bail!(Usage(format!(
            "{} is not empty: give a new directory",
            to.display()
        )));
    }
    Ok(())
}

/// Returns a unique database id, from a hash of the time with a random key from the standard library.
pub fn new_uuid(clock: &dyn Clock) -> Uuid {
    Uuid::of_seed(RandomState::new().hash_one(clock.wall_us()))
}

fn describe(missing: &Missing) -> String {
    let mut text = format!("refused   {}\n", missing.refused);
    text += &format!(
        "intact    up to epoch {}, written {}; image {}; {} rows\n",
        missing.intact_epoch, missing.intact_at, missing.image, missing.rows
    );
    if missing.image_alone && missing.consistent {
        text += "image     the log after the image cannot be used: the image has what was \
                 committed before one instant, and nothing later\n";
    } else if missing.image_alone {
        text += "image     the log after the image cannot be used: transactions that ran while \
                 the image was written may be incomplete\n";
    }
    for log in &missing.log {
        text += &format!(
            "missing   log stream {}: epochs {} to {}, written from {} to {}; used up to position {}, \
             whole up to {}\n",
            log.stream, log.from_epoch, log.to_epoch, log.from, log.to, log.used_to, log.whole_to
        );
    }
    if !missing.log.is_empty() && !missing.numbers.is_empty() {
        text += "missing   transactions on typed tables:";
        for (partition, number) in missing.numbers.iter().enumerate() {
            let comma = if partition > 0 { "," } else { "" };
            text += &format!(
                "{comma} of partition {partition} from number {} on",
                number + 1
            );
        }
        text += "\n";
    }
    for page in &missing.pages {
        text += &format!(
            "missing   page {} ({} at byte {}): the rows in it\n",
            page.page, page.file, page.offset
        );
    }
    if missing.log.is_empty() && missing.pages.is_empty() && !missing.image_alone {
        text += "missing   nothing: the new database holds every acknowledged transaction\n";
    }
    text
}
