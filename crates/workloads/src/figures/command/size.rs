//! Section V-C4: for each form of the log, the cost of its size and the cost of its CPU time. Section V-C5: the share
//! of reading in a replay.
//!
//! To separate the two costs, a value log is measured whose frames are cut to the size of a command. The CPU time for
//! whole frames is spent, but the cut bytes are not logged. Such a log cannot be replayed.

use anyhow::{Context, Result};
use perdura::ValueForm;
use perdura::yardstick::Yardstick;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Bar, Chart, Panel, Plot};
use super::reading::{self, ReadShare};
use super::stand::{LOG_MBPS, Setting, Stand, Workload, driven, timed, workers};
use super::sweep::{Point, cpu_added, cpu_us};
use super::{CHEAP_CPU, VALUE, label};
use crate::drive::{Limit, LogScheme};
use crate::num::median;
use crate::tpcc::inputs::Kind;

/// The compared forms: the name, the form of the log, and true if its frames are cut.
const FORMS: [(&str, LogScheme, bool); 7] = [
    ("none", LogScheme::None, false),
    ("command", LogScheme::Command, false),
    ("columns", VALUE, false),
    ("cut", VALUE, true),
    ("rows", LogScheme::Value(ValueForm::Rows), false),
    ("before", LogScheme::Value(ValueForm::Before), false),
    ("differential", LogScheme::Differential, false),
];

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the restart.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let command_bytes = command_bytes(lab)?;
    let points = measure(lab, command_bytes)?;
    let shares = reading::measure(lab)?;
    Ok(Figure {
        name: "001-size",
        title: "what a value log's size costs, and what its CPU".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "TPC-C as fast as it goes, {} warehouses of {} items, {} worker(s); {} round(s) of {:.1} s, \
                 medians; one snapshot in each run",
                lab.scale.typed.tpcc.warehouses,
                lab.scale.typed.tpcc.items,
                workers(lab),
                lab.scale.typed.rounds,
                lab.scale.typed.measured.as_secs_f64()
            ),
            format!(
                "Cut: to {command_bytes} bytes, what a command takes. Such a log cannot be replayed."
            ),
            format!("Reading: on one thread, from a log disk of {LOG_MBPS} MB/s, with the checks."),
        ],
        columns: "workload,log,tps,cpu_us_per_txn,log_bytes_per_txn,replay_seconds,read_seconds,\
            read_over_play",
        rows: rows(&points, &shares),
        claims: [claims(&points), reading::claims(&shares)].concat(),
        plot: plot(&points, &shares),
    })
}

/// Returns the mean size of a command in the log, bytes.
fn command_bytes(lab: &Lab<'_>) -> Result<usize> {
    let setting = Setting::of(Workload::Tpcc, LogScheme::Command, lab.scale.typed.tpcc);
    let limit = Limit::Txns(lab.scale.typed.sized_txns);
    let report = Stand::new(setting, lab.seed)?.run(driven(1, None, limit))?;
    let writing = [Kind::NewOrder, Kind::Payment, Kind::Delivery].map(|kind| {
        let of = &report.kinds[kind.index()];
        of.txns - of.aborts
    });
    let logged: u64 = writing.into_iter().sum();
    let mean = report.log_bytes / logged.max(1);
    usize::try_from(mean).context("a transaction logs little")
}

fn measure(lab: &Lab<'_>, command_bytes: usize) -> Result<Vec<(&'static str, Point)>> {
    let mut points: Vec<(&'static str, Point)> = FORMS
        .iter()
        .map(|(name, scheme, _)| (*name, Point::new(*scheme, None)))
        .collect();
    let rounds = lab.scale.typed.rounds;
    for round in 0..rounds {
        for turn in 0..FORMS.len() {
            let index = (round + turn) % FORMS.len();
            let (name, scheme, is_cut) = FORMS[index];
            lab.say(&format!("TPC-C, {name}: round {} of {rounds}", round + 1));
            let mut setting = Setting::of(Workload::Tpcc, scheme, lab.scale.typed.tpcc);
            if is_cut {
                setting.yardstick = Yardstick::Cut(command_bytes);
            }
            let mut stand = Stand::new(setting, lab.seed)?;
            let drive = driven(workers(lab), None, timed(lab));
            points[index].1.runs.push(stand.run(drive)?);
        }
    }
    Ok(points)
}

fn rows(points: &[(&'static str, Point)], shares: &[ReadShare]) -> Vec<Vec<Value>> {
    let of_points = points.iter().map(|(name, point)| {
        vec![
            Workload::Tpcc.name().into(),
            (*name).into(),
            cell(point.median(|run| run.tps)),
            cell(point.cpu_us()),
            cell(point.median(|run| run.log_bytes_per_txn)),
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    });
    let of_shares = shares.iter().map(|share| {
        vec![
            share.workload.name().into(),
            label(share.scheme).into(),
            Value::Null,
            Value::Null,
            Value::Null,
            cell(share.read_seconds() + share.play_seconds()),
            cell(share.read_seconds()),
            cell(median(share.shares())),
        ]
    });
    of_points.chain(of_shares).collect()
}

/// Returns the measurements of a form.
fn form<'a>(points: &'a [(&'static str, Point)], name: &str) -> &'a Point {
    let found = points.iter().find(|(of, _)| *of == name);
    &found.expect("all forms are measured").1
}

fn claims(points: &[(&'static str, Point)]) -> Vec<Claim> {
    let of = |name| form(points, name);
    let over = |a, b| of(a).over(of(b), |run| run.tps);
    let bytes = |a, b| of(a).over(of(b), |run| run.log_bytes_per_txn);
    let is_more = Bounds(Better::More, Finding::AtLeast(1.0));
    let mut claims = vec![
        Claim::measured(
            "throughput, value cut to a command's size / whole",
            Paper::of("1.01", 1.01).within(0.05),
            Bounds(Better::Neither, Finding::AtMost(1.1)),
            over("cut", "columns"),
            "the size matters little: what is left is CPU",
        ),
        Claim::measured(
            "throughput, command / value cut to its size",
            Paper::of("nearly 1.5", 1.5),
            is_more,
            over("command", "cut"),
            "",
        ),
        Claim::measured(
            "bytes a transaction, cut / command",
            Paper::of("1: about the same, 100 B", 1.0),
            Bounds(Better::Neither, Finding::Within(1.0, 0.3)),
            bytes("cut", "command"),
            "",
        ),
        Claim::measured(
            "bytes a transaction, whole rows / columns",
            Paper::of("nearly 5", 5.0),
            is_more,
            bytes("rows", "columns"),
            "",
        ),
        Claim::measured(
            "bytes a transaction, rows before and after / rows",
            Paper::of("nearly 2", 2.0),
            is_more,
            bytes("before", "rows"),
            "",
        ),
    ];
    claims.extend(cpu_claims(points));
    claims
}

/// Returns the claims about the CPU time of logging.
fn cpu_claims(points: &[(&'static str, Point)]) -> Vec<Claim> {
    let of = |name| form(points, name);
    let more = |a, b| of(a).pair(of(b), |a, b| cpu_us(a) - cpu_us(b));
    let mut claims = vec![
        Claim::measured(
            "CPU of logging a transaction / CPU without a log, command",
            Paper::of("nearly zero", 0.0).within(0.05),
            Bounds(Better::Less, Finding::AtMost(CHEAP_CPU)),
            of("command").pair(of("none"), cpu_added),
            "",
        ),
        Claim::measured(
            "CPU of a transaction, columns - rows",
            Paper::above("above 0: columns cost more than rows", 0.0).within(0.0),
            Bounds(Better::Neither, Finding::AtLeast(0.0)),
            more("columns", "rows"),
            "",
        )
        .in_unit(" us"),
    ];
    for name in ["columns", "rows", "before", "differential"] {
        let what = format!("CPU of logging a transaction, {name}");
        claims
            .push(Claim::own(&what, Finding::AtLeast(0.0), more(name, "none"), "").in_unit(" us"));
    }
    claims
}

fn plot(points: &[(&'static str, Point)], shares: &[ReadShare]) -> Plot {
    let bars = |of: &dyn Fn(&Point) -> f64, part: &str| {
        let bar = |(name, point): &(&'static str, Point)| Bar {
            label: (*name).into(),
            parts: vec![(part.to_owned(), of(point))],
        };
        Chart::Bars(points.iter().map(bar).collect())
    };
    let panel = |title: &str, y: &str, chart| Panel::new(title, y, chart);
    Plot {
        title: "Section V-C4: log record size and performance".into(),
        subtitle: "TPC-C as fast as it goes; medians".into(),
        panels: vec![
            panel(
                "Throughput",
                "Transactions a second",
                bars(&|p| p.median(|run| run.tps), "all transactions"),
            ),
            panel(
                "CPU",
                "CPU of a transaction (us)",
                bars(&Point::cpu_us, "the process"),
            ),
            panel(
                "Log",
                "Bytes a transaction",
                bars(&|p| p.median(|run| run.log_bytes_per_txn), "records"),
            ),
            panel(
                "Replay on one thread",
                "Time (sec)",
                Chart::Bars(
                    shares
                        .iter()
                        .map(|share| Bar {
                            label: format!("{} {}", share.workload.name(), share.scheme.name()),
                            parts: vec![
                                ("playing".into(), share.play_seconds()),
                                ("reading".into(), share.read_seconds()),
                            ],
                        })
                        .collect(),
                ),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::testing::{expect, run_of};
    use super::*;

    const CLAIMS: [&str; 7] = [
        "throughput, value cut to a command's size / whole",
        "throughput, command / value cut to its size",
        "bytes a transaction, cut / command",
        "bytes a transaction, whole rows / columns",
        "bytes a transaction, rows before and after / rows",
        "CPU of logging a transaction / CPU without a log, command",
        "CPU of a transaction, columns - rows",
    ];

    /// Returns a point for each form. `of` has its transactions a second, and for a transaction the microseconds of CPU
    /// time and the bytes.
    fn points(of: [(u64, f64, f64); 7]) -> Vec<(&'static str, Point)> {
        let forms = FORMS.iter().zip(of);
        let of = forms.map(|((name, scheme, _), (tps, cpu_us, bytes))| {
            let mut point = Point::new(*scheme, None);
            let mut run = run_of(tps, cpu_us);
            run.log_bytes_per_txn = bytes;
            point.runs = vec![run; 2];
            (*name, point)
        });
        of.collect()
    }

    const PAPER: [(u64, f64, f64); 7] = [
        (30_000, 20.0, 0.0),
        (30_000, 20.4, 100.0),
        (20_000, 30.0, 1_000.0),
        (20_200, 29.0, 100.0),
        (21_000, 28.0, 5_000.0),
        (20_500, 29.0, 10_000.0),
        (20_500, 29.0, 900.0),
    ];

    #[test]
    fn the_papers_values_are_as_the_paper() {
        let made = claims(&points(PAPER));
        for what in CLAIMS {
            expect(&made, what, Verdict::AsPaper);
        }
        for name in ["columns", "rows", "before", "differential"] {
            expect(
                &made,
                &format!("CPU of logging a transaction, {name}"),
                Verdict::Reported,
            );
        }
    }

    #[test]
    fn each_claim_comes_out_otherwise_with_other_data() {
        let mut against = PAPER;
        (against[1].0, against[3].0) = (25_000, 28_000);
        against[1].1 = 40.0;
        (against[2].1, against[4].1) = (18.0, 19.0);
        (against[5].1, against[6].1) = (19.0, 19.0);
        (against[2].2, against[3].2, against[4].2, against[5].2) = (6e3, 500.0, 5e3, 4e3);
        let against = claims(&points(against));
        for what in CLAIMS {
            expect(&against, what, Verdict::Fails);
        }
        for name in ["columns", "rows", "before", "differential"] {
            expect(
                &against,
                &format!("CPU of logging a transaction, {name}"),
                Verdict::Fails,
            );
        }
        let mut weak = PAPER;
        (weak[1].0, weak[3].0) = (22_500, 21_600);
        weak[1].1 = 22.0;
        (weak[3].2, weak[4].2, weak[5].2) = (120.0, 3e3, 4.5e3);
        let weak = claims(&points(weak));
        for what in &CLAIMS[..6] {
            expect(&weak, what, Verdict::Weaker);
        }
    }
}
