//! A disk of blocks in the memories of two nodes. The format page below describes the records and the opening.
#![doc = include_str!("../../../docs/formats/memory-disk.md")]
//!
//! # Source
//! H. Wu et al., *A Database Redo Log System Based on Virtual Memory Disk*, section 3.1: "the interface between virtual
//! memory disk and server is the same as general hard disk".
//!
//! # Deviations
//! The paper's nodes copy the disk to other disks when one of a pair has failed. This disk then has one copy, until it
//! is opened again with both nodes.

mod holder;
mod state;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, Pos, Result};
use perdura_mirror::{Caller, Generation, Key, Net};

use holder::Holder;
use state::{State, StateFile};

/// The size of a block, bytes.
pub const MEMORY_BLOCK_BYTES: usize = 4096;
const HEAD_BYTES: usize = 16;
const RECORD_BYTES: usize = HEAD_BYTES + MEMORY_BLOCK_BYTES;
const MAGIC: &[u8; 4] = b"PVMB";
/// The number of records that a server reads at once when it opens a disk.
const READ_RECORDS: u64 = 200;

/// The settings of a memory disk.
pub struct MemoryDiskOptions {
    /// The addresses of the two nodes.
    pub nodes: [String; 2],
    /// The network that connects to the nodes.
    pub net: Arc<dyn Net>,
    /// The nodes' key.
    pub key: Key,
    /// The directory of the state.
    pub state: PathBuf,
    /// The number of blocks. It is fixed when the disk is made.
    pub blocks: u64,
}

/// A disk of blocks in the rings of two nodes.
pub struct MemoryDisk {
    file: StateFile,
    state: State,
    /// The connections to the nodes. `None`: the node is no holder.
    holders: [Option<Holder>; 2],
    ring_bytes: u64,
    low: Pos,
    end: Pos,
    /// The position of the newest record of each block that has one.
    index: BTreeMap<u64, Pos>,
    /// The block of each record from `low` to `end`.
    records: VecDeque<u64>,
}

fn record_bytes() -> u64 {
    to_u64(RECORD_BYTES)
}

/// Returns the minimum size of a ring for a disk of `blocks` blocks, bytes.
#[must_use]
pub fn ring_bytes_for(blocks: u64) -> u64 {
    (2 * blocks + 2) * record_bytes()
}

/// Returns an error about the nodes together.
fn lost(why: String) -> Error {
    Error::io("use", "a memory disk", std::io::Error::other(why))
}

/// Returns the record of a block.
fn record(block: u64, bytes: &[u8]) -> Vec<u8> {
    assert_eq!(
        bytes.len(),
        MEMORY_BLOCK_BYTES,
        "a record has a whole block"
    );
    let mut record = Vec::with_capacity(RECORD_BYTES);
    record.extend_from_slice(MAGIC);
    record.extend_from_slice(&[0; 4]);
    record.extend_from_slice(&block.to_le_bytes());
    record.extend_from_slice(bytes);
    let crc = crc32c(&record[8..]);
    record[4..8].copy_from_slice(&crc.to_le_bytes());
    record
}

/// Returns the block and the bytes of a record. `None`: it is no record.
fn parse(record: &[u8]) -> Option<(u64, &[u8])> {
    let rest = record.strip_prefix(MAGIC)?;
    let (crc, rest) = rest.split_first_chunk()?;
    let (block, bytes) = rest.split_first_chunk()?;
    let is_whole = bytes.len() == MEMORY_BLOCK_BYTES && u32::from_le_bytes(*crc) == crc32c(rest);
    is_whole.then(|| (u64::from_le_bytes(*block), bytes))
}

impl MemoryDisk {
    /// Opens a disk, or makes it if its directory has no state.
    ///
    /// # Errors
    /// Another server has the disk open; no holder has its records; fewer than one node answers; errors of the state's
    /// file.
    pub fn open(options: &MemoryDiskOptions) -> Result<MemoryDisk> {
        let file = StateFile::lock(&options.state)?;
        let mut state = match file.read()? {
            Some(state) => state,
            None => State::new(options.blocks)?,
        };
        if state.blocks != options.blocks {
            return Err(Error::Usage(format!(
                "the memory disk of {} has {} blocks, not {}. Give that number",
                options.state.display(),
                state.blocks,
                options.blocks
            )));
        }
        state.claim += 1;
        file.write(&state)?;
        let mut said = Vec::new();
        let mut holders = connect(options, &state, &mut said);
        let blocks = match state.rings {
            0 => BTreeMap::new(),
            _ => recovered(&mut holders, &state, &options.state, &said)?,
        };
        let ring_bytes = ring_bytes_for(state.blocks);
        for holder in &mut holders {
            if let Some(node) = holder
                && let Err(why) = node.open(Generation(state.claim))
            {
                said.push(why);
                *holder = None;
            }
        }
        state.rings = state.claim;
        let mut disk = MemoryDisk {
            file,
            state,
            holders,
            ring_bytes,
            low: Pos(0),
            end: Pos(0),
            index: BTreeMap::new(),
            records: VecDeque::new(),
        };
        if disk.count() == 0 {
            return Err(lost(format!(
                "no node can hold the disk: {}",
                said.join("; ")
            )));
        }
        for (block, bytes) in blocks {
            // Until all blocks are copied, the file names the older rings.
            disk.ship(block, &bytes)?;
        }
        disk.write_state()?;
        for node in disk.holders.iter_mut().flatten() {
            // A node that keeps the older rings only keeps memory.
            drop(node.retire(Generation(disk.state.rings)));
        }
        Ok(disk)
    }

    /// Returns the size of the disk, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state.blocks * to_u64(MEMORY_BLOCK_BYTES)
    }

    /// Returns the number of nodes that hold the disk.
    #[must_use]
    pub fn count(&self) -> usize {
        self.holders.iter().flatten().count()
    }

    fn check(&self, offset: u64, len: usize) -> Result<()> {
        let end = offset.checked_add(to_u64(len));
        if end.is_some_and(|end| end <= self.bytes()) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{len} bytes at {offset} are not on a memory disk of {} bytes",
            self.bytes()
        )))
    }

    /// Reads bytes from any offset.
    ///
    /// # Errors
    /// Bytes that are not on the disk; no holder returns them.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len())?;
        for (block, within, part) in parts(offset, into.len()) {
            let bytes = self.block(block)?;
            into[part.clone()].copy_from_slice(&bytes[within..within + part.len()]);
        }
        Ok(())
    }

    /// Writes bytes to any offset. When it returns, all holders have them.
    ///
    /// # Errors
    /// Bytes that are not on the disk; no holder is left; the state cannot be written.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        for (block, within, part) in parts(offset, bytes.len()) {
            let new = &bytes[part];
            if new.len() == MEMORY_BLOCK_BYTES {
                self.put(block, new)?;
                continue;
            }
            let mut whole = self.block(block)?;
            whole[within..within + new.len()].copy_from_slice(new);
            self.put(block, &whole)?;
        }
        Ok(())
    }

    /// Returns a block.
    fn block(&mut self, block: u64) -> Result<Vec<u8>> {
        match self.index.get(&block) {
            None => Ok(vec![0; MEMORY_BLOCK_BYTES]),
            Some(at) => self.fetch(block, *at),
        }
    }

    /// Returns the bytes of a block's record, from the first holder that has them.
    fn fetch(&mut self, block: u64, at: Pos) -> Result<Vec<u8>> {
        let mut said = Vec::new();
        for number in 0..self.holders.len() {
            let Some(node) = &mut self.holders[number] else {
                continue;
            };
            let read = node.read(Generation(self.state.rings), at, record_bytes());
            let bytes = read.and_then(|record| match parse(&record) {
                Some((of, bytes)) if of == block => Ok(bytes.to_vec()),
                _ => Err(format!(
                    "{} returns no record of block {block}",
                    node.address
                )),
            });
            match bytes {
                Ok(bytes) => return Ok(bytes),
                Err(why) => said.push(why),
            }
            self.holders[number] = None;
            self.write_state()?;
        }
        Err(lost(format!(
            "no node returns block {block}: {}",
            said.join("; ")
        )))
    }

    /// Makes room, and appends the record of a block.
    fn put(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        while self.end.0 - self.low.0 + 2 * record_bytes() > self.ring_bytes {
            let oldest = self.records.front().copied();
            let oldest = oldest.expect("a ring without room has a record");
            if self.index.get(&oldest) == Some(&self.low) {
                let kept = self.fetch(oldest, self.low)?;
                self.append(oldest, &kept)?;
            }
            self.records.pop_front();
            self.low = Pos(self.low.0 + record_bytes());
        }
        self.append(block, bytes)
    }

    /// Appends a record on all holders. If a holder has failed, the state says so before this returns.
    fn append(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        let before = self.count();
        self.ship(block, bytes)?;
        if self.count() < before {
            self.write_state()?;
        }
        Ok(())
    }

    /// Sends a record to all holders and waits for them. A node that fails is removed from the holders.
    fn ship(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        assert!(block < self.state.blocks, "the block was checked");
        let record = record(block, bytes);
        let generation = Generation(self.state.rings);
        let (low, end) = (self.low, self.end);
        let next = Pos(end.0 + record_bytes());
        let mut said = Vec::new();
        let sent = self.holders.each_mut().map(|holder| {
            let node = holder.as_mut()?;
            Some(node.send(generation, low..end, &record))
        });
        for (holder, sent) in self.holders.iter_mut().zip(sent) {
            let Some(sent) = sent else { continue };
            let node = holder.as_mut().expect("a frame was sent to it");
            if let Err(why) = sent.and_then(|()| node.await_held(next)) {
                said.push(why);
                *holder = None;
            }
        }
        if self.count() == 0 {
            return Err(lost(format!("no node is left: {}", said.join("; "))));
        }
        if !said.is_empty() {
            tracing::warn!("A memory disk has one node left: {}", said.join("; "));
        }
        self.index.insert(block, end);
        self.records.push_back(block);
        self.end = next;
        Ok(())
    }

    /// Writes the state if some node holds the disk. Without a holder the last state stays: its holders are the last
    /// ones that had everything.
    fn write_state(&mut self) -> Result<()> {
        if self.count() == 0 {
            return Ok(());
        }
        self.state.holders = self.holders.each_ref().map(Option::is_some);
        self.file.write(&self.state)
    }
}

/// Returns the blocks of a range of bytes: the number, the offset within the block, and the part of the range.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let size = to_u64(MEMORY_BLOCK_BYTES);
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + to_u64(done);
        let within = to_usize(at % size);
        let now = (len - done).min(MEMORY_BLOCK_BYTES - within);
        let part = done..done + now;
        done = part.end;
        (now > 0).then_some((at / size, within, part))
    })
}

/// Connects to the nodes and seals them. Nodes that do not answer are left out, and `said` says why.
fn connect(
    options: &MemoryDiskOptions,
    state: &State,
    said: &mut Vec<String>,
) -> [Option<Holder>; 2] {
    let caller = Caller {
        uuid: state.uuid,
        generation: Generation(state.claim),
        key: options.key.clone(),
        ring_bytes_min: ring_bytes_for(state.blocks),
    };
    options.nodes.each_ref().map(|address| {
        let holder = Holder::connect(options.net.as_ref(), address, &caller);
        holder.map_err(|why| said.push(why)).ok()
    })
}

/// Returns the newest bytes of each block that has a record, from the holder whose ring ends last.
fn recovered(
    holders: &mut [Option<Holder>; 2],
    state: &State,
    dir: &Path,
    said: &[String],
) -> Result<BTreeMap<u64, Vec<u8>>> {
    let was_holder = state.holders.iter();
    let known = holders.iter_mut().zip(was_holder);
    let known = known.filter_map(|(holder, was)| holder.as_mut().filter(|_| *was));
    let with_ring = known.filter_map(|node| {
        let (low, end) = node.extent(Generation(state.rings))?;
        Some((low, end, node))
    });
    let Some((low, end, node)) = with_ring.max_by_key(|(_, end, _)| *end) else {
        return Err(lost(format!(
            "no node that held the disk of {} still has its records ({}). Start such a node again only if it kept its \
             memory. To begin with an empty disk, remove that directory",
            dir.display(),
            said.join("; ")
        )));
    };
    let mut blocks = BTreeMap::new();
    let mut at = low.0;
    while at < end.0 {
        let len = (end.0 - at).min(READ_RECORDS * record_bytes());
        let read = node.read(Generation(state.rings), Pos(at), len);
        for record in read.map_err(lost)?.chunks(RECORD_BYTES) {
            let Some((block, bytes)) = parse(record).filter(|(block, _)| *block < state.blocks)
            else {
                return Err(lost(format!(
                    "{} has bytes that are no record",
                    node.address
                )));
            };
            blocks.insert(block, bytes.to_vec());
        }
        at += len;
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests;
