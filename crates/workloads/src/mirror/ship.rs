//! Measures the time until nodes have acknowledged a block, without a database. A commit that waits for the nodes'
//! memories takes at least as long. The commit need not wait for a durable write. The time of a durable write is also
//! measured.
//!
//! One client appends one block at a time. It does so in several ways: to the disk, to one node, to two nodes, and in
//! the easy way ([`easy`](super::easy)). The ways are measured in turns. Every second round begins with the second way,
//! so that a disturbance affects all ways.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use perdura_base::num::to_u64;
use perdura_base::{Pos, StreamId};
use perdura_device::{AlignedBuf, Disk, FileDisk};
use perdura_logd::{Client, TcpNet, unexpected};
use perdura_mirror::{Caller, Generation, Held, Reply, Request};
use serde::Serialize;

use super::buffer::{self, BufferRow};
use super::easy::{Easy, EasyRow};
use crate::latency::{LatencyUs, histogram, micros, record};
use crate::written::{self, Written};

/// The file that the bench writes.
const FILE: &str = "bench-mirror.tmp";
/// The number of blocks that one turn appends.
const TURN: u32 = 100;
/// The number of warm-up turns of each way to append. They come first and are not measured.
const WARM_UP: u32 = 2;
/// The longest wait for a node.
const PATIENCE: Duration = Duration::from_secs(10);
const STREAM: StreamId = StreamId(0);

/// The nodes, the disk and the settings of the measurement.
pub struct ShipBench {
    /// The addresses of one node or two.
    pub nodes: Vec<String>,
    /// The network.
    pub net: TcpNet,
    /// The identity of the client, which names a database. No other process may use that database.
    pub caller: Caller,
    /// A directory on the disk to measure.
    pub data: PathBuf,
    /// The sizes of blocks, bytes. Each gives a row of the report.
    pub block_bytes: Vec<usize>,
    /// The duration of each row's measurement.
    pub duration: Duration,
    /// True if the client polls for replies without sleeping.
    pub spin: bool,
}

/// A node as it described itself when the client connected.
#[derive(Debug, Serialize)]
pub struct ShipNode {
    /// The node's address.
    pub address: String,
    /// The node's incarnation.
    pub inc: String,
    /// The node's machine.
    pub machine: String,
}

/// The latencies of one size of block.
#[derive(Debug, Serialize)]
pub struct ShipRow {
    /// The size of a block, bytes.
    pub block_bytes: usize,
    /// The latency of a durable write.
    pub disk_us: LatencyUs,
    /// The latency of an append that the first node acknowledges.
    pub one_us: LatencyUs,
    /// The latency of an append that two nodes acknowledge.
    pub two_us: Option<LatencyUs>,
    /// The median of `one_us`, divided by the median of `disk_us`.
    pub one_of_disk: f64,
    /// The median of `two_us`, divided by the median of `disk_us`.
    pub two_of_disk: Option<f64>,
    /// The results of an append acknowledged by only the first node and later copied to disk. This is the paper's easy
    /// way, which loses the append if the node ends.
    pub one_copied_later_not_durable: EasyRow,
}

/// The results of all sizes.
#[derive(Debug, Serialize)]
pub struct ShipReport {
    /// The nodes.
    pub nodes: Vec<ShipNode>,
    /// True if the client polled for replies without sleeping.
    pub spin: bool,
    /// The disk's method of durable writes.
    pub disk: String,
    /// The rows, one for each size of block.
    pub rows: Vec<ShipRow>,
    /// The cost of a log buffer for a mapped ring, at each size of block.
    pub log_buffer: Vec<BufferRow>,
    /// The reason why `log_buffer` is empty.
    pub no_log_buffer: Option<String>,
}

impl ShipBench {
    /// Measures each size of block.
    ///
    /// # Errors
    /// Errors of the disk and of the nodes.
    pub fn run(&self) -> Result<ShipReport> {
        ensure!((1..=2).contains(&self.nodes.len()), "one node or two");
        std::fs::create_dir_all(&self.data)?;
        let disk = FileDisk::new(&self.data)?;
        let mut written = Written::new(&disk, FILE)?;
        let mut nodes = Vec::new();
        for address in &self.nodes {
            nodes.push(Appending::new(self, address).with_context(|| address.clone())?);
        }
        let rows = self.block_bytes.iter();
        let rows = rows.map(|bytes| self.row(*bytes, &mut written, &mut nodes));
        let rows: Result<Vec<ShipRow>> = rows.collect();
        drop(written);
        written::clear(&disk, FILE)?;
        let log_buffer = self.log_buffer(&nodes);
        for node in &mut nodes {
            node.leave()?;
        }
        let (log_buffer, no_log_buffer) = match log_buffer? {
            Ok(rows) => (rows, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Ok(ShipReport {
            log_buffer,
            no_log_buffer,
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
        // The ways are: the disk, one node, two nodes if there are two, and the easy way.
        let ways = 2 + nodes.len();
        let mut latencies: Vec<Histogram<u64>> = (1..ways).map(|_| histogram()).collect();
        let mut easy = Easy::new();
        let begin = Instant::now();
        for turn in 0.. {
            let measured = turn >= WARM_UP;
            if turn > WARM_UP && begin.elapsed() >= self.duration {
                break;
            }
            for number in 0..ways {
                let way = (number + usize::from(turn % 2 == 1)) % ways;
                if way == ways - 1 {
                    let bytes = block.take().context("the block went with a failed write")?;
                    let first = &mut nodes[..1];
                    easy.turn((TURN, measured), &bytes, disk, |block| append(first, block))?;
                    block = Some(bytes);
                    continue;
                }
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
        let one_copied_later_not_durable = easy.outcome(us[0].p50);
        Ok(ShipRow {
            block_bytes: bytes,
            disk_us: us[0],
            one_us: us[1],
            two_us: us.get(2).copied(),
            one_of_disk: of_disk(&us[1], &us[0]),
            two_of_disk: us.get(2).map(|two| of_disk(two, &us[0])),
            one_copied_later_not_durable,
        })
    }

    /// Measures the cost of a log buffer, with the first node that shares its memory. If no node shares its memory,
    /// returns the reason instead.
    fn log_buffer(
        &self,
        nodes: &[Appending],
    ) -> Result<std::result::Result<Vec<BufferRow>, String>> {
        let mut why = String::new();
        let client = nodes.iter().find_map(|node| {
            let identity = node.client.identity();
            let here = Client::connect_here(&self.net, &identity, &self.caller, PATIENCE);
            here.map_err(|error| why = error).ok()
        });
        let Some(mut client) = client else {
            return Ok(Err(why));
        };
        let generation = self.caller.generation;
        let sizes = self.block_bytes.iter();
        let rows =
            sizes.map(|bytes| buffer::row(&mut client, generation, *bytes, self.duration / 4));
        rows.collect::<Result<Vec<BufferRow>>>().map(Ok)
    }
}

/// Appends a block on all `nodes`, and waits until all have acknowledged it.
fn append(nodes: &mut [Appending], block: &[u8]) -> Result<()> {
    for node in &mut *nodes {
        node.send(block)?;
    }
    nodes.iter_mut().try_for_each(Appending::await_held)
}

/// A ring of a node, for appending blocks.
struct Appending {
    address: String,
    client: Client,
    generation: Generation,
    end: Pos,
    /// The position below which the node may drop blocks.
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

    /// Makes the node drop the ring.
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use perdura_base::Uuid;
    use perdura_logd::{Logd, LogdOptions};
    use perdura_mirror::Key;

    use super::*;

    fn report(shares: bool) -> ShipReport {
        let options = LogdOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            ring_bytes: 1 << 20,
            shares,
            ..LogdOptions::default()
        };
        let logd = Logd::start(options).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let nodes = vec![logd.addresses()[0].to_string()];
        let bench = ShipBench {
            net: TcpNet::new(&nodes, None).unwrap(),
            nodes,
            caller: Caller {
                uuid: Uuid([4; 16]),
                generation: Generation(1),
                key: Key::none(),
                ring_bytes_min: 1 << 20,
            },
            data: dir.path().to_owned(),
            block_bytes: vec![4096, 16384],
            duration: Duration::from_millis(20),
            spin: false,
        };
        let report = bench.run().unwrap();
        assert_eq!(logd.stats().node.rings, 0, "what was made is removed");
        logd.stop();
        report
    }

    #[test]
    fn both_ways_to_a_ring_are_measured_and_count_their_copies() {
        let report = report(true);
        assert_eq!((report.no_log_buffer, report.log_buffer.len()), (None, 2));
        for row in &report.log_buffer {
            let copies = [row.with_buffer, row.without_buffer].map(|side| side.copies_a_block);
            assert!((copies[0] - 3.0).abs() < 1e-9, "{copies:?}");
            assert!((copies[1] - 1.0).abs() < 1e-9, "{copies:?}");
            assert!(row.with_buffer.us_a_block > 0.0 && row.without_buffer.us_a_block > 0.0);
        }
    }

    #[test]
    fn the_easy_way_says_what_the_end_of_its_node_would_lose() {
        let report = report(false);
        assert!(report.log_buffer.is_empty() && report.no_log_buffer.is_some());
        for row in &report.rows {
            let easy = &row.one_copied_later_not_durable;
            assert!(easy.latency_us.max > 0 && easy.lost_with_the_node_us.max > 0);
            let most = easy.lost_with_the_node_bytes_max;
            let block = to_u64(row.block_bytes);
            // The unsaved blocks are those in the channel and in the copier, and the one that was just acknowledged.
            assert!(most >= block && most <= block * 130, "{most} of {block}");
        }
    }
}
