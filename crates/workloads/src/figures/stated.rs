//! The values that the papers state for places in the pictures.
//!
//! The papers' figures are at hand as text only. So this is what sections, tables and axes say, and no more.

use super::archive::memory;
use super::command::distributed;
use super::memory_disk::paper::{BLOCKS_KB, PRINTED_GAINS, TABLE_2, TABLE_3, USERS};
use super::points::{Stated, on};

/// The papers by the first characters of their figures' names.
const PAPERS: [(&str, &str); 5] = [
    ("000", "Lee, Kim, Cha: Differential Logging (ICDE 2001)"),
    (
        "001",
        "Malviya, Weisberg, Madden, Stonebraker: Rethinking Main Memory OLTP Recovery (ICDE 2014)",
    ),
    (
        "002",
        "Lomet, Tzoumas, Zwilling: Implementing Performance Competitive Logical Recovery (VLDB 2011)",
    ),
    (
        "003",
        "Wu, Yu, Li, Wei, Zheng: A Database Redo Log System Based on Virtual Memory Disk",
    ),
    (
        "004",
        "Sauer, Graefe, Härder: Single-pass restore after a media failure (BTW 2015)",
    ),
];

/// Returns the authors, the name and the year of a figure's paper. It is empty if no paper has such figures.
pub(super) fn citation(figure: &str) -> &'static str {
    let of = PAPERS.iter().find(|(paper, _)| figure.starts_with(paper));
    of.map_or("", |(_, citation)| citation)
}

/// Returns the values that the paper states for a figure.
pub(super) fn of(figure: &str) -> Vec<Stated> {
    match figure.get(..3) {
        Some("000") => differential(figure),
        Some("001") => command(figure),
        Some("002") => logical(figure),
        Some("003") => memory_disk(figure),
        Some("004") => archive(figure),
        _ => Vec::new(),
    }
}

/// The ratio of read times of DL1P and PL2P: 47 % less.
const LESS_READING: f64 = 0.53;

fn differential(figure: &str) -> Vec<Stated> {
    match figure {
        "000-volume" => vec![
            on(0, "DL2P").times(377.0 / 721.0, on(0, "PL2P"), "§5.2: 377/721 of our PL2P"),
            on(0, "DL1P").times(370.0 / 721.0, on(0, "PL2P"), "§5.2: 370/721 of our PL2P"),
            on(1, "DL1P, no checkpoint").times(
                1.0,
                on(1, "DL1P, no checkpoint").first(),
                "§5.2: constant, as our first",
            ),
        ],
        "000-fig5" => (0..2).flat_map(by_volume).collect(),
        "000-fig6" => [0, 2].into_iter().flat_map(by_disks).collect(),
        "000-fig7" => {
            vec![
                on(0, "DL2P(4)")
                    .last()
                    .times(1.15, on(0, "DL1P(4)"), "§5.2: 1.15 x our DL1P(4)"),
            ]
        }
        "000-fig8" => {
            let half = "§5.3: our DL1P-Seq / 2";
            vec![
                on(0, "DL1P-Seq").times(0.5, on(0, "PL2P-Seq"), "§5.3: our PL2P-Seq / 2"),
                on(0, "DL1P-Para").times(0.5, on(0, "DL1P-Seq"), half),
                on(1, "DL1P-Seq").times(1.0 / 3.0, on(1, "PL2P-Seq"), "§5.3: our PL2P-Seq / 3"),
                on(1, "DL1P-Para").times(0.5, on(1, "DL1P-Seq"), half),
            ]
        }
        "000-fig9" => vec![
            on(0, "DL1P").times(1.8, on(0, "PL2P"), "§5.4: over 1.8 x our PL2P"),
            on(0, "DL1P").at(8.0).times(
                9.6,
                on(0, "PL2P").first(),
                "§5.4: 9.6 x our PL2P on one disk",
            ),
            on(1, "DL1P(4)").last().times(
                2.0,
                on(1, "PL2P(4)"),
                "§5.4: approaches 2 x our PL2P(4)",
            ),
            on(1, "DL1P(4)")
                .at(256.0)
                .times(6.0, on(1, "PL2P(1)"), "§5.4: about 6 x our PL2P(1)"),
        ],
        _ => Vec::new(),
    }
}

/// Returns what section 5.2 says of figure 5, for a panel.
fn by_volume(panel: usize) -> [Stated; 2] {
    let fast = on(panel, "DL1P(4)");
    [
        fast.times(1.0 / 6.0, on(panel, "PL2P(4)"), "§5.2: our PL2P(4) / 6"),
        fast.times(1.0 / 7.0, on(panel, "PL2P(1)"), "§5.2: our PL2P(1) / 7"),
    ]
}

/// Returns what section 5.2 says of figure 6, for a panel of PL2P and the panel of DL1P after it.
fn by_disks(panel: usize) -> Vec<Stated> {
    let (physical, differential) = (panel, panel + 1);
    let mut all = vec![
        on(differential, "DL1P: LR").times(
            LESS_READING,
            on(physical, "PL2P: LR"),
            "§5.2: 47 % less than our PL2P: LR",
        ),
        on(differential, "DL1P").at(4.0).times(
            1.0 / 6.0,
            on(physical, "PL2P"),
            "§5.2: our PL2P / 6",
        ),
    ];
    all.extend([2.0, 4.0, 6.0, 8.0].map(|disks| {
        on(differential, "DL1P").at(disks).times(
            1.0 / disks,
            on(differential, "DL1P").first(),
            "§5.2: our one disk / disks, nearly",
        )
    }));
    all
}

fn command(figure: &str) -> Vec<Stated> {
    let saturated = |part, note| on(0, "Value log").last().times(part, on(0, "No log"), note);
    let equal = |note| {
        on(0, "Command log")
            .last()
            .times(1.0, on(0, "No log"), note)
    };
    let slower = |ratio, note| on(0, "Value log").times(ratio, on(0, "Command log"), note);
    // The two logs were replayed after runs of different rates. The paper's ratio does not depend on them.
    let replayed = |ratio, note| {
        let command = on(0, "Command log, 1 thread").last();
        on(0, "Value log, 1 thread").times(ratio, command, note)
    };
    match figure {
        "001-fig3" => vec![
            saturated(80.0 / 95.0, "§V-C1: 80/95 of our No log"),
            equal("§V-C1: our No log, both 95K"),
        ],
        "001-fig4" => vec![slower(1.15, "§V-C2: 1.15 x our command log")],
        "001-fig5" => vec![replayed(5.0, "§V-C5: 5 x our command log")],
        "001-fig6" => vec![
            saturated(0.66, "§V-C1: 66 % of our No log"),
            equal("§V-C1: nearly our No log"),
        ],
        "001-fig7" => vec![slower(1.45, "§V-C2: at least 1.45 x our command log")],
        "001-fig8" => vec![replayed(1.5, "§V-C5: 1.5 x our command log")],
        "001-fig9" => one_node(),
        "001-fig10" => three_replicas(),
        "001-bytes" => vec![
            on(0, "command").is(55.0, "§V-C3: 55 bytes"),
            on(0, "columns").is(81.0, "§V-C3: 81 bytes"),
            on(1, "command").is(170.0, "§V-C3: 170 bytes"),
            on(3, "command").is(50.0, "§V-C3: 50 bytes"),
        ],
        "001-size" => vec![
            on(0, "cut").times(1.01, on(0, "columns"), "§V-C4: 1.01 x our columns"),
            on(2, "cut").is(100.0, "§V-C4: 100 bytes"),
            on(2, "command").is(100.0, "§V-C4: 100 bytes"),
        ],
        _ => Vec::new(),
    }
}

/// Returns what section V-C6 says of figure 9.
fn one_node() -> Vec<Stated> {
    let half = distributed::shown(6.7);
    vec![
        on(0, "Command log").first().times(
            2.4 / 2.6,
            on(0, "No log"),
            "§V-C6: 2.4M/2.6M of our No log",
        ),
        on(0, "Value log").first().times(
            1.5 / 2.6,
            on(0, "No log"),
            "§V-C6: 1.5M/2.6M of our No log",
        ),
        on(0, "Value log").at(half).times(
            1.0 / 1.4,
            on(0, "Command log"),
            "§V-C6: our command log / 1.4",
        ),
        on(0, "Value log")
            .last()
            .times(1.0, on(0, "No log"), "§V-C6: as our No log"),
    ]
}

/// Returns what section V-C6 says of figure 10.
fn three_replicas() -> Vec<Stated> {
    let identical = "§V-C6: as our No log";
    vec![
        on(0, "Command log").first().times(
            0.95,
            on(0, "No log"),
            "§V-C6: above 95 % of our No log",
        ),
        on(0, "Value log").first().times(
            0.5,
            on(0, "Command log"),
            "§V-C6: almost our command log / 2",
        ),
        on(0, "Value log").at(distributed::shown(0.5)).times(
            1.0 / 1.2,
            on(0, "Command log"),
            "§V-C6: our command log / 1.2",
        ),
        on(0, "Value log")
            .last()
            .times(1.0, on(0, "No log"), identical),
        on(0, "Command log")
            .last()
            .times(1.0, on(0, "No log"), identical),
    ]
}

fn logical(figure: &str) -> Vec<Stated> {
    match figure {
        "002-fig2a" => vec![
            on(0, "Log1").times(1.0, on(0, "SQL1"), "§5.3: as our SQL1"),
            on(0, "Log2").times(1.15, on(0, "SQL2"), "§5.3: at most 1.15 x our SQL2"),
            on(0, "Log1")
                .at(15.0)
                .times(0.35, on(0, "Log0"), "§5.3: 65 % less than our Log0"),
            on(0, "Log2")
                .at(15.0)
                .times(0.8, on(0, "Log1"), "§5.3: 20 % less than our Log1"),
        ],
        "002-fig2b" => vec![
            on(0, "Table of Δ records")
                .first()
                .is(30.0, "§5.3: 30 % to 10 %"),
            on(0, "Table of Δ records")
                .last()
                .is(10.0, "§5.3: 30 % to 10 %"),
        ],
        "002-fig2c" => [2.0, 7.0, 15.0, 30.0]
            .map(|memory| {
                on(0, "Δ records").at(memory).times(
                    1.5,
                    on(0, "BW records"),
                    "§5.3: at most 1.5 x our BW records",
                )
            })
            .to_vec(),
        "002-fig3" => by_interval(),
        "002-dpt" => vec![
            on(0, "Standard (4.2)").times(1.0, on(0, "SQL (BW records)"), "§D: roughly our SQL"),
            on(0, "All LSNs (D.1)").times(
                1.0,
                on(0, "SQL (BW records)"),
                "§D.1: our SQL, but for its tail",
            ),
        ],
        _ => Vec::new(),
    }
}

/// Returns what appendix C says of figure 3.
fn by_interval() -> Vec<Stated> {
    let grows = |line, at, ratio, note| on(0, line).at(at).times(ratio, on(0, line).first(), note);
    let linear = "§C: linear";
    let double = "§C: double";
    let modest = "§C: 1.2 times";
    vec![
        grows("Log0", 5.0, 5.0, linear),
        grows("Log0", 10.0, 10.0, linear),
        grows("Log1", 5.0, 2.0, double),
        grows("SQL1", 5.0, 2.0, double),
        grows("Log2", 5.0, 1.2, modest),
        grows("SQL2", 5.0, 1.2, modest),
    ]
}

/// The names of the lines of tables 2 and 3, by the size of a block.
const BLOCKS: [&str; 5] = ["4 KB", "8 KB", "16 KB", "32 KB", "64 KB"];

fn memory_disk(figure: &str) -> Vec<Stated> {
    match figure {
        "003-delay" => [(4.0, 237.0), (64.0, 20.0)]
            .map(|(block, ratio)| {
                let line = on(1, "paper: (3) / (4)");
                line.at(block).is(ratio, "§4.2: 1:237 and 1:20")
            })
            .to_vec(),
        "003-table2" => cells(&TABLE_2, "table 2 x our first cell / its first"),
        "003-table3" => {
            let mut all = cells(&TABLE_3, "table 3 x our first cell / its first");
            all.extend(BLOCKS_KB.iter().zip(PRINTED_GAINS).map(|(block, gain)| {
                on(1, "the paper's cells, mean over users")
                    .at(f64::from(*block))
                    .is((gain - 1.0) * 100.0, "§4.2: the printed averages")
            }));
            all
        }
        _ => Vec::new(),
    }
}

/// Returns the cells of a table. The paper does not say its unit of time, so all cells are divided by the paper's cell of
/// 100 users and 4 KB, and multiplied by ours.
fn cells(table: &[[u32; 5]; 5], note: &'static str) -> Vec<Stated> {
    let first = f64::from(table[0][0]);
    let cell = |(user, block): (usize, usize)| {
        on(0, BLOCKS[block]).at(f64::from(USERS[user])).times(
            f64::from(table[user][block]) / first,
            on(0, BLOCKS[0]).first(),
            note,
        )
    };
    let all = (0..BLOCKS.len()).flat_map(|block| (0..USERS.len()).map(move |user| (user, block)));
    all.map(cell).collect()
}

fn archive(figure: &str) -> Vec<Stated> {
    const WAYS: [&str; 4] = ["B", "T", "S", "S+M"];
    match figure {
        "004-fig1" => vec![on(0, "Traditional").times(
            240.0 / 7.0,
            on(0, "Single pass"),
            "§1: 4 hours / 7 minutes x our single pass",
        )],
        "004-fig3" => vec![on(0, "Single-pass restore").times(
            1.0,
            on(0, "Copy outdated full backup"),
            "§4.3: our copy, nearly",
        )],
        "004-fig4" => memory::paper_ratios()
            .map(|(part, ratio)| {
                let single = on(0, "Single pass");
                let note = "figure 4's ratio x our single pass";
                on(0, "Traditional").at(part).times(ratio, single, note)
            })
            .collect(),
        "004-fig5" => {
            let more = on(0, "S+M").times(19.2 / 19.5, on(0, "T"), "§4.4: 19.2/19.5 of our T");
            let busy = WAYS.map(|way| on(1, way).is(60.0, "§4.4: 60 %"));
            [more].into_iter().chain(busy).collect()
        }
        "004-fig6" => {
            let same = |way| on(0, way).times(1.0, on(0, "B"), "§4.4: as our B");
            let busy = WAYS.map(|way| on(1, way).is(24.0, "§4.4: around 24 %"));
            WAYS[1..].iter().map(|way| same(*way)).chain(busy).collect()
        }
        _ => Vec::new(),
    }
}
