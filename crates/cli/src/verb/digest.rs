//! `perdura digest`

use anyhow::Result;
use clap::Parser;
use perdura_recovery::undrained;
use serde::Serialize;

use crate::in_memory::Pool;
use crate::offline::{Directories, Offline};
use crate::output;

/// Print the logical digest of a stopped database.
///
/// The digest is a sum over the table, key, type, expiry and content of every key. The order of the keys does not
/// matter. Equal data gives an equal digest, whatever the data's history and the recovery method. For a tree, the sum
/// is over the table, key and value of every row. Changes nothing.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura digest --data perdura-data")]
pub struct Args {
    #[command(flatten)]
    directories: Directories,
    #[command(flatten)]
    pool: Pool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Digest {
    digest: String,
    rows: u64,
    durable_epoch: u64,
}

pub fn run(args: &Args) -> Result<()> {
    let offline = Offline::open(&args.directories)?;
    let (restarted, digest) = offline.restart(&args.pool)?;
    let report = restarted.report;
    if let Some(text) = undrained(&offline.anchor, None) {
        output::note(&format!("note: {text}"));
    }
    if args.json {
        return output::json(&Digest {
            digest,
            rows: report.rows,
            durable_epoch: report.durable_epoch,
        });
    }
    output::text(&format!("{digest}\n"))
}
