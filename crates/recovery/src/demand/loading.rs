//! The loading of partitions that a restart has left absent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Error, ImageSlot, PartitionId, PartitionSet, Result};
use perdura_heap::{FoundHeader, Heap, MemoryUse};
use perdura_wal::scheme::Scheme;

use super::Awaited;
use crate::base::Image;
use crate::heap_pages::check_partition;
use crate::indexing::{Indexing, ReadCatalog};
use crate::load::LoadedRun;
use crate::options::RestartOptions;
use crate::owner::pages::page_bytes;
use crate::plan::ImagePlan;

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
    /// The count of partitions that are missing or being loaded.
    left: usize,
    /// The count of loadings that have ended, well or with an error.
    ended: u64,
}

/// The headers of collections that were found so far.
struct Headers {
    /// The headers whose collections are in a partition that is not built yet.
    waiting: BTreeMap<PartitionId, Vec<FoundHeader>>,
    /// For each partition, whether its rows are indexed.
    built: Vec<bool>,
}

/// The partitions that a restart has left absent, and everything that is needed to load them.
pub struct Loading {
    heap: Arc<Heap>,
    awaited: Awaited,
    image: ImagePlan,
    /// The parts of the image that have pages of a partition: the disk and the number of each.
    parts: Vec<Vec<(usize, usize)>>,
    forms: Arc<dyn ReadCatalog>,
    scheme: Scheme,
    slot: Option<ImageSlot>,
    states: Mutex<States>,
    changed: Condvar,
    headers: Mutex<Headers>,
    is_done: AtomicBool,
}

impl Loading {
    /// Begins the loading into a heap whose partitions are absent. The memory account is charged for all pages of the
    /// image at once.
    pub(crate) fn new(
        heap: &Arc<Heap>,
        image: ImagePlan,
        awaited: Awaited,
        options: &RestartOptions,
        scheme: Scheme,
    ) -> Arc<Loading> {
        let partitions = usize::from(heap.geometry().partitions);
        let mut parts = vec![Vec::new(); partitions];
        for (disk, runs) in image.runs.iter().enumerate() {
            for (number, run) in runs.iter().enumerate() {
                parts[usize::from(run.partition.0)].push((disk, number));
            }
        }
        heap.memory().add(MemoryUse::Pages, page_bytes(&image));
        Arc::new(Loading {
            heap: Arc::clone(heap),
            slot: image.trusted_slot(),
            image,
            awaited,
            parts,
            forms: Arc::clone(&options.catalog),
            scheme,
            states: Mutex::new(States {
                of: vec![Presence::Missing; partitions],
                asked: PartitionSet::empty(),
                left: partitions,
                ended: 0,
            }),
            changed: Condvar::new(),
            headers: Mutex::new(Headers {
                waiting: BTreeMap::new(),
                built: vec![false; partitions],
            }),
            is_done: AtomicBool::new(false),
        })
    }

    /// Returns a heap that has only the pages of the catalog, as of the restart.
    #[must_use]
    pub fn catalog_heap(&self) -> &Arc<Heap> {
        &self.awaited.catalog_heap
    }

    /// Returns whether all partitions are loaded.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Returns how many partitions are not loaded yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.states.lock().left
    }

    /// Returns how often the loading of a partition has ended, well or with an error.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.states.lock().ended
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

    /// Loads the next partition that is missing. A partition that was [asked](Self::ask) for comes first. Returns
    /// whether there was one.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_next(&self) -> Result<bool> {
        let next = {
            let states = self.states.lock();
            let is_missing =
                |id: &PartitionId| matches!(states.of[usize::from(id.0)], Presence::Missing);
            let asked = states.asked.iter().find(is_missing);
            asked.or_else(|| self.heap.ids().find(is_missing))
        };
        next.map_or(Ok(false), |id| self.load_one(id).map(|()| true))
    }

    /// Loads all partitions, and returns when the last one is ready.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_all(&self) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        self.load(&PartitionSet::all(self.heap.geometry().partitions))?;
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
        let mut end = Ended {
            loading: self,
            at,
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

    /// Loads a partition.
    fn bring(&self, id: PartitionId) -> Result<(), Failure> {
        // All reads come first. After a failed read nothing has changed, and the next transaction tries again.
        let parts = &self.parts[usize::from(id.0)];
        let read = parts
            .iter()
            .map(|(disk, number)| self.image.read(*disk, *number));
        let read = read.collect::<Result<Vec<_>>>().map_err(Failure::Read)?;
        self.build(id, read).map_err(Failure::Damage)
    }

    /// Builds a partition of pages of the image and records behind it.
    fn build(&self, id: PartitionId, read: Vec<LoadedRun>) -> Result<()> {
        let heap = self.heap.as_ref();
        let parts = &self.parts[usize::from(id.0)];
        let pages = |(disk, number): &(usize, usize)| self.image.runs[*disk][*number].entries.len();
        let bytes = to_u64(parts.iter().map(pages).sum::<usize>() * PAGE_BYTES);
        let mut bad = 0;
        for part in read {
            bad += self.image.play(heap, part)?;
        }
        if bad > 0 {
            return Err(self.image.found_late(id));
        }
        self.awaited.tail.play(heap, id)?;
        if self.scheme.counts_updates() {
            check_partition(heap, id)?;
        }
        let indexing = self.indexing();
        indexing.end_replay(heap, id, self.awaited.tag);
        let sidecar = indexing.sidecar(heap, id);
        indexing.build(heap, id, &self.awaited.catalog, sidecar)?;
        assert!(bytes <= page_bytes(&self.image), "a part of the image");
        heap.memory().sub(MemoryUse::Pages, bytes);
        self.claim(id)
    }

    fn indexing(&self) -> Indexing<'_> {
        Indexing {
            scheme: self.scheme,
            k: self.image.k,
            rows: self.awaited.rows,
            slot: self.slot,
            ckpt_floor: CkptEpoch(0),
            sidecars: &self.image.sidecars,
            pseq: self.image.pseq(),
            catalog: self.forms.as_ref(),
        }
    }

    /// Gives collections to their headers, and ends the absence of a partition whose rows are indexed. A header and its
    /// collection may lie in two partitions. Whichever of the two is built later makes the claim, before its rows can
    /// be read.
    fn claim(&self, id: PartitionId) -> Result<()> {
        let mut headers = self.headers.lock();
        let Headers { waiting, built } = &mut *headers;
        let found = self.heap.lock(id).take_headers();
        for header in found {
            waiting.entry(header.partition()).or_default().push(header);
        }
        built[usize::from(id.0)] = true;
        let due = waiting.keys().copied();
        let due: Vec<_> = due.filter(|home| built[usize::from(home.0)]).collect();
        for home in due {
            let headers = waiting.remove(&home).unwrap_or_default();
            let mut part = self.heap.lock(home);
            headers.iter().try_for_each(|header| part.claim(header))?;
        }
        assert!(
            waiting.keys().all(|home| !built[usize::from(home.0)]),
            "a header waits only for a partition that is not built"
        );
        self.heap.lock(id).set_absent(false);
        Ok(())
    }

    /// Ends the loading: lists the orphans, which only now are known.
    fn finish(&self) {
        assert!(
            self.headers.lock().waiting.is_empty(),
            "each header was found, and its collection too"
        );
        for id in self.heap.ids() {
            self.heap.lock(id).list_orphans();
        }
        self.is_done.store(true, Ordering::Release);
    }
}

/// The end of a partition's loading. Dropping it publishes the state, also if the thread panics.
struct Ended<'a> {
    loading: &'a Loading,
    at: usize,
    state: Presence,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut states = self.loading.states.lock();
        let is_ready = matches!(self.state, Presence::Ready);
        states.of[self.at] = self.state.clone();
        assert!(states.left > 0, "a partition is loaded once");
        states.ended += 1;
        states.left -= usize::from(is_ready);
        if states.left == 0 && is_ready {
            self.loading.finish();
        }
        self.loading.changed.notify_all();
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
