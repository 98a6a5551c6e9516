//! KEYS of a large database.
//!
//! The walk over the keys uses SCAN's cursor, so it finds every unchanged key exactly once. Keys that change during the
//! walk are noted ([`crate::scans`]). When the walk has ended, KEYS checks the noted keys again and leaves out expired keys. So the reply
//! shows the keys that exist at the end of the walk. KEYS begins again only if clients change very many keys, or empty
//! or swap the database.

use super::{Progress, Step, Work};
use crate::command::{Data, Stop};
use crate::engine::{TableId, scan_places};
use crate::glob;
use crate::resp::parse::Args;
use crate::resp::reply::{Out, room_for_head};
use crate::scans::{Scan, TOUCHED_MAX};
use perdura_base::checksum::hash64;
use perdura_base::num::{to_u64, to_usize};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// The number of found keys for each entry of `marks`.
const MARKED: usize = 64;
/// The number of bytes of memory that a changed key takes in addition to its text: the set's entry and the allocator's
/// overhead.
const TOUCHED_BYTES: usize = 48;
/// If a found key expires within this number of milliseconds, KEYS checks it again at the end.
const SOON_MS: u64 = 60_000;

/// Reading this many places without a key takes about as much time as reading one key.
const PLACES_OF_KEY: usize = 32;

/// The work of making the reply.
#[derive(Debug)]
pub(crate) struct Keys {
    table: TableId,
    /// The changes during the walk.
    scan: Arc<Scan>,
    cursor: u64,
    complete: bool,
    /// The found keys, in the form of the reply.
    text: Vec<u8>,
    /// A hash of each found key.
    hashes: Vec<u32>,
    /// The offsets in the text of some found keys: of the first key, and of every [`MARKED`]th key after it.
    marks: Vec<usize>,
    /// For each partition: the number of keys found in the partitions before it.
    begins: Vec<usize>,
    /// The keys that have changed during the walk, as the last step found them.
    touched: HashSet<Box<[u8]>>,
    /// The bytes of the changed keys.
    touched_bytes: usize,
    /// The deadline of each found key that expires soon, and the key's place in the text.
    expiring: Vec<(u64, usize)>,
    /// The parts of the text that are left out of the reply.
    removed: Vec<Range<usize>>,
    /// The keys that are not in the text but must be in the reply.
    added: Vec<Box<[u8]>>,
}

fn hash(key: &[u8]) -> u32 {
    u32::try_from(hash64(0, key) >> 32).unwrap_or_default()
}

fn wanted(args: &Args<'_>, key: &[u8]) -> bool {
    args.at(1) == b"*" || glob::matches(args.at(1), key)
}

/// Returns the string that begins at `at` in a reply, and the offset of the string's end.
fn string_at(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let digits = text.get(at + 1..)?;
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let (count, len) = digits.fold((0, 0), |(count, len), digit| {
        (count + 1, len * 10 + usize::from(digit - b'0'))
    });
    let begin = at + 1 + count + 2;
    let key = text.get(begin..begin + len)?;
    Some((key, begin + len + 2))
}

impl Keys {
    /// Returns the work of finding keys in a table.
    pub(crate) fn new(table: TableId) -> Keys {
        Keys {
            table,
            scan: Arc::default(),
            cursor: 0,
            complete: false,
            hashes: Vec::new(),
            marks: Vec::new(),
            begins: vec![0],
            text: room_for_head(),
            touched: HashSet::new(),
            touched_bytes: 0,
            expiring: Vec::new(),
            removed: Vec::new(),
            added: Vec::new(),
        }
    }

    fn put(&mut self, key: &[u8]) {
        if self.hashes.len().is_multiple_of(MARKED) {
            self.marks.push(self.text.len());
        }
        Out::new(&mut self.text, false).bulk(key);
        self.hashes.push(hash(key));
    }

    /// Finds the changed keys of one partition in the text, and stores their ranges in `found`. Each string of the text
    /// is read at most once, even if many keys have changed. `hashes` holds the sorted hashes of the changed keys.
    fn find<'a>(
        &'a self,
        partition: u16,
        hashes: &[u32],
        found: &mut HashMap<&'a [u8], Range<usize>>,
    ) {
        let number = usize::from(partition);
        let (Some(begin), Some(end)) = (self.begins.get(number), self.begins.get(number + 1))
        else {
            return;
        };
        // The index of the next string, and that string's place in the text.
        let (mut next, mut at) = (0, 0);
        for index in *begin..*end {
            if hashes.binary_search(&self.hashes[index]).is_err() {
                continue;
            }
            if index / MARKED * MARKED >= next {
                (next, at) = (index / MARKED * MARKED, self.marks[index / MARKED]);
            }
            while let Some((key, end)) = string_at(&self.text, at) {
                let span = at..end;
                (next, at) = (next + 1, end);
                if next > index {
                    if let Some(key) = self.touched.get(key) {
                        found.insert(key, span);
                    }
                    break;
                }
            }
        }
    }

    /// Returns the places of the changed keys in the text.
    fn find_touched(&self, partition_of: impl Fn(&[u8]) -> u16) -> HashMap<&[u8], Range<usize>> {
        let asked = self.touched.iter();
        let mut asked: Vec<(u16, u32)> = asked.map(|key| (partition_of(key), hash(key))).collect();
        asked.sort_unstable();
        let mut found = HashMap::new();
        for asked in asked.chunk_by(|a, b| a.0 == b.0) {
            let hashes: Vec<u32> = asked.iter().map(|(_, hash)| *hash).collect();
            self.find(asked[0].0, &hashes, &mut found);
        }
        found
    }

    /// Corrects the result so that it shows the current keys. The last step does all of this at once. Therefore
    /// the cost may grow with the keys found plus the keys changed, but not with their product.
    fn mend(&mut self, data: &Data<'_, '_>, args: &Args<'_>) -> Result<(), Stop> {
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        let now_ms = data.tx.now_ms();
        for (_, begin) in self.expiring.iter().filter(|(at, _)| *at <= now_ms) {
            if let Some((key, end)) = string_at(&self.text, *begin)
                && !self.touched.contains(key)
            {
                removed.push(*begin..end);
            }
        }
        let mut found = self.find_touched(|key| data.partition_of(key).0);
        for key in &self.touched {
            let there = data.tx.peek(self.table, key)?.is_some() && wanted(args, key);
            match found.remove(&**key) {
                Some(span) if !there => removed.push(span),
                None if there => added.push(key.clone()),
                Some(_) | None => {}
            }
        }
        removed.sort_unstable_by_key(|span| span.start);
        (self.removed, self.added) = (removed, added);
        Ok(())
    }
}

impl Keys {
    /// Takes over the keys that have changed since the last step. The transaction holds all latches, so no more keys
    /// change during the step. Returns whether the database was swapped.
    fn look_at_changes(&mut self) -> bool {
        let changed = self.scan.changed.lock();
        if changed.keys.len() != self.touched.len() {
            self.touched.clone_from(&changed.keys);
            let bytes = self.touched.iter().map(|key| key.len() + TOUCHED_BYTES);
            // The walk and its scan hold the keys.
            self.touched_bytes = 2 * bytes.sum::<usize>();
        }
        changed.swapped
    }
}

impl Work for Keys {
    fn sources(&self, _: &Args<'_>) -> Range<usize> {
        0..0
    }

    fn scan(&self) -> Option<&Arc<Scan>> {
        Some(&self.scan)
    }

    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        if self.look_at_changes() || data.table != self.table || self.touched.len() > TOUCHED_MAX {
            return Ok(Progress::Changed);
        }
        let soon_ms = data.tx.now_ms().saturating_add(SOON_MS);
        while !self.complete {
            let count = to_usize(step.stride());
            let (mut places, table) = (scan_places(count), self.table);
            let given = places;
            let (rows, next) =
                (data.tx).scan_keys_within(table, self.cursor, count, &mut places)?;
            // Reading places without keys takes time, too.
            let looked = to_u64(rows.len() + (given - places) / PLACES_OF_KEY);
            for row in rows {
                let key = row.key();
                if !wanted(args, &key) || self.touched.contains(&*key) {
                    continue;
                }
                if let Some(at) = row.expiry_ms().filter(|at| *at < soon_ms) {
                    self.expiring.push((at, self.text.len()));
                }
                self.put(&key);
            }
            data.check_reply(self.text.len())?;
            if next == 0 || next >> 32 != self.cursor >> 32 {
                self.begins.push(self.hashes.len());
            }
            (self.cursor, self.complete) = (next, next == 0);
            if !step.spend(looked) && !self.complete {
                return Ok(Progress::More);
            }
        }
        self.mend(data, args)?;
        Ok(Progress::Complete)
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        let count = self.hashes.len() - self.removed.len() + self.added.len();
        let mut text = std::mem::take(&mut self.text);
        let mut reply = Out::new(&mut text, false);
        self.added.iter().for_each(|key| reply.bulk(key));
        let mut to = self.removed.first().map_or(text.len(), |span| span.start);
        for (at, span) in self.removed.iter().enumerate() {
            let next = self.removed.get(at + 1);
            let kept = span.end..next.map_or(text.len(), |next| next.start);
            text.copy_within(kept.clone(), to);
            to += kept.len();
        }
        text.truncate(to);
        out.append_under(text, |out| out.array(count));
    }

    fn bytes(&self) -> usize {
        let places = (self.marks.capacity() + self.begins.capacity()) * size_of::<usize>();
        let expiring = self.expiring.capacity() * size_of::<(u64, usize)>();
        let hashes = self.hashes.capacity() * size_of::<u32>();
        self.text.capacity() + hashes + places + expiring + self.touched_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_keys_are_found_where_they_stand_in_whatever_partition() {
        let key = |number: usize| format!("{number:0width$}", width = number % 7);
        let mut keys = Keys::new(TableId(0));
        for number in 0..1000 {
            keys.put(key(number).as_bytes());
            if number % 250 == 249 {
                keys.begins.push(number + 1);
            }
        }
        for number in (0..1000).filter(|number| number % 3 == 0 || number % 97 < 5) {
            keys.touched.insert(key(number).into_bytes().into());
        }
        keys.touched.insert(b"none"[..].into());
        let partition_of = |key: &[u8]| {
            let number = std::str::from_utf8(key)
                .ok()
                .and_then(|text| text.parse().ok());
            number.map_or(3, |number: u16| number / 250)
        };
        let found = keys.find_touched(partition_of);
        assert_eq!(found.len(), keys.touched.len() - 1);
        for (key, span) in found {
            let (other, end) = string_at(&keys.text, span.start).expect("a string");
            assert_eq!((other, end), (key, span.end));
        }
    }
}
