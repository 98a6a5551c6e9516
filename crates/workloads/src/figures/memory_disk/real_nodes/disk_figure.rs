//! The figure `003-table2-real`: TPC-C with the log on a mounted disk that takes the paper's time.

use anyhow::Result;
use serde_json::Value;

use super::super::super::Lab;
use super::super::super::figure::{Figure, cell};
use super::super::super::plot::{Chart, Panel, Plot, Series};
use super::super::paper::{BLOCKS_KB, TABLE_2, USERS};
use super::super::table;
use super::claims;
use super::runs::{LogMedium, RealTables};
use crate::num::rounded;

/// Makes the figure.
///
/// # Errors
/// Something is missing for the disk or the nodes; errors of the disk, of the nodes and of the engine.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let tables = lab.real_nodes()?;
    let mut words = setting(lab, tables);
    for medium in [LogMedium::OneDisk, LogMedium::Pool] {
        words.push(format!("transactions a second, {}:", medium.name()));
        words.extend(by_users(tables, &|user, block| {
            tables.per_s(medium, user, block)
        }));
    }
    Ok(Figure {
        name: super::NAMES[0],
        title: "TPC-C by users and blocks, redo log on a mounted disk with the paper's time".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: words,
        columns: "users,block_kb,log,transactions_per_s,low,high,runs,paper",
        rows: rows(tables),
        claims: claims::on_disk(tables),
        plot: plot(tables),
    })
}

fn rows(tables: &RealTables) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for medium in [LogMedium::OneDisk, LogMedium::Pool] {
        for of in &tables.cells {
            let tps = of.tps(medium);
            rows.push(vec![
                USERS[of.user].into(),
                BLOCKS_KB[of.block].into(),
                medium.name().into(),
                cell(tps.median),
                cell(tps.low),
                cell(tps.high),
                tps.runs.into(),
                TABLE_2[of.user][of.block].into(),
            ]);
        }
    }
    rows
}

/// Returns texts that describe the experiment.
pub(super) fn setting(lab: &Lab<'_>, tables: &RealTables) -> Vec<String> {
    let scale = &lab.scale.memory_disk;
    vec![
        format!(
            "TPC-C, {} warehouses of {} items and {} customers, page-addressed; {} runs of {} s a cell, media in turn, medians",
            scale.warehouses.warehouses,
            scale.warehouses.items,
            scale.warehouses.customers,
            scale.real_rounds,
            scale.real_measured.as_secs_f64()
        ),
        "disk: ext4 on a loop device on a FUSE file; a sync takes formula 3 for each package of L KB, in turn (one disk) or at once (pool)".into(),
        format!("nodes: {}; a commit counts when both have it", tables.nodes),
        format!(
            "users think {:.1} ms, uniform from half of it to one and a half: 100 users / {} of table 3, if the paper's unit is a second; not fitted to a gain",
            1e3 * tables.think.as_secs_f64(),
            super::super::paper::TABLE_3[0][0]
        ),
    ]
}

/// Returns a table by users and blocks. Cells that were not measured are `-`.
pub(super) fn by_users(
    tables: &RealTables,
    of: &dyn Fn(usize, usize) -> Option<f64>,
) -> Vec<String> {
    let mut head = vec!["users".to_owned()];
    head.extend(BLOCKS_KB.iter().map(|block_kb| format!("{block_kb} KB")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let is_measured = |user: &usize| tables.cells.iter().any(|cell| cell.user == *user);
    let rows = (0..USERS.len()).filter(is_measured).map(|user| {
        let cells = (0..BLOCKS_KB.len()).map(|block| match of(user, block) {
            Some(value) => rounded(value).to_string(),
            None => "-".to_owned(),
        });
        std::iter::once(USERS[user].to_string())
            .chain(cells)
            .collect()
    });
    table(&head, &rows.collect::<Vec<Vec<String>>>())
}

/// Returns a panel with a line for each size of a block. The horizontal axis is the number of users.
pub(super) fn panel(tables: &RealTables, medium: LogMedium) -> Panel {
    let line = |(block, block_kb): (usize, &u32)| {
        let points = USERS.iter().enumerate();
        let points = points.filter_map(|(user, users)| {
            Some((f64::from(*users), tables.per_s(medium, user, block)?))
        });
        Series::solid(format!("{block_kb} KB"), points.collect())
    };
    let lines = BLOCKS_KB.iter().enumerate().map(line);
    let measured = lines.filter(|line| !line.points.is_empty());
    Panel::new(
        medium.name(),
        "Transactions a second",
        Chart::lines("Users", measured.collect()),
    )
}

fn plot(tables: &RealTables) -> Plot {
    Plot {
        title: "Table 2: throughput with the redo log on a mounted disk".into(),
        subtitle: "TPC-C on this engine; each sync takes the paper's formula 3; real time".into(),
        panels: vec![
            panel(tables, LogMedium::OneDisk),
            panel(tables, LogMedium::Pool),
        ],
    }
}
