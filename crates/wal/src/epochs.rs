//! Commit epochs: which one appends join, how one is closed in every stream, and which are durable.

use std::collections::VecDeque;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Pos, StreamId};

use crate::anchor::Vouched;
use crate::log::Wal;
use crate::sync::Ordering;

/// The ends of one closed epoch.
pub(crate) struct EpochEnds {
    pub epoch: Epoch,
    pub ends: Vec<Pos>,
}

impl EpochEnds {
    fn vouched(self, wall_us: u64) -> Vouched {
        Vouched {
            epoch: self.epoch,
            wall_us,
            ends: self.ends,
        }
    }
}

/// The closed epochs that are not durable yet, in order, and the newest that is.
pub(crate) struct Ends {
    pub closed: VecDeque<EpochEnds>,
    pub durable: Vouched,
}

/// An epoch that is being closed: where each visited stream's part of it ends.
pub(crate) struct Closing {
    epoch: Epoch,
    ends: Vec<Option<Pos>>,
}

impl Wal {
    /// Closes the current epoch if anything was appended in it, and returns it. Its blocks are
    /// ready for the flushers then.
    pub fn close_epoch(&self) -> Option<Epoch> {
        let mut closing = self.closing.lock();
        self.finish_closing(&mut closing);
        let begun = self.begin_closing(&mut closing);
        self.finish_closing(&mut closing);
        begun
    }

    /// The first half of [`close_epoch`](Self::close_epoch), for those who interleave by hand:
    /// later appends join the next epoch, streams not visited yet still hold the old one open.
    pub fn close_begin(&self) -> Option<Epoch> {
        let mut closing = self.closing.lock();
        self.finish_closing(&mut closing);
        self.begin_closing(&mut closing)
    }

    /// Visits one stream of a closing that [`close_begin`](Self::close_begin) began; the last
    /// visit completes it.
    pub fn close_visit(&self, stream: StreamId) {
        let mut closing = self.closing.lock();
        if let Some(begun) = closing.as_mut() {
            self.visit(begun, usize::from(stream.0));
        }
        self.complete_closing(&mut closing);
    }

    /// An epoch without a frame is never closed: it would leave no evidence, and D must not name
    /// one.
    fn begin_closing(&self, closing: &mut Option<Closing>) -> Option<Epoch> {
        let epoch = Epoch(self.epoch.load(Ordering::SeqCst));
        if self.last_appended.load(Ordering::SeqCst) < epoch.0 {
            return None;
        }
        self.epoch.store(epoch.0 + 1, Ordering::SeqCst);
        *closing = Some(Closing {
            epoch,
            ends: vec![None; self.streams.len()],
        });
        Some(epoch)
    }

    fn finish_closing(&self, closing: &mut Option<Closing>) {
        if let Some(begun) = closing.as_mut() {
            for stream in 0..self.streams.len() {
                self.visit(begun, stream);
            }
        }
        self.complete_closing(closing);
    }

    fn visit(&self, closing: &mut Closing, stream: usize) {
        if closing.ends[stream].is_some() {
            return;
        }
        let s = &self.streams[stream];
        let mut inner = s.inner.lock();
        closing.ends[stream] = Some(inner.close(closing.epoch));
        if let Some(block) = inner.sealed.back() {
            s.sealed_end.store(block.end().0, Ordering::Relaxed);
        }
    }

    fn complete_closing(&self, closing: &mut Option<Closing>) {
        let ends = closing
            .as_ref()
            .and_then(|begun| begun.ends.iter().copied().collect());
        if let (Some(ends), Some(done)) = (ends, closing.as_ref()) {
            self.ends.lock().closed.push_back(EpochEnds {
                epoch: done.epoch,
                ends,
            });
            *closing = None;
        }
    }

    /// Raises D as far as the streams' synced positions allow.
    pub(crate) fn advance_durable(&self) {
        let mut ends = self.ends.lock();
        while let Some(front) = ends.closed.front() {
            let mut held = self
                .streams
                .iter()
                .zip(&front.ends)
                .map(|(s, end)| s.synced.load(Ordering::SeqCst) >= end.0);
            let durable = if armed(Flaw::OneStreamSuffices) {
                held.any(|h| h)
            } else {
                held.all(|h| h)
            };
            if !durable {
                return;
            }
            self.durable.store(front.epoch.0, Ordering::SeqCst);
            if let Some(newest) = ends.closed.pop_front() {
                let wall_us = self.wall_us.load(Ordering::Relaxed);
                ends.durable = newest.vouched(wall_us);
            }
        }
    }

    /// D, when it came to be, and where each stream's part of it ends.
    #[must_use]
    pub fn durable_end(&self) -> Vouched {
        let ends = self.ends.lock();
        match ends.closed.back() {
            Some(newest) if armed(Flaw::VouchedBeforeDurable) => EpochEnds {
                epoch: newest.epoch,
                ends: newest.ends.clone(),
            }
            .vouched(0),
            _ => ends.durable.clone(),
        }
    }

    /// `D`: every transaction up to this epoch survives.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        Epoch(self.durable.load(Ordering::SeqCst))
    }

    /// `E`: the epoch that the next commit joins.
    #[must_use]
    pub fn current(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::SeqCst))
    }

    /// The newest epoch with a frame; 0 before the first append. Unlike [`current`](Self::current)
    /// it will be closed even if nothing more is appended.
    #[must_use]
    pub fn last_appended(&self) -> Epoch {
        Epoch(self.last_appended.load(Ordering::SeqCst))
    }

    /// Whether something was appended that no closed epoch holds yet.
    #[must_use]
    pub fn has_open_frames(&self) -> bool {
        self.last_appended.load(Ordering::SeqCst) >= self.epoch.load(Ordering::SeqCst)
    }

    /// Whether everything appended is durable.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.last_appended.load(Ordering::SeqCst) <= self.durable().0
    }
}
