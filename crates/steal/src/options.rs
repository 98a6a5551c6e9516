//! The options for creating and for opening a database.

use perdura_base::checksum::mix64;
use perdura_base::limits::{IN_FLIGHT_BYTES_MAX, PARTITIONS_MAX, SECTOR_BYTES, STREAMS_MAX};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, Result, StreamId, TxnId};
use perdura_page::SlotClass;
use perdura_recovery::IMAGE_DISKS_MAX;
use perdura_recovery::{Level, Schedule};
use perdura_wal::block::BLOCK_BYTES_MAX;
use perdura_wal::{Mode, Scheme, Wal};

use crate::env::StealEnv;

/// The bytes that an update's record covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// The whole slot, as in the literature. A delete clears the slot.
    Full,
    /// Only the bytes that differ. A delete only flips a bit.
    Sparse,
}

/// The rule that chooses a transaction's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The stream with the fewest bytes waiting to be written.
    Idlest,
    /// The stream given by a hash of the transaction's number. So the choice is the same in every run.
    Scattered,
}

impl Route {
    /// Returns the stream of a new transaction.
    pub(crate) fn stream(self, wal: &Wal, txn: TxnId) -> StreamId {
        match self {
            Route::Idlest => wal.idlest(),
            Route::Scattered => {
                let scattered = mix64(txn.0 & 0xffff_ffff) % u64::from(wal.streams());
                StreamId(u8::try_from(scattered).expect("at most 16 streams"))
            }
        }
    }
}

/// Settings. For an existing database, the scheme, the partitions, and the sizes of chunks and segments come from its
/// anchor instead.
#[derive(Debug, Clone)]
pub struct StealOptions {
    /// The logging scheme of a new database. [`Scheme::Differential`] is not allowed.
    pub scheme: Scheme,
    /// The bytes that an update's record covers.
    pub records: Records,
    /// The maximum length of a row, in bytes. The slots have the smallest size class with room for such a row.
    pub slot_bytes: usize,
    /// The number of partitions of a new database: a power of two.
    pub partitions: u16,
    /// The number of pages in a chunk of a new database.
    pub chunk_pages: u16,
    /// The size of a new database's log segments, in bytes.
    pub segment_bytes: u64,
    /// The maximum size of a log block, in bytes.
    pub block_bytes_max: usize,
    /// The maximum number of log bytes that may wait in a stream. While more bytes wait, changes are refused.
    pub queue_bytes_max: u64,
    /// The rule that chooses a transaction's stream.
    pub route: Route,
    /// Memory for pages, bytes.
    pub memory_limit: u64,
    /// The schedule of a restart.
    pub schedule: Schedule,
    /// The name of the restart method, or "auto".
    pub method: &'static str,
}

/// Fails if the setting for the longest log block is not allowed.
pub(crate) fn check_log_sizes(block_bytes_max: usize) -> Result<()> {
    // A flusher takes whole blocks only, in total up to half of the bytes that may be in flight. It would never take a
    // longer block.
    let longest = BLOCK_BYTES_MAX.min(to_usize(IN_FLIGHT_BYTES_MAX / 2));
    let in_range = (SECTOR_BYTES..=longest).contains(&block_bytes_max);
    if !in_range || !block_bytes_max.is_multiple_of(SECTOR_BYTES) {
        return Err(Error::Usage(format!(
            "the longest block is {block_bytes_max} bytes; it is a multiple of {SECTOR_BYTES}, at most {longest}"
        )));
    }
    Ok(())
}

impl StealOptions {
    /// Returns the settings of a database of this scheme. The rows have up to `slot_bytes` bytes.
    #[must_use]
    pub fn new(scheme: Scheme, slot_bytes: usize) -> StealOptions {
        StealOptions {
            scheme,
            records: Records::Full,
            slot_bytes,
            partitions: 64,
            chunk_pages: 32,
            segment_bytes: 64 << 20,
            block_bytes_max: 256 << 10,
            queue_bytes_max: 8 << 20,
            route: Route::Idlest,
            memory_limit: u64::MAX,
            schedule: Schedule::new(Level::Two, 1),
            method: "auto",
        }
    }

    pub(crate) fn class(&self) -> Result<SlotClass> {
        SlotClass::for_bytes(self.slot_bytes)
            .filter(|_| self.slot_bytes > 0)
            .ok_or_else(|| {
                Error::Usage(format!(
                    "slots have 1 to {} bytes, not {}",
                    SlotClass::bytes_max(),
                    self.slot_bytes
                ))
            })
    }

    /// Fails if a row is longer than `slot_bytes`. A slot may have room for a longer row.
    pub(crate) fn check_row(&self, bytes: usize) -> Result<()> {
        if bytes > self.slot_bytes {
            return Err(Error::Usage(format!(
                "the row has {bytes} bytes, more than the {} of a slot",
                self.slot_bytes
            )));
        }
        Ok(())
    }

    /// Checks the settings for opening a database. Returns the class of the slots.
    pub(crate) fn check_open(&self) -> Result<SlotClass> {
        check_log_sizes(self.block_bytes_max)?;
        self.class()
    }

    /// Checks the settings for creating a database.
    pub(crate) fn check(&self, env: &StealEnv) -> Result<()> {
        self.check_open()?;
        let bad = |what: String| Err(Error::Usage(what));
        if self.scheme.mode() != Mode::Steal {
            return bad("interleaved transactions need dl1p, dl2p or pl2p".into());
        }
        if !self.partitions.is_power_of_two() || self.partitions > PARTITIONS_MAX {
            return bad(format!(
                "partitions are a power of two up to {PARTITIONS_MAX}, not {}",
                self.partitions
            ));
        }
        if self.chunk_pages == 0 {
            return bad("chunks have 0 pages; they have at least one".into());
        }
        let sector = to_u64(SECTOR_BYTES);
        if !self.segment_bytes.is_multiple_of(sector) || self.segment_bytes < 16 * sector {
            return bad(format!(
                "segments have {} bytes; it is a multiple of {sector}, at least {}",
                self.segment_bytes,
                16 * sector
            ));
        }
        if env.disks.logs.is_empty() || env.disks.logs.len() > usize::from(STREAMS_MAX) {
            return bad(format!(
                "1 to {STREAMS_MAX} log disks, not {}",
                env.disks.logs.len()
            ));
        }
        if env.disks.images.is_empty() || env.disks.images.len() > usize::from(IMAGE_DISKS_MAX) {
            return bad(format!(
                "1 to {IMAGE_DISKS_MAX} image disks, not {}",
                env.disks.images.len()
            ));
        }
        Ok(())
    }
}
