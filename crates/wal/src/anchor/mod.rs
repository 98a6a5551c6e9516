//! The anchor: where a restart begins.
#![doc = include_str!("../../../../docs/formats/anchor.md")]

mod file;

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, PAGE_BYTES, PARTITIONS_MAX, STREAMS_MAX};
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Epoch, ImageSlot, Incarnation, Pos, Uuid};

use crate::scheme::Scheme;
use crate::sizes::SegmentSizes;

pub use file::{AnchorFile, read_anchor};

/// The anchor's path on the data disk.
pub const ANCHOR_PATH: &str = "anchor";
/// Bytes of one copy.
pub const COPY_BYTES: usize = 64 * 1024;
const MAGIC: &[u8; 4] = b"PANC";
/// Where the scheme's code stands in the record.
const SCHEME_OFFSET: u64 = 70;
/// The most disks that images can be spread over.
pub const IMAGE_DISKS_MAX: u8 = 16;
/// Bytes before the record's length is known.
const PREFIX_BYTES: usize = 12;

/// The state of one checkpoint image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageState {
    /// Nothing was ever written there.
    Empty,
    /// Being overwritten by checkpoint `k`: no fallback.
    Building,
    /// Holds checkpoint `k`, synced.
    Complete,
}

/// What the anchor knows of one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageStatus {
    /// Its state.
    pub state: ImageState,
    /// Its checkpoint epoch.
    pub k: CkptEpoch,
    /// CRC-32C of its directory file.
    pub directory_crc: u32,
    /// The commit epoch that had to be durable before it counted.
    pub end_epoch: Epoch,
    /// Wall clock at its end, microseconds since 1970.
    pub wall_us: u64,
    /// Where each stream's window begins; a restart reads the log from here.
    pub begin: Vec<Pos>,
    /// Where each stream's window ends.
    pub end: Vec<Pos>,
}

impl ImageStatus {
    /// An image that was never written.
    #[must_use]
    pub fn empty(streams: u8) -> Self {
        ImageStatus {
            state: ImageState::Empty,
            k: CkptEpoch(0),
            directory_crc: 0,
            end_epoch: Epoch(0),
            wall_us: 0,
            begin: vec![Pos(0); usize::from(streams)],
            end: vec![Pos(0); usize::from(streams)],
        }
    }
}

/// A closed incarnation whose log is still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// Which one.
    pub incarnation: Incarnation,
    /// The durable epoch it ended with.
    pub durable: Epoch,
    /// Where each stream of it starts.
    pub start: Vec<Pos>,
    /// Where each stream of it was cut: what lies beyond is void for ever.
    pub cut: Vec<Pos>,
}

/// What the log must hold: the newest durable epoch that the anchor was told of. A log that ends
/// before it has lost acknowledged transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vouched {
    /// The durable epoch.
    pub epoch: Epoch,
    /// Wall clock when it was durable, microseconds since 1970.
    pub wall_us: u64,
    /// Where each stream's part of it ends; never before the start of the newest incarnation.
    pub ends: Vec<Pos>,
}

impl Vouched {
    /// Nothing was written yet.
    #[must_use]
    pub fn nothing(streams: u8) -> Self {
        Vouched {
            epoch: Epoch(0),
            wall_us: 0,
            ends: vec![Pos(0); usize::from(streams)],
        }
    }
}

/// The record both copies hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// Rises with every update.
    pub seq: u64,
    /// The database.
    pub uuid: Uuid,
    /// When it was made, microseconds since 1970.
    pub created_us: u64,
    /// Pages in a chunk.
    pub chunk_pages: u16,
    /// Virtual partitions.
    pub partitions: u16,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Sizes of log segments.
    pub segments: SegmentSizes,
    /// Number of log streams.
    pub streams: u8,
    /// Closed cleanly: the newest image is the whole database.
    pub clean: bool,
    /// The logging scheme: what the log's records mean.
    pub scheme: Scheme,
    /// Number of disks the images are spread over, at least one: the pages of partition p are on
    /// disk p modulo this number.
    pub image_disks: u8,
    /// The newest life of the database.
    pub incarnation: Incarnation,
    /// Commit epochs up to this one are used up.
    pub epoch_floor: Epoch,
    /// Checkpoint epochs up to this one are used up.
    pub ckpt_max: CkptEpoch,
    /// What the log must hold.
    pub vouched: Vouched,
    /// Images A and B.
    pub images: [ImageStatus; 2],
    /// Closed incarnations, oldest first.
    pub chain: Vec<ChainLink>,
}

impl Anchor {
    /// Closed incarnations that a copy has room for: about 2,300 with one stream, 240 with 16.
    #[must_use]
    pub fn chain_max(&self) -> usize {
        let without = Anchor {
            chain: Vec::new(),
            ..self.clone()
        };
        let link_bytes = 12 + 16 * usize::from(self.streams);
        (COPY_BYTES - without.encode().len()) / link_bytes
    }

    /// The newest complete image, if any.
    #[must_use]
    pub fn newest_image(&self) -> Option<ImageSlot> {
        ImageSlot::ALL
            .into_iter()
            .filter(|slot| self.image(*slot).state == ImageState::Complete)
            .max_by_key(|slot| self.image(*slot).k)
    }

    /// One image's status.
    #[must_use]
    pub fn image(&self, slot: ImageSlot) -> &ImageStatus {
        &self.images[slot.index()]
    }

    /// One image's status, to change it.
    pub fn image_mut(&mut self, slot: ImageSlot) -> &mut ImageStatus {
        &mut self.images[slot.index()]
    }

    /// Where the newest incarnation's streams start: the last cut.
    #[must_use]
    pub fn open_start(&self) -> Vec<Pos> {
        match self.chain.last() {
            Some(link) => link.cut.clone(),
            None => vec![Pos(0); usize::from(self.streams)],
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        out.put(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_u16(0);
        out.put_u32(0);
        out.put_u64(self.seq);
        out.put(&self.uuid.0);
        out.put_u64(self.created_us);
        out.put_u32(to_u32(PAGE_BYTES));
        out.put_u16(self.chunk_pages);
        out.put_u16(self.partitions);
        out.put_u64(self.hash_seed);
        out.put_u64(self.segments.max);
        out.put_u8(self.streams);
        out.put_u8(u8::from(self.clean));
        out.put_u8(self.scheme.code());
        assert!((1..=IMAGE_DISKS_MAX).contains(&self.image_disks));
        out.put_u8(self.image_disks - 1);
        out.put_u32(self.incarnation.0);
        out.put_u64(self.epoch_floor.0);
        out.put_u64(self.ckpt_max.0);
        out.put_u64(self.segments.first);
        out.put_u64(self.vouched.epoch.0);
        out.put_u64(self.vouched.wall_us);
        assert_eq!(self.vouched.ends.len(), usize::from(self.streams));
        self.vouched.ends.iter().for_each(|pos| out.put_u64(pos.0));
        for image in &self.images {
            out.put_u8(match image.state {
                ImageState::Empty => 0,
                ImageState::Building => 1,
                ImageState::Complete => 2,
            });
            out.put_zeros(3);
            out.put_u32(image.directory_crc);
            out.put_u64(image.k.0);
            out.put_u64(image.end_epoch.0);
            out.put_u64(image.wall_us);
            image
                .begin
                .iter()
                .chain(&image.end)
                .for_each(|pos| out.put_u64(pos.0));
        }
        out.put_u16(u16::try_from(self.chain.len()).expect("the chain is bounded"));
        for link in &self.chain {
            out.put_u32(link.incarnation.0);
            out.put_u64(link.durable.0);
            for (start, cut) in link.start.iter().zip(&link.cut) {
                out.put_u64(start.0);
                out.put_u64(cut.0);
            }
        }
        let len = to_u32(out.len() + 4);
        out[8..PREFIX_BYTES].copy_from_slice(&len.to_le_bytes());
        out.put_u32(crc32c(&out));
        assert!(
            out.len() <= COPY_BYTES,
            "an anchor of {} bytes does not fit",
            out.len()
        );
        out
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Anchor, DecodeError> {
        let mut r = Reader::new(bytes);
        let head = (|| Some((r.array::<4>()?, r.u16()?, r.u16()?, r.u32()?)))();
        let Some((magic, version, zero, len)) = head else {
            return Err(DecodeError::Damaged("shorter than an anchor"));
        };
        if magic != *MAGIC {
            return Err(DecodeError::Damaged("no anchor's magic number"));
        }
        let len = to_usize(u64::from(len));
        let body = bytes
            .get(..len)
            .filter(|_| len > PREFIX_BYTES + 4 && len <= COPY_BYTES);
        let Some((covered, crc)) = body.map(|b| b.split_at(len - 4)) else {
            return Err(DecodeError::Damaged("an impossible length"));
        };
        if crc != crc32c(covered).to_le_bytes() || zero != 0 {
            return Err(DecodeError::Damaged("a checksum that does not hold"));
        }
        if version != FORMAT_VERSION {
            return Err(DecodeError::Version(version));
        }
        let mut r = Reader::new(covered);
        let code = covered.get(to_usize(SCHEME_OFFSET)).copied();
        if let Some(code) = code.filter(|code| Scheme::from_code(*code).is_none()) {
            return Err(DecodeError::Scheme(code));
        }
        decode_fields(&mut r)
            .filter(|_| r.remaining() == 0)
            .ok_or(DecodeError::Damaged("fields out of their ranges"))
    }
}

fn decode_fields(r: &mut Reader<'_>) -> Option<Anchor> {
    r.bytes(PREFIX_BYTES)?;
    let seq = r.u64()?;
    let uuid = Uuid(r.array()?);
    let created_us = r.u64()?;
    let page_bytes = r.u32()?;
    let chunk_pages = r.u16()?;
    let partitions = r.u16()?;
    let hash_seed = r.u64()?;
    let segment_bytes_max = r.u64()?;
    let streams = r.u8()?;
    let clean = r.u8()?;
    let scheme = Scheme::from_code(r.u8()?)?;
    let image_disks = r.u8()?.checked_add(1)?;
    let incarnation = Incarnation(r.u32()?);
    let epoch_floor = Epoch(r.u64()?);
    let ckpt_max = CkptEpoch(r.u64()?);
    let segments = SegmentSizes {
        first: r.u64()?,
        max: segment_bytes_max,
    };
    let in_range = page_bytes == to_u32(PAGE_BYTES)
        && (1..=STREAMS_MAX).contains(&streams)
        && (1..=PARTITIONS_MAX).contains(&partitions)
        && partitions.is_power_of_two()
        && chunk_pages > 0
        && clean <= 1
        && segments.are_possible()
        && image_disks <= IMAGE_DISKS_MAX;
    if !in_range {
        return None;
    }
    let positions = |r: &mut Reader<'_>| -> Option<Vec<Pos>> {
        (0..streams).map(|_| r.u64().map(Pos)).collect()
    };
    let vouched = Vouched {
        epoch: Epoch(r.u64()?),
        wall_us: r.u64()?,
        ends: positions(r)?,
    };
    let image = |r: &mut Reader<'_>| {
        let state = match r.u8()? {
            0 => ImageState::Empty,
            1 => ImageState::Building,
            2 => ImageState::Complete,
            _ => return None,
        };
        r.zeros(3)?;
        Some(ImageStatus {
            state,
            directory_crc: r.u32()?,
            k: CkptEpoch(r.u64()?),
            end_epoch: Epoch(r.u64()?),
            wall_us: r.u64()?,
            begin: positions(r)?,
            end: positions(r)?,
        })
    };
    let images = [image(r)?, image(r)?];
    let mut chain = Vec::new();
    for _ in 0..r.u16()? {
        let incarnation = Incarnation(r.u32()?);
        let durable = Epoch(r.u64()?);
        let mut link = ChainLink {
            incarnation,
            durable,
            start: Vec::new(),
            cut: Vec::new(),
        };
        for _ in 0..streams {
            link.start.push(Pos(r.u64()?));
            link.cut.push(Pos(r.u64()?));
        }
        chain.push(link);
    }
    Some(Anchor {
        seq,
        uuid,
        created_us,
        chunk_pages,
        partitions,
        hash_seed,
        segments,
        streams,
        clean: clean == 1,
        scheme,
        image_disks,
        incarnation,
        epoch_floor,
        ckpt_max,
        vouched,
        images,
        chain,
    })
}

enum DecodeError {
    Damaged(&'static str),
    Version(u16),
    /// Whole, but of a logging scheme that this build does not know.
    Scheme(u8),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex_example::{digits_of, digits_on};

    pub(super) fn example() -> Anchor {
        let mut uuid = [0; 16];
        for (i, byte) in (0..16u8).zip(uuid.iter_mut()) {
            *byte = i;
        }
        Anchor {
            seq: 1,
            uuid: Uuid(uuid),
            created_us: 1_000_000,
            chunk_pages: 128,
            partitions: 256,
            hash_seed: 42,
            segments: SegmentSizes {
                first: 4 << 20,
                max: 64 << 20,
            },
            streams: 1,
            clean: false,
            scheme: Scheme::Differential,
            image_disks: 1,
            incarnation: Incarnation(1),
            epoch_floor: Epoch(0),
            ckpt_max: CkptEpoch(0),
            vouched: Vouched::nothing(1),
            images: [ImageStatus::empty(1), ImageStatus::empty(1)],
            chain: Vec::new(),
        }
    }

    #[test]
    fn the_example_on_the_format_page_is_what_the_codec_writes() {
        let page = include_str!("../../../../docs/formats/anchor.md");
        assert_eq!(digits_on(page), digits_of(&example().encode()));
    }

    #[test]
    fn the_longest_chain_of_the_most_streams_fits_a_copy() {
        let mut anchor = example();
        anchor.streams = STREAMS_MAX;
        let many = vec![Pos(u64::MAX); usize::from(STREAMS_MAX)];
        anchor.vouched.ends.clone_from(&many);
        anchor.images = [
            ImageStatus::empty(STREAMS_MAX),
            ImageStatus::empty(STREAMS_MAX),
        ];
        anchor.chain = vec![
            ChainLink {
                incarnation: Incarnation(1),
                durable: Epoch(1),
                start: many.clone(),
                cut: many
            };
            anchor.chain_max()
        ];
        let bytes = anchor.encode();
        assert!((200..=COPY_BYTES).contains(&bytes.len()) && anchor.chain.len() > 230);
        assert!(matches!(Anchor::decode(&bytes), Ok(back) if back == anchor));
        assert!(example().chain_max() > 2300);
    }
}
