//! The media to which a block of the log is written, and the time that a single writer waits for each medium.
//!
//! Blocks of all sizes are written to all media in turn, so that other work of the machine affects all of them.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use perdura_device::{Access, AlignedBuf, Disk, File, FileDisk, Through};

use super::super::scratch::Scratch;
use crate::num::median;

/// The number of bytes after which a medium is written again from its start.
const SPAN: usize = 16 << 20;
/// The number of copies that are timed together, because one copy takes less time than reading the clock.
const COPIES: u32 = 64;

/// A destination of blocks.
pub trait Medium {
    /// Writes a block. Returns when the block counts as written.
    ///
    /// # Errors
    /// Errors of the device and of the connection.
    fn put(&mut self, block: &[u8]) -> Result<()>;

    /// Returns the number of blocks that are timed together.
    fn batch(&self) -> u32 {
        1
    }
}

/// Returns the offset of the next block in a ring of [`SPAN`] bytes.
fn place(at: &mut usize, len: usize) -> usize {
    assert!(len <= SPAN, "a block of {len} bytes fits");
    if *at + len > SPAN {
        *at = 0;
    }
    let place = *at;
    *at += len;
    place
}

/// A file that is written completely before it is used, so that a sync has no metadata to write.
pub struct OnDisk {
    file: Arc<dyn File>,
    at: usize,
    /// The file's folder. Dropping this field removes the folder.
    _folder: Scratch,
}

impl OnDisk {
    /// Makes the file in a new directory in `folder`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn new(folder: &Path) -> Result<OnDisk> {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let folder = Scratch::within(folder)?;
        let file = FileDisk::new(&folder.dir)?.create("blocks", Access::Direct)?;
        file.allocate(u64::try_from(SPAN)?)?;
        file.sync()?;
        Ok(OnDisk {
            file,
            at: 0,
            _folder: folder,
        })
    }

    /// Returns whether the file bypasses the operating system's cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

impl Medium for OnDisk {
    fn put(&mut self, block: &[u8]) -> Result<()> {
        let at = u64::try_from(place(&mut self.at, block.len()))?;
        Ok(self.file.write_durable(at, &[block], Through::Dsync)?)
    }
}

/// Memory of this process.
pub struct InMemory {
    ring: Vec<u8>,
    at: usize,
}

impl InMemory {
    /// Makes an empty ring.
    #[must_use]
    pub fn new() -> InMemory {
        InMemory {
            ring: vec![1; SPAN],
            at: 0,
        }
    }
}

impl Default for InMemory {
    fn default() -> InMemory {
        InMemory::new()
    }
}

impl Medium for InMemory {
    fn put(&mut self, block: &[u8]) -> Result<()> {
        let at = place(&mut self.at, block.len());
        self.ring[at..at + block.len()].copy_from_slice(black_box(block));
        black_box(&self.ring[at]);
        Ok(())
    }

    fn batch(&self) -> u32 {
        COPIES
    }
}

/// The memory of another thread. Blocks are sent to the thread by TCP over the loopback. The thread acknowledges each
/// block with the number of bytes that it has received.
pub struct Acknowledged {
    stream: TcpStream,
    sent: u64,
    thread: Option<JoinHandle<()>>,
}

impl Acknowledged {
    /// Starts the thread and connects to it.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn new() -> Result<Acknowledged> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening")?;
        let stream = TcpStream::connect(listener.local_addr()?).context("connecting")?;
        let (accepted, from) = listener.accept().context("accepting")?;
        ensure!(
            from == stream.local_addr()?,
            "another process has connected"
        );
        stream.set_nodelay(true)?;
        accepted.set_nodelay(true)?;
        let named = std::thread::Builder::new().name("acknowledges".into());
        let thread = named.spawn(move || acknowledge(accepted))?;
        Ok(Acknowledged {
            stream,
            sent: 0,
            thread: Some(thread),
        })
    }
}

impl Medium for Acknowledged {
    fn put(&mut self, block: &[u8]) -> Result<()> {
        let len = u32::try_from(block.len())?;
        self.stream.write_all(&len.to_le_bytes())?;
        self.stream.write_all(block)?;
        self.sent += u64::from(len);
        let mut holds = [0; 8];
        self.stream.read_exact(&mut holds)?;
        let holds = u64::from_le_bytes(holds);
        ensure!(
            holds == self.sent,
            "{holds} bytes are held of {}",
            self.sent
        );
        Ok(())
    }
}

impl Drop for Acknowledged {
    fn drop(&mut self) {
        drop(self.stream.shutdown(Shutdown::Both));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Receives blocks into memory and acknowledges them until the connection ends.
fn acknowledge(mut stream: TcpStream) {
    let mut ring = vec![1; SPAN];
    let (mut at, mut held) = (0, 0_u64);
    let mut len = [0; 4];
    while stream.read_exact(&mut len).is_ok() {
        let bytes = u32::from_le_bytes(len);
        let Some(bytes_long) = usize::try_from(bytes).ok().filter(|len| *len <= SPAN) else {
            return;
        };
        let from = place(&mut at, bytes_long);
        if stream
            .read_exact(&mut ring[from..from + bytes_long])
            .is_err()
        {
            return;
        }
        held += u64::from(bytes);
        if stream.write_all(&held.to_le_bytes()).is_err() {
            return;
        }
    }
}

/// The number of parts into which a measurement is divided. Each part has its own median.
const PARTS: usize = 5;

/// The times of blocks of one size, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Took {
    /// The medians of the parts of the measurement, in the order of time.
    pub parts: [f64; PARTS],
    /// The median.
    pub p50: f64,
    /// The time that 99 of 100 blocks do not exceed.
    pub p99: f64,
}

/// Writes blocks to the media, all sizes and media in turn. Returns the times by size and then by medium.
///
/// # Errors
/// Errors of a medium.
pub fn measure(
    media: &mut [&mut dyn Medium],
    sizes: &[usize],
    rounds: usize,
) -> Result<Vec<Vec<Took>>> {
    assert!(rounds > 0, "something is measured");
    let mut blocks: Vec<AlignedBuf> = sizes.iter().map(|len| AlignedBuf::zeroed(*len)).collect();
    let mut times = vec![vec![Vec::with_capacity(rounds); media.len()]; sizes.len()];
    for round in 0..rounds {
        for (block, times) in blocks.iter_mut().zip(&mut times) {
            // No two blocks are equal, so that no layer below can skip a write.
            block[..8].copy_from_slice(&u64::try_from(round)?.to_le_bytes());
            for (medium, times) in media.iter_mut().zip(times) {
                let batch = medium.batch();
                let begin = Instant::now();
                for _ in 0..batch {
                    medium.put(block)?;
                }
                times.push(1e6 * begin.elapsed().as_secs_f64() / f64::from(batch));
            }
        }
    }
    let of_size = |times: Vec<Vec<f64>>| times.into_iter().map(took).collect();
    Ok(times.into_iter().map(of_size).collect())
}

fn took(mut times: Vec<f64>) -> Took {
    let part = |number: usize| times.len() * number / PARTS;
    let parts = std::array::from_fn(|number| {
        // With fewer rounds than parts, the first rounds count for the first parts, too.
        let end = part(number + 1).max(1);
        median(times[part(number).min(end - 1)..end].to_vec())
    });
    times.sort_by(f64::total_cmp);
    let p99 = times.get(times.len() * 99 / 100).copied();
    Took {
        parts,
        p99: p99.unwrap_or(0.0),
        p50: median(times),
    }
}

/// Returns whether a folder is in memory, where a sync costs nothing.
///
/// # Errors
/// Errors of the file system.
pub fn is_in_memory(folder: &Path) -> Result<bool> {
    /// The number by which the system identifies a file system in memory: `TMPFS_MAGIC`.
    const IN_MEMORY: u64 = 0x0102_1994;
    let stat = rustix::fs::statfs(folder);
    let stat = stat.with_context(|| format!("looking at {}", folder.display()))?;
    Ok(u64::try_from(stat.f_type).is_ok_and(|kind| kind == IN_MEMORY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_medium_takes_blocks_beyond_its_span() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = OnDisk::new(folder.path()).unwrap();
        let (mut memory, mut node) = (InMemory::new(), Acknowledged::new().unwrap());
        let media: &mut [&mut dyn Medium] = &mut [&mut disk, &mut memory, &mut node];
        let took = measure(media, &[4096, 65_536, SPAN], 3).unwrap();
        assert_eq!(took.iter().map(Vec::len).collect::<Vec<_>>(), [3; 3]);
        let mut all = took.iter().flatten();
        assert!(all.all(|took| took.p50 > 0.0 && took.p50 <= took.p99));
        assert_eq!(
            node.sent,
            3 * (4096 + 65_536 + u64::try_from(SPAN).unwrap())
        );
    }

    #[test]
    fn a_node_that_holds_another_number_of_bytes_is_noticed() {
        let mut node = Acknowledged::new().unwrap();
        node.put(&[1; 100]).unwrap();
        node.sent += 1;
        assert!(node.put(&[1; 100]).is_err());
    }

    #[test]
    fn quantiles_are_of_the_times() {
        let times = (1..=200).map(f64::from).rev().collect();
        let of = took(times);
        assert_eq!((of.p50, of.p99), (101.0, 199.0));
        assert_eq!(
            of.parts,
            [180.0, 140.0, 100.0, 60.0, 20.0].map(|middle| middle + 1.0)
        );
        assert_eq!(took(vec![7.0, 9.0]).parts, [7.0, 7.0, 7.0, 7.0, 9.0]);
    }
}
