//! Table 2: TPC-C with the log on the disk, by the number of users and the size of a block. Also shows TPC-C on this
//! machine without injected delays.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::as_found::Found;
use super::cell::REDO_KB;
use super::paper::{BLOCKS_KB, TABLE_2, USERS};
use super::tables::{Pair, Tables};
use super::users::Ended;
use super::{setting, table};
use crate::num::{count_f64, ratio, rounded};

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the data folder's disk.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let tables = lab.memory_disk()?;
    let mut words = setting(lab, tables);
    words.extend(by_users(tables, &|pair| pair.disk));
    words.push(format!(
        "as found, no delay injected, the engine's own durability; disk: {}; medians of {} rounds",
        tables.found.folder, lab.scale.memory_disk.found_rounds
    ));
    words.extend(found_lines(tables));
    let mut rows = rows(tables, &TABLE_2, &|pair| pair.disk);
    for found in &tables.found.found {
        let clock = match found.thinks {
            true => "as found",
            false => "as found, no think time",
        };
        for (medium, tps) in ["disk", "memory"].into_iter().zip(found.tps()) {
            let users = found.users.into();
            let blank = || Value::from("");
            rows.push(vec![
                users,
                blank(),
                medium.into(),
                clock.into(),
                cell(tps),
                blank(),
            ]);
        }
    }
    Ok(Figure {
        name: "003-table2",
        title: "TPC-C by users and blocks, redo log on the disk".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: words,
        columns: "users,block_kb,log,clock,transactions_per_s,paper",
        rows,
        claims: claims(tables),
        plot: Plot {
            title: "Table 2: throughput with the redo log on the disk".into(),
            subtitle: format!(
                "TPC-C on this engine, {REDO_KB} KB of redo a transaction, formula 3 injected, virtual time"
            ),
            panels: vec![
                panel("here", "Transactions a second", &|user, block| {
                    tables.cells[user][block].disk.per_s()
                }),
                panel(
                    "the paper",
                    "Transactions in a unit of time",
                    &|user, block| f64::from(TABLE_2[user][block]),
                ),
            ],
        },
    })
}

/// Returns a panel with a line for each size of a block. The horizontal axis is the number of users.
pub(super) fn panel(title: &str, y: &str, of: &dyn Fn(usize, usize) -> f64) -> Panel {
    let line = |(block, block_kb): (usize, &u32)| {
        let points = USERS.iter().enumerate();
        let points = points.map(|(user, users)| (f64::from(*users), of(user, block)));
        Series::solid(format!("{block_kb} KB"), points.collect())
    };
    Panel::new(
        title,
        y,
        Chart::lines("Users", BLOCKS_KB.iter().enumerate().map(line).collect()),
    )
}

/// Returns the throughputs as a table in the paper's form: by users and sizes of blocks.
pub(super) fn by_users(tables: &Tables, of: &dyn Fn(&Pair) -> Ended) -> Vec<String> {
    let mut head = vec!["users".to_owned()];
    head.extend(BLOCKS_KB.iter().map(|block_kb| format!("{block_kb} KB")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let row = |(users, pairs): (&u32, &[Pair; 5])| {
        let cells = pairs.iter().map(|pair| format!("{:.0}", of(pair).per_s()));
        std::iter::once(users.to_string()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = USERS.iter().zip(&tables.cells).map(row).collect();
    table(&head, &rows)
}

/// Returns the cells of a table, each with the paper's value.
pub(super) fn rows(
    tables: &Tables,
    paper: &[[u32; 5]; 5],
    of: &dyn Fn(&Pair) -> Ended,
) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for (user, users) in USERS.iter().enumerate() {
        for (block, block_kb) in BLOCKS_KB.iter().enumerate() {
            rows.push(vec![
                (*users).into(),
                (*block_kb).into(),
                "delay injected".into(),
                "virtual".into(),
                cell(of(&tables.cells[user][block]).per_s()),
                paper[user][block].into(),
            ]);
        }
    }
    rows
}

fn found_lines(tables: &Tables) -> Vec<String> {
    let head = [
        "users",
        "think",
        "disk, txn/s",
        "memory, txn/s",
        "gain",
        "latency us: disk",
        "memory",
    ];
    let row = |found: &Found| {
        let ([disk, memory], [slow, fast]) = (found.tps(), found.latency());
        let shown = |number: f64| rounded(number).to_string();
        let latency = |us: f64| if found.thinks { "-".into() } else { shown(us) };
        vec![
            found.users.to_string(),
            if found.thinks { "yes" } else { "no" }.to_owned(),
            shown(disk),
            shown(memory),
            shown(found.gain()),
            latency(slow),
            latency(fast),
        ]
    };
    table(
        &head,
        &tables.found.found.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Returns the throughput of 500 users, divided by five times the throughput of 100 users. The result is for the block
/// size at which this ratio is lowest.
fn linear(per_s: &dyn Fn(usize, usize) -> f64) -> f64 {
    let last = USERS.len() - 1;
    let users = f64::from(USERS[last]) / f64::from(USERS[0]);
    let grown = |block| ratio(per_s(last, block), per_s(0, block)) / users;
    (0..BLOCKS_KB.len())
        .map(grown)
        .fold(f64::INFINITY, f64::min)
}

/// Returns the throughput at the largest block, divided by the throughput at the smallest block. The result is the mean
/// over all numbers of users.
fn by_block(per_s: &dyn Fn(usize, usize) -> f64) -> f64 {
    let last = BLOCKS_KB.len() - 1;
    let ratios = (0..USERS.len()).map(|user| ratio(per_s(user, last), per_s(user, 0)));
    ratio(ratios.sum(), count_f64(USERS.len()))
}

fn claims(tables: &Tables) -> Vec<Claim> {
    let disk = |user: usize, block: usize| tables.cells[user][block].disk.per_s();
    let papers = |user: usize, block: usize| f64::from(TABLE_2[user][block]);
    let of = |value: f64| Paper::of(&rounded(value).to_string(), value);
    let fitted = &tables.real[0];
    let virtual_time = disk(0, fitted.block);
    let mut claims = vec![
        Claim::modelled(
            "throughput of 500 users / 100 users, by five, the worst block",
            of(linear(&papers)),
            Finding::AtLeast(0.95),
            linear(&disk),
            "waits overlap: no user waits behind another one's redo, on the paper's disks neither",
        ),
        Claim::modelled(
            "throughput at 64 KB / at 4 KB, mean over users",
            of(by_block(&papers)),
            Finding::AtLeast(1.0),
            by_block(&disk),
            "here fewer waits alone; the paper's larger block helps its data block buffer: that belongs to a component with a cache, a \
             B-tree, and this engine, whose data are in memory, has none",
        ),
        Claim::own(
            "real time / virtual time, 100 users at 4 KB, throughput",
            Finding::Within(1.0, 0.1),
            fitted.sample(|pair| ratio(pair.disk.per_s(), virtual_time)),
            "the schedule's clock against this machine's: the same transactions, delays that elapse",
        ),
    ];
    claims.extend(tables.found.found.iter().map(as_found));
    claims
}

/// Returns a claim that compares the gain without injected delays with the average gains in the paper's conclusion.
fn as_found(found: &Found) -> Claim {
    let (who, why) = match found.thinks {
        true => (
            "users who think",
            "of a cycle that is nearly all thinking a sync of this disk is a small part, so there is little to gain",
        ),
        false => (
            "clients without think times",
            "one sync serves all that wait: the more they are, the less the disk counts and the more the processor",
        ),
    };
    let what = format!("as found, {} {who}: gain of memory over disk", found.users);
    let paper = Paper::between("6 to 11 percent", 6.0, 11.0);
    let finding = Bounds(Better::More, Finding::AtLeast(0.0));
    Claim::measured(&what, paper, finding, found.percent(), why).in_unit(" %")
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::super::logical::judged::{Spoiled, each_can_be_missed};
    use super::super::tables::by_hand::{as_paper, pair};
    use super::*;

    #[test]
    fn each_claim_can_be_missed() {
        let changes: [Spoiled<Tables>; 6] = [
            ("throughput of 500 users", |tables| {
                tables.cells[4][3] = pair(2_200, 2_413)
            }),
            ("throughput at 64 KB", |tables| {
                tables
                    .cells
                    .iter_mut()
                    .for_each(|row| row[4] = pair(350, 370));
            }),
            ("real time / virtual time", |tables| {
                tables.real[0].rounds = vec![pair(300, 400); 3];
            }),
            ("users who think", |tables| {
                tables.found.found[0].per_s[1] = vec![99.0; 3]
            }),
            ("users who think", |tables| {
                tables.found.found[0].per_s[1] = vec![105.0; 3]
            }),
            ("without think times", |tables| {
                tables.found.found[1].per_s[1] = vec![101.0; 3]
            }),
        ];
        each_can_be_missed(as_paper, claims, &changes);
    }

    #[test]
    fn no_gain_as_found_is_a_failure_and_a_small_one_is_weaker() {
        let verdict = |memory: f64| {
            let mut tables = as_paper();
            tables.found.found[0].per_s[1] = vec![memory; 3];
            as_found(&tables.found.found[0]).verdict
        };
        let verdicts = [99.9, 100.1, 109.0, 116.0].map(verdict);
        let expected = [
            Verdict::Fails,
            Verdict::Weaker,
            Verdict::AsPaper,
            Verdict::Stronger,
        ];
        assert_eq!(verdicts, expected);
    }
}
