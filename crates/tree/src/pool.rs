//! The buffer pool: the pages in memory, and the writer, which writes dirty pages to disk.
//!
//! ```text
//! pin ──► in memory ──latch, note──► dirty ──write_step: copied, written, synced──► clean ──clock──► evicted
//! ```
//! A page stays in memory while it is pinned or dirty. No I/O happens under a latch or a mutex. A read of a page delays
//! only the threads that need this page. The writer copies pages before it writes them. The pool starts no threads: its
//! callers take the steps of the writer. [`read_ahead`](crate::read_ahead) reads pages before a caller pins them.
//!
//! # Order of locks
//! A thread takes a page's latch first, then the frames' mutex, and then the monitor's mutex. A page becomes dirty only
//! while it is pinned and under its exclusive latch. So a clean page without a pin stays clean while the frames' mutex
//! is held. Pages are evicted only under the frames' mutex.

pub(crate) mod ahead;

use self::ahead::{Reads, Window};
use crate::file::{Batch, PageFile};
use crate::monitor::{Dirty, Monitor, PidMap};
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use perdura_base::{Gsn, Pid, Result};
use perdura_device::AlignedBuf;
use perdura_page::tree_double::PAGES_MAX;
use perdura_page::tree_page::{Kind, Node, NodeMut};

/// The contents of a frame.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    page: Option<Pid>,
    pins: u32,
    /// True if the page was used since the clock's hand passed the frame.
    was_used: bool,
    /// True if the page is an inner page, which leads to other pages, or the meta page.
    is_index: bool,
    /// True while the page is being read.
    is_loading: bool,
    /// The page's serial number among the read-ahead pages. `None`: the page is not in the window of unused read-ahead
    /// pages.
    ahead: Option<u64>,
}

#[derive(Debug)]
struct Frames {
    slots: Vec<Slot>,
    places: PidMap<usize>,
    hand: usize,
    counts: Counts,
    window: Window,
}

/// Counts of the pool's work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Leaves read.
    pub data_fetches: u64,
    /// Inner pages read.
    pub index_fetches: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Pages written.
    pub writes: u64,
    /// Pages that were read ahead. They also count as fetches.
    pub ahead_pages: u64,
    /// I/Os of reading ahead. One I/O may read several pages.
    pub ahead_reads: u64,
    /// Pins of leaves that waited for a read. The pin began the read, or found it in progress.
    pub data_stalls: u64,
    /// Pins of inner pages that waited for a read.
    pub index_stalls: u64,
}

/// The number of frames in the pool for each page of a full batch. If a batch had a large part of the pages that may be
/// dirty, the number of dirty pages would vary widely. So only pools of 8,192 pages or more write batches of
/// `PAGES_MAX` pages. Smaller pools write shorter batches.
const FRAMES_A_PAGE: usize = 64;
/// The size of a full batch in a small pool, in pages. Smaller batches would cost too many syncs: each batch costs two.
const BATCH_MIN: usize = 16;

/// The batch in progress, with the state of each page when the page was copied into the batch.
#[derive(Debug)]
struct Writing {
    batch: Batch,
    copied: Vec<(Pid, Dirty)>,
}

/// The result of a step of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was done: no dirty page may be written.
    Idle,
    /// A part of a batch was written. More steps follow.
    Wrote,
    /// The batch is durable. The pages are clean now, except pages changed after the copy.
    Cleaned,
}

/// The buffer pool.
#[derive(Debug)]
pub struct Pool {
    file: PageFile,
    pages: Vec<RwLock<AlignedBuf>>,
    frames: Mutex<Frames>,
    /// Signalled when a read has ended, with or without success.
    loaded: Condvar,
    /// Signalled when there may be room for reading ahead.
    room_ahead: Condvar,
    monitor: Mutex<Monitor>,
    writing: Mutex<Option<Writing>>,
}

impl Counts {
    fn fetched(&mut self, is_index: bool) {
        if is_index {
            self.index_fetches += 1;
        } else {
            self.data_fetches += 1;
        }
    }

    fn stalled(&mut self, is_index: bool) {
        if is_index {
            self.index_stalls += 1;
        } else {
            self.data_stalls += 1;
        }
    }
}

impl Pool {
    /// Makes a pool of `pages` pages over a file.
    ///
    /// # Panics
    /// If `pages` is 0.
    #[must_use]
    pub fn new(file: PageFile, pages: usize, monitor: Monitor) -> Pool {
        assert!(pages > 0, "a pool has pages");
        Pool {
            pages: (0..pages).map(|_| RwLock::new(file.buffer())).collect(),
            frames: Mutex::new(Frames {
                slots: vec![Slot::default(); pages],
                places: PidMap::default(),
                hand: 0,
                counts: Counts::default(),
                window: Window::new(pages),
            }),
            loaded: Condvar::new(),
            room_ahead: Condvar::new(),
            monitor: Mutex::new(monitor),
            writing: Mutex::new(None),
            file,
        }
    }

    /// Returns the file of the pool's pages.
    #[must_use]
    pub fn file(&self) -> &PageFile {
        &self.file
    }

    /// Returns the monitor of the pool's pages. Its mutex also guards the counter of numbers.
    #[must_use]
    pub fn monitor(&self) -> &Mutex<Monitor> {
        &self.monitor
    }

    /// Returns the counts of the pool's work.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.frames.lock().counts
    }

    /// Pins a page. Reads the page if it is not in memory. `None`: all frames have pinned or dirty pages. The caller
    /// must then make room by [`write_step`](Self::write_step).
    ///
    /// # Errors
    /// As [`PageFile::read`].
    pub fn pin(&self, pid: Pid) -> Result<Option<Pinned<'_>>> {
        let mut frames = self.frames.lock();
        // The reads that this pin waits for. `None`: it has not waited yet.
        let mut waits: Option<Reads> = None;
        let at = loop {
            let reads = if let Some(at) = frames.places.get(&pid).copied() {
                let slot = frames.slots[at];
                assert_eq!(slot.page, Some(pid), "frame {at}");
                if !slot.is_loading && waits.is_none_or(|reads| frames.window.has_ended(reads)) {
                    frames.slots[at].was_used = true;
                    if waits.is_some() {
                        frames.counts.stalled(slot.is_index);
                    }
                    return Ok(Some(self.hold(&mut frames, at)));
                }
                let is_ahead = slot.is_loading && slot.ahead.is_some();
                frames.window.reads_under_way(is_ahead)
            } else if let Some(at) = self.claim(&mut frames, pid, true) {
                break at;
            } else if frames.window.loading == 0 {
                return Ok(None);
            } else {
                frames.window.reads_under_way(false)
            };
            let reads = *waits.get_or_insert(reads);
            self.wait_loaded(&mut frames, reads);
        };
        frames.slots[at].is_loading = true;
        self.missed(&mut frames);
        drop(frames);
        let mut page = self.pages[at].write();
        let read = self.file.read(pid, &mut page);
        let is_index = read.is_ok() && is_index(Node::over(&page));
        drop(page);
        let mut frames = self.frames.lock();
        self.loaded.notify_all();
        if let Err(error) = read {
            frames.slots[at] = Slot::default();
            frames.places.remove(&pid);
            return Err(error);
        }
        frames.slots[at].is_loading = false;
        frames.slots[at].is_index = is_index;
        frames.counts.fetched(is_index);
        frames.counts.stalled(is_index);
        Ok(Some(Pinned { pool: self, at }))
    }

    /// Pins the page in frame `at`.
    fn hold(&self, frames: &mut Frames, at: usize) -> Pinned<'_> {
        let slot = &mut frames.slots[at];
        assert!(slot.page.is_some() && !slot.is_loading, "frame {at}");
        slot.pins += 1;
        if slot.ahead.is_some() {
            self.leave_window(frames, at);
        }
        Pinned { pool: self, at }
    }

    /// Puts a new page into memory with the contents `bytes`, and pins the page. The page is not yet on disk. Returns
    /// `None` in the cases in which [`pin`](Self::pin) does.
    ///
    /// # Panics
    /// If the page is pinned or dirty.
    pub fn adopt(&self, pid: Pid, bytes: &[u8]) -> Option<Pinned<'_>> {
        let mut frames = self.frames.lock();
        // Reading ahead may have read this place in the file before the page was made. These old bytes must be dropped.
        while let Some(at) = frames.places.get(&pid).copied() {
            let slot = frames.slots[at];
            if slot.is_loading {
                let reads = frames.window.reads_under_way(false);
                self.wait_loaded(&mut frames, reads);
                continue;
            }
            let is_dirty = self.monitor.lock().dirty(pid).is_some();
            assert!(slot.pins == 0 && !is_dirty, "page {pid} is new");
            if slot.ahead.is_some() {
                self.leave_window(&mut frames, at);
            }
            frames.slots[at] = Slot::default();
            frames.places.remove(&pid);
        }
        let at = self.claim(&mut frames, pid, true)?;
        frames.slots[at].is_index = is_index(Node::over(bytes));
        frames.slots[at].is_loading = true;
        drop(frames);
        self.pages[at].write().copy_from_slice(bytes);
        let mut frames = self.frames.lock();
        frames.slots[at].is_loading = false;
        self.loaded.notify_all();
        Some(Pinned { pool: self, at })
    }

    /// Undoes [`adopt`](Self::adopt). The page must have no pin, and no change of it may have been noted.
    pub fn forget(&self, pid: Pid) {
        let mut frames = self.frames.lock();
        let Some(at) = frames.places.remove(&pid) else {
            return;
        };
        assert_eq!(frames.slots[at].pins, 0, "page {pid} is in use");
        assert!(
            self.monitor.lock().dirty(pid).is_none(),
            "page {pid} is dirty"
        );
        frames.slots[at] = Slot::default();
    }

    /// Finds a frame for a page and pins it once. Takes a free frame, or evicts a page from its frame. Evicts inner
    /// pages and unused read-ahead pages only if `is_wanted`.
    fn claim(&self, frames: &mut Frames, pid: Pid, is_wanted: bool) -> Option<usize> {
        let count = frames.slots.len();
        let monitor = self.monitor.lock();
        // The first round evicts only a page that was not used since the last round. The second round also evicts a
        // page that was used. Inner pages and unused read-ahead pages are spared in these rounds and evicted in two
        // more rounds.
        let rounds = if is_wanted { 4 } else { 2 };
        let found = (0..rounds * count).find_map(|step| {
            let at = frames.hand;
            frames.hand = (at + 1) % count;
            let slot = &mut frames.slots[at];
            let Some(old) = slot.page else {
                return Some((at, None));
            };
            if slot.pins > 0 || slot.is_loading || monitor.dirty(old).is_some() {
                return None;
            }
            let is_spared = (slot.is_index || slot.ahead.is_some()) && step < 2 * count;
            if is_spared || std::mem::take(&mut slot.was_used) {
                return None;
            }
            Some((at, Some(old)))
        });
        drop(monitor);
        let (at, old) = found?;
        assert_eq!(frames.slots[at].pins, 0, "frame {at} is in use");
        if let Some(old) = old {
            if frames.slots[at].ahead.is_some() {
                self.leave_window(frames, at);
            }
            frames.places.remove(&old);
            frames.counts.evictions += 1;
        }
        frames.slots[at] = Slot {
            page: Some(pid),
            pins: 1,
            was_used: true,
            ..Slot::default()
        };
        let before = frames.places.insert(pid, at);
        assert_eq!(before, None, "page {pid} is in one frame");
        Some(at)
    }

    /// Takes one step of the writer, with at most one I/O. The writer's batches consist of the pages with the oldest
    /// unwritten changes.
    ///
    /// # Errors
    /// As [`PageFile::step`].
    pub fn write_step(&self, eosl: Gsn) -> Result<Progress> {
        let mut writing = self.writing.lock();
        if writing.is_none() {
            *writing = self.begin_batch(eosl);
            let began = writing.is_some();
            return Ok(if began {
                Progress::Wrote
            } else {
                Progress::Idle
            });
        }
        let is_done = match &mut *writing {
            Some(under_way) => self.file.step(&mut under_way.batch)?,
            None => false,
        };
        if !is_done {
            return Ok(Progress::Wrote);
        }
        let done = writing.take();
        if let Some(done) = &done {
            assert_eq!(done.batch.pids().len(), done.copied.len());
        }
        let copied = done.map_or_else(Vec::new, |done| done.copied);
        let mut frames = self.frames.lock();
        frames.counts.writes += u64::try_from(copied.len()).unwrap_or(0);
        drop(frames);
        let mut monitor = self.monitor.lock();
        for (pid, dirty) in copied {
            monitor.note_written(pid, dirty, eosl);
        }
        drop(monitor);
        self.wake_ahead();
        Ok(Progress::Cleaned)
    }

    fn begin_batch(&self, eosl: Gsn) -> Option<Writing> {
        let monitor = self.monitor.lock();
        let most = (self.pages.len() / FRAMES_A_PAGE).clamp(BATCH_MIN, PAGES_MAX);
        let mut oldest: Vec<Pid> = monitor.writable(eosl).take(most).collect();
        drop(monitor);
        oldest.sort_unstable();
        let mut copied = Vec::with_capacity(oldest.len());
        let mut pages = Vec::with_capacity(oldest.len());
        for pid in oldest {
            let Some(pinned) = self.pin_resident(pid) else {
                continue;
            };
            let page = pinned.read();
            let monitor = self.monitor.lock();
            // The page may have changed since it was chosen. From now on its latch is held, so no thread can change it.
            let dirty = monitor.dirty(pid).filter(|_| monitor.may_write(pid, eosl));
            drop(monitor);
            if let Some(dirty) = dirty {
                let mut copy = page.bytes.to_vec();
                NodeMut::over(&mut copy).seal();
                copied.push((pid, dirty));
                pages.push((pid, copy));
            }
        }
        if pages.is_empty() {
            return None;
        }
        let pages: Vec<(Pid, &[u8])> = pages.iter().map(|(pid, page)| (*pid, &page[..])).collect();
        Some(Writing {
            batch: self.file.begin(&pages),
            copied,
        })
    }

    /// Pins a page if it is in memory. A dirty page is always in memory.
    pub(crate) fn pin_resident(&self, pid: Pid) -> Option<Pinned<'_>> {
        let mut frames = self.frames.lock();
        let at = frames.places.get(&pid).copied()?;
        let is_loading = frames.slots[at].is_loading;
        (!is_loading).then(|| self.hold(&mut frames, at))
    }
}

fn is_index(node: Node<'_>) -> bool {
    matches!(node.kind(), Kind::Inner | Kind::Meta)
}

/// A pinned page, which stays in memory until this value is dropped.
#[derive(Debug)]
pub struct Pinned<'p> {
    pool: &'p Pool,
    at: usize,
}

impl<'p> Pinned<'p> {
    /// Latches the page shared.
    #[must_use]
    pub fn read(&self) -> Reading<'p> {
        Reading {
            bytes: self.pool.pages[self.at].read(),
        }
    }

    /// Latches the page exclusively.
    #[must_use]
    pub fn write(&self) -> Changing<'p> {
        Changing {
            bytes: self.pool.pages[self.at].write(),
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut frames = self.pool.frames.lock();
        let slot = &mut frames.slots[self.at];
        debug_assert!(slot.pins > 0 && slot.page.is_some());
        slot.pins -= 1;
    }
}

/// A page whose latch is held in shared mode.
#[derive(Debug)]
pub struct Reading<'p> {
    bytes: RwLockReadGuard<'p, AlignedBuf>,
}

impl Reading<'_> {
    /// Returns the page.
    #[must_use]
    pub fn node(&self) -> Node<'_> {
        Node::over(&self.bytes)
    }

    /// Returns the page's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A page whose latch is held in exclusive mode.
#[derive(Debug)]
pub struct Changing<'p> {
    bytes: RwLockWriteGuard<'p, AlignedBuf>,
}

impl Changing<'_> {
    /// Returns the page.
    pub fn node(&mut self) -> NodeMut<'_> {
        NodeMut::over(&mut self.bytes)
    }

    /// Replaces the whole content of the page.
    pub fn replace(&mut self, page: &[u8]) {
        self.bytes.copy_from_slice(page);
    }
}
