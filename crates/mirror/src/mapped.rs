//! A ring in memory that a node shares with the writer on its machine: see "Mapped rings" in docs/formats/logd.md.
//!
//! The writer appends and the node reads. The writer never waits for the node, and the node never waits for the writer.
//! [`Writing`] is the writer's side, [`MappedRing`] the node's. The writer's process writes the memory, so the node
//! checks the content before use.
//!
//! # Invariants
//! * Only one process writes: the node shares the memory with the newest writer only. Before the node moves the ring to
//!   its own memory, the node closes the shared memory.
//! * A byte at `low` or above is not overwritten. While an append ends above `low`, its entry in the table
//!   is not overwritten.
//! * The node sets *closed* before it reads *count*. The writer stores *count* before it reads *closed*. So the node
//!   sees every append that the writer counts as held.

use std::sync::Arc;

use perdura_base::Pos;
use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_base::num::{to_u32, to_u64, to_usize};

use crate::ids::Generation;
use crate::message::POS_MAX;
use crate::ring::{Ring, RingRefusal};
use crate::shared::{Memories, Shared};

const PAGE: u64 = 4096;
/// `PRNG`, version 1.
const MAGIC: u64 = u64::from_le_bytes(*b"PRNG\x01\0\0\0");
const SIZE: usize = 8;
const ENTRIES: usize = 16;
const START: usize = 24;
const CLOSED: usize = 64;
const LOW: usize = 128;
const COUNT: usize = 192;
const ENTRY_BYTES: u64 = 32;
const ENTRIES_MIN: u64 = 64;
/// An upper bound of the count of appends. No writer ever reaches it.
const COUNT_MAX: u64 = 1 << 62;
/// The maximum number of appends that a writer copies from its tail in one call. The call also ends after
/// [`FOLLOW_BYTES_MAX`] bytes, so that the writer can serve other connections.
const FOLLOW_APPENDS_MAX: usize = 256;
const FOLLOW_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of attempts to read consistent fields while the writer changes the fields. If all attempts fail,
/// the node considers the fields damaged.
const LOOKS_MAX: usize = 8;
/// The number of bytes that a check of the whole memory reads at once.
const CHECK_BYTES: u64 = 1 << 20;
/// The value of *closed* for a ring that the node has moved out of this memory.
const MOVED: u64 = u64::MAX;

/// One append, as an entry of the table describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    start: Pos,
    end: Pos,
    crc: u32,
}

/// The layout of a ring in shared memory.
#[derive(Clone)]
struct Layout {
    memory: Arc<dyn Shared>,
    size: u64,
    entries: u64,
}

impl Layout {
    fn table_bytes(entries: u64) -> u64 {
        (entries * ENTRY_BYTES).next_multiple_of(PAGE)
    }

    /// Returns the number of bytes of memory for a ring of `size` bytes and its table of `entries` entries.
    fn bytes(size: u64, entries: u64) -> u64 {
        PAGE + Layout::table_bytes(entries) + size
    }

    fn entry_at(&self, number: u64) -> usize {
        to_usize(PAGE + number % self.entries * ENTRY_BYTES)
    }

    fn entry(&self, number: u64) -> Entry {
        let at = self.entry_at(number);
        let word = |word: usize| self.memory.load(at + 8 * word);
        Entry {
            start: Pos(word(0)),
            end: Pos(word(1)),
            crc: to_u32(to_usize(word(2) & u64::from(u32::MAX))),
        }
    }

    fn low(&self) -> Pos {
        Pos(self.memory.load(LOW))
    }

    fn end(&self, count: u64) -> Pos {
        match count.checked_sub(1) {
            None => Pos(self.memory.load(START)),
            Some(newest) => self.entry(newest).end,
        }
    }

    /// Finds in the memory the `len` bytes from position `from` on. Returns two parts, each as an offset and a length.
    /// The second part is empty unless the bytes wrap around the end of the ring.
    fn places(&self, from: Pos, len: usize) -> [(usize, usize); 2] {
        assert!(to_u64(len) <= self.size, "a ring does not overtake itself");
        let begin = PAGE + Layout::table_bytes(self.entries);
        let at = from.0 % self.size;
        let first = len.min(to_usize(self.size - at));
        [
            (to_usize(begin + at), first),
            (to_usize(begin), len - first),
        ]
    }
}

/// The node's side of a ring that the writer's process writes.
pub(crate) struct MappedRing {
    layout: Layout,
    /// If the ring is sealed, the number of appends before the seal. Later appends do not count. `None`: the ring is
    /// not sealed.
    sealed: Option<u64>,
}

impl MappedRing {
    /// Moves a ring into memory that can be shared. `None`: the memory could not be made, or the ring does not fit.
    pub fn of(ring: &Ring, memories: &Memories) -> Option<MappedRing> {
        let size = ring.size();
        let entries = ENTRIES_MIN.max(size / PAGE);
        let memory = (memories.0)(to_usize(Layout::bytes(size, entries)))?;
        for (at, word) in [(0, MAGIC), (SIZE, size), (ENTRIES, entries)] {
            memory.store(at, word);
        }
        let layout = Layout {
            memory,
            size,
            entries,
        };
        let mut mapped = MappedRing {
            layout,
            sealed: None,
        };
        mapped.restart(ring.low());
        let mut writing = Writing {
            layout: mapped.layout.clone(),
            low: ring.low(),
            end: ring.low(),
            count: 0,
        };
        // The beginning of the first append may have been forgotten. Only the rest of that append is moved.
        for (start, end, crc) in ring.appends_from(ring.low()) {
            let moved = writing.append(start, ring.parts(start, end), crc);
            if moved.is_err() {
                return None;
            }
            assert!(end <= ring.end(), "an append lies in its ring");
        }
        (writing.end == ring.end()).then_some(mapped)
    }

    /// Closes this ring and returns a copy of it in the node's own memory.
    ///
    /// # Errors
    /// [`RingRefusal::Damaged`]; [`RingRefusal::Full`] if there is not enough memory for the copy.
    pub fn take_back(&self) -> Result<Ring, RingRefusal> {
        self.layout.memory.store(CLOSED, MOVED);
        let (low, end) = self.extent()?;
        let mut ring = Ring::new(low, self.layout.size).ok_or(RingRefusal::Full)?;
        let mut at = low;
        while at < end {
            let mut bytes = Vec::new();
            // A writer that has not yet read *closed* may still append after the end.
            self.read(at, (end.0 - at.0).min(PAGE * 16), &mut bytes)?;
            if bytes.is_empty() {
                return Err(RingRefusal::Damaged(at));
            }
            ring.append(at, &bytes, 0)?;
            at = Pos(at.0 + to_u64(bytes.len()));
        }
        Ok(ring)
    }

    /// Checks that the memory holds the appended bytes from `low` to the end.
    ///
    /// # Errors
    /// [`RingRefusal::Damaged`]
    pub fn check(&self) -> Result<(), RingRefusal> {
        let (mut at, end) = self.extent()?;
        let mut bytes = Vec::new();
        while at < end {
            bytes.clear();
            match self.read(at, (end.0 - at.0).min(CHECK_BYTES), &mut bytes) {
                Ok(()) => at = Pos(at.0 + to_u64(bytes.len())),
                // The writer is still active and has forgotten this position since.
                Err(RingRefusal::Outside { low, .. }) if low > at => at = low,
                Err(_) => return Err(RingRefusal::Damaged(at)),
            }
        }
        Ok(())
    }

    /// Closes the ring and returns it sealed. Later appends of its writer do not count.
    pub fn closed(&self) -> MappedRing {
        self.layout.memory.store(CLOSED, MOVED);
        MappedRing {
            layout: self.layout.clone(),
            sealed: Some(self.count()),
        }
    }

    pub fn memory(&self) -> Arc<dyn Shared> {
        Arc::clone(&self.layout.memory)
    }

    pub fn size(&self) -> u64 {
        self.layout.size
    }

    fn count(&self) -> u64 {
        let count = self.layout.memory.load(COUNT);
        self.sealed.map_or(count, |sealed| sealed.min(count))
    }

    /// Seals the ring: appends counted before the seal stay visible, later appends do not.
    pub fn seal(&mut self, by: Generation) {
        if self.sealed.is_none() {
            self.layout.memory.store(CLOSED, by.0);
            self.sealed = Some(self.count());
        }
    }

    /// Empties the ring. It then begins at `start`. During the call the writer is waiting for the reply and appends
    /// nothing.
    pub fn restart(&mut self, start: Pos) {
        let words = [(COUNT, 0), (START, start.0), (LOW, start.0)];
        words
            .iter()
            .for_each(|(at, word)| self.layout.memory.store(*at, *word));
        assert!(self.sealed.is_none(), "a sealed ring stays as it is");
    }

    /// Returns the first position of the ring and the ring's end.
    ///
    /// # Errors
    /// [`RingRefusal::Damaged`] if the fields in the memory are contradictory.
    pub fn extent(&self) -> Result<(Pos, Pos), RingRefusal> {
        let mut low = self.layout.low();
        for _ in 0..LOOKS_MAX {
            // The writer may raise `low` between the two reads, but never above the end at that time.
            let end = self.layout.end(self.count());
            if is_extent(low, end, self.layout.size) {
                return Ok((low, end));
            }
            low = self.layout.low();
        }
        Err(RingRefusal::Damaged(low))
    }

    /// Copies at most `len` bytes of the ring, from position `from` on, to the end of `out`, like [`Ring::read`].
    ///
    /// # Errors
    /// [`RingRefusal::Outside`], [`RingRefusal::Damaged`].
    pub fn read(&self, from: Pos, len: u64, out: &mut Vec<u8>) -> Result<(), RingRefusal> {
        let (low, end) = self.extent()?;
        let outside = |low: Pos| RingRefusal::Outside { low, end };
        if from < low || from > end {
            return Err(outside(low));
        }
        let (to, before) = (end.0.min(from.0.saturating_add(len)), out.len());
        let mut at = from;
        for entry in self.entries_from(from) {
            if entry.start.0 >= to {
                break;
            }
            let Some(bytes) = self.bytes_of(&entry, at, low) else {
                break;
            };
            let skipped = to_usize(at.0 - entry.start.0);
            let upto = to_usize(to.min(entry.end.0) - entry.start.0);
            out.extend_from_slice(&bytes[skipped..upto]);
            at = Pos(to.min(entry.end.0));
        }
        let now = self.layout.low();
        if now > from {
            // The writer has appended since, perhaps over these bytes. Overwritten bytes are on the writer's disk.
            out.truncate(before);
            return Err(outside(now.min(end)));
        }
        match at == from && from.0 < to {
            // The writer may have overwritten the beginning of the append to which the bytes belong.
            true if now != low => Err(outside(now)),
            true => Err(RingRefusal::Damaged(from)),
            false => Ok(()),
        }
    }

    /// Returns the bytes of an append. `None`: the append does not contain position `at`, or the bytes do not match its
    /// checksum.
    fn bytes_of(&self, entry: &Entry, at: Pos, low: Pos) -> Option<Vec<u8>> {
        let len = entry.end.0.checked_sub(entry.start.0)?;
        if entry.start > at || entry.end <= at || len > self.layout.size {
            return None;
        }
        let mut bytes = vec![0; to_usize(len)];
        let [first, second] = self.layout.places(entry.start, bytes.len());
        let (head, tail) = bytes.split_at_mut(first.1);
        self.layout.memory.read(first.0, head);
        self.layout.memory.read(second.0, tail);
        (entry.start < low || crc32c(&bytes) == entry.crc).then_some(bytes)
    }

    /// Returns the appends that end after `from`, oldest first. The search goes back from the newest append. If an
    /// entry does not end where the next one starts, the writer has replaced it, and the search ends there.
    fn entries_from(&self, from: Pos) -> Vec<Entry> {
        let count = self.count();
        let oldest = count.saturating_sub(self.layout.entries);
        let mut found: Vec<Entry> = Vec::new();
        for number in (oldest..count).rev() {
            let entry = self.layout.entry(number);
            let joins = found.last().is_none_or(|next| next.start == entry.end);
            if entry.end <= from || entry.start >= entry.end || !joins {
                break;
            }
            found.push(entry);
        }
        found.reverse();
        found
    }
}

/// Returns whether the positions of a ring can reach from `low` to `end`.
fn is_extent(low: Pos, end: Pos, size: u64) -> bool {
    low <= end && end.0 - low.0 <= size && end.0 <= POS_MAX
}

/// The writer's side of a ring in a node's memory. This value reads the ring's positions once, when it is made. From
/// then on, only this value changes the positions.
pub struct Writing {
    layout: Layout,
    low: Pos,
    end: Pos,
    count: u64,
}

impl Writing {
    /// Opens the ring in memory that a node shares.
    ///
    /// # Errors
    /// A description of what is wrong with the memory.
    pub fn new(memory: Arc<dyn Shared>) -> Result<Writing, String> {
        let wrong = |why: &str| Err(format!("the node shares memory that {why}"));
        if to_u64(memory.len()) < PAGE || memory.load(0) != MAGIC {
            return wrong("holds no ring");
        }
        let (size, entries) = (memory.load(SIZE), memory.load(ENTRIES));
        let len = to_u64(memory.len());
        let fits = (1..=len).contains(&size) && (ENTRIES_MIN..=len).contains(&entries);
        if !fits || Layout::bytes(size, entries) != len {
            return wrong("has another length than its ring");
        }
        let layout = Layout {
            memory,
            size,
            entries,
        };
        let count = layout.memory.load(COUNT);
        let (low, end) = (layout.low(), layout.end(count));
        if !is_extent(low, end, size) || count > COUNT_MAX {
            return wrong("says what no ring can");
        }
        Ok(Writing {
            layout,
            low,
            end,
            count,
        })
    }

    /// Returns the end of the ring.
    #[must_use]
    pub fn end(&self) -> Pos {
        self.end
    }

    /// Stores `low` as the ring's first position, because the writer's disk has all bytes below it. Does nothing if the
    /// ring begins at `low` or later, or ends before `low`.
    pub fn forget(&mut self, low: Pos) {
        if self.low < low && low <= self.end {
            self.low = low;
            self.layout.memory.store(LOW, low.0);
        }
    }

    /// Appends bytes at position `pos`. `crc` is their checksum.
    ///
    /// # Errors
    /// [`RingRefusal::Position`], [`RingRefusal::Full`]. The ring is then unchanged.
    pub(crate) fn append(
        &mut self,
        pos: Pos,
        parts: [&[u8]; 2],
        crc: u32,
    ) -> Result<(), RingRefusal> {
        let mut append = self.begin(pos, to_u64(parts[0].len() + parts[1].len()))?;
        parts.iter().for_each(|part| append.put(part));
        append.commit(crc);
        Ok(())
    }

    /// Begins an append of `len` bytes at position `pos`. The caller then puts the bytes into the memory in order.
    ///
    /// # Errors
    /// [`RingRefusal::Position`], [`RingRefusal::Full`].
    pub fn begin(&mut self, pos: Pos, len: u64) -> Result<Append<'_>, RingRefusal> {
        let (low, end) = (self.low, self.end);
        if pos != end || len == 0 {
            return Err(RingRefusal::Position(end));
        }
        let replaced = self.count.checked_sub(self.layout.entries);
        let is_live = |number: u64| self.layout.entry(number).end > low;
        let fits = (end.0 - low.0).checked_add(len);
        if fits.is_none_or(|bytes| bytes > self.layout.size) || replaced.is_some_and(is_live) {
            return Err(RingRefusal::Full);
        }
        let to = Pos(end.0 + len);
        let [(place, _), (begin, _)] = self.layout.places(pos, 0);
        let bounds = (begin, begin + to_usize(self.layout.size));
        assert!(begin <= place && place < bounds.1, "a ring goes around");
        Ok(Append {
            ring: self,
            at: pos,
            to,
            place,
            bounds,
        })
    }

    /// Appends bytes of the tail that follow the ring's end, until the ring is full or the limit of one call is
    /// reached. Returns whether another call may append more.
    ///
    /// # Errors
    /// A description of why the ring takes no bytes.
    ///
    /// # Panics
    /// If the tail has forgotten bytes that the ring lacks.
    pub fn follow(&mut self, tail: &Ring) -> Result<bool, String> {
        self.forget(tail.low());
        let end = self.end();
        assert!(end >= tail.low(), "the tail has what the ring lacks");
        let mut is_more_left = false;
        for (number, (start, to, crc)) in tail.appends_from(end).enumerate() {
            if number == FOLLOW_APPENDS_MAX || start.0 - end.0 >= FOLLOW_BYTES_MAX {
                is_more_left = true;
                break;
            }
            let appended = self.append(start, tail.parts(start, to), crc);
            match appended {
                Ok(()) => {}
                Err(RingRefusal::Full) => break,
                Err(refusal) => return Err(format!("the mapped ring refuses: {refusal:?}")),
            }
        }
        let now = self.end();
        assert!(end <= now && now <= tail.end(), "a ring follows its tail");
        assert!(
            !is_more_left || now < tail.end(),
            "what is left is in the tail"
        );
        Ok(is_more_left)
    }

    /// Returns whether the node has closed the ring. `None`: it has not. `Some(None)`: the node has moved the ring.
    /// `Some(Some(g))`: the node has sealed the ring for the writer of generation g.
    #[must_use]
    pub fn closed(&self) -> Option<Option<Generation>> {
        match self.layout.memory.load(CLOSED) {
            0 => None,
            MOVED => Some(None),
            by => Some(Some(Generation(by))),
        }
    }
}

/// An append that is being written and does not count yet.
pub struct Append<'a> {
    ring: &'a mut Writing,
    at: Pos,
    to: Pos,
    /// The offset of position `at` in the memory.
    place: usize,
    /// The offsets in the memory at which the bytes of the ring begin and end.
    bounds: (usize, usize),
}

impl Append<'_> {
    /// Copies the next bytes of the append into the memory.
    ///
    /// # Panics
    /// If more bytes are given than are left.
    pub fn put(&mut self, bytes: &[u8]) {
        assert!(
            to_u64(bytes.len()) <= self.to.0 - self.at.0,
            "an append has the length that it began with"
        );
        let (memory, (begin, end)) = (&self.ring.layout.memory, self.bounds);
        // `bytes` is often short. It is copied at once, or in two parts where the ring wraps around.
        let (first, second) = bytes.split_at(bytes.len().min(end - self.place));
        memory.write(self.place, first);
        self.place += first.len();
        if self.place == end {
            memory.write(begin, second);
            self.place = begin + second.len();
        }
        self.at = Pos(self.at.0 + to_u64(bytes.len()));
    }

    /// Completes the append, so that it counts. `crc` is the checksum of its bytes.
    ///
    /// # Panics
    /// If fewer bytes were put than the append has.
    pub fn commit(self, crc: u32) {
        let Append { ring, at, to, .. } = self;
        assert_eq!(at, to, "an append has the length that it began with");
        let (memory, count) = (&ring.layout.memory, ring.count);
        let entry = ring.layout.entry_at(count);
        for (word, value) in [(0, ring.end.0), (1, at.0), (2, u64::from(crc))] {
            memory.store(entry + 8 * word, value);
        }
        memory.store(COUNT, count + 1);
        (ring.end, ring.count) = (at, count + 1);
        assert!(
            is_extent(ring.low, at, ring.layout.size),
            "a ring holds at most its size"
        );
    }
}

impl Ring {
    /// Returns the appends after `from`: start, end, and the checksum of the bytes. If an append began before `from`,
    /// only the rest of it is returned.
    pub(crate) fn appends_from(&self, from: Pos) -> impl Iterator<Item = (Pos, Pos, u32)> {
        let whole = self.whole_appends_from(from);
        whole.map(move |(start, end, crc)| {
            if start >= from {
                return (start, end, crc);
            }
            let parts = self.parts(from, end);
            let crc = parts.iter().fold(0, |crc, part| crc32c_append(crc, part));
            (from, end, crc)
        })
    }
}

#[cfg(test)]
mod tests;
