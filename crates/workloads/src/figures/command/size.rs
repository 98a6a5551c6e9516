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
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Bar, Chart, Panel, Plot};
use super::stand::{LOG_MBPS, Setting, Stand, Workload, driven, timed, workers};
use super::sweep::{Point, cpu_us};
use super::{VALUE, label};
use crate::drive::{Limit, LogScheme};
use crate::num::{median, ratio};
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

/// The share of reading in a replay.
struct ReadShare {
    workload: Workload,
    scheme: LogScheme,
    seconds: f64,
    read_seconds: f64,
}

impl ReadShare {
    /// Returns the time that reading adds to a replay, as a part of the time of playing.
    fn share(&self) -> f64 {
        ratio(self.read_seconds, self.seconds - self.read_seconds)
    }
}

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the restart.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let command_bytes = command_bytes(lab)?;
    let points = measure(lab, command_bytes)?;
    let shares = read_shares(lab)?;
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
        claims: claims(&points, &shares),
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
        .map(|(name, scheme, _)| {
            let point = Point {
                scheme: *scheme,
                rate: None,
                runs: Vec::new(),
            };
            (*name, point)
        })
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

fn read_shares(lab: &Lab<'_>) -> Result<Vec<ReadShare>> {
    let [voter, tpcc] = lab.scale.typed.crash_txns;
    let mut shares = Vec::new();
    for (workload, txns) in [(Workload::Voter, voter), (Workload::Tpcc, tpcc)] {
        for scheme in [LogScheme::Command, VALUE] {
            lab.say(&format!("{}, {}: replay", workload.name(), label(scheme)));
            let setting = Setting::of(workload, scheme, lab.scale.typed.tpcc);
            let mut stand = Stand::new(setting, lab.seed)?;
            stand.run(driven(workers(lab), None, Limit::Txns(txns)))?;
            let crash = stand.crash()?;
            let restarts = (0..lab.scale.typed.restarts).map(|_| crash.restart(1, LOG_MBPS));
            let passes = restarts.collect::<Result<Vec<_>>>()?;
            shares.push(ReadShare {
                workload,
                scheme,
                seconds: median(passes.iter().map(|pass| pass.seconds).collect()),
                read_seconds: median(passes.iter().map(|pass| pass.read_seconds).collect()),
            });
        }
    }
    Ok(shares)
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
            cell(share.seconds),
            cell(share.read_seconds),
            cell(share.share()),
        ]
    });
    of_points.chain(of_shares).collect()
}

fn claims(points: &[(&'static str, Point)], shares: &[ReadShare]) -> Vec<Claim> {
    let point = |name| {
        let found = points.iter().find(|(of, _)| *of == name);
        &found.expect("all forms are measured").1
    };
    let tps = |name| point(name).median(|run| run.tps);
    let cpu = |name| point(name).median(cpu_us);
    let bytes = |name| point(name).median(|run| run.log_bytes_per_txn);
    let share = |workload, scheme| {
        let mut found = shares.iter();
        let found = found.find(|share| share.workload == workload && share.scheme == scheme);
        found.map_or(0.0, ReadShare::share)
    };
    let (command, none) = ("command", "none");
    let mut claims = vec![
        Claim::measured(
            "throughput, value cut to a command's size / whole",
            "1.01",
            Target::AtMost(1.1),
            ratio(tps("cut"), tps("columns")),
            "the size matters little: what is left is CPU",
        ),
        Claim::measured(
            "throughput, command / value cut to its size",
            "nearly 1.5",
            Target::AtLeast(1.0),
            ratio(tps(command), tps("cut")),
            "",
        ),
        Claim::measured(
            "bytes a transaction, cut / command",
            "1",
            Target::AtMost(1.15),
            ratio(bytes("cut"), bytes(command)),
            "",
        ),
        Claim::measured(
            "bytes a transaction, whole rows / columns",
            "nearly 5",
            Target::AtLeast(1.0),
            ratio(bytes("rows"), bytes("columns")),
            "",
        ),
        Claim::measured(
            "bytes a transaction, rows before and after / rows",
            "nearly 2",
            Target::AtLeast(1.0),
            ratio(bytes("before"), bytes("rows")),
            "",
        ),
    ];
    for (name, paper) in [
        (command, "nearly zero"),
        ("columns", "more than of rows"),
        ("rows", "-"),
        ("before", "-"),
        ("differential", "-"),
    ] {
        claims.push(
            Claim::reported(
                &format!("CPU of logging a transaction, {name}"),
                paper,
                cpu(name) - cpu(none),
                "",
            )
            .in_unit(" us"),
        );
    }
    for (workload, scheme, paper) in [
        (Workload::Voter, LogScheme::Command, "less than 0.01"),
        (Workload::Tpcc, LogScheme::Command, "less than 0.01"),
        (Workload::Voter, VALUE, "0.30"),
        (Workload::Tpcc, VALUE, "0.08"),
    ] {
        claims.push(Claim::reported(
            &format!(
                "reading / playing the log, {}, {}",
                workload.name(),
                label(scheme).to_lowercase()
            ),
            paper,
            share(workload, scheme),
            "",
        ));
    }
    for workload in [Workload::Voter, Workload::Tpcc] {
        claims.push(Claim::measured(
            &format!("the same, {}, value / command", workload.name()),
            "above 8",
            Target::AtLeast(1.0),
            ratio(share(workload, VALUE), share(workload, LogScheme::Command)),
            "the shape is asked for",
        ));
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
                                ("playing".into(), share.seconds - share.read_seconds),
                                ("reading".into(), share.read_seconds),
                            ],
                        })
                        .collect(),
                ),
            ),
        ],
    }
}
