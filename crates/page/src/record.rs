#![doc = include_str!("../../../docs/formats/record.md")]

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{CkptEpoch, PageId, Useq};

use crate::diff::{Fragments, xor_into};
use crate::layout::PAGE_BYTES;

/// The fields before a record's fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// The page.
    pub page: PageId,
    /// The sequence number of this update among the updates of the page.
    pub useq: Useq,
    /// The page's checkpoint epoch at the update.
    pub tag: CkptEpoch,
    /// The number of fragments that follow.
    pub fragments: u32,
}

/// Appends the head of a group.
pub fn encode_group_head(out: &mut Vec<u8>, tag_max: CkptEpoch, records: usize) {
    out.put_varint(tag_max.0);
    out.put_varint(u64::try_from(records).unwrap_or(u64::MAX));
}

/// Appends a record's head. `tag_max` is the highest tag (checkpoint epoch) of the record's group.
pub fn encode_record_head(out: &mut Vec<u8>, tag_max: CkptEpoch, head: &RecordHead) {
    assert!(head.tag <= tag_max && head.fragments > 0);
    out.put_u32(head.page.0);
    out.put_u32(head.useq.0);
    out.put_varint(tag_max.0 - head.tag.0);
    out.put_varint(u64::from(head.fragments));
}

/// The change of one page by one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRecord<'a> {
    /// The page.
    pub page: PageId,
    /// The sequence number of this update among the updates of the page.
    pub useq: Useq,
    /// The page's checkpoint epoch at the update. Image `k` contains the update if `tag < k`, and otherwise does not.
    pub tag: CkptEpoch,
    fragment_count: u64,
    fragments: &'a [u8],
}

impl<'a> PageRecord<'a> {
    /// Returns the fragments in ascending order.
    #[must_use]
    pub fn fragments(&self) -> Fragments<'a> {
        Fragments::new(self.fragments, self.fragment_count)
    }

    /// Returns the size of the encoded fragments, bytes.
    #[must_use]
    pub fn fragment_bytes(&self) -> usize {
        self.fragments.len()
    }

    /// Returns the number of fragments, and their encoded bytes. A decoder needs this number and these bytes to read
    /// the fragments.
    #[must_use]
    pub fn encoded_fragments(&self) -> (u64, &'a [u8]) {
        (self.fragment_count, self.fragments)
    }

    /// XORs the fragments into a page.
    pub fn xor_into(&self, page: &mut [u8]) {
        assert_eq!(page.len(), PAGE_BYTES);
        for fragment in self.fragments() {
            let end = fragment.offset + fragment.bytes.len();
            xor_into(&mut page[fragment.offset..end], fragment.bytes);
        }
    }

    fn decode(r: &mut Reader<'a>, rest: &'a [u8], tag_max: u64) -> Option<PageRecord<'a>> {
        let page = PageId(r.u32()?);
        let useq = Useq(r.u32()?);
        let tag = CkptEpoch(tag_max.checked_sub(r.varint()?)?);
        let fragment_count = r.varint()?;
        if fragment_count == 0 {
            return None;
        }
        let bytes = Fragments::new(rest.get(r.at()..)?, fragment_count).check()?;
        let fragments = r.bytes(bytes)?;
        Some(PageRecord {
            page,
            useq,
            tag,
            fragment_count,
            fragments,
        })
    }
}

/// A decoded group. All of its bytes have been checked.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The highest tag of its records.
    pub tag_max: CkptEpoch,
    /// The number of its records.
    pub records: u64,
    body: &'a [u8],
}

impl<'a> Group<'a> {
    /// Returns the records in the order of writing.
    pub fn records(&self) -> impl Iterator<Item = PageRecord<'a>> + use<'a> {
        let mut reader = Reader::new(self.body);
        let (body, tag_max) = (self.body, self.tag_max.0);
        (0..self.records).map_while(move |_| PageRecord::decode(&mut reader, body, tag_max))
    }
}

/// Passes each record of a transaction's group payload to `each`, in the order of writing. Returns the count of
/// records. `None`: a byte is wrong or left over, and the caller must discard the records. The heap checks whether the
/// pages exist.
#[inline]
#[must_use]
pub fn for_each_record<'a>(payload: &'a [u8], mut each: impl FnMut(PageRecord<'a>)) -> Option<u64> {
    let (tag_max, records, body) = split_head(payload)?;
    let mut r = Reader::new(body);
    for _ in 0..records {
        each(PageRecord::decode(&mut r, body, tag_max)?);
    }
    (records > 0 && r.remaining() == 0).then_some(records)
}

/// Reads the whole group payload of one transaction and checks it. `None`: it is malformed; see [`for_each_record`].
#[must_use]
pub fn decode_group(payload: &[u8]) -> Option<Group<'_>> {
    for_each_record(payload, |_| ())?;
    let (tag_max, records, body) = split_head(payload)?;
    Some(Group {
        tag_max: CkptEpoch(tag_max),
        records,
        body,
    })
}

/// Reads the head of a group. Returns the records' highest tag, the count of records, and the records' bytes.
fn split_head(payload: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut head = Reader::new(payload);
    let tag_max = head.varint()?;
    let records = head.varint()?;
    Some((tag_max, records, payload.get(head.at()..)?))
}
