//! Tables that are stored in trees: their names in the catalog, and reading their rows.
//!
//! A tree keeps rows in pages on disk, so the rows may exceed the memory. A program that embeds the database can only
//! read trees. A test harness makes and writes them ([`create_with_tree`](crate::create_with_tree)).
//!
//! ```no_run
//! # fn main() -> perdura::Result<()> {
//! let db = perdura::Db::open(perdura::Options::new("data"))?;
//! for name in db.trees()? {
//!     let tree = db.tree(&name)?.expect("it was listed");
//!     for row in tree.range(b"a") {
//!         let (key, value) = row?;
//!         println!("{name}: {key:?} {value:?}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::sync::Arc;

use perdura_base::{Error, Result, TableId};
use perdura_recovery::tree::live::LiveTree;
use perdura_recovery::{ComponentKind, TableKind};

use crate::catalog::{CATALOG, Entry, put_next_id, put_table, read_next_id, tables_of};
use crate::core::Core;
use crate::db::Db;

/// The first part of a tree table's name in the catalog. The rest of the name is the table's id.
const PREFIX: &str = "tree/";

impl Core {
    /// Adds a row to the catalog for each tree table that is not in the catalog.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the catalog contradicts a tree; the errors of a write.
    pub(crate) fn name_trees(&self) -> Result<()> {
        let known = tables_of(&self.catalog_heap())?;
        let mut unnamed = Vec::new();
        for table in self.trees.iter().flat_map(|live| live.tree().tables()) {
            let mut entries = known.values();
            match entries.find(|entry| entry.id == table) {
                None => unnamed.push(table),
                Some(entry) if entry.kind == TableKind::tree() => {}
                Some(_) => return Err(contradiction(table, "a table of the heap")),
            }
        }
        for entry in known.values() {
            if entry.kind.component == ComponentKind::Tree && self.tree_of(entry.id).is_none() {
                return Err(contradiction(entry.id, "no such table"));
            }
        }
        if unnamed.is_empty() {
            return Ok(());
        }
        let ((), _durable_with_the_first_write) =
            self.transact(&self.all_partitions(), |tx| -> Result<()> {
                tx.admit(4096)?;
                let mut next = read_next_id(tx)?;
                for table in &unnamed {
                    assert_ne!(*table, CATALOG, "the catalog is in memory");
                    let entry = Entry {
                        id: *table,
                        kind: TableKind::tree(),
                        schema: Vec::new(),
                    };
                    put_table(tx, &format!("{PREFIX}{table}"), &entry)?;
                    next = next.max(table.0.saturating_add(1));
                    assert!(next > table.0, "no later table gets the number again");
                }
                put_next_id(tx, next)
            })?;
        Ok(())
    }

    /// Returns the tree that contains this table. `None`: no tree contains it.
    fn tree_of(&self, table: TableId) -> Option<&Arc<LiveTree>> {
        let mut trees = self.trees.iter();
        trees.find(|live| live.tree().tables().contains(&table))
    }
}

/// Returns the error for a catalog that contradicts the tree.
fn contradiction(table: TableId, found: &str) -> Error {
    Error::corrupt(
        "catalog (table 0)",
        0,
        format!("table {table} in a tree"),
        found,
        "The files of the tree and of the rest of the database are from different times. Nothing \
         was changed. Restore both from one backup.",
    )
}

impl Db {
    /// Returns the names of the tables that are in trees, in ascending order.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the catalog is damaged.
    pub fn trees(&self) -> Result<Vec<String>> {
        let named = tables_of(&self.shared.core().catalog_heap())?;
        let of_tree = |entry: &Entry| entry.kind.component == ComponentKind::Tree;
        let names = named.into_iter().filter(|(_, entry)| of_tree(entry));
        Ok(names.map(|(name, _)| name).collect())
    }

    /// Returns the table with this name, if it is in a tree. `None`: the catalog lacks the table, or it is in no tree.
    ///
    /// # Errors
    /// As [`trees`](Self::trees).
    pub fn tree(&self, name: &str) -> Result<Option<TreeTable>> {
        let core = self.shared.core();
        let named = tables_of(&core.catalog_heap())?;
        let Some(table) = named.get(name).map(|entry| entry.id) else {
            return Ok(None);
        };
        let live = core.tree_of(table).map(Arc::clone);
        Ok(live.map(|live| TreeTable { live, table }))
    }
}

/// A table that is in a tree; see [`Db::tree`]. A `TreeTable` keeps the directories of the database locked.
#[derive(Clone)]
pub struct TreeTable {
    live: Arc<LiveTree>,
    table: TableId,
}

impl TreeTable {
    /// Reads the row of a key.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a page is damaged. [`Error::LogFull`] if no page in memory can be replaced until the log
    /// is written. A later call may succeed. Also the disk's errors.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.live.read(self.table, key)
    }

    /// Returns the rows from a key on, in the order of their keys. The iterator reads one leaf at a time, so the
    /// result is no snapshot.
    #[must_use]
    pub fn range(&self, from: &[u8]) -> TreeRange {
        TreeRange {
            tree: self.clone(),
            next: Some(from.to_vec()),
            rows: VecDeque::new(),
        }
    }
}

/// Iterates over rows of a tree in order; see [`TreeTable::range`]. The iterator ends after the
/// first error.
pub struct TreeRange {
    tree: TreeTable,
    /// The first key of the next leaf. `None`: no leaf is left.
    next: Option<Vec<u8>>,
    /// Rows of the leaf that was read last. Rows that were already returned are removed.
    rows: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Iterator for TreeRange {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.rows.is_empty() {
            let from = self.next.take()?;
            let rows = &mut self.rows;
            let scanned = self.tree.live.scan(self.tree.table, &from, |key, value| {
                rows.push_back((key.to_vec(), value.to_vec()));
            });
            match scanned {
                Ok(next) => {
                    assert!(
                        self.rows.front().is_none_or(|(first, _)| *first >= from),
                        "a leaf has no row below where the range goes on"
                    );
                    assert!(
                        next.as_ref().is_none_or(|next| *next > from),
                        "the next leaf lies behind this one"
                    );
                    self.next = next;
                }
                Err(error) => {
                    self.rows.clear();
                    return Some(Err(error));
                }
            }
        }
        self.rows.pop_front().map(Ok)
    }
}

impl FusedIterator for TreeRange {}
