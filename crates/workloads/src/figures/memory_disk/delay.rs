//! Formulas 3 and 4: the delay of a block on disk and in memory. Compares the paper's delays with
//! those of this machine.

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::media::{Acknowledged, InMemory, Medium, OnDisk, Took, is_in_memory, measure};
use super::paper::{BLOCKS_KB, Formula, delay_ratio};
use super::table;
use crate::num::{ratio, rounded};

/// The names of the media, in the order in which they are measured.
const NAMES: [&str; 3] = ["a durable write", "a copy in memory", "a round trip by TCP"];

/// The results for one size of a block.
struct Point {
    block_kb: u32,
    /// The times on each medium, in the order of [`NAMES`].
    took: [Took; 3],
}

impl Point {
    /// Returns the time of a durable write, divided by that of another medium.
    fn sync_over(&self, medium: usize) -> f64 {
        ratio(self.took[0].p50, self.took[medium].p50)
    }
}

/// Makes the figure.
///
/// # Errors
/// Errors of the data folder's disk and of the loopback.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let folder = lab.disk_folder();
    let mut disk = OnDisk::new(&folder)?;
    let way = match (is_in_memory(&folder)?, disk.is_direct()) {
        (true, _) => "which is in memory, so its syncs mean nothing",
        (false, true) => "direct I/O",
        (false, false) => "through the operating system's cache",
    };
    let (mut memory, mut node) = (InMemory::new(), Acknowledged::new()?);
    let rounds = lab.scale.memory_disk.delay_rounds;
    lab.say(&format!("{rounds} blocks of each size"));
    let sizes = BLOCKS_KB.map(|block_kb| usize::try_from(block_kb).expect("a size") << 10);
    let media: &mut [&mut dyn Medium] = &mut [&mut disk, &mut memory, &mut node];
    let took = measure(media, &sizes, rounds)?;
    let point = |(block_kb, took): (u32, Vec<Took>)| Point {
        block_kb,
        took: [took[0], took[1], took[2]],
    };
    let points: Vec<Point> = BLOCKS_KB.into_iter().zip(took).map(point).collect();
    let mut setting = vec![
        format!(
            "a lone writer, {rounds} blocks of each size to each medium, sizes and media in turn, medians; a durable write (RWF_DSYNC) to a file in {}, {way}",
            folder.display()
        ),
        "a copy into a ring of 16 MiB of this process; the same block by TCP over the loopback to a thread that copies it and acknowledges"
            .into(),
    ];
    setting.extend(lines(&points));
    Ok(Figure {
        name: "003-delay",
        title: "delay of a block on disk and in memory by its size".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting,
        columns: "block_kb,paper_disk_ms,paper_memory_ms,paper_ratio,sync_us,sync_us_p99,\
            copy_us,copy_us_p99,round_trip_us,round_trip_us_p99,sync_over_copy,\
            sync_over_round_trip",
        rows: points
            .iter()
            .map(|point| {
                let [sync, copy, trip] = point.took;
                let papers = [
                    Formula::DISK.ms(point.block_kb),
                    Formula::MEMORY.ms(point.block_kb),
                    delay_ratio(point.block_kb),
                ];
                let ours = [sync, copy, trip]
                    .into_iter()
                    .flat_map(|took| [took.p50, took.p99]);
                let ratios = [point.sync_over(1), point.sync_over(2)];
                let numbers = papers.into_iter().chain(ours).chain(ratios).map(cell);
                std::iter::once(point.block_kb.into())
                    .chain(numbers)
                    .collect()
            })
            .collect(),
        claims: claims(&points),
        plot: plot(&points),
    })
}

fn lines(points: &[Point]) -> Vec<String> {
    let head = [
        "KB",
        "paper: disk ms",
        "memory ms",
        "ratio",
        "here: sync us",
        "copy us",
        "TCP us",
        "sync/copy",
        "sync/TCP",
    ];
    let row = |point: &Point| {
        let numbers = [
            Formula::DISK.ms(point.block_kb),
            Formula::MEMORY.ms(point.block_kb),
            delay_ratio(point.block_kb),
            point.took[0].p50,
            point.took[1].p50,
            point.took[2].p50,
            point.sync_over(1),
            point.sync_over(2),
        ];
        let cells = numbers.iter().map(|number| rounded(*number).to_string());
        std::iter::once(point.block_kb.to_string())
            .chain(cells)
            .collect()
    };
    table(&head, &points.iter().map(row).collect::<Vec<_>>())
}

fn plot(points: &[Point]) -> Plot {
    let line = |of: &dyn Fn(&Point) -> f64| {
        points
            .iter()
            .map(|point| (f64::from(point.block_kb), of(point)))
            .collect()
    };
    let mut delays = vec![
        Series::broken(
            "paper: disk, (3)",
            line(&|p| 1e3 * Formula::DISK.ms(p.block_kb)),
        ),
        Series::broken(
            "paper: memory, (4)",
            line(&|p| 1e3 * Formula::MEMORY.ms(p.block_kb)),
        ),
    ];
    for (medium, name) in NAMES.into_iter().enumerate() {
        delays.push(Series::solid(
            format!("here: {name}"),
            line(&|p| p.took[medium].p50),
        ));
    }
    let ratios = vec![
        Series::broken("paper: (3) / (4)", line(&|p| delay_ratio(p.block_kb))),
        Series::solid("here: durable write / copy", line(&|p| p.sync_over(1))),
        Series::solid(
            "here: durable write / round trip",
            line(&|p| p.sync_over(2)),
        ),
    ];
    let panel = |title: &str, y: &str, series| {
        Panel::new(
            title,
            y,
            Chart::Powers {
                x: "Block (KiB)".into(),
                x_powers: false,
                series,
            },
        )
    };
    Plot {
        title: "Formulas 3 and 4: delay of a block".into(),
        subtitle: "a lone writer; the paper's disk and network of 2005 beside this machine's"
            .into(),
        panels: vec![
            panel("Delay", "Delay (us)", delays),
            panel("Disk / memory", "Ratio", ratios),
        ],
    }
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let (first, last) = (&points[0], &points[points.len() - 1]);
    let papers = |block_kb: u32, printed: &str, target| {
        let what = format!("the paper's formulas, disk / memory, {block_kb} KB");
        let why =
            "(3) is 0.27 L + 66, (4) is 0.064 L + 0.025, in 0.1 ms; (4) is printed as the disk's";
        Claim::measured(&what, printed, target, delay_ratio(block_kb), why)
    };
    let here = |point: &Point, medium: usize, why: &str| {
        let what = format!(
            "here, {} / {}, {} KiB",
            NAMES[0], NAMES[medium], point.block_kb
        );
        let paper = rounded(delay_ratio(point.block_kb)).to_string();
        Claim::reported(&what, &paper, point.sync_over(medium), why)
    };
    vec![
        papers(first.block_kb, "237", Target::Within(238.7, 0.1)),
        papers(last.block_kb, "20", Target::Within(20.0, 0.5)),
        here(
            first,
            2,
            "most of a round trip is two threads that wake up, whatever the block's size",
        ),
        here(last, 2, ""),
        here(first, 1, "the least that a log in memory can take"),
        here(last, 1, ""),
        Claim::reported(
            "here, ratio at the smallest block / at the largest, durable write over round trip",
            &rounded(delay_ratio(first.block_kb) / delay_ratio(last.block_kb)).to_string(),
            ratio(first.sync_over(2), last.sync_over(2)),
            "the smaller the block, the more memory gains: the paper's memory costs by the KB, its disk by the block",
        ),
    ]
}
