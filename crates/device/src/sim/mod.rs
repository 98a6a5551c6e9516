//! A simulated disk that fails. It keeps synced and unsynced changes apart in memory. It can lose unsynced changes in
//! every way that a real disk may.
//!
//! A file has visible bytes, durable bytes, and the pending writes between the two. Names also have a visible state, a
//! durable state, and pending operations. [`SimDisk::crash`] decides by a [`CrashProfile`] and a seed which pending
//! writes and names survive, and begins the machine's next life. The disk refuses handles and locks of earlier lives,
//! so an engine of an earlier life cannot write to it. A [`FaultPlan`] makes single operations fail.
//! `docs/fault-model.md` lists every fault.
//!
//! # Why it is built this way
//!
//! The simulator runs more than a thousand crashes and recoveries a second, so no operation may copy a whole file. A
//! sync applies only the writes since the last sync, and a crash changes only the bytes that differ.
//! [`SimDisk::snapshot`] shares the chunks of every file (`content`), and a change copies only one chunk.
//!
//! # Invariants
//!
//! * Equal seeds, operations, plans and crashes always give equal bytes, errors and counts.
//! * When a sync of a file has returned `Ok`, its bytes survive every crash. When a sync of a directory has returned
//!   `Ok`, its names survive every crash.

mod content;
mod file;
mod flight;
mod inode;
mod names;
mod plan;
mod queue;
mod state;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::checksum::crc32c;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Result};

pub use plan::{CrashProfile, FaultPlan, SyncFailure};
use state::{Meters, State, Storage};

use crate::path::{bytes_u64, check_dir, check_file, name_in, parent};
use crate::{Access, Disk, DurableQueue, File, FileId, Locks};
use file::{Handle, SimFile};
use queue::SimQueue;

/// A simulated disk. Clones of the `Arc` share the disk. Views from [`SimDisk::life`] share it too.
pub struct SimDisk {
    /// One lock for all the state. It is never contended, because the simulator has one thread.
    state: Arc<Mutex<State>>,
    /// The life of this view. `None`: the disk itself, which can be used in all lives.
    life: Option<u64>,
}

/// The complete state of a simulated disk at one time, with the unsynced changes.
#[derive(Clone)]
pub struct SimSnapshot {
    storage: Storage,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SimDisk({} files)",
            self.state.lock().storage.names.live.len()
        )
    }
}

impl fmt::Debug for SimSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimSnapshot({} files)", self.storage.names.live.len())
    }
}

impl SimDisk {
    /// Returns an empty disk. `seed` decides which changes are lost by failed syncs.
    #[must_use]
    pub fn new(seed: u64) -> Arc<SimDisk> {
        Arc::new(SimDisk {
            state: Arc::new(Mutex::new(State::new(seed))),
            life: None,
        })
    }

    /// Returns a view of the disk for the present life. After the next crash, the view cannot be used, so a new engine
    /// needs a new view.
    #[must_use]
    pub fn life(&self) -> Arc<SimDisk> {
        let life = self.state.lock().life;
        Arc::new(SimDisk {
            state: Arc::clone(&self.state),
            life: Some(life),
        })
    }

    /// Sets the faults of the next operations. The counts in the plan begin with the next operation.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state.lock().set_plan(plan);
    }

    /// Crashes and restarts the machine. `profile` and `seed` decide which pending changes survive. Handles and locks
    /// become invalid. The plan ends, except for its limit of the capacity.
    pub fn crash(&self, profile: CrashProfile, seed: u64) {
        self.state.lock().crash(profile, seed);
    }

    /// Crashes the machine like [`crash`](Self::crash), but bit i of `keep` decides whether the i-th of the
    /// [`pending_ops`](Self::pending_ops) survives. Operations after the 64th are lost. For exhaustive tests.
    pub fn crash_keeping(&self, keep: u64) {
        self.state.lock().crash_keeping(keep);
    }

    /// Ends all processes of earlier lives at once. The bytes of their writes in flight go into the files.
    pub fn end_former_lives(&self) {
        self.state.lock().land_strays();
    }

    /// Returns whether the machine has power. A planned power cut ends the power. [`crash`](Self::crash) restores it.
    #[must_use]
    pub fn has_power(&self) -> bool {
        !self.state.lock().power_is_cut
    }

    /// Returns the number of pending operations: writes, resizes and changes of names that are not durable, and
    /// writes in flight.
    #[must_use]
    pub fn pending_ops(&self) -> usize {
        let state = self.state.lock();
        state.storage.pending_seqs().len() + state.storage.flying.len()
    }

    /// Returns the number of changing operations (create, rename, remove, write, allocate, `set_len`, sync,
    /// `sync_dir`) since the disk was made, in all lives together.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.state.lock().ops
    }

    /// Returns the number of injected faults of each kind, since the disk was made.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().meters.0.clone()
    }

    /// Returns the number of injected faults, since the disk was made.
    #[must_use]
    pub fn faults_struck(&self) -> u64 {
        self.state.lock().meters.0.values().sum()
    }

    /// Flips bit `bit` (0 to 7) of a byte on the disk and in all caches, like bit rot. Returns whether the file
    /// exists and has that byte.
    pub fn flip(&self, path: &str, byte: u64, bit: u8) -> bool {
        let mut state = self.state.lock();
        let Some(&ino) = state.storage.names.live.get(path) else {
            return false;
        };
        let Ok(byte) = usize::try_from(byte) else {
            return false;
        };
        let flipped = state.inode(ino).flip(byte, 1 << (bit % 8));
        state.meters.add("rot", usize::from(flipped));
        flipped
    }

    /// Returns all files and their lengths in bytes, sorted by path.
    #[must_use]
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        let Storage { names, inodes, .. } = &state.storage;
        let len = |ino| bytes_u64(inodes[ino].live.len());
        names
            .live
            .iter()
            .map(|(path, ino)| (path.to_string(), len(ino)))
            .collect()
    }

    /// Returns the bytes of a file as programs see them. Works without power, and is not counted as an operation.
    pub fn read_all(&self, path: &str) -> Result<Vec<u8>> {
        let mut state = self.state.lock();
        let ino = state.storage.names.live.get(path).copied();
        let ino = ino.ok_or_else(|| Error::io("read", path, io::ErrorKind::NotFound.into()))?;
        Ok(state.inode(ino).live.to_vec())
    }

    /// Damages a file: shortens it to `len` bytes, both on the disk and in all caches. Does nothing if the file is
    /// shorter or does not exist.
    pub fn truncate_file(&self, path: &str, len: u64) {
        let mut state = self.state.lock();
        if let Some(&ino) = state.storage.names.live.get(path) {
            state
                .inode(ino)
                .truncate(usize::try_from(len).unwrap_or(usize::MAX));
        }
    }

    /// Damages a file: overwrites all bytes from offset `at` to the end with zeros, both on the disk and in all caches.
    /// Does nothing if the file does not exist.
    pub fn zero_from(&self, path: &str, at: u64) {
        let mut state = self.state.lock();
        if let Some(&ino) = state.storage.names.live.get(path) {
            state
                .inode(ino)
                .zero_from(usize::try_from(at).unwrap_or(usize::MAX));
        }
    }

    /// Returns the present state: all files, names and pending changes.
    #[must_use]
    pub fn snapshot(&self) -> SimSnapshot {
        let mut storage = self.state.lock().storage.clone();
        for inode in storage.inodes.values_mut() {
            inode.handles = 0;
        }
        storage.forget_unreachable();
        SimSnapshot { storage }
    }

    /// Restores the state of a snapshot, including its pending changes, and begins a new life. The machine then has
    /// power, but no fault plan, open handles or locks.
    pub fn restore(&self, snapshot: &SimSnapshot) {
        let open = |inode: &inode::Inode| inode.handles > 0;
        assert!(
            !snapshot.storage.inodes.values().any(open),
            "a snapshot has no open files"
        );
        let mut state = self.state.lock();
        state.storage = snapshot.storage.clone();
        state.land_all();
        state.begin_life();
        state.set_plan(FaultPlan::default());
    }

    fn life_of(&self, state: &State) -> u64 {
        self.life.unwrap_or(state.life)
    }

    fn opened(&self, state: &mut State, path: &str, access: Access, ino: u64) -> Arc<dyn File> {
        let named = state.storage.names.live.get_key_value(path);
        let path = match named {
            Some((path, named)) if *named == ino => Arc::clone(path),
            named => panic!("{path} is opened by its name, which is that of {named:?}"),
        };
        state.inode(ino).handles += 1;
        Arc::new(SimFile {
            state: Arc::clone(&self.state),
            direct: access == Access::Direct,
            handle: Handle {
                ino,
                path,
                life: state.life,
            },
        })
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        check_file(path)?;
        let mut state = self.state.lock();
        let life = self.life_of(&state);
        let ino = state.create("create", path, life)?;
        Ok(self.opened(&mut state, path, access, ino))
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        check_file(path)?;
        let mut state = self.state.lock();
        state.alive("open", path, self.life_of(&state))?;
        let ino = state.storage.names.live.get(path).copied();
        let ino = ino.ok_or_else(|| Error::io("open", path, io::ErrorKind::NotFound.into()))?;
        Ok(self.opened(&mut state, path, access, ino))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let dir = check_dir(dir)?;
        let state = self.state.lock();
        state.alive("list", dir, self.life_of(&state))?;
        let names = &state.storage.names;
        if !names.has_dir(dir) {
            return Err(Error::io("list", dir, io::ErrorKind::NotFound.into()));
        }
        let paths = names.live.keys().map(|path| &**path);
        let mut found: Vec<String> = paths
            .chain(names.dirs.iter().map(String::as_str))
            .filter_map(|path| name_in(dir, path))
            .map(str::to_owned)
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        let mut dir = check_dir(dir)?;
        let mut state = self.state.lock();
        state.alive("create directory", dir, self.life_of(&state))?;
        while !dir.is_empty() {
            if state.storage.names.live.contains_key(dir) {
                let source = io::ErrorKind::NotADirectory.into();
                return Err(Error::io("create directory", dir, source));
            }
            state.storage.names.dirs.insert(dir.to_owned());
            dir = parent(dir);
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_file(from)?;
        check_file(to)?;
        let mut state = self.state.lock();
        let life = self.life_of(&state);
        state.rename(from, to, life)
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        check_file(from)?;
        check_file(to)?;
        let mut state = self.state.lock();
        let life = self.life_of(&state);
        state.publish(from, to, life)
    }

    fn remove(&self, path: &str) -> Result<()> {
        check_file(path)?;
        let mut state = self.state.lock();
        let life = self.life_of(&state);
        state.remove(path, life)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        let dir = check_dir(dir)?;
        let mut state = self.state.lock();
        let life = self.life_of(&state);
        state.sync_dir(dir, life)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        check_file(path)?;
        let mut state = self.state.lock();
        let life = self.life_of(&state);
        state.alive("lock", path, life)?;
        if !state.storage.names.live.contains_key(path) {
            state.create("lock", path, life)?;
        }
        if !state.locks.insert(path.to_owned()) {
            return Err(Error::Locked { dir: self.name() });
        }
        Ok(Box::new(Guard {
            state: Arc::clone(&self.state),
            life,
            path: path.to_owned(),
        }))
    }

    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        let path = check_dir(path)?;
        self.identity(path)?;
        let mut state = self.state.lock();
        if !state.locks.insert(path.to_owned()) {
            return Err(Error::Locked { dir: self.name() });
        }
        Ok(Some(Box::new(Guard {
            state: Arc::clone(&self.state),
            life: self.life_of(&state),
            path: path.to_owned(),
        })))
    }

    /// The identity of a directory is made from its path, because a directory is never removed.
    fn identity(&self, path: &str) -> Result<Option<FileId>> {
        let path = check_dir(path)?;
        let state = self.state.lock();
        state.alive("stat", path, self.life_of(&state))?;
        let names = &state.storage.names;
        let found = names.live.get(path).map(|ino| (0, *ino));
        let dir = || (1, u64::from(crc32c(path.as_bytes())));
        let found = found.or_else(|| names.has_dir(path).then(dir));
        let found = found.map(|(device, number)| FileId { device, number });
        let missing = || Error::io("stat", path, io::ErrorKind::NotFound.into());
        found.ok_or_else(missing).map(Some)
    }

    fn keep_locked(&self, locks: &Locks) {
        let mut state = self.state.lock();
        state.keeps_locked = !locks.is_empty() && !armed(Flaw::LocksNotKept);
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        let life = self.life_of(&self.state.lock());
        Ok(Box::new(SimQueue {
            state: Arc::clone(&self.state),
            life,
            own: Mutex::default(),
        }))
    }

    fn name(&self) -> String {
        "simulated disk".to_owned()
    }
}

/// A guard for a lock. Dropping the guard releases the lock, unless the life of the guard has ended.
struct Guard {
    state: Arc<Mutex<State>>,
    life: u64,
    path: String,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}
