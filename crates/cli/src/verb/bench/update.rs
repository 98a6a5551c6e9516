//! `perdura bench update`

use anyhow::Result;
use clap::{Args, Parser, ValueEnum};
use perdura_steal::KeyedOptions;
use perdura_wal::Scheme;
use perdura_workloads::drive::LogScheme;
use perdura_workloads::update::Rows;
use perdura_workloads::update::bench::UpdateBench;
use perdura_workloads::update::keyed::KeyedBench;

use super::drive::DriveArgs;
use crate::exit::Usage;

/// Change values of rows: each transaction changes some bytes of one row.
///
/// The rows are keys of the Redis database 0. The rows are created if the database is empty. The number and length of
/// the rows stay constant, so the log grows and the database does not. Use --archive to measure a log archive under
/// this load. With --zipf, some rows, scattered over the table, change more often than the rest. With --scheme, the
/// rows are in a tree of pages on disk, and a transaction changes several rows.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura bench update --seconds 5 --workers 2\n  \
    perdura bench update --zipf 0.99 --rate 100000 --archive a --json\n  \
    perdura bench update --data d --archive a --backup --rows 4000000 --txns 1000000\n  \
    perdura bench update --scheme logical --data d --rows 1000000 --pool-pages 2000 --checkpoint-every 20000 --txns 50000 --crash")]
pub struct UpdateArgs {
    /// Number of rows.
    #[arg(long, value_name = "R", default_value_t = 1_000_000)]
    rows: u64,
    /// Size of a row in bytes, including its head and key: 40 to 2048.
    #[arg(long, value_name = "B", default_value_t = 256)]
    slot_bytes: usize,
    /// Bytes that an update changes.
    #[arg(long, value_name = "B", default_value_t = 40)]
    changed_bytes: usize,
    /// Choose the rows to change by Zipf's law with this exponent, 0.01 to 0.999 [default: uniformly].
    #[arg(long, value_name = "THETA")]
    zipf: Option<f64>,
    #[command(flatten)]
    tree: TreeArgs,
    #[command(flatten)]
    drive: DriveArgs,
}

/// The form of a tree's log.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SchemeArg {
    /// Log records name keys. Notes in the log name the pages that became dirty. Six methods can restart such a
    /// database.
    Logical,
    /// Log records name pages. Notes in the log name the pages that were written to disk.
    Physiological,
}

/// The options that only a database with a tree has.
#[derive(Debug, Args)]
struct TreeArgs {
    /// Keep the rows in a tree on disk, which may be larger than memory, and log its changes under this scheme.
    #[arg(long, value_enum)]
    scheme: Option<SchemeArg>,
    /// Pages of the tree in memory [default: 16384].
    #[arg(long, value_name = "N", requires = "scheme")]
    pool_pages: Option<usize>,
    /// Bytes of a page of a new tree: a power of two, 512 to 32768 [default: 8192].
    #[arg(long, value_name = "B", requires = "scheme")]
    page_bytes: Option<usize>,
    /// The percentage of the pages in memory that may be dirty before they are written, 1 to 90 [default: 25].
    #[arg(long, value_name = "P", requires = "scheme")]
    dirty_percent: Option<usize>,
    /// Number of rows that a transaction changes [default: 10].
    #[arg(long, value_name = "U", requires = "scheme")]
    updates_per_txn: Option<usize>,
    /// Begin a checkpoint after every N transactions [default: no checkpoints].
    #[arg(long, value_name = "N", requires = "scheme")]
    checkpoint_every: Option<u64>,
}

pub fn run(args: &UpdateArgs) -> Result<()> {
    let rows = Rows {
        count: args.rows,
        slot_bytes: args.slot_bytes,
        changed_bytes: args.changed_bytes,
        zipf: args.zipf,
    };
    rows.check().map_err(Usage)?;
    if let Some(scheme) = args.tree.scheme {
        return run_keyed(args, rows, scheme);
    }
    let options = args.drive.options(None)?;
    let bench = UpdateBench {
        site: args.drive.site(options, LogScheme::Differential),
        rows,
        seed: args.drive.seed,
        drive: args.drive.drive()?,
        digest: args.drive.digest,
    };
    let ended = bench.run()?;
    args.drive.end(&ended.report)?;
    bench.site.close(ended.db)
}

/// The only settings that apply to a database with a tree.
const OF_TREE: [&str; 3] = ["log-dir", "streams", "segment-size"];

fn run_keyed(args: &UpdateArgs, rows: Rows, scheme: SchemeArg) -> Result<()> {
    if let Some(name) = args.drive.given_beside(&OF_TREE) {
        let why = format!(
            "--{name} cannot be given with --scheme: a database with a tree has no such setting"
        );
        return Err(Usage(why).into());
    }
    let engine = args.drive.options(None)?;
    let scheme = match scheme {
        SchemeArg::Logical => Scheme::Logical,
        SchemeArg::Physiological => Scheme::Physiological,
    };
    let tree = &args.tree;
    let usual = KeyedOptions::new(scheme, tree.pool_pages.unwrap_or(16_384));
    let bench = KeyedBench {
        options: KeyedOptions {
            page_bytes: tree.page_bytes.unwrap_or(usual.page_bytes),
            dirty_percent: tree.dirty_percent.unwrap_or(usual.dirty_percent),
            segment_bytes: engine.segment_bytes,
            ..usual
        },
        data: args.drive.data().map(Into::into),
        log_dirs: engine.log_dirs,
        streams: engine.streams,
        disk: args.drive.disk(),
        rows,
        updates_per_txn: tree.updates_per_txn.unwrap_or(10),
        checkpoint_every: tree.checkpoint_every,
        seed: args.drive.seed,
        drive: args.drive.drive()?,
        digest: args.drive.digest,
    };
    let ended = bench.run()?;
    args.drive.end(&ended.report)?;
    ended.close()
}
