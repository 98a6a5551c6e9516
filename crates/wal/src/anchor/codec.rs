//! Encoding and decoding of the anchor's record.

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, STREAMS_MAX};
use perdura_base::num::{to_u32, to_u64, to_usize};
use perdura_base::{CkptEpoch, Epoch, Incarnation, Pos, Uuid};

use super::{COPY_BYTES, ChainLink, History, Record, Sections, Tag, Vouched};
use crate::lineage::Lineage;
use crate::scheme::Scheme;
use crate::sizes::SegmentSizes;

const MAGIC: &[u8; 4] = b"PANC";
/// The offset of the scheme's code in the record.
pub(super) const SCHEME_OFFSET: u64 = 66;
/// The size of the prefix, which contains the two length fields.
const PREFIX_BYTES: usize = 16;
/// The size of an entry in the table of sections.
const ENTRY_BYTES: usize = 16;
const FLAG_REQUIRED: u8 = 1;

/// The reason why some bytes are not a record.
pub(super) enum DecodeError {
    Damaged {
        /// The offset in the record.
        at: u64,
        why: String,
    },
    Version(u16),
    /// A whole record of a logging scheme that this build does not know.
    Scheme(u8),
}

fn damaged(at: usize, why: impl Into<String>) -> DecodeError {
    DecodeError::Damaged {
        at: to_u64(at),
        why: why.into(),
    }
}

/// Returns the length of the record that begins with these bytes; `None` if they are too few to have the length fields.
pub(super) fn stated_len(bytes: &[u8]) -> Option<u64> {
    let mut r = Reader::new(bytes);
    r.bytes(PREFIX_BYTES - 8)?;
    let log_part = r.u32()?;
    // In another version the second length field may have another meaning.
    Some(u64::from(log_part.max(r.u32()?)))
}

impl Record {
    /// Returns the offset of a section's payload in the record, or the record's length for a missing section.
    #[must_use]
    pub fn offset_of(&self, tag: Tag) -> u64 {
        let before = self
            .sections
            .iter()
            .take_while(|section| section.tag != tag);
        let before: usize = before.map(|section| section.bytes.len()).sum();
        to_u64(self.log_part().len() + before)
    }

    /// Returns the record's bytes, as they are written to each copy.
    ///
    /// # Panics
    /// Panics if the record is longer than a copy.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.log_part();
        self.sections
            .iter()
            .for_each(|section| out.put(&section.bytes));
        assert!(
            out.len() <= COPY_BYTES,
            "an anchor of {} bytes does not fit",
            out.len()
        );
        out
    }

    /// Returns the size, in bytes, that the record would have without closed incarnations.
    pub(super) fn bytes_without_chain(&self) -> usize {
        let sections = self.sections.iter();
        let payloads: usize = sections.map(|section| section.bytes.len()).sum();
        self.log_part_with(&[]).len() + payloads
    }

    fn log_part(&self) -> Vec<u8> {
        assert!(
            self.history.lives_follow_each_other(),
            "the anchor of life {} names lives that do not follow each other",
            self.history.incarnation
        );
        self.log_part_with(&self.history.chain)
    }

    /// Returns the log's part of the record, with `chain` as its closed incarnations.
    fn log_part_with(&self, chain: &[ChainLink]) -> Vec<u8> {
        let history = &self.history;
        let mut out = Vec::with_capacity(1024);
        out.put(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_u16(u16::try_from(self.sections.count()).expect("sections are few"));
        out.put_zeros(8);
        out.put_u64(history.seq);
        out.put(&history.uuid.0);
        out.put_u64(history.created_us);
        out.put_u64(history.segments.max);
        out.put_u64(history.segments.first);
        out.put_u8(history.streams);
        out.put_u8(u8::from(history.clean));
        out.put_u8(history.scheme.code());
        out.put_u8(0);
        out.put_u32(history.incarnation.0);
        out.put_u64(history.epoch_floor.0);
        out.put_u64(history.ckpt_max.0);
        out.put_u64(history.vouched.epoch.0);
        out.put_u64(history.vouched.wall_us);
        let streams = usize::from(history.streams);
        assert_eq!(
            history.vouched.ends.len(),
            streams,
            "an end for each stream"
        );
        history
            .vouched
            .ends
            .iter()
            .for_each(|pos| out.put_u64(pos.0));
        out.put_u16(u16::try_from(chain.len()).expect("the chain is bounded"));
        for link in chain {
            assert_eq!((link.start.len(), link.cut.len()), (streams, streams));
            out.put_u32(link.incarnation.0);
            out.put_u64(link.durable.0);
            for (start, cut) in link.start.iter().zip(&link.cut) {
                out.put_u64(start.0);
                out.put_u64(cut.0);
            }
        }
        let mut payloads = 0;
        for section in self.sections.iter() {
            out.put(&section.tag.0);
            out.put_u8(if section.required { FLAG_REQUIRED } else { 0 });
            out.put_zeros(3);
            out.put_u32(to_u32(section.bytes.len()));
            out.put_u32(crc32c(&section.bytes));
            payloads += section.bytes.len();
        }
        let len = out.len() + 4;
        out[8..12].copy_from_slice(&to_u32(len).to_le_bytes());
        out[12..PREFIX_BYTES].copy_from_slice(&to_u32(len + payloads).to_le_bytes());
        out.put_u32(crc32c(&out));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
        let mut r = Reader::new(bytes);
        let head = (|| Some((r.array::<4>()?, r.u16()?, r.u16()?, r.u32()?, r.u32()?)))();
        let Some((magic, version, sections, len, total)) = head else {
            return Err(damaged(0, "fewer bytes than an anchor"));
        };
        if magic != *MAGIC {
            return Err(damaged(0, "no anchor's magic number"));
        }
        let (len, total) = (to_usize(u64::from(len)), to_usize(u64::from(total)));
        let log_part = bytes
            .get(..len)
            .filter(|_| len > PREFIX_BYTES + 4 && len <= COPY_BYTES);
        let Some((covered, crc)) = log_part.map(|b| b.split_at(len - 4)) else {
            return Err(damaged(8, "an impossible length"));
        };
        if crc != crc32c(covered).to_le_bytes() {
            return Err(damaged(len - 4, "a wrong checksum"));
        }
        // Every version has its checksum where `len` says. So a record of another version is not mistaken for damage.
        if version != FORMAT_VERSION {
            return Err(DecodeError::Version(version));
        }
        let payloads = bytes.get(len..total).filter(|_| total <= COPY_BYTES);
        let payloads = payloads.ok_or_else(|| damaged(12, "an impossible length"))?;
        let code = covered.get(to_usize(SCHEME_OFFSET)).copied();
        if let Some(code) = code.filter(|code| Scheme::from_code(*code).is_none()) {
            return Err(DecodeError::Scheme(code));
        }
        let mut r = Reader::new(covered);
        let history = history(&mut r).ok_or_else(|| out_of_range(&r))?;
        let sections = decode_sections(&mut r, sections, payloads, len)?;
        Ok(Record { history, sections })
    }
}

/// Combines two damaged copies of one update. Returns the record, and the tags of the sections taken from `other`.
/// Returns `None` unless the two log parts, with the tables of sections, are whole and equal.
pub(super) fn combine(one: &[u8], other: &[u8]) -> Option<(Record, Vec<Tag>)> {
    let mut r = Reader::new(one);
    r.bytes(6)?;
    let count = r.u16()?;
    let len = to_usize(u64::from(r.u32()?));
    let log_part = one.get(..len)?;
    if other.get(..len) != Some(log_part) {
        return None;
    }
    let table = len.checked_sub(4 + usize::from(count) * ENTRY_BYTES)?;
    let mut r = Reader::new(log_part.get(table..)?);
    let (mut bytes, mut from, mut taken) = (one.to_vec(), len, Vec::new());
    for _ in 0..count {
        let entry = entry(&mut r)?;
        let payload = from..from.checked_add(entry.len)?;
        if crc32c(bytes.get(payload.clone())?) != entry.crc {
            bytes[payload.clone()].copy_from_slice(other.get(payload.clone())?);
            taken.push(entry.tag);
        }
        from = payload.end;
    }
    let record = Record::decode(&bytes).ok()?;
    Some((record, taken))
}

fn out_of_range(r: &Reader<'_>) -> DecodeError {
    damaged(r.at(), "fields out of their ranges")
}

fn history(r: &mut Reader<'_>) -> Option<History> {
    r.bytes(PREFIX_BYTES)?;
    let seq = r.u64()?;
    let uuid = Uuid(r.array()?);
    let created_us = r.u64()?;
    let max = r.u64()?;
    let first = r.u64()?;
    let segments = SegmentSizes { first, max };
    let streams = r.u8()?;
    let clean = r.u8()?;
    let scheme = Scheme::from_code(r.u8()?)?;
    r.zeros(1)?;
    if !(1..=STREAMS_MAX).contains(&streams) || clean > 1 || !segments.are_possible() {
        return None;
    }
    let incarnation = Incarnation(r.u32()?);
    let epoch_floor = Epoch(r.u64()?);
    let ckpt_max = CkptEpoch(r.u64()?);
    let vouched = Vouched {
        epoch: Epoch(r.u64()?),
        wall_us: r.u64()?,
        ends: (0..streams)
            .map(|_| r.u64().map(Pos))
            .collect::<Option<_>>()?,
    };
    let mut chain = Vec::new();
    for _ in 0..r.u16()? {
        let mut link = ChainLink {
            incarnation: Incarnation(r.u32()?),
            durable: Epoch(r.u64()?),
            start: Vec::new(),
            cut: Vec::new(),
        };
        for _ in 0..streams {
            link.start.push(Pos(r.u64()?));
            link.cut.push(Pos(r.u64()?));
        }
        chain.push(link);
    }
    let history = History {
        seq,
        uuid,
        created_us,
        segments,
        streams,
        clean: clean == 1,
        scheme,
        incarnation,
        epoch_floor,
        ckpt_max,
        vouched,
        chain,
        lineage: Lineage::default(),
    };
    history.lives_follow_each_other().then_some(history)
}

/// Decodes the sections. `r` has the rest of the log's part, which is the table of sections. `at` is the offset of the
/// first payload.
fn decode_sections(
    r: &mut Reader<'_>,
    count: u16,
    mut payloads: &[u8],
    mut at: usize,
) -> Result<Sections, DecodeError> {
    if r.remaining() != usize::from(count) * ENTRY_BYTES {
        return Err(out_of_range(r));
    }
    let mut sections = Sections::default();
    for _ in 0..count {
        let entry = entry(r).filter(|entry| sections.get(entry.tag).is_none());
        let entry = entry.ok_or_else(|| out_of_range(r))?;
        let Some((payload, rest)) = payloads.split_at_checked(entry.len) else {
            return Err(damaged(at, format!("no room for section {}", entry.tag)));
        };
        if crc32c(payload) != entry.crc {
            let why = format!(
                "a wrong checksum of section {}, at offset {at} of the copy",
                entry.tag
            );
            return Err(damaged(at, why));
        }
        sections.set(entry.tag, entry.required, payload.to_vec());
        payloads = rest;
        at += entry.len;
    }
    match payloads {
        [] => Ok(sections),
        _ => Err(damaged(at, "bytes that belong to no section")),
    }
}

/// An entry in the table of sections.
struct Entry {
    tag: Tag,
    required: bool,
    len: usize,
    crc: u32,
}

fn entry(r: &mut Reader<'_>) -> Option<Entry> {
    let tag = Tag(r.array()?);
    let flags = r.u8()?;
    r.zeros(3)?;
    Some(Entry {
        tag,
        required: flags & FLAG_REQUIRED != 0,
        len: to_usize(u64::from(r.u32()?)),
        crc: r.u32()?,
    })
    .filter(|_| flags & !FLAG_REQUIRED == 0)
}
