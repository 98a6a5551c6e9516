//! The anchor: the record that a restart begins with.
#![doc = include_str!("../../../../docs/formats/anchor.md")]

mod codec;
mod copies;
mod file;
mod sections;

use perdura_base::{CkptEpoch, Epoch, Incarnation, Pos, Uuid};

use crate::lineage::Lineage;
use crate::scheme::Scheme;
use crate::sizes::SegmentSizes;

pub use copies::COMBINED;
pub use file::AnchorFile;
pub use sections::{Section, Sections, Tag};

/// The anchor's path on the data disk.
pub const ANCHOR_PATH: &str = "anchor";
/// The size of one copy, bytes.
pub const COPY_BYTES: usize = 64 * 1024;

/// A closed incarnation (an earlier life of the database) with a log that is still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// The number of the incarnation.
    pub incarnation: Incarnation,
    /// The durable epoch at the incarnation's end.
    pub durable: Epoch,
    /// The incarnation's start position in each stream.
    pub start: Vec<Pos>,
    /// The incarnation's cut position in each stream. Everything beyond is void for good.
    pub cut: Vec<Pos>,
}

/// The part of the log that must exist: up to the newest durable epoch written to the anchor. A log that ends earlier
/// has lost acknowledged transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vouched {
    /// The durable epoch.
    pub epoch: Epoch,
    /// The wall-clock time at which the epoch became durable, in microseconds since 1970.
    pub wall_us: u64,
    /// The epoch's end position in each stream; never before the start of the newest incarnation.
    pub ends: Vec<Pos>,
}

impl Vouched {
    /// Returns the value for a new, empty database.
    #[must_use]
    pub fn nothing(streams: u8) -> Self {
        Vouched {
            epoch: Epoch(0),
            wall_us: 0,
            ends: vec![Pos(0); usize::from(streams)],
        }
    }
}

/// The log's part of the anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// A number that rises with every update.
    pub seq: u64,
    /// The uuid of the database.
    pub uuid: Uuid,
    /// The creation time of the database, microseconds since 1970.
    pub created_us: u64,
    /// The sizes of log segments.
    pub segments: SegmentSizes,
    /// The number of log streams.
    pub streams: u8,
    /// True if the database was closed cleanly. The newest image then has the whole database.
    pub clean: bool,
    /// The logging scheme, which gives the log's records their meaning.
    pub scheme: Scheme,
    /// The newest life of the database.
    pub incarnation: Incarnation,
    /// The highest commit epoch that must not be used again.
    pub epoch_floor: Epoch,
    /// The highest checkpoint epoch that must not be used again.
    pub ckpt_max: CkptEpoch,
    /// The part of the log that must exist.
    pub vouched: Vouched,
    /// Closed incarnations, oldest first.
    pub chain: Vec<ChainLink>,
    /// The lives by their random numbers. A section of the anchor has them.
    pub lineage: Lineage,
}

impl History {
    /// Returns whether the lives of the database are in order. The numbers of the incarnations must ascend. The last
    /// durable epochs of the lives must not descend. No such epoch may be above the vouched epoch.
    #[must_use]
    pub(crate) fn lives_follow_each_other(&self) -> bool {
        let last = self.chain.last();
        self.chain
            .is_sorted_by(|a, b| a.incarnation < b.incarnation && a.durable <= b.durable)
            && last.is_none_or(|last| {
                last.incarnation < self.incarnation && last.durable <= self.vouched.epoch
            })
    }

    /// Returns the history of a new, empty database.
    #[must_use]
    pub fn begin(
        uuid: Uuid,
        created_us: u64,
        scheme: Scheme,
        streams: u8,
        segments: SegmentSizes,
    ) -> History {
        History {
            seq: 1,
            uuid,
            created_us,
            segments,
            streams,
            clean: true,
            scheme,
            incarnation: Incarnation(0),
            epoch_floor: Epoch(0),
            ckpt_max: CkptEpoch(0),
            vouched: Vouched::nothing(streams),
            chain: Vec::new(),
            lineage: Lineage::default(),
        }
    }

    /// Returns the newest incarnation's start position in each stream. These positions are the cut positions of the
    /// last closed incarnation.
    #[must_use]
    pub fn open_start(&self) -> Vec<Pos> {
        match self.chain.last() {
            Some(link) => link.cut.clone(),
            None => vec![Pos(0); usize::from(self.streams)],
        }
    }
}

/// The record in the two copies: the log's history, and the sections of other components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The log's own part.
    pub history: History,
    /// The parts of other components, as bytes.
    pub sections: Sections,
}

impl Record {
    /// Returns the maximum number of closed incarnations in the record. A copy must have room for them and for the
    /// record's sections. With the product's sections, the maximum is about 2,300 for one stream, and 240 for 16
    /// streams.
    #[must_use]
    pub fn chain_max(&self) -> usize {
        let link_bytes = 12 + 16 * usize::from(self.history.streams);
        COPY_BYTES.saturating_sub(self.bytes_without_chain()) / link_bytes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use perdura_base::limits::STREAMS_MAX;

    use super::codec::DecodeError;
    use super::*;
    use crate::hex_example::{digits_of, digits_on};

    /// Returns the record that the format page shows as an example. The owners of the sections test the meaning of the
    /// sections.
    pub fn example() -> Record {
        let mut uuid = [0; 16];
        for (i, byte) in (0..16u8).zip(uuid.iter_mut()) {
            *byte = i;
        }
        let sizes = SegmentSizes {
            first: 4 << 20,
            max: 64 << 20,
        };
        let mut history = History::begin(Uuid(uuid), 1_000_000, Scheme::Differential, 1, sizes);
        history.incarnation = Incarnation(1);
        history.clean = false;
        let mut sections = Sections::default();
        let geometry = [0, 0x40, 0, 0, 0x80, 0, 0, 1, 42, 0, 0, 0, 0, 0, 0, 0];
        sections.set(Tag(*b"GEOM"), true, geometry.to_vec());
        let mut images = vec![0; 100];
        images[0] = 1;
        sections.set(Tag(*b"IMGS"), true, images);
        Record { history, sections }
    }

    #[test]
    fn the_example_on_the_format_page_is_what_the_codec_writes() {
        let page = include_str!("../../../../docs/formats/anchor.md");
        assert_eq!(digits_on(page), digits_of(&example().encode()));
    }

    #[test]
    fn the_longest_chain_of_the_most_streams_fits_a_copy() {
        let mut record = example();
        let history = &mut record.history;
        history.streams = STREAMS_MAX;
        let many = vec![Pos(u64::MAX); usize::from(STREAMS_MAX)];
        history.vouched.ends.clone_from(&many);
        let images = vec![0; 4 + 2 * (32 + 16 * usize::from(STREAMS_MAX))];
        record.sections.set(Tag(*b"IMGS"), true, images);
        record.history.incarnation = Incarnation(u32::MAX);
        record.history.vouched.epoch = Epoch(1);
        let link = |number| ChainLink {
            incarnation: Incarnation(number),
            durable: Epoch(1),
            start: many.clone(),
            cut: many.clone(),
        };
        let longest = u32::try_from(record.chain_max()).unwrap();
        record.history.chain = (1..=longest).map(link).collect();
        let bytes = record.encode();
        assert!((200..=COPY_BYTES).contains(&bytes.len()) && record.history.chain.len() > 230);
        assert!(matches!(Record::decode(&bytes), Ok(back) if back == record));
        assert!(example().chain_max() > 2300);
    }

    #[test]
    fn a_damaged_section_is_named_with_its_offset() {
        let record = example();
        let bytes = record.encode();
        for (tag, len) in [(*b"GEOM", 16), (*b"IMGS", 100)] {
            let at = usize::try_from(record.offset_of(Tag(tag))).unwrap();
            for byte in at..at + len {
                let mut damaged = bytes.clone();
                damaged[byte] ^= 4;
                let Err(DecodeError::Damaged { at: named, why }) = Record::decode(&damaged) else {
                    panic!("byte {byte} is not missed");
                };
                assert_eq!(usize::try_from(named).unwrap(), at);
                assert!(why.contains(&Tag(tag).to_string()), "{why}");
            }
        }
    }

    #[test]
    fn a_record_that_ends_within_a_section_is_damaged() {
        let bytes = example().encode();
        for len in 0..bytes.len() {
            let cut = Record::decode(&bytes[..len]);
            assert!(matches!(cut, Err(DecodeError::Damaged { .. })), "{len}");
        }
    }
}
