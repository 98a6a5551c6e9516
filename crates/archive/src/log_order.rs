//! The records of a run, sorted back into the order of the log.
//!
//! Only the traditional restore (in `perdura_restore`) needs this order. That restore is the baseline for measuring the
//! sorted one. It reads the records into memory and sorts them by epoch.
//!
//! A run does not store the order that the records of an epoch had in the log. These records commute, so any order
//! gives the right pages. But the order affects how well a buffer of pages works. If each epoch's records were in the
//! order of their pages, the restore would sweep over the database once per epoch. That would help a tiny buffer and
//! hurt a larger one. So this module scatters the records of an epoch, like the commits of independent transactions.

use std::sync::Arc;

use perdura_base::checksum::mix64;
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Error, Result};

use crate::reader::{Run, Scope};
use crate::record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};

/// The maximum size of all records of a run in memory, in bytes. A run with more bytes of records is refused.
pub const LOG_ORDER_BYTES: usize = 1024 * 1024 * 1024;

/// A record without its fragments. The fragments are in [`LogOrder::bytes`]: they begin at index `from`, and their
/// length is `bytes`.
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

    /// Sorts the records by their epochs. Puts the records of one epoch in a scattered order, which is the same in
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
