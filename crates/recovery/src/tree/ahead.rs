//! Reads pages before redo needs them. Decides which pages are read ahead, and on which threads.
//!
//! The restart reads some operations from the log in advance, and offers their pages for reading ahead. Reader threads
//! read the offered pages. Without reader threads, the restart's own thread reads them, between two operations. If
//! pages are read ahead by a list of dirty pages, the restart offers only the pages of the operations in the log's
//! tail. The list does not cover these operations.
//!
//! # Deviations
//! Log2 reads the tail's pages on demand (002, appendix B). Here the restart first loads the inner pages. By the
//! operations' keys and the inner pages, it then finds the tail's pages in advance. Otherwise a tail of 100 operations
//! could cause 100 waits, one after another.

use std::collections::VecDeque;

use perdura_base::{Gsn, Result};
use perdura_formats::operation::OperationFrame;
use perdura_tree::contract::Answer;
use perdura_tree::read_ahead::{IndexPreload, ReadAhead, Step};
use perdura_tree::tree::Tree;
use perdura_wal::FrameKind;

use super::log::{Numbered, NumberedLog};
use super::operations_of;
use super::play::Redo;
use crate::player::Ahead;

use crate::threads::start;

/// The maximum number of frames that were read from the log and wait for redo.
const FRAMES_AHEAD: usize = 4096;

/// A guard that stops the reader threads when redo ends, even if redo ends by an error or a panic.
struct Closing<'a, 'p>(&'a ReadAhead<'p>);

impl Drop for Closing<'_, '_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Reads all inner pages of a tree, on `readers` threads. If `readers` is 0, reads them on the calling thread.
pub(super) fn preload(tree: &Tree, readers: usize) {
    let preload: IndexPreload<'_> = tree.preload_index();
    if readers == 0 {
        while preload.step() != Step::Done {}
        return;
    }
    std::thread::scope(|scope| {
        let started = (0..readers).filter(|_| start(scope, || preload.work()).is_ok());
        if started.count() == 0 {
            while preload.step() != Step::Done {}
        }
    });
}

/// Runs `redo` while `readers` threads read ahead.
pub(super) fn read_beside<T>(
    ahead: &ReadAhead<'_>,
    readers: usize,
    redo: impl FnOnce() -> Result<T>,
) -> Result<T> {
    std::thread::scope(|scope| {
        let _closing = Closing(ahead);
        for _ in 0..readers {
            start(scope, || ahead.work())?;
        }
        redo()
    })
}

/// The operations of a log, in order. Some operations are read in advance, so that their pages can be offered for
/// reading ahead.
pub(super) struct Operations<'a, 'p> {
    tree: &'a Tree,
    log: NumberedLog<'a>,
    play: Ahead,
    ahead: &'a ReadAhead<'p>,
    /// True if there are no reader threads, so that the restart's own thread reads ahead.
    steps: bool,
    waiting: VecDeque<Numbered>,
    /// The number of frames at the head of `waiting` whose pages have been offered.
    offered: usize,
}

impl<'a, 'p> Operations<'a, 'p> {
    pub fn new(
        tree: &'a Tree,
        log: NumberedLog<'a>,
        play: Ahead,
        ahead: &'a ReadAhead<'p>,
        steps: bool,
    ) -> Self {
        Operations {
            tree,
            log,
            play,
            ahead,
            steps,
            waiting: VecDeque::new(),
            offered: 0,
        }
    }

    /// Returns the next frame of operations. `None`: the log has ended.
    ///
    /// # Errors
    /// As [`NumberedLog::next`]; a frame that cannot be read.
    pub fn next(&mut self, redo: &Redo) -> Result<Option<Numbered>> {
        let reads_data = self.play.reads_data();
        let most = if reads_data { FRAMES_AHEAD } else { 1 };
        while self.waiting.len() < most {
            match self.log.next()? {
                Some(frame) if frame.head.kind == FrameKind::Operations => {
                    self.waiting.push_back(frame)
                }
                Some(_) => {}
                None => break,
            }
        }
        if reads_data {
            self.offer(redo)?;
        }
        if self.steps && reads_data {
            while self.ahead.step() == Step::Read {}
        }
        assert!(
            self.offered <= self.waiting.len() && self.waiting.len() <= most,
            "what was offered is waiting"
        );
        self.offered = self.offered.saturating_sub(1);
        Ok(self.waiting.pop_front())
    }

    fn offer(&mut self, redo: &Redo) -> Result<()> {
        while let Some(frame) = self.waiting.get(self.offered) {
            let frame: OperationFrame<'_> = operations_of(frame)?;
            for ((_, act), gsn) in frame.acts.iter().zip(frame.first.0..) {
                let wanted = match act.row() {
                    Some(row) if self.play == Ahead::Log => {
                        Some(row.pid).filter(|pid| redo.wants(*pid, Gsn(gsn)))
                    }
                    Some(row) if redo.table().is_some_and(|table| Gsn(gsn) > table.knows()) => {
                        match self.tree.leaf_of(row.table, row.key)? {
                            Answer::Done(pid) => Some(pid),
                            Answer::NoFrame => return Ok(()),
                        }
                    }
                    _ => None,
                };
                if wanted.is_some_and(|pid| !self.ahead.offer(pid)) {
                    return Ok(());
                }
            }
            self.offered += 1;
        }
        Ok(())
    }
}
