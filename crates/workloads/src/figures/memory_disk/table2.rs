//! Table 2: TPC-C with the log on the disk, by users and blocks. Also shows TPC-C on this machine without injected
//! delays.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::as_found::Found;
use super::paper::{BLOCKS_KB, TABLE_2, USERS};
use super::tables::{Pair, REDO_KB, Tables};
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

/// Returns a panel with a line for each size of a block, by the number of users.
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

/// Returns a table in the paper's form.
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

fn claims(tables: &Tables) -> Vec<Claim> {
    let disk = |user: usize, block: usize| tables.cells[user][block].disk.per_s();
    let last = USERS.len() - 1;
    let growth = |tps: &dyn Fn(usize) -> f64| {
        let users = f64::from(USERS[last]) / f64::from(USERS[0]);
        ratio(tps(last), tps(0)) / users
    };
    let least = (0..BLOCKS_KB.len())
        .map(|block| growth(&|user| disk(user, block)))
        .fold(f64::INFINITY, f64::min);
    let papers_least = (0..BLOCKS_KB.len())
        .map(|block| growth(&|user| f64::from(TABLE_2[user][block])))
        .fold(f64::INFINITY, f64::min);
    let largest = |tps: &dyn Fn(usize, usize) -> f64| {
        let ratios = (0..USERS.len()).map(|user| ratio(tps(user, last), tps(user, 0)));
        ratio(ratios.sum(), count_f64(USERS.len()))
    };
    let mut claims = vec![
        Claim::measured(
            "throughput of 500 users / 100 users, by five, the worst block",
            &rounded(papers_least).to_string(),
            Target::AtLeast(0.95),
            least,
            "waits overlap: no user waits behind another one's redo, on the paper's disks neither",
        ),
        Claim::reported(
            "throughput at 64 KB / at 4 KB, mean over users",
            &rounded(largest(&|user, block| f64::from(TABLE_2[user][block]))).to_string(),
            largest(&disk),
            "here fewer waits alone; the paper's larger block helps its data block buffer: that belongs to a component with a cache, a \
             B-tree, and this engine, whose data are in memory, has none",
        ),
        Claim::reported(
            "real time / virtual time, 100 users at 4 KB, throughput",
            "",
            ratio(tables.real.disk.per_s(), disk(0, 0)),
            "the schedule's clock against this machine's: the same transactions, delays that elapse",
        ),
    ];
    for found in &tables.found.found {
        let what = match found.thinks {
            true => format!("as found, {} users who think: memory / disk", found.users),
            false => format!(
                "as found, {} clients without think times: memory / disk",
                found.users
            ),
        };
        let why = match found.thinks {
            true => "of a cycle that is nearly all thinking a sync of this disk is a small part",
            false => {
                "one sync serves all that wait: the more they are, the less the disk counts and the more the processor"
            }
        };
        claims.push(Claim::reported(&what, "", found.gain(), why));
    }
    claims
}
