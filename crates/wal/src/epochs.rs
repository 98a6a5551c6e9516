//! Commit epochs: the current epoch, the closing of an epoch in every stream, and the durable epochs.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Pos, StreamId};

use crate::anchor::Vouched;
use crate::ends::{Closed, Closing, EpochEnds};
use crate::log::{Stream, Wal};
use crate::rung::{Reached, Rung};
use crate::sync::Ordering;

impl Wal {
    /// Closes the current epoch if anything was appended in it, and returns that epoch. The flushers can then write its
    /// blocks.
    pub fn close_epoch(&self) -> Option<Epoch> {
        let mut closing = self.closing.lock();
        self.finish_closing(&mut closing);
        let begun = self.begin_closing(&mut closing);
        self.finish_closing(&mut closing);
        begun
    }

    /// Begins to close the current epoch: the first half of [`close_epoch`](Self::close_epoch), for a caller that
    /// interleaves threads step by step. Later appends join the next epoch. In streams that have not been visited yet,
    /// the old epoch stays open.
    pub fn close_begin(&self) -> Option<Epoch> {
        let mut closing = self.closing.lock();
        self.finish_closing(&mut closing);
        self.begin_closing(&mut closing)
    }

    /// Visits one stream to close the old epoch there. [`close_begin`](Self::close_begin) has begun the closing, and
    /// the visit of the last stream completes it.
    pub fn close_visit(&self, stream: StreamId) {
        let mut closing = self.closing.lock();
        if let Some(begun) = closing.as_mut() {
            self.visit(begun, usize::from(stream.0));
        }
        self.complete_closing(&mut closing);
    }

    /// Begins to close the current epoch if it has a frame. An epoch without a frame is never closed. If D were an
    /// empty epoch, no block could prove that D is durable.
    fn begin_closing(&self, closing: &mut Option<Closing>) -> Option<Epoch> {
        let epoch = Epoch(self.epoch.load(Ordering::SeqCst));
        if self.last_appended.load(Ordering::SeqCst) < epoch.0 {
            return None;
        }
        assert!(
            closing.is_none() && Rung::ALL.iter().all(|rung| self.durable(*rung) < epoch),
            "epoch {epoch} is closed once, before it is durable"
        );
        // The operation number is read before E rises; module `numbers` says why.
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
        if !armed(Flaw::LaneLeftFull) {
            s.lanes.empty(&mut inner, closing.epoch);
        }
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

    /// Notes that a stream is durable on disk up to `end`, and raises D if possible.
    pub(crate) fn pass_disk(&self, stream: &Stream, end: Pos) {
        let before = stream.reached[Rung::Disk].swap(end.0, Ordering::SeqCst);
        assert!(
            before <= end.0,
            "the disk goes back in a stream from {before} to {end}"
        );
        self.advance_durable(Rung::Disk);
        self.follow_disk(stream, end);
    }

    /// Raises D of a rung to the newest closed epoch that is durable on the rung in all streams. Forgets an epoch's
    /// ends once D of every rung has reached the epoch.
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
        // EOSL, the highest durable operation number, is stored after D. So if a thread reads EOSL and then D, the
        // epochs of the operations up to EOSL are durable.
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

    /// Returns a rung's D, the time when D was reached, and the end of epoch D in each stream.
    #[must_use]
    pub fn durable_end(&self, rung: Rung) -> Vouched {
        let ends = self.ends.lock();
        match ends.closed.back() {
            Some(newest) if armed(Flaw::VouchedBeforeDurable) => newest.ends.vouched(0),
            _ => ends.passed[self.in_force(rung)].clone(),
        }
    }

    /// Returns `D` of a rung: every transaction up to this epoch is durable on that rung.
    #[must_use]
    #[inline]
    pub fn durable(&self, rung: Rung) -> Epoch {
        Epoch(self.durable[self.in_force(rung)].load(Ordering::SeqCst))
    }

    /// Returns the lowest D of all rungs.
    pub(crate) fn slowest(&self) -> Epoch {
        let disk = self.durable(Rung::Disk);
        Rung::ALL
            .iter()
            .fold(disk, |slowest, rung| slowest.min(self.durable(*rung)))
    }

    /// Returns the highest D that a durable block names. A restart keeps at least this epoch, or reports damage.
    #[must_use]
    pub fn evidenced(&self) -> Epoch {
        Epoch(self.evidenced.load(Ordering::SeqCst))
    }

    /// Returns for each rung the newest epoch that replies may confirm. A reply that waits for the disk also waits for
    /// the nodes of a mirror. The reason: a replaced writer can still sync a disk that no restart will read. Only the
    /// nodes can report the replacement.
    #[must_use]
    pub fn reached(&self) -> Reached {
        let (disk, mirror) = (self.durable(Rung::Disk), self.durable(Rung::Mirror));
        Reached::new(|rung| match self.in_force(rung) {
            Rung::Disk => disk.min(mirror),
            Rung::Mirror => mirror,
        })
    }

    /// Returns `E`, the epoch that the next commit will join.
    #[must_use]
    pub fn current(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::SeqCst))
    }

    /// Returns the newest epoch that has a frame; 0 before the first append. This epoch will be closed even if nothing
    /// more is appended. The [`current`](Self::current) epoch is closed only if it has a frame.
    #[must_use]
    pub fn last_appended(&self) -> Epoch {
        Epoch(self.last_appended.load(Ordering::SeqCst))
    }

    /// Returns whether the current epoch has a frame.
    #[must_use]
    pub fn has_open_frames(&self) -> bool {
        self.last_appended.load(Ordering::SeqCst) >= self.epoch.load(Ordering::SeqCst)
    }

    /// Returns whether everything appended is durable on the log's disks.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.last_appended() <= self.durable(Rung::Disk)
    }

    /// Returns the append time of the oldest frame that is not durable on disk; `None` if every frame is durable. The
    /// time is in nanoseconds of the log's monotone clock.
    #[must_use]
    pub fn unsynced_since_ns(&self) -> Option<u64> {
        self.waiting_since_ns(Rung::Disk)
    }

    /// Like [`unsynced_since_ns`](Self::unsynced_since_ns), for frames that are not durable on `rung`.
    #[must_use]
    pub fn waiting_since_ns(&self, rung: Rung) -> Option<u64> {
        self.ages.oldest_ns(self.durable(rung))
    }
}
