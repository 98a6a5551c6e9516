//! `perdura verify`

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;
use perdura_device::in_memory;
use perdura_recovery::Schedule;
use perdura_recovery::verify::{Findings, verify};

use crate::exit::Damaged;
use crate::in_memory::Pool;
use crate::offline::{Directories, Offline, described, threads_or_cores};
use crate::output;

/// Check every byte of a stopped database that a restart could need.
///
/// Reads the anchor's copies, compares every page of the two images with the images' directories, and reads every log
/// record. Then restarts in memory. Reads each page of a tree before and after this restart. Each page must be
/// reachable, and must have the keys and the level that the parent page states. Changes nothing. Prints each problem
/// with a file and an offset. Exit code 3 if `serve` and `restart` would refuse the database. Without --strict, exit
/// code 0 if a start can do without the damaged part and loses nothing.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura verify --data perdura-data\n  \
    perdura verify --data perdura-data --strict --json")]
pub struct Args {
    #[command(flatten)]
    directories: Directories,
    #[command(flatten)]
    pool: Pool,
    /// Exit with code 3 for any damage, even if an intact copy can replace the damaged part.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let offline = Offline::open(&args.directories)?;
    let (methods, level) = offline.way("auto", None)?;
    let schedule = Schedule::new(level, threads_or_cores(0));
    let options = offline.overlaid_options(&methods, &schedule, &args.pool)?;
    let dir = || args.directories.data.display().to_string();
    let verified = verify(&options, &described).with_context(dir)?;
    let mut verified = verified.context("there is no database")?;
    verified
        .found
        .notes
        .extend(in_memory_notes(&args.directories));
    if args.json {
        output::json(&verified.found)?;
    } else {
        output::text(&output::shown(&describe(&verified.found)))?;
    }
    match verified.refusal {
        Some(error) => Err(error).with_context(dir),
        None if args.strict && !verified.found.problems.is_empty() => {
            bail!(Damaged(verified.found.problems.len()))
        }
        None => Ok(()),
    }
}

/// Returns warnings about log directories that are on a file system in memory.
fn in_memory_notes(directories: &Directories) -> Vec<String> {
    let logs = match directories.log_dir.as_slice() {
        [] => std::slice::from_ref(&directories.data),
        logs => logs,
    };
    let note = |dir: &PathBuf| {
        let kind = in_memory(dir)?;
        let dir = dir.display();
        Some(format!(
            "{dir} is on {kind}, in memory: the log does not survive a power cut"
        ))
    };
    logs.iter().filter_map(note).collect()
}

fn describe(found: &Findings) -> String {
    let mut text = String::new();
    for image in &found.images {
        text += &format!(
            "image {}   {}, checkpoint {}, {} pages, {} bytes, proof {}\n",
            image.slot,
            image.state,
            image.checkpoint,
            image.pages,
            image.bytes,
            image.proof.as_deref().unwrap_or("-")
        );
    }
    for tree in found.trees.values() {
        text += &format!(
            "tree      {} pages of {} bytes on disk, {} torn, {} never written; restarted: {} leaves, {} above them, {} free\n",
            tree.whole,
            tree.page_bytes,
            tree.torn,
            tree.unwritten,
            tree.leaves,
            tree.inner,
            tree.free
        );
    }
    for stream in &found.streams {
        text += &format!(
            "stream {}  {} blocks, {} transactions, {} records, {} ordered frames, valid up to {}\n",
            stream.stream,
            stream.blocks,
            stream.groups,
            stream.records,
            stream.ordered,
            stream.valid_end
        );
    }
    if let Some(durable) = found.durable_epoch {
        text += &format!("durable   epoch {durable}\n");
    }
    if let (Some(rows), Some(digest)) = (found.rows, &found.digest) {
        text += &format!("restarts  {rows} rows, digest {digest}\n");
    }
    for note in &found.notes {
        text += &format!("note      {note}\n");
    }
    for problem in &found.problems {
        let place = problem
            .offset
            .map_or(String::new(), |offset| format!(" at byte {offset}"));
        text += &format!("DAMAGED   {}{place}: {}\n", problem.file, problem.what);
    }
    text += match (&found.refused, found.problems.is_empty()) {
        (None, true) => "whole     nothing is damaged\n",
        (None, false) => {
            "usable    nothing is lost: a start uses the intact copies and rewrites the rest\n"
        }
        (Some(_), false) => "refused   a start needs the damaged parts\n",
        (Some(_), true) => {
            "refused   nothing is damaged, but a start needs more than this program has\n"
        }
    };
    text
}
