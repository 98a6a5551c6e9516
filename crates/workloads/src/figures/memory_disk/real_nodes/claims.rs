//! The claims of `003-table2-real` and `003-table3-real`.

use super::super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::super::paper::Paper;
use super::super::paper::{BLOCKS_KB, Formula, PRINTED_GAINS, TABLE_2, TABLE_3, USERS, mean_gain};
use super::runs::{LogMedium, PROBES_KB, RealTables};
use crate::num::{ratio, rounded};

/// A table of the paper.
type Printed = [[u32; 5]; 5];

/// Returns the claims about the disk with the paper's time.
pub(super) fn on_disk(tables: &RealTables) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (kb, ours) in PROBES_KB.into_iter().zip(tables.probes_ms) {
        let ms = Formula::DISK.ms(kb);
        claims.push(
            Claim::measured(
                &format!("a durable write of {kb} KB to the mounted disk"),
                Paper::of(&format!("{} ms", rounded(ms)), ms),
                Bounds(Better::Neither, Finding::AtLeast(ms)),
                ours,
                "through the file system, the loop device and the process that serves them; their own time comes on top",
            )
            .in_unit(" ms"),
        );
    }
    let why_one = "one disk writes a package after another: at 4 KB that is 0.61 MB/s, less than 500 users log here. The paper's 1,873 \
                   transactions a second would leave 326 bytes for each";
    claims.extend(linear(tables, LogMedium::OneDisk, &TABLE_2, why_one));
    let why_pool =
        "packages of one sync go to as many disks at once, so no user waits for another one's redo";
    claims.extend(linear(tables, LogMedium::Pool, &TABLE_2, why_pool));
    claims.extend(first_cell(
        tables,
        LogMedium::OneDisk,
        &TABLE_2,
        "the paper's unit of time is taken as a second; the think time is that of table 3, so the wait for the disk alone is predicted",
    ));
    claims
}

/// Returns the claims about the nodes and about their gain.
pub(super) fn on_nodes(tables: &RealTables) -> Vec<Claim> {
    let mut claims = Vec::new();
    for disk in [LogMedium::OneDisk, LogMedium::Pool] {
        for block in measured_blocks(tables) {
            claims.push(gain(tables, disk, block));
        }
        claims.extend(decline(tables, disk));
    }
    claims.extend(linear(
        tables,
        LogMedium::Nodes,
        &TABLE_3,
        "one thread executes for all users, and the nodes answer in a fraction of a millisecond",
    ));
    claims.extend(first_cell(
        tables,
        LogMedium::Nodes,
        &TABLE_3,
        "the think time comes from this cell, so a value near the paper's shows only that the wait is short",
    ));
    claims
}

/// Returns the measured sizes of blocks, as indexes.
fn measured_blocks(tables: &RealTables) -> Vec<usize> {
    let is_measured = |block: &usize| tables.cells.iter().any(|cell| cell.block == *block);
    (0..BLOCKS_KB.len()).filter(is_measured).collect()
}

fn gain(tables: &RealTables, disk: LogMedium, block: usize) -> Claim {
    let percent = 100.0 * (PRINTED_GAINS[block] - 1.0);
    let cells = 100.0 * (mean_gain(block) - 1.0);
    let why = match disk {
        LogMedium::OneDisk => {
            "nothing is fitted to the gain: users think as in table 3, the disk takes formula 3 for each package in turn, the nodes take what they take"
        }
        _ => {
            "a commit waits for one sync, and on average for half of the one before: about 10 ms of a cycle of 235"
        }
    };
    Claim::measured(
        &format!(
            "gain of two nodes over {}, {} KB, mean over users",
            article(disk),
            BLOCKS_KB[block]
        ),
        Paper::of(&format!("{percent:.0} % (cells: {cells:.1} %)"), percent),
        Bounds(Better::More, Finding::AtLeast(0.0)),
        tables.mean_percent(disk, block),
        why,
    )
    .in_unit(" %")
}

fn article(disk: LogMedium) -> &'static str {
    match disk {
        LogMedium::Pool => "a pool of disks",
        _ => "one disk",
    }
}

/// Returns the claim that a longer block leaves less to gain. `None`: one size was measured.
fn decline(tables: &RealTables, disk: LogMedium) -> Option<Claim> {
    let (first, last) = (0, BLOCKS_KB.len() - 1);
    let blocks = measured_blocks(tables);
    if !blocks.contains(&first) || !blocks.contains(&last) {
        return None;
    }
    let theirs = 100.0 * (PRINTED_GAINS[first] - PRINTED_GAINS[last]);
    let gain = |block| tables.mean_percent(disk, block).median;
    Some(
        Claim::measured(
            &format!(
                "gain at 4 KB less gain at 64 KB, over {}",
                article(disk)
            ),
            Paper::of(&format!("{theirs:.0} points"), theirs),
            Bounds(Better::More, Finding::AtLeast(0.0)),
            gain(first) - gain(last),
            "the paper explains its decline with its data block buffer, which this engine does not have; here a sync needs fewer packages, and a long one takes 25 % more",
        )
        .in_unit(" points"),
    )
}

/// Returns the claim that throughput grows with the users. `None`: one number of users was measured.
fn linear(tables: &RealTables, medium: LogMedium, paper: &Printed, why: &str) -> Option<Claim> {
    let last = USERS.len() - 1;
    let times = ratio(f64::from(USERS[last]), f64::from(USERS[0]));
    let blocks = measured_blocks(tables);
    let mut grown = Vec::new();
    for block in &blocks {
        let many = tables.per_s(medium, last, *block)?;
        let few = tables.per_s(medium, 0, *block)?;
        grown.push(ratio(many, few) / times);
    }
    let theirs = blocks
        .iter()
        .map(|block| ratio(f64::from(paper[last][*block]), f64::from(paper[0][*block])) / times);
    let theirs = theirs.fold(f64::INFINITY, f64::min);
    Some(Claim::measured(
        &format!(
            "{}: throughput of 500 users / 100 users, by five, the worst block",
            medium.name()
        ),
        Paper::of(&rounded(theirs).to_string(), theirs),
        Bounds(Better::More, Finding::AtLeast(0.85)),
        grown.into_iter().fold(f64::INFINITY, f64::min),
        why,
    ))
}

/// Returns the claim about the absolute throughput of 100 users at 4 KB. `None`: that cell was not measured.
fn first_cell(tables: &RealTables, medium: LogMedium, paper: &Printed, why: &str) -> Option<Claim> {
    let mut cells = tables.cells.iter();
    let cell = cells.find(|cell| (cell.user, cell.block) == (0, 0))?;
    let theirs = paper[0][0];
    Some(
        Claim::measured(
            &format!("{}: throughput of 100 users at 4 KB", medium.name()),
            Paper::of(&format!("{theirs} in a unit of time"), f64::from(theirs)),
            Bounds(Better::More, Finding::Any),
            cell.tps(medium),
            why,
        )
        .in_unit("/s"),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::super::logical::judged::{Spoiled, each_can_be_missed};
    use super::super::super::super::sample::Sample;
    use super::super::runs::RealCell;
    use super::*;

    /// Returns tables in which each cell is the disk's printed value, and the nodes have exactly the printed gain.
    fn as_paper() -> RealTables {
        let of = |user: usize, block: usize| {
            let disk = f64::from(TABLE_2[user][block]);
            RealCell {
                user,
                block,
                per_s: vec![[disk, disk, disk * PRINTED_GAINS[block]]; 3],
            }
        };
        let cells = (0..5).flat_map(|user| (0..5).map(move |block| of(user, block)));
        RealTables {
            cells: cells.collect(),
            think: Duration::from_millis(235),
            probes_ms: PROBES_KB.map(|kb| Sample::from(Formula::DISK.ms(kb) * 1.05)),
            nodes: String::new(),
        }
    }

    fn spoil(tables: &mut RealTables, medium: usize, is: fn(&RealCell) -> bool, by: f64) {
        let cells = tables.cells.iter_mut().filter(|cell| is(cell));
        for round in cells.flat_map(|cell| &mut cell.per_s) {
            round[medium] *= by;
        }
    }

    #[test]
    fn each_claim_about_the_disk_can_be_missed() {
        let changes: [Spoiled<RealTables>; 4] = [
            ("durable write", |tables| {
                tables.probes_ms = [Sample::from(0.2); 2]
            }),
            ("one disk: throughput of 500", |tables| {
                spoil(tables, 0, |cell| cell.user == 4 && cell.block == 0, 0.5);
            }),
            ("pool of disks: throughput of 500", |tables| {
                spoil(tables, 1, |cell| cell.user == 4, 0.8);
            }),
            ("throughput of 100 users", |tables| {
                spoil(tables, 0, |cell| cell.user == 0, 0.5);
            }),
        ];
        each_can_be_missed(as_paper, on_disk, &changes);
    }

    #[test]
    fn each_claim_about_the_nodes_can_be_missed() {
        let changes: [Spoiled<RealTables>; 6] = [
            ("over one disk, 4 KB", |tables| {
                spoil(tables, 0, |_| true, 1.2)
            }),
            ("gain of two nodes", |tables| {
                spoil(tables, 2, |_| true, 0.9)
            }),
            ("over a pool of disks, 64", |tables| {
                spoil(tables, 1, |cell| cell.block == 4, 1.03);
            }),
            ("less gain at 64", |tables| {
                spoil(tables, 2, |cell| cell.block == 0, 0.9);
            }),
            ("two nodes: throughput of 500", |tables| {
                spoil(tables, 2, |cell| cell.user == 4, 0.7);
            }),
            ("two nodes: throughput of 100", |tables| {
                spoil(tables, 2, |cell| cell.user == 0, 0.7);
            }),
        ];
        each_can_be_missed(as_paper, on_nodes, &changes);
    }
}
