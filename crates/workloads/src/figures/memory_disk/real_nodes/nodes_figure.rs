//! The figure `003-table3-real`: TPC-C with the log in the memories of two nodes, and the gain over the mounted disk.

use anyhow::Result;
use serde_json::Value;

use super::super::super::Lab;
use super::super::super::figure::{Figure, cell};
use super::super::super::plot::{Chart, Panel, Plot, Series};
use super::super::cell::{FITTED_GAIN, REDO_KB, closed_gain, closed_think};
use super::super::paper::{BLOCKS_KB, PRINTED_GAINS, TABLE_3, USERS, gain, mean_gain};
use super::super::table;
use super::claims;
use super::disk_figure::{by_users, panel, setting};
use super::runs::{LogMedium, RealTables};

/// Makes the figure.
///
/// # Errors
/// Something is missing for the disk or the nodes; errors of the disk, of the nodes and of the engine.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let tables = lab.real_nodes()?;
    let mut words = setting(lab, tables);
    words.push("transactions a second, two nodes:".into());
    words.extend(by_users(tables, &|user, block| {
        tables.per_s(LogMedium::Nodes, user, block)
    }));
    words.push("gain in percent, mean over users:".into());
    words.extend(gain_lines(tables));
    Ok(Figure {
        name: super::NAMES[1],
        title: "TPC-C by users and blocks, redo log in the memories of two nodes".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: words,
        columns: "users,block_kb,transactions_per_s,low,high,runs,paper,gain_one_disk_percent,low,high,\
            gain_pool_percent,low,high,paper_gain_percent,model_gain_percent",
        rows: tables
            .cells
            .iter()
            .map(|cell| row(tables, cell.user, cell.block))
            .collect(),
        claims: claims::on_nodes(tables),
        plot: plot(tables),
    })
}

/// Returns the gain of the model of `003-table3` in closed form, percent.
fn modelled(block: usize) -> f64 {
    let think = closed_think(FITTED_GAIN, REDO_KB, BLOCKS_KB[0]);
    percent(closed_gain(think, REDO_KB, BLOCKS_KB[block]))
}

fn percent(gain: f64) -> f64 {
    100.0 * (gain - 1.0)
}

fn row(tables: &RealTables, user: usize, block: usize) -> Vec<Value> {
    let mut cells = tables.cells.iter();
    let found = cells.find(|cell| cell.user == user && cell.block == block);
    let of = found.expect("the row is of a measured cell");
    let tps = of.tps(LogMedium::Nodes);
    let mut row = vec![
        USERS[user].into(),
        BLOCKS_KB[block].into(),
        cell(tps.median),
        cell(tps.low),
        cell(tps.high),
        tps.runs.into(),
        TABLE_3[user][block].into(),
    ];
    for disk in [LogMedium::OneDisk, LogMedium::Pool] {
        let gain = of.percent(disk);
        row.extend([gain.median, gain.low, gain.high].map(cell));
    }
    row.push(cell(percent(gain(user, block))));
    row.push(cell(modelled(block)));
    row
}

/// Returns the gains by the size of a block: measured, printed and modelled.
fn gain_lines(tables: &RealTables) -> Vec<String> {
    let blocks: Vec<usize> = (0..BLOCKS_KB.len()).collect();
    let mut head = vec!["gain, %".to_owned()];
    head.extend(
        blocks
            .iter()
            .map(|block| format!("{} KB", BLOCKS_KB[*block])),
    );
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let line = |name: &str, of: &dyn Fn(usize) -> String| {
        let cells = blocks.iter().map(|block| of(*block));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let measured = |disk: LogMedium| {
        move |block: usize| {
            let gain = tables.mean_percent(disk, block);
            match gain.runs {
                0 => "-".to_owned(),
                _ => gain.text(""),
            }
        }
    };
    let lines: Vec<Vec<String>> = vec![
        line("over one disk", &measured(LogMedium::OneDisk)),
        line("over a pool of disks", &measured(LogMedium::Pool)),
        line("the paper's cells", &|block| {
            format!("{:.1}", percent(mean_gain(block)))
        }),
        line("the paper's text", &|block| {
            format!("{:.0}", percent(PRINTED_GAINS[block]))
        }),
        line("the model of 003-table3", &|block| {
            format!("{:.1}", modelled(block))
        }),
    ];
    table(&head, &lines)
}

fn plot(tables: &RealTables) -> Plot {
    let line = |of: &dyn Fn(usize) -> Option<f64>| -> Vec<(f64, f64)> {
        let blocks = BLOCKS_KB.iter().enumerate();
        let points = blocks.filter_map(|(block, kb)| Some((f64::from(*kb), of(block)?)));
        points.collect()
    };
    let measured = |disk: LogMedium| {
        line(&|block| {
            let gain = tables.mean_percent(disk, block);
            (gain.runs > 0).then_some(gain.median)
        })
    };
    let gains = vec![
        Series::solid("over one disk", measured(LogMedium::OneDisk)),
        Series::solid("over a pool of disks", measured(LogMedium::Pool)),
        Series::broken(
            "the paper's cells",
            line(&|block| Some(percent(mean_gain(block)))),
        ),
        Series::broken("the model", line(&|block| Some(modelled(block)))),
    ];
    Plot {
        title: "Table 3: throughput with the redo log in two nodes".into(),
        subtitle: "TPC-C on this engine; the nodes as found; the disk takes the paper's formula 3; real time".into(),
        panels: vec![
            panel(tables, LogMedium::Nodes),
            Panel::new(
                "Gain of two nodes, mean over users",
                "Gain (%)",
                Chart::lines("Block (KB)", gains),
            ),
        ],
    }
}
