//! The pool's part of reading ahead: frames for pages that no caller has pinned yet.
//!
//! A page gets its frame before the read begins, and counts as loading until the read has ended. While a page is
//! loading, no other thread can read or change it. So a read never replaces a changed page by its older copy on disk.

use super::{Frames, Pool, Slot, is_index};
use crate::file::RUN_PAGES_MAX;
use parking_lot::MutexGuard;
use perdura_base::Pid;
use perdura_base::flaw::{Flaw, armed};
use perdura_page::tree_page::Node;
use std::collections::VecDeque;

/// The read-ahead pages that have not been pinned yet, including pages with a read in progress.
#[derive(Debug)]
pub(super) struct Window {
    /// The maximum number of pages in the window.
    most: usize,
    pages: usize,
    /// The number of pages that are being read.
    pub(super) loading: usize,
    /// The number of runs whose read has begun. `ended` is the number of runs whose read has ended.
    begun: u64,
    ended: u64,
    /// Waiting pins are woken when `ended` reaches this number.
    wake_at: u64,
    /// The read-ahead pages, in the order of the reads. Each entry is a page's frame and the page's serial number. Some
    /// of these pages may have left the window already.
    order: VecDeque<(usize, u64)>,
    /// The serial number of the newest read-ahead page.
    last: u64,
    /// The number of events so far that may have made room for reading ahead.
    events: u64,
    waiting: usize,
}

impl Window {
    /// Makes the window of a pool of `frames` frames. The window may have at most a quarter as many pages.
    pub(super) fn new(frames: usize) -> Window {
        Window {
            most: frames / 4,
            pages: 0,
            loading: 0,
            begun: 0,
            ended: 0,
            wake_at: u64::MAX,
            order: VecDeque::new(),
            last: 0,
            events: 0,
            waiting: 0,
        }
    }

    /// Returns the reads that a pin must wait for. If `all` is true, these are all reads in progress. Otherwise the pin
    /// waits only for the read that ends next. When redo has caught up with the readers, `all` lets redo wait once
    /// and not once for each page.
    pub(super) fn reads_under_way(&self, all: bool) -> Reads {
        Reads(if all { self.begun } else { 0 })
    }

    /// Returns whether these reads have ended.
    pub(super) fn has_ended(&self, reads: Reads) -> bool {
        self.ended >= reads.0
    }
}

/// The value of `Window::ended` at which a waiting pin may continue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reads(u64);

/// Adjacent pages that have frames and are about to be read.
#[derive(Debug)]
pub(crate) struct Run {
    /// The first page.
    pub(crate) first: Pid,
    frames: VecDeque<usize>,
}

impl Run {
    /// Returns the pages of the run.
    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> + use<> {
        (self.first.0..=u32::MAX).map(Pid).take(self.frames.len())
    }
}

/// The reason why a page is not read ahead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The page is in memory, or is being read.
    InMemory,
    /// No frame is free for the page.
    NoRoom,
}

impl Pool {
    /// Returns the maximum number of unused read-ahead pages: a quarter of the frames.
    #[must_use]
    pub fn window(&self) -> usize {
        self.frames.lock().window.most
    }

    /// Returns the number of unused read-ahead pages, including pages with a read in progress.
    #[must_use]
    pub fn unused_ahead(&self) -> usize {
        self.frames.lock().window.pages
    }

    /// Returns the number of frames, in use or not.
    pub(crate) fn frame_count(&self) -> usize {
        self.pages.len()
    }

    /// Takes frames for a page, and for adjacent pages that are not in memory and that `joins` accepts. The caller then
    /// calls [`read_run`](Self::read_run).
    pub(crate) fn begin_run(
        &self,
        pid: Pid,
        mut joins: impl FnMut(Pid) -> bool,
    ) -> Result<Run, Refused> {
        let mut frames = self.frames.lock();
        if frames.places.contains_key(&pid) {
            return Err(Refused::InMemory);
        }
        let at = self.claim_ahead(&mut frames, pid).ok_or(Refused::NoRoom)?;
        let mut run = Run {
            first: pid,
            frames: VecDeque::from([at]),
        };
        let mut last = pid;
        let mut claim = |pid: Option<u32>, len: usize| {
            let is_wanted = |pid: &Pid| len < RUN_PAGES_MAX && joins(*pid);
            let pid = pid.map(Pid).filter(is_wanted)?;
            let is_in_memory = frames.places.contains_key(&pid);
            let at = if is_in_memory {
                None
            } else {
                self.claim_ahead(&mut frames, pid)
            };
            Some((pid, at?))
        };
        while let Some((pid, at)) = claim(last.0.checked_add(1), run.frames.len()) {
            run.frames.push_back(at);
            last = pid;
        }
        while let Some((pid, at)) = claim(run.first.0.checked_sub(1), run.frames.len()) {
            run.frames.push_front(at);
            run.first = pid;
        }
        assert_eq!(run.pids().last(), Some(last), "pages lie side by side");
        frames.window.begun += 1;
        Ok(run)
    }

    fn claim_ahead(&self, frames: &mut Frames, pid: Pid) -> Option<usize> {
        if frames.window.pages >= frames.window.most {
            return None;
        }
        let at = self.claim(frames, pid, false)?;
        frames.slots[at].is_loading = true;
        frames.window.last += 1;
        frames.slots[at].ahead = Some(frames.window.last);
        frames.window.pages += 1;
        frames.window.loading += 1;
        if armed(Flaw::AheadOverNewer) {
            frames.places.remove(&pid);
        }
        Some(at)
    }

    /// Reads the pages of a run, in one I/O. An unreadable or damaged page gives up its frame, and a later pin reads
    /// the page again. `buffer` has room for [`RUN_PAGES_MAX`] pages.
    pub(crate) fn read_run(&self, run: &Run, buffer: &mut [u8]) {
        let size = self.file.page_bytes();
        let bytes = &mut buffer[..run.frames.len() * size];
        let whole = self.file.read_run(run.first, bytes).unwrap_or_default();
        let mut found = Vec::with_capacity(run.frames.len());
        for (i, (at, page)) in run.frames.iter().zip(bytes.chunks(size)).enumerate() {
            let is_whole = whole.get(i) == Some(&true);
            if is_whole {
                self.pages[*at].write().copy_from_slice(page);
            }
            found.push(is_whole.then(|| is_index(Node::over(page))));
        }
        let mut frames = self.frames.lock();
        frames.counts.ahead_reads += 1;
        for ((at, pid), found) in run.frames.iter().zip(run.pids()).zip(found) {
            if armed(Flaw::AheadOverNewer) {
                frames.places.insert(pid, *at);
            }
            let slot = &mut frames.slots[*at];
            assert_eq!(slot.page, Some(pid), "frame {at}");
            assert!(slot.is_loading && slot.pins == 1, "frame {at}: {slot:?}");
            slot.is_loading = false;
            slot.pins = 0;
            let number = slot.ahead;
            frames.window.loading -= 1;
            if let (Some(is_index), Some(number)) = (found, number) {
                frames.slots[*at].is_index = is_index;
                frames.counts.fetched(is_index);
                frames.counts.ahead_pages += 1;
                frames.window.order.push_back((*at, number));
            } else {
                self.leave_window(&mut frames, *at);
                frames.slots[*at] = Slot::default();
                frames.places.remove(&pid);
            }
        }
        frames.forget_used();
        frames.window.ended += 1;
        if frames.window.ended >= frames.window.wake_at {
            frames.window.wake_at = u64::MAX;
            self.loaded.notify_all();
        }
    }

    /// Waits for the end of `reads`. May return before `reads` have ended, so the caller must check again.
    pub(super) fn wait_loaded(&self, frames: &mut MutexGuard<'_, Frames>, reads: Reads) {
        frames.window.wake_at = frames.window.wake_at.min(reads.0);
        self.loaded.wait(frames);
    }

    /// Removes a page from the window because it is used, is evicted, or could not be read.
    pub(super) fn leave_window(&self, frames: &mut Frames, at: usize) {
        let number = frames.slots[at].ahead.take();
        assert!(number.is_some() && frames.window.pages > 0, "frame {at}");
        frames.window.pages -= 1;
        self.tell(frames);
    }

    /// Makes room in a full window, because a caller needs a page that was not read ahead. The window evidently has the
    /// wrong pages, so its oldest page leaves.
    pub(super) fn missed(&self, frames: &mut Frames) {
        while frames.window.pages == frames.window.most {
            let Some((at, number)) = frames.window.order.pop_front() else {
                break;
            };
            if frames.slots[at].ahead == Some(number) {
                self.leave_window(frames, at);
            }
        }
    }

    fn tell(&self, frames: &mut Frames) {
        frames.window.events += 1;
        if frames.window.waiting > 0 {
            self.room_ahead.notify_one();
        }
    }

    /// Returns the number of events so far that may have made room for reading ahead.
    pub(crate) fn ahead_events(&self) -> u64 {
        self.frames.lock().window.events
    }

    /// Waits for an event that may make room for reading ahead. Returns at once if an event has happened since
    /// [`ahead_events`](Self::ahead_events) returned `seen`.
    pub(crate) fn wait_ahead(&self, seen: u64) {
        let mut frames = self.frames.lock();
        while frames.window.events == seen {
            frames.window.waiting += 1;
            self.room_ahead.wait(&mut frames);
            frames.window.waiting -= 1;
        }
    }

    /// Wakes one waiting reader, because one more page is to be read ahead.
    pub(crate) fn wake_ahead_one(&self) {
        self.tell(&mut self.frames.lock());
    }

    /// Wakes all threads that wait to read ahead.
    pub(crate) fn wake_ahead(&self) {
        self.frames.lock().window.events += 1;
        self.room_ahead.notify_all();
    }
}

impl Frames {
    /// Keeps the window's `order` short: removes the entries of pages that have left the window.
    fn forget_used(&mut self) {
        let Frames { slots, window, .. } = self;
        if window.order.len() > 2 * window.most + RUN_PAGES_MAX {
            window
                .order
                .retain(|(at, number)| slots[*at].ahead == Some(*number));
            assert!(window.order.len() <= window.pages, "one entry a page");
        }
    }
}
