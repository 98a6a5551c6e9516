//! Figure 4 with its table: the number of pages that a replay of the log reads, by the size of the buffer pool.
//!
//! Both ways get a pool of the same size. The traditional replay keeps pages of the new database in it. The single pass
//! has its page buffers in it. All reads of pages are counted at the disks.

use anyhow::{Result, ensure};

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::pool_pages;
use super::stand::{ArchiveStand, changes, txns_of};
use crate::drive::ModelledDisk;
use crate::num::{f64_of, ratio};

/// A line of the paper's table: the size of the pool, as a part of the database, and the page reads of both ways.
struct PaperPoint {
    part: f64,
    traditional: u64,
    single_pass: u64,
}

const fn paper(part: f64, traditional: u64, single_pass: u64) -> PaperPoint {
    PaperPoint {
        part,
        traditional,
        single_pass,
    }
}

/// The paper's table.
const PAPER: [PaperPoint; 12] = [
    paper(0.01, 50_335_811, 1_472_945),
    paper(0.05, 41_020_158, 1_472_945),
    paper(0.1, 34_283_852, 1_472_945),
    paper(0.2, 22_373_075, 1_472_945),
    paper(0.3, 12_155_559, 1_472_945),
    paper(0.4, 4_879_686, 1_472_944),
    paper(0.5, 2_387_143, 1_472_942),
    paper(0.6, 1_791_567, 1_472_942),
    paper(0.7, 1_601_986, 1_472_943),
    paper(0.8, 1_542_317, 1_472_943),
    paper(0.9, 1_513_885, 1_472_942),
    paper(1.0, 1_491_613, 1_472_942),
];
/// The paper's number of transactions whose log is replayed.
const PAPER_TXNS: u64 = 7_500_000;

/// Returns the paper's ratios of the page reads of both ways, by the size of the pool as a part of the database.
pub(in super::super) fn paper_ratios() -> impl Iterator<Item = (f64, f64)> {
    let ratio = |point: &PaperPoint| ratio(f64_of(point.traditional), f64_of(point.single_pass));
    PAPER.iter().map(move |point| (point.part, ratio(point)))
}

/// The page reads with one size of the pool.
#[derive(Debug, Clone, Copy)]
struct Point {
    part: f64,
    pages: usize,
    traditional: u64,
    single_pass: u64,
}

/// The page reads with all sizes of the pool, smallest size first.
#[derive(Debug, Clone)]
struct Reads {
    txns: u64,
    /// The number of pages in the backup.
    backup_pages: u64,
    /// The size of the log, divided by that of the backup.
    log: f64,
    points: Vec<Point>,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the restore; restores with different results.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let reads = measure(lab)?;
    let millions = |count: u64| f64_of(count) / 1e6;
    let line = |of: &dyn Fn(&Point) -> f64| reads.points.iter().map(|p| (p.part, of(p))).collect();
    Ok(Figure {
        name: "004-fig4",
        title: "pages that replaying the log reads, by the size of the buffer pool".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "row changes with the shares of TPC-C, as of {} transactions; log {:.2} times the backup of {} pages",
                reads.txns, reads.log, reads.backup_pages
            ),
            "both ways get the same pool; reads of pages are counted at the disks; buffers for reading the log are extra in \
             both"
                .into(),
        ],
        columns: "ratio,pool_pages,traditional,single_pass,paper_traditional,paper_single_pass",
        rows: reads
            .points
            .iter()
            .zip(PAPER)
            .map(|(point, paper)| {
                vec![
                    cell(point.part),
                    point.pages.into(),
                    point.traditional.into(),
                    point.single_pass.into(),
                    paper.traditional.into(),
                    paper.single_pass.into(),
                ]
            })
            .collect(),
        claims: claims(&reads),
        plot: Plot {
            title: "Figure 4: page reads during log replay".into(),
            subtitle: format!("row changes of TPC-C, {} transactions", reads.txns),
            panels: vec![Panel::new(
                "",
                "Page reads (millions)",
                Chart::lines(
                    "Buffer size / database size",
                    vec![
                        Series::solid("Traditional", line(&|p| millions(p.traditional))),
                        Series::solid("Single pass", line(&|p| millions(p.single_pass))),
                    ],
                ),
            )],
        },
    })
}

/// Restores in both ways with each size of the pool.
fn measure(lab: &Lab<'_>) -> Result<Reads> {
    let image_mb = lab.scale.archive.pool_image_mb;
    lab.say(&format!("an image of {image_mb} MB and its log"));
    let stand = ArchiveStand::of_orders(image_mb, changes(image_mb), lab.seed)?;
    let free = ModelledDisk::default();
    let restoring = stand.restoring(free, free, lab.cores);
    let inputs = restoring.inputs()?;
    let (_, whole) = restoring.restore()?;
    let mut points: Vec<Point> = Vec::new();
    for PaperPoint { part, .. } in PAPER {
        lab.say(&format!("a pool of {part} of the database"));
        let pages = pool_pages(whole.pages, part);
        let (_, single, single_reads) = restoring.restore_within(pages)?;
        let (replay, replay_reads) = restoring.replay(pages)?;
        let same = |a: &perdura_restore::RestoreReport| (a.epoch, a.pages, a.applied);
        ensure!(
            same(&single) == same(&replay.restored),
            "both ways restore the same pages from the same records"
        );
        points.push(Point {
            part,
            pages,
            // The copying of the backup is no part of the replay.
            traditional: replay_reads.database,
            single_pass: single_reads.all(),
        });
    }
    Ok(Reads {
        txns: txns_of(changes(image_mb)),
        backup_pages: inputs.backup_pages,
        log: ratio(f64_of(inputs.log_bytes), f64_of(inputs.backup_bytes)),
        points,
    })
}

fn claims(reads: &Reads) -> Vec<Claim> {
    let singles = || reads.points.iter().map(|point| point.single_pass);
    let most = f64_of(singles().max().unwrap_or(0));
    let least = f64_of(singles().min().unwrap_or(0));
    let paper_singles = || PAPER.iter().map(|point| point.single_pass);
    let paper_most = f64_of(paper_singles().max().unwrap_or(0));
    let paper_spread = ratio(paper_most, f64_of(paper_singles().min().unwrap_or(0)));
    let mut claims = vec![
        Claim::measured(
            "single pass, most page reads / least",
            Paper::of("constant, but for up to 3 page reads", paper_spread)
                .within(paper_spread - 1.0),
            Bounds(Better::Less, Finding::AtMost(paper_spread)),
            ratio(most, least),
            "the pool bounds the buffers of pages: it sizes the reads, and a page that is read twice would show",
        ),
        Claim::measured(
            "single pass, most page reads / pages of the backup",
            Paper::of("a single read/write cycle a page", 1.0),
            Bounds(Better::Neither, Finding::Within(1.0, 0.0)),
            ratio(most, f64_of(reads.backup_pages)),
            "",
        ),
    ];
    claims.extend(
        reads
            .points
            .iter()
            .zip(&PAPER)
            .filter_map(|(point, paper)| beside(point, paper)),
    );
    let per_txn = |count: u64, txns: u64| ratio(f64_of(count), f64_of(txns));
    claims.extend(reads.points.first().map(|point| {
        Claim::measured(
            "traditional, page reads a transaction, pool of 0.01",
            Paper::of(
                "50,335,811 / 7.5 million",
                per_txn(PAPER[0].traditional, PAPER_TXNS),
            ),
            Bounds(Better::Neither, Finding::Any),
            per_txn(point.traditional, reads.txns),
            "this shows that the accesses of the transactions are the paper's",
        )
    }));
    claims
}

/// Returns the claim about one size of the pool, if there is one.
fn beside(point: &Point, paper: &PaperPoint) -> Option<Claim> {
    let of = |traditional, single| ratio(f64_of(traditional), f64_of(single));
    let (bounds, why) = match paper.part {
        0.01 | 0.1 | 0.3 => (
            Bounds(Better::More, Finding::AtLeast(1.0)),
            "a page has 16 KiB, not 8, so that it has twice the records and is read twice as often",
        ),
        // A page about once: nearer to once than to never or twice.
        1.0 => (
            Bounds(Better::Neither, Finding::Within(1.0, 0.5)),
            "the single pass also reads the pages without records",
        ),
        _ => return None,
    };
    let stated = of(paper.traditional, paper.single_pass);
    Some(Claim::measured(
        &format!("traditional / single pass, pool of {}", paper.part),
        Paper::of(&format!("{stated:.2}"), stated),
        bounds,
        of(point.traditional, point.single_pass),
        why,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::*;

    /// Returns the paper's table.
    fn as_paper() -> Reads {
        let point = |paper: &PaperPoint| Point {
            part: paper.part,
            pages: 100,
            traditional: paper.traditional,
            single_pass: paper.single_pass,
        };
        Reads {
            txns: PAPER_TXNS,
            backup_pages: 1_472_945,
            log: 6.0,
            points: PAPER.iter().map(point).collect(),
        }
    }

    fn verdicts(change: impl FnOnce(&mut Reads)) -> Vec<Verdict> {
        let mut reads = as_paper();
        change(&mut reads);
        claims(&reads).iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn the_papers_table_is_as_the_paper() {
        assert_eq!(verdicts(|_| {}), [Verdict::AsPaper; 7]);
    }

    #[test]
    fn a_page_that_is_read_twice_fails() {
        let few = |reads: &mut Reads| {
            reads.backup_pages = 1_000;
            for point in &mut reads.points {
                point.single_pass = 1_000;
            }
        };
        assert_eq!(verdicts(few)[..2], [Verdict::AsPaper; 2]);
        let twice = verdicts(|reads| {
            few(reads);
            reads.points[0].single_pass += 1;
        });
        assert_eq!(twice[..2], [Verdict::Fails; 2]);
        let each_twice = verdicts(|reads| {
            few(reads);
            for point in &mut reads.points {
                point.single_pass += 1;
            }
        });
        assert_eq!(each_twice[..2], [Verdict::AsPaper, Verdict::Fails]);
    }

    #[test]
    fn every_claim_about_the_replay_can_come_out_otherwise() {
        let by = |times: u64, part: u64| {
            verdicts(|reads| {
                for point in &mut reads.points {
                    point.traditional = point.traditional * times / part;
                }
            })
        };
        assert_eq!(by(1, 2)[2..], [Verdict::Weaker; 5]);
        let few = by(1, 50);
        assert_eq!(few[2..6], [Verdict::Fails; 4]);
        assert_eq!(few[6], Verdict::Weaker);
        assert_eq!(by(2, 1)[5], Verdict::Fails);
    }
}
