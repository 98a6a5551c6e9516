//! Figure 1: the time of replaying an unsorted and a sorted log on a modelled hard disk.

use anyhow::{Result, ensure};

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Bar, Chart, Panel, Plot};
use super::stand::{ArchiveStand, txns_of};
use super::{HARD_DISK, HARD_DISK_IN_ORDER, pool_pages};
use crate::num::{f64_of, ratio};

/// The size of the buffer pool, as a part of the database.
const POOL: f64 = 0.01;
/// The paper's number of transactions whose log is replayed.
const PAPER_TXNS: f64 = 7.5e6;
/// The paper's time of the traditional replay, seconds.
const PAPER_TRADITIONAL: f64 = 4.0 * 3600.0;
/// The paper's time of the single pass, seconds.
const PAPER_SINGLE_PASS: f64 = 7.0 * 60.0;

/// A way to replay the log, and what it took.
#[derive(Debug, Clone, Copy)]
struct WayTook {
    seconds: f64,
    page_reads: u64,
    page_writes: u64,
}

/// Both ways with the same pool.
#[derive(Debug, Clone, Copy)]
struct BothWaysTook {
    txns: u64,
    /// The number of records that each way applied.
    records: u64,
    pages: u64,
    pool: usize,
    backup_bytes: u64,
    log_bytes: u64,
    traditional: WayTook,
    single_pass: WayTook,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the restore.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let ways = measure(lab)?;
    let bar = |label: &str, way: &WayTook| Bar {
        label: label.into(),
        parts: vec![("Log replay".into(), way.seconds)],
    };
    let row = |label: &str, way: &WayTook| {
        vec![
            label.into(),
            cell(way.seconds),
            way.page_reads.into(),
            way.page_writes.into(),
        ]
    };
    Ok(Figure {
        name: "004-fig1",
        title: "time to replay a traditional and a sorted log".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "row changes with the shares of TPC-C, as of {} transactions; backup of {:.1} MB, log {:.1} MB; pool of {} of \
                 {} pages in both ways",
                ways.txns,
                f64_of(ways.backup_bytes) / 1e6,
                f64_of(ways.log_bytes) / 1e6,
                ways.pool,
                ways.pages
            ),
            format!(
                "modelled disks of {} MB/s, {} us a read; the traditional replay is onto a standing copy of the backup and \
                 reads its log without that, the single pass reads the backup and writes the database as well; one thread",
                HARD_DISK.mbps, HARD_DISK.latency_us
            ),
        ],
        columns: "way,seconds,page_reads,page_writes",
        rows: vec![
            row("traditional", &ways.traditional),
            row("single pass", &ways.single_pass),
        ],
        claims: claims(&ways),
        plot: Plot {
            title: "Figure 1: time to replay the log".into(),
            subtitle: format!(
                "modelled disk, pool of 1 % of the database: {:.0} times",
                ways.faster()
            ),
            panels: vec![Panel::new(
                "",
                "Time (sec)",
                Chart::Bars(vec![
                    bar("Traditional", &ways.traditional),
                    bar("Single pass", &ways.single_pass),
                ]),
            )],
        },
    })
}

impl BothWaysTook {
    fn faster(&self) -> f64 {
        ratio(self.traditional.seconds, self.single_pass.seconds)
    }
}

/// Replays the log in both ways.
fn measure(lab: &Lab<'_>) -> Result<BothWaysTook> {
    let (image_mb, changes) = (
        lab.scale.archive.device_image_mb,
        lab.scale.archive.device_changes,
    );
    lab.say(&format!("an image of {image_mb} MB and its log"));
    let stand = ArchiveStand::of_orders(image_mb, changes, lab.seed)?;
    // Only one thread, because the model serves the accesses of several threads at the same time,
    // which no hard disk does.
    let restoring = stand.restoring(HARD_DISK, HARD_DISK, 1);
    let inputs = restoring.inputs()?;
    let pool = pool_pages(inputs.backup_pages, POOL);
    lab.say(&format!("the single pass with {pool} pages of memory"));
    let (single_seconds, single, single_reads) = restoring.restore_within(pool)?;
    lab.say(&format!("the replay through a pool of {pool} pages"));
    let in_order = stand.restoring(HARD_DISK_IN_ORDER, HARD_DISK, 1);
    let (replay, replay_reads) = in_order.replay(pool)?;
    ensure!(
        replay.restored.applied == single.applied,
        "both apply the same records"
    );
    Ok(BothWaysTook {
        txns: txns_of(changes),
        records: single.applied,
        pages: single.pages,
        pool,
        backup_bytes: inputs.backup_bytes,
        log_bytes: inputs.log_bytes,
        traditional: WayTook {
            seconds: f64_of(replay.replay_ns) / 1e9,
            // The copying of the backup is no part of the replay.
            page_reads: replay_reads.database,
            page_writes: replay.page_writes,
        },
        single_pass: WayTook {
            seconds: single_seconds,
            page_reads: single_reads.all(),
            page_writes: single.page_writes,
        },
    })
}

fn claims(ways: &BothWaysTook) -> Vec<Claim> {
    let ms_a_txn = |seconds: f64| ratio(1e3 * seconds, f64_of(ways.txns));
    let paper_ms = |seconds: f64| 1e3 * seconds / PAPER_TXNS;
    vec![
        Claim::measured(
            "traditional / single pass, seconds",
            Paper::of(
                "34 (almost 4 hours, 7 minutes)",
                PAPER_TRADITIONAL / PAPER_SINGLE_PASS,
            ),
            Bounds(Better::More, Finding::AtLeast(1.0)),
            ways.faster(),
            "the single pass copies the backup too, which the paper leaves out",
        ),
        Claim::measured(
            "single pass, a transaction of the log",
            Paper::of("7 minutes / 7.5 million", paper_ms(PAPER_SINGLE_PASS)),
            Bounds(Better::Less, Finding::Any),
            ms_a_txn(ways.single_pass.seconds),
            "with the copying of the backup, which the paper leaves out",
        )
        .in_unit(" ms"),
        Claim::measured(
            "traditional, a transaction of the log",
            Paper::of("almost 4 hours / 7.5 million", paper_ms(PAPER_TRADITIONAL)),
            Bounds(Better::Neither, Finding::Any),
            ms_a_txn(ways.traditional.seconds),
            "the paper does not state the time of an access; here it has the 1 ms of the introduction",
        )
        .in_unit(" ms"),
        Claim::measured(
            "traditional, accesses for each record",
            Paper::of("0.25 (a hit ratio of 75 % in the introduction)", 0.25),
            Bounds(Better::Neither, Finding::Any),
            ratio(f64_of(ways.traditional.page_reads), f64_of(ways.records)),
            "the introduction assumes its ratio",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::*;

    /// Returns results with a 750th of the paper's transactions. Both ways took a 750th of the paper's times.
    fn as_paper() -> BothWaysTook {
        let way = |seconds, page_reads| WayTook {
            seconds,
            page_reads,
            page_writes: page_reads,
        };
        BothWaysTook {
            txns: 10_000,
            records: 200_000,
            pages: 1_000,
            pool: 10,
            backup_bytes: 16_384_000,
            log_bytes: 10_000_000,
            traditional: way(PAPER_TRADITIONAL / 750.0, 50_000),
            single_pass: way(PAPER_SINGLE_PASS / 750.0, 1_000),
        }
    }

    fn verdicts(change: impl FnOnce(&mut BothWaysTook)) -> Vec<Verdict> {
        let mut ways = as_paper();
        change(&mut ways);
        claims(&ways).iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn the_papers_times_are_as_the_paper() {
        assert_eq!(verdicts(|_| {}), [Verdict::AsPaper; 4]);
    }

    #[test]
    fn every_claim_can_come_out_otherwise() {
        let slow_pass = verdicts(|ways| ways.single_pass.seconds = ways.traditional.seconds * 1.1);
        assert_eq!(slow_pass[..2], [Verdict::Fails, Verdict::Weaker]);
        let half = verdicts(|ways| ways.traditional.seconds /= 2.0);
        assert_eq!(half[0], Verdict::Weaker);
        assert_eq!(half[2], Verdict::Weaker);
        let hits = verdicts(|ways| ways.traditional.page_reads /= 10);
        assert_eq!(hits[3], Verdict::Weaker);
    }
}
