//! `perdura dump run`: a run of the log archive.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use perdura_archive::{Run, Scope};
use perdura_page::RegionDigest;
use serde::Serialize;

use crate::output;

/// Read and check a whole run of the log archive, and show its content.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run's file.
    file: PathBuf,
    /// Also show each record.
    #[arg(long)]
    records: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The content of a run.
#[derive(Debug, Serialize)]
struct Shown {
    database: String,
    begin: u64,
    end: u64,
    level: u8,
    generation: u32,
    bytes: u64,
    blocks: usize,
    records: u64,
    updates: u64,
    pages: u64,
    /// The number of ordered frames. `None`: the run carries none.
    frames: Option<u64>,
    only_listed_moments: bool,
    moments: usize,
    /// The times of the first and the last listed moment, microseconds since 1970.
    wall_us: Option<(u64, u64)>,
    ends: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Vec<ShownRecord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frame_list: Option<Vec<ShownFrame>>,
}

/// An ordered frame.
#[derive(Debug, Serialize)]
struct ShownFrame {
    epoch: u64,
    kind: &'static str,
    /// The lowest partition of the frame, and the frame's number in it.
    partition: u16,
    number: u64,
    bytes: usize,
}

#[derive(Debug, Serialize)]
struct ShownRecord {
    partition: u16,
    local_page: u32,
    epoch: u64,
    tag: u64,
    first_update: u32,
    updates: u64,
    bytes: usize,
}

pub fn run(args: &Args) -> Result<()> {
    let shown = read(&args.file, args.records)?;
    if args.json {
        return output::json(&shown);
    }
    output::text(&text(&shown))
}

fn read(file: &Path, with_records: bool) -> Result<Shown> {
    let run = Arc::new(Run::read(super::open_file(file)?)?);
    run.verify(&RegionDigest::new())?;
    let header = run.header();
    let (records, updates) = run.counts();
    let moments = run.moments().list();
    let wall_us = moments.first().zip(moments.last());
    let list = with_records.then(|| list(&run)).transpose()?;
    let frame_list = with_records.then(|| frames(&run)).transpose()?;
    Ok(Shown {
        database: header.uuid.to_string(),
        begin: header.id.epochs.begin.0,
        end: header.id.epochs.end.0,
        level: header.id.level,
        generation: header.id.generation,
        bytes: run.bytes(),
        blocks: run.index().len(),
        records,
        updates,
        pages: run.pages().count(),
        frames: run.frames().map(|frames| frames.count),
        only_listed_moments: header.only_listed_moments,
        moments: moments.len(),
        wall_us: wall_us.map(|(first, last)| (first.wall_us, last.wall_us)),
        ends: run.ends().iter().map(|end| end.0).collect(),
        list,
        frame_list,
    })
}

/// Returns the ordered frames, sorted by epoch.
fn frames(run: &Arc<Run>) -> Result<Vec<ShownFrame>> {
    let epochs = run.header().id.epochs;
    let mut frames = run.frames_by_epoch(epochs.begin, epochs.last());
    let mut list = Vec::new();
    while frames.next_epoch(|frame| {
        list.push(ShownFrame {
            epoch: frame.epoch.0,
            kind: frame.kind.name(),
            partition: frame.at.partition.0,
            number: frame.at.number,
            bytes: frame.payload.len(),
        });
        Ok(())
    })? {}
    Ok(list)
}

fn list(run: &Arc<Run>) -> Result<Vec<ShownRecord>> {
    let mut cursor = run.cursor(&Scope::All);
    let mut list = Vec::new();
    while cursor.advance()? {
        let record = cursor.record();
        list.push(ShownRecord {
            partition: record.at.partition.0,
            local_page: record.at.local,
            epoch: record.epochs.first.0,
            tag: record.tag.0,
            first_update: record.updates.first.0,
            updates: record.updates.count,
            bytes: record.fragment_bytes().len(),
        });
    }
    Ok(list)
}

fn text(shown: &Shown) -> String {
    let mut out = format!(
        "database    {}\nepochs      {} to {}, the end exclusive\nlevel       {}, generation {}\n\
         bytes       {} in {} blocks\nrecords     {} of {} updates, on {} pages\n",
        shown.database,
        shown.begin,
        shown.end,
        shown.level,
        shown.generation,
        shown.bytes,
        shown.blocks,
        shown.records,
        shown.updates,
        shown.pages,
    );
    if let Some(frames) = shown.frames {
        out += &format!("frames      {frames} of key-addressed tables\n");
    }
    let every = match shown.only_listed_moments {
        true => "only these can be restored",
        false => "each epoch can be restored",
    };
    out += &format!("moments     {} listed; {every}\n", shown.moments);
    if let Some((first, last)) = shown.wall_us {
        out += &format!("wall clock  {first} to {last} us since 1970\n");
    }
    out += &format!("log ends    {:?}\n", shown.ends);
    for record in shown.list.iter().flatten() {
        out += &format!(
            "partition {} page {} epoch {} tag {} update {} ({}): {} bytes\n",
            record.partition,
            record.local_page,
            record.epoch,
            record.tag,
            record.first_update,
            record.updates,
            record.bytes,
        );
    }
    for frame in shown.frame_list.iter().flatten() {
        out += &format!(
            "epoch {} partition {} number {}, {}: {} bytes\n",
            frame.epoch, frame.partition, frame.number, frame.kind, frame.bytes
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use perdura::Db;

    use super::*;

    #[test]
    fn a_run_of_a_database_is_shown_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let archive = dir.path().join("archive");
        let db = Db::builder(dir.path().join("data"))
            .archive(&archive)
            .open();
        let db = db.expect("it opens");
        let put = db.write(|tx| tx.put(db.database(0), b"key", b"value", None));
        put.expect("a put");
        let uuid = db.stats().uuid;
        db.close().expect("a clean end");
        let runs = archive.join(uuid.replace('-', "")).join("runs");
        let mut files: Vec<PathBuf> = std::fs::read_dir(&runs)
            .expect("a folder of runs")
            .map(|entry| entry.expect("a file").path())
            .collect();
        files.sort();
        let shown = read(&files[0], true).expect("a run");
        assert_eq!(
            (shown.database.as_str(), shown.level, shown.begin),
            (uuid.as_str(), 0, 1)
        );
        let list = shown.list.as_ref().expect("records");
        assert!(!list.is_empty());
        assert_eq!(u64::try_from(list.len()).ok(), Some(shown.records));
        let lines = text(&shown);
        assert!(lines.contains("each epoch can be restored"), "{lines}");
        assert_eq!(lines.matches("partition ").count(), list.len());

        let mut bytes = std::fs::read(&files[0]).expect("a file");
        bytes[130] ^= 1;
        std::fs::write(&files[0], bytes).expect("a file");
        assert!(read(&files[0], false).is_err());
    }
}
