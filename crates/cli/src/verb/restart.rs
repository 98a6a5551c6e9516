//! `perdura restart`

use anyhow::Result;
use clap::Parser;
use perdura::Db;
use perdura_recovery::Method;

use crate::exit::Usage;
use crate::offline::{Offline, Place, peek, with_digest};
use crate::output;

/// Restart a stopped database once, report it, and leave.
///
/// With --dry-run nothing is changed: no file is written, made or removed, so that several
/// restarts of one crash can be compared. Without it the database is opened and closed cleanly,
/// with a checkpoint.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura restart --data perdura-data --dry-run\n  \
    perdura restart --data perdura-data --dry-run --threads 1 --json")]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// The restart method: auto or differential.
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    method: String,
    /// Leave everything as it is.
    #[arg(long)]
    dry_run: bool,
    /// Threads that read image and log; 0: one a core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let method = Method::by_name(&args.method).map_err(Usage)?;
    let (report, digest) = if args.dry_run {
        let (restarted, digest) = Offline::open(&args.place)?.restart(method, args.threads)?;
        (restarted.report, digest)
    } else {
        let mut options = perdura::Options::new(&args.place.data);
        // Checks that there is a database, and does not make one.
        drop(Offline::open(&args.place)?);
        if let Some(anchor) = peek(&args.place.data) {
            options.streams = anchor.streams;
        }
        options.log_dirs.clone_from(&args.place.log_dir);
        options.threads = args.threads;
        let db = Db::open(options)?;
        let (report, digest) = (db.report(), db.digest());
        db.close()?;
        (report, digest)
    };
    let report = with_digest(report, digest);
    if args.json {
        return output::json(&report);
    }
    let digest = report.digest.as_deref().unwrap_or_default();
    output::text(&format!("{report}digest    {digest}\n"))
}
