//! Bit flips in the blocks of one part of the log. The part decides how the database can be salvaged.

use std::cell::Cell;
use std::sync::Arc;

use perdura_base::num::to_usize;
use perdura_base::{Epoch, Pos, StreamId};
use perdura_recovery::image::directory_path;
use perdura_recovery::read_anchor;
use perdura_wal::block::HEADER_BYTES;
use perdura_wal::segment::{SEGMENT_HEADER_BYTES, SegmentId};
use perdura_wal::{BlockRef, Check as Bodies, scan_stream};

use super::{Age, FOLDERS, Subject, Sweep, Swept, disk_of};
use crate::report::Check;

/// The damaged part of the log in [`flips`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// The blocks between the begin and the end of a checkpoint. The database has only this checkpoint's image. The log
    /// must reach back to the database's creation.
    OfTheWindow,
    /// The blocks of a life that has ended. They follow the end of the older image's checkpoint. The newest image is
    /// unusable, because its directory is deleted.
    OfAnEndedLife,
}

/// Flips a bit in each of these blocks, one block at a time. Every damaged database must be refused. A salvage must
/// recover everything before the damaged block.
///
/// # Errors
/// Fails if the small database cannot be made or lacks blocks of this kind.
pub fn flips(seed: u64, streams: u8, age: Age, blocks: Blocks) -> Check<Swept> {
    let subject = Subject::new(seed, streams, age)?;
    let disk = disk_of(&subject.now, &FOLDERS)?;
    let anchor = read_anchor(&disk).map_err(|error| error.to_string())?;
    let anchor = anchor.ok_or("no anchor")?;
    let slot = anchor.newest_image().ok_or("no image")?;
    let mut files = subject.now.clone();
    let (from, to, life, behind) = match blocks {
        Blocks::OfTheWindow => {
            let begins = |stream| {
                let first = SegmentId {
                    stream: StreamId(stream),
                    start: Pos(0),
                    incarnation: anchor.incarnation,
                };
                files.contains_key(&first.path())
            };
            // Without the log's beginning, a salvage would have only the image, which holds parts of transactions.
            if !(0..anchor.streams).all(begins) {
                return Err("the log's beginning is gone".into());
            }
            let image = anchor.image(slot);
            (
                &image.cover.begin,
                &image.cover.end,
                anchor.incarnation,
                Epoch(0),
            )
        }
        Blocks::OfAnEndedLife => {
            let link = anchor.chain.first().ok_or("no life has ended")?;
            if link.start.contains(&Pos(0)) {
                return Err("the first life's log is still needed".into());
            }
            if !anchor.image(slot.other()).is_complete() {
                return Err("there is no older image".into());
            }
            files.remove(&directory_path(slot, anchor.image(slot).k));
            let older = anchor.image(slot.other());
            (
                &older.cover.end,
                &link.cut,
                link.incarnation,
                older.cover.end_epoch,
            )
        }
    };
    let mut sweep = Sweep {
        subject: &subject,
        out: Swept::default(),
        salvaged: Cell::new(0),
    };
    for stream in (0..anchor.streams).map(StreamId) {
        let s = usize::from(stream.0);
        let scan = scan_stream(&disk, &anchor.lives(), stream, from[s], Bodies::All);
        let scan = scan.map_err(|error| error.to_string())?;
        let within = |block: &&BlockRef| {
            block.incarnation == life && block.pos < to[s] && block.epoch > behind
        };
        for block in scan.blocks.iter().filter(within) {
            let start = anchor.lives().start_of(life, stream).unwrap_or_default();
            let segment = SegmentId {
                stream,
                start: anchor.segments.span_at(start, block.pos).start,
                incarnation: life,
            };
            let place = SEGMENT_HEADER_BYTES + (block.pos.0 - segment.start.0);
            let (path, mut files) = (segment.path(), files.clone());
            let bytes = files.get_mut(&path).ok_or("a segment is missing")?;
            Arc::make_mut(bytes)[to_usize(place) + HEADER_BYTES] ^= 0x10;
            sweep.case(&format!("{path} flipped at {place}"), &files, &FOLDERS);
        }
    }
    sweep.out.salvaged = sweep.salvaged.get();
    sweep.out.check();
    Ok(sweep.out)
}
