//! SUNION, SINTER, SDIFF and their STORE forms over large sets.
//!
//! A join walks over one or more sets, one at a time. An intersection takes a member if all remaining sets have it. A
//! difference takes a member if all remaining sets lack it. A union walks over all sets and takes the members that no
//! earlier set has, so it need not remember any members. The cost of a member grows with the number of sets. Therefore
//! a long join of more than [`SETS_MAX`] sets does not run in steps, but as a whole beside the loop.

use super::building::{STEP_BYTES, Supply};
use super::{Building, Progress, Step, Walk, Work, admitted, are_rows};
use crate::command::event::Class;
use crate::command::sets::joins::{sources, store};
use crate::command::{Data, Done, Stop};
use crate::engine::Shape;
use crate::engine::types::set::Join;
use crate::engine::types::{Source, Text, Texts};
use crate::resp::parse::Args;
use crate::resp::reply::{Out, room_for_head};
use perdura_base::num::to_u64;
use std::ops::Range;

/// The maximum number of sets that a join in steps may have. A long join of more sets runs beside the loop.
const SETS_MAX: usize = 8;

/// The use of the members that a join finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The members are the reply.
    Replied,
    /// The members are stored under the key in the first argument. The string is the name of the event.
    Stored(&'static str),
}

/// The work of a join.
#[derive(Debug)]
pub(crate) struct Joining {
    join: Join,
    joined: Joined,
    /// The sets' keys among the arguments.
    keys: Range<usize>,
    /// The walks over the sets, each with the index of its set. `lens` has the number of elements that each set
    /// had when the join began.
    walks: Vec<(usize, Walk)>,
    lens: Vec<Option<u64>>,
    /// The members found, if they are to be stored. `text` has the members for a reply.
    members: Texts,
    /// The set to be stored, if it is built step by step. `built` is the number of members in it.
    building: Option<Building>,
    built: usize,
    count: usize,
    text: Vec<u8>,
}

impl Joining {
    /// Returns the work of joining these sets. `None`: the join is too short to need steps.
    pub(crate) fn new(
        data: &Data<'_, '_>,
        sets: &[Option<Source<'_>>],
        join: Join,
        joined: Joined,
        keys: Range<usize>,
    ) -> Option<Joining> {
        debug_assert_eq!(sets.len(), keys.len(), "each key has a set or none");
        let lens: Vec<_> = sets
            .iter()
            .map(|set| set.as_ref().map(Source::len))
            .collect();
        let there = || {
            lens.iter()
                .enumerate()
                .filter_map(|(at, len)| Some((at, (*len)?)))
        };
        let walked: Vec<(usize, u64)> = match join {
            Join::Union => there().collect(),
            Join::Difference => there().filter(|(at, _)| *at == 0).collect(),
            Join::Intersection if lens.iter().any(Option::is_none) => Vec::new(),
            Join::Intersection => there().min_by_key(|(_, len)| *len).into_iter().collect(),
        };
        let all = walked.iter().map(|(_, len)| len).sum();
        if sets.len() > SETS_MAX || !data.is_long(all) {
            return None;
        }
        let walk = |(at, len)| (at, Walk::all(Shape::Set, len));
        Some(Joining {
            join,
            joined,
            keys,
            walks: walked.into_iter().rev().map(walk).collect(),
            lens,
            members: Texts::default(),
            building: None,
            built: 0,
            count: 0,
            text: room_for_head(),
        })
    }
}

/// Returns whether a member of the set at `at` belongs to the join, and the number of sets that
/// were searched.
fn judge(join: Join, sets: &[Option<Source<'_>>], at: usize, member: &Text<'_>) -> (bool, u64) {
    let is_asked = |other: usize| match join {
        Join::Union => other < at,
        Join::Difference => other > 0,
        Join::Intersection => other != at,
    };
    let asked_of = sets
        .iter()
        .enumerate()
        .filter(|(other, _)| is_asked(*other));
    let mut others = asked_of.filter_map(|(_, set)| set.as_ref());
    let mut asked = 0;
    let wanted = join == Join::Intersection;
    let taken = others.all(|set| {
        asked += 1;
        set.find(member).is_some() == wanted
    });
    (taken, asked)
}

impl Work for Joining {
    fn sources(&self, _: &Args<'_>) -> Range<usize> {
        self.keys.clone()
    }

    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let sets = sources(data, self.keys.clone().map(|at| args.at(at)))?;
        let lens = sets.iter().map(|set| set.as_ref().map(Source::len));
        if !lens.eq(self.lens.iter().copied()) {
            return Ok(Progress::Changed);
        }
        while let Some((at, walk)) = self.walks.last_mut() {
            let Some(Some(source)) = sets.get(*at) else {
                return Ok(Progress::Changed);
            };
            let mut out = Out::new(&mut self.text, false);
            let progress = walk.go_on(source, step, |entry| {
                let member = entry.key();
                let (taken, asked) = judge(self.join, &sets, *at, &member);
                self.count += usize::from(taken);
                match self.joined {
                    Joined::Stored(_) if taken => self.members.push(&member),
                    Joined::Replied if taken => out.bulk(&member),
                    Joined::Stored(_) | Joined::Replied => {}
                }
                asked + 1
            });
            data.check_reply(self.text.len())?;
            if progress != Progress::Complete {
                return Ok(progress);
            }
            self.walks.pop();
        }
        drop(sets);
        let stored = self.joined != Joined::Replied;
        if stored && self.building.is_none() {
            let found = to_u64(self.members.len());
            if !data.is_long(found) || !are_rows(data.tx.packing(), Shape::Set, found) {
                return Ok(Progress::Complete);
            }
            self.building = Some(Building::new(data.database, Shape::Set));
            if !step.is_endless() {
                return Ok(Progress::More);
            }
        }
        let Some(building) = &mut self.building else {
            return Ok(Progress::Complete);
        };
        let supply = Supply {
            key: args.at(1),
            texts: &self.members,
        };
        building.fill(data, supply, &mut self.built, step)
    }

    fn store(&mut self, data: &mut Data<'_, '_>, args: &Args<'_>) -> Done {
        match self.joined {
            Joined::Stored(event) => match &self.building {
                Some(building) => {
                    debug_assert_eq!(self.built, self.members.len(), "each member was written");
                    if building.name(data, args.at(1), None)? {
                        data.changed(Class::Set, event, args.at(1));
                    }
                    Ok(())
                }
                None => store(data, args.at(1), event, &self.members),
            },
            Joined::Replied => Ok(()),
        }
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        if self.joined != Joined::Replied {
            return out.count(to_u64(self.count));
        }
        debug_assert!(self.walks.is_empty(), "each set was walked");
        let text = std::mem::take(&mut self.text);
        out.append_under(text, |out| out.set(self.count));
    }

    fn bytes(&self) -> usize {
        self.members.bytes() + self.text.capacity()
    }

    fn logged(&self) -> usize {
        match &self.building {
            Some(_) => STEP_BYTES,
            None => admitted(&self.members),
        }
    }
}
