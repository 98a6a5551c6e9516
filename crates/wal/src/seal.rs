//! Sealing: the step that completes blocks, between the appends and the flusher.
//!
//! ```text
//! open ──full, or epoch closed──► filled ──epoch's ends known──► sealed ──► tail
//! ```
//! A sealed block has its header and checksums. The bytes of a sealed block never change again, and are equal on every
//! medium of the log. The block waits in the stream's *tail* (`tail`) for the flusher. When the tail is full, sealing
//! stops. A device that copies the log to other machines ([`Wal::ship_by`]) receives each block when the block enters
//! the tail. For a copying device, [`Wal::ship_step`] seals blocks but does not write.
//!
//! # Invariants
//! * Blocks enter the tail in the order of their positions and without a gap.
//! * A block enters the tail once. A repeated write does not change the bytes.
//! * The durable epoch that a sealed block names was reached before the block was sealed.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_usize;
use perdura_base::{Epoch, StreamId};

use crate::block::{self, BlockHeader};
use crate::log::{Stream, Wal};
use crate::rung::Rung;
use crate::stream::FilledBlock;
use crate::sync::Ordering;
use crate::tail::{Sealed, SealedBlock, Tail};

/// The divisor that defines short blocks: a block is short if it fills at most a quarter of its buffer.
const SHORT: usize = 4;

impl Wal {
    /// Sets the device that receives each sealed block before the block is written. The device receives the blocks of a
    /// stream in order. The thread that seals a block calls the device. During this call, the thread holds only one
    /// lock, the lock of the flusher's state. Only the first call of this function has an effect.
    pub fn ship_by(&self, ship: impl Fn(Sealed<'_>) + Send + Sync + 'static) {
        let _named_already = self.ship.set(Box::new(ship));
    }

    /// Seals blocks of a stream while the tail has room. The header of an epoch's last block contains the epoch's ends.
    /// So this block is sealed only after the epoch has been closed in every stream. Returns whether any block was
    /// sealed.
    pub(crate) fn seal_step(&self, stream: StreamId, s: &Stream, tail: &mut Tail) -> bool {
        let mut has_sealed = false;
        while let Some(filled) = self.take_filled(s, tail) {
            let epoch = filled.epoch;
            let block = self.seal(stream, s, filled);
            // The end is stored before the block is passed on. Otherwise a node that has the block could report a
            // position beyond the stored end.
            s.sealed_end.store(block.end().0, Ordering::SeqCst);
            if let Some(ship) = self.ship.get() {
                ship(Sealed {
                    stream,
                    pos: block.pos,
                    epoch,
                    bytes: block.bytes(),
                });
            }
            tail.push(block);
            has_sealed = true;
        }
        has_sealed
    }

    fn take_filled(&self, s: &Stream, tail: &Tail) -> Option<FilledBlock> {
        let mut inner = s.inner.lock();
        let front = inner.filled.front()?;
        let is_known = || {
            let closed = self
                .ends
                .lock()
                .closed
                .back()
                .map(|newest| newest.ends.epoch);
            front.epoch <= self.durable(Rung::Disk).max(closed.unwrap_or_default())
        };
        let ready = tail.has_room(front.block_len()) && (!front.last || is_known());
        if ready {
            inner.filled.pop_front()
        } else {
            None
        }
    }

    fn seal(&self, stream: StreamId, s: &Stream, filled: FilledBlock) -> SealedBlock {
        let names = self.durable(match armed(Flaw::NamedOnMirror) {
            true => Rung::Mirror,
            false => Rung::Disk,
        });
        let acked = match self.options.mirror {
            Some(_) => self.durable(Rung::Mirror),
            None => Epoch(0),
        };
        let header = self.header_of(stream, &filled, names, acked);
        let (pos, len) = (filled.pos, to_usize(filled.block_len()));
        let mut buf = filled.buf;
        block::seal(&header, &mut buf[..len]);
        // On a log with a mirror, many blocks wait to be copied to disk. If a short block kept a buffer of the maximum
        // length, the next block would have to allocate memory, which costs more than the whole commit.
        if self.options.mirror.is_some() && len <= buf.len() / SHORT {
            let mut inner = s.inner.lock();
            let mut short = inner.short_buf(len);
            short.copy_from_slice(&buf[..len]);
            inner.recycle(std::mem::replace(&mut buf, short));
        }
        SealedBlock::new(buf, len, pos, names)
    }

    fn header_of(
        &self,
        stream: StreamId,
        block: &FilledBlock,
        durable: Epoch,
        acked: Epoch,
    ) -> BlockHeader {
        assert!(
            durable.max(acked) < block.epoch,
            "epoch {durable} is durable, and {acked} acknowledged, before block {} of epoch {} is sealed",
            block.pos,
            block.epoch
        );
        let ends = block.last.then(|| {
            let ends = self.ends.lock();
            let closed = ends
                .of(block.epoch)
                .expect("an epoch's ends stay until every rung has passed it");
            (closed.ends.ends.clone(), closed.eosl)
        });
        let (ends, eosl) = ends.unzip();
        BlockHeader {
            stream,
            database: self.uuid.short(),
            incarnation: self.incarnation,
            pos: block.pos,
            prev_pos: block.prev_pos,
            epoch: block.epoch,
            durable,
            wall_us: self.stamp(block.epoch),
            ckpt_epoch: block.ckpt_epoch,
            body_len: block.body_len,
            first_frame: block.first_frame,
            streams: self.streams(),
            partitions: block.partitions,
            holds: block.holds,
            ends,
            gsn: self.last_gsn(),
            acked,
            eosl: eosl.unwrap_or_default(),
        }
    }
}
