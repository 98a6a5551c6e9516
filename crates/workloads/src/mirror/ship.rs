//! Blocks sent to nodes and acknowledged by them, without a database: what a commit that waits for memories can come
//! down to, beside the durable write that it does not wait for.
//!
//! One client appends one block at a time. The ways take turns, a few blocks each, and begin with another one each time, so that
//! what disturbs one of them disturbs all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use perdura_base::num::to_u64;
use perdura_base::{Pos, StreamId};
use perdura_device::{Access, AlignedBuf, Disk, DurableQueue, DurableWrite, File, FileDisk, Part};
use perdura_logd::{Client, TcpNet, unexpected};
use perdura_mirror::{Caller, Generation, Held, Reply, Request};
use serde::Serialize;

use crate::latency::{LatencyUs, histogram, micros, record};

/// The file that is written, and its size: each write has a place of its own, until it begins again.
const PATH: &str = "bench-mirror.tmp";
const FILE_BYTES: u64 = 64 << 20;
/// Blocks of one way before it is the next one's turn.
const TURN: u32 = 100;
/// Turns of each way that are not measured.
const WARM_UP: u32 = 2;
/// How long a node may take.
const PATIENCE: Duration = Duration::from_secs(10);
const STREAM: StreamId = StreamId(0);

/// What is measured.
pub struct ShipBench {
    /// One node or two, as the network knows them.
    pub nodes: Vec<String>,
    /// The network.
    pub net: TcpNet,
    /// Who appends. Nothing else may use its database.
    pub caller: Caller,
    /// A directory on the disk that is written.
    pub data: PathBuf,
    /// Bytes of a block, one row each.
    pub block_bytes: Vec<usize>,
    /// How long each row is measured.
    pub duration: Duration,
    /// Whether the client looks for replies without sleeping.
    pub spin: bool,
}

/// A node, as it greeted.
#[derive(Debug, Serialize)]
pub struct ShipNode {
    /// Where it is.
    pub address: String,
    /// Its incarnation.
    pub inc: String,
    /// Its machine.
    pub machine: String,
}

/// The latencies of one size of block.
#[derive(Debug, Serialize)]
pub struct ShipRow {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// A durable write.
    pub disk_us: LatencyUs,
    /// An append acknowledged by the first node.
    pub one_us: LatencyUs,
    /// An append acknowledged by two.
    pub two_us: Option<LatencyUs>,
    /// The median of the first over the disk's.
    pub one_of_disk: f64,
    /// The median of the second over the disk's.
    pub two_of_disk: Option<f64>,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct ShipReport {
    /// The nodes.
    pub nodes: Vec<ShipNode>,
    /// Whether the client slept while it waited.
    pub spin: bool,
    /// How the disk's writes became durable.
    pub disk: String,
    /// Each size of block.
    pub rows: Vec<ShipRow>,
}

impl ShipBench {
    /// Measures each size of block.
    ///
    /// # Errors
    /// The disk's and the nodes'.
    pub fn run(&self) -> Result<ShipReport> {
        ensure!((1..=2).contains(&self.nodes.len()), "one node or two");
        std::fs::create_dir_all(&self.data)?;
        let disk = FileDisk::new(&self.data)?;
        let mut written = Written::new(&disk)?;
        let mut nodes = Vec::new();
        for address in &self.nodes {
            nodes.push(Appending::new(self, address).with_context(|| address.clone())?);
        }
        let rows = self.block_bytes.iter();
        let rows = rows.map(|bytes| self.row(*bytes, &mut written, &mut nodes));
        let rows: Result<Vec<ShipRow>> = rows.collect();
        drop(written);
        disk.remove(PATH)?;
        for node in &mut nodes {
            node.leave()?;
        }
        Ok(ShipReport {
            nodes: nodes.iter().map(Appending::named).collect(),
            spin: self.spin,
            disk: disk.log_way().map_or("sync", |way| way.way.name()).into(),
            rows: rows?,
        })
    }

    fn row(&self, bytes: usize, disk: &mut Written, nodes: &mut [Appending]) -> Result<ShipRow> {
        let mut buf = AlignedBuf::zeroed(bytes);
        fastrand::Rng::with_seed(1).fill(&mut buf);
        let mut block = Some(buf);
        let ways = 1 + nodes.len();
        let mut latencies: Vec<Histogram<u64>> = (0..ways).map(|_| histogram()).collect();
        let begin = Instant::now();
        for turn in 0.. {
            let measured = turn >= WARM_UP;
            if measured && begin.elapsed() >= self.duration {
                break;
            }
            for number in 0..ways {
                let way = (number + usize::from(turn % 2 == 1)) % ways;
                for _ in 0..TURN {
                    let begin = Instant::now();
                    match way {
                        0 => disk.write(&mut block)?,
                        count => append(&mut nodes[..count], block.as_deref().unwrap_or(&[]))?,
                    }
                    if measured {
                        record(&mut latencies[way], micros(begin.elapsed()), 1);
                    }
                }
            }
        }
        let us: Vec<LatencyUs> = latencies.iter().map(LatencyUs::of).collect();
        let of_disk = |us: &LatencyUs, disk: &LatencyUs| us.p50 as f64 / disk.p50.max(1) as f64;
        Ok(ShipRow {
            block_bytes: bytes,
            disk_us: us[0],
            one_us: us[1],
            two_us: us.get(2).copied(),
            one_of_disk: of_disk(&us[1], &us[0]),
            two_of_disk: us.get(2).map(|two| of_disk(two, &us[0])),
        })
    }
}

/// Appends a block to all `nodes`, and waits until all hold it.
fn append(nodes: &mut [Appending], block: &[u8]) -> Result<()> {
    for node in &mut *nodes {
        node.send(block)?;
    }
    nodes.iter_mut().try_for_each(Appending::await_held)
}

/// A ring that is appended to.
struct Appending {
    address: String,
    client: Client,
    generation: Generation,
    end: Pos,
    /// Up to where the node may forget.
    low: Pos,
}

impl Appending {
    fn new(bench: &ShipBench, address: &str) -> Result<Appending> {
        let client = Client::connect(&bench.net, address, &bench.caller, PATIENCE);
        let mut client = client.map_err(|why| anyhow!(why))?;
        client.set_spin(bench.spin);
        let mut node = Appending {
            address: address.to_owned(),
            client,
            generation: bench.caller.generation,
            end: Pos(0),
            low: Pos(0),
        };
        let open = Request::Open {
            generation: node.generation,
            stream: STREAM,
            start: Pos(0),
        };
        node.client.send(&open).map_err(|why| anyhow!(why))?;
        node.await_held()?;
        Ok(node)
    }

    fn named(&self) -> ShipNode {
        let identity = self.client.identity();
        ShipNode {
            address: self.address.clone(),
            inc: identity.inc.to_string(),
            machine: identity.machine.to_string(),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let append = Request::Append {
            generation: self.generation,
            stream: STREAM,
            pos: self.end,
            low: self.low,
            bytes,
            pad: 0,
        };
        self.low = self.end;
        self.end = Pos(self.end.0 + to_u64(bytes.len()));
        self.client.send(&append).map_err(|why| self.failed(why))
    }

    fn await_held(&mut self) -> Result<()> {
        let frame = self.client.receive().map_err(|why| self.failed(why))?;
        match Reply::decode(&frame) {
            Ok(Reply::Held(Held { ring, .. })) if ring.end == self.end => Ok(()),
            other => Err(self.failed(unexpected(other))),
        }
    }

    /// Has the node drop the ring.
    fn leave(&mut self) -> Result<()> {
        let generation = Generation(self.generation.0 + 1);
        let reply = self.client.ask(&Request::Retire { generation });
        let reply = reply.map_err(|why| self.failed(why))?;
        match Reply::decode(&reply) {
            Ok(Reply::Retired { .. }) => Ok(()),
            other => Err(self.failed(unexpected(other))),
        }
    }

    fn failed(&self, why: String) -> anyhow::Error {
        anyhow!("{}: {why}", self.address)
    }
}

/// A file on the disk that is written.
struct Written {
    file: Arc<dyn File>,
    queue: Box<dyn DurableQueue>,
    at: u64,
}

impl Written {
    fn new(disk: &FileDisk) -> Result<Written> {
        match disk.remove(PATH) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            // What an earlier run left.
            _ => {}
        }
        let file = disk.create(PATH, Access::Direct)?;
        file.allocate(FILE_BYTES)?;
        file.sync()?;
        Ok(Written {
            file,
            queue: disk.durable_queue()?,
            at: 0,
        })
    }

    /// Writes a block and waits until it is durable.
    fn write(&mut self, block: &mut Option<AlignedBuf>) -> Result<()> {
        let buf = block.take().context("the block went with a failed write")?;
        let len = buf.len();
        if self.at + to_u64(len) > FILE_BYTES {
            self.at = 0;
        }
        self.queue.submit(DurableWrite {
            token: self.at,
            file: Arc::clone(&self.file),
            offset: self.at,
            parts: vec![Part { buf, len }],
        });
        self.at += to_u64(len);
        let mut done = Vec::new();
        while done.is_empty() {
            self.queue.wait();
            self.queue.collect(&mut done);
        }
        for mut ended in done {
            *block = ended.parts.pop().map(|part| part.buf);
            ended.result?;
        }
        Ok(())
    }
}
