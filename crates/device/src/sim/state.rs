//! The simulated machine: files, and faults of operations.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use fastrand::Rng;
use perdura_base::{Error, Result};

use super::file::Handle;
use super::inode::{Fate, Inode, Pending, TORN_BYTES};
use super::names::{Ino, Names};
use super::queue::Flying;
use super::{CrashProfile, FaultPlan, SyncFailure};
use crate::path::{bytes_u64, parent};

/// The maximum size of a simulated file, in bytes. Without this limit, a write at a wrong offset could use all memory.
/// With it, the write fails.
const FILE_BYTES_MAX: u64 = 1 << 32;

/// Counts of injected faults, by their kind.
#[derive(Clone, Default)]
pub(super) struct Meters(pub(super) BTreeMap<&'static str, u64>);

impl Meters {
    pub(super) fn add(&mut self, kind: &'static str, count: usize) {
        if count > 0 {
            *self.0.entry(kind).or_default() += bytes_u64(count);
        }
    }
}

/// The files, the names and the state of the random numbers. A snapshot is a copy of this.
#[derive(Clone)]
pub(super) struct Storage {
    pub(super) inodes: BTreeMap<Ino, Inode>,
    pub(super) names: Names,
    next_ino: Ino,
    /// The number of the last pending operation. Operations on files and names are numbered together.
    seq: u64,
    pub(super) rng: Rng,
    /// The durable writes in flight.
    pub(super) flying: Vec<Flying>,
    /// Count of all durable writes begun so far, including those in flight.
    pub(super) flights: u64,
    /// The numbers of the writes in flight whose process was killed. These writes end in a later life.
    pub(super) strays: Vec<u64>,
    /// The average number of operations after which one of the `strays` ends.
    pub(super) stray_odds: u16,
}

/// Counts of operations since the plan was set, by their kind.
#[derive(Default)]
pub(super) struct Since {
    ops: u64,
    pub(super) syncs: u64,
    grows: u64,
    pub(super) writes: u64,
    names: u64,
    reads: u64,
}

pub(super) struct State {
    pub(super) storage: Storage,
    pub(super) plan: FaultPlan,
    pub(super) since: Since,
    /// The number of changing operations in all lives.
    pub(super) ops: u64,
    /// The number of the present life. Handles of earlier lives are refused.
    pub(super) life: u64,
    pub(super) power_is_cut: bool,
    pub(super) locks: BTreeSet<String>,
    /// True if the locks of this life are kept until its last write has ended.
    pub(super) keeps_locked: bool,
    pub(super) meters: Meters,
}

pub(super) fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

/// Counts an operation. Returns whether a fault is planned for it.
pub(super) fn is_nth(count: &mut u64, planned: Option<u64>) -> bool {
    *count += 1;
    planned == Some(*count)
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            storage: Storage {
                inodes: BTreeMap::new(),
                names: Names::default(),
                next_ino: 1,
                seq: 0,
                rng: Rng::with_seed(seed),
                flying: Vec::new(),
                flights: 0,
                strays: Vec::new(),
                stray_odds: 1,
            },
            plan: FaultPlan::default(),
            since: Since::default(),
            ops: 0,
            life: 0,
            power_is_cut: false,
            locks: BTreeSet::new(),
            keeps_locked: false,
            meters: Meters::default(),
        }
    }

    pub(super) fn set_plan(&mut self, plan: FaultPlan) {
        self.plan = plan;
        self.since = Since::default();
    }

    /// Fails if the machine has no power or `life` has ended.
    pub(super) fn alive(&self, op: &'static str, path: &str, life: u64) -> Result<()> {
        if life != self.life {
            let source = io::Error::other("the machine has restarted since this was opened");
            return Err(Error::io(op, path, source));
        }
        if self.power_is_cut {
            return Err(Error::io(op, path, io::Error::other("power cut")));
        }
        Ok(())
    }

    /// Like [`alive`](Self::alive), but for an operation that changes the disk. Counts it.
    pub(super) fn mutating(&mut self, op: &'static str, path: &str, life: u64) -> Result<()> {
        self.alive(op, path, life)?;
        if self
            .plan
            .cut_after_ops
            .is_some_and(|n| self.since.ops + 1 >= n)
        {
            self.power_is_cut = true;
            self.meters.add("power_cut", 1);
            return self.alive(op, path, life);
        }
        self.since.ops += 1;
        self.ops += 1;
        self.land_late();
        assert!(
            self.since.ops <= self.ops,
            "a plan counts no more operations than the disk"
        );
        Ok(())
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.storage.seq += 1;
        self.storage.seq
    }

    /// Returns the inode of a file with an open handle in this life.
    pub(super) fn inode(&mut self, ino: Ino) -> &mut Inode {
        self.storage
            .inodes
            .get_mut(&ino)
            .expect("an open file keeps its inode")
    }

    pub(super) fn create(&mut self, op: &'static str, path: &str, life: u64) -> Result<Ino> {
        self.mutating(op, path, life)?;
        let names = &self.storage.names;
        let refused = if !names.has_dir(parent(path)) {
            Some(io::ErrorKind::NotFound)
        } else if names.live.contains_key(path) || names.dirs.contains(path) {
            Some(io::ErrorKind::AlreadyExists)
        } else {
            None
        };
        if let Some(kind) = refused {
            return Err(Error::io(op, path, kind.into()));
        }
        let seq = self.next_seq();
        let ino = self.storage.next_ino;
        self.storage.next_ino += 1;
        let before = self.storage.inodes.insert(ino, Inode::default());
        assert!(before.is_none(), "file number {ino} is used again");
        self.storage.names.create(seq, path, ino);
        Ok(ino)
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, life: u64) -> Result<()> {
        self.mutating("rename", from, life)?;
        self.strike_name("rename", from)?;
        let seq = self.next_seq();
        let names = &mut self.storage.names;
        if !names.has_dir(parent(to)) || !names.rename(seq, from, to) {
            return Err(Error::io("rename", from, io::ErrorKind::NotFound.into()));
        }
        Ok(())
    }

    /// Renames a file. Fails if the target exists. The rename is a pending operation. An earlier removal of the
    /// target's name may still be pending, too.
    pub(super) fn publish(&mut self, from: &str, to: &str, life: u64) -> Result<()> {
        self.mutating("publish", from, life)?;
        self.strike_name("publish", from)?;
        let names = &self.storage.names;
        if !names.live.contains_key(from) || !names.has_dir(parent(to)) {
            return Err(Error::io("publish", from, io::ErrorKind::NotFound.into()));
        }
        if names.live.contains_key(to) || names.dirs.contains(to) {
            return Err(Error::io(
                "publish",
                to,
                io::ErrorKind::AlreadyExists.into(),
            ));
        }
        let seq = self.next_seq();
        let renamed = self.storage.names.rename(seq, from, to);
        assert!(renamed, "{from} was there before it was published");
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str, life: u64) -> Result<()> {
        self.mutating("remove", path, life)?;
        self.strike_name("remove", path)?;
        let seq = self.next_seq();
        if !self.storage.names.remove(seq, path) {
            return Err(Error::io("remove", path, io::ErrorKind::NotFound.into()));
        }
        Ok(())
    }

    fn strike_name(&mut self, op: &'static str, path: &str) -> Result<()> {
        if is_nth(&mut self.since.names, self.plan.fail_name_at) {
            self.meters.add("name_failed", 1);
            return Err(Error::io(op, path, eio()));
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &str, life: u64) -> Result<()> {
        self.mutating("sync directory", dir, life)?;
        if !self.storage.names.has_dir(dir) {
            return Err(Error::io(
                "sync directory",
                dir,
                io::ErrorKind::NotFound.into(),
            ));
        }
        self.storage.names.sync_dir(dir);
        self.storage.forget_unreachable();
        Ok(())
    }

    pub(super) fn read(&mut self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.alive("read", &file.path, file.life)?;
        if is_nth(&mut self.since.reads, self.plan.fail_read_at) {
            self.meters.add("read_failed", 1);
            return Err(Error::io("read", &*file.path, eio()));
        }
        let bytes = &self.inode(file.ino).live;
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let count = buf.len().min(bytes.len() - start);
        bytes.read(start, &mut buf[..count]);
        Ok(count)
    }

    pub(super) fn write(&mut self, file: &Handle, offset: u64, data: &[u8]) -> Result<()> {
        self.mutating("write", &file.path, file.life)?;
        if is_nth(&mut self.since.writes, self.plan.fail_write_at) {
            self.meters.add("write_failed", 1);
            return Err(Error::io("write", &*file.path, eio()));
        }
        self.check_fence()?;
        let refused = self.is_write_refused();
        let data = if refused {
            self.some_sectors(data)
        } else {
            data
        };
        let end = offset.saturating_add(bytes_u64(data.len()));
        let end = self.admit("write", file.ino, &file.path, end)?;
        assert!(
            data.len() <= end,
            "{} bytes at {offset} end at {end}",
            data.len()
        );
        if !data.is_empty() {
            let seq = self.next_seq();
            self.inode(file.ino).write(seq, end - data.len(), data);
        }
        if refused {
            self.meters.add("write_refused", 1);
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(Error::io("write", &*file.path, full));
        }
        Ok(())
    }

    /// Returns the part of `data` that a refused write has nevertheless written.
    pub(super) fn some_sectors<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        &data[..self.storage.rng.usize(0..=data.len() / TORN_BYTES) * TORN_BYTES]
    }

    /// Changes the length of a file. An allocation never shortens it.
    pub(super) fn resize(&mut self, op: &'static str, file: &Handle, len: u64) -> Result<()> {
        self.mutating(op, &file.path, file.life)?;
        let len = self.admit(op, file.ino, &file.path, len)?;
        let old = self.inode(file.ino).live.len();
        if len > old || (len < old && op != "allocate") {
            let seq = self.next_seq();
            self.inode(file.ino).resize(seq, len);
        }
        Ok(())
    }

    pub(super) fn check_fence(&mut self) -> Result<()> {
        let fenced = self.plan.fence_write_at;
        if fenced.is_none_or(|nth| self.since.writes < nth) {
            return Ok(());
        }
        self.meters.add("fenced", 1);
        Err(Error::Fenced("the disk has another owner".into()))
    }

    pub(super) fn sync(&mut self, file: &Handle) -> Result<()> {
        self.mutating("sync", &file.path, file.life)?;
        self.check_fence()?;
        self.since.syncs += 1;
        let failure = match self.plan.fail_sync_at {
            Some((nth, failure)) if nth == self.since.syncs => failure,
            _ => {
                self.inode(file.ino).sync();
                return Ok(());
            }
        };
        self.meters.add("sync_failed", 1);
        let Storage { inodes, rng, .. } = &mut self.storage;
        if let Some(inode) = inodes.get_mut(&file.ino) {
            match failure {
                SyncFailure::KeepsNew => inode.fail_sync_keeping(rng, &mut self.meters),
                SyncFailure::Reverts => inode.revert(&mut self.meters),
            }
        }
        Err(Error::io("sync", &*file.path, eio()))
    }

    /// Checks that a file may grow to the length `end`. Returns `end`, converted to `usize`.
    pub(super) fn admit(
        &mut self,
        op: &'static str,
        ino: Ino,
        path: &str,
        end: u64,
    ) -> Result<usize> {
        let index = usize::try_from(end.min(FILE_BYTES_MAX)).unwrap_or(usize::MAX);
        let len = self.inode(ino).live.len();
        if index <= len {
            return Ok(index);
        }
        if end > FILE_BYTES_MAX {
            return Err(Error::io(op, path, io::ErrorKind::FileTooLarge.into()));
        }
        self.since.grows += 1;
        let nth = self.since.grows;
        let refused = self
            .plan
            .enospc_at
            .is_some_and(|(from, count)| nth >= from && nth - from < count);
        let growth = bytes_u64(index - len);
        let full = self
            .plan
            .capacity_bytes
            .is_some_and(|max| self.used_bytes() + growth > max);
        if refused || full {
            self.meters.add("enospc", 1);
            return Err(Error::io(
                op,
                path,
                io::Error::from_raw_os_error(libc::ENOSPC),
            ));
        }
        Ok(index)
    }

    fn used_bytes(&self) -> u64 {
        let Storage { names, inodes, .. } = &self.storage;
        names
            .live
            .values()
            .map(|ino| bytes_u64(inodes[ino].live.len()))
            .sum()
    }

    pub(super) fn crash(&mut self, profile: CrashProfile, seed: u64) {
        match profile {
            CrashProfile::Killed => self.abandon_flights(),
            _ => self.land_all(),
        }
        let mut rng = Rng::with_seed(seed);
        match profile {
            CrashProfile::Nothing => self.end_life(&mut rng, |_, _| false, |_, _| Fate::Lost),
            CrashProfile::Everything => self.end_life(&mut rng, |_, _| true, |_, _| Fate::Kept),
            CrashProfile::Killed => self.end_process(),
            CrashProfile::Ordered => {
                let seqs = self.storage.pending_seqs();
                let kept = rng.usize(0..=seqs.len());
                // Sequence numbers start at one.
                let last = kept.checked_sub(1).map_or(0, |at| seqs[at]);
                let torn = rng.bool();
                let fate = move |one: &Pending, _: &mut Rng| match one.seq.cmp(&last) {
                    std::cmp::Ordering::Equal if torn => Fate::TornPrefix,
                    std::cmp::Ordering::Greater => Fate::Lost,
                    _ => Fate::Kept,
                };
                self.end_life(&mut rng, |seq, _| seq <= last, fate);
            }
            CrashProfile::Worst => {
                // The odds differ in each crash. So a crash in which nearly all or nearly no changes survive is as
                // likely as one in which half do.
                let (kept, torn) = (rng.u8(0..=100), rng.u8(0..=50));
                let fate = move |_: &Pending, rng: &mut Rng| {
                    if rng.u8(0..100) < torn {
                        Fate::TornSubset
                    } else if rng.u8(0..100) < kept {
                        Fate::Kept
                    } else if rng.u8(0..4) == 0 {
                        Fate::LengthOnly
                    } else {
                        Fate::Lost
                    }
                };
                self.end_life(&mut rng, |_, rng| rng.u8(0..100) < kept, fate);
            }
        }
    }

    /// Crashes the machine. Keeps exactly the pending operations with a bit in `mask`, and all operations on names that
    /// the kept operations need.
    pub(super) fn crash_keeping(&mut self, mask: u64) {
        self.land_all();
        let seqs = self.storage.pending_seqs();
        let keeps = |seq: u64| {
            seqs.binary_search(&seq)
                .is_ok_and(|at| at < 64 && mask & (1 << at) != 0)
        };
        let fate = |one: &Pending, _: &mut Rng| {
            if keeps(one.seq) {
                Fate::Kept
            } else {
                Fate::Lost
            }
        };
        self.end_life(&mut Rng::with_seed(0), |seq, _| keeps(seq), fate);
    }

    fn end_life(
        &mut self,
        rng: &mut Rng,
        mut name_survives: impl FnMut(u64, &mut Rng) -> bool,
        mut fate: impl FnMut(&Pending, &mut Rng) -> Fate,
    ) {
        let lost = self.storage.names.crash(|seq| name_survives(seq, rng));
        self.meters.add("lost_name", lost);
        let Storage { inodes, names, .. } = &mut self.storage;
        let named = names.referenced();
        inodes.retain(|ino, _| named.contains(ino));
        for inode in inodes.values_mut() {
            inode.crash(&mut fate, rng, &mut self.meters);
        }
        assert!(
            self.storage.pending_seqs().is_empty(),
            "a crash decides about everything that is pending"
        );
        self.restart_machine();
    }

    /// Ends the process. Its changes stay as they are, pending or durable.
    fn end_process(&mut self) {
        for inode in self.storage.inodes.values_mut() {
            inode.handles = 0;
        }
        self.storage.forget_unreachable();
        self.restart_machine();
    }

    fn restart_machine(&mut self) {
        self.begin_life();
        let capacity_bytes = self.plan.capacity_bytes;
        self.set_plan(FaultPlan {
            capacity_bytes,
            ..FaultPlan::default()
        });
    }

    /// Begins the next life of the machine, with power and without open handles or locks.
    pub(super) fn begin_life(&mut self) {
        self.life += 1;
        self.power_is_cut = false;
        self.locks.clear();
        self.keeps_locked = false;
    }
}

impl Storage {
    /// Returns the sequence numbers of all pending operations, ascending.
    pub(super) fn pending_seqs(&self) -> Vec<u64> {
        let mut seqs: Vec<u64> = self.names.pending_seqs().collect();
        for inode in self.inodes.values() {
            seqs.extend(inode.pending.iter().map(|one| one.seq));
        }
        seqs.sort_unstable();
        assert!(
            seqs.is_sorted_by(|a, b| a < b) && seqs.last().is_none_or(|last| *last <= self.seq),
            "each pending operation has a number that no other has"
        );
        seqs
    }

    /// Drops each file that has no open handle and no name, unless a crash could restore a name of the file.
    pub(super) fn forget_unreachable(&mut self) {
        if self.inodes.len() > self.names.live.len() {
            let named = self.names.referenced();
            self.inodes
                .retain(|ino, inode| inode.handles > 0 || named.contains(ino));
            let inodes = &self.inodes;
            self.flying.retain(|one| inodes.contains_key(&one.ino));
            let flying = &self.flying;
            self.strays
                .retain(|number| flying.iter().any(|one| one.number == *number));
            assert!(
                named.iter().all(|ino| self.inodes.contains_key(ino)),
                "every name has its file"
            );
        }
    }
}
