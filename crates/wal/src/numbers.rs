//! The numbers of operations: consecutive over all streams. They are the LSN for a component that needs an order of
//! single operations.
//!
//! # EOSL
//! Every operation with a number up to the *end of the stable log* is durable. EOSL is known without looking at
//! operations. Closing an epoch reads the counter *before* it raises E, and keeps that value with the epoch's ends. An
//! append reads E *before* it takes numbers, under its stream's lock. So if the closing has read a number, the append
//! that took this number had read E before E rose. The operation's epoch is the closed one or older, and is durable
//! together with it. If closing read the counter after raising E, the value could include an operation of the next
//! epoch.
//!
//! Numbers that are taken while an epoch is being closed are above the value that the closing has read. Once the
//! closing is complete, and as long as no frame of a newer epoch has been noted, all numbers taken so far are of the
//! closed epoch or older. The reason is that an append notes its epoch before it takes numbers. So EOSL reaches the
//! last number if nothing more is appended.

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
            self.note_appended(epoch, kind, payload.len());
            pos
        });
        (appended, first)
    }

    fn take_numbers(&self, count: u64) -> Gsn {
        Gsn(self.gsn.fetch_add(count, Ordering::SeqCst) + 1)
    }

    /// Returns the highest number that has been assigned, in this life or an earlier one.
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
