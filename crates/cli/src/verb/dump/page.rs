//! `perdura dump page`

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use perdura::Error;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::{ImageSlot, PageId, Pid};
use perdura_device::AlignedBuf;
use perdura_page::layout::{self, PageHeader, PageKind};
use perdura_page::{Place as RowPlace, Row};
use perdura_recovery::image::{ImageFile, Places, read_directory};
use perdura_recovery::sections::tree::RowPages;
use serde::Serialize;

use super::tree_page;
use crate::exit::Usage;
use crate::offline::{Directories, Offline, hex};
use crate::output::{self, bytes};

/// Show one page as it is on disk: a page of the tree if the database has a tree, otherwise a page of an image.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura dump page 128 --data perdura-data\n  \
    perdura dump page 128 --data perdura-data --image B --json")]
pub struct Args {
    /// The page's number. `perdura dump checkpoint --entries` lists them.
    #[arg(value_name = "PAGE")]
    page: u32,
    #[command(flatten)]
    directories: Directories,
    /// The image [default: the newest complete one].
    #[arg(long, value_enum, ignore_case = true)]
    image: Option<Slot>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Slot {
    A,
    B,
}

#[derive(Serialize)]
struct Shown {
    page: u32,
    image: String,
    offset: u64,
    partition: u16,
    listed_crc32c: String,
    listed_useq: u32,
    digest: String,
    is_whole: bool,
    epoch: u64,
    useq: u32,
    kind: &'static str,
    table: u32,
    slot_bytes: Option<usize>,
    next: Option<u32>,
    used: Option<u32>,
    rows: Vec<ShownRow>,
}

#[derive(Serialize)]
struct ShownRow {
    slot: usize,
    kind: &'static str,
    key: String,
    key_bytes: usize,
    value: Option<String>,
    value_bytes: usize,
    first_page: Option<u32>,
    expiry_ms: Option<u64>,
}

/// The maximum number of bytes that the verb shows of each key or value.
const SHOWN_BYTES: usize = 64;

pub fn run(args: &Args) -> Result<()> {
    let offline = Offline::open(&args.directories)?;
    match (offline.anchor.row_pages(), args.image) {
        (RowPages::Images, _) => show(args, &offline),
        (RowPages::Tree(tree), None) => {
            tree_page::show(&offline, tree.page_bytes, Pid(args.page), args.json)
        }
        (RowPages::Tree(_), Some(_)) => bail!(Usage(
            "--image: the pages of this database are in tree/pages, not in images".into()
        )),
    }
}

/// Shows a page of an image.
fn show(args: &Args, offline: &Offline) -> Result<()> {
    let slot = slot_of(args.image, offline)?;
    let id = PageId(args.page);
    let shown = look(offline, slot, id)?;
    if args.json {
        output::json(&shown)?;
    } else {
        output::text(&describe(&shown))?;
    }
    if shown.is_whole {
        return Ok(());
    }
    bail!(Error::corrupt(
        format!("image {slot}, page {id}"),
        shown.offset,
        "the page that the directory lists",
        "another checksum",
        "A restart takes the page from the other image and the log.",
    ))
}

/// Reads a page of an image, and its entry in the image's directory.
///
/// Fails if the image is not complete, or does not have the page.
fn look(offline: &Offline, slot: ImageSlot, id: PageId) -> Result<Shown> {
    let status = offline.anchor.image(slot);
    if !status.is_complete() {
        bail!("image {slot} is not complete");
    }
    let geometry = offline.geometry();
    let data = offline.disks.data.as_ref();
    let listed = read_directory(data, &offline.anchor, slot, &geometry)?;
    let partition = geometry.partition_of_page(id);
    let entry = listed.directory.get(partition, geometry.local_index(id));
    if !entry.is_present() {
        bail!(Usage(format!("page {id} is not in image {slot}")));
    }
    let file = ImageFile::open(
        offline.disks.of_partition(partition).as_ref(),
        slot,
        &offline.anchor.uuid,
    )?;
    let mut page = AlignedBuf::zeroed(PAGE_BYTES);
    let place = Places::of(&offline.anchor).place(id);
    let got = file.read(place, &mut page)?;
    let whole = got == PAGE_BYTES && ImageFile::is_listed(id, &page, &entry);
    let mut shown = Shown {
        page: id.0,
        image: slot.to_string(),
        offset: place.offset(),
        partition: partition.0,
        listed_crc32c: format!("{:08x}", entry.crc),
        listed_useq: entry.useq.0,
        digest: hex(entry.digest),
        is_whole: whole,
        epoch: layout::epoch(&page).0,
        useq: layout::useq(&page).0,
        kind: "damaged",
        table: layout::table(&page).0,
        slot_bytes: None,
        next: None,
        used: None,
        rows: Vec::new(),
    };
    if let Some(header) = PageHeader::decode(&page) {
        decode(&mut shown, &header, &page);
    }
    Ok(shown)
}

/// Returns the image that the flag names. Without the flag, returns the newest complete image.
fn slot_of(asked: Option<Slot>, offline: &Offline) -> Result<ImageSlot> {
    match asked {
        Some(Slot::A) => Ok(ImageSlot::A),
        Some(Slot::B) => Ok(ImageSlot::B),
        None => {
            let newest = offline.anchor.newest_image();
            newest.context("there is no complete image yet")
        }
    }
}

fn decode(shown: &mut Shown, header: &PageHeader, page: &[u8]) {
    shown.kind = match header.kind {
        PageKind::Free => "free",
        PageKind::Slotted => "slotted",
        PageKind::Large => "large",
    };
    if header.kind == PageKind::Large {
        shown.next = layout::next(page).map(|next| next.0);
        shown.used = Some(header.used);
    }
    if header.kind != PageKind::Slotted {
        return;
    }
    let class = header.class;
    shown.slot_bytes = Some(class.bytes());
    for slot in layout::taken(page, class).filter(|slot| *slot < class.slots()) {
        let Some(row) = Row::decode(layout::slot(page, class, slot)) else {
            shown.kind = "damaged";
            continue;
        };
        let (key, value, first_page) = match row.place {
            RowPlace::Inline { key, value } => (Some(key), Some(value), None),
            RowPlace::Large { first, key, .. } => (key, None, Some(first.0)),
        };
        shown.rows.push(ShownRow {
            slot,
            kind: row.kind.name(),
            key: key.map_or("(in the chain)".into(), |key| bytes(key, SHOWN_BYTES)),
            key_bytes: row.key_bytes,
            value: value.map(|value| bytes(value, SHOWN_BYTES)),
            value_bytes: row.value_bytes,
            first_page,
            expiry_ms: row.expiry_ms,
        });
    }
}

fn describe(page: &Shown) -> String {
    let mut text = format!(
        "page {} of image {}, at byte {}, partition {}: {}\n\
         kind {}, table {}, epoch {}, useq {} (listed {}), crc32c {}, digest {}\n",
        page.page,
        page.image,
        page.offset,
        page.partition,
        if page.is_whole { "whole" } else { "DAMAGED" },
        page.kind,
        page.table,
        page.epoch,
        page.useq,
        page.listed_useq,
        page.listed_crc32c,
        page.digest
    );
    if let Some(slot_bytes) = page.slot_bytes {
        text += &format!("slots of {slot_bytes} bytes, {} taken\n", page.rows.len());
    }
    if let Some(used) = page.used {
        let next = page.next.map_or("none".into(), |next| next.to_string());
        text += &format!("{used} bytes of a value, next page {next}\n");
    }
    for row in &page.rows {
        let kind = match row.kind {
            "string" => String::new(),
            other => format!("{other} "),
        };
        text += &format!("  {:>4}  {kind}{} = ", row.slot, row.key);
        match (&row.value, row.first_page) {
            (Some(value), _) => text += value,
            (None, first) => {
                let first = first.unwrap_or_default();
                text += &format!("({} bytes from page {first} on)", row.value_bytes);
            }
        }
        if let Some(expiry) = row.expiry_ms {
            text += &format!("  expires {expiry}");
        }
        text.push('\n');
    }
    text
}
