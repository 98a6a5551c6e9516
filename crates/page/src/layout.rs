#![doc = include_str!("../../../docs/formats/page.md")]

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{CkptEpoch, PageId, TableId, Useq};

use crate::class::SlotClass;
use crate::row;

pub use crate::class::HEADER_BYTES;
pub use perdura_base::limits::PAGE_BYTES;

/// The length of the head of a page, bytes. The head's fields are assigned directly and never logged as a difference.
/// The logged region is the rest of the page.
pub const META_BYTES: usize = 16;
/// The number of content bytes that fit on a page of a large value.
pub const CHAIN_BYTES: usize = PAGE_BYTES - HEADER_BYTES;
/// The `next` field of the last page of a chain.
pub const NO_PAGE: u32 = u32::MAX;
/// A page that was never used.
pub static ZERO_PAGE: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

const EPOCH: usize = 0;
const USEQ: usize = 8;
const PAGE_ID: usize = 12;
const TABLE: usize = 16;
const CLASS: usize = 20;
const KIND: usize = 22;
const NEXT: usize = 24;
const USED: usize = 28;

/// The kind of a page's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Nothing; the bytes after the header are garbage.
    Free,
    /// A bitmap and slots of one class.
    Slotted,
    /// A piece of one large value.
    Large,
}

impl PageKind {
    /// Returns the kind's byte in the header.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            PageKind::Free => 0,
            PageKind::Slotted => 1,
            PageKind::Large => 2,
        }
    }

    /// Returns the kind that has a code: the inverse of [`code`](Self::code).
    #[must_use]
    pub fn from_code(code: u8) -> Option<PageKind> {
        match code {
            0 => Some(PageKind::Free),
            1 => Some(PageKind::Slotted),
            2 => Some(PageKind::Large),
            _ => None,
        }
    }
}

/// The decoded header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHeader {
    /// The epoch of the checkpoint that visited the page last. The page's next record gets this epoch as its tag.
    pub epoch: CkptEpoch,
    /// The sequence number of the page's last update.
    pub useq: Useq,
    /// The page.
    pub page_id: PageId,
    /// The owning table; 0 if the page is free.
    pub table: TableId,
    /// On a slotted page: the slot class, an index into the table of classes. On other pages: class 0.
    pub class: SlotClass,
    /// The kind of the page's contents.
    pub kind: PageKind,
    /// On a page of a large value: the next page of the value or [`NO_PAGE`]. On other pages: 0.
    pub next: u32,
    /// On a page of a large value: the number of content bytes. On other pages: 0.
    pub used: u32,
}

impl PageHeader {
    /// Reads and checks the header of `page`. `None`: a field is out of its range or a reserved byte is not zero.
    #[must_use]
    pub fn decode(page: &[u8]) -> Option<PageHeader> {
        let mut r = Reader::new(page);
        let header = PageHeader {
            epoch: CkptEpoch(r.u64()?),
            useq: Useq(r.u32()?),
            page_id: PageId(r.u32()?),
            table: TableId(r.u32()?),
            class: SlotClass::new(r.u16()?)?,
            kind: PageKind::from_code(r.u8()?)?,
            next: {
                r.zeros(1)?;
                r.u32()?
            },
            used: r.u32()?,
        };
        r.zeros(HEADER_BYTES - USED - 4)?;
        let sound = match header.kind {
            PageKind::Free => {
                header.table.0 == 0
                    && header.class.index() == 0
                    && header.next == 0
                    && header.used == 0
            }
            PageKind::Slotted => header.next == 0 && header.used == 0,
            PageKind::Large => {
                header.class.index() == 0
                    && usize::try_from(header.used).is_ok_and(|n| (1..=CHAIN_BYTES).contains(&n))
            }
        };
        sound.then_some(header)
    }

    /// Returns the 64 bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.put_u64(self.epoch.0);
        out.put_u32(self.useq.0);
        out.put_u32(self.page_id.0);
        out.put_u32(self.table.0);
        out.put_u16(self.class.code());
        out.put_u8(self.kind.code());
        out.put_u8(0);
        out.put_u32(self.next);
        out.put_u32(self.used);
        out.put_zeros(HEADER_BYTES - out.len());
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&out);
        header
    }
}

fn get<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&page[at..at + N]);
    out
}

fn set(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns the page's checkpoint epoch.
#[must_use]
pub fn epoch(page: &[u8]) -> CkptEpoch {
    CkptEpoch(u64::from_le_bytes(get(page, EPOCH)))
}

/// Assigns the page's checkpoint epoch.
pub fn set_epoch(page: &mut [u8], epoch: CkptEpoch) {
    set(page, EPOCH, &epoch.0.to_le_bytes());
}

/// Returns the page's last update number.
#[must_use]
pub fn useq(page: &[u8]) -> Useq {
    Useq(u32::from_le_bytes(get(page, USEQ)))
}

/// Assigns the page's last update number.
pub fn set_useq(page: &mut [u8], useq: Useq) {
    set(page, USEQ, &useq.0.to_le_bytes());
}

/// Returns the page's id from its header.
#[must_use]
pub fn page_id(page: &[u8]) -> PageId {
    PageId(u32::from_le_bytes(get(page, PAGE_ID)))
}

/// Assigns the page's id.
pub fn set_page_id(page: &mut [u8], id: PageId) {
    set(page, PAGE_ID, &id.0.to_le_bytes());
}

/// Returns the owning table.
#[must_use]
pub fn table(page: &[u8]) -> TableId {
    TableId(u32::from_le_bytes(get(page, TABLE)))
}

/// Returns the slot class; `None` if the field is out of range.
#[must_use]
pub fn class(page: &[u8]) -> Option<SlotClass> {
    SlotClass::new(u16::from_le_bytes(get(page, CLASS)))
}

/// Returns the kind of the page's contents; `None` if the field is out of range.
#[must_use]
pub fn kind(page: &[u8]) -> Option<PageKind> {
    PageKind::from_code(page[KIND])
}

/// Returns the next page of a large value, from the header of one of its pages. `None`: this page is the last.
#[must_use]
pub fn next(page: &[u8]) -> Option<PageId> {
    let next = u32::from_le_bytes(get(page, NEXT));
    (next != NO_PAGE).then_some(PageId(next))
}

/// Returns the number of content bytes on a page of a large value, from its header.
#[must_use]
pub fn used(page: &[u8]) -> u32 {
    u32::from_le_bytes(get(page, USED))
}

/// Writes the logged part of a page's header: bytes 16 to 64. The page holds no piece of a large value.
pub fn format(page: &mut [u8], table: TableId, class: SlotClass, kind: PageKind) {
    begin(page, table, class, kind);
    debug_assert!(PageHeader::decode(page).is_some(), "a reader takes it");
    debug_assert_eq!(self::class(page), Some(class));
}

/// Writes the logged part of a page's header: bytes 16 to 64. The page holds a piece of a large value.
pub fn format_large(page: &mut [u8], table: TableId, next: u32, used: u32) {
    begin(page, table, SlotClass::default(), PageKind::Large);
    set(page, NEXT, &next.to_le_bytes());
    set(page, USED, &used.to_le_bytes());
    debug_assert!(PageHeader::decode(page).is_some(), "a reader takes it");
}

/// Writes the fields that headers of every kind have.
fn begin(page: &mut [u8], table: TableId, class: SlotClass, kind: PageKind) {
    page[META_BYTES..HEADER_BYTES].fill(0);
    set(page, TABLE, &table.0.to_le_bytes());
    set(page, CLASS, &class.code().to_le_bytes());
    page[KIND] = kind.code();
}

/// Returns the bytes of a slot.
#[must_use]
pub fn slot(page: &[u8], class: SlotClass, slot: usize) -> &[u8] {
    &page[class.slot_range(slot)]
}

/// Returns word `word` of the bitmap. Its bit 0 is for slot `64 * word`, its bit 1 for the next slot, and so on.
#[must_use]
pub fn bitmap_word(page: &[u8], word: usize) -> u64 {
    u64::from_le_bytes(get(page, HEADER_BYTES + 8 * word))
}

/// Returns whether the slot is taken.
#[must_use]
pub fn is_taken(page: &[u8], slot: usize) -> bool {
    bitmap_word(page, slot / 64) >> (slot % 64) & 1 == 1
}

/// Takes or frees the slot.
pub fn set_taken(page: &mut [u8], slot: usize, taken: bool) {
    let byte = &mut page[HEADER_BYTES + slot / 8];
    if taken {
        *byte |= 1 << (slot % 8);
    } else {
        *byte &= !(1 << (slot % 8));
    }
}

/// The properties of a page's rows that matter to the rows' index entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identities {
    /// The length of the longest [identity](row::identity_bytes), bytes.
    pub bytes_max: usize,
    /// True if one of the rows is [special](row::is_special).
    pub special: bool,
}

/// Returns the [`Identities`] of a page's rows. `None`: a row cannot be read.
#[must_use]
pub fn identities(page: &[u8]) -> Option<Identities> {
    let mut out = Identities::default();
    if kind(page)? != PageKind::Slotted {
        return Some(out);
    }
    let class = class(page)?;
    for at in taken(page, class) {
        if at >= class.slots() {
            return None;
        }
        let slot = slot(page, class, at);
        out.bytes_max = out.bytes_max.max(row::identity_bytes(slot)?);
        out.special |= row::is_special(slot);
    }
    debug_assert!(out.bytes_max <= class.bytes(), "an identity is in its slot");
    Some(out)
}

/// Returns the number of taken slots.
#[must_use]
pub fn taken_count(page: &[u8], class: SlotClass) -> usize {
    (0..class.bitmap_words())
        .map(|w| usize::try_from(bitmap_word(page, w).count_ones()).unwrap_or(64))
        .sum()
}

/// Returns the lowest free slot.
#[must_use]
pub fn first_free(page: &[u8], class: SlotClass) -> Option<usize> {
    // Most words of a large page are full, so the search for another one is a plain loop.
    let bitmap = &page[HEADER_BYTES..HEADER_BYTES + 8 * class.bitmap_words()];
    let (words, _) = bitmap.as_chunks::<8>();
    let word = words.iter().position(|word| *word != [u8::MAX; 8])?;
    let bits = u64::from_le_bytes(words[word]);
    let slot = 64 * word + usize::try_from(bits.trailing_ones()).unwrap_or(64);
    (slot < class.slots()).then_some(slot)
}

/// Returns, in ascending order, the slots whose bits are set in the bitmap. On a damaged page, these may include slots
/// beyond the last.
pub fn taken(page: &[u8], class: SlotClass) -> impl Iterator<Item = usize> + '_ {
    (0..class.bitmap_words()).flat_map(move |w| {
        let mut bits = bitmap_word(page, w);
        std::iter::from_fn(move || {
            (bits != 0).then(|| {
                let bit = usize::try_from(bits.trailing_zeros()).unwrap_or(64);
                bits &= bits - 1;
                64 * w + bit
            })
        })
    })
}
