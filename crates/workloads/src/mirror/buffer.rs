//! Measures the gain of leaving out the log buffer, which is possible with a log in memory (section 4.1 of the
//! paper). The bench counts how often a block's bytes are copied on their way into a mapped ring of a node, and
//! measures the time of a block.
//!
//! | way | a block's records are encoded into | copies afterwards |
//! |---|---|---|
//! | with a log buffer | a block in this process | to the writer's tail, then to the ring, as in a database |
//! | without a log buffer | the ring's memory | none: the ring is the buffer, the tail and the copy |
//!
//! The two ways compute equal checksums. At the end, each way checks that the node still accepts blocks. The copies are
//! counted where they are made. Here a single thread writes. A database without a buffer would assemble the records of
//! several threads in memory shared with a second process. Each block would wait for the slowest of these threads.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_base::num::{to_u32, to_u64, to_usize};
use perdura_base::{Pos, StreamId};
use perdura_logd::{Client, unexpected};
use perdura_mirror::{Generation, READ_BYTES_MAX, Reply, Request, Ring, Shared, Writing};
use serde::Serialize;

use crate::num::{f64_of, ratio};

/// The size of a log record, including the record's head, bytes. The shortest block has 16 records.
const RECORD_BYTES: usize = 256;
const HEAD_BYTES: usize = 16;
/// The number of blocks that one turn appends. The turns alternate between appends with a log buffer and without.
const TURN: u32 = 200;
/// The number of warm-up turns of each way to append. They come first and are not measured.
const WARM_UP: u32 = 2;
const STREAMS: [StreamId; 2] = [StreamId(1), StreamId(2)];

/// The results of one way.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BufferSide {
    /// The mean number of times that a byte of a block was copied.
    pub copies_a_block: f64,
    /// The time to append a block, microseconds. Each turn gives a mean, and this is the median of the means.
    pub us_a_block: f64,
}

/// The results of both ways for one block size.
#[derive(Debug, Serialize)]
pub struct BufferRow {
    /// The size of a block, bytes.
    pub block_bytes: usize,
    /// The results if records are encoded into a buffer, and copied to the tail and from there to the ring.
    pub with_buffer: BufferSide,
    /// The results if records are encoded directly into the ring.
    pub without_buffer: BufferSide,
    /// The time to append a block without a buffer, divided by the time to append a block with a buffer.
    pub without_of_with: f64,
}

/// Memory that counts the bytes written into it.
struct Counted {
    memory: Arc<dyn Shared>,
    bytes: AtomicU64,
}

impl Shared for Counted {
    fn len(&self) -> usize {
        self.memory.len()
    }

    fn load(&self, at: usize) -> u64 {
        self.memory.load(at)
    }

    fn store(&self, at: usize, word: u64) {
        self.memory.store(at, word);
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        self.memory.read(at, out);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        // Only one thread writes, so a load and a store are enough.
        let before = self.bytes.load(Ordering::Relaxed);
        self.bytes
            .store(before + to_u64(bytes.len()), Ordering::Relaxed);
        self.memory.write(at, bytes);
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.memory.fd()
    }
}

/// The bytes from which records take their payloads. A record depends only on its number.
struct Source(Vec<u8>);

impl Source {
    fn new() -> Source {
        let mut bytes = vec![0; 1 << 16];
        fastrand::Rng::with_seed(7).fill(&mut bytes);
        Source(bytes)
    }

    /// Encodes the records of a block. `first` is the number of the first record. Passes each piece to `put`.
    fn encode(&self, first: u64, block_bytes: usize, mut put: impl FnMut(&[u8])) {
        for number in (first..).take(block_bytes / RECORD_BYTES) {
            let at = to_usize(number * 64) % (self.0.len() - RECORD_BYTES);
            let payload = &self.0[at..at + RECORD_BYTES - HEAD_BYTES];
            let mut head = [0; HEAD_BYTES];
            head[..4].copy_from_slice(&to_u32(payload.len()).to_le_bytes());
            head[4..8].copy_from_slice(&crc32c(payload).to_le_bytes());
            head[8..].copy_from_slice(&number.to_le_bytes());
            put(&head);
            put(payload);
        }
    }
}

/// A mapped ring, and its writer.
struct Mapped {
    writing: Writing,
    memory: Arc<Counted>,
    stream: StreamId,
    /// `copied` counts the bytes copied before the append to the ring. `appended` counts the bytes appended to the
    /// ring.
    copied: u64,
    appended: u64,
}

impl Mapped {
    fn new(client: &mut Client, generation: Generation, stream: StreamId) -> Result<Mapped> {
        let map = Request::Map {
            generation,
            stream,
            start: Pos(0),
        };
        let reply = client.ask(&map).map_err(|why| anyhow!(why))?;
        match Reply::decode(&reply) {
            Ok(Reply::Mapped(..)) => {}
            other => return Err(anyhow!(unexpected(other))),
        }
        let memory = client.memory().context("memory comes with the reply")?;
        let memory = Arc::new(Counted {
            memory,
            bytes: AtomicU64::new(0),
        });
        let writing = Writing::new(Arc::clone(&memory) as Arc<dyn Shared>);
        Ok(Mapped {
            writing: writing.map_err(|why| anyhow!(why))?,
            memory,
            stream,
            copied: 0,
            appended: 0,
        })
    }

    /// Appends a block as a database with a log buffer does.
    fn with_buffer(
        &mut self,
        source: &Source,
        bytes: usize,
        (block, tail): (&mut Vec<u8>, &mut Ring),
    ) -> Result<()> {
        let end = tail.end();
        block.clear();
        source.encode(end.0 / to_u64(RECORD_BYTES), bytes, |piece| {
            self.copied += to_u64(piece.len());
            block.extend_from_slice(piece);
        });
        tail.forget(end);
        self.copied += to_u64(block.len());
        tail.append(end, block, 0)
            .map_err(|refusal| anyhow!("the tail refuses: {refusal:?}"))?;
        while self.writing.follow(tail).map_err(|why| anyhow!(why))? {}
        ensure!(self.writing.end() == tail.end(), "the ring has no room");
        self.appended += to_u64(block.len());
        Ok(())
    }

    fn without_buffer(&mut self, source: &Source, bytes: usize) -> Result<()> {
        let end = self.writing.end();
        self.writing.forget(end);
        let append = self.writing.begin(end, to_u64(bytes));
        let mut append = append.map_err(|refusal| anyhow!("the ring refuses: {refusal:?}"))?;
        let mut crc = 0;
        source.encode(end.0 / to_u64(RECORD_BYTES), bytes, |piece| {
            crc = crc32c_append(crc, piece);
            append.put(piece);
        });
        append.commit(crc);
        self.appended += to_u64(bytes);
        Ok(())
    }

    /// Returns the number of copied bytes, including the copies into the ring, divided by the number of appended bytes.
    fn copies(&self) -> f64 {
        let into_ring = self.memory.bytes.load(Ordering::Relaxed);
        ratio(f64_of(self.copied + into_ring), f64_of(self.appended))
    }

    /// Checks that the node has the last block as it was encoded.
    fn check(
        &self,
        client: &mut Client,
        generation: Generation,
        source: &Source,
        bytes: usize,
    ) -> Result<()> {
        let from = Pos(self.writing.end().0 - to_u64(bytes));
        let len = to_u32(bytes).min(READ_BYTES_MAX);
        let read = Request::Read {
            generation,
            stream: self.stream,
            from,
            len,
        };
        let mut expected = Vec::with_capacity(bytes);
        source.encode(from.0 / to_u64(RECORD_BYTES), bytes, |piece| {
            expected.extend_from_slice(piece);
        });
        let reply = client.ask(&read).map_err(|why| anyhow!(why))?;
        match Reply::decode(&reply) {
            Ok(Reply::Bytes { bytes, .. }) => ensure!(
                expected.starts_with(bytes) && !bytes.is_empty(),
                "the node holds another block"
            ),
            other => return Err(anyhow!(unexpected(other))),
        }
        Ok(())
    }
}

/// Measures appends with a log buffer and without, for one block size. Uses two rings of a node. The client accesses
/// the rings by shared memory.
pub(super) fn row(
    client: &mut Client,
    generation: Generation,
    bytes: usize,
    duration: Duration,
) -> Result<BufferRow> {
    ensure!(
        bytes.is_multiple_of(RECORD_BYTES),
        "blocks of whole records"
    );
    let source = Source::new();
    let mut rings = Vec::new();
    for stream in STREAMS {
        rings.push(Mapped::new(client, generation, stream)?);
    }
    let start = rings[0].writing.end();
    let tail = Ring::new(start, 2 * to_u64(bytes));
    let mut tail = tail.context("no memory for a tail")?;
    let mut block = Vec::with_capacity(bytes);
    let mut means: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    let begin = Instant::now();
    for turn in 0.. {
        let measured = turn >= WARM_UP;
        if measured && begin.elapsed() >= duration && means[1].len() >= 3 {
            break;
        }
        for number in 0..2 {
            let way = (number + usize::from(turn % 2 == 1)) % 2;
            let ring = &mut rings[way];
            let since = Instant::now();
            for _ in 0..TURN {
                match way {
                    0 => ring.with_buffer(&source, bytes, (&mut block, &mut tail))?,
                    _ => ring.without_buffer(&source, bytes)?,
                }
                ensure!(ring.writing.closed().is_none(), "the node closed the ring");
                client.stands().map_err(|why| anyhow!(why))?;
            }
            if measured {
                let us = since.elapsed().as_secs_f64() * 1e6;
                means[way].push(us / f64::from(TURN));
            }
        }
    }
    for ring in &rings {
        ring.check(client, generation, &source, bytes)?;
    }
    let side = |way: usize| {
        let mut means = means[way].clone();
        means.sort_by(f64::total_cmp);
        BufferSide {
            copies_a_block: rings[way].copies(),
            us_a_block: means[means.len() / 2],
        }
    };
    let (with_buffer, without_buffer) = (side(0), side(1));
    Ok(BufferRow {
        block_bytes: bytes,
        without_of_with: ratio(without_buffer.us_a_block, with_buffer.us_a_block),
        with_buffer,
        without_buffer,
    })
}
