//! The lists in a backup: a section for each partition, and the table of the sections.

use perdura_base::Useq;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_u64};

/// The size of a page's entry, bytes.
pub(super) const ENTRY_BYTES: usize = 20;
/// The size of one entry in the table of sections, in bytes.
pub(super) const TABLE_ENTRY_BYTES: usize = 32;

/// The entry of one page in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEntry {
    /// The index of the page among the pages of its partition.
    pub local: u32,
    /// The update number of the page.
    pub useq: Useq,
    /// CRC-32C of the page's id and bytes.
    pub crc: u32,
    /// XOR-linear digest of the page's logged region. It does not include the page's id.
    pub digest: u64,
}

/// The entries of one partition's pages in a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// The partition's sequence number. `None`: the pages of the image show different instants.
    pub pseq: Option<u64>,
    /// The entries of the partition's pages, in ascending order of `local`.
    pub pages: Vec<PageEntry>,
    /// The partition's sidecar in the image: a copy of the partition's hash index.
    pub sidecar: Vec<u8>,
}

impl Section {
    /// Returns the index of the page with this entry. `None`: the section has no such page, or has it with another entry.
    #[must_use]
    pub fn place(&self, entry: &PageEntry) -> Option<usize> {
        let found = self
            .pages
            .binary_search_by_key(&entry.local, |page| page.local);
        found.ok().filter(|nth| self.pages[*nth] == *entry)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let bytes = 12 + self.pages.len() * ENTRY_BYTES + self.sidecar.len();
        let mut out = Vec::with_capacity(bytes);
        if let Some(pseq) = self.pseq {
            out.put_u64(pseq);
        }
        out.put_u32(to_u32(self.pages.len()));
        for page in &self.pages {
            out.put_u32(page.local);
            out.put_u32(page.useq.0);
            out.put_u32(page.crc);
            out.put_u64(page.digest);
        }
        out.put(&self.sidecar);
        assert!(out.len() <= bytes, "an entry has the length it is read by");
        out
    }

    /// Decodes a section. `None`: the bytes are malformed, or the pages do not ascend.
    pub(super) fn decode(bytes: &[u8], consistent: bool) -> Option<Section> {
        let mut r = Reader::new(bytes);
        let pseq = if consistent { Some(r.u64()?) } else { None };
        let count = r.u32()?;
        if r.remaining() / ENTRY_BYTES < usize::try_from(count).ok()? {
            return None;
        }
        let mut pages = Vec::with_capacity(usize::try_from(count).ok()?);
        for _ in 0..count {
            let page = PageEntry {
                local: r.u32()?,
                useq: Useq(r.u32()?),
                crc: r.u32()?,
                digest: r.u64()?,
            };
            if pages
                .last()
                .is_some_and(|last: &PageEntry| last.local >= page.local)
            {
                return None;
            }
            pages.push(page);
        }
        let sidecar = r.bytes(r.remaining())?.to_vec();
        Some(Section {
            pseq,
            pages,
            sidecar,
        })
    }
}

/// The table's entry for one section: the section's position in the file, and the XOR of its pages' digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TableEntry {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) crc: u32,
    pub(super) pages: u32,
    pub(super) proof: u64,
}

impl TableEntry {
    pub(super) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

pub(super) fn encode_table(entries: &[TableEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * TABLE_ENTRY_BYTES);
    for entry in entries {
        out.put_u64(entry.offset);
        out.put_u64(entry.bytes);
        out.put_u32(entry.crc);
        out.put_u32(entry.pages);
        out.put_u64(entry.proof);
    }
    assert_eq!(
        to_u64(out.len()),
        to_u64(entries.len() * TABLE_ENTRY_BYTES),
        "an entry has the length it is read by"
    );
    out
}

pub(super) fn decode_table(bytes: &[u8]) -> Option<Vec<TableEntry>> {
    let mut r = Reader::new(bytes);
    let mut entries = Vec::with_capacity(bytes.len() / TABLE_ENTRY_BYTES);
    while r.remaining() > 0 {
        entries.push(TableEntry {
            offset: r.u64()?,
            bytes: r.u64()?,
            crc: r.u32()?,
            pages: r.u32()?,
            proof: r.u64()?,
        });
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use perdura_base::CkptEpoch;

    use super::super::used::{UsedPage, decode_used, encode_used};
    use super::*;

    #[test]
    fn the_examples_of_the_format_page_are_read_and_written_again() {
        let text = include_str!("../../../../docs/formats/backup.md");
        let bytes = |block: &str| -> Vec<u8> {
            let hex = block.split("```").next().unwrap_or_default();
            let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
            let byte = |two: &[u8]| {
                let two = std::str::from_utf8(two).expect("digits");
                u8::from_str_radix(two, 16).expect("hex")
            };
            digits.chunks(2).map(byte).collect()
        };
        let examples: Vec<Vec<u8>> = text.split("```text hex").skip(1).map(bytes).collect();
        let table = decode_table(&examples[0]).expect("a table");
        let entry = TableEntry {
            offset: 20480,
            bytes: 32,
            crc: 0xdead_beef,
            pages: 1,
            proof: 0x0102_0304_0506_0708,
        };
        assert_eq!(table, [entry]);
        assert_eq!(encode_table(&table), examples[0]);
        let section = Section::decode(&examples[1], true).expect("a section");
        let page = PageEntry {
            local: 4,
            useq: Useq(3),
            crc: 0xdead_beef,
            digest: 0x0102_0304_0506_0708,
        };
        assert_eq!((section.pseq, &section.pages[..]), (Some(258), &[page][..]));
        assert!(section.sidecar.is_empty());
        assert_eq!(section.encode(), examples[1]);
        let used = decode_used(&examples[2]).expect("a list");
        let holder = CkptEpoch(9);
        assert_eq!(
            used,
            [UsedPage {
                entry: page,
                holder
            }]
        );
        assert_eq!(encode_used(&used), examples[2]);
    }
}
