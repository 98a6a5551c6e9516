//! COPY and MOVE of a large collection, and ZRANGESTORE of a long range.
//!
//! The elements are copied into a collection that becomes the new key's value at the end. MOVE removes the old
//! key in the transaction of the last step.

use super::building::{Building, STEP_BYTES};
use super::{Progress, Step, Walk, Work};
use crate::command::event::Class;
use crate::command::{Data, Done, Stop};
use crate::engine::types;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use std::ops::Range;

/// The purpose of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// COPY, which may replace an existing key.
    Copy {
        /// True if COPY replaces an existing key.
        replace: bool,
    },
    /// MOVE.
    Move,
    /// ZRANGESTORE.
    Stretch,
}

/// The work of a copy.
#[derive(Debug)]
pub(crate) struct Copying {
    purpose: Purpose,
    walk: Walk,
    /// The number of elements that the whole walk visits.
    count: u64,
    building: Building,
    /// The indexes of the arguments that name the source (`from`) and the target (`to`).
    from: usize,
    to: usize,
    done: bool,
}

impl Copying {
    /// Returns the work that copies a walk's elements to a key of `database`.
    pub(crate) fn new(purpose: Purpose, walk: Walk, database: u8) -> Copying {
        let (from, to) = match purpose {
            Purpose::Copy { .. } => (1, 2),
            Purpose::Move => (1, 1),
            Purpose::Stretch => (2, 1),
        };
        Copying {
            purpose,
            count: walk.left(),
            building: Building::new(database, walk.shape()),
            walk,
            from,
            to,
            done: false,
        }
    }

    /// Returns the work of copying a whole key. `None`: its value is too short to need steps.
    pub(crate) fn whole(
        data: &Data<'_, '_>,
        purpose: Purpose,
        key: &[u8],
        database: u8,
    ) -> Result<Option<Copying>, Stop> {
        let Some(row) = data.tx.get(data.table, key)? else {
            return Ok(None);
        };
        let (Some(shape), Some(_)) = (row.kind().shape(), row.home()) else {
            return Ok(None);
        };
        let len = types::open::source(data.tx, data.table, row, shape)?.len();
        let walk = || Walk::all(shape, len);
        let is_long = data.is_long(len);
        Ok(is_long.then(|| Copying::new(purpose, walk(), database)))
    }
}

impl Work for Copying {
    fn sources(&self, _: &Args<'_>) -> Range<usize> {
        self.from..self.from + 1
    }

    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let (shape, table, from) = (self.walk.shape(), data.table, args.at(self.from));
        // The key may have expired. A watch does not report that as a change.
        if data.tx.get(table, from)?.is_none() {
            return Ok(Progress::Changed);
        }
        let left = self.walk.left();
        if !self.building.begin(data, args.at(self.to), step, left)? {
            return Ok(Progress::Changed);
        }
        if left == 0 {
            return Ok(Progress::Complete);
        }
        debug_assert!(left <= self.count, "no more is left than there was");
        let mut walk = self.walk.clone();
        while walk.left() > 0 {
            let Some(row) = data.tx.get(table, from)? else {
                return Ok(Progress::Changed);
            };
            let source = types::open::source(data.tx, table, row, shape)?;
            let mut few = self.building.take_few();
            let copied = walk.go_on(&source, &mut Step::of(Building::few(step)), |entry| {
                few.push(shape, entry);
                1
            });
            if copied == Progress::Changed {
                return Ok(Progress::Changed);
            }
            if !self.building.write(data, few, step)? {
                break;
            }
        }
        self.walk = walk;
        Ok(step.after_writing(self.walk.left() == 0))
    }

    fn store(&mut self, data: &mut Data<'_, '_>, args: &Args<'_>) -> Done {
        let (from, to) = (args.at(self.from), args.at(self.to));
        let (table, database) = (data.table, self.building.database());
        let target = data.table_of(database);
        let expiry = match self.purpose {
            Purpose::Stretch => None,
            Purpose::Copy { .. } | Purpose::Move => {
                data.tx.get(table, from)?.and_then(|row| row.expiry_ms())
            }
        };
        let replaces = matches!(
            self.purpose,
            Purpose::Copy { replace: true } | Purpose::Stretch
        );
        self.done = (replaces || data.tx.get(target, to)?.is_none())
            && self.building.name(data, to, expiry)?;
        if !self.done {
            return Ok(());
        }
        match self.purpose {
            Purpose::Copy { .. } => data.changed_in(database, Class::Generic, "copy_to", to),
            Purpose::Move => {
                data.tx.delete(table, from)?;
                data.changed(Class::Generic, "move_from", from);
                data.changed_in(database, Class::Generic, "move_to", to);
            }
            Purpose::Stretch => data.changed(Class::SortedSet, "zrangestore", to),
        }
        Ok(())
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        match self.purpose {
            Purpose::Stretch => {
                debug_assert_eq!(self.walk.left(), 0, "each element was copied");
                out.count(self.count);
            }
            Purpose::Copy { .. } | Purpose::Move => out.integer(i64::from(self.done)),
        }
    }

    fn bytes(&self) -> usize {
        self.building.bytes()
    }

    fn logged(&self) -> usize {
        STEP_BYTES
    }
}
