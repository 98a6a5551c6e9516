//! Formulas 3 and 4: the delay of a block on disk and in memory. Compares the paper's delays with
//! those of this machine.

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::super::sample::Sample;
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
    /// Returns the median time of a durable write, divided by the median time on another medium. `medium` is an index
    /// of [`NAMES`].
    fn sync_over(&self, medium: usize) -> f64 {
        ratio(self.took[0].p50, self.took[medium].p50)
    }

    /// Returns the ratio of [`Point::sync_over`] for each part of the measurement.
    fn sync_over_by_part(&self, medium: usize) -> Vec<f64> {
        let parts = self.took[0].parts.iter().zip(&self.took[medium].parts);
        parts.map(|(sync, other)| ratio(*sync, *other)).collect()
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
        claims: printed(delay_ratio)
            .into_iter()
            .chain(claims(&points))
            .collect(),
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

/// The ratios of delays in the paper's text, by the size of a block in KB, and the rounding error of the text.
const PRINTED: [(u32, &str, f64, f64); 2] = [(4, "1:237", 237.0, 2.0), (64, "1:20", 20.0, 0.5)];

/// Judges whether the paper's formulas give the ratios of its text.
fn printed(formulas: fn(u32) -> f64) -> [Claim; 2] {
    PRINTED.map(|(block_kb, words, value, within)| {
        let what = format!("the paper's formulas, disk / memory, {block_kb} KB");
        let why =
            "(3) is 0.27 L + 66, (4) is 0.064 L + 0.025, in 0.1 ms; (4) is printed as the disk's";
        let paper = Paper::of(words, value);
        Claim::arithmetic(
            &what,
            paper,
            Finding::Within(value, within),
            formulas(block_kb),
            why,
        )
    })
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let (first, last) = (&points[0], &points[points.len() - 1]);
    let [small, large] = PRINTED.map(|(_, words, value, _)| Paper::of(words, value));
    let named = |point: &Point, medium: usize| {
        let name = NAMES[medium];
        format!("here, {} / {name}, {} KiB", NAMES[0], point.block_kb)
    };
    let gains = Bounds(Better::More, Finding::AtLeast(1.0));
    let trip = |point: &Point, paper, why: &str| {
        let ours = Sample::of(point.sync_over_by_part(2));
        Claim::measured(&named(point, 2), paper, gains, ours, why)
    };
    let copy = |point: &Point| {
        let why = "the least that a log in memory can take; the paper's memory is behind a network";
        let ours = Sample::of(point.sync_over_by_part(1));
        Claim::own(&named(point, 1), gains.1, ours, why)
    };
    let falls = first
        .sync_over_by_part(2)
        .into_iter()
        .zip(last.sync_over_by_part(2));
    vec![
        trip(
            first,
            small,
            "a disk of 2005 took 6.6 ms a block; most of a round trip here is two threads that wake up",
        ),
        trip(
            last,
            large,
            "a durable write here does not move a head, and a block costs the loopback little more than its wake-ups",
        ),
        copy(first),
        copy(last),
        Claim::measured(
            "here, ratio at the smallest block / at the largest, durable write over round trip",
            Paper::of("237 / 20", 237.0 / 20.0),
            gains,
            Sample::of(falls.map(|(small, large)| ratio(small, large))),
            "the paper's memory costs by the KB, its disk by the block; the loopback costs by the block, too",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::super::logical::judged::{Spoiled, each_can_be_missed};
    use super::*;

    /// The times of a durable write, a copy and a round trip, by the size of a block.
    type Data = [(u32, [f64; 3]); 2];

    fn as_paper() -> Data {
        [(4, [6_708.0, 1.0, 28.1]), (64, [8_328.0, 10.0, 412.1])]
    }

    fn judge(data: &Data) -> Vec<Claim> {
        let took = |us: f64| Took {
            parts: [us; 5],
            p50: us,
            p99: us,
        };
        let points = data.map(|(block_kb, us)| Point {
            block_kb,
            took: us.map(took),
        });
        claims(&points)
    }

    #[test]
    fn each_claim_can_be_missed() {
        let changes: [Spoiled<Data>; 7] = [
            ("a round trip by TCP, 4 KiB", |data| data[0].1[2] = 40.0),
            ("a round trip by TCP, 4 KiB", |data| data[0].1[0] = 20.0),
            ("a round trip by TCP, 64 KiB", |data| data[1].1[0] = 400.0),
            ("a copy in memory, 4 KiB", |data| data[0].1[0] = 0.9),
            ("a copy in memory, 64 KiB", |data| data[1].1[1] = 9_000.0),
            ("ratio at the smallest block", |data| data[1].1[2] = 28.1),
            ("ratio at the smallest block", |data| {
                data[1].1[0] = 12_000.0
            }),
        ];
        each_can_be_missed(as_paper, judge, &changes);
    }

    #[test]
    fn formulas_that_give_other_ratios_fail() {
        let verdicts = |formulas| printed(formulas).map(|claim| claim.verdict);
        assert_eq!(verdicts(delay_ratio), [Verdict::Arithmetic; 2]);
        assert_eq!(
            verdicts(|block_kb| 0.9 * delay_ratio(block_kb)),
            [Verdict::Fails; 2]
        );
    }
}
