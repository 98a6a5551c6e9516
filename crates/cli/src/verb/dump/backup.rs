//! `perdura dump backup`: a backup in the log archive.

use std::path::{Path, PathBuf};

use anyhow::Result;
use perdura_archive::backup::{Backup, BackupKind};
use perdura_base::PartitionId;
use perdura_base::num::to_u64;
use perdura_page::RegionDigest;
use serde::Serialize;

use crate::output;

/// Read and check a whole backup of the log archive, and show its content.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The backup's file.
    file: PathBuf,
    /// Also show each page.
    #[arg(long)]
    pages: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The content of a backup.
#[derive(Debug, Serialize)]
struct Shown {
    database: String,
    kind: &'static str,
    /// The image's checkpoint epoch if the backup is a copy of an image, called a sweep. `None`: the backup has the
    /// state at the end of one epoch, called a cut.
    checkpoint: Option<u64>,
    /// The backup that an increment continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    continues: Option<String>,
    /// The pages of key-addressed tables at an increment's cut, those in other files included.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_pages: Option<u64>,
    consistent: bool,
    begin: u64,
    end: u64,
    wall_us: u64,
    bytes: u64,
    pages: u64,
    partitions: u16,
    chunk_pages: u16,
    streams: u8,
    /// The XOR of the digests of all pages. Each digest depends on the page's id.
    proof: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Vec<ShownPage>>,
}

#[derive(Debug, Serialize)]
struct ShownPage {
    page: u64,
    partition: u16,
    local_page: u32,
    update: u32,
    crc: String,
    digest: String,
}

pub fn run(args: &Args) -> Result<()> {
    let shown = read(&args.file, args.pages)?;
    if args.json {
        return output::json(&shown);
    }
    output::text(&text(&shown))
}

fn read(file: &Path, with_pages: bool) -> Result<Shown> {
    let backup = Backup::read(super::open_file(file)?)?;
    let region = RegionDigest::new();
    backup.verify(|page| region.of_page(page))?;
    let header = backup.header();
    let partitions = || (0..header.chunks.partitions).map(PartitionId);
    let list = match with_pages {
        true => Some(list(&backup)?),
        false => None,
    };
    let proof = partitions().fold(0, |sum, partition| sum ^ backup.proof(partition));
    Ok(Shown {
        database: header.uuid.to_string(),
        kind: match (header.kind, header.continues()) {
            (BackupKind::Sweep, None) => "sweep",
            (BackupKind::Sweep, Some(_)) => "increment",
            (BackupKind::Cut, _) => "cut",
        },
        continues: header.continues().map(|base| base.name()),
        used_pages: used_pages(&backup)?,
        checkpoint: (header.kind == BackupKind::Sweep).then_some(header.id.k.0),
        consistent: header.consistent,
        begin: header.begin.0,
        end: header.id.end.0,
        wall_us: header.wall_us,
        bytes: backup.bytes(),
        pages: backup.pages(),
        partitions: header.chunks.partitions,
        chunk_pages: header.chunks.pages,
        streams: header.streams,
        proof: format!("{proof:016x}"),
        list,
    })
}

fn used_pages(backup: &Backup) -> Result<Option<u64>> {
    if backup.header().continues().is_none() {
        return Ok(None);
    }
    let mut pages = 0;
    for partition in (0..backup.header().chunks.partitions).map(PartitionId) {
        pages += to_u64(backup.used(partition)?.1.len());
    }
    Ok(Some(pages))
}

fn list(backup: &Backup) -> Result<Vec<ShownPage>> {
    let chunks = backup.header().chunks;
    let mut list = Vec::new();
    for partition in (0..chunks.partitions).map(PartitionId) {
        for page in backup.section(partition)?.pages {
            let id = chunks.page_id(partition, page.local);
            list.push(ShownPage {
                page: u64::from(id.expect("the section was checked").0),
                partition: partition.0,
                local_page: page.local,
                update: page.useq.0,
                crc: format!("{:08x}", page.crc),
                digest: format!("{:016x}", page.digest),
            });
        }
    }
    Ok(list)
}

fn text(shown: &Shown) -> String {
    let what = match shown.checkpoint {
        Some(k) if shown.kind == "increment" => format!("increment of checkpoint {k}"),
        Some(k) if shown.consistent => format!("sweep of checkpoint {k}, consistent"),
        Some(k) => format!("sweep of checkpoint {k}"),
        None => "cut: the state of an epoch".to_owned(),
    };
    let mut out = format!(
        "database    {}\nkind        {what}\n\
         epochs      reflects none after {}; those not reflected begin with {}\n\
         wall clock  {} us since 1970\nbytes       {} of {} pages\n\
         geometry    {} partitions, {} pages in a chunk, {} log stream(s)\nproof       {}\n",
        shown.database,
        shown.end,
        shown.begin,
        shown.wall_us,
        shown.bytes,
        shown.pages,
        shown.partitions,
        shown.chunk_pages,
        shown.streams,
        shown.proof,
    );
    if let (Some(base), Some(used)) = (&shown.continues, shown.used_pages) {
        out += &format!("continues   {base}; its cut has {used} pages of key-addressed tables\n");
    }
    for page in shown.list.iter().flatten() {
        out += &format!(
            "page {} partition {} local {} update {} crc {} digest {}\n",
            page.page, page.partition, page.local_page, page.update, page.crc, page.digest
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../archive/tests/golden/3/backup-"
    );

    #[test]
    fn backups_of_each_kind_are_shown_and_a_damaged_one_is_refused() {
        let sweep = read(Path::new(&format!("{GOLDEN}sweep")), true).expect("a backup");
        assert_eq!(
            (sweep.kind, sweep.checkpoint, sweep.pages),
            ("sweep", Some(6), 1)
        );
        let lines = text(&sweep);
        assert!(lines.contains("sweep of checkpoint 6\n"), "{lines}");
        assert_eq!(lines.matches("\npage ").count(), 1, "{lines}");
        let consistent = read(Path::new(&format!("{GOLDEN}consistent")), false);
        assert!(text(&consistent.expect("a backup")).contains("consistent"));
        let cut = format!("{GOLDEN}cut");
        let shown = read(Path::new(&cut), false).expect("a backup");
        assert_eq!((shown.begin, shown.end), (1003, 1002));
        assert!(text(&shown).contains("the state of an epoch"));

        let dir = tempfile::tempdir().expect("a directory");
        let mut bytes = std::fs::read(&cut).expect("a file");
        bytes[5000] ^= 1;
        let copy = dir.path().join("copy");
        std::fs::write(&copy, bytes).expect("a file");
        let damaged = read(&copy, false).expect_err("damage");
        assert!(damaged.to_string().contains("checksum"), "{damaged}");
    }
}
