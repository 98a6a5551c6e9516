//! Appendix D: the table of dirty pages, by the contents of the Δ records.

use anyhow::Result;
use perdura_tree::analysis::Detail;
use perdura_tree::dirty_pages::DirtyPages;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
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

/// The table of dirty pages for one size of memory and one content of the Δ records.
struct Row {
    cache: u64,
    frames: usize,
    dirty: usize,
    table: &'static str,
    pages: usize,
    /// The number of operations that the table cannot exclude, so that their pages must be read.
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
        let mut push = |name: &'static str, table: &DirtyPages, delta_bytes| {
            rows.push(Row {
                cache: *cache,
                frames: crash.options.frames,
                dirty: crash.dirty,
                table: name,
                pages: table.len(),
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
            operations_left_to_pages,delta_bytes",
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

fn claims(rows: &[Row]) -> Vec<Claim> {
    let pairs = |a: &'static str, b: &'static str| {
        let of = rows.iter().filter(move |row| row.table == a);
        of.filter_map(move |row| {
            let mut others = rows.iter();
            let other = others.find(|other| other.table == b && other.cache == row.cache)?;
            Some((row, other))
        })
    };
    let worst = |a, b, of: fn(&Row) -> f64| {
        let ratios = pairs(a, b).map(|(a, b)| ratio(of(a), of(b)));
        ratios.fold(0.0, f64::max)
    };
    let pages = |row: &Row| count_f64(row.pages);
    let left = |row: &Row| count_f64(row.left);
    let bytes = |row: &Row| f64_of(row.delta_bytes);
    vec![
        Claim::measured(
            "pages, all LSNs / SQL, the worst",
            "exactly the same table, but for the tail",
            Target::AtMost(1.0),
            worst("all-lsns", "sql", pages),
            "the tail is in SQL's table and in no Δ",
        ),
        Claim::measured(
            "pages, standard / all LSNs, the worst",
            "roughly the same accuracy",
            Target::AtMost(1.02),
            worst("standard", "all-lsns", pages),
            "pages are pruned by the numbers of notes, which both have",
        ),
        Claim::reported(
            "operations left to their pages, standard / all LSNs, the worst",
            "-",
            worst("standard", "all-lsns", left),
            "a bound below the true number lets redo look at a page for an operation that is older",
        ),
        Claim::reported(
            "pages, reduced / standard, the worst",
            "somewhat worse",
            worst("reduced", "standard", pages),
            "what was dirtied and written within one interval stays",
        ),
        Claim::reported(
            "bytes of Δ records, all LSNs / standard, the worst",
            "more logging",
            worst("all-lsns", "standard", bytes),
            "",
        ),
    ]
}
