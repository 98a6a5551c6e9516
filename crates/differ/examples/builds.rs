//! Compares two builds of Perdura: `cargo run --release -p perdura-differ --example builds -- OLD NEW SCRIPTS [GROUP
//! [FIRST]]`. OLD and NEW are `perdura` programs. SCRIPTS is the number of scripts, GROUP the number of scripts
//! between two kills, and FIRST the seed of the first script.

use std::path::PathBuf;

use anyhow::{Context, Result};
use perdura_differ::builds::compare;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &'static str| args.next().context(what);
    let old = PathBuf::from(next("the old program")?);
    let new = PathBuf::from(next("the new program")?);
    let scripts: u64 = next("how many scripts")?.parse()?;
    let group = args.next().map_or(Ok(100), |n| n.parse())?;
    let first = args.next().map_or(Ok(1), |n| n.parse::<u64>())?;
    let report = compare(&old, &new, first..first + scripts, group)?;
    println!(
        "{} scripts, {} commands acknowledged by each build, {} kills of each: {} keys compared, and \
         as many imported from the old build's export; all equal",
        report.scripts, report.commands, report.kills, report.keys
    );
    Ok(())
}
