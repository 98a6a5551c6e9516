//! Replies with all elements of a large collection, or with a long range of them: HGETALL, SMEMBERS, LRANGE, ZRANGE.
//!
//! The reply begins with the number of elements. The walk knows this number before it reads the first element.

use super::{Progress, Step, Walk, Work};
use crate::command::{Data, Stop};
use crate::engine::types::Entry;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_usize;

/// The parts of each element that the reply contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// A hash's fields, values, or pairs of field and value.
    Pairs {
        /// True if names are wanted.
        names: bool,
        /// True if values are wanted.
        values: bool,
    },
    /// Members of a set.
    Members,
    /// Items of a list.
    Items,
    /// Members of a sorted set.
    Ranked {
        /// True if scores are wanted.
        scores: bool,
    },
}

impl Parts {
    fn begin(self, len: usize, out: &mut Out<'_>) {
        match self {
            Parts::Pairs {
                names: true,
                values: true,
            } => out.map(len),
            Parts::Members => out.set(len),
            Parts::Ranked { scores: true } if !out.resp3 => out.array(len * 2),
            Parts::Pairs { .. } | Parts::Items | Parts::Ranked { .. } => out.array(len),
        }
    }

    fn put(self, entry: &Entry<'_>, out: &mut Out<'_>) {
        match self {
            Parts::Pairs { names, values } => {
                if names {
                    out.bulk(&entry.key());
                }
                if values {
                    out.bulk(&entry.value());
                }
            }
            Parts::Members => out.bulk(&entry.key()),
            Parts::Items => out.bulk(&entry.item()),
            Parts::Ranked { scores } => {
                if scores && out.resp3 {
                    out.array(2);
                }
                out.bulk(&entry.key());
                if scores {
                    out.double(entry.score());
                }
            }
        }
    }
}

/// The work of replying with all elements of a collection, or with a range of them.
#[derive(Debug)]
pub(crate) struct Whole {
    walk: Walk,
    parts: Parts,
    text: Vec<u8>,
    resp3: bool,
}

impl Whole {
    /// Returns the work of replying with the elements that `walk` visits. The command's first argument is the
    /// collection's key.
    pub(crate) fn new(walk: Walk, parts: Parts, resp3: bool) -> Whole {
        let mut text = Vec::new();
        parts.begin(to_usize(walk.left()), &mut Out::new(&mut text, resp3));
        Whole {
            walk,
            parts,
            text,
            resp3,
        }
    }
}

impl Work for Whole {
    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        debug_assert!(!self.text.is_empty(), "a reply begins with its head");
        let Some(source) = data.collection(args.at(1), self.walk.shape())? else {
            return Ok(Progress::Changed);
        };
        let max = data.reply_bytes_max;
        let mut out = Out::new(&mut self.text, self.resp3);
        let progress = self.walk.go_on(&source, step, |entry| {
            // Once the reply is too long, further elements are not needed.
            if out.buf.len() <= max {
                self.parts.put(entry, &mut out);
            }
            1
        });
        data.check_reply(self.text.len())?;
        Ok(progress)
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        out.append(std::mem::take(&mut self.text));
    }

    fn bytes(&self) -> usize {
        self.text.capacity()
    }
}
