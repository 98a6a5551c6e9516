//! Durable writes of blocks to a file, one after the other. Either a client waits for each write, or a node's memory
//! acknowledges the blocks and the writes follow later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use anyhow::{Context, Result};
use perdura_base::num::to_u64;
use perdura_device::durable::PARTS_MAX;
use perdura_device::{Access, AlignedBuf, Disk, DurableQueue, DurableWrite, File, FileDisk, Part};

/// The size of the file. Each write begins where the last one ended. At the end of the file, writing begins again at its
/// start.
const FILE_BYTES: u64 = 64 << 20;
/// The maximum size of one write of several blocks, bytes.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

/// The file that is written, and the offset of the next write.
pub(crate) struct Written {
    file: Arc<dyn File>,
    queue: Box<dyn DurableQueue>,
    at: u64,
}

/// Removes a file, if it is there.
pub(crate) fn clear(disk: &FileDisk, path: &str) -> Result<()> {
    match disk.remove(path) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

impl Written {
    /// Makes the file, in place of one that an earlier run may have left.
    pub fn new(disk: &FileDisk, path: &str) -> Result<Written> {
        clear(disk, path)?;
        let file = disk.create(path, Access::Direct)?;
        file.allocate(FILE_BYTES)?;
        file.sync()?;
        Ok(Written {
            file,
            queue: disk.durable_queue()?,
            at: 0,
        })
    }

    /// Writes a block and waits until it is durable.
    pub fn write(&mut self, block: &mut Option<AlignedBuf>) -> Result<()> {
        let buf = block.take().context("the block went with a failed write")?;
        *block = self.write_all(vec![buf])?.pop();
        Ok(())
    }

    /// Writes consecutive blocks and waits until all are durable. Returns the blocks' buffers.
    fn write_all(&mut self, blocks: Vec<AlignedBuf>) -> Result<Vec<AlignedBuf>> {
        let parts: Vec<Part> = blocks
            .into_iter()
            .map(|buf| Part {
                len: buf.len(),
                buf,
            })
            .collect();
        let bytes = to_u64(parts.iter().map(|part| part.len).sum());
        if self.at + bytes > FILE_BYTES {
            self.at = 0;
        }
        self.queue.submit(DurableWrite {
            token: self.at,
            file: Arc::clone(&self.file),
            offset: self.at,
            parts,
        });
        self.at += bytes;
        let mut done = Vec::new();
        while done.is_empty() {
            self.queue.wait();
            self.queue.collect(&mut done);
        }
        let mut blocks = Vec::new();
        for ended in done {
            ended.result?;
            blocks.extend(ended.parts.into_iter().map(|part| part.buf));
        }
        Ok(blocks)
    }

    /// Writes the blocks that arrive through `blocks`, until their sender is dropped. Blocks that wait are written
    /// together. Adds the number of written blocks to `durable`, and returns their buffers through `spare`.
    pub fn follow(
        &mut self,
        blocks: &Receiver<AlignedBuf>,
        spare: &Sender<AlignedBuf>,
        durable: &AtomicU64,
    ) -> Result<()> {
        while let Ok(first) = blocks.recv() {
            let most = (TOGETHER_BYTES_MAX / first.len()).clamp(1, PARTS_MAX);
            let mut together = vec![first];
            together.extend(blocks.try_iter().take(most - 1));
            let written = self.write_all(together)?;
            durable.fetch_add(to_u64(written.len()), Ordering::SeqCst);
            // If the appender has ended, the buffers are not needed any more.
            written.into_iter().for_each(|buf| _ = spare.send(buf));
        }
        Ok(())
    }
}
