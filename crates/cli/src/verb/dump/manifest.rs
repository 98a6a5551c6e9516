//! `perdura dump manifest`: a manifest of the log archive.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use perdura_archive::Manifest;
use perdura_device::read_input;
use perdura_recovery::Anchor;
use perdura_wal::Archived;
use serde::Serialize;

use crate::output;

/// The maximum length, in bytes, of a manifest that this verb reads.
const MANIFEST_BYTES_MAX: usize = 1 << 30;

/// Show a manifest of the log archive: the list of the archive's files at one time.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The manifest's file.
    file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The content of a manifest.
#[derive(Debug, Serialize)]
struct Shown {
    number: u64,
    oldest: u64,
    database: String,
    writer: &'static str,
    life: String,
    predecessor: String,
    parent: Option<ShownParent>,
    whole: bool,
    /// The first epoch in the runs. `end` is the epoch after the last one.
    begin: u64,
    end: u64,
    /// For each stream, the log position at which the runs end.
    positions: Vec<u64>,
    images: Vec<u64>,
    building: Option<u64>,
    objects: Vec<ShownObject>,
    anchor: Option<ShownAnchor>,
}

/// A description of the database's anchor, of which the manifest has a copy.
#[derive(Debug, Serialize)]
struct ShownAnchor {
    bytes: usize,
    update: u64,
    life: u32,
    streams: u8,
    partitions: u16,
    durable: u64,
    /// True if the log may contain ordered frames.
    has_ordered_frames: bool,
    older_lives: usize,
}

#[derive(Debug, Serialize)]
struct ShownParent {
    uuid: String,
    epoch: u64,
}

#[derive(Debug, Serialize)]
struct ShownObject {
    kind: &'static str,
    path: String,
    bytes: u64,
    crc: String,
}

pub fn run(args: &Args) -> Result<()> {
    let shown = read(&args.file)?;
    if args.json {
        return output::json(&shown);
    }
    output::text(&text(&shown))
}

fn read(file: &Path) -> Result<Shown> {
    let name = file.display().to_string();
    let bytes = read_input(file, MANIFEST_BYTES_MAX).with_context(|| name.clone())?;
    let (manifest, _) = Manifest::read(&name, &bytes)?;
    let objects = manifest.objects.iter().map(|object| ShownObject {
        kind: object.id.kind(),
        path: object.id.path(),
        bytes: object.bytes,
        crc: format!("{:08x}", object.crc),
    });
    let anchor = manifest.anchor()?.map(Anchor::of).transpose()?;
    let anchor = anchor.map(|anchor| ShownAnchor {
        bytes: manifest.anchor.len(),
        update: anchor.seq,
        life: anchor.incarnation.0,
        streams: anchor.streams,
        partitions: anchor.geometry.partitions,
        durable: anchor.vouched.epoch.0,
        has_ordered_frames: anchor.archive() == Archived::Carried,
        older_lives: anchor.chain.len(),
    });
    Ok(Shown {
        anchor,
        number: manifest.number,
        oldest: manifest.oldest,
        database: manifest.uuid.to_string(),
        writer: manifest.writer.role.name(),
        life: format!("{:016x}", manifest.writer.life),
        predecessor: format!("{:08x}", manifest.predecessor),
        parent: manifest.parent.map(|parent| ShownParent {
            uuid: parent.uuid.to_string(),
            epoch: parent.epoch.0,
        }),
        whole: manifest.is_whole,
        begin: manifest.begin.0,
        end: manifest.end.0,
        positions: manifest.positions.iter().map(|pos| pos.0).collect(),
        images: manifest.images.retained.iter().map(|k| k.0).collect(),
        building: manifest.images.building.map(|k| k.0),
        objects: objects.collect(),
    })
}

fn text(shown: &Shown) -> String {
    let mut out = format!(
        "manifest    {}, the oldest kept is {}; predecessor's checksum {}\ndatabase    {}\n\
         writer      {}, life {}\nepochs      {} to {}, the end exclusive\nlog ends    {:?}\nimages      {:?}\n",
        shown.number,
        shown.oldest,
        shown.predecessor,
        shown.database,
        shown.writer,
        shown.life,
        shown.begin,
        shown.end,
        shown.positions,
        shown.images,
    );
    if let Some(k) = shown.building {
        out += &format!("building    image {k}\n");
    }
    if let Some(parent) = &shown.parent {
        out += &format!(
            "parent      {}, up to epoch {}\n",
            parent.uuid, parent.epoch
        );
    }
    if shown.whole {
        out += "whole       the first run began with the first record of an empty database\n";
    }
    if let Some(anchor) = &shown.anchor {
        out += &format!(
            "anchor      update {} of life {} behind {} others, durable to epoch {}; {} stream(s), {} partitions{}\n",
            anchor.update,
            anchor.life,
            anchor.older_lives,
            anchor.durable,
            anchor.streams,
            anchor.partitions,
            match anchor.has_ordered_frames {
                true => ", with key-addressed tables",
                false => "",
            },
        );
    }
    for object in &shown.objects {
        out += &format!(
            "{:<11} {}, {} bytes, checksum {}\n",
            object.kind, object.path, object.bytes, object.crc
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../archive/tests/golden/3/manifest"
    );

    #[test]
    fn a_manifest_is_shown_and_a_damaged_one_is_refused() {
        let shown = read(Path::new(GOLDEN)).expect("a manifest");
        assert_eq!((shown.number, shown.writer), (300, "database"));
        assert_eq!((shown.begin, shown.end), (1000, 1010));
        let kinds: Vec<&str> = shown.objects.iter().map(|object| object.kind).collect();
        assert_eq!(kinds, ["run", "run", "sweep", "cut"]);
        let lines = text(&shown);
        assert!(lines.contains("up to epoch 999"), "{lines}");
        assert!(lines.contains("building    image 7"), "{lines}");
        assert!(lines.contains("2 stream(s), 4 partitions\n"), "{lines}");

        let dir = tempfile::tempdir().expect("a directory");
        let mut bytes = std::fs::read(GOLDEN).expect("a file");
        bytes[70] ^= 1;
        let copy = dir.path().join("copy");
        std::fs::write(&copy, bytes).expect("a file");
        let damaged = read(&copy).expect_err("damage");
        assert!(damaged.to_string().contains("checksum"), "{damaged}");
    }
}
