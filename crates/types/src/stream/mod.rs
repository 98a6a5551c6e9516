//! Streams: entries in the order of ids, and groups of consumers that have read some entries.
//!
//! A stream is a collection of rows sorted by name (docs/formats/stream.md). A *node* is a row with several entries.
//! Each group and each consumer has a row. Each pending entry (delivered, not acknowledged) has two rows. So a command
//! logs only its own changes, whatever the stream's length. A stream has no small form. It may be empty, because its
//! head always exists.
//!
//! | module | one idea |
//! |---|---|
//! | [`id`] | ids of entries |
//! | [`node`] | entries packed in a row |
//! | [`rows`] | the names and values of rows |
//! | this one | a stream that is being read |
//! | [`mod@write`] | adding, deleting and trimming entries |
//! | [`groups`] | groups and their consumers |
//! | [`pending`] | delivering, acknowledging, claiming |
//! | [`lag`] | how far a group is behind, as Redis estimates it |

pub mod groups;
pub mod id;
pub mod lag;
pub mod node;
pub mod pending;
pub mod rows;
pub mod write;

pub use id::Id;
pub use node::{Entry, Node};
pub use rows::{Consumer, Group, Head, Pending};
pub use write::{Threshold, Trim, Writing};

use std::ops::RangeInclusive;

use perdura_base::{Error, TableId};
use perdura_txn::{Elements, Home, RowRef, Shape, Tx};

use crate::Fault;
use crate::open::{View, view};

/// A stream that is being read.
pub struct Stream<'a> {
    rows: Elements<'a>,
    head: Head,
}

/// Opens the stream of a key to read it.
///
/// # Errors
/// [`Fault::WrongType`]; an abort, which the caller must pass on.
pub fn read<'a>(tx: &'a Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Stream<'a>>, Fault> {
    match home_of(tx, table, key)? {
        Some(home) => Stream::new(tx, table, home).map(Some),
        None => Ok(None),
    }
}

fn home_of(tx: &Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Home>, Fault> {
    let Some(row) = tx.get(table, key)? else {
        return Ok(None);
    };
    match view(row, Shape::Stream)? {
        View::Rows(home) => Ok(Some(home)),
        View::Small(_) => Err(damaged("a header")),
    }
}

fn damaged(expected: &str) -> Fault {
    Fault::Abort(Error::corrupt(
        "a stream",
        0,
        expected,
        "other bytes",
        "The key cannot be read; deleting it is safe",
    ))
}

/// Returns the least name after all names that begin with `prefix`.
fn behind(prefix: &[u8]) -> rows::Name {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX);
    let last = last.expect("the kind of a row is not the greatest byte");
    let mut name = rows::Name::from_slice(&prefix[..=last]);
    name[last] += 1;
    name
}

impl<'a> Stream<'a> {
    fn new(tx: &'a Tx<'_>, table: TableId, home: Home) -> Result<Stream<'a>, Fault> {
        Stream::of(tx.elements(table, home)?)
    }

    /// Reads the head of the stream that these rows make up.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn of(rows: Elements<'a>) -> Result<Stream<'a>, Fault> {
        let head = rows
            .get(rows::HEAD)
            .and_then(|row| Head::decode(&row.value()));
        let head = head.ok_or_else(|| damaged("a head"))?;
        Ok(Stream { rows, head })
    }

    /// Returns the facts about the whole stream.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Returns the number of the stream's nodes.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.rows.len() - self.first_node()
    }

    /// Returns the first node's rank among all rows of the stream.
    fn first_node(&self) -> u64 {
        self.rows.names_before(&[rows::NODE])
    }

    /// Returns the number of rows whose names are less than or equal to `name`.
    fn names_up_to(&self, name: &[u8]) -> u64 {
        let mut next = rows::Name::from_slice(name);
        next.push(0);
        self.rows.names_before(&next)
    }

    /// Returns the rank of the node that has the entry with this id. If no node has the entry, returns the rank of a
    /// node next to the place where the entry would be.
    fn node_of(&self, id: Id) -> u64 {
        let behind = self.names_up_to(&rows::node(id));
        // The row before may belong to a pending entry.
        match behind.checked_sub(1).and_then(|at| self.rows.at(at)) {
            Some(row) if rows::node_id(&row.field()).is_some() => behind - 1,
            _ => behind,
        }
    }

    /// Passes the entries between two ids, inclusive, to `f` until `f` returns false. The ids ascend, or descend if
    /// `reverse`.
    ///
    /// # Errors
    /// The stream is damaged, or `f` returned an error.
    pub fn entries<E: From<Fault>>(
        &self,
        ids: RangeInclusive<Id>,
        reverse: bool,
        mut f: impl FnMut(&Entry<'_>) -> Result<bool, E>,
    ) -> Result<(), E> {
        if ids.is_empty() || self.head.length == 0 {
            return Ok(());
        }
        let (from, to) = (*ids.start(), *ids.end());
        let first = self.node_of(from);
        // Most ranges reach to the last node. Its rank is known without a search.
        let last = match self.head.last <= to {
            true => self.rows.len(),
            false => self.names_up_to(&rows::node(to)),
        };
        let mut nodes = self.rows.range(first, last.max(first));
        let mut in_node = |row: &RowRef<'_>| -> Result<bool, E> {
            let base = rows::node_id(&row.field());
            let value = row.value();
            let node = base.and_then(|base| Node::parse(base, &value));
            let node = node.ok_or_else(|| damaged("a node"))?;
            let inside = |entry: &Entry<'_>| from <= entry.id && entry.id <= to;
            if reverse {
                let entries: Vec<_> = node.entries().filter(inside).collect();
                for entry in entries.iter().rev() {
                    if !f(entry)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            for entry in node.entries() {
                if entry.id > to || inside(&entry) && !f(&entry)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        loop {
            let next = if reverse {
                nodes.next_back()
            } else {
                nodes.next()
            };
            match next {
                Some((_, row)) if in_node(&row)? => {}
                _ => return Ok(()),
            }
        }
    }

    /// Returns an upper bound on the number of entries between two ids, inclusive.
    #[must_use]
    pub fn at_most(&self, from: Id, to: Id) -> u64 {
        if from > to || self.head.length == 0 {
            return 0;
        }
        let nodes = self
            .names_up_to(&rows::node(to))
            .saturating_sub(self.node_of(from));
        let entries = (nodes + 1).saturating_mul(node::NODE_ENTRIES_MAX.into());
        entries.min(self.head.length)
    }

    /// Returns whether the stream has an entry with this id.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn contains(&self, id: Id) -> Result<bool, Fault> {
        let mut found = false;
        self.entries::<Fault>(id..=id, false, |_| {
            found = true;
            Ok(false)
        })?;
        Ok(found)
    }

    /// Finds the first entry in the nodes and returns its id; zero if the stream is empty.
    fn find_first(&self) -> Result<Id, Fault> {
        let mut found = Id::MIN;
        self.entries::<Fault>(Id::MIN..=Id::MAX, false, |entry| {
            found = entry.id;
            Ok(false)
        })?;
        Ok(found)
    }

    /// Returns the id of the last entry; zero if the stream is empty.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn last_there(&self) -> Result<Id, Fault> {
        let mut found = Id::MIN;
        self.entries::<Fault>(Id::MIN..=Id::MAX, true, |entry| {
            found = entry.id;
            Ok(false)
        })?;
        Ok(found)
    }

    /// Returns the rows with names that begin with `prefix`.
    fn with_prefix(&self, prefix: &[u8]) -> impl DoubleEndedIterator<Item = RowRef<'a>> + use<'a> {
        let from = self.rows.names_before(prefix);
        let to = self.rows.names_before(&behind(prefix));
        self.rows.range(from, to).map(|(_, row)| row)
    }
}
