//! The numbers of operations, consecutive over all streams. They serve as LSNs for a component that needs an order of
//! single operations.
//!
//! # EOSL
//! Every operation with a number up to the *end of the stable log*, EOSL, is durable. The log computes EOSL without
//! examining operations. Closing an epoch reads the counter of numbers *before* it raises E, and keeps that value with
//! the epoch's ends. An append reads E *before* it takes numbers, under its stream's lock. So for each number up to
//! that value, the append had read E before E rose. The operation's epoch is the closed epoch or an older one, so the
//! operation is durable once the closed epoch is. If closing read the counter after raising E, the value could include
//! an operation of the next epoch.
//!
//! An operation that is appended during the closing of an epoch has a number above that value, even if it belongs to
//! the epoch. So the counter is read again when the closing is complete. If no epoch newer than the closed one is noted
//! after this reading, the second value replaces the first. This is safe, because an append first notes its epoch and
//! then takes numbers. So all numbers up to the second value belong to the closed epoch or an older one. EOSL reaches
//! the last number if nothing more is appended.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Gsn, PartitionSet, StreamId};

use crate::append::Appended;
use crate::frame::FrameKind;
use crate::log::Wal;
use crate::rung::Rung;
use crate::stream::FrameMeta;
use crate::sync::Ordering;

impl Wal {
    /// Appends one frame of `count` operations, which take the next numbers. `payload` makes the frame's payload from
    /// the first of these numbers, under the stream's lock. Returns the frame's position and the first number.
    ///
    /// # Panics
    /// Panics if `count` is 0.
    pub fn append_numbered(
        &self,
        stream: StreamId,
        (kind, count): (FrameKind, u64),
        (partitions, ckpt_epoch): (&PartitionSet, CkptEpoch),
        payload: impl FnOnce(Gsn) -> Vec<u8>,
    ) -> (Appended, Gsn) {
        assert!(count > 0, "a numbered frame has operations");
        let mut first = Gsn(0);
        let early = armed(Flaw::NumberBeforeEpoch).then(|| self.take_numbers(count));
        let meta = FrameMeta {
            partitions,
            ckpt_epoch,
        };
        let appended = self.append_at(stream, meta, |inner, epoch, meta| {
            // The epoch is noted before the numbers are taken. So if a thread reads one of these numbers and then finds
            // no newer epoch noted, it knows the epoch of the number.
            self.note_epoch(epoch);
            first = early.unwrap_or_else(|| self.take_numbers(count));
            let payload = payload(first);
            let pos = inner.append(epoch, kind, &[&payload], meta);
            self.note_appended(epoch, kind);
            pos
        });
        (appended, first)
    }

    fn take_numbers(&self, count: u64) -> Gsn {
        Gsn(self.gsn.fetch_add(count, Ordering::SeqCst) + 1)
    }

    /// Returns the highest assigned operation number of this life and all earlier lives.
    #[must_use]
    pub fn last_gsn(&self) -> Gsn {
        Gsn(self.gsn.load(Ordering::SeqCst))
    }

    /// Returns the end of the stable log on a rung: every operation up to this number is durable there.
    #[must_use]
    pub fn eosl(&self, rung: Rung) -> Gsn {
        Gsn(self.eosl[self.in_force(rung)].load(Ordering::SeqCst))
    }
}
