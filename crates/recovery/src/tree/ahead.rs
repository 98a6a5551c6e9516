//! Reads pages before redo needs them. Decides which pages are read, and on which threads.
//!
//! The log is read a little further than it is redone, and the pages of the next operations are offered for reading
//! ahead. If there is a list of dirty pages, only pages of operations in the log's tail are offered, because the list
//! does not cover the tail. If there are reader threads, they read the pages. Without reader threads, the restart reads
//! the pages itself, between two operations.
//!
//! # Deviations
//! Log2 reads the tail's pages on demand (002, appendix B). Here the restart finds them in advance by the operations'
//! keys, through the inner pages, which it loaded first. Otherwise a tail of 100 operations could mean a hundred waits,
//! one after the other.

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

/// The most frames that are read from the log before they are redone.
const FRAMES_AHEAD: usize = 4096;

/// Ends the reading ahead when redo ends, even by an error or a panic.
struct Closing<'a, 'p>(&'a ReadAhead<'p>);

impl Drop for Closing<'_, '_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Reads the inner pages.
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

/// The operations of a log. Looks at the next operations in advance, to offer their pages.
pub(super) struct Operations<'a, 'p> {
    tree: &'a Tree,
    log: NumberedLog<'a>,
    play: Ahead,
    ahead: &'a ReadAhead<'p>,
    /// True if there are no reader threads, and the restart reads ahead itself.
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
