//! Commit epochs: which one appends join, how it is closed in every stream, and which are durable.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Pos, StreamId};

use crate::anchor::Vouched;
use crate::ends::{Closed, Closing, EpochEnds};
use crate::log::{Stream, Wal};
use crate::rung::{Reached, Rung};
use crate::sync::Ordering;

impl Wal {
    /// Closes the current epoch if anything was appended in it, and returns it. Its blocks are then
    /// ready for the flushers.
    pub fn close_epoch(&self) -> Option<Epoch> {
        let mut closing = self.closing.lock();
        self.finish_closing(&mut closing);
        let begun = self.begin_closing(&mut closing);
        self.finish_closing(&mut closing);
        begun
    }

    /// The first half of [`close_epoch`](Self::close_epoch), for a caller that interleaves threads step by step:
    /// later appends join the next epoch, and the old one stays open in streams not visited yet.
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
        assert!(
            closing.is_none() && Rung::ALL.iter().all(|rung| self.durable(*rung) < epoch),
            "epoch {epoch} is closed once, before it is durable"
        );
        // Read before E rises: see `numbers`.
        let eosl = self.last_gsn();
        self.epoch.store(epoch.0 + 1, Ordering::SeqCst);
        *closing = Some(Closing {
            epoch,
            eosl,
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
        let end = inner.close(closing.epoch);
        assert!(
            self.start[stream] <= end,
            "epoch {} ends at {end} in stream {stream}, before the life begins",
            closing.epoch
        );
        closing.ends[stream] = Some(end);
        s.note_filled(&inner);
    }

    fn complete_closing(&self, closing: &mut Option<Closing>) {
        let ends: Option<Vec<Pos>> = closing
            .as_ref()
            .and_then(|begun| begun.ends.iter().copied().collect());
        if let (Some(ends), Some(done)) = (ends, closing.as_ref()) {
            let mut known = self.ends.lock();
            known.assert_follows(done.epoch, &ends);
            let all = self.last_gsn();
            let is_newest = self.last_appended() <= done.epoch;
            let eosl = if is_newest { all } else { done.eosl };
            assert!(
                known.closed.back().is_none_or(|last| last.eosl <= eosl),
                "the counter never falls"
            );
            let ends = EpochEnds {
                epoch: done.epoch,
                ends,
            };
            known.closed.push_back(Closed { ends, eosl });
            *closing = None;
        }
    }

    /// Notes that everything below `end` in a stream is durable on disk, and raises D as far as that allows.
    pub(crate) fn pass_disk(&self, stream: &Stream, end: Pos) {
        let before = stream.reached[Rung::Disk].swap(end.0, Ordering::SeqCst);
        assert!(
            before <= end.0,
            "the disk goes back in a stream from {before} to {end}"
        );
        self.advance_durable(Rung::Disk);
        self.follow_disk(stream, end);
    }

    /// Raises D of a rung as far as what it holds of the streams allows, and forgets the ends of epochs
    /// that all rungs have passed.
    pub(crate) fn advance_durable(&self, rung: Rung) {
        let mut ends = self.ends.lock();
        let ends = &mut *ends;
        let before = ends.passed[rung].epoch;
        assert_eq!(before, self.durable(rung), "D is what was passed last");
        let not_passed = ends
            .closed
            .partition_point(|closed| closed.ends.epoch <= before);
        let holds = |closed: &&Closed| {
            let mut held = self
                .streams
                .iter()
                .zip(&closed.ends.ends)
                .map(|(s, end)| s.reached[rung].load(Ordering::SeqCst) >= end.0);
            if armed(Flaw::OneStreamSuffices) {
                held.any(|h| h)
            } else {
                held.all(|h| h)
            }
        };
        let passed = ends.closed.range(not_passed..).take_while(holds);
        let Some(Closed { ends: newest, eosl }) = passed.last() else {
            return;
        };
        assert!(
            newest.epoch < self.current(),
            "epoch {} is durable while it is open",
            newest.epoch
        );
        let wall_us = self.wall_us.load(Ordering::Relaxed);
        self.durable[rung].store(newest.epoch.0, Ordering::SeqCst);
        // Behind D: who reads EOSL and then D finds the operations' epochs durable.
        self.eosl[rung].store(eosl.0, Ordering::SeqCst);
        ends.passed[rung] = newest.vouched(wall_us);
        let slowest = self.slowest();
        let kept = ends
            .closed
            .partition_point(|closed| closed.ends.epoch <= slowest);
        ends.closed.drain(..kept);
        assert!(
            ends.closed
                .front()
                .is_none_or(|oldest| oldest.ends.epoch > slowest),
            "an epoch that all rungs have passed is forgotten"
        );
    }

    /// D of a rung, the time it was reached, and where each stream's part of it ends.
    #[must_use]
    pub fn durable_end(&self, rung: Rung) -> Vouched {
        let ends = self.ends.lock();
        match ends.closed.back() {
            Some(newest) if armed(Flaw::VouchedBeforeDurable) => newest.ends.vouched(0),
            _ => ends.passed[self.in_force(rung)].clone(),
        }
    }

    /// `D` of a rung: every transaction up to this epoch is durable there.
    #[must_use]
    #[inline]
    pub fn durable(&self, rung: Rung) -> Epoch {
        Epoch(self.durable[self.in_force(rung)].load(Ordering::SeqCst))
    }

    /// The D of the rung that is farthest behind.
    pub(crate) fn slowest(&self) -> Epoch {
        let disk = self.durable(Rung::Disk);
        Rung::ALL
            .iter()
            .fold(disk, |slowest, rung| slowest.min(self.durable(*rung)))
    }

    /// The highest D that a durable block names: a restart keeps it, or reports damage.
    #[must_use]
    pub fn evidenced(&self) -> Epoch {
        Epoch(self.evidenced.load(Ordering::SeqCst))
    }

    /// How far replies may leave on each rung. A higher rung implies those below it: what is on the disk waits for the nodes of a
    /// mirror, too. For a writer that another one has replaced still syncs a disk, which nobody reads any more, and only its nodes
    /// tell it.
    #[must_use]
    pub fn reached(&self) -> Reached {
        let (disk, mirror) = (self.durable(Rung::Disk), self.durable(Rung::Mirror));
        Reached::new(|rung| match self.in_force(rung) {
            Rung::Disk => disk.min(mirror),
            Rung::Mirror => mirror,
        })
    }

    /// `E`: the epoch that the next commit joins.
    #[must_use]
    pub fn current(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::SeqCst))
    }

    /// The newest epoch with a frame; 0 before the first append. Unlike [`current`](Self::current)
    /// it is closed even if no further frame is appended.
    #[must_use]
    pub fn last_appended(&self) -> Epoch {
        Epoch(self.last_appended.load(Ordering::SeqCst))
    }

    /// Whether the open epoch has a frame.
    #[must_use]
    pub fn has_open_frames(&self) -> bool {
        self.last_appended.load(Ordering::SeqCst) >= self.epoch.load(Ordering::SeqCst)
    }

    /// Whether everything appended is durable on the log's disks.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.last_appended() <= self.durable(Rung::Disk)
    }

    /// When the oldest frame was appended that is not durable, by the log's monotone clock,
    /// nanoseconds.
    #[must_use]
    pub fn unsynced_since_ns(&self) -> Option<u64> {
        self.waiting_since_ns(Rung::Disk)
    }

    /// As [`unsynced_since_ns`](Self::unsynced_since_ns), of a frame that is not durable on a rung.
    #[must_use]
    pub fn waiting_since_ns(&self, rung: Rung) -> Option<u64> {
        self.ages.oldest_ns(self.durable(rung))
    }
}
