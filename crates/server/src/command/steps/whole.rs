//! A whole collection, or a long stretch of one, as a reply: HGETALL, SMEMBERS, LRANGE, ZRANGE.
//!
//! A hash or a set is walked by the cursor of SCAN, which survives whatever happens to its index
//! between two steps; a list and a sorted set are walked by rank. The reply's head says how many
//! elements follow before the first is read, so they are counted.

use super::{Progress, Step, Work};
use crate::command::{Data, Stop};
use crate::engine::types::{Entry, Text, list, zset};
use crate::engine::{Shape, Source};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::{to_u64, to_usize};
use std::ops::Range;

/// Which elements there are to reply with, and which parts of each.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Walk {
    /// Fields of a hash, values, or both.
    Fields {
        /// Whether names are asked for.
        names: bool,
        /// Whether values are.
        values: bool,
    },
    /// Members of a set.
    Members,
    /// Items of a list.
    Items,
    /// Members of a sorted set.
    Ranks {
        /// Whether the last comes first.
        reverse: bool,
        /// Whether scores are asked for.
        scores: bool,
    },
}

impl Walk {
    fn shape(self) -> Shape {
        match self {
            Walk::Fields { .. } => Shape::Hash,
            Walk::Members => Shape::Set,
            Walk::Items => Shape::List,
            Walk::Ranks { .. } => Shape::Zset,
        }
    }
}

/// Work on such a reply.
#[derive(Debug)]
pub(crate) struct Whole {
    walk: Walk,
    /// Of a list or a sorted set: the ranks that are asked for and not replied yet.
    ranks: Range<u64>,
    /// Of a hash or a set: where to go on.
    cursor: u64,
    /// How many elements are missing.
    left: u64,
    complete: bool,
    text: Vec<u8>,
    resp3: bool,
}

impl Whole {
    /// The elements of these ranks of a collection; a hash or a set is asked for as a whole.
    pub(crate) fn new(walk: Walk, ranks: Range<u64>, resp3: bool) -> Whole {
        let left = ranks.end.saturating_sub(ranks.start);
        let mut text = Vec::new();
        let mut out = Out::new(&mut text, resp3);
        let len = to_usize(left);
        match walk {
            Walk::Fields {
                names: true,
                values: true,
            } => out.map(len),
            Walk::Members => out.set(len),
            Walk::Ranks { scores: true, .. } if !resp3 => out.array(len * 2),
            Walk::Fields { .. } | Walk::Items | Walk::Ranks { .. } => out.array(len),
        }
        Whole {
            walk,
            ranks,
            cursor: 0,
            left,
            complete: false,
            text,
            resp3,
        }
    }

    /// Goes on by the cursor.
    fn scan(&mut self, source: &Source<'_>, step: &mut Step, max: usize) -> Progress {
        loop {
            let (entries, next) = source.scan(self.cursor, to_usize(step.stride()));
            let count = to_u64(entries.len());
            let Some(left) = self.left.checked_sub(count) else {
                return Progress::Changed;
            };
            (self.left, self.cursor) = (left, next);
            entries.iter().for_each(|entry| self.put_entry(entry));
            if next == 0 {
                return match left {
                    0 => Progress::Complete,
                    _ => Progress::Changed,
                };
            }
            if self.text.len() > max || !step.spend(count) {
                return Progress::More;
            }
        }
    }

    fn put_entry(&mut self, entry: &Entry<'_>) {
        let mut out = Out::new(&mut self.text, self.resp3);
        let (key, value) = match self.walk {
            Walk::Fields { names, values } => (names, values),
            Walk::Members | Walk::Items | Walk::Ranks { .. } => (true, false),
        };
        if key {
            out.bulk(&entry.key());
        }
        if value {
            out.bulk(&entry.value());
        }
    }

    /// Goes on by rank.
    fn go_on(&mut self, source: &Source<'_>, step: &mut Step, max: usize) -> Progress {
        let ranks = self.ranks.clone();
        let mut out = Out::new(&mut self.text, self.resp3);
        let mut go_on = |out: &Out<'_>| {
            self.left -= 1;
            self.left > 0 && out.buf.len() <= max && step.spend(1)
        };
        match self.walk {
            Walk::Ranks { reverse, scores } => {
                let pairs = scores && out.resp3;
                let mut put = |(member, score): (Text<'_>, f64)| {
                    if pairs {
                        out.array(2);
                    }
                    out.bulk(&member);
                    if scores {
                        out.double(score);
                    }
                    go_on(&out)
                };
                let mut members = zset::members(source, ranks.start, ranks.end);
                if reverse {
                    members.rev().all(&mut put);
                } else {
                    members.all(&mut put);
                }
            }
            Walk::Fields { .. } | Walk::Members | Walk::Items => {
                let mut put = |item: Text<'_>| {
                    out.bulk(&item);
                    go_on(&out)
                };
                list::items(source, ranks.start, ranks.end).all(&mut put);
            }
        }
        let left = self.left;
        match self.walk {
            Walk::Ranks { reverse: true, .. } => self.ranks.end = ranks.start + left,
            _ => self.ranks.start = ranks.end - left,
        }
        if left == 0 {
            Progress::Complete
        } else {
            Progress::More
        }
    }
}

impl Work for Whole {
    fn sources(&self, _: &Args<'_>) -> Range<usize> {
        1..2
    }

    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let Some(source) = data.collection(args.at(1), self.walk.shape())? else {
            return Ok(Progress::Changed);
        };
        let by_cursor = matches!(self.walk, Walk::Fields { .. } | Walk::Members);
        let progress = if self.complete {
            Progress::Complete
        } else if by_cursor {
            if source.len() != self.ranks.end {
                return Ok(Progress::Changed);
            }
            self.scan(&source, step, data.reply_bytes_max)
        } else if source.len() < self.ranks.end {
            return Ok(Progress::Changed);
        } else {
            self.go_on(&source, step, data.reply_bytes_max)
        };
        data.check_reply(self.text.len())?;
        self.complete = progress == Progress::Complete;
        Ok(progress)
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        out.append(std::mem::take(&mut self.text));
    }

    fn bytes(&self) -> usize {
        self.text.capacity()
    }
}
