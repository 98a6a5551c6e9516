//! `perdura bench mirror`

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use perdura::{NodeSettings, Options};
use perdura_base::Uuid;
use perdura_base::num::{to_u32, to_u64};
use perdura_logd::{TcpNet, draw_nonce};
use perdura_mirror::{Caller, Generation};
use perdura_server::settings::{Settings, units};
use perdura_wal::block::BLOCK_BYTES_MAX;
use perdura_workloads::latency::LatencyUs;
use perdura_workloads::mirror::buffer::BufferSide;
use perdura_workloads::mirror::commit::{CommitBench, CommitSide};
use perdura_workloads::mirror::ship::{ShipBench, ShipReport};
use perdura_workloads::turn::VALUE_BYTES_MIN;

use crate::exit::Usage;
use crate::nodes;
use crate::output;
use crate::setting_args::NodeClientArgs;
use crate::verb::logd::key;

/// The shortest block that the log writes, bytes.
const BLOCK_BYTES_MIN: usize = 4096;

/// Compare appends of blocks to nodes of the mirrored log with durable writes to disk.
///
/// One client appends one block at a time, in four modes that take turns. In the first three modes a block goes to the
/// first node, to two nodes, or durably to the data directory's disk. In the fourth mode the first node acknowledges a
/// block, and the block is copied to disk later. This mode is not durable: if that node ends, blocks that are not yet
/// on disk are lost. If the node is on this machine, the benchmark also encodes records into a ring shared with the
/// node, with and without a log buffer. At the end the benchmark removes its data from the nodes and the disk.
///
/// With --commits: compares, in turns, the commits of two databases. The nodes mirror the first database's log. Commits
/// of the second database wait for the disk.
#[derive(Debug, Parser)]
#[command(
    args_override_self = true,
    after_help = "Example:\n  \
    perdura logd --listen 127.0.0.1:7379 &\n  \
    perdura logd --listen 127.0.0.1:7380 &\n  \
    perdura bench mirror --nodes 127.0.0.1:7379,127.0.0.1:7380 --data perdura-data\n  \
    perdura bench mirror --nodes 127.0.0.1:7379,127.0.0.1:7380 --commits --threads 1,16"
)]
#[group(skip)]
pub struct MirrorArgs {
    /// One node or two, each HOST:PORT.
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    nodes: Vec<String>,
    /// Block sizes from FROM to TO, each twice the previous size. 4KiB to 4MiB are allowed.
    #[arg(long, value_name = "FROM..TO", default_value = "4KiB..64KiB", value_parser = sizes)]
    bytes: Sizes,
    /// The total time to measure, divided among the sizes.
    #[arg(long, value_name = "S", default_value = "5", value_parser = units::duration)]
    seconds: Duration,
    /// A directory on the disk to measure. The benchmark compares the nodes with this disk.
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Poll for replies without sleeping.
    #[arg(long)]
    spin: bool,
    /// Measure commits of databases. The databases are left in the data directory.
    #[arg(long, conflicts_with_all = ["spin", "tls"])]
    commits: bool,
    /// Size of each value in bytes [default: the value fills a block of the log].
    #[arg(long, value_name = "N", requires = "commits")]
    value_bytes: Option<usize>,
    /// Number of threads that commit.
    #[arg(
        long,
        value_name = "N,M",
        value_delimiter = ',',
        default_value = "1",
        requires = "commits"
    )]
    threads: Vec<usize>,
    /// Process ids of nodes. Their processor time is then measured too.
    #[arg(
        long,
        value_name = "PID,PID",
        value_delimiter = ',',
        requires = "commits"
    )]
    node_pids: Vec<u32>,
    /// A file with the nodes' key.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Speak TLS to the nodes. `tls-ca-cert-file` names the authorities that issue their certificates.
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    flags: NodeClientArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Sizes of blocks.
#[derive(Debug, Clone)]
struct Sizes(Vec<usize>);

fn sizes(text: &str) -> Result<Sizes, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let size = |text: &str| usize::try_from(units::bytes(text)?).map_err(|e| e.to_string());
    let (from, to) = (size(from)?, size(to)?);
    let each = std::iter::successors(Some(from), |size| size.checked_mul(2));
    let all: Vec<usize> = each.take_while(|size| *size <= to).collect();
    debug_assert!(all.is_sorted(), "each size is twice the one before");
    let fits = |size: &usize| {
        (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(size) && size.is_multiple_of(BLOCK_BYTES_MIN)
    };
    if all.is_empty() || !all.iter().all(fits) {
        return Err("a block has 4KiB to 4MiB, whole multiples of 4KiB".into());
    }
    Ok(Sizes(all))
}

pub fn run(args: &MirrorArgs) -> Result<()> {
    ensure!(
        args.nodes.len() <= 2,
        Usage("--nodes has one address or two".into())
    );
    if args.commits {
        return commits(args);
    }
    let tls = match args.tls {
        false => None,
        true => {
            let mut settings = Settings::default();
            args.flags.0.apply(&mut settings)?;
            let config = settings.server.tls_files().client_config();
            Some(config.map_err(|why| Usage(format!("TLS: {why}")))?)
        }
    };
    // The rings belong to a random database id, so they cannot clash with those of a real database.
    let mut uuid = Uuid([0; 16]);
    uuid.0.copy_from_slice(&draw_nonce()?[..16]);
    let sizes = &args.bytes.0;
    let longest = sizes.last().copied().unwrap_or(BLOCK_BYTES_MAX);
    let report = ShipBench {
        nodes: args.nodes.clone(),
        net: TcpNet::new(&args.nodes, tls)?,
        caller: Caller {
            uuid,
            generation: Generation(1),
            key: key(args.key_file.as_deref())?,
            ring_bytes_min: 2 * to_u64(longest),
        },
        data: args.data.clone(),
        block_bytes: sizes.clone(),
        duration: args.seconds / to_u32(sizes.len()),
        spin: args.spin,
    }
    .run()?;
    if args.json {
        return output::json(&report);
    }
    output::text(&text(&report))
}

/// Runs the measurement of `--commits`.
fn commits(args: &MirrorArgs) -> Result<()> {
    ensure!(
        args.nodes.len() == 2 && args.threads.iter().all(|count| (1..=1024).contains(count)),
        Usage("--commits takes two nodes, and --threads 1 to 1024".into())
    );
    ensure!(
        args.value_bytes
            .is_none_or(|bytes| bytes >= VALUE_BYTES_MIN),
        Usage(format!(
            "--value-bytes is at least {VALUE_BYTES_MIN}, so that each value differs from the one before"
        ))
    );
    let alone = Options::new(args.data.join("disk"));
    // In a measurement both nodes may be on one machine.
    let node_settings = NodeSettings {
        groups: vec![args.nodes.join(",")],
        view: Some(args.data.join("view")),
        key_file: args.key_file.clone(),
        one_machine: true,
        ..NodeSettings::default()
    };
    std::fs::create_dir_all(args.data.join("view"))?;
    let mirrored = Options {
        nodes: nodes::of(&node_settings)?,
        node_settings,
        ..Options::new(args.data.join("mirror"))
    };
    let rows = to_u32(args.bytes.0.len() * args.threads.len());
    debug_assert!(rows > 0, "there is a row to measure");
    let report = CommitBench {
        disk: alone,
        mirror: mirrored,
        block_bytes: args.bytes.0.clone(),
        value_bytes: args.value_bytes,
        threads: args.threads.clone(),
        duration: args.seconds / rows,
        node_pids: args.node_pids.clone(),
    }
    .run()?;
    if args.json {
        return output::json(&report);
    }
    let mut text = format!(
        "view      {}\nlatency   p50 / p99 us; commits a second; processor us a commit; and the mirror's over the disk's\n",
        report.view
    );
    for row in &report.rows {
        let side = |side: &CommitSide| {
            let LatencyUs { p50, p99, .. } = side.latency_us;
            let cpu = side.cpu_us.map_or("-".into(), |us| format!("{us:.1}"));
            format!("{p50} / {p99}; {:.0}; {cpu}", side.per_second)
        };
        let (threads, kib) = (row.threads, row.block_bytes / 1024);
        let (disk, mirror) = (side(&row.disk), side(&row.mirror));
        let cpu = row.cpu_of_disk.map_or("-".into(), |of| format!("{of:.2}"));
        let (p50, rate) = (row.p50_of_disk, row.rate_of_disk);
        let exposed = row.exposed_us;
        let _ = writeln!(
            text,
            "{threads:>3} threads, {kib:>2} KiB  disk {disk}  mirror {mirror}  ratios {p50:.2}; {rate:.2}; {cpu}  exposed p99.9 \
             {} us, at most {} us and {} bytes",
            exposed.p999, exposed.max, row.exposed_bytes_max
        );
    }
    output::text(&text)
}

/// Returns a report for people.
fn text(report: &ShipReport) -> String {
    let mut text = String::new();
    for node in &report.nodes {
        let (address, inc, machine) = (&node.address, &node.inc, &node.machine);
        let _ = writeln!(text, "node      {address}: {inc} of machine {machine}");
    }
    let _ = writeln!(
        text,
        "waiting   {}; disk: {}\nlatency   p50 / p99 us, and p50 over the disk's",
        if report.spin { "spinning" } else { "asleep" },
        report.disk
    );
    let shown = |us: &LatencyUs| format!("{} / {}", us.p50, us.p99);
    for row in &report.rows {
        let two = row.two_us.zip(row.two_of_disk);
        let two = two.map_or(String::new(), |(us, ratio)| {
            format!(", two nodes {} ({ratio:.2})", shown(&us))
        });
        let _ = writeln!(
            text,
            "{:>4} KiB  disk {}, one node {} ({:.2}){two}",
            row.block_bytes / 1024,
            shown(&row.disk_us),
            shown(&row.one_us),
            row.one_of_disk
        );
    }
    let _ = writeln!(
        text,
        "one node, copied later, NOT DURABLE: the end of the node loses what the disk lacks; latency, and that loss by age and bytes"
    );
    for row in &report.rows {
        let easy = &row.one_copied_later_not_durable;
        let _ = writeln!(
            text,
            "{:>4} KiB  {} ({:.2}), loses the last {} us, at most {} us and {} bytes",
            row.block_bytes / 1024,
            shown(&easy.latency_us),
            easy.of_disk,
            easy.lost_with_the_node_us.p50,
            easy.lost_with_the_node_us.max,
            easy.lost_with_the_node_bytes_max
        );
    }
    match &report.no_log_buffer {
        Some(why) => _ = writeln!(text, "log buffer  not measured: {why}"),
        None => {
            let way = "encoded into a buffer, or into a mapped ring: copies of each byte and us a block; without over with";
            let _ = writeln!(text, "log buffer  {way}");
        }
    }
    for row in &report.log_buffer {
        let side = |side: &BufferSide| {
            format!(
                "{:.2} copies, {:.2} us",
                side.copies_a_block, side.us_a_block
            )
        };
        let _ = writeln!(
            text,
            "{:>4} KiB  with {}, without {} ({:.2})",
            row.block_bytes / 1024,
            side(&row.with_buffer),
            side(&row.without_buffer),
            row.without_of_with
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_doubled_from_the_first_to_the_last() {
        assert_eq!(sizes("4KiB..16KiB").unwrap().0, [4096, 8192, 16384]);
        assert_eq!(sizes("12KiB").unwrap().0, [12288]);
        for wrong in [
            "",
            "1KiB",
            "5000",
            "8KiB..4KiB",
            "4KiB..8MiB",
            "4KiB-8KiB",
            "..",
        ] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }
}
