//! `perdura verify`

use anyhow::{Result, bail};
use clap::Parser;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Epoch, Error, ImageSlot, PartitionId, StreamId};
use perdura_device::AlignedBuf;
use perdura_page::{TxnRecord, decode_txn_record};
use perdura_recovery::image::{ImageFile, PageSummer, folder, page_offset, read_directory};
use perdura_store::decode_group;
use perdura_wal::{Direction, FrameKind, ImageState, RestartRecord, decide_cut};
use serde::Serialize;

use crate::exit::Damaged;
use crate::offline::{Offline, Place, hex};
use crate::output;

/// Check every byte of a stopped database that a restart could need.
///
/// Reads both copies of the anchor, every page of both images against their directories, and the
/// whole log with every record in it, then restarts in memory. Changes nothing. Exit code 3 if
/// something is damaged: each problem is printed with its file and offset.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura verify --data perdura-data\n  \
    perdura verify --data perdura-data --json")]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Findings {
    images: Vec<ImageFindings>,
    streams: Vec<StreamFindings>,
    durable_epoch: Option<u64>,
    rows: Option<u64>,
    digest: Option<String>,
    notes: Vec<String>,
    problems: Vec<Problem>,
}

#[derive(Serialize)]
struct ImageFindings {
    slot: String,
    state: &'static str,
    checkpoint: u64,
    pages: u64,
    bytes: u64,
    proof: Option<String>,
}

#[derive(Serialize)]
struct StreamFindings {
    stream: u8,
    blocks: usize,
    bytes: u64,
    groups: u64,
    records: u64,
    valid_end: u64,
    cut: Option<u64>,
}

#[derive(Serialize)]
struct Problem {
    file: String,
    offset: Option<u64>,
    what: String,
}

impl Findings {
    fn problem(&mut self, file: impl Into<String>, error: &Error) {
        let (file, offset, what) = match error {
            Error::Corrupt(damage) => (
                damage.file.clone(),
                Some(damage.offset),
                format!(
                    "expected {}, found {}. {}",
                    damage.expected, damage.found, damage.consequence
                ),
            ),
            other => (file.into(), None, other.to_string()),
        };
        self.problems.push(Problem { file, offset, what });
    }
}

pub fn run(args: &Args) -> Result<()> {
    let offline = Offline::open(&args.place)?;
    let mut found = Findings::default();
    check_anchor(&offline, &mut found);
    for slot in ImageSlot::ALL {
        check_image(&offline, slot, &mut found);
    }
    check_log(&offline, &mut found);
    if found.problems.is_empty() {
        check_restart(&offline, &mut found);
    }
    if args.json {
        output::json(&found)?;
    } else {
        output::text(&describe(&found))?;
    }
    match found.problems.len() {
        0 => Ok(()),
        count => bail!(Damaged(count)),
    }
}

fn check_anchor(offline: &Offline, found: &mut Findings) {
    for note in &offline.anchor_notes {
        // An update that was interrupted between the copies is no damage.
        if note.starts_with("anchor copy") {
            let (file, what) = (
                "anchor".to_owned(),
                format!("{note}; the other copy is whole"),
            );
            found.problems.push(Problem {
                file,
                offset: None,
                what,
            });
        } else {
            found.notes.push(note.clone());
        }
    }
}

fn check_image(offline: &Offline, slot: ImageSlot, found: &mut Findings) {
    let status = offline.anchor.image(slot);
    let mut image = ImageFindings {
        slot: slot.to_string(),
        state: match status.state {
            ImageState::Empty => "empty",
            ImageState::Building => "building",
            ImageState::Complete => "complete",
        },
        checkpoint: status.k.0,
        pages: 0,
        bytes: 0,
        proof: None,
    };
    let pages_path = format!("{}/pages", folder(slot));
    let files: Result<Vec<ImageFile>, Error> = offline
        .images
        .iter()
        .map(|disk| ImageFile::open(disk.as_ref(), slot, &offline.anchor.uuid))
        .collect();
    let files = files.inspect_err(|error| found.problem(&pages_path, error));
    if let (Ok(files), ImageState::Complete) = (files, status.state) {
        let geometry = offline.geometry();
        let listed = read_directory(offline.data.as_ref(), &offline.anchor, slot, &geometry);
        match listed {
            Err(error) => found.problem(format!("directory of image {slot}"), &error),
            Ok(listed) => {
                image.proof = Some(hex(listed.directory.proof()));
                let summer = PageSummer::new();
                let mut page = AlignedBuf::zeroed(PAGE_BYTES);
                for partition in (0..geometry.partitions).map(PartitionId) {
                    let file = &files[usize::from(partition.0) % files.len()];
                    for (local, entry) in listed.directory.present(partition) {
                        let id = geometry
                            .page_id(partition, local)
                            .expect("checked by the reader");
                        image.pages += 1;
                        image.bytes += to_u64(PAGE_BYTES);
                        let what = match file.read(id, &mut page) {
                            Err(error) => error.to_string(),
                            Ok(got) if got < PAGE_BYTES => {
                                format!("page {id} lies beyond the end of the file")
                            }
                            Ok(_) if !ImageFile::is_listed(id, &page, &entry) => {
                                format!("page {id} is not the one that the directory lists")
                            }
                            Ok(_) if summer.digest(&page) != entry.digest => {
                                format!("the digest of page {id} is not the one listed")
                            }
                            Ok(_) => continue,
                        };
                        let (file, offset) = (pages_path.clone(), Some(page_offset(id)));
                        found.problems.push(Problem { file, offset, what });
                    }
                }
            }
        }
    }
    found.images.push(image);
}

fn check_log(offline: &Offline, found: &mut Findings) {
    let begin = offline.log_begin();
    let mut scans = Vec::new();
    for stream in (0..offline.anchor.streams).map(StreamId) {
        match offline.scan(stream, begin[usize::from(stream.0)]) {
            Ok(scan) => scans.push(scan),
            Err(error) => return found.problem(format!("log stream {stream}"), &error),
        }
    }
    let cut = match decide_cut(&offline.anchor, &scans) {
        Ok(cut) => Some(cut),
        Err(error) => {
            found.problem("log", &error);
            None
        }
    };
    for scan in &mut scans {
        let ends_at = cut.as_ref().map(|cut| cut.cut[usize::from(scan.stream.0)]);
        if let Some(end) = ends_at {
            let before = scan.blocks.len();
            scan.cut_at(end);
            let void = before - scan.blocks.len();
            if void > 0 {
                let stream = scan.stream;
                found.notes.push(format!(
                    "log stream {stream}: {void} void block(s) at its end"
                ));
            }
        }
        found.notes.append(&mut scan.notes);
        let (mut groups, mut records) = (0, 0);
        for unit in scan.units(1 << 20) {
            let read = scan.read_unit(unit, Direction::Forward, |frame, block| {
                let sound = match frame.kind {
                    FrameKind::Group => decode_group(frame.payload).is_some_and(|group| {
                        groups += 1;
                        records += group.records;
                        true
                    }),
                    FrameKind::Record => decode_txn_record(frame.payload).is_some_and(|record| {
                        match record {
                            TxnRecord::Begin { .. } => groups += 1,
                            TxnRecord::Update(_) => records += 1,
                            TxnRecord::Commit { .. } | TxnRecord::Abort { .. } => {}
                        }
                        true
                    }),
                    FrameKind::Restart => RestartRecord::decode(frame.payload).is_some(),
                    FrameKind::BeginCheckpoint | FrameKind::EndCheckpoint | FrameKind::Beacon => {
                        true
                    }
                };
                if sound {
                    return Ok(());
                }
                Err(Error::corrupt(
                    format!("log stream {}", scan.stream),
                    block.pos.0,
                    format!("a frame of kind {:?}", frame.kind),
                    "bytes that do not parse",
                    "The checksums hold, so this is a bug in the writer. Keep a copy.",
                ))
            });
            if let Err(error) = read {
                found.problem(format!("log stream {}", scan.stream), &error);
            }
        }
        found.streams.push(StreamFindings {
            stream: scan.stream.0,
            blocks: scan.blocks.len(),
            bytes: scan.bytes_read,
            groups,
            records,
            valid_end: scan.valid_end.0,
            cut: ends_at.map(|pos| pos.0),
        });
    }
    if let Some(cut) = &cut {
        found.durable_epoch = Some(cut.durable.0);
        check_end(offline, cut.durable, found);
    }
}

/// Every complete image rests on an epoch that the log must have reached.
fn check_end(offline: &Offline, durable: Epoch, found: &mut Findings) {
    for slot in ImageSlot::ALL {
        let image = offline.anchor.image(slot);
        if image.state == ImageState::Complete && image.end_epoch > durable {
            let needs = image.end_epoch;
            found.problems.push(Problem {
                file: "log".into(),
                offset: None,
                what: format!("image {slot} rests on epoch {needs}; the log ends with {durable}"),
            });
        }
    }
}

fn check_restart(offline: &Offline, found: &mut Findings) {
    match offline.restart() {
        Ok((restarted, digest)) => {
            found.rows = Some(restarted.report.rows);
            found.digest = Some(digest);
        }
        Err(error) => match error.downcast_ref::<Error>() {
            Some(core) => found.problem("restart", core),
            None => found.problems.push(Problem {
                file: "restart".into(),
                offset: None,
                what: format!("{error:#}"),
            }),
        },
    }
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
    for stream in &found.streams {
        text += &format!(
            "stream {}  {} blocks, {} transactions, {} records, valid up to {}\n",
            stream.stream, stream.blocks, stream.groups, stream.records, stream.valid_end
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
    if found.problems.is_empty() {
        text += "whole     nothing is damaged\n";
    }
    text
}
