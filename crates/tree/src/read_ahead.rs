//! Reading pages before redo wants them.
//!
//! ```text
//! list, or offers ──► queue ──step: a page, and those of the queue beside it, one I/O──► window ──pin──► used
//! ```
//! [`ReadAhead`] reads the pages that a list names or that its user offers, in about the order in which they will be
//! wanted. [`IndexPreload`] reads all inner pages, level by level. Neither starts threads. Many threads may call
//! [`step`](ReadAhead::step) at once, which does one I/O, or [`work`](ReadAhead::work), which takes steps until
//! nothing is left to read. The simulator takes steps from one thread.
//!
//! # Invariants
//! * Pages that were read ahead and not used yet occupy at most a quarter of the pool's frames. None of them is
//!   evicted for another page that is read ahead. If redo has to read pages itself while the window is full, the
//!   pages in the window were not wanted. Each such read makes the oldest page leave the window.
//! * A pin of a page that is being read waits for all reads in progress. So redo waits once instead of once for each
//!   of their pages (section 5.3 of the paper: some stalls are longer).
//! * A read that fails is no error here: the page is left to a later pin.
//!
//! # Source
//! D. Lomet, K. Tzoumas, M. Zwilling, "Implementing Performance Competitive Logical Recovery", section 4.4 and
//! appendix A.
//!
//! # Deviations
//! PF-list names a page more than once if the page was written and dirtied again. Redo needs it only at its last
//! place in the list, because the update that left it dirty is noted there. So only the last place counts.

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
    /// The step did nothing, because no page is waiting or there is no room. A later step may read.
    Later,
    /// The step did nothing, and no later step will read.
    Done,
}

/// Takes steps until the last one, and waits while there is nothing to read.
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
    /// Returns the pages of PF-list that are to be read ahead: those that are still in the table, each at its last
    /// place in the list.
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
    /// The rest of the list. Its pages come after those in the queue.
    list: std::vec::IntoIter<Pid>,
    /// The queue: pages in the order in which they were offered. It still has pages that were already read as
    /// neighbours of others.
    waiting: VecDeque<Pid>,
    /// Recently read pages, the oldest first. They are not read again.
    recent: VecDeque<Pid>,
    known: PidMap<Known>,
    /// The most pages in `waiting`, and in `recent`.
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

    /// Returns the next run to read, which has frames in the pool. The error is the result of a step that reads
    /// nothing.
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

/// Reads pages in the order in which they are offered.
#[derive(Debug)]
pub struct ReadAhead<'p> {
    pool: &'p Pool,
    queue: Mutex<Queue>,
    is_closed: AtomicBool,
}

impl<'p> ReadAhead<'p> {
    /// Makes a reader for the pages of a list, followed by the pages that are [`offer`](Self::offer)ed.
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

    /// Offers a page that redo will need. Returns false if the queue is full, and the page must be offered again
    /// later. A page that is already queued, or was read recently, is not read again.
    #[must_use = "a full queue has not taken the page"]
    pub fn offer(&self, pid: Pid) -> bool {
        let took = self.queue.lock().offer(pid);
        if took {
            self.pool.wake_ahead_one();
        }
        took
    }

    /// Takes a step: at most one I/O. Many threads may call it at once.
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

    /// Takes steps until [`close`](Self::close) is called. Waits while there is nothing to read, or no room.
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
    /// The inner pages of the level below that are known so far.
    below: BTreeSet<Pid>,
    /// The number of pages that may still be read.
    left: usize,
    buffers: Buffers,
}

/// Reads the inner pages level by level (appendix A.1 of the paper), while no thread changes the structure. They
/// occupy at most half of the pool. The rest is read when it is needed.
#[derive(Debug)]
pub struct IndexPreload<'t> {
    pool: &'t Pool,
    level: Mutex<Level>,
}

impl Tree {
    /// Begins to read all inner pages. The tables must be [found](Self::find_tables) before.
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
    /// Takes a step: at most one I/O. Many threads may call it at once.
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
            // A read in progress ends at some point. Its pages are used here and make room. If no read is in progress, the
            // pool is full of other pages.
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

    /// Returns the inner pages that `pid` leads to. Empty if these are leaves, or if the page could not be read.
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

    /// Takes steps until the last one. Waits while other threads read pages of the level.
    pub fn work(&self) {
        work(self.pool, || self.step());
    }
}
