//! LPUSH and RPUSH of many items onto a key that does not exist.

use super::building::{Building, STEP_BYTES, are_rows};
use super::{Progress, Step, Work};
use crate::command::event::Class;
use crate::command::lists::push_event;
use crate::command::{Data, Done, Stop};
use crate::engine::{End, Shape};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::{to_u64, to_usize};

/// The index of the argument with the first item.
const FIRST: usize = 2;

/// The work of making a new list.
#[derive(Debug)]
pub(crate) struct Pushing {
    end: End,
    /// The index of the argument with the next item. `until` is the number of arguments.
    at: usize,
    until: usize,
    building: Building,
}

impl Pushing {
    /// Returns the work of making a list from the items of a command. `None`: the list is too short to need steps.
    pub(crate) fn new(data: &Data<'_, '_>, args: &Args<'_>, end: End) -> Option<Pushing> {
        let items = to_u64(args.len() - FIRST);
        let is_long = data.is_long(items) && are_rows(data.tx.packing(), Shape::List, items);
        is_long.then(|| Pushing {
            end,
            at: FIRST,
            until: args.len(),
            building: Building::new(data.database, Shape::List),
        })
    }
}

impl Work for Pushing {
    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        debug_assert!(
            FIRST <= self.at && self.at <= self.until,
            "items are pushed in their order"
        );
        debug_assert_eq!(self.until, args.len(), "the request stays as it was");
        let left = to_u64(self.until - self.at);
        if !self.building.begin(data, args.at(1), step, left)? {
            return Ok(Progress::Changed);
        }
        if left == 0 {
            return Ok(Progress::Complete);
        }
        let mut at = self.at;
        while at < self.until {
            let until = self.until.min(at + to_usize(Building::few(step)));
            let items: Vec<&[u8]> = (at..until).map(|at| args.at(at)).collect();
            at = until;
            if !self.building.push(data, self.end, &items, step)? {
                break;
            }
        }
        self.at = at;
        Ok(step.after_writing(at == self.until))
    }

    fn store(&mut self, data: &mut Data<'_, '_>, args: &Args<'_>) -> Done {
        if self.building.name(data, args.at(1), None)? {
            data.changed(Class::List, push_event(self.end), args.at(1));
        }
        Ok(())
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        out.count(to_u64(self.until - FIRST));
    }

    fn bytes(&self) -> usize {
        self.building.bytes()
    }

    fn logged(&self) -> usize {
        STEP_BYTES
    }
}
