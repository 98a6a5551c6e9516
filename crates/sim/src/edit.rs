//! Changes of collections. This module draws a change and applies it to the model. The module `engine` runs the change
//! on the engine, through the product's collection types. The two replies must be equal.

mod engine;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use fastrand::Rng;
use perdura::{End, Shape};
use perdura_base::num::to_u64;

use crate::content::{Content, scramble};
use crate::streams::{StreamEdit, StreamModel};
use crate::swarm::{Swarm, pick};
use crate::value::{Name, Score, Value, digest, name_bytes};

/// One change of one collection.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Fields(Vec<(Name, Content)>),
    FieldsGone(Vec<Name>),
    Members(Vec<Name>),
    MembersGone(Vec<Name>),
    Scores(Vec<(Name, Score)>),
    ScoresGone(Vec<Name>),
    ScorePop(End, usize),
    Push(End, Vec<Content>),
    Pop(End, usize),
    /// Inserts the items before (`true`) or after (`false`) a pivot. The pivot is the first item that equals the item
    /// at this index.
    Insert(usize, bool, Vec<Content>),
    Replace(usize, Content),
    /// Removes up to the given number of items that equal the item at this index. A negative number removes from the
    /// back.
    Remove(usize, i64),
    Trim(i64, i64),
    Stream(StreamEdit),
}

/// The reply to an edit, as one number. `None`: the key's value has a different type.
pub(crate) type Reply = Option<u64>;

fn draw_item(rng: &mut Rng, swarm: &Swarm) -> Content {
    let len = if rng.u8(0..100) >= swarm.long {
        rng.usize(0..20)
    } else if rng.u8(0..10) == 0 {
        rng.usize(1000..20_000)
    } else {
        rng.usize(60..200)
    };
    // Items are often equal, because only few seeds are drawn.
    let seed = rng.u64(0..64);
    Content { seed, len }
}

impl Edit {
    /// Chooses, at random, a change for collections of this shape.
    pub(crate) fn draw(rng: &mut Rng, swarm: &Swarm, shape: Shape) -> Edit {
        let count = if rng.u8(0..100) < swarm.bulk {
            rng.usize(20..200)
        } else {
            rng.usize(1..=4)
        };
        let first = rng.u16(0..swarm.names);
        let scattered = rng.bool();
        let many: Vec<Name> = (0..)
            .take(count)
            .map(|i| match scattered {
                true => rng.u16(0..swarm.names),
                false => first + i,
            })
            .collect();
        let goes = rng.u8(0..4) == 0;
        let end = if rng.bool() { End::Front } else { End::Back };
        match shape {
            Shape::Stream => {
                let mut items = rng.fork();
                Edit::Stream(StreamEdit::draw(rng, count, || {
                    draw_item(&mut items, swarm)
                }))
            }
            Shape::Hash if goes => Edit::FieldsGone(many),
            Shape::Hash => {
                let value = |name| (name, draw_item(rng, swarm));
                Edit::Fields(many.into_iter().map(value).collect())
            }
            Shape::Set if goes => Edit::MembersGone(many),
            Shape::Set => Edit::Members(many),
            Shape::Zset if goes && rng.bool() => Edit::ScorePop(end, count.min(6)),
            Shape::Zset if goes => Edit::ScoresGone(many),
            Shape::Zset => {
                let score = |rng: &mut Rng| match rng.u8(0..20) {
                    0 => pick(rng, &[Score::MAX, Score::MIN]),
                    _ => rng.i16(-4..8),
                };
                let scored = |name| (name, score(rng));
                Edit::Scores(many.into_iter().map(scored).collect())
            }
            Shape::List => {
                let items = |rng: &mut Rng| -> Vec<Content> {
                    (0..count).map(|_| draw_item(rng, swarm)).collect()
                };
                let at = rng.usize(0..12);
                match rng.u8(0..12) {
                    0..=3 => Edit::Push(end, items(rng)),
                    4..=6 => {
                        // All items are inserted at the same spot, so that they use up the gaps between labels.
                        let count = rng.usize(1..=14);
                        let items = (0..count).map(|_| draw_item(rng, swarm)).collect();
                        Edit::Insert(at, rng.bool(), items)
                    }
                    7 => Edit::Replace(at, draw_item(rng, swarm)),
                    8 => Edit::Remove(at, rng.i64(-2..=2)),
                    9 => Edit::Trim(rng.i64(-30..3), rng.i64(-3..60)),
                    _ => Edit::Pop(end, count.min(6)),
                }
            }
        }
    }

    /// Returns the shape of the collections that this edit changes.
    pub(crate) fn shape(&self) -> Shape {
        match self {
            Edit::Fields(_) | Edit::FieldsGone(_) => Shape::Hash,
            Edit::Members(_) | Edit::MembersGone(_) => Shape::Set,
            Edit::Stream(_) => Shape::Stream,
            Edit::Scores(_) | Edit::ScoresGone(_) | Edit::ScorePop(..) => Shape::Zset,
            Edit::Push(..)
            | Edit::Pop(..)
            | Edit::Insert(..)
            | Edit::Replace(..)
            | Edit::Remove(..)
            | Edit::Trim(..) => Shape::List,
        }
    }

    /// Applies the edit to `held`. Returns the value after the edit, and the reply.
    pub(crate) fn apply(&self, held: Option<&Value>) -> (Option<Value>, Reply) {
        if held.is_some_and(|held| held.shape() != Some(self.shape())) {
            return (held.cloned(), None);
        }
        let (after, reply) = match held {
            Some(Value::Hash(fields)) => self.to_hash(Rc::clone(fields)),
            Some(Value::Set(members)) => self.to_set(Rc::clone(members)),
            Some(Value::Zset(members)) => self.to_zset(Rc::clone(members)),
            Some(Value::List(items)) => self.to_list(Rc::clone(items)),
            Some(Value::Stream(stream)) => self.to_stream(Rc::clone(stream)),
            Some(Value::String(_)) => unreachable!("it has no shape"),
            None => match self.shape() {
                Shape::Hash => self.to_hash(Rc::default()),
                Shape::Set => self.to_set(Rc::default()),
                Shape::Zset => self.to_zset(Rc::default()),
                Shape::List => self.to_list(Rc::default()),
                Shape::Stream => self.to_stream(Rc::default()),
            },
        };
        assert_eq!(
            after.shape(),
            Some(self.shape()),
            "a change leaves the type that it is for"
        );
        (Some(after).filter(|after| !after.is_empty()), Some(reply))
    }

    fn to_hash(&self, mut held: Rc<BTreeMap<Name, Content>>) -> (Value, u64) {
        let fields = Rc::make_mut(&mut held);
        let reply = match self {
            Edit::Fields(pairs) => {
                let new =
                    |(field, value): &(Name, Content)| fields.insert(*field, *value).is_none();
                to_u64(pairs.iter().map(new).filter(|new| *new).count())
            }
            Edit::FieldsGone(names) => {
                let gone = names.iter().filter(|name| fields.remove(name).is_some());
                removed(gone.count(), fields.is_empty())
            }
            _ => 0,
        };
        (Value::Hash(held), reply)
    }

    fn to_set(&self, mut held: Rc<BTreeSet<Name>>) -> (Value, u64) {
        let members = Rc::make_mut(&mut held);
        let reply = match self {
            Edit::Members(names) => {
                to_u64(names.iter().filter(|name| members.insert(**name)).count())
            }
            Edit::MembersGone(names) => {
                let gone = names.iter().filter(|name| members.remove(name));
                removed(gone.count(), members.is_empty())
            }
            _ => 0,
        };
        (Value::Set(held), reply)
    }

    fn to_zset(&self, held: Rc<BTreeMap<Name, Score>>) -> (Value, u64) {
        let ranked = match self {
            Edit::ScorePop(..) => Value::Zset(Rc::clone(&held)).ranked(),
            _ => Vec::new(),
        };
        let mut held = held;
        let members = Rc::make_mut(&mut held);
        let reply = match self {
            Edit::Scores(pairs) => {
                let (mut new, mut changed) = (0, 0);
                for (name, score) in pairs {
                    match members.insert(*name, *score) {
                        None => new += 1,
                        Some(old) => changed += u64::from(old != *score),
                    }
                }
                new * 1000 + changed
            }
            Edit::ScoresGone(names) => {
                let gone = names.iter().filter(|name| members.remove(name).is_some());
                removed(gone.count(), members.is_empty())
            }
            Edit::ScorePop(end, count) => {
                let mut ranked = ranked;
                if *end == End::Back {
                    ranked.reverse();
                }
                ranked.truncate(*count);
                let before = members.len();
                members.retain(|name, _| {
                    let name = name_bytes(*name);
                    !ranked.iter().any(|(_, gone)| *gone == name)
                });
                assert_eq!(
                    members.len() + ranked.len(),
                    before,
                    "every rank is a member's, and no two are the same member's"
                );
                digest_of(
                    ranked
                        .iter()
                        .map(|(score, name)| digest(name) ^ score.to_bits()),
                )
            }
            _ => 0,
        };
        (Value::Zset(held), reply)
    }

    fn to_stream(&self, mut held: Rc<StreamModel>) -> (Value, u64) {
        let reply = match self {
            Edit::Stream(edit) => edit.apply(Rc::make_mut(&mut held)),
            _ => 0,
        };
        (Value::Stream(held), reply)
    }

    fn to_list(&self, mut held: Rc<Vec<Content>>) -> (Value, u64) {
        let items = Rc::make_mut(&mut held);
        let item_at = |at: usize| at.checked_rem(items.len()).map(|at| items[at]);
        let reply = match self {
            Edit::Push(end, new) => {
                for item in new {
                    let at = if *end == End::Front { 0 } else { items.len() };
                    items.insert(at, *item);
                }
                to_u64(items.len())
            }
            Edit::Pop(end, count) => {
                let before = items.len();
                let count = (*count).min(before);
                let gone: Vec<Content> = match end {
                    End::Front => items.drain(..count).collect(),
                    End::Back => items.drain(items.len() - count..).rev().collect(),
                };
                assert_eq!(gone.len() + items.len(), before, "what goes was there");
                digest_of(gone.iter().map(|item| digest(&bytes_of(*item))))
            }
            Edit::Insert(at, before, new) => match item_at(*at) {
                None => 0,
                Some(pivot) => insert_at(items, pivot, *before, new),
            },
            Edit::Replace(at, item) => match items.get_mut(*at) {
                Some(place) => {
                    *place = *item;
                    2
                }
                None => u64::from(!items.is_empty()),
            },
            Edit::Remove(at, count) => match item_at(*at) {
                None => removed(0, true),
                Some(gone) => remove_equal(items, gone, *count),
            },
            Edit::Trim(from, to) => trim(items, *from, *to),
            _ => 0,
        };
        (Value::List(held), reply)
    }
}

/// Inserts items directly before the pivot, or directly after it if `before` is false. The pivot is the first item that
/// equals `pivot`. Returns the new number of items.
fn insert_at(items: &mut Vec<Content>, pivot: Content, before: bool, new: &[Content]) -> u64 {
    for item in new {
        let found = items.iter().position(|other| *other == pivot);
        let at = found.map_or(0, |at| at + usize::from(!before));
        items.insert(at, *item);
    }
    to_u64(items.len())
}

/// Removes up to `count` items that equal `gone`. A negative `count` removes from the back, 0
/// removes all.
fn remove_equal(items: &mut Vec<Content>, gone: Content, count: i64) -> u64 {
    let equal = (0..items.len()).filter(|at| items[*at] == gone);
    let mut equal: Vec<usize> = equal.collect();
    if count < 0 {
        equal.reverse();
    }
    if count != 0 {
        let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        equal.truncate(count);
    }
    let (mut at, before) = (0, items.len());
    items.retain(|_| {
        at += 1;
        !equal.contains(&(at - 1))
    });
    assert_eq!(
        items.len() + equal.len(),
        before,
        "as many items go as were found"
    );
    removed(equal.len(), items.is_empty())
}

/// Keeps only the items between two indexes. A negative index counts from the back.
fn trim(items: &mut Vec<Content>, from: i64, to: i64) -> u64 {
    let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let absolute = |at: i64| if at < 0 { at + len } else { at };
    let kept = absolute(from).max(0)..=absolute(to);
    let mut at = 0;
    items.retain(|_| {
        at += 1;
        kept.contains(&(at - 1))
    });
    match len {
        0 => 0,
        _ => 1 + u64::from(items.is_empty()),
    }
}

fn removed(count: usize, is_empty: bool) -> u64 {
    to_u64(count) * 2 + u64::from(is_empty)
}

fn bytes_of(content: Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    content.fill(&mut bytes);
    bytes
}

fn digest_of(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, |sum, part| scramble(sum ^ part))
}
