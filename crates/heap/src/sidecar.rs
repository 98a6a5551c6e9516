//! The sidecar of an image: the hash indexes of a partition as they were when the image was made
//! (docs/formats/image.md).
//!
//! A restart reads the sidecar into arrays while image and log are still being read. This is possible because the place
//! of an entry follows from the entry alone. When the last record has been played, the entries are compared with the
//! pages. Two kinds of entries are removed: entries of rows with a changed [identity](crate::marks), and entries of
//! free slots. The restart then reads only the rows that have no entry. Without a sidecar all keys must be hashed and
//! compared. For ten million keys that takes longer than reading their image.
//!
//! Invariants: each slot has at most one entry. If a page that no record touched has a key without an entry, or an
//! entry without a key, the sidecar does not belong to this image.

use std::collections::BTreeSet;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{PartitionId, TableId};
use perdura_page::layout;
use perdura_page::{PageKind, SlotClass, row};

use crate::entry::Entry;
use crate::geometry::Salts;
use crate::hash_index::HashIndex;
use crate::latches::Heap;
use crate::marks::{Marks, SLOT_WORDS, Slots};
use crate::pages::{IDENTITY_UNKNOWN, Pages, flag, index};
use crate::partition::Partition;

/// The entries of a sidecar, by table.
#[derive(Default)]
pub struct Sidecar {
    /// The tables with their entries; `None` if the bytes are not a sidecar.
    tables: Option<Vec<(TableId, HashIndex)>>,
}

impl Heap {
    /// Reads the sidecar of a partition. The partition's latch is not needed. The entries are checked when
    /// [`build_indexes`](Partition::build_indexes) compares the sidecar with the pages.
    #[must_use]
    pub fn read_sidecar(&self, partition: PartitionId, bytes: &[u8]) -> Sidecar {
        let tables = read_tables(bytes, self.geometry().salts(partition));
        Sidecar { tables }
    }
}

/// Returns the local indexes of the pages in which a partition's sidecar lists rows of a table. `None`: the bytes are not
/// a sidecar.
#[must_use]
pub fn listed_pages(bytes: &[u8], table: TableId) -> Option<BTreeSet<u32>> {
    let (mut r, mut pages) = (Reader::new(bytes), BTreeSet::new());
    while r.remaining() > 0 {
        let id = TableId(r.u32()?);
        let count = usize::try_from(r.u32()?).ok()?;
        let entries = r.bytes(count.checked_mul(8)?)?;
        if id == table {
            let (entries, _) = entries.as_chunks();
            let entries = entries.iter().map(|raw| Entry(u64::from_le_bytes(*raw)));
            pages.extend(entries.map(Entry::local));
        }
    }
    Some(pages)
}

fn read_tables(bytes: &[u8], salts: Salts) -> Option<Vec<(TableId, HashIndex)>> {
    let (mut r, mut tables) = (Reader::new(bytes), Vec::new());
    while r.remaining() > 0 {
        let id = TableId(r.u32()?);
        let count = usize::try_from(r.u32()?).ok()?;
        let entries = r.bytes(count.checked_mul(8)?)?;
        let (entries, _) = entries.as_chunks();
        // These eight bytes would name a slot that no page has. Arrays use this value for empty places.
        if entries.contains(&[u8::MAX; 8]) {
            return None;
        }
        let entries = entries.iter().map(|raw| Entry(u64::from_le_bytes(*raw)));
        tables.push((id, HashIndex::of_ordered(salts.of_keys(), entries)));
    }
    Some(tables)
}

/// The state of a page while its entries are compared.
struct Page {
    table: TableId,
    /// The slots that hold a row, but for which no correct entry has been found yet.
    due: Slots,
    /// The slots of rows whose identity may have changed. Entries of these slots are void.
    void: Slots,
    /// True if no record touched the page.
    unmarked: bool,
    /// True if the page's rows must be read even for slots with entries.
    special: bool,
}

impl Page {
    /// Returns the state of a page that was never used.
    fn unused() -> Page {
        Page {
            table: TableId(0),
            due: [0; SLOT_WORDS],
            void: [u64::MAX; SLOT_WORDS],
            unmarked: true,
            special: false,
        }
    }
}

/// The rows that still lack entries after the sidecar's entries have been entered.
pub(crate) struct Entered {
    pages: Vec<Page>,
    /// Count of the correct entries.
    pub(crate) count: u64,
}

impl Entered {
    /// Returns a mask for one word of a page's bitmap. It has a bit for each slot with a row that still has to be
    /// entered.
    pub(crate) fn due(&self, local: u32, word: usize) -> u64 {
        self.pages[index(local)].due[word]
    }

    /// Returns whether the rows of a page must be read even if they have entries.
    pub(crate) fn is_special(&self, local: u32) -> bool {
        self.pages[index(local)].special
    }

    /// Returns whether no record touched a page. Each key of an untouched page has an entry.
    pub(crate) fn is_unmarked(&self, local: u32) -> bool {
        self.pages[index(local)].unmarked
    }
}

impl Partition {
    /// Appends the present hash indexes of all tables that are not key-addressed. For each table it appends the table's
    /// id (`u32`), the number of entries (`u32`) and the entries (`u64` each). For an image the caller calls this after
    /// the partition's last visit. Then every row that no later record touches is the same in the image.
    pub fn sidecar(&self, out: &mut Vec<u8>) {
        for (id, table) in self.tables.iter() {
            if table.form.keyed && !armed(Flaw::SidecarBelievedForKept) {
                continue;
            }
            out.put_u32(id.0);
            out.put_u32(u32::try_from(table.hash.len()).expect("rows of a table in a partition"));
            for entry in table.hash.iter() {
                out.put_u64(entry.0);
            }
        }
    }

    /// Enters the correct entries of a sidecar into the indexes. Returns `None` if the sidecar does not belong to this
    /// image. In that case some of the entries left in the indexes may be wrong.
    pub(crate) fn enter_sidecar(&mut self, sidecar: Sidecar) -> Option<Entered> {
        let mut pages: Vec<Page> = Vec::new();
        for local in self.pages.used() {
            pages.resize_with(index(local), Page::unused);
            pages.push(compared(&self.pages, &self.marks, local));
        }
        let (mut count, mut void) = (0, Vec::new());
        for (id, hash) in sidecar.tables? {
            let table = self.tables.get_mut(id);
            let believes_all = armed(Flaw::SidecarBelievedForKept);
            let Some(table) = table.filter(|table| !table.form.keyed || believes_all) else {
                continue;
            };
            assert_eq!(table.hash.len(), 0, "a sidecar is entered first");
            table.hash = hash;
            for entry in table.hash.iter() {
                match is_true(pages.get_mut(index(entry.local())), id, entry.slot())? {
                    true => count += 1,
                    false => void.push(entry),
                }
            }
            for entry in void.drain(..) {
                assert!(table.hash.remove(entry), "an entry that was listed");
            }
        }
        Some(Entered { pages, count })
    }
}

/// Returns whether an entry is correct; `None` if the entry shows that the sidecar does not belong to this image.
fn is_true(page: Option<&mut Page>, table: TableId, slot: usize) -> Option<bool> {
    let Some(page) = page else {
        return Some(false);
    };
    let (word, bit) = (slot / 64, 1 << (slot % 64));
    if page.void[word] & bit != 0 {
        return Some(false);
    }
    if page.table != table {
        return None;
    }
    if page.due[word] & bit == 0 {
        return (!page.unmarked).then_some(false);
    }
    page.due[word] &= !bit;
    Some(true)
}

fn compared(pages: &Pages, marks: &Marks, local: u32) -> Page {
    let page = pages.page(local);
    let slotted = layout::kind(page) == Some(PageKind::Slotted);
    let class = layout::class(page).unwrap_or_default();
    let words = if slotted { class.bitmap_words() } else { 0 };
    let mut due = [0; SLOT_WORDS];
    for (word, due) in due.iter_mut().enumerate().take(words) {
        *due = layout::bitmap_word(page, word);
    }
    let identity = pages.states[index(local)].identity;
    let identity = (identity != IDENTITY_UNKNOWN).then(|| usize::from(identity));
    let mut void = marks.void_slots(local, class, identity);
    forget_voids(page, class, marks.is_all_marked(local), &mut void);
    Page {
        table: layout::table(page),
        due,
        void,
        unmarked: marks.is_unmarked(local),
        special: pages.has_flag(local, flag::SPECIAL),
    }
}

/// Clears the void marks of slots if a seeded bug is armed, so that void entries count as correct.
fn forget_voids(page: &[u8], class: SlotClass, all: bool, void: &mut Slots) {
    if armed(if all {
        Flaw::PageClassKept
    } else {
        Flaw::SlotKeyKept
    }) {
        *void = [0; SLOT_WORDS];
    }
    let slotted = layout::kind(page) == Some(PageKind::Slotted);
    if armed(Flaw::KindInPlaceKept) && slotted && !all {
        let special = |slot: &usize| row::is_special(layout::slot(page, class, *slot));
        for slot in layout::taken(page, class).filter(special) {
            void[slot / 64] &= !(1 << (slot % 64));
        }
    }
}
