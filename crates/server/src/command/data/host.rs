//! The two places where a data command runs: the event loop, and the thread beside it.

use super::{Data, Done, Later, Stop};
use crate::common::Common;
use crate::engine::{Db, Packing, Tx};
use crate::state::State;
use std::cell::Cell;

/// The server's settings for a command beside the loop. They are copied when the command leaves the loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    packing: Packing,
    value_bytes_max: usize,
    reply_bytes_max: usize,
    sparse_sketch_bytes_max: u64,
    long: u64,
    looks_ahead: bool,
    /// True while CLIENT PAUSE defers writes.
    is_paused: bool,
    /// The greatest number of keys that [`crate::tracking`] notes.
    pub tracking_keys_max: u64,
}

impl Host {
    /// Returns the current settings of the server.
    pub(crate) fn of(state: &State) -> Self {
        Host {
            packing: state.packing,
            value_bytes_max: state.value_bytes_max,
            reply_bytes_max: state.options.reply_bytes_max,
            sparse_sketch_bytes_max: state.options.hll_sparse_bytes_max,
            long: state.steps.long,
            looks_ahead: state.looks_ahead,
            is_paused: state.pause.until().is_some(),
            tracking_keys_max: state.options.tracking_keys_max,
        }
    }
}

/// The place where a command runs.
#[derive(Clone, Copy)]
pub(super) enum Server<'a> {
    Loop(&'a State),
    Beside(&'a Host, &'a Common),
}

impl Server<'_> {
    /// Returns the state that all loops share.
    fn common(&self) -> &Common {
        match self {
            Server::Loop(state) => &state.common,
            Server::Beside(_, common) => common,
        }
    }

    /// Returns whether any client needs reports of changed keys. The caller holds the latches of a transaction, so a
    /// client that has begun to watch one of its keys is known.
    fn has_observers(&self) -> bool {
        self.common().has_observers()
    }

    /// Returns whether the clients that wait for keys may be served now.
    fn serves_waiting(&self) -> bool {
        let (common, is_paused) = match self {
            Server::Loop(state) => (&*state.common, state.pause.until().is_some()),
            Server::Beside(host, common) => (*common, host.is_paused),
        };
        common.blocking.is_in_use() && !is_paused
    }

    /// Returns the greatest number of elements that one round of the loop goes through.
    pub(super) fn long(&self) -> u64 {
        match self {
            Server::Loop(state) => state.steps.long,
            Server::Beside(host, _) => host.long,
        }
    }

    /// Returns whether commands fetch keys before they use them.
    pub(super) fn looks_ahead(&self) -> bool {
        match self {
            Server::Loop(state) => state.looks_ahead,
            Server::Beside(host, _) => host.looks_ahead,
        }
    }

    /// Returns the greatest size of a sparse HyperLogLog sketch, bytes.
    pub(super) fn sparse_sketch_bytes_max(&self) -> u64 {
        match self {
            Server::Loop(state) => state.options.hll_sparse_bytes_max,
            Server::Beside(host, _) => host.sparse_sketch_bytes_max,
        }
    }
}

impl<'a, 'tx> Data<'a, 'tx> {
    /// Returns whether the clients that wait for keys may be served now.
    pub(super) fn serves_waiting(&self) -> bool {
        self.server.serves_waiting()
    }

    /// Calls [`heavy`](Self::heavy) for a command that will visit at most `most` elements of a key's collection.
    pub(crate) fn heavy_in(&self, key: &[u8], most: u64) -> Done {
        if !self.may_leave || !self.is_long(most.saturating_mul(2)) {
            return Ok(());
        }
        self.heavy(self.rows_of(key)?.min(most))
    }

    /// Returns the number of rows of a key's collection; 0 if the key does not exist or its
    /// collection is packed.
    pub(crate) fn rows_of(&self, key: &[u8]) -> Result<u64, Stop> {
        let row = self.tx.peek(self.table, key)?;
        let Some(home) = row.and_then(|row| row.home()) else {
            return Ok(0);
        };
        Ok(self.tx.elements(self.table, home)?.len())
    }

    /// Makes the context of a command that runs beside the loop. Such a command never waits for a
    /// key.
    pub(crate) fn beside(
        host: &'a Host,
        common: &'a Common,
        db: &'a Db,
        tx: &'a mut Tx<'tx>,
        database: u8,
    ) -> Self {
        Data::of(Server::Beside(host, common), host, db, tx, database)
    }

    /// Makes the context of a command with the settings `host`. `server` is the place where the command runs.
    pub(super) fn of(
        server: Server<'a>,
        host: &Host,
        db: &'a Db,
        tx: &'a mut Tx<'tx>,
        database: u8,
    ) -> Self {
        tx.set_packing(host.packing);
        Data {
            tx,
            database,
            table: db.database(database),
            server,
            db,
            renewal: None,
            swapped: 0,
            emptied: false,
            value_bytes_max: host.value_bytes_max,
            reply_bytes_max: host.reply_bytes_max,
            hits: Cell::new(0),
            misses: Cell::new(0),
            interest: server.has_observers(),
            notices: server.common().notices(),
            events: Vec::new(),
            changes: 0,
            errors: 0,
            may_wait: false,
            may_leave: false,
            is_retry: false,
            later: None,
            running: None,
            prepared: None,
            ran: None,
            keeps_to_keys: cfg!(debug_assertions),
        }
    }

    /// Allows the command to run beside the loop.
    pub(crate) fn may_leave(&mut self) {
        self.may_leave = true;
    }

    /// Returns whether the command is to run beside the loop.
    pub(crate) fn leaves(&self) -> bool {
        matches!(self.later, Some(Later::Beside))
    }

    /// Fails with `Stop::Beside` if `elements` elements are too many for the loop and the command may run beside it.
    /// The command must not have written anything yet.
    pub(crate) fn heavy(&self, elements: u64) -> Done {
        // Elements count twice, because changing an element takes longer than reading it.
        match self.may_leave && self.is_long(elements.saturating_mul(2)) {
            true => Err(Stop::Beside),
            false => Ok(()),
        }
    }
}
