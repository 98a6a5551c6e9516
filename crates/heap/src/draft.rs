//! Collections that are built before a key names them.
//!
//! If one transaction wrote a whole big collection, every other client would have to wait. So several transactions in
//! sequence fill a *draft*: a collection without a header. The last transaction writes the header. Until then the draft
//! can be reached only through its [`Draft`]. Commit epochs are monotone, so if the header is durable, all elements are
//! durable too. A crash before the header is durable leaves rows that no header names. The restart lists them as
//! orphans.
//!
//! Drafts are recorded only in memory, like orphans, and an empty draft has no row. So a rollback of the transaction
//! that calls [`begin`](Draft::begin) does not remove the draft. A rollback does undo the elements that the
//! transaction added to the draft, and the [naming](Partition::claim_draft) of the draft.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Result, TableId};
use perdura_page::{CollectionId, Home, Shape};

use crate::collection::Collection;
use crate::edit::Owner;
use crate::latches::Heap;
use crate::ops::Op;
use crate::partition::Partition;
use crate::undo::Undo;

/// A collection that no key names yet. Dropping this value makes the collection an orphan, unless a committed
/// transaction has named the collection. The value may be dropped at any time, even during a transaction.
pub struct Draft {
    heap: Arc<Heap>,
    table: TableId,
    home: Home,
    shape: Shape,
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Draft {
            table, home, shape, ..
        } = self;
        write!(f, "draft of a {shape:?} in table {table} at {home:?}")
    }
}

impl Draft {
    /// Makes a draft without elements in the given partition of the heap. The caller holds the partition's latch.
    ///
    /// # Errors
    /// Fails with `Usage` if the table is not attached.
    pub fn begin(
        heap: &Arc<Heap>,
        partition: &mut Partition,
        table: TableId,
        shape: Shape,
    ) -> Result<Draft> {
        let id = partition.add_collection(table, shape, Owner::Draft)?;
        let home = Home {
            partition: partition.id(),
            id,
        };
        debug_assert!(
            partition.is_draft(table, id),
            "a draft is its own owner until a header names it"
        );
        Ok(Draft {
            heap: Arc::clone(heap),
            table,
            home,
            shape,
        })
    }

    /// Returns the table that the draft's elements are in. Once that table is detached, the draft cannot be used.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Returns the home of the draft's elements. The functions that read or change a collection's elements accept this
    /// home.
    #[must_use]
    pub fn home(&self) -> Home {
        self.home
    }

    /// Returns the draft's shape.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // If the latch is held, perhaps by this thread, a naming of the draft may still be rolled back. Then the draft
        // is left to `settle_drafts`.
        match self.heap.try_lock(self.home.partition) {
            Some(mut partition) => partition.abandon_draft(self.table, self.home.id),
            None => self.heap.abandoned.lock().push((self.table, self.home)),
        }
    }
}

impl Heap {
    /// Ends the drafts dropped while their partition was latched. Takes the latches one by one.
    pub fn settle_drafts(&self) {
        let dropped = std::mem::take(&mut *self.abandoned.lock());
        for (table, home) in dropped {
            self.lock(home.partition).abandon_draft(table, home.id);
        }
    }
}

impl Partition {
    /// Returns whether a collection is a draft.
    #[must_use]
    pub fn is_draft(&self, table: TableId, id: CollectionId) -> bool {
        let found = self.tables.get(table).map(|table| &table.collections);
        let found = found.and_then(|collections| collections.get(id));
        found.is_some_and(|collection| collection.owner == Owner::Draft)
    }

    /// Notes that a header names the draft. The same transaction writes that header.
    pub fn claim_draft(&mut self, undo: &mut Undo, table: TableId, id: CollectionId) {
        if armed(Flaw::DraftNotClaimed) {
            return;
        }
        let attached = self.tables.get_mut(table);
        if let Some(draft) = attached.and_then(|attached| attached.collections.get_mut(id)) {
            draft.owner = Owner::Header;
            let part = undo.part_mut(self.pages.id);
            part.ops.push(Op::Claimed { table, id });
        }
    }

    /// Ends the draft with this id, if there is one: removes an empty draft, and makes any other draft an orphan.
    fn abandon_draft(&mut self, table: TableId, id: CollectionId) {
        if !self.is_draft(table, id) || armed(Flaw::DraftForgotten) {
            return;
        }
        if let Some(attached) = self.tables.get_mut(table) {
            let rows = attached.collections.get(id).map_or(0, Collection::len);
            match rows {
                0 => attached.collections.unmake(id),
                _ => attached.collections.orphan(id),
            }
            attached.account(&self.pages.memory);
        }
    }

    /// Returns the number of elements in a table's drafts.
    #[must_use]
    pub fn draft_rows(&self, table: TableId) -> u64 {
        let Some(table) = self.tables.get(table) else {
            return 0;
        };
        let drafts = table.collections.iter().filter(|c| c.owner == Owner::Draft);
        u64::try_from(drafts.map(Collection::len).sum::<usize>()).unwrap_or(u64::MAX)
    }
}
