//! The records of a run in the order of the log, as before the run was sorted.
//!
//! Only the traditional restore needs this order (`perdura_restore`), as the baseline for measuring the sorted one.
//! It reads the records into memory and sorts them by epoch. A run does not record in which order the records of one
//! epoch were logged. They commute, so any order gives the right pages. But the order matters to a buffer of pages.
//! If each epoch's records were in the order of their pages, the restore would sweep over the database once an epoch.
//! That helps a tiny buffer and hurts a larger one. So the records of an epoch are scattered, like the commits of
//! independent transactions.

use std::sync::Arc;

use perdura_base::checksum::mix64;
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Error, Result};

use crate::reader::{Run, Scope};
use crate::record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};

/// The most bytes of records that a run may have to be put in order.
pub const LOG_ORDER_BYTES: usize = 1024 * 1024 * 1024;

/// A record, and the position of its fragments in `bytes`.
struct Head {
    at: PageAt,
    epochs: EpochSpan,
    tag: CkptEpoch,
    updates: Updates,
    fragments: u32,
    from: u32,
    bytes: u32,
}

/// The records of a run, in memory.
pub struct LogOrder {
    heads: Vec<Head>,
    bytes: Vec<u8>,
}

impl LogOrder {
    /// Reads a whole run.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; [`Error::Usage`] for a run with more than [`LOG_ORDER_BYTES`] of records; errors of the
    /// disk.
    pub fn read(run: &Arc<Run>) -> Result<LogOrder> {
        let (mut heads, mut bytes) = (Vec::new(), Vec::new());
        let mut cursor = run.cursor(&Scope::All);
        while cursor.advance()? {
            let record = cursor.record();
            let fragments = record.fragment_bytes();
            let taken = bytes.len() + fragments.len() + (heads.len() + 1) * size_of::<Head>();
            if taken > LOG_ORDER_BYTES {
                return Err(Error::Usage(format!(
                    "{} has more than {LOG_ORDER_BYTES} bytes of records, too many to sort in \
                     memory. Use the restore in one pass, which needs no memory for them",
                    run.id().name()
                )));
            }
            heads.push(Head {
                at: record.at,
                epochs: record.epochs,
                tag: record.tag,
                updates: record.updates,
                fragments: record.fragment_count(),
                from: to_u32(bytes.len()),
                bytes: to_u32(fragments.len()),
            });
            bytes.extend_from_slice(fragments);
        }
        Ok(LogOrder { heads, bytes })
    }

    /// Puts the records in the order of their epochs. The records of one epoch get a scattered order, the same at
    /// every call. A net record is sorted by its first epoch.
    pub fn sort(&mut self) {
        self.heads.sort_by_cached_key(|head| {
            let page = u64::from(head.at.partition.0) << 32 | u64::from(head.at.local);
            let place = mix64(mix64(page) ^ u64::from(head.updates.first.0));
            (head.epochs.first, place)
        });
    }

    /// Returns the records.
    pub fn records(&self) -> impl Iterator<Item = RunRecord<'_>> {
        self.heads.iter().map(|head| {
            let from = to_usize(u64::from(head.from));
            let bytes = &self.bytes[from..from + to_usize(u64::from(head.bytes))];
            let fragments = FragmentBytes {
                count: head.fragments,
                bytes,
            };
            RunRecord::checked(head.at, head.epochs, head.tag, head.updates, fragments)
        })
    }
}
