//! Runs a change of a collection on the engine, through the collection types that the server uses.

use perdura::types::{Fault, Left, Texts, hash, list, set, zset};
use perdura::{Home, Shape, TableId, Tx};
use perdura_base::num::to_u64;

use super::{Edit, Reply, bytes_of, digest_of};
use crate::content::Content;
use crate::streams::StreamModel;
use crate::value::{Name, Score, Value, digest, name_bytes, score_of};

impl Edit {
    /// Runs the change on the engine. `held` is the key's value in the model, before the change. Some changes look for
    /// one of its items.
    pub(crate) fn run(
        &self,
        tx: &mut Tx<'_>,
        table: TableId,
        key: &[u8],
        held: Option<&Value>,
    ) -> Result<Reply, perdura::Error> {
        match self.attempt(tx, table, key, held) {
            Ok(reply) => Ok(Some(reply)),
            Err(Fault::WrongType) => Ok(None),
            Err(Fault::Abort(abort)) => Err(abort),
        }
    }

    /// Runs the change on a draft, which has `held` elements before the change. Returns false if drafts do not support
    /// the change.
    pub(crate) fn write(
        &self,
        tx: &mut Tx<'_>,
        (table, home): (TableId, Home),
        held: usize,
    ) -> Result<bool, perdura::Error> {
        match self {
            Edit::Fields(pairs) => {
                for (name, value) in pairs {
                    tx.element_put(table, home, &name_bytes(*name), &bytes_of(*value))?;
                }
            }
            Edit::Members(names) => {
                for name in names {
                    tx.element_put(table, home, &name_bytes(*name), &[])?;
                }
            }
            Edit::Scores(pairs) => {
                for (name, score) in pairs {
                    let score = score_of(*score).to_le_bytes();
                    tx.element_put(table, home, &name_bytes(*name), &score)?;
                }
            }
            Edit::FieldsGone(names) | Edit::MembersGone(names) | Edit::ScoresGone(names) => {
                for name in names {
                    tx.element_delete(table, home, &name_bytes(*name))?;
                }
            }
            Edit::Push(end, items) => {
                let items: Vec<_> = items.iter().map(|item| bytes_of(*item)).collect();
                let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
                tx.list_push(table, home, *end, &items)?;
            }
            Edit::Pop(end, count) => tx.list_pop(table, home, *end, (*count).min(held))?,
            Edit::ScorePop(..)
            | Edit::Stream(_)
            | Edit::Insert(..)
            | Edit::Replace(..)
            | Edit::Remove(..)
            | Edit::Trim(..) => return Ok(false),
        }
        Ok(true)
    }

    fn attempt(
        &self,
        tx: &mut Tx<'_>,
        table: TableId,
        key: &[u8],
        held: Option<&Value>,
    ) -> Result<u64, Fault> {
        match self.shape() {
            Shape::Hash => self.attempt_hash(tx, table, key),
            Shape::Set => self.attempt_set(tx, table, key),
            Shape::Zset => self.attempt_zset(tx, table, key),
            Shape::List => self.attempt_list(tx, table, key, held),
            Shape::Stream => match (self, held) {
                (Edit::Stream(edit), Some(Value::Stream(model))) => {
                    edit.run(tx, (table, key), model)
                }
                (Edit::Stream(edit), _) => edit.run(tx, (table, key), &StreamModel::default()),
                _ => Ok(0),
            },
        }
    }

    fn attempt_hash(&self, tx: &mut Tx<'_>, table: TableId, key: &[u8]) -> Result<u64, Fault> {
        Ok(match self {
            Edit::Fields(pairs) => {
                let pair = |(f, v): &(Name, Content)| (name_bytes(*f), bytes_of(*v));
                let pairs: Vec<_> = pairs.iter().map(pair).collect();
                let pairs = pairs.iter().map(|(f, v)| (f.as_slice(), v.as_slice()));
                hash::set(tx, table, key, pairs)?
            }
            Edit::FieldsGone(names) => {
                let names = names_of(names);
                let names = names.iter().map(Vec::as_slice);
                count_of(hash::remove(tx, table, key, names)?)
            }
            _ => 0,
        })
    }

    fn attempt_set(&self, tx: &mut Tx<'_>, table: TableId, key: &[u8]) -> Result<u64, Fault> {
        Ok(match self {
            Edit::Members(names) => {
                let names = names_of(names);
                set::add(tx, table, key, names.iter().map(Vec::as_slice))?
            }
            Edit::MembersGone(names) => {
                let names = names_of(names);
                let names = names.iter().map(Vec::as_slice);
                count_of(set::remove(tx, table, key, names)?)
            }
            _ => 0,
        })
    }

    fn attempt_zset(&self, tx: &mut Tx<'_>, table: TableId, key: &[u8]) -> Result<u64, Fault> {
        Ok(match self {
            Edit::Scores(pairs) => {
                let pair = |(name, score): &(Name, Score)| (name_bytes(*name), score_of(*score));
                let pairs: Vec<_> = pairs.iter().map(pair).collect();
                let pairs = pairs.iter().map(|(name, score)| (name.as_slice(), *score));
                let added = zset::add(tx, table, key, zset::Conditions::default(), pairs)?;
                added.new * 1000 + added.changed
            }
            Edit::ScoresGone(names) => {
                let names = names_of(names);
                let names = names.iter().map(Vec::as_slice);
                count_of(zset::remove(tx, table, key, names)?)
            }
            Edit::ScorePop(end, count) => {
                let gone = zset::pop(tx, table, key, *end, to_u64(*count))?;
                let gone = gone.map_or_else(Vec::new, |(gone, _)| gone);
                let digests = gone
                    .iter()
                    .map(|(name, score)| digest(name) ^ score.to_bits());
                digest_of(digests)
            }
            _ => 0,
        })
    }

    fn attempt_list(
        &self,
        tx: &mut Tx<'_>,
        table: TableId,
        key: &[u8],
        held: Option<&Value>,
    ) -> Result<u64, Fault> {
        let contents = |items: &[Content]| items.iter().map(|c| bytes_of(*c)).collect::<Vec<_>>();
        let item_at = |at: usize| match held {
            Some(Value::List(items)) => Some(bytes_of(items[at.checked_rem(items.len())?])),
            _ => None,
        };
        Ok(match self {
            Edit::Push(end, items) => {
                let items = contents(items);
                let items = items.iter().map(Vec::as_slice);
                list::push(tx, table, key, *end, items, false)?
            }
            Edit::Pop(end, count) => {
                let gone = list::pop(tx, table, key, *end, to_u64(*count))?;
                let gone = gone.map_or_else(Texts::default, |(gone, _)| gone);
                digest_of(gone.iter().map(digest))
            }
            Edit::Insert(at, before, items) => {
                let pivot = item_at(*at).unwrap_or_default();
                let mut reply = 0;
                for item in contents(items) {
                    let len = list::insert(tx, table, key, (&pivot, *before), &item)?;
                    reply = len.map_or(0, |len| len.unwrap_or(u64::MAX));
                }
                reply
            }
            Edit::Replace(at, item) => {
                let at = i64::try_from(*at).unwrap_or(i64::MAX);
                let done = list::set(tx, table, key, at, &bytes_of(*item))?;
                done.map_or(0, |done| 1 + u64::from(done))
            }
            Edit::Remove(at, count) => {
                let item = item_at(*at).unwrap_or_default();
                count_of(list::remove(tx, table, key, *count, &item)?)
            }
            Edit::Trim(from, to) => {
                let left = list::trim(tx, table, key, *from, *to)?;
                left.map_or(0, |left| 1 + u64::from(left == Left::Nothing))
            }
            _ => 0,
        })
    }
}

fn names_of(names: &[Name]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name_bytes(*name)).collect()
}

/// Returns one number that encodes two facts: the count of removed elements, and whether the collection is now empty.
fn count_of((count, left): (u64, Left)) -> u64 {
    count * 2 + u64::from(left == Left::Nothing)
}
