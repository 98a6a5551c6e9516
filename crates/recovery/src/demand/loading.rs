//! The loading of partitions that a restart has left absent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use perdura_base::{Error, PartitionId, PartitionSet, Result};
use perdura_heap::Heap;

use super::building::Building;

/// The state of a partition.
#[derive(Clone)]
enum Presence {
    /// Nothing is loaded.
    Missing,
    /// A thread is loading it.
    Loading,
    /// Its rows can be read and changed.
    Ready,
    /// It cannot be loaded, for this reason.
    Damaged(Arc<str>),
}

/// The failure of a partition's loading.
enum Failure {
    /// The disk could not be read. Nothing was loaded.
    Read(Error),
    /// The partition cannot be built.
    Damage(Error),
}

/// The states of all partitions.
struct States {
    of: Vec<Presence>,
    /// The partitions that transactions wait for.
    asked: PartitionSet,
    /// The partitions that could not be read when they were last tried. Others come first.
    unread: PartitionSet,
    /// The count of partitions that are missing or being loaded.
    left: usize,
}

impl States {
    /// Chooses the missing partition to load next, and marks it.
    fn take_next(&mut self) -> Option<PartitionId> {
        let is_missing = |id: &PartitionId| matches!(self.of[usize::from(id.0)], Presence::Missing);
        let count = u16::try_from(self.of.len()).expect("at most 256 partitions");
        let missing: PartitionSet = (0..count).map(PartitionId).filter(is_missing).collect();
        let readable = |id: &PartitionId| missing.contains(*id) && !self.unread.contains(*id);
        let next = self.asked.iter().find(readable);
        let next = next.or_else(|| missing.iter().find(readable));
        if next.is_none() {
            self.unread = PartitionSet::empty();
        }
        let next = next.or_else(|| missing.iter().next())?;
        self.of[usize::from(next.0)] = Presence::Loading;
        Some(next)
    }

    /// Returns whether a thread is loading a partition.
    fn is_loading(&self) -> bool {
        self.of
            .iter()
            .any(|state| matches!(state, Presence::Loading))
    }
}

/// The partitions that a restart has left absent.
pub struct Loading {
    partitions: u16,
    /// Everything that the partitions are built of. `None`: all are loaded.
    building: Mutex<Option<Arc<Building>>>,
    states: Mutex<States>,
    changed: Condvar,
    /// The count of loadings that have ended, well or with an error.
    ended: AtomicU64,
    is_done: AtomicBool,
}

impl Loading {
    pub(super) fn new(partitions: u16, building: Building) -> Loading {
        let count = usize::from(partitions);
        Loading {
            partitions,
            building: Mutex::new(Some(Arc::new(building))),
            states: Mutex::new(States {
                of: vec![Presence::Missing; count],
                asked: PartitionSet::empty(),
                unread: PartitionSet::empty(),
                left: count,
            }),
            changed: Condvar::new(),
            ended: AtomicU64::new(0),
            is_done: AtomicBool::new(false),
        }
    }

    fn building(&self) -> Option<Arc<Building>> {
        self.building.lock().clone()
    }

    /// Returns a heap that has only the pages of the catalog, as of the restart. `None`: all partitions are loaded.
    #[must_use]
    pub fn catalog_heap(&self) -> Option<Arc<Heap>> {
        let building = self.building();
        building.map(|building| Arc::clone(building.catalog_heap()))
    }

    /// Returns whether all partitions are loaded.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Returns the partitions that are not loaded yet.
    #[must_use]
    pub fn absent(&self) -> PartitionSet {
        if self.is_done() {
            return PartitionSet::empty();
        }
        let states = self.states.lock();
        let all = (0..self.partitions).map(PartitionId).zip(&states.of);
        let absent = all.filter(|(_, state)| !matches!(state, Presence::Ready));
        absent.map(|(id, _)| id).collect()
    }

    /// Returns how often the loading of a partition has ended, well or with an error.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Loads these partitions, or waits until other threads have loaded them. The caller holds no latch.
    ///
    /// # Errors
    /// Errors of the disk. [`Error::Corrupt`] for damage in a partition. The partition is then never loaded in this
    /// life, and each call returns the error again.
    pub fn load(&self, parts: &PartitionSet) -> Result<()> {
        parts.iter().try_for_each(|id| self.load_one(id))
    }

    /// Notes that these partitions should be loaded next. Does not wait.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage in one of the partitions.
    pub fn ask(&self, parts: &PartitionSet) -> Result<()> {
        let mut states = self.states.lock();
        for id in parts.iter() {
            if let Presence::Damaged(why) = &states.of[usize::from(id.0)] {
                return Err(damaged(id, why));
            }
        }
        states.asked.union(parts);
        Ok(())
    }

    /// Loads the next partition that is missing. A partition that was [asked](Self::ask) for comes first. If none is
    /// missing, waits while other threads load some, because their reads may fail. Returns whether a loading has ended.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_next(&self) -> Result<bool> {
        let next = {
            let mut states = self.states.lock();
            let next = states.take_next();
            if next.is_none() && states.is_loading() {
                self.changed.wait(&mut states);
                return Ok(true);
            }
            next
        };
        next.map_or(Ok(false), |id| self.load_marked(id).map(|()| true))
    }

    /// Returns whether a partition is missing or being loaded.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let states = self.states.lock();
        let mut of = states.of.iter();
        of.any(|state| matches!(state, Presence::Missing | Presence::Loading))
    }

    /// Loads all partitions, and returns when the last one is ready.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_all(&self) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        self.load(&PartitionSet::all(self.partitions))?;
        let mut states = self.states.lock();
        while !self.is_done() {
            self.changed.wait(&mut states);
        }
        Ok(())
    }

    fn load_one(&self, id: PartitionId) -> Result<()> {
        let at = usize::from(id.0);
        {
            let mut states = self.states.lock();
            loop {
                match &states.of[at] {
                    Presence::Ready => return Ok(()),
                    Presence::Damaged(why) => return Err(damaged(id, why)),
                    Presence::Loading => self.changed.wait(&mut states),
                    Presence::Missing => break,
                }
            }
            states.of[at] = Presence::Loading;
        }
        self.load_marked(id)
    }

    /// Loads a partition that the caller has marked as being loaded.
    fn load_marked(&self, id: PartitionId) -> Result<()> {
        let mut end = Ended {
            loading: self,
            id,
            state: Presence::Damaged("its loading stopped with a bug in Perdura".into()),
        };
        let result = self.bring(id);
        end.state = match &result {
            Ok(()) => Presence::Ready,
            Err(Failure::Read(_)) => Presence::Missing,
            Err(Failure::Damage(error)) => Presence::Damaged(error.to_string().into()),
        };
        drop(end);
        result.map_err(|failure| match failure {
            Failure::Read(error) | Failure::Damage(error) => error,
        })
    }

    /// Loads a partition. All reads come first. After a failed read nothing has changed, and the next transaction tries
    /// again.
    fn bring(&self, id: PartitionId) -> Result<(), Failure> {
        let building = self.building().expect("a partition is missing");
        let read = building.read(id).map_err(Failure::Read)?;
        building.build(id, read).map_err(Failure::Damage)
    }

    /// Ends the loading, and frees the image and the records.
    fn finish(&self) {
        let building = self.building.lock().take();
        let building = building.expect("the loading ends once");
        building.list_orphans();
        self.is_done.store(true, Ordering::Release);
    }
}

/// The end of a partition's loading. Dropping it publishes the state, also if the thread panics.
struct Ended<'a> {
    loading: &'a Loading,
    id: PartitionId,
    state: Presence,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let loading = self.loading;
        let is_last = {
            let mut states = loading.states.lock();
            assert!(states.left > 0, "a partition is loaded once");
            let is_ready = matches!(self.state, Presence::Ready);
            if matches!(self.state, Presence::Missing) {
                states.unread.insert(self.id);
            }
            states.of[usize::from(self.id.0)] = self.state.clone();
            states.left -= usize::from(is_ready);
            states.left == 0
        };
        if is_last {
            // This takes all latches, so it must not hold the states.
            loading.finish();
        }
        let _states = loading.states.lock();
        loading.ended.fetch_add(1, Ordering::AcqRel);
        loading.changed.notify_all();
    }
}

fn damaged(id: PartitionId, why: &str) -> Error {
    Error::corrupt(
        format!("partition {id}"),
        0,
        "a partition that can be loaded",
        why,
        "Its keys cannot be read or written. The other partitions are served.",
    )
}
