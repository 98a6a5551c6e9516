//! Figure 4 with its table: the number of pages that a replay of the log reads, by the size of the buffer pool.

use anyhow::{Result, ensure};

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::stand::{ArchiveStand, Shape};
use crate::drive::ModelledDisk;
use crate::num::{f64_of, ratio};

/// The sizes of the pool in the paper's table, as parts of the database, each with the paper's number of reads in a
/// traditional replay.
const POOLS: [(f64, u64); 12] = [
    (0.01, 50_335_811),
    (0.05, 41_020_158),
    (0.1, 34_283_852),
    (0.2, 22_373_075),
    (0.3, 12_155_559),
    (0.4, 4_879_686),
    (0.5, 2_387_143),
    (0.6, 1_791_567),
    (0.7, 1_601_986),
    (0.8, 1_542_317),
    (0.9, 1_513_885),
    (1.0, 1_491_613),
];
/// The paper's number of reads in its single pass.
const PAPER_SINGLE_PASS: u64 = 1_472_945;
/// The number of bytes that an update changes.
const CHANGED_BYTES: usize = 100;

/// One size of the pool.
struct Point {
    part: f64,
    pages: usize,
    paper: u64,
    traditional: u64,
    single_pass: u64,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the restore; restores with different results.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let scale = &lab.scale.archive;
    let shape = Shape::with_log(scale.pool_image_mb, scale.pool_log, CHANGED_BYTES);
    lab.say(&format!(
        "an image of {} MB and a log of {} updates",
        shape.image_mb, shape.updates
    ));
    let stand = ArchiveStand::new(&shape, lab.seed)?;
    let free = ModelledDisk::default();
    let restoring = stand.restoring(free, free, lab.cores);
    let inputs = restoring.inputs()?;
    let mut points: Vec<Point> = Vec::new();
    for (part, paper) in POOLS {
        lab.say(&format!("a pool of {part} of the database"));
        let (_, single) = restoring.restore()?;
        let pages = pool_pages(single.pages, part);
        let replay = restoring.replay(pages)?;
        let same = |a: &perdura_restore::RestoreReport| (a.epoch, a.pages, a.applied);
        ensure!(
            same(&single) == same(&replay.restored),
            "both ways restore the same pages from the same records"
        );
        points.push(Point {
            part,
            pages,
            paper,
            traditional: replay.page_reads,
            single_pass: single.page_reads,
        });
    }
    let log = ratio(f64_of(inputs.log_bytes), f64_of(inputs.backup_bytes));
    let millions = |count: u64| f64_of(count) / 1e6;
    let line = |of: &dyn Fn(&Point) -> f64| points.iter().map(|p| (p.part, of(p))).collect();
    Ok(Figure {
        name: "004-fig4",
        title: "pages that replaying the log reads, by the size of the buffer pool".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![format!(
            "{} updates of {CHANGED_BYTES} bytes, uniform; log {log:.2} times the backup of {:.1} MB",
            shape.updates,
            f64_of(inputs.backup_bytes) / 1e6
        )],
        columns: "ratio,pool_pages,traditional,single_pass,paper_traditional,paper_single_pass",
        rows: points
            .iter()
            .map(|point| {
                vec![
                    cell(point.part),
                    point.pages.into(),
                    point.traditional.into(),
                    point.single_pass.into(),
                    point.paper.into(),
                    PAPER_SINGLE_PASS.into(),
                ]
            })
            .collect(),
        claims: claims(&points),
        plot: Plot {
            title: "Figure 4: page reads during log replay".into(),
            subtitle: format!("uniform updates, log {log:.1} times the database"),
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

/// Returns the number of pages of a part of the database, at least one.
fn pool_pages(pages: u64, part: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let pool = (f64_of(pages) * part).round() as usize;
    pool.max(1)
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let (first, last) = (&points[0], &points[points.len() - 1]);
    let singles = points.iter().map(|point| point.single_pass);
    let (least, most) = (singles.clone().min(), singles.max());
    let (least, most) = (f64_of(least.unwrap_or(0)), f64_of(most.unwrap_or(0)));
    let reads = |point: &Point| ratio(f64_of(point.traditional), f64_of(point.single_pass));
    vec![
        Claim::measured(
            "single pass, most reads / least",
            "1.000002",
            Target::AtMost(1.001),
            ratio(most, least),
            "the merge has no pool",
        ),
        Claim::measured(
            "traditional / single pass, pool of 0.01",
            "34",
            Target::AtLeast(20.0),
            reads(first),
            "updates here are uniform, the paper's are TPC-C's",
        ),
        Claim::measured(
            "traditional / single pass, pool of 1",
            "1.01",
            Target::AtMost(1.05),
            reads(last),
            "each page is read once",
        ),
    ]
}
