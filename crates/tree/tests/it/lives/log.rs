//! A log in memory. Each entry has a number. A test decides how far the log is stable.

use parking_lot::Mutex;
use perdura_base::{Gsn, Pid, TableId};
use perdura_formats::tree_record::{Delta, TreeRecord, Writes};
use perdura_tree::contract::{Log, Operation, Records};

/// An entry of the log.
#[derive(Debug, Clone)]
pub enum Entry {
    Operation {
        table: TableId,
        key: Vec<u8>,
        after: Option<Vec<u8>>,
        pid: Pid,
    },
    /// A record of the tree, encoded.
    Record(Vec<u8>),
}

/// A log with entries numbered from 1. The numbers of entries that a crash loses are not used again.
#[derive(Debug, Default)]
pub struct TestLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<(Gsn, Entry)>,
    last: u64,
    stable: usize,
    eosl: Gsn,
}

impl TestLog {
    fn append(&self, entry: impl FnOnce(Gsn) -> Entry) -> Gsn {
        let mut state = self.state.lock();
        state.last += 1;
        let gsn = Gsn(state.last);
        state.entries.push((gsn, entry(gsn)));
        gsn
    }

    /// Returns the number of the last stable entry.
    pub fn eosl(&self) -> Gsn {
        self.state.lock().eosl
    }

    /// Returns the number of entries that are not stable.
    pub fn unstable(&self) -> usize {
        let state = self.state.lock();
        state.entries.len() - state.stable
    }

    /// Makes `entries` more entries stable.
    pub fn flush(&self, entries: usize) {
        let mut state = self.state.lock();
        state.stable = (state.stable + entries).min(state.entries.len());
        if let Some((gsn, _)) = state
            .stable
            .checked_sub(1)
            .and_then(|at| state.entries.get(at))
        {
            state.eosl = *gsn;
        }
    }

    /// Drops all entries that are not stable. The numbers of dropped entries are not used again.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        let len = state.stable;
        state.entries.truncate(len);
        state.eosl = Gsn(state.last);
    }

    /// Appends the records that a monitor has cut.
    pub fn append_cut(&self, cut: Option<(Delta, Option<Writes>)>) {
        if let Some((delta, writes)) = cut {
            self.record(&TreeRecord::Delta(delta));
            if let Some(writes) = writes {
                self.record(&TreeRecord::Writes(writes));
            }
        }
    }

    /// Removes all entries from the log. Their effects must be on disk.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.entries.clear();
        state.stable = 0;
        state.eosl = Gsn(state.last);
    }

    /// Returns a copy of all entries.
    pub fn entries(&self) -> Vec<(Gsn, Entry)> {
        self.state.lock().entries.clone()
    }
}

impl Log for TestLog {
    fn operation(&self, operation: &Operation<'_>) -> Gsn {
        self.append(|_| Entry::Operation {
            table: operation.table,
            key: operation.key.to_vec(),
            after: operation.after.map(<[u8]>::to_vec),
            pid: operation.pid,
        })
    }
}

impl Records for TestLog {
    fn record(&self, record: &TreeRecord) -> Gsn {
        self.append(|gsn| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes, gsn);
            Entry::Record(bytes)
        })
    }
}
