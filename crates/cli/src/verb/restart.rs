//! `perdura restart`

mod interleaved;

use std::sync::Arc;

use anyhow::Result;
use clap::Parser;
use perdura::typed::AcceptDivergence;
use perdura::{Db, RestartReport};
use perdura_device::{FileDisk, SystemClock};
use perdura_recovery::disks::{Demand, Locks, Opening};
use perdura_recovery::{Level, Methods, Schedule};
use perdura_steal::StealEnv;
use perdura_wal::Mode;

use crate::exit::Usage;
use crate::in_memory::Pool;
use crate::offline::{Directories, Offline, hex, threads_or_cores, with_digest};
use crate::output;
use crate::programs::replayed;

/// Restart a stopped database, report on the restart, and end.
///
/// With --dry-run, the verb changes no file of the database. So you can restart one crashed database several times and
/// compare methods, levels of parallelism, and numbers of threads. If the database has a tree, a dry run writes pages
/// that do not fit into --pool-pages to a scratch file. Without --dry-run, the verb opens and cleanly closes the
/// database, with a checkpoint.
///
/// Level 1 loads the image and then plays the log. Level 1 uses the disks in parallel, but always plays one part before
/// reading the next. Level 2 reads the next parts while it plays. Level 3 also reads the log while it loads the image.
/// Level 4 also plays the log while it loads the image. Only records that may be played in any order allow level 4.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura restart --data perdura-data --dry-run\n  \
    perdura restart --data perdura-data --dry-run --level 2 --threads 1 --json\n  \
    perdura restart --data perdura-data --accept-divergence\n  \
    perdura restart --data tree-data --dry-run --method aries --pool-pages 4096\n  \
    perdura restart --data perdura-data --log-dir /disk1 --log-dir /disk2 --dry-run")]
pub struct Args {
    #[command(flatten)]
    directories: Directories,
    /// The restart method. It is one of differential, dl1p, dl2p, pl2p, pl2p-part, value, command, log0, log1, log2,
    /// sql1, sql2 and aries, or auto for the database's default. The methods value and command play ordered frames
    /// after all page records. The methods from log0 to aries restart a tree. For a database with several kinds of
    /// records, give one method for each kind, separated by commas.
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    method: String,
    /// Change nothing.
    #[arg(long)]
    dry_run: bool,
    /// The level of parallelism, 1 to 4 [default: the highest that is legal].
    #[arg(long, value_name = "L", value_parser = clap::value_parser!(u8).range(1..=4))]
    level: Option<u8>,
    /// Number of threads that load the image and play the log. 0 means one for each core. Each disk has one more
    /// thread, which reads the disk.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    #[command(flatten)]
    pool: Pool,
    /// Accept the new result if the replay of a procedure gives a different result than the call before the crash. Each
    /// log record with a different result is named on stderr or in the JSON object. The restart ends with a checkpoint.
    #[arg(long)]
    accept_divergence: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the function to call for each log record with a different result in the replay. `None`: records with a
    /// different result are refused.
    fn accept(&self) -> Option<AcceptDivergence> {
        let json = self.json;
        self.accept_divergence.then(|| {
            AcceptDivergence::new(move |differs| {
                if !json {
                    output::note(&format!("differs   {differs}"));
                }
            })
        })
    }
}

pub fn run(args: &Args) -> Result<()> {
    // Refuses an unknown method before the database is opened.
    Methods::by_names(&args.method).map_err(Usage)?;
    if args.pool.scratch.is_some() && !args.dry_run {
        let why = "--scratch works only with --dry-run. Give both";
        return Err(Usage(why.into()).into());
    }
    let mut offline = Offline::open(&args.directories)?;
    offline.accept = args.accept();
    let (methods, level) = offline.way(&args.method, args.level)?;
    let schedule = Schedule::new(level, threads_or_cores(args.threads));
    let report = if args.dry_run {
        let (restarted, digest) = offline.restart_by(&methods, &schedule, &args.pool)?;
        with_digest(restarted.report, digest)
    } else {
        match offline.anchor.scheme.mode() {
            Mode::Executor | Mode::Keyed => product(args, offline, methods, level)?,
            Mode::Steal if args.accept_divergence => {
                let why =
                    "--accept-divergence: a database of interleaved transactions has no procedures";
                return Err(Usage(why.into()).into());
            }
            Mode::Steal => interleaved::restart(
                &args.directories,
                offline,
                &args.method,
                &schedule,
                &args.pool,
            )?,
        }
    };
    debug_assert!(report.digest.is_some(), "every way ends with the digest");
    if args.json {
        return output::json(&report);
    }
    let digest = report.digest.as_deref().unwrap_or_default();
    output::text(&format!("{report}digest    {digest}\n"))
}

/// Opens the disks again for writing. Returns the environment of interleaved transactions on these disks, and the locks
/// of the disks.
fn to_write(directories: &Directories, offline: Offline) -> Result<(StealEnv, Locks)> {
    let streams = offline.anchor.streams;
    // The shared locks of `offline` would prevent the exclusive locks that follow.
    drop(offline);
    let paths = directories.paths();
    let opening = Opening::begin(&paths, &FileDisk::shared)?;
    let (disks, locks) = opening.finish(streams, paths.image_disks(), Demand::All)?;
    let env = StealEnv {
        disks,
        clock: Arc::new(SystemClock::new()),
        seed: 0,
    };
    Ok((env, locks))
}

/// Opens a database without interleaved transactions for writing, and closes the database cleanly.
fn product(args: &Args, offline: Offline, methods: Methods, level: Level) -> Result<RestartReport> {
    let mut options = perdura::Options::new(&args.directories.data);
    options.streams = offline.anchor.streams;
    options.log_dirs.clone_from(&args.directories.log_dir);
    options.image_dirs.clone_from(&args.directories.image_dir);
    options.restart_level = level;
    options.restart_methods = methods;
    options.tree = args.pool.means();
    options.threads = args.threads;
    options.typed = replayed();
    options.typed.accept = args.accept();
    // The shared lock of `offline` would prevent the exclusive lock that follows.
    drop(offline);
    let db = Db::open(options)?;
    let all = db.summary()?;
    let mut report = with_digest(db.report(), hex(all.digest));
    report.rows += all.rows_of_trees;
    db.close()?;
    Ok(report)
}
