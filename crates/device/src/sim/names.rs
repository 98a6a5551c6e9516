//! The names of the simulated disk: the visible names, the durable names, and the pending operations between the two.
//!
//! An operation becomes durable when its directory is synced. A rename becomes durable when the target's directory is
//! synced. As in a journalling file system, all earlier pending operations on the affected names then become durable
//! too. So a name never returns to an older state.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::path::parent;

/// The number of a file. Numbers are never reused.
pub(super) type Ino = u64;

#[derive(Clone)]
enum NameOp {
    Create {
        path: Arc<str>,
        ino: Ino,
    },
    Rename {
        from: Arc<str>,
        to: Arc<str>,
        ino: Ino,
    },
    Remove {
        path: Arc<str>,
        ino: Ino,
    },
}

impl NameOp {
    fn paths(&self) -> [&Arc<str>; 2] {
        match self {
            NameOp::Create { path, .. } | NameOp::Remove { path, .. } => [path, path],
            NameOp::Rename { from, to, .. } => [from, to],
        }
    }

    fn dir(&self) -> &str {
        let [_, last] = self.paths();
        parent(last)
    }

    fn ino(&self) -> Ino {
        match self {
            NameOp::Create { ino, .. }
            | NameOp::Rename { ino, .. }
            | NameOp::Remove { ino, .. } => *ino,
        }
    }

    fn conflicts(&self, other: &NameOp) -> bool {
        self.paths().iter().any(|path| other.paths().contains(path))
    }
}

#[derive(Clone)]
struct PendingName {
    seq: u64,
    op: NameOp,
}

#[derive(Clone, Default)]
pub(super) struct Names {
    pub(super) live: BTreeMap<Arc<str>, Ino>,
    durable: BTreeMap<Arc<str>, Ino>,
    pending: Vec<PendingName>,
    /// The directories. They are durable at once. Only names of files can be lost.
    pub(super) dirs: BTreeSet<String>,
}

impl Names {
    pub(super) fn has_dir(&self, dir: &str) -> bool {
        dir.is_empty() || self.dirs.contains(dir)
    }

    /// Creates a name. The caller has checked that the name does not exist.
    pub(super) fn create(&mut self, seq: u64, path: &str, ino: Ino) {
        let path: Arc<str> = path.into();
        let before = self.live.insert(Arc::clone(&path), ino);
        assert_eq!(before, None, "{path} is created where it is free");
        self.push(seq, NameOp::Create { path, ino });
    }

    fn push(&mut self, seq: u64, op: NameOp) {
        assert!(
            self.pending.last().is_none_or(|last| last.seq < seq),
            "operations on names are pending in their order"
        );
        self.pending.push(PendingName { seq, op });
    }

    /// Renames a file. Returns whether the file existed.
    pub(super) fn rename(&mut self, seq: u64, from: &str, to: &str) -> bool {
        let Some((from, ino)) = self.live.remove_entry(from) else {
            return false;
        };
        let to: Arc<str> = to.into();
        self.live.insert(Arc::clone(&to), ino);
        if from != to {
            self.push(seq, NameOp::Rename { from, to, ino });
        }
        true
    }

    /// Removes a name. Returns whether the name existed.
    pub(super) fn remove(&mut self, seq: u64, path: &str) -> bool {
        let Some((path, ino)) = self.live.remove_entry(path) else {
            return false;
        };
        self.push(seq, NameOp::Remove { path, ino });
        true
    }

    /// Returns the sequence numbers of all pending operations, ascending.
    pub(super) fn pending_seqs(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().map(|one| one.seq)
    }

    pub(super) fn sync_dir(&mut self, dir: &str) {
        let keep: Vec<bool> = self.pending.iter().map(|one| one.op.dir() == dir).collect();
        self.persist(keep);
    }

    /// Applies a crash to the names. Keeps the operations for which `survives` returns true, and all operations on
    /// which the kept ones depend. Returns the number of lost operations.
    pub(super) fn crash(&mut self, mut survives: impl FnMut(u64) -> bool) -> usize {
        if self.pending.is_empty() {
            return 0;
        }
        let keep = self.pending.iter().map(|one| survives(one.seq)).collect();
        self.persist(keep);
        let lost = self.pending.len();
        self.pending.clear();
        self.live = self.durable.clone();
        lost
    }

    /// Makes each operation durable that has `true` in `keep`. Also makes all earlier operations on the same names
    /// durable.
    fn persist(&mut self, mut keep: Vec<bool>) {
        assert_eq!(
            keep.len(),
            self.pending.len(),
            "each operation has its fate"
        );
        for later in (1..keep.len()).rev() {
            if !keep[later] {
                continue;
            }
            let op = &self.pending[later].op;
            for (keeps, earlier) in keep[..later].iter_mut().zip(&self.pending) {
                *keeps |= op.conflicts(&earlier.op);
            }
        }
        let mut kept = keep.into_iter();
        let durable = &mut self.durable;
        self.pending.retain(|one| {
            let persists = kept.next().unwrap_or(false);
            if persists {
                apply(durable, &one.op);
            }
            !persists
        });
        assert_eq!(kept.next(), None, "every fate is used");
    }

    /// Returns every file that has a name, or can have one again after a crash.
    pub(super) fn referenced(&self) -> BTreeSet<Ino> {
        let named = self.live.values().chain(self.durable.values()).copied();
        named
            .chain(self.pending.iter().map(|one| one.op.ino()))
            .collect()
    }
}

fn apply(durable: &mut BTreeMap<Arc<str>, Ino>, op: &NameOp) {
    match op {
        NameOp::Create { path, ino } => {
            let before = durable.insert(Arc::clone(path), *ino);
            assert_eq!(before, None, "what freed {path} is durable before");
        }
        NameOp::Rename { from, to, ino } => {
            let named = durable.remove(from);
            assert_eq!(named, Some(*ino), "what named {from} is durable before");
            durable.insert(Arc::clone(to), *ino);
        }
        NameOp::Remove { path, ino } => {
            let named = durable.remove(path);
            assert_eq!(named, Some(*ino), "what named {path} is durable before");
        }
    }
}
