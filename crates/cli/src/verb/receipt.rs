//! `perdura receipt`

use std::io::BufRead;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use perdura::{Error, Fate, Judged, Newest, Receipt};
use perdura_recovery::found::find;
use perdura_recovery::log_end::log_end;
use perdura_recovery::{Anchor, Schedule};
use serde::Serialize;

use crate::exit::{Lost, Usage};
use crate::offline::{Directories, Offline};
use crate::output;
use crate::read_disk::ReadDisk;

/// Work with the receipts of writes that CLIENT RECEIPT returns.
#[derive(Debug, Subcommand)]
pub enum Action {
    Check(Check),
}

/// Check whether a data directory has the writes that receipts name.
///
/// Reads the anchor, and also the end of the log if a receipt is from the newest life of a stopped database. Changes
/// nothing. A write is kept, lost, foreign (written to a different database), or undecided. A write may be undecided
/// while the database is running, or if a restart would refuse the database. A life of a database is the time between
/// two restarts. A receipt for `mem` is undecided if the last kept epoch of the receipt's life is not recorded. Exit
/// code 0: all writes are kept. Exit code 3: a write is lost. Exit code 1: otherwise.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura receipt check --data perdura-data 0f3ac81e-4-99213-disk\n  \
    perdura receipt check --data perdura-data --json - < receipts")]
pub struct Check {
    #[command(flatten)]
    directories: Directories,
    /// Receipts. `-` reads them from stdin, one on each line.
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked {
    uuid: String,
    /// The number of the newest life of the database.
    incarnation: u32,
    /// The epoch up to which the newest life is kept. `null`: undecided.
    durable_epoch: Option<u64>,
    kept: usize,
    lost: usize,
    other: usize,
    undecided: usize,
    receipts: Vec<Shown>,
}

#[derive(Serialize)]
struct Shown {
    receipt: String,
    fate: &'static str,
    why: String,
}

pub fn run(action: &Action) -> Result<()> {
    match action {
        Action::Check(args) => check(args),
    }
}

fn check(args: &Check) -> Result<()> {
    let receipts = read(&args.receipts)?;
    let (anchor, newest) = look(&args.directories)?;
    let judged = receipts.iter().map(|it| (it, it.judge(&anchor, &newest)));
    let judged: Vec<(&Receipt, Judged)> = judged.collect();
    let count = |fate| judged.iter().filter(|(_, it)| it.fate == fate).count();
    let [kept, lost, other, undecided] = Fate::ALL.map(count);
    let told = kept + lost + other + undecided;
    assert_eq!(told, judged.len(), "each receipt has one fate");
    if args.json {
        output::json(&Checked {
            uuid: anchor.uuid.to_string(),
            incarnation: anchor.incarnation.0,
            durable_epoch: match newest {
                Newest::Ends(epoch) => Some(epoch.0),
                Newest::Open | Newest::Refused(_) => None,
            },
            kept,
            lost,
            other,
            undecided,
            receipts: judged
                .iter()
                .map(|(it, judged)| shown(it, judged))
                .collect(),
        })?;
    } else {
        let line = |(receipt, judged): &(&Receipt, Judged)| {
            format!("{:<9}  {receipt}  {}\n", judged.fate.name(), judged.why)
        };
        let lines: String = judged.iter().map(line).collect();
        output::text(&output::shown(&lines))?;
    }
    match (lost, undecided + other) {
        (0, 0) => Ok(()),
        (0, open) => bail!("{open} of {} receipt(s) could not be decided", judged.len()),
        (lost, _) => bail!(Lost(lost)),
    }
}

fn shown(receipt: &Receipt, judged: &Judged) -> Shown {
    Shown {
        receipt: receipt.to_string(),
        fate: judged.fate.name(),
        why: judged.why.clone(),
    }
}

/// Returns the receipts from the command line. For `-`, reads receipts from stdin.
fn read(words: &[String]) -> Result<Vec<Receipt>> {
    let mut receipts = Vec::new();
    for word in words {
        if word != "-" {
            receipts.push(word.parse().map_err(|error| usage("", error))?);
            continue;
        }
        for (number, line) in (1..).zip(std::io::stdin().lock().lines()) {
            let line = line?;
            let token = line.trim();
            if !token.is_empty() {
                let place = format!("stdin:{number}: ");
                receipts.push(token.parse().map_err(|error| usage(&place, error))?);
            }
        }
    }
    Ok(receipts)
}

fn usage(place: &str, error: perdura::NoReceipt) -> Usage {
    Usage(format!("{place}{error}"))
}

/// Returns the anchor, and the last epoch that a restart would keep, if it can be found.
fn look(directories: &Directories) -> Result<(Anchor, Newest)> {
    let offline = match Offline::open(directories) {
        Ok(offline) => offline,
        Err(error) if is_locked(&error) => {
            let data = ReadDisk::open(&directories.data);
            return match find(&data, &[])? {
                Some((_, anchor, _)) => Ok((anchor, Newest::Open)),
                None => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    let (methods, level) = offline.way("auto", None)?;
    let options = offline.restart_options(&methods, &Schedule::new(level, 1));
    let newest = match log_end(&options, &offline.anchor) {
        Ok(epoch) => Newest::Ends(epoch),
        Err(error) => Newest::Refused(error.to_string()),
    };
    Ok((offline.anchor, newest))
}

fn is_locked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Locked { .. }))
}
