//! `perdura dump checkpoint`

use anyhow::Result;
use clap::Parser;
use perdura_base::{ImageSlot, PartitionId};
use perdura_recovery::image::{LoadedDirectory, Places, directory_path, folder, read_directory};
use serde::Serialize;

use super::anchor::ShownImage;
use crate::offline::{Directories, Offline, hex};
use crate::output;

/// Show the two checkpoint images: the status, directory and digest of each image.
///
/// For a consistent image, the verb also shows a sequence number for each partition. It belongs to the last transaction
/// on typed tables with changes in the image.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura dump checkpoint --data perdura-data\n  \
    perdura dump checkpoint --data perdura-data --entries --json")]
pub struct Args {
    #[command(flatten)]
    directories: Directories,
    /// Also list every page.
    #[arg(long)]
    entries: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    slot: String,
    file: String,
    #[serde(flatten)]
    status: ShownImage,
    pages: Option<u64>,
    directory_bytes: Option<u64>,
    sidecar_bytes: Option<usize>,
    proof: Option<String>,
    /// For each partition, a sequence number. It belongs to the last transaction on typed tables with changes in the
    /// image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pseq: Option<Vec<u64>>,
    /// The number of an operation. A restart of the tree redoes the later operations. `None`: the image is incomplete,
    /// or is not from the newest checkpoint of a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    redo_start: Option<u64>,
    problem: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    entries: Vec<ShownEntry>,
}

#[derive(Serialize)]
struct ShownEntry {
    page: u32,
    /// The page's offset, in bytes, in the pages file that contains the page.
    offset: u64,
    epoch: u64,
    useq: u32,
    crc32c: String,
    digest: String,
}

pub fn run(args: &Args) -> Result<()> {
    let offline = Offline::open(&args.directories)?;
    let mut damage = None;
    let mut images = Vec::new();
    for slot in ImageSlot::ALL {
        let status = offline.anchor.image(slot);
        let mut shown = Shown {
            slot: slot.to_string(),
            file: format!("{}/pages, {}", folder(slot), directory_path(slot, status.k)),
            status: ShownImage::of(status),
            pages: None,
            directory_bytes: None,
            sidecar_bytes: None,
            proof: None,
            pseq: None,
            redo_start: offline
                .anchor
                .trees()
                .iter()
                .find(|tree| status.is_complete() && tree.k == status.k)
                .map(|tree| tree.rssp.0),
            problem: None,
            entries: Vec::new(),
        };
        if status.is_complete() {
            let listed = read_directory(
                offline.disks.data.as_ref(),
                &offline.anchor,
                slot,
                &offline.geometry(),
            );
            match listed {
                Ok(listed) => fill(&mut shown, &offline, &listed, args.entries),
                Err(error) => {
                    shown.problem = Some(error.to_string());
                    damage = Some(error);
                }
            }
        }
        images.push(shown);
    }
    if args.json {
        output::json(&images)?;
    } else {
        for image in &images {
            output::text(&describe(image))?;
        }
    }
    damage.map_or(Ok(()), |error| Err(error.into()))
}

fn fill(shown: &mut Shown, offline: &Offline, listed: &LoadedDirectory, entries: bool) {
    shown.pages = Some(listed.directory.pages());
    shown.directory_bytes = Some(listed.bytes);
    shown.sidecar_bytes = Some(listed.sidecars.iter().map(Vec::len).sum());
    shown.proof = Some(hex(listed.directory.proof(&offline.geometry())));
    shown.pseq.clone_from(&listed.pseq);
    if !entries {
        return;
    }
    let geometry = offline.geometry();
    let places = Places::of(&offline.anchor);
    for partition in (0..geometry.partitions).map(PartitionId) {
        for (local, entry) in listed.directory.present(partition) {
            shown
                .entries
                .extend(geometry.page_id(partition, local).map(|page| ShownEntry {
                    page: page.0,
                    offset: places.place(page).offset(),
                    epoch: entry.epoch.0,
                    useq: entry.useq.0,
                    crc32c: format!("{:08x}", entry.crc),
                    digest: hex(entry.digest),
                }));
        }
    }
}

fn describe(image: &Shown) -> String {
    let mut text = format!(
        "image {}    {}, checkpoint {}, ended {}\n",
        image.slot, image.status.state, image.status.checkpoint, image.status.ended
    );
    text += &format!("  files    {}\n", image.file);
    if let (Some(pages), Some(bytes), Some(sidecar), Some(proof)) = (
        image.pages,
        image.directory_bytes,
        image.sidecar_bytes,
        &image.proof,
    ) {
        text += &format!(
            "  log      from {:?} to {:?}, rests on epoch {}\n\
             \x20 pages    {pages}\n  listing  {bytes} bytes, {sidecar} of them hash index\n\
             \x20 proof    {proof}\n",
            image.status.begin, image.status.end, image.status.end_epoch
        );
    }
    if let Some(numbers) = &image.pseq {
        text += &format!("  pseq     consistent; by partition {numbers:?}\n");
    }
    if let Some(redo_start) = image.redo_start {
        text += &format!("  tree     redo starts behind number {redo_start}\n");
    }
    if let Some(problem) = &image.problem {
        text += &format!("  damaged  {problem}\n");
    }
    for entry in &image.entries {
        text += &format!(
            "  page {} at byte {}: epoch {}, useq {}, crc32c {}, digest {}\n",
            entry.page, entry.offset, entry.epoch, entry.useq, entry.crc32c, entry.digest
        );
    }
    text
}
