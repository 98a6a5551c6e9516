//! The files of an overlay, and the positions of their blocks in the scratch file.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};

use crate::{Access, AlignedBuf, Disk, File, read_exact_at};

/// The size of a block, in bytes.
const BLOCK: u64 = to_u64(SECTOR_BYTES);

/// The file that contains all written blocks.
pub(super) struct Scratch {
    buffered: Arc<dyn File>,
    direct: Arc<dyn File>,
    /// The number of blocks that files have taken so far.
    blocks: AtomicU64,
}

impl Scratch {
    /// Creates the file and removes its name, so the file disappears on close.
    pub(super) fn make(disk: &dyn Disk, path: &str) -> Result<Scratch> {
        let buffered = disk.create(path, Access::Buffered)?;
        let direct = disk.open(path, Access::Direct)?;
        disk.remove(path)?;
        Ok(Scratch {
            buffered,
            direct,
            blocks: AtomicU64::new(0),
        })
    }

    fn file(&self, access: Access) -> &dyn File {
        match access {
            Access::Buffered => &*self.buffered,
            Access::Direct => &*self.direct,
        }
    }

    pub(super) fn sync(&self, access: Access) -> Result<()> {
        self.file(access).sync()
    }

    /// Takes `blocks` adjacent blocks for a file. Returns the position of the first.
    fn take(&self, blocks: u64) -> u64 {
        assert!(blocks > 0, "a run has a block");
        self.blocks.fetch_add(blocks, Ordering::Relaxed)
    }
}

/// The contents of a file in the overlay. They do not depend on its names.
pub(super) struct Blocks {
    /// The path of the file on the disk below. `None`: the file was created in the overlay.
    below: Option<String>,
    /// The lock of writers. Writers of whole blocks hold it shared. A writer of a part of a block holds it exclusively,
    /// and so does a call that shortens the file.
    writers: RwLock<()>,
    map: RwLock<Map>,
}

#[derive(Default)]
struct Map {
    len: u64,
    /// Count of the file's first bytes that are on the disk below. A block that the overlay has written is read from
    /// the scratch file instead.
    below: u64,
    /// A map from the number of a block in this file to its position in the scratch file, in blocks. Only written
    /// blocks are in the map.
    places: HashMap<u64, u64>,
}

impl Map {
    /// Finds the longest run of blocks that begins at `first` and does not reach beyond `end`. The blocks of a run are
    /// adjacent in the scratch file, or none of them is there. Returns the run's position in the scratch file, and the
    /// number of its blocks. The position is `None` if none is there.
    fn run(&self, first: u64, end: u64) -> (Option<u64>, u64) {
        assert!(first < end, "blocks {first}..{end}");
        let place = self.places.get(&first).copied();
        let goes_on = |block: &u64| {
            let follows = place.map(|place| place + (block - first));
            self.places.get(block).copied() == follows
        };
        let more = (first + 1..end).take_while(goes_on).count();
        (place, 1 + to_u64(more))
    }

    /// Returns the source of the byte at `from`, and the number of bytes in sequence that have this source. The count
    /// begins with this byte and stops at `end`.
    fn part(&self, from: u64, end: u64) -> (Source, usize) {
        assert!(
            from < end && end <= self.len,
            "{from}..{end} of {}",
            self.len
        );
        let first = from / BLOCK;
        let (place, blocks) = self.run(first, end.div_ceil(BLOCK));
        let until = ((first + blocks) * BLOCK).min(end);
        let (source, until) = match place {
            Some(place) => (Source::Scratch(place * BLOCK + from % BLOCK), until),
            None if from < self.below => (Source::Below, until.min(self.below)),
            None => (Source::Zeros, until),
        };
        (source, in_memory(until - from))
    }
}

/// The source of some bytes of a file.
enum Source {
    Scratch(u64),
    Below,
    Zeros,
}

/// Converts a number of bytes to a length in memory.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Blocks {
    pub(super) fn empty() -> Blocks {
        Blocks {
            below: None,
            writers: RwLock::default(),
            map: RwLock::default(),
        }
    }

    /// Returns the contents of a file of the overlay that is still unchanged. All its `len` bytes are in the file
    /// `path` on the disk below.
    pub(super) fn over(path: &str, len: u64) -> Blocks {
        let map = Map {
            len,
            below: len,
            places: HashMap::new(),
        };
        Blocks {
            below: Some(path.to_owned()),
            writers: RwLock::default(),
            map: RwLock::new(map),
        }
    }

    /// Returns the path on the disk below. `None`: the file was created in the overlay.
    pub(super) fn path_below(&self) -> Option<&str> {
        self.below.as_deref()
    }
}

/// An open file of an overlay.
pub(super) struct OverlayFile {
    path: String,
    access: Access,
    blocks: Arc<Blocks>,
    below: Option<Arc<dyn File>>,
    scratch: Arc<Scratch>,
}

impl OverlayFile {
    pub(super) fn new(
        path: &str,
        access: Access,
        blocks: Arc<Blocks>,
        below: Option<Arc<dyn File>>,
        scratch: Arc<Scratch>,
    ) -> OverlayFile {
        assert_eq!(blocks.below.is_some(), below.is_some(), "{path}");
        OverlayFile {
            path: path.to_owned(),
            access,
            blocks,
            below,
            scratch,
        }
    }

    fn scratch(&self) -> &dyn File {
        self.scratch.file(self.access)
    }

    /// Writes whole blocks to the scratch file, with one write for each run of adjacent positions. Records the
    /// positions after the write. The file's length is at least `end` afterwards.
    fn write_blocks(&self, first: u64, data: &[u8], end: u64) -> Result<()> {
        assert!(data.len().is_multiple_of(SECTOR_BYTES), "whole blocks");
        let (mut block, mut rest) = (first, data);
        while !rest.is_empty() {
            let behind = block + to_u64(rest.len()) / BLOCK;
            let (place, blocks) = self.blocks.map.read().run(block, behind);
            let place = place.unwrap_or_else(|| self.scratch.take(blocks));
            let (part, others) = rest.split_at(in_memory(blocks * BLOCK));
            self.scratch().write_at(place * BLOCK, part)?;
            let mut map = self.blocks.map.write();
            for at in 0..blocks {
                map.places.insert(block + at, place + at);
            }
            block += blocks;
            rest = others;
            assert!(block <= behind, "block {block} lies behind {behind}");
            map.len = map.len.max(end.min(block * BLOCK));
        }
        Ok(())
    }

    /// Sets the length. The caller holds the lock `writers` exclusively.
    fn cut(&self, len: u64) -> Result<()> {
        let block = len / BLOCK;
        let is_parted =
            !len.is_multiple_of(BLOCK) && self.blocks.map.read().places.contains_key(&block);
        if is_parted {
            let mut bytes = AlignedBuf::zeroed(SECTOR_BYTES);
            self.read_at(block * BLOCK, &mut bytes)?;
            bytes[in_memory(len % BLOCK)..].fill(0);
            self.write_blocks(block, &bytes, 0)?;
        }
        let mut map = self.blocks.map.write();
        map.places.retain(|block, _| block * BLOCK < len);
        map.below = map.below.min(len);
        map.len = len;
        assert!(map.below <= map.len, "{} bytes below count", map.below);
        Ok(())
    }
}

impl File for OverlayFile {
    fn len(&self) -> Result<u64> {
        Ok(self.blocks.map.read().len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = self.blocks.map.read().len;
        let end = offset.saturating_add(to_u64(buf.len())).min(len);
        let mut done = 0;
        while offset + to_u64(done) < end {
            let at = offset + to_u64(done);
            let map = self.blocks.map.read();
            if end > map.len {
                break;
            }
            let (source, bytes) = map.part(at, end);
            drop(map);
            let part = &mut buf[done..done + bytes];
            match (source, &self.below) {
                (Source::Scratch(place), _) => read_exact_at(self.scratch(), place, part)?,
                (Source::Below, Some(below)) => read_exact_at(&**below, at, part)?,
                (Source::Below | Source::Zeros, _) => part.fill(0),
            }
            done += bytes;
        }
        assert!(done <= buf.len(), "{done} bytes were read");
        Ok(done)
    }

    fn will_read(&self, offset: u64, len: u64) {
        if let Some(below) = &self.below {
            below.will_read(offset, len);
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(to_u64(data.len()));
        let too_large = || Error::io("write", self.path(), io::ErrorKind::FileTooLarge.into());
        let end = end.ok_or_else(too_large)?;
        if data.is_empty() {
            return Ok(());
        }
        let (first, behind) = (offset / BLOCK, end.div_ceil(BLOCK));
        if offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK) {
            let _others = self.blocks.writers.read();
            return self.write_blocks(first, data, end);
        }
        let _alone = self.blocks.writers.write();
        let mut bytes = AlignedBuf::zeroed(in_memory((behind - first) * BLOCK));
        let tail = bytes.len() - SECTOR_BYTES;
        if !offset.is_multiple_of(BLOCK) {
            self.read_at(first * BLOCK, &mut bytes[..SECTOR_BYTES])?;
        }
        let is_read = tail == 0 && !offset.is_multiple_of(BLOCK);
        if !end.is_multiple_of(BLOCK) && !is_read {
            self.read_at((behind - 1) * BLOCK, &mut bytes[tail..])?;
        }
        let from = in_memory(offset % BLOCK);
        assert!(from + data.len() <= bytes.len(), "all blocks are there");
        bytes[from..from + data.len()].copy_from_slice(data);
        self.write_blocks(first, &bytes, end)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let _alone = self.blocks.writers.write();
        let mut map = self.blocks.map.write();
        map.len = map.len.max(len);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let _alone = self.blocks.writers.write();
        self.cut(len)
    }

    fn sync(&self) -> Result<()> {
        self.scratch.sync(self.access)
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn is_direct(&self) -> bool {
        let below = self.below.as_ref();
        self.scratch().is_direct() && below.is_none_or(|below| below.is_direct())
    }
}
