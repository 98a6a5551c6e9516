//! SORT and SORT_RO of a large collection, without BY and GET.
//!
//! First the elements are copied. After that the collection is not read any more. The copies are sorted in
//! short pieces, which this file calls runs. Then the runs are merged up to the last wanted element.

use super::building::{STEP_BYTES, Supply};
use super::{Building, Progress, Step, Walk, Work, admitted, are_rows};
use crate::command::event::Class;
use crate::command::keys::sort::{Sorting, Weighed, number, store};
use crate::command::{Data, Done, Stop};
use crate::engine::types::Texts;
use crate::engine::{Shape, types};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;
use std::cmp::Ordering;
use std::ops::Range;

/// The number of elements of a run.
const RUN: usize = 2048;

/// The options of the request.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// True if elements are compared as text.
    pub alpha: bool,
    /// True if the greatest element comes first.
    pub descending: bool,
    /// The ranks of the wanted elements in the sorted order.
    pub piece: Range<usize>,
    /// The index of the argument that is the key of the result. `None`: the elements are not stored, but are the reply.
    pub target: Option<usize>,
}

/// The work of making a sorted reply, or a sorted list to be stored.
#[derive(Debug)]
pub(crate) struct Sorted {
    walk: Walk,
    wanted: Wanted,
    elements: Texts,
    order: Vec<Weighed>,
    /// A heap of the sorted runs. The first run in the heap contains the next element of the result.
    runs: Vec<Range<usize>>,
    /// The number of merged elements.
    merged: usize,
    text: Vec<u8>,
    stored: Texts,
    /// The list to be stored, if it is built step by step. `built` is the number of items in it.
    building: Option<Building>,
    built: usize,
}

/// Restores the order of a heap. Only the first entry may be out of place.
fn sift(runs: &mut [Range<usize>], before: impl Fn(usize, usize) -> bool) {
    let mut at = 0;
    loop {
        let mut first = at;
        for child in [2 * at + 1, 2 * at + 2] {
            if runs
                .get(child)
                .is_some_and(|run| before(run.start, runs[first].start))
            {
                first = child;
            }
        }
        if first == at {
            return;
        }
        runs.swap(at, first);
        at = first;
    }
}

impl Sorted {
    /// Returns the work of sorting a collection. `walk` goes over the collection in the first argument's key.
    pub(crate) fn new(walk: Walk, wanted: Wanted) -> Sorted {
        let mut text = Vec::new();
        Out::new(&mut text, false).array(wanted.piece.len());
        Sorted {
            walk,
            wanted,
            elements: Texts::default(),
            order: Vec::new(),
            runs: Vec::new(),
            merged: 0,
            text,
            stored: Texts::default(),
            building: None,
            built: 0,
        }
    }

    /// Copies elements until the step is over.
    fn gather(
        &mut self,
        data: &Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let shape = self.walk.shape();
        let Some(row) = data.tx.get(data.table, args.at(1))? else {
            return Ok(Progress::Changed);
        };
        let source = types::open::source(data.tx, data.table, row, shape)?;
        Ok(self.walk.go_on(&source, step, |entry| {
            match shape {
                Shape::List => self.elements.push(&entry.item()),
                Shape::Hash | Shape::Set | Shape::Zset | Shape::Stream => {
                    self.elements.push(&entry.key());
                }
            }
            1
        }))
    }

    /// Writes items of the list that is to be stored, until the step is over.
    fn build(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let (Some(building), Some(target)) = (&mut self.building, self.wanted.target) else {
            return Ok(Progress::Complete);
        };
        let supply = Supply {
            key: args.at(target),
            texts: &self.stored,
        };
        building.fill(data, supply, &mut self.built, step)
    }

    /// Sorts runs until the step is over. Returns whether all runs are sorted.
    fn sort(&mut self, step: &mut Step) -> Result<bool, Stop> {
        while self.order.len() < self.elements.len() {
            let begin = self.order.len();
            for at in begin..self.elements.len().min(begin + RUN) {
                let number = match self.wanted.alpha {
                    true => 0.0,
                    false => number(self.elements.get(at))?,
                };
                self.order.push(Weighed { at, number });
            }
            let run = begin..self.order.len();
            let sorting = Sorting::plain(&self.elements, &self.wanted);
            self.order[run.clone()].sort_unstable_by(|a, b| sorting.compare(a, b));
            let cost = to_u64(run.len());
            self.runs.push(run);
            if !step.spend(cost) {
                return Ok(false);
            }
        }
        debug_assert_eq!(
            self.order.len(),
            self.elements.len(),
            "each element has a place"
        );
        Ok(true)
    }

    /// Merges the runs until the step is over. Returns whether all wanted elements have been
    /// merged.
    fn merge(&mut self, step: &mut Step) -> bool {
        let sorting = Sorting::plain(&self.elements, &self.wanted);
        let order = &self.order;
        let before = |a: usize, b: usize| sorting.compare(&order[a], &order[b]) == Ordering::Less;
        if self.merged == 0 {
            self.runs
                .sort_unstable_by(|a, b| sorting.compare(&order[a.start], &order[b.start]));
        }
        let mut out = Out::new(&mut self.text, false);
        while self.merged < self.wanted.piece.end {
            let Some(run) = self.runs.first_mut() else {
                return true;
            };
            debug_assert!(run.start < run.end, "a run that is left has an element");
            let element = self.elements.get(order[run.start].at);
            if self.merged >= self.wanted.piece.start {
                match self.wanted.target {
                    Some(_) => self.stored.push(element),
                    None => out.bulk(element),
                }
            }
            self.merged += 1;
            run.start += 1;
            if run.start == run.end {
                self.runs.swap_remove(0);
            }
            sift(&mut self.runs, before);
            if !step.spend(1) {
                break;
            }
        }
        debug_assert!(
            self.merged <= self.wanted.piece.end,
            "no more is merged than is wanted"
        );
        self.merged >= self.wanted.piece.end
    }
}

impl Work for Sorted {
    fn reads(&self) -> bool {
        // The stored list must show the collection as it is when the list is stored.
        self.walk.left() > 0 || self.wanted.target.is_some()
    }

    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        if self.walk.left() > 0 {
            let progress = self.gather(data, args, step)?;
            if progress != Progress::Complete {
                return Ok(progress);
            }
        } else if self.wanted.target.is_some() && data.tx.get(data.table, args.at(1))?.is_none() {
            // The key has expired. A watch does not report that as a change.
            return Ok(Progress::Changed);
        }
        if self.building.is_none() {
            let done = self.sort(step)? && self.merge(step);
            data.check_reply(self.text.len())?;
            let items = to_u64(self.stored.len());
            return Ok(match done {
                false => Progress::More,
                true if !data.is_long(items)
                    || !are_rows(data.tx.packing(), Shape::List, items) =>
                {
                    Progress::Complete
                }
                true => {
                    self.building = Some(Building::new(data.database, Shape::List));
                    match step.is_endless() {
                        true => return self.build(data, args, step),
                        false => Progress::More,
                    }
                }
            });
        }
        self.build(data, args, step)
    }

    fn store(&mut self, data: &mut Data<'_, '_>, args: &Args<'_>) -> Done {
        match self.wanted.target {
            Some(target) => match &self.building {
                Some(building) => {
                    if building.name(data, args.at(target), None)? {
                        data.changed(Class::List, "sortstore", args.at(target));
                    }
                    Ok(())
                }
                None => store(data, args.at(target), self.stored.iter().map(Some)),
            },
            None => Ok(()),
        }
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        if self.wanted.target.is_some() {
            return out.count(to_u64(self.wanted.piece.len()));
        }
        out.append(std::mem::take(&mut self.text));
    }

    fn bytes(&self) -> usize {
        let order = self.order.capacity() * size_of::<Weighed>();
        self.elements.bytes() + self.stored.bytes() + self.text.capacity() + order
    }

    fn logged(&self) -> usize {
        match &self.building {
            Some(_) => STEP_BYTES,
            None => admitted(&self.stored),
        }
    }
}
