//! KEYS of a large database.
//!
//! The keys are walked by SCAN's cursor, so those that nobody touches are found once each. The
//! others are noted as they change and looked at again when the walk has ended: the reply is of
//! that moment. Keys that expire while the walk goes on are left out then. So KEYS need not begin
//! again beside clients that write, unless they touch very many keys or empty the database.

use super::{Progress, Step, Work};
use crate::command::{Data, Stop};
use crate::engine::{PartitionId, TableId};
use crate::glob;
use crate::resp::parse::Args;
use crate::resp::reply::{Out, room_for_head};
use perdura_base::checksum::hash64;
use perdura_base::num::{to_u64, to_usize};
use std::collections::HashSet;
use std::ops::Range;

/// So many keys may change while the walk goes on.
const TOUCHED_MAX: usize = 8192;
/// So many may be taken out again: each costs a walk over the keys of its partition.
const REMOVED_MAX: usize = 256;
/// Keys that expire sooner than this are looked at again, milliseconds.
const SOON_MS: u64 = 60_000;

/// Where the keys of a partition begin.
#[derive(Debug, Clone, Copy)]
struct Begin {
    index: usize,
    at: usize,
}

/// Work on the reply.
#[derive(Debug)]
pub(crate) struct Keys {
    table: TableId,
    cursor: u64,
    complete: bool,
    /// The keys as they are replied.
    text: Vec<u8>,
    /// A hash of each.
    hashes: Vec<u32>,
    /// By partition.
    begins: Vec<Begin>,
    /// Keys that have changed since the walk began.
    touched: HashSet<Box<[u8]>>,
    /// Keys that have been found and expire soon, with their times.
    expiring: Vec<(u64, Box<[u8]>)>,
    /// Parts of the text that are not replied.
    removed: Vec<Range<usize>>,
    /// Keys that are replied beside the text.
    added: Vec<Box<[u8]>>,
}

fn hash(key: &[u8]) -> u32 {
    u32::try_from(hash64(0, key) >> 32).unwrap_or_default()
}

fn wanted(args: &Args<'_>, key: &[u8]) -> bool {
    args.at(1) == b"*" || glob::matches(args.at(1), key)
}

/// The string that begins at `at` in a reply, and where it ends.
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
    /// The keys of a table.
    pub(crate) fn new(table: TableId) -> Keys {
        let text = room_for_head();
        Keys {
            table,
            cursor: 0,
            complete: false,
            hashes: Vec::new(),
            begins: vec![Begin {
                index: 0,
                at: text.len(),
            }],
            text,
            touched: HashSet::new(),
            expiring: Vec::new(),
            removed: Vec::new(),
            added: Vec::new(),
        }
    }

    fn put(&mut self, key: &[u8]) {
        Out::new(&mut self.text, false).bulk(key);
        self.hashes.push(hash(key));
    }

    /// Where a key stands in the text.
    fn find(&self, partition: PartitionId, key: &[u8]) -> Option<Range<usize>> {
        let number = usize::from(partition.0);
        let begin = self.begins.get(number)?;
        let end = self.begins.get(number + 1).map(|next| next.index);
        let hashes = self.hashes.get(begin.index..end?)?;
        let hash = hash(key);
        if !hashes.contains(&hash) {
            return None;
        }
        let mut at = begin.at;
        for found in hashes {
            let (other, next) = string_at(&self.text, at)?;
            if *found == hash && other == key {
                return Some(at..next);
            }
            at = next;
        }
        None
    }

    /// Brings what was found to the present moment; `false` if that is too much work.
    fn mend(&mut self, data: &Data<'_, '_>, args: &Args<'_>) -> Result<bool, Stop> {
        self.removed.clear();
        self.added.clear();
        let now_ms = data.tx.now_ms();
        let expired = self.expiring.iter().filter(|(at, _)| *at <= now_ms);
        for (_, key) in expired.filter(|(_, key)| !self.touched.contains(key)) {
            self.removed.extend(self.find(data.partition_of(key), key));
        }
        for key in &self.touched {
            let there = data.tx.get(self.table, key)?.is_some() && wanted(args, key);
            match self.find(data.partition_of(key), key) {
                Some(span) if !there => self.removed.push(span),
                None if there => self.added.push(key.clone()),
                Some(_) | None => {}
            }
            if self.removed.len() > REMOVED_MAX {
                return Ok(false);
            }
        }
        self.removed.sort_unstable_by_key(|span| span.start);
        Ok(true)
    }
}

impl Work for Keys {
    fn sources(&self, _: &Args<'_>) -> Range<usize> {
        0..0
    }

    fn touched(&mut self, key: &[u8]) {
        if self.touched.len() <= TOUCHED_MAX {
            self.touched.insert(key.into());
        }
    }

    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        if data.table != self.table || self.touched.len() > TOUCHED_MAX {
            return Ok(Progress::Changed);
        }
        let soon_ms = data.tx.now_ms().saturating_add(SOON_MS);
        while !self.complete {
            let count = to_usize(step.stride());
            let (rows, next) = data.tx.scan_keys(self.table, self.cursor, count)?;
            // A partition without keys is looked at, too.
            let looked = to_u64(rows.len()).max(1);
            for row in rows {
                let key = row.key();
                if !wanted(args, &key) || self.touched.contains(&*key) {
                    continue;
                }
                self.put(&key);
                if let Some(at) = row.expiry_ms().filter(|at| *at < soon_ms) {
                    self.expiring.push((at, (*key).into()));
                }
            }
            data.check_reply(self.text.len())?;
            if next == 0 || next >> 32 != self.cursor >> 32 {
                self.begins.push(Begin {
                    index: self.hashes.len(),
                    at: self.text.len(),
                });
            }
            (self.cursor, self.complete) = (next, next == 0);
            if !step.spend(looked) && !self.complete {
                return Ok(Progress::More);
            }
        }
        Ok(match self.mend(data, args)? {
            true => Progress::Complete,
            false => Progress::Changed,
        })
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
        self.text.capacity() + self.hashes.capacity() * size_of::<u32>()
    }
}
