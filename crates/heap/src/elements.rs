//! Reading the elements of a collection.

use std::collections::vec_deque;

use perdura_base::checksum::mix64;
use perdura_base::num::to_u64;
use perdura_page::Shape;

use crate::collection::{Collection, Index};
use crate::element_key::ElementKey;
use crate::entry::Entry;
use crate::hash_index::{HashIndex, Place};
use crate::name_place::place_of;
use crate::order;
use crate::order::OrderIndex;
use crate::pages::Pages;
use crate::row_ref::RowRef;
use crate::scan::scan_places;

/// A reader of one collection's elements. It borrows the latched partition.
#[derive(Clone, Copy)]
pub struct Elements<'a> {
    pages: &'a Pages,
    collection: &'a Collection,
}

impl<'a> Elements<'a> {
    pub(crate) fn new(pages: &'a Pages, collection: &'a Collection) -> Self {
        Elements { pages, collection }
    }

    /// Returns the shape of the collection.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.collection.shape
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> u64 {
        to_u64(self.collection.len())
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the field or member of this name, or `None` if the name is unknown or the collection is a list.
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<RowRef<'a>> {
        let key = ElementKey::named(self.collection.id, field);
        let hash = self.pages.geometry.hash(key.bytes());
        let (_, row) = self.collection.find(self.pages, key.bytes(), hash)?;
        Some(RowRef::new(self.pages, row))
    }

    /// Returns all elements: names in hash order, items in list order, members by score.
    #[must_use]
    pub fn iter(&self) -> Iter<'a> {
        let walk = match &self.collection.index {
            Index::Names(names) => Walk::Names(names, Place::FIRST),
            Index::Items(items) => Walk::Items(items.iter()),
            Index::Scores(names, order) => {
                debug_assert_eq!(to_u64(names.len()), order.len(), "each name has a score");
                Walk::Scores(Box::new(order.iter()))
            }
        };
        Iter {
            pages: self.pages,
            walk,
        }
    }

    /// Returns about `count` fields or members, in hash order, beginning at a cursor. Also returns the cursor for the
    /// next call. A scan begins with cursor 0, and a returned 0 means the end. An element that exists during the whole
    /// scan is returned at least once, even if other elements change. It may be returned twice. A call that meets many
    /// empty places may return no element. A scan of a list returns nothing.
    #[must_use]
    pub fn scan(&self, cursor: u64, count: usize) -> (Vec<RowRef<'a>>, u64) {
        let Some((names, from)) = self.collection.names().zip(u32::try_from(cursor).ok()) else {
            return (Vec::new(), 0);
        };
        let (entries, next) = names.scan(from, count, &mut scan_places(count));
        let rows = entries.into_iter().filter_map(|e| row(self.pages, e));
        (rows.collect(), next.map_or(0, u64::from))
    }

    /// Returns a random element, chosen by the random number `r`. All elements are equally likely.
    #[must_use]
    pub fn random(&self, r: u64) -> Option<RowRef<'a>> {
        let rank = mix64(r).checked_rem(self.len())?;
        match &self.collection.index {
            Index::Names(names) => row(self.pages, names.random(r)?),
            Index::Items(_) | Index::Scores(..) => self.at(rank),
        }
    }

    /// Returns the item at index `i` of a list, or the member of rank `i`; `None` if it does not exist or the
    /// collection has no order.
    #[must_use]
    pub fn at(&self, i: u64) -> Option<RowRef<'a>> {
        let entry = match &self.collection.index {
            Index::Names(_) => return None,
            Index::Items(items) => *items.get(usize::try_from(i).ok()?)?,
            Index::Scores(_, order) => order.at(i)?.1,
        };
        row(self.pages, entry)
    }

    /// Returns a list's items from index `from` up to, but not including, index `to`.
    #[must_use]
    pub fn items(
        &self,
        from: u64,
        to: u64,
    ) -> impl DoubleEndedIterator<Item = RowRef<'a>> + use<'a> {
        let pages = self.pages;
        let items = match &self.collection.index {
            Index::Items(items) => {
                let place = |i: u64| usize::try_from(i).map_or(items.len(), |i| i.min(items.len()));
                let to = place(to);
                Some(items.range(place(from).min(to)..to))
            }
            Index::Names(_) | Index::Scores(..) => None,
        };
        let entries = items.into_iter().flatten();
        entries.filter_map(move |entry| row(pages, *entry))
    }

    /// Returns the number of members before `member`; `None` if `member` does not exist.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<u64> {
        let Index::Scores(_, order) = &self.collection.index else {
            return None;
        };
        let score = self.get(member)?.score();
        let rank = rank_of(self.pages, order, score, member);
        debug_assert!(rank < order.len(), "a member that is there has a rank");
        Some(rank)
    }

    /// Returns the number of parts of a stream that come before `name`. The part `name` need not exist. A row is read
    /// only to compare names with equal scores.
    #[must_use]
    pub fn names_before(&self, name: &[u8]) -> u64 {
        match &self.collection.index {
            Index::Scores(_, order) if self.shape() == Shape::Stream => {
                rank_of(self.pages, order, place_of(name), name)
            }
            Index::Scores(..) | Index::Names(_) | Index::Items(_) => 0,
        }
    }

    /// Returns the number of members that `pred` accepts. `pred` must accept a prefix of the order, and refuse all
    /// later members. Each call of `pred` reads a row.
    #[must_use]
    pub fn partition_point(&self, mut pred: impl FnMut(f64, &RowRef<'a>) -> bool) -> u64 {
        match &self.collection.index {
            Index::Scores(_, order) => order.partition_point(|_, entry| {
                row(self.pages, entry).is_some_and(|row| pred(row.score(), &row))
            }),
            Index::Names(_) | Index::Items(_) => 0,
        }
    }

    /// Like [`partition_point`](Self::partition_point), but `pred` depends on the score alone, and no row is read.
    #[must_use]
    pub fn score_point(&self, mut pred: impl FnMut(f64) -> bool) -> u64 {
        match &self.collection.index {
            Index::Scores(_, order) => order.partition_point(|score, _| pred(score)),
            Index::Names(_) | Index::Items(_) => 0,
        }
    }

    /// Returns the members from rank `from` up to, but not including, rank `to`. Each comes with its score.
    #[must_use]
    pub fn range(
        &self,
        from: u64,
        to: u64,
    ) -> impl DoubleEndedIterator<Item = (f64, RowRef<'a>)> + use<'a> {
        let pages = self.pages;
        let range = match &self.collection.index {
            Index::Scores(_, order) => Some(order.range(from, to)),
            Index::Names(_) | Index::Items(_) => None,
        };
        let entries = range.into_iter().flatten();
        entries
            .filter_map(move |(_, entry)| row(pages, entry))
            .map(|row| (row.score(), row))
    }
}

impl<'a> IntoIterator for &Elements<'a> {
    type Item = RowRef<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

fn row(pages: &Pages, entry: Entry) -> Option<RowRef<'_>> {
    pages.row(entry).map(|row| RowRef::new(pages, row))
}

enum Walk<'a> {
    Names(&'a HashIndex, Place),
    Items(vec_deque::Iter<'a, Entry>),
    Scores(Box<order::Range<'a>>),
}

/// An iterator over all elements of a collection.
pub struct Iter<'a> {
    pages: &'a Pages,
    walk: Walk<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = RowRef<'a>;

    fn next(&mut self) -> Option<RowRef<'a>> {
        let entry = match &mut self.walk {
            Walk::Names(names, next) => {
                let place = names.next_taken(*next)?;
                *next = place.next();
                names.place(place)?
            }
            Walk::Items(items) => *items.next()?,
            Walk::Scores(range) => range.next()?.1,
        };
        row(self.pages, entry)
    }
}

/// Returns the number of members that come before this score and name.
pub(crate) fn rank_of(pages: &Pages, order: &OrderIndex, score: f64, field: &[u8]) -> u64 {
    partition_at(pages, order, score, field).0
}

/// Returns the number of members before this score and name, and the next member.
fn partition_at(
    pages: &Pages,
    order: &OrderIndex,
    score: f64,
    field: &[u8],
) -> (u64, Option<(f64, Entry)>) {
    let is_before = |entry: Entry| row(pages, entry).is_some_and(|row| &*row.field() < field);
    order.partition(|at, entry| at < score || (at <= score && is_before(entry)))
}

/// A part of a stream, found in the order of names.
pub(crate) struct Part<'a> {
    pub(crate) rank: u64,
    pub(crate) entry: Entry,
    pub(crate) row: RowRef<'a>,
}

/// Returns the part of this name. One descent finds the rank and the row, without the hash index.
pub(crate) fn part_of<'a>(pages: &'a Pages, order: &OrderIndex, name: &[u8]) -> Option<Part<'a>> {
    let (rank, next) = partition_at(pages, order, place_of(name), name);
    let (_, entry) = next?;
    let row = row(pages, entry)?;
    (&*row.field() == name).then_some(Part { rank, entry, row })
}
