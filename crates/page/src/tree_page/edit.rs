//! Changes of a tree's pages in memory. The checksum of a page is set just before the page is written.

use super::{
    CELLS, CRC, DATABASE, DEAD, DLSN, ENDLESS, HEADER_BYTES, HIGH, KIND, Kind, LEVEL, LOW, Node,
    PID, PLSN, SIZES, SLOTS, TABLE, cell_bytes_max, key_bytes_max,
};
use perdura_base::checksum::crc32c;
use perdura_base::cursor::Writer;
use perdura_base::num::to_u64;
use perdura_base::{Gsn, Pid, TableId};
use std::ops::Range;

/// The error for a page that has no room for a cell and must be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The specification of a new page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSpec<'a> {
    /// Its kind.
    pub kind: Kind,
    /// The number of levels below it.
    pub level: u8,
    /// Its place in the file.
    pub pid: Pid,
    /// Its table.
    pub table: TableId,
    /// First 8 bytes of the database's uuid.
    pub database: [u8; 8],
    /// The low fence: no key of the page is below it.
    pub low: &'a [u8],
    /// The high fence: all keys of the page are below it. `None`: the page has no upper bound.
    pub high: Option<&'a [u8]>,
}

/// Returns a new page without cells.
///
/// # Panics
/// If the size is wrong, the fences are too long or in the wrong order, or the level does not fit the kind.
#[must_use]
pub fn format(page_bytes: usize, spec: &NodeSpec<'_>) -> Box<[u8]> {
    assert!(page_bytes.is_power_of_two() && SIZES.contains(&page_bytes));
    assert_eq!(spec.kind == Kind::Inner, spec.level > 0);
    assert!(spec.high.is_none_or(|high| spec.low < high));
    let fences = [Some(spec.low), spec.high];
    let longest = fences.into_iter().flatten().map(<[u8]>::len).max();
    assert!(longest <= Some(key_bytes_max(page_bytes)));
    let mut bytes = vec![0; page_bytes].into_boxed_slice();
    bytes[KIND] = spec.kind.code();
    bytes[LEVEL] = spec.level;
    let low = page_bytes - spec.low.len();
    let high = low - spec.high.map_or(0, <[u8]>::len);
    bytes[low..].copy_from_slice(spec.low);
    bytes[high..low].copy_from_slice(spec.high.unwrap_or(b""));
    let mut node = NodeMut { bytes: &mut bytes };
    node.put_bytes(PID, &spec.pid.0.to_le_bytes());
    node.put_bytes(TABLE, &spec.table.0.to_le_bytes());
    node.put_bytes(DATABASE, &spec.database);
    node.put_u16(CELLS, high);
    node.put_u16(LOW, spec.low.len());
    node.put_u16(HIGH, spec.high.map_or(usize::from(ENDLESS), <[u8]>::len));
    bytes
}

/// Returns the shortest key that is above `left` and not above `right`. The key can separate two leaves if `left` is
/// the last key of the first leaf, and `right` is the first key of the second leaf.
///
/// # Panics
/// If `left` is not below `right`.
#[must_use]
pub fn separator_between<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    assert!(left < right);
    let alike = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    let separator = &right[..=alike];
    debug_assert!(left < separator && separator <= right);
    separator
}

/// A page that follows the format and may be changed.
#[derive(Debug)]
pub struct NodeMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// Wraps a page that [`Node::open`] has checked or [`format()`] has made.
    pub fn over(bytes: &'a mut [u8]) -> Self {
        NodeMut { bytes }
    }

    /// Returns the page for reading.
    #[must_use]
    pub fn node(&self) -> Node<'_> {
        Node::over(self.bytes)
    }

    fn put_bytes(&mut self, at: usize, field: &[u8]) {
        self.bytes[at..at + field.len()].copy_from_slice(field);
    }

    fn put_u16(&mut self, at: usize, value: usize) {
        let value = u16::try_from(value).expect("an offset in a page");
        self.put_bytes(at, &value.to_le_bytes());
    }

    /// Sets the number of the newest operation on the page.
    pub fn set_plsn(&mut self, plsn: Gsn) {
        assert!(plsn >= self.node().plsn(), "operations come in their order");
        self.put_bytes(PLSN, &plsn.0.to_le_bytes());
    }

    /// Sets the number of the page's newest change of structure.
    pub fn set_dlsn(&mut self, dlsn: Gsn) {
        assert!(
            dlsn >= self.node().dlsn(),
            "changes of structure come in their order"
        );
        self.put_bytes(DLSN, &dlsn.0.to_le_bytes());
    }

    /// Sets the checksum. Must be called just before the page is written.
    pub fn seal(&mut self) {
        let crc = crc32c(&self.bytes[KIND..]);
        self.put_bytes(CRC, &crc.to_le_bytes());
    }

    /// Puts a row into a leaf or the meta page. Returns whether its key is new.
    ///
    /// # Errors
    /// Returns [`Full`] if the page has no room. Then nothing has changed.
    ///
    /// # Panics
    /// If the key is not between the fences, or the row is longer than a cell may be.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Full> {
        assert!(matches!(self.node().kind(), Kind::Leaf | Kind::Meta));
        let mut cell = Vec::with_capacity(6 + key.len() + value.len());
        cell.put_varint(to_u64(key.len()));
        cell.put_varint(to_u64(value.len()));
        cell.put(key);
        cell.put(value);
        assert!(cell.len() <= cell_bytes_max(self.bytes.len()));
        self.put_cell(key, &cell)
    }

    /// Puts a child into an inner page. Returns whether its key is new.
    ///
    /// # Errors
    /// Returns [`Full`] if the page has no room. Then nothing has changed.
    ///
    /// # Panics
    /// If the key is not between the fences, or is longer than a key may be.
    pub fn put_child(&mut self, key: &[u8], child: Pid) -> Result<bool, Full> {
        assert_eq!(self.node().kind(), Kind::Inner);
        let mut cell = Vec::with_capacity(8 + key.len());
        cell.put_varint(to_u64(key.len()));
        cell.put(key);
        cell.put_u32(child.0);
        self.put_cell(key, &cell)
    }

    fn put_cell(&mut self, key: &[u8], cell: &[u8]) -> Result<bool, Full> {
        assert!(self.node().covers(key) && key.len() <= key_bytes_max(self.bytes.len()));
        let found = self.node().find(key);
        if let Ok(at) = found {
            let old = self.node().cell(at).bytes;
            if old == cell.len() {
                let begin = usize::from(self.node().u16(HEADER_BYTES + 2 * at));
                self.put_bytes(begin, cell);
                return Ok(false);
            }
            if self.node().room() + old < cell.len() {
                return Err(Full);
            }
            self.remove_at(at);
        } else if self.node().room() < cell.len() + 2 {
            return Err(Full);
        }
        if self.node().gap() < cell.len() + 2 {
            self.compact();
        }
        let at = found.unwrap_or_else(|at| at);
        let begin = usize::from(self.node().u16(CELLS)) - cell.len();
        self.put_bytes(begin, cell);
        self.put_u16(CELLS, begin);
        let (slot, end) = (HEADER_BYTES + 2 * at, HEADER_BYTES + 2 * self.node().len());
        self.bytes.copy_within(slot..end, slot + 2);
        self.put_u16(slot, begin);
        self.put_u16(SLOTS, self.node().len() + 1);
        Ok(found.is_err())
    }

    /// Removes a key. Returns whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let found = self.node().find(key);
        if let Ok(at) = found {
            self.remove_at(at);
        }
        found.is_ok()
    }

    fn remove_at(&mut self, at: usize) {
        let dead = usize::from(self.node().u16(DEAD)) + self.node().cell(at).bytes;
        let (slot, end) = (HEADER_BYTES + 2 * at, HEADER_BYTES + 2 * self.node().len());
        self.bytes.copy_within(slot + 2..end, slot);
        self.put_u16(SLOTS, self.node().len() - 1);
        self.put_u16(DEAD, dead);
    }

    /// Moves the cells together, so that no bytes between them are dead.
    fn compact(&mut self) {
        let node = self.node();
        let (low, high) = (node.low().to_vec(), node.high().map(<[u8]>::to_vec));
        let page = self.part(0..self.node().len(), node.pid(), &low, high.as_deref());
        self.bytes.copy_from_slice(&page);
        debug_assert_eq!(self.node().u16(DEAD), 0);
    }

    /// Returns a page at `pid` with the given fences and the cells of the given slots. Everything else is copied from
    /// this page.
    fn part(&self, slots: Range<usize>, pid: Pid, low: &[u8], high: Option<&[u8]>) -> Box<[u8]> {
        let node = self.node();
        let database = node.bytes[DATABASE..].first_chunk();
        let spec = NodeSpec {
            kind: node.kind(),
            level: node.level(),
            pid,
            table: node.table(),
            database: *database.expect("a field of the header"),
            low,
            high,
        };
        let mut bytes = format(self.bytes.len(), &spec);
        let mut part = NodeMut { bytes: &mut bytes };
        part.put_bytes(PLSN, &node.plsn().0.to_le_bytes());
        part.put_bytes(DLSN, &node.dlsn().0.to_le_bytes());
        let mut begin = part.node().fences();
        for (to, from) in slots.clone().enumerate() {
            let cell = node.cell(from).bytes;
            let at = usize::from(node.u16(HEADER_BYTES + 2 * from));
            begin -= cell;
            part.put_bytes(begin, &node.bytes[at..at + cell]);
            part.put_u16(HEADER_BYTES + 2 * to, begin);
        }
        part.put_u16(CELLS, begin);
        part.put_u16(SLOTS, slots.len());
        bytes
    }

    /// Returns the right half of a split: a page at `pid` with all keys that are equal to `separator` or above it.
    ///
    /// # Panics
    /// If the separator is not between the fences, or equals the low fence.
    #[must_use]
    pub fn right_of(&self, separator: &[u8], pid: Pid) -> Box<[u8]> {
        let node = self.node();
        assert!(node.covers(separator) && separator > node.low());
        let at = node.find(separator).unwrap_or_else(|at| at);
        self.part(at..node.len(), pid, separator, node.high())
    }

    /// Returns this page with all cells of its right neighbour added.
    ///
    /// # Panics
    /// If `right` is not the right neighbour, or the cells do not fit in one page.
    #[must_use]
    pub fn merged_with(&self, right: &Node<'_>) -> Box<[u8]> {
        let node = self.node();
        assert_eq!(node.high(), Some(right.low()), "neighbours");
        assert_eq!(node.kind(), right.kind());
        let all = self.part(0..node.len(), node.pid(), node.low(), right.high());
        let mut bytes = all;
        let mut page = NodeMut { bytes: &mut bytes };
        for at in 0..right.len() {
            let put = match right.kind() {
                Kind::Inner => page.put_child(right.key(at), right.child(at)),
                Kind::Meta | Kind::Leaf | Kind::Chain | Kind::Free => {
                    page.put(right.key(at), right.value(at))
                }
            };
            assert_eq!(put, Ok(true), "two sparse pages fit in one");
        }
        page.put_bytes(PLSN, &node.plsn().max(right.plsn()).0.to_le_bytes());
        page.put_bytes(DLSN, &node.dlsn().max(right.dlsn()).0.to_le_bytes());
        bytes
    }

    /// Sets this page's successor in the list of free pages.
    pub fn set_next_free(&mut self, next: Option<Pid>) {
        assert_eq!(self.node().kind(), Kind::Free);
        let next = next.map_or(0, |next| next.0);
        self.put_bytes(HEADER_BYTES, &next.to_le_bytes());
    }

    /// Removes all keys that are equal to `separator` or above it, and makes `separator` the high fence. The page is
    /// then the left half of a split.
    ///
    /// # Panics
    /// As [`right_of`](Self::right_of).
    pub fn cut_at(&mut self, separator: &[u8]) {
        let node = self.node();
        assert!(node.covers(separator) && separator > node.low());
        let at = node.find(separator).unwrap_or_else(|at| at);
        let low = node.low().to_vec();
        let page = self.part(0..at, node.pid(), &low, Some(separator));
        self.bytes.copy_from_slice(&page);
    }
}
