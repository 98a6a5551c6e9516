//! Appendix D: the table of dirty pages, by the contents of the Δ records.

use std::collections::HashSet;

use anyhow::Result;
use perdura_base::Pid;
use perdura_tree::analysis::Detail;
use perdura_tree::dirty_pages::DirtyPages;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::at_cache;
use super::history::Plan;
use super::noted::Noted;
use crate::num::{count_f64, f64_of, ratio};

/// The contents that a Δ record may have, with their names in rows and in the legend.
const DETAILS: [(Detail, &str, &str); 3] = [
    (Detail::Numbers, "all-lsns", "All LSNs (D.1)"),
    (Detail::Standard, "standard", "Standard (4.2)"),
    (Detail::Reduced, "reduced", "Reduced (D.2)"),
];

/// The name of the table that SQL's analysis makes without the operations after the last Δ record.
const BEFORE_TAIL: &str = "sql-without-tail";

/// The table of dirty pages for one size of memory and one content of the Δ records.
struct Row {
    cache: u64,
    frames: usize,
    dirty: usize,
    table: &'static str,
    pages: usize,
    /// The number of pages that are in only one of two tables: this table, and SQL's table without the tail.
    apart: usize,
    /// The number of operations that redo cannot skip if it uses this table. Redo must read their pages.
    left: usize,
    delta_bytes: u64,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the database.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let stand = lab.logical()?;
    let mut rows = Vec::new();
    for cache in lab.scale.logical.caches {
        let plan = Plan {
            with_numbers: true,
            ..at_cache(*cache)
        };
        let crash = stand.crash(lab, plan)?;
        let noted = Noted::read(&crash)?;
        let before_tail = noted.table_before_tail();
        let mut push = |name: &'static str, table: &DirtyPages, delta_bytes| {
            rows.push(Row {
                cache: *cache,
                frames: crash.options.frames,
                dirty: crash.dirty,
                table: name,
                pages: table.len(),
                apart: apart(table, &before_tail),
                left: noted.left_by(table),
                delta_bytes,
            });
        };
        for (detail, name, _) in DETAILS {
            let bytes = match detail {
                Detail::Numbers => noted.delta_bytes,
                Detail::Standard | Detail::Reduced => noted.plain_delta_bytes,
            };
            push(name, &noted.table(detail), bytes);
        }
        push("sql", &noted.table_by_writes(), 0);
        push(BEFORE_TAIL, &before_tail, 0);
    }
    let line = |name: &str| {
        let of = rows.iter().filter(|row| row.table == name);
        let at = |row: &Row| {
            (
                f64_of(row.cache),
                ratio(count_f64(row.pages), count_f64(row.dirty)),
            )
        };
        of.map(at).collect::<Vec<_>>()
    };
    let lines = DETAILS.map(|(_, name, label)| Series::solid(label, line(name)));
    let mut setting = stand.setting(lab);
    setting.push(String::from(
        "one log, whose Δ records have all numbers: each table is made of it and uses what it knows of",
    ));
    Ok(Figure {
        name: "002-dpt",
        title: "the table of dirty pages by what a Δ record has".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting,
        columns: "cache_percent,frames,table,pages,truly_dirty,pages_of_truly_dirty,\
            pages_in_one_of_it_and_sql_without_tail,operations_left_to_pages,delta_bytes",
        rows: rows
            .iter()
            .map(|row| {
                vec![
                    row.cache.into(),
                    row.frames.into(),
                    row.table.into(),
                    row.pages.into(),
                    row.dirty.into(),
                    cell(ratio(count_f64(row.pages), count_f64(row.dirty))),
                    row.apart.into(),
                    row.left.into(),
                    row.delta_bytes.into(),
                ]
            })
            .collect(),
        claims: claims(&rows),
        plot: Plot {
            title: "Appendix D: the table of dirty pages by what a Δ has".into(),
            subtitle: stand.setting(lab).swap_remove(0),
            panels: vec![Panel::new(
                "",
                "Pages of the table / truly dirty pages",
                Chart::lines(
                    "Memory (% of the table)",
                    lines
                        .into_iter()
                        .chain([Series::broken("SQL (BW records)", line("sql"))])
                        .collect(),
                ),
            )],
        },
    })
}

/// Returns the number of pages that are in only one of two tables.
fn apart(a: &DirtyPages, b: &DirtyPages) -> usize {
    let pages = |table: &DirtyPages| table.by_r_lsn().into_iter().collect::<HashSet<Pid>>();
    pages(a).symmetric_difference(&pages(b)).count()
}

/// Returns the largest ratio of a quantity of the table `a` to that of the table `b`, over all sizes of memory.
fn most(rows: &[Row], a: &str, b: &str, of: fn(&Row) -> f64) -> Option<f64> {
    let of_table = rows.iter().filter(|row| row.table == a);
    let ratios = of_table.filter_map(|row| {
        let is_it = |other: &&Row| other.table == b && other.cache == row.cache;
        Some(ratio(of(row), of(rows.iter().find(is_it)?)))
    });
    ratios.reduce(f64::max)
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let pages = |row: &Row| count_f64(row.pages);
    let left = |row: &Row| count_f64(row.left);
    let all = rows.iter().filter(|row| row.table == "all-lsns");
    let apart = all
        .map(|row| ratio(count_f64(row.apart), pages(row)))
        .reduce(f64::max);
    let roughly = || Paper::of("roughly the same accuracy", 1.0);
    let claims = [
        apart.map(|ours| {
            Claim::measured(
                "pages in one of the tables of all LSNs and of SQL without the tail / pages, the most",
                Paper::of("exactly the same table, but for the tail", 0.0).within(0.001),
                Bounds(Better::Less, Finding::AtMost(0.02)),
                ours,
                "SQL prunes by the numbers of updates, and a Δ by the numbers of notes",
            )
        }),
        most(rows, "standard", BEFORE_TAIL, pages).map(|ours| {
            Claim::measured(
                "pages, standard / SQL without the tail, the most",
                roughly(),
                Bounds(Better::Neither, Finding::Within(1.0, 0.3)),
                ours,
                "standard and all LSNs prune alike, by the numbers of notes, so their pages are not compared",
            )
        }),
        most(rows, "standard", "all-lsns", left).map(|ours| {
            Claim::measured(
                "operations left to their pages, standard / all LSNs, the most",
                roughly(),
                Bounds(Better::Less, Finding::AtMost(2.0)),
                ours,
                "a bound below the true number lets redo look at a page for an operation that is older",
            )
        }),
        most(rows, "reduced", "standard", pages).map(|ours| {
            Claim::measured(
                "pages, reduced / standard, the most",
                Paper::above("FW-LSN and FirstDirty improve somewhat", 1.0).within(0.0),
                Bounds(Better::More, Finding::AtLeast(1.01)),
                ours,
                "what was dirtied and written within one interval stays",
            )
        }),
        most(rows, "all-lsns", "standard", |row| f64_of(row.delta_bytes)).map(|ours| {
            Claim::own(
                "bytes of Δ records, all LSNs / standard, the most",
                Finding::AtMost(2.0),
                ours,
                "the paper: additional logging, without a number",
            )
        }),
    ];
    claims.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::judged::{Spoiled, each_can_be_missed};
    use super::*;

    fn as_paper() -> Vec<Row> {
        let row = |cache, table, pages, apart, left, delta_bytes| Row {
            cache,
            frames: 1_000,
            dirty: 240,
            table,
            pages,
            apart,
            left,
            delta_bytes,
        };
        let at = |cache| {
            [
                row(cache, "all-lsns", 250, 0, 300, 1_500),
                row(cache, "standard", 255, 5, 320, 1_000),
                row(cache, "reduced", 270, 20, 400, 1_000),
                row(cache, "sql", 260, 10, 300, 0),
                row(cache, BEFORE_TAIL, 250, 0, 290, 0),
            ]
        };
        at(2).into_iter().chain(at(60)).collect()
    }

    #[test]
    fn each_claim_can_be_missed() {
        let changes: [Spoiled<Vec<Row>>; 5] = [
            ("pages in one of the tables", |rows| rows[5].apart = 6),
            ("pages, standard / SQL", |rows| rows[1].pages = 300),
            ("operations left", |rows| rows[6].left = 400),
            ("pages, reduced / standard", |rows| {
                (rows[2].pages, rows[7].pages) = (255, 255);
            }),
            ("bytes of Δ records", |rows| rows[5].delta_bytes = 2_001),
        ];
        each_can_be_missed(as_paper, |rows| claims(rows), &changes);
    }
}
