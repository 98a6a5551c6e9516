//! `perdura bench update`

use anyhow::Result;
use clap::Parser;
use perdura_workloads::drive::LogScheme;
use perdura_workloads::update::Rows;
use perdura_workloads::update::bench::UpdateBench;

use super::drive::{self, DriveArgs};
use crate::exit::Usage;
use crate::output;

/// Rows whose values change: each transaction changes some bytes of one row.
///
/// The rows are those of the Redis database 0, put in if the database is empty. Their number and length stay, so that the log
/// grows and the database does not: with --archive, the load of a log archive. Zipf's law makes some rows, anywhere in the
/// table, change more often than others.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura bench update --seconds 5 --workers 2\n  \
    perdura bench update --zipf 0.99 --rate 100000 --archive a --json\n  \
    perdura bench update --data d --archive a --backup --rows 4000000 --txns 1000000")]
pub struct UpdateArgs {
    /// Rows.
    #[arg(long, value_name = "R", default_value_t = 1_000_000)]
    rows: u64,
    /// Bytes of a row with its head and key, 40 to 2048.
    #[arg(long, value_name = "B", default_value_t = 256)]
    slot_bytes: usize,
    /// Bytes that an update changes.
    #[arg(long, value_name = "B", default_value_t = 40)]
    changed_bytes: usize,
    /// Draw rows by Zipf's law with this exponent, 0.01 to 0.999 [default: uniformly].
    #[arg(long, value_name = "THETA")]
    zipf: Option<f64>,
    #[command(flatten)]
    drive: DriveArgs,
}

pub fn run(args: &UpdateArgs) -> Result<()> {
    let rows = Rows {
        count: args.rows,
        slot_bytes: args.slot_bytes,
        changed_bytes: args.changed_bytes,
        zipf: args.zipf,
    };
    rows.check().map_err(Usage)?;
    let options = args.drive.options(None)?;
    let bench = UpdateBench {
        site: args.drive.site(options, LogScheme::Differential),
        rows,
        seed: args.drive.seed,
        drive: args.drive.drive()?,
        digest: args.drive.digest,
    };
    let ended = bench.run()?;
    if args.drive.json {
        output::json(&ended.report)?;
    } else {
        output::text(&drive::text(&ended.report))?;
    }
    if args.drive.crash {
        // Like a power cut: nothing is closed.
        std::process::exit(0);
    }
    bench.site.close(ended.db)
}
