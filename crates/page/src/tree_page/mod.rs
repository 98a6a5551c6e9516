#![doc = include_str!("../../../../docs/formats/tree-page.md")]

mod edit;

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, varint_len};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Gsn, Pid, TableId};
use std::fmt;

pub use perdura_base::fields::Malformed;
use perdura_base::fields::malformed;

pub use edit::{Full, NodeMut, NodeSpec, format, separator_between};

/// The sizes that a page may have.
pub const SIZES: std::ops::RangeInclusive<usize> = 512..=32_768;
/// The length of the header, bytes. The slots follow the header.
pub const HEADER_BYTES: usize = 48;

const CRC: usize = 0;
const KIND: usize = 4;
const LEVEL: usize = 5;
const SLOTS: usize = 6;
const PID: usize = 8;
const TABLE: usize = 12;
const PLSN: usize = 16;
const DLSN: usize = 24;
const DATABASE: usize = 32;
const CELLS: usize = 40;
const DEAD: usize = 42;
const LOW: usize = 44;
const HIGH: usize = 46;

/// The value of the high fence's length in a page without an upper bound.
const ENDLESS: u16 = u16::MAX;

/// The kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Holds the root page of each table, the first page that was never used, and the first free page.
    Meta,
    /// Holds keys, each with a page of the level below.
    Inner,
    /// Holds rows.
    Leaf,
    /// Holds a piece of a long value.
    Chain,
    /// Holds nothing.
    Free,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Meta, Kind::Inner, Kind::Leaf, Kind::Chain, Kind::Free];

    fn code(self) -> u8 {
        match self {
            Kind::Meta => 1,
            Kind::Inner => 2,
            Kind::Leaf => 3,
            Kind::Chain => 4,
            Kind::Free => 5,
        }
    }

    fn of_code(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Returns the length of the longest key that a page of the given size may have, bytes.
#[must_use]
pub fn key_bytes_max(page_bytes: usize) -> usize {
    page_bytes / 16
}

/// Returns the length of the longest cell that a leaf of the given size may have, bytes.
#[must_use]
pub fn cell_bytes_max(page_bytes: usize) -> usize {
    page_bytes / 4
}

/// Returns the size of a leaf's cell, bytes.
#[must_use]
pub fn cell_bytes(key: &[u8], value: &[u8]) -> usize {
    let lengths = [key, value].map(|part| varint_len(to_u64(part.len())) + part.len());
    lengths[0] + lengths[1]
}

/// A page that follows the format.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    bytes: &'a [u8],
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("pid", &self.pid())
            .field("kind", &self.kind())
            .field("slots", &self.len())
            .field("plsn", &self.plsn())
            .field("dlsn", &self.dlsn())
            .finish_non_exhaustive()
    }
}

/// A slot's cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell<'a> {
    key: &'a [u8],
    /// The value in a leaf; the child's `Pid` in an inner page.
    rest: &'a [u8],
    bytes: usize,
}

/// The slots and cells of a page.
#[derive(Clone, Copy)]
struct Cells<'a> {
    /// The page's bytes before the fences (the bounds of the keys).
    bytes: &'a [u8],
    is_inner: bool,
}

impl<'a> Cells<'a> {
    /// Returns the cell that begins at `begin`, if it fits before the fences.
    #[inline]
    fn at(self, begin: usize) -> Option<Cell<'a>> {
        let mut reader = Reader::new(self.bytes.get(begin..)?);
        let key_bytes = reader.varint_usize()?;
        let rest_bytes = if self.is_inner {
            4
        } else {
            reader.varint_usize()?
        };
        Some(Cell {
            key: reader.bytes(key_bytes)?,
            rest: reader.bytes(rest_bytes)?,
            bytes: reader.at(),
        })
    }

    #[inline]
    fn of_slot(self, at: usize) -> Cell<'a> {
        let slot = self.bytes.get(HEADER_BYTES + 2 * at..);
        let begin = slot.and_then(<[u8]>::first_chunk);
        let begin = begin.map(|begin| usize::from(u16::from_le_bytes(*begin)));
        let cell = begin.and_then(|begin| self.at(begin));
        cell.expect("the page was checked when it was read")
    }
}

impl<'a> Node<'a> {
    /// Reads a page that was found at `pid` in the tree of `database`, and checks all of it.
    ///
    /// # Errors
    /// Returns the first fault of the format. Size and checksum are checked before everything else.
    pub fn open(bytes: &'a [u8], pid: Pid, database: [u8; 8]) -> Result<Node<'a>, Malformed> {
        let size = bytes.len();
        if !size.is_power_of_two() || !SIZES.contains(&size) {
            return Err(malformed(0, "a page of 512 to 32768 bytes, a power of two"));
        }
        let node = Node { bytes };
        if node.u32(CRC) != crc32c(&bytes[KIND..]) {
            return Err(malformed(CRC, "the checksum of what follows"));
        }
        let kind = Kind::of_code(bytes[KIND]).ok_or(malformed(KIND, "a kind of page"))?;
        let is_node = matches!(kind, Kind::Meta | Kind::Inner | Kind::Leaf);
        let holds = [
            (node.pid() == pid, PID, "the page of this place"),
            (
                bytes[DATABASE..CELLS] == database,
                DATABASE,
                "a page of this database",
            ),
            (
                (kind == Kind::Inner) == (node.level() > 0),
                LEVEL,
                "a level above 0 of an inner page, and of no other",
            ),
            (
                is_node || node.is_bare(),
                SLOTS,
                "no slots but in meta, inner and leaf pages",
            ),
        ];
        match holds.iter().find(|(holds, ..)| !holds) {
            Some((_, at, expected)) => Err(malformed(*at, expected)),
            None => node.check_cells().map(|()| node),
        }
    }

    /// Wraps a page that [`open`](Self::open) has checked or [`format()`] has made.
    #[must_use]
    pub fn over(bytes: &'a [u8]) -> Node<'a> {
        Node { bytes }
    }

    /// Returns this page's successor in the list of free pages. `None`: this page is the last.
    #[must_use]
    pub fn next_free(&self) -> Option<Pid> {
        assert_eq!(self.kind(), Kind::Free, "only free pages are in a row");
        let next = self.u32(HEADER_BYTES);
        (next != 0).then_some(Pid(next))
    }

    /// Returns whether the page is so empty that it should be merged with a neighbour.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        4 * self.filled() < self.bytes.len() - HEADER_BYTES
    }

    /// Returns the number of bytes that slots and cells take.
    fn filled(&self) -> usize {
        let dead = usize::from(self.u16(DEAD));
        2 * self.len() + self.fences() - usize::from(self.u16(CELLS)) - dead
    }

    /// Returns whether this page and its right neighbour fit in one page, with a quarter of the room left over.
    #[must_use]
    pub fn may_take(&self, right: &Node<'_>) -> bool {
        let filled = self.filled() + right.filled();
        4 * filled <= 3 * (self.bytes.len() - HEADER_BYTES - 2 * key_bytes_max(self.bytes.len()))
    }

    /// Returns whether the page has no slots, no cells and no fences.
    fn is_bare(&self) -> bool {
        let fields = [SLOTS, DEAD, LOW].map(|at| self.u16(at));
        fields == [0; 3]
            && usize::from(self.u16(CELLS)) == self.bytes.len()
            && self.u16(HIGH) == ENDLESS
    }

    fn check_cells(&self) -> Result<(), Malformed> {
        let size = self.bytes.len();
        let (cells, slots) = (usize::from(self.u16(CELLS)), self.len());
        let slots_end = HEADER_BYTES + 2 * slots;
        let key_max = key_bytes_max(size);
        let high = usize::from(self.u16(HIGH));
        if usize::from(self.u16(LOW)) > key_max || (high > key_max && self.u16(HIGH) != ENDLESS) {
            return Err(malformed(LOW, "fences that are no longer than keys"));
        }
        if !(slots_end..=self.fences()).contains(&cells) {
            return Err(malformed(CELLS, "cells between the slots and the fences"));
        }
        if self.high().is_some_and(|high| self.low() >= high) {
            return Err(malformed(LOW, "a low fence below the high one"));
        }
        let mut ranges = Vec::with_capacity(slots);
        let mut before: Option<&[u8]> = None;
        for at in 0..slots {
            let slot_at = HEADER_BYTES + 2 * at;
            let begin = usize::from(self.u16(slot_at));
            let cell = (begin >= cells).then(|| self.cells().at(begin)).flatten();
            let cell = cell.ok_or(malformed(slot_at, "the begin of a cell"))?;
            let is_short = cell.key.len() <= key_max
                && (self.kind() == Kind::Inner || cell.bytes <= cell_bytes_max(size));
            if !is_short {
                return Err(malformed(begin, "a cell that is no longer than allowed"));
            }
            if before.is_some_and(|before| before >= cell.key) || !self.covers(cell.key) {
                return Err(malformed(slot_at, "ascending keys between the fences"));
            }
            before = Some(cell.key);
            ranges.push((begin, begin + cell.bytes));
        }
        ranges.sort_unstable();
        let used: usize = ranges.iter().map(|(begin, end)| end - begin).sum();
        let is_apart = ranges.windows(2).all(|two| two[0].1 <= two[1].0);
        let dead = usize::from(self.u16(DEAD));
        if !is_apart || used + dead != self.fences() - cells {
            return Err(malformed(
                DEAD,
                "cells that lie apart, and what else is dead",
            ));
        }
        let begins_at_low = slots > 0 && self.key(0) == self.low();
        if self.kind() == Kind::Inner && !begins_at_low {
            return Err(malformed(SLOTS, "a first child at the low fence"));
        }
        Ok(())
    }

    /// Returns its slots and cells. A search calls this once, so it reads the header only once.
    fn cells(&self) -> Cells<'a> {
        Cells {
            bytes: &self.bytes[..self.fences()],
            is_inner: self.kind() == Kind::Inner,
        }
    }

    fn cell(&self, at: usize) -> Cell<'a> {
        assert!(at < self.len(), "slot {at} of {}", self.len());
        self.cells().of_slot(at)
    }

    /// Returns the start of the fences, after the cells.
    fn fences(&self) -> usize {
        let high = match self.u16(HIGH) {
            ENDLESS => 0,
            high => usize::from(high),
        };
        self.bytes.len() - high - usize::from(self.u16(LOW))
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn u32(&self, at: usize) -> u32 {
        let field = self.bytes[at..].first_chunk();
        u32::from_le_bytes(*field.expect("a field of the header"))
    }

    fn u64(&self, at: usize) -> u64 {
        let field = self.bytes[at..].first_chunk();
        u64::from_le_bytes(*field.expect("a field of the header"))
    }

    /// Returns its place in the file.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid(self.u32(PID))
    }

    /// Returns the first 8 bytes of the uuid of its database.
    #[must_use]
    pub fn database(&self) -> [u8; 8] {
        let field = self.bytes[DATABASE..CELLS].first_chunk();
        *field.expect("a field of the header")
    }

    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::of_code(self.bytes[KIND]).unwrap_or(Kind::Free)
    }

    /// Returns the number of levels below it.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.bytes[LEVEL]
    }

    /// Returns its table.
    #[must_use]
    pub fn table(&self) -> TableId {
        TableId(self.u32(TABLE))
    }

    /// Returns the operation number of the newest operation on the page.
    #[must_use]
    pub fn plsn(&self) -> Gsn {
        Gsn(self.u64(PLSN))
    }

    /// Returns the operation number of the page's newest change of structure.
    #[must_use]
    pub fn dlsn(&self) -> Gsn {
        Gsn(self.u64(DLSN))
    }

    /// Returns the number of its slots.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.u16(SLOTS))
    }

    /// Returns whether it has no slots.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the low fence: no key is below this bound.
    #[must_use]
    pub fn low(&self) -> &'a [u8] {
        let begin = self.bytes.len() - usize::from(self.u16(LOW));
        &self.bytes[begin..]
    }

    /// Returns the high fence: all keys are below this bound. `None`: the page has no upper bound.
    #[must_use]
    pub fn high(&self) -> Option<&'a [u8]> {
        let begin = self.fences();
        let end = self.bytes.len() - usize::from(self.u16(LOW));
        (self.u16(HIGH) != ENDLESS).then(|| &self.bytes[begin..end])
    }

    /// Returns whether a key belongs between its fences.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        key >= self.low() && self.high().is_none_or(|high| key < high)
    }

    /// Returns the slot of a key.
    ///
    /// # Errors
    /// If the page does not have the key: the slot at which the key would be inserted.
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let cells = self.cells();
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            match cells.of_slot(middle).key.cmp(key) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Err(from)
    }

    /// Returns the key of a slot.
    #[must_use]
    pub fn key(&self, at: usize) -> &'a [u8] {
        self.cell(at).key
    }

    /// Returns the value of a slot. The page is a leaf or the meta page.
    #[must_use]
    pub fn value(&self, at: usize) -> &'a [u8] {
        assert_ne!(self.kind(), Kind::Inner, "an inner page has children");
        self.cell(at).rest
    }

    /// Returns the child of an inner page's slot.
    #[must_use]
    pub fn child(&self, at: usize) -> Pid {
        assert_eq!(self.kind(), Kind::Inner, "children are in inner pages");
        let rest = self.cell(at).rest.first_chunk();
        Pid(u32::from_le_bytes(*rest.expect("four bytes")))
    }

    /// Returns the child that holds a key.
    #[must_use]
    pub fn child_of(&self, key: &[u8]) -> Pid {
        assert!(self.covers(key), "the key belongs to another page");
        let at = self.find(key).unwrap_or_else(|at| at - 1);
        self.child(at)
    }

    /// Returns the number of bytes that are free for a new cell and its slot after the cells are moved together. Room
    /// for the longest possible high fence stays reserved.
    #[must_use]
    pub fn room(&self) -> usize {
        let high = self.high().map_or(0, <[u8]>::len);
        let reserve = if armed(Flaw::NoRoomForFence) {
            0
        } else {
            key_bytes_max(self.bytes.len()) - high
        };
        (self.gap() + usize::from(self.u16(DEAD))).saturating_sub(reserve)
    }

    /// Returns whether a row can be put into this leaf without a split.
    #[must_use]
    pub fn has_room_for(&self, key: &[u8], value: &[u8]) -> bool {
        let bytes = cell_bytes(key, value);
        match self.find(key) {
            Ok(at) => bytes <= self.room() + self.cell(at).bytes,
            Err(_) => bytes + 2 <= self.room(),
        }
    }

    /// Returns the number of bytes between slots and cells.
    fn gap(&self) -> usize {
        usize::from(self.u16(CELLS)) - HEADER_BYTES - 2 * self.len()
    }

    /// Returns the number of bytes that slots, cells and fences take.
    #[must_use]
    pub fn used(&self) -> usize {
        self.bytes.len() - HEADER_BYTES - self.gap() - usize::from(self.u16(DEAD))
    }

    /// Returns the first slot of the right half for a split into two halves of about equal size. It is never slot 0.
    ///
    /// # Panics
    /// If the page has less than two slots.
    #[must_use]
    pub fn middle(&self) -> usize {
        assert!(self.len() >= 2, "a page with one slot is not split");
        let all: usize = (0..self.len()).map(|at| self.cell(at).bytes).sum();
        let mut before = 0;
        let middle = (0..self.len()).find(|at| {
            before += self.cell(*at).bytes;
            2 * before >= all
        });
        middle.unwrap_or(0).clamp(1, self.len() - 1)
    }

    /// Returns all of its bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes before the free space and the bytes after the free space. Dead bytes, if there are any, are in
    /// the second part.
    #[must_use]
    pub fn parts(&self) -> (&'a [u8], &'a [u8]) {
        // A free page has the `Pid` of the next free page in the place of its slots.
        let words = if self.kind() == Kind::Free {
            2
        } else {
            self.len()
        };
        let slots_end = HEADER_BYTES + 2 * words;
        let cells = usize::from(self.u16(CELLS));
        (&self.bytes[..slots_end], &self.bytes[cells..])
    }
}
