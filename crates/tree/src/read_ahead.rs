//! Reading pages before redo needs them.
//!
//! ```text
//! list, or offers ──► queue ──step: a page and its queued neighbours, one I/O──► window ──pin──► used
//! ```
//! [`ReadAhead`] reads the pages of a list and the pages offered by callers, in about redo's order. [`IndexPreload`]
//! reads all inner pages, level by level. Neither starts threads. Many threads at once may call
//! [`step`](ReadAhead::step), which does one I/O, or [`work`](ReadAhead::work), which takes steps until nothing is left
//! to read. The simulator takes steps from one thread.
//!
//! # Invariants
//! * The *window* is the set of unused read-ahead pages. It has at most a quarter of the pool's frames. No page of the
//!   window is evicted for a new read-ahead page. If redo has to read a page itself while the window is full, the
//!   window has the wrong pages. Then the oldest page leaves the window.
//! * A pin of a page that is being read ahead waits for all reads in progress. So redo waits once instead of once for
//!   each page (section 5.3 of the paper: some stalls are longer).
//! * A failed read is no error here: a later pin reads the page again.
//!
//! # Source
//! D. Lomet, K. Tzoumas, M. Zwilling, "Implementing Performance Competitive Logical Recovery", section 4.4 and
//! appendix A.
//!
//! # Deviations
//! PF-list names a page more than once if the page was written and dirtied again. Only the update at the page's last
//! place in the list left the page dirty. So only the last place counts.

use crate::dirty_pages::DirtyPages;
use crate::file::RUN_PAGES_MAX;
use crate::monitor::PidMap;
use crate::pool::Pool;
use crate::pool::ahead::{Refused, Run};
use crate::tree::Tree;
use parking_lot::Mutex;
use perdura_base::Pid;
use perdura_device::AlignedBuf;
use perdura_page::tree_page::Kind;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

/// The result of a step of reading ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The step read pages.
    Read,
    /// The step did nothing, because there was no page to read or no room for it. A later step may read pages.
    Later,
    /// The step did nothing, and no later step will read pages.
    Done,
}

/// Takes steps until a step returns [`Step::Done`]. Waits after each step that returns [`Step::Later`].
fn work(pool: &Pool, step: impl Fn() -> Step) {
    loop {
        let seen = pool.ahead_events();
        match step() {
            Step::Read => {}
            Step::Later => pool.wait_ahead(seen),
            Step::Done => return,
        }
    }
}

/// Buffers for runs, kept for reuse.
#[derive(Debug, Default)]
struct Buffers(Vec<AlignedBuf>);

impl Buffers {
    fn take(&mut self, pool: &Pool) -> AlignedBuf {
        let bytes = RUN_PAGES_MAX * pool.file().page_bytes();
        self.0.pop().unwrap_or_else(|| AlignedBuf::zeroed(bytes))
    }
}

impl DirtyPages {
    /// Returns the pages to read ahead: those pages of PF-list that are still in the table of dirty pages. Returns each
    /// page once, in the order of the pages' last entries in PF-list.
    #[must_use]
    pub fn read_ahead(&self) -> Vec<Pid> {
        let mut named = PidMap::default();
        for (at, pid) in self.prefetch.iter().enumerate() {
            named.insert(*pid, at);
        }
        let list = self.prefetch.iter().enumerate();
        let is_last = |(at, pid): &(usize, &Pid)| {
            self.entries.contains_key(*pid) && named.get(*pid) == Some(at)
        };
        list.filter(is_last).map(|(_, pid)| *pid).collect()
    }
}

/// The state of a page that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The page is in the queue.
    Waits,
    /// The page was read, or its read has failed.
    Read,
}

#[derive(Debug)]
struct Queue {
    /// The pages of the list that were not queued yet. They are read after the pages in `waiting`.
    list: std::vec::IntoIter<Pid>,
    /// The queued pages, in the order of the offers. Some may already have been read, as neighbours of other pages.
    waiting: VecDeque<Pid>,
    /// Recently read pages, the oldest first. They are not read again.
    recent: VecDeque<Pid>,
    known: PidMap<Known>,
    /// The maximum length of `waiting`, and also of `recent`.
    most: usize,
    buffers: Buffers,
}

impl Queue {
    /// Offers a page. Returns true if the page is queued or was read recently, and false if the queue is full.
    fn offer(&mut self, pid: Pid) -> bool {
        if self.known.contains_key(&pid) {
            return true;
        }
        if self.waiting.len() >= self.most {
            return false;
        }
        self.waiting.push_back(pid);
        self.known.insert(pid, Known::Waits);
        true
    }

    fn waits(&self, pid: Pid) -> bool {
        self.known.get(&pid) == Some(&Known::Waits)
    }

    fn fill(&mut self) {
        while let Some(pid) = self.list.as_slice().first() {
            if !self.offer(*pid) {
                break;
            }
            self.list.next();
        }
    }

    /// Returns the next run to read, with frames in the pool. If no run can be read now, the error is the result of
    /// the step.
    fn next(&mut self, pool: &Pool) -> Result<Run, Step> {
        loop {
            self.fill();
            let Some(pid) = self.waiting.front().copied() else {
                return Err(Step::Later);
            };
            if !self.waits(pid) {
                self.waiting.pop_front();
                continue;
            }
            match pool.begin_run(pid, |beside| self.waits(beside)) {
                Ok(run) => {
                    self.waiting.pop_front();
                    self.note(&run);
                    return Ok(run);
                }
                Err(Refused::NoRoom) => return Err(Step::Later),
                Err(Refused::InMemory) => {
                    self.waiting.pop_front();
                    self.known.remove(&pid);
                }
            }
        }
    }

    fn note(&mut self, run: &Run) {
        for pid in run.pids() {
            let before = self.known.insert(pid, Known::Read);
            assert_eq!(before, Some(Known::Waits), "page {pid} waited");
            self.recent.push_back(pid);
            if self.recent.len() > self.most {
                let oldest = self.recent.pop_front();
                let known = oldest.map(|pid| self.known.remove(&pid));
                assert_eq!(known, Some(Some(Known::Read)), "{oldest:?}");
            }
        }
    }
}

/// A reader of offered pages, in the order of the offers.
#[derive(Debug)]
pub struct ReadAhead<'p> {
    pool: &'p Pool,
    queue: Mutex<Queue>,
    is_closed: AtomicBool,
}

impl<'p> ReadAhead<'p> {
    /// Makes a reader for the pages of a list, and for the pages that callers [`offer`](Self::offer) later.
    #[must_use]
    pub fn new(pool: &'p Pool, list: Vec<Pid>) -> Self {
        let queue = Queue {
            list: list.into_iter(),
            waiting: VecDeque::new(),
            recent: VecDeque::new(),
            known: PidMap::default(),
            most: pool.window().max(1),
            buffers: Buffers::default(),
        };
        ReadAhead {
            pool,
            queue: Mutex::new(queue),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Offers a page that redo will need. Returns false if the queue is full. The page must then be offered again
    /// later. A page that is in the queue, or was read recently, is not queued a second time.
    #[must_use = "a full queue has not taken the page"]
    pub fn offer(&self, pid: Pid) -> bool {
        let took = self.queue.lock().offer(pid);
        if took {
            self.pool.wake_ahead_one();
        }
        took
    }

    /// Takes a step: at most one I/O. Many threads may call this function at once.
    pub fn step(&self) -> Step {
        if self.is_closed.load(Ordering::SeqCst) {
            return Step::Done;
        }
        let mut queue = self.queue.lock();
        let run = match queue.next(self.pool) {
            Ok(run) => run,
            Err(step) => return step,
        };
        let mut buffer = queue.buffers.take(self.pool);
        drop(queue);
        self.pool.read_run(&run, &mut buffer);
        self.queue.lock().buffers.0.push(buffer);
        Step::Read
    }

    /// Takes steps until another thread calls [`close`](Self::close). Waits while there is nothing to read, or no room.
    pub fn work(&self) {
        work(self.pool, || self.step());
    }

    /// Ends reading ahead: no more pages are needed.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.pool.wake_ahead();
    }
}

#[derive(Debug)]
struct Level {
    /// The pages of this level that are still to be read.
    pages: BTreeSet<Pid>,
    /// The number of pages that are being read.
    under_way: usize,
    /// The known inner pages of the level below.
    below: BTreeSet<Pid>,
    /// The number of pages that may still be read.
    left: usize,
    buffers: Buffers,
}

/// A reader of the inner pages, level by level (appendix A.1 of the paper). No thread may change the structure
/// meanwhile. Reads at most half as many pages as the pool has frames. Redo reads the remaining inner pages when it
/// needs them.
#[derive(Debug)]
pub struct IndexPreload<'t> {
    pool: &'t Pool,
    level: Mutex<Level>,
}

impl Tree {
    /// Returns a reader of all inner pages. [`find_tables`](Self::find_tables) must have been called.
    #[must_use]
    pub fn preload_index(&self) -> IndexPreload<'_> {
        let level = Level {
            pages: self.roots.read().tables.values().copied().collect(),
            under_way: 0,
            below: BTreeSet::new(),
            left: self.pool().frame_count() / 2,
            buffers: Buffers::default(),
        };
        IndexPreload {
            pool: self.pool(),
            level: Mutex::new(level),
        }
    }
}

impl IndexPreload<'_> {
    /// Takes a step: at most one I/O. Many threads may call this function at once.
    pub fn step(&self) -> Step {
        let mut level = self.level.lock();
        let Some(pid) = level.pages.first().copied().filter(|_| level.left > 0) else {
            let is_done = level.under_way == 0;
            return if is_done { Step::Done } else { Step::Later };
        };
        let run = match self
            .pool
            .begin_run(pid, |beside| level.pages.contains(&beside))
        {
            Ok(run) => Some(run),
            Err(Refused::InMemory) => None,
            // If another step is reading, it will pin and release its pages, which makes room. Otherwise the pool is
            // full of pages that this preload has not read.
            Err(Refused::NoRoom) if level.under_way == 0 => {
                level.left = 0;
                return Step::Done;
            }
            Err(Refused::NoRoom) => return Step::Later,
        };
        let pids: Vec<Pid> = run.as_ref().map_or(vec![pid], |run| run.pids().collect());
        for pid in &pids {
            level.pages.remove(pid);
        }
        level.under_way += pids.len();
        level.left = level.left.saturating_sub(pids.len());
        if let Some(run) = &run {
            let mut buffer = level.buffers.take(self.pool);
            drop(level);
            self.pool.read_run(run, &mut buffer);
            level = self.level.lock();
            level.buffers.0.push(buffer);
        }
        drop(level);
        let below: Vec<Pid> = pids.iter().flat_map(|pid| self.below(*pid)).collect();
        let mut level = self.level.lock();
        level.under_way -= pids.len();
        level.below.extend(below);
        if level.pages.is_empty() && level.under_way == 0 {
            level.pages = std::mem::take(&mut level.below);
        }
        drop(level);
        self.pool.wake_ahead();
        Step::Read
    }

    /// Returns the inner pages that `pid` leads to. Returns nothing for a leaf, for an inner page above leaves, and for
    /// an unreadable page.
    fn below(&self, pid: Pid) -> Vec<Pid> {
        let Some(pinned) = self.pool.pin_resident(pid) else {
            return Vec::new();
        };
        let page = pinned.read();
        let node = page.node();
        let leads = node.kind() == Kind::Inner && node.level() > 1;
        let children = if leads { node.len() } else { 0 };
        (0..children).map(|at| node.child(at)).collect()
    }

    /// Takes steps until a step returns [`Step::Done`]. Waits while other threads read pages of the current level.
    pub fn work(&self) {
        work(self.pool, || self.step());
    }
}
