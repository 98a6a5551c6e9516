//! Rewriting the blocks that a restart keeps, because they may not be durable.
//!
//! A restart reads blocks that the previous process wrote and may never have synced. The operating system may return
//! blocks that are not on the disk. A sync alone would prove nothing: after a failed sync, the kernel marks pages as
//! clean although they never reached the disk. So the restart writes every block between the vouched end and the cut
//! *again*, and syncs. The restart has just compared the blocks' checksums. The rewrite is complete before the anchor
//! names the cut, and before a client sees a transaction.
//!
//! # Invariants
//! * The restart writes exactly the bytes read, so an interrupted rewrite leaves the log unchanged.
//! * Any number of interrupted restarts may repeat the rewrite.

use std::ops::Range;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, Pos, Result};
use perdura_device::{Access, AlignedBuf, Disk, File, read_exact_at};

use crate::anchor::History;
use crate::block;
use crate::scan::{BlockRef, StreamScan};
use crate::segment::{LOG_DIR, SEGMENT_HEADER_BYTES, encode_header};

/// The maximum number of bytes of one write, unless a single block is longer.
const RUN_BYTES: u64 = 1 << 20;

/// Turns the error of a write or sync during a restart into an error that stops the log.
fn stopping(error: Error) -> Error {
    error.stopping("the log")
}

impl StreamScan {
    /// Rewrites the newest incarnation's blocks, from the vouched end to the last kept block. Rewrites the headers of
    /// these blocks' segments too. Then syncs the files and the directory. The caller has already dropped the blocks
    /// beyond the cut. Returns the number of bytes in the rewritten blocks.
    ///
    /// # Errors
    /// [`Error::Stopped`] if a write or sync fails, which is final. The disk's error if a read fails.
    /// [`Error::Corrupt`] if a block is damaged.
    pub fn write_again(&self, disk: &dyn Disk, anchor: &History) -> Result<u64> {
        let vouched = anchor.vouched.ends[usize::from(self.stream.0)];
        let doubtful = |at: &usize| {
            let block = &self.blocks[*at];
            block.incarnation == anchor.incarnation && block.pos >= vouched
        };
        let mut at = (0..self.blocks.len())
            .find(doubtful)
            .unwrap_or(self.blocks.len());
        let mut bytes = 0;
        let mut open: Option<(usize, std::sync::Arc<dyn File>)> = None;
        while at < self.blocks.len() && !armed(Flaw::TailNotRewritten) {
            let run = self.run_from(at);
            let segment = self.blocks[at].segment;
            let file = match open.take() {
                Some((of, file)) if of == segment => file,
                left => {
                    if let Some((_, file)) = left {
                        file.sync().map_err(stopping)?;
                    }
                    self.open_again(disk, anchor, segment)?
                }
            };
            bytes += self.write_run(file.as_ref(), run.clone())?;
            open = Some((segment, file));
            at = run.end;
        }
        if let Some((_, file)) = open {
            file.sync().map_err(stopping)?;
        }
        let last = self.blocks.last().map_or(vouched, BlockRef::end);
        assert!(
            last <= self.valid_end,
            "blocks up to {last} are kept of a log that ends at {}",
            self.valid_end
        );
        disk.sync_dir(LOG_DIR).map_err(stopping)?;
        Ok(bytes)
    }

    /// Returns the indices of contiguous blocks of one segment, beginning with `first`. Together the blocks have at
    /// most [`RUN_BYTES`] bytes, unless the first block alone has more.
    fn run_from(&self, first: usize) -> Range<usize> {
        let begin = &self.blocks[first];
        let mut end = first + 1;
        while let Some(next) = self.blocks.get(end)
            && next.segment == begin.segment
            && next.end().0 - begin.pos.0 <= RUN_BYTES
        {
            assert_eq!(
                next.pos,
                self.blocks[end - 1].end(),
                "no gap before the cut"
            );
            end += 1;
        }
        let span = &self.segments[begin.segment].span;
        assert!(
            span.start <= begin.pos && self.blocks[end - 1].end() <= span.end(),
            "blocks {first} to {end} lie in one segment"
        );
        first..end
    }

    /// Opens a segment for writing, and rewrites its header.
    fn open_again(
        &self,
        disk: &dyn Disk,
        anchor: &History,
        segment: usize,
    ) -> Result<std::sync::Arc<dyn File>> {
        let segment = &self.segments[segment];
        let lives = match segment.header_fault {
            Some(_) => &anchor.lineage.bounded(),
            None => &segment.lives,
        };
        let file = disk.open(&segment.id.path(), Access::Direct)?;
        let header = AlignedBuf::copy_of(&encode_header(
            segment.id,
            &anchor.uuid,
            segment.span.bytes,
            segment.followed,
            lives,
        ));
        write(file.as_ref(), 0, &header)?;
        Ok(file)
    }

    fn write_run(&self, file: &dyn File, run: Range<usize>) -> Result<u64> {
        let (from, end) = (self.blocks[run.start].pos, self.blocks[run.end - 1].end());
        let segment = &self.segments[self.blocks[run.start].segment];
        assert!(segment.span.start <= from && end <= segment.span.end());
        let offset = SEGMENT_HEADER_BYTES + (from.0 - segment.span.start.0);
        let mut bytes = AlignedBuf::zeroed(to_usize(end.0 - from.0));
        read_exact_at(segment.file.as_ref(), offset, &mut bytes)?;
        for block in &self.blocks[run] {
            let at = |pos: Pos| to_usize(pos.0 - from.0);
            let header = block::decode(&bytes[at(block.pos)..at(block.end())]);
            if header.is_none_or(|header| header.pos != block.pos || header.epoch != block.epoch) {
                return Err(self.damaged_block(block));
            }
        }
        write(file, offset, &bytes)?;
        Ok(to_u64(bytes.len()))
    }
}

fn write(file: &dyn File, offset: u64, bytes: &[u8]) -> Result<()> {
    if !armed(Flaw::TailOnlySynced) {
        file.write_at(offset, bytes).map_err(stopping)?;
    }
    Ok(())
}
