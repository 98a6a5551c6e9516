//! Table 3: TPC-C with the log in memory, by the number of users and the size of a block. Also shows the gain over
//! table 2, and how the gain depends on the size of a transaction's redo.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::cell::{REDO_KB, closed_gain};
use super::gain_claims::claims;
use super::paper::{BLOCKS_KB, PRINTED_GAINS, TABLE_3, USERS, gain, mean_gain};
use super::table2::{by_users, panel, rows};
use super::tables::{REDOS_KB, Tables, Varied};
use super::{setting, table};
use crate::num::{count_f64, ratio};

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the data folder's disk.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let tables = lab.memory_disk()?;
    let mut words = setting(lab, tables);
    words.extend(by_users(tables, &|pair| pair.memory));
    words.push("gains over table 2, and by B at 100 users:".into());
    words.extend(gain_lines(tables));
    words.extend(varied_lines(tables));
    let mut all = Vec::new();
    for (at, mut row) in rows(tables, &TABLE_3, &|pair| pair.memory)
        .into_iter()
        .enumerate()
    {
        let (user, block) = (at / BLOCKS_KB.len(), at % BLOCKS_KB.len());
        row.push(cell(REDO_KB));
        row.push(cell(tables.cells[user][block].gain()));
        row.push(cell(closed_gain(tables.think, REDO_KB, BLOCKS_KB[block])));
        row.push(cell(gain(user, block)));
        all.push(row);
    }
    all.extend(
        tables
            .varied
            .iter()
            .map(|varied| varied_row(tables, varied)),
    );
    Ok(Figure {
        name: "003-table3",
        title: "TPC-C by users and blocks, redo log in memory".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: words,
        columns: "users,block_kb,log,clock,transactions_per_s,paper,redo_kb,gain,\
            closed_form_gain,paper_gain",
        rows: all,
        claims: claims(tables),
        plot: plot(tables),
    })
}

/// Returns the mean measured gain for one block size, over all numbers of users.
pub(super) fn mean(tables: &Tables, block: usize) -> f64 {
    let gains = tables.cells.iter().map(|row| row[block].gain());
    ratio(gains.sum(), count_f64(USERS.len()))
}

fn varied_row(tables: &Tables, varied: &Varied) -> Vec<Value> {
    let closed = closed_gain(tables.think, varied.redo_kb, varied.block_kb);
    vec![
        USERS[0].into(),
        varied.block_kb.into(),
        "delay injected".into(),
        "virtual".into(),
        cell(varied.pair.memory.per_s()),
        "".into(),
        cell(varied.redo_kb),
        cell(varied.pair.gain()),
        cell(closed),
        "".into(),
    ]
}

fn gain_lines(tables: &Tables) -> Vec<String> {
    let mut head = vec!["gain".to_owned()];
    head.extend(BLOCKS_KB.iter().map(|block_kb| format!("{block_kb} KB")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let line = |name: &str, of: &dyn Fn(usize) -> f64| {
        let cells = (0..BLOCKS_KB.len()).map(|block| format!("{:.3}", of(block)));
        std::iter::once(name.to_owned())
            .chain(cells)
            .collect::<Vec<String>>()
    };
    let mut lines = vec![
        line("here, mean", &|block| mean(tables, block)),
        line("the paper's cells, mean", &mean_gain),
        line("the paper's text", &|block| PRINTED_GAINS[block]),
        line("closed form", &|block| {
            closed_gain(tables.think, REDO_KB, BLOCKS_KB[block])
        }),
    ];
    for (users, row) in USERS.iter().zip(&tables.cells) {
        lines.push(line(&format!("{users} users"), &|block| row[block].gain()));
    }
    table(&head, &lines)
}

fn varied_lines(tables: &Tables) -> Vec<String> {
    let mut head = vec!["B, KB".to_owned()];
    head.extend(BLOCKS_KB.iter().map(|block_kb| format!("{block_kb} KB")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let row = |redo_kb: &f64| {
        let of = tables
            .varied
            .iter()
            .filter(|varied| varied.redo_kb == *redo_kb);
        let cells = of.map(|varied| format!("{:.3}", varied.pair.gain()));
        std::iter::once(redo_kb.to_string()).chain(cells).collect()
    };
    table(
        &head,
        &REDOS_KB.iter().map(row).collect::<Vec<Vec<String>>>(),
    )
}

fn plot(tables: &Tables) -> Plot {
    let by_block = |of: &dyn Fn(usize) -> f64| {
        let points = BLOCKS_KB.iter().enumerate();
        points
            .map(|(block, block_kb)| (f64::from(*block_kb), 100.0 * (of(block) - 1.0)))
            .collect()
    };
    let by_redo = |block_kb: &u32| {
        let of = tables
            .varied
            .iter()
            .filter(|varied| varied.block_kb == *block_kb);
        let points = of.map(|varied| (varied.redo_kb, 100.0 * (varied.pair.gain() - 1.0)));
        Series::solid(format!("L = {block_kb} KB"), points.collect())
    };
    Plot {
        title: "Table 3: throughput with the redo log in memory".into(),
        subtitle: format!(
            "TPC-C on this engine, formula 4 injected, virtual time; think time {:.1} ms, fitted at 100 users and 4 KB",
            1e3 * tables.think.as_secs_f64()
        ),
        panels: vec![
            panel("here", "Transactions a second", &|user, block| {
                tables.cells[user][block].memory.per_s()
            }),
            Panel::new(
                format!("Gain over the disk, B = {REDO_KB} KB"),
                "Gain (%)",
                Chart::lines(
                    "Block (KB)",
                    vec![
                        Series::solid(
                            "here, mean over users",
                            by_block(&|block| mean(tables, block)),
                        ),
                        Series::broken("the paper's cells, mean over users", by_block(&mean_gain)),
                    ],
                ),
            ),
            Panel::new(
                "Gain by the redo of a transaction",
                "Gain (%)",
                Chart::lines(
                    "Redo of a transaction, B (KB)",
                    BLOCKS_KB.iter().map(by_redo).collect(),
                ),
            ),
        ],
    }
}
