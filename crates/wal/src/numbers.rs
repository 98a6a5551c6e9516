//! The numbers of operations: dense over all streams, and the LSN of a component that wants an order of single
//! operations.
//!
//! # EOSL
//! Every operation numbered up to the *end of the stable log* is durable. It is known without looking at operations. An
//! epoch's closing reads the counter *before* it raises E, and keeps the value with the epoch's ends. An append reads E
//! *before* it takes numbers, under its stream's lock. So an operation whose number the closing has read had read E
//! before. Its epoch is the closed one or an older one, and durable with it. The other order lets a closing read the
//! number of an operation that joins the next epoch.
//!
//! Numbers that are taken while an epoch is closed are above the value that its closing has read. When the closing is
//! complete, and no frame of a newer epoch has been noted, all numbers taken before are of the closed epoch or older.
//! The reason is that an append notes its epoch before it takes numbers. So EOSL reaches the last number when nothing
//! more is appended.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Gsn, PartitionSet, StreamId};

use crate::append::Appended;
use crate::frame::FrameKind;
use crate::log::Wal;
use crate::rung::Rung;
use crate::stream::FrameMeta;
use crate::sync::Ordering;

impl Wal {
    /// Appends one frame of `count` operations, which take the next numbers. `payload` makes the frame from the first
    /// of these numbers; it runs under the stream's lock. Returns the frame's position, and the first number.
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
            // The epoch is noted before the numbers are taken: a reader of one of them that then finds no newer epoch
            // noted knows its epoch.
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

    /// Returns the highest number that was given, in this life or before.
    #[must_use]
    pub fn last_gsn(&self) -> Gsn {
        Gsn(self.gsn.load(Ordering::SeqCst))
    }

    /// Returns the end of the stable log on a rung: every operation numbered up to it is durable there.
    #[must_use]
    pub fn eosl(&self, rung: Rung) -> Gsn {
        Gsn(self.eosl[self.in_force(rung)].load(Ordering::SeqCst))
    }
}
