//! Figures 5 and 8: the speed of a replay, by the rate of the clients before the crash.

use anyhow::Result;
use perdura_recovery::report::OrderedReport;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::stand::{Setting, Stand, Workload, driven, workers};
use super::{VALUE, label};
use crate::drive::{Limit, LogScheme, RunReport};
use crate::num::{count_f64, f64_of, median, ratio};
use crate::tpcc::inputs::Mix;

/// Makes figure 5: Voter.
///
/// # Errors
/// Errors of the engine and of the restart.
pub fn voter(lab: &Lab<'_>) -> Result<Figure> {
    make(lab, "001-fig5", Workload::Voter)
}

/// Makes figure 8: TPC-C.
///
/// # Errors
/// Errors of the engine and of the restart.
pub fn tpcc(lab: &Lab<'_>) -> Result<Figure> {
    make(lab, "001-fig8", Workload::Tpcc)
}

/// A crash, and the restarts that replay it.
struct Replayed {
    /// The name of the setting before the crash.
    kind: &'static str,
    /// The clients' rate before the crash, as a part of the highest rate. `None`: no limit.
    part: Option<f64>,
    /// The report of the run before the crash.
    run: RunReport,
    threads: usize,
    /// The reports of all restarts.
    passes: Vec<OrderedReport>,
}

impl Replayed {
    fn seconds(&self) -> f64 {
        median(self.passes.iter().map(|pass| pass.seconds).collect())
    }

    /// Returns the number of transactions of the run divided by the time of the replay, in the
    /// paper's unit.
    fn rate(&self, workload: Workload) -> f64 {
        workload.throughput(&self.run, self.seconds())
    }
}

/// Returns the settings to run, each with its name in the legend.
fn kinds(lab: &Lab<'_>, workload: Workload) -> Vec<(&'static str, Setting)> {
    let of = |scheme| Setting::of(workload, scheme, lab.scale.typed.tpcc);
    let mut kinds = vec![
        (label(LogScheme::Command), of(LogScheme::Command)),
        (label(VALUE), of(VALUE)),
    ];
    if workload == Workload::Tpcc {
        let mut multi = of(LogScheme::Command);
        multi.mix = Mix::default();
        kinds.push((MULTI, multi));
    }
    kinds
}

/// The name of the setting with the mix of the specification, in which about one transaction in ten
/// uses two warehouses.
const MULTI: &str = "Command log, remote transactions";

fn measure(lab: &Lab<'_>, workload: Workload) -> Result<Vec<Replayed>> {
    let scale = &lab.scale.typed;
    let [voter, tpcc] = scale.crash_txns;
    let txns = match workload {
        Workload::Voter => voter,
        Workload::Tpcc => tpcc,
    };
    let mut replayed = Vec::new();
    for (kind, setting) in kinds(lab, workload) {
        let mut stand = Stand::new(setting, lab.seed)?;
        let mut most = 0.0;
        let parts = std::iter::once(None).chain(scale.crash_rates.iter().copied().map(Some));
        for part in parts {
            lab.say(&format!("{}, {kind}: {txns} transactions", workload.name()));
            stand.checkpoint()?;
            let rate = part.map(|part| (part * most).max(1.0));
            let run = stand.run(driven(workers(lab), rate, Limit::Txns(txns)))?;
            if part.is_none() {
                most = run.tps;
            }
            let crash = stand.crash()?;
            let mut threads = vec![1, lab.cores];
            threads.dedup();
            for threads in threads {
                let passes = (0..scale.restarts).map(|_| crash.restart(threads, 0));
                replayed.push(Replayed {
                    kind,
                    part,
                    run: run.clone(),
                    threads,
                    passes: passes.collect::<Result<_>>()?,
                });
            }
            stand = crash.reopen()?;
        }
    }
    Ok(replayed)
}

fn make(lab: &Lab<'_>, name: &'static str, workload: Workload) -> Result<Figure> {
    let replayed = measure(lab, workload)?;
    let lines = |threads: usize| {
        let replayed = &replayed;
        kinds(lab, workload).into_iter().map(move |(kind, _)| {
            let of = replayed
                .iter()
                .filter(|r| r.kind == kind && r.threads == threads);
            let mut points: Vec<(f64, f64)> = of.map(|r| (r.run.tps, r.rate(workload))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            (kind, points)
        })
    };
    let mut series: Vec<Series> = lines(lab.cores)
        .map(|(kind, points)| Series::solid(format!("{kind}, {} thread(s)", lab.cores), points))
        .collect();
    if lab.cores > 1 {
        series.extend(
            lines(1).map(|(kind, points)| Series::broken(format!("{kind}, 1 thread"), points)),
        );
    }
    Ok(Figure {
        name,
        title: format!(
            "{} log replay by the rate before the crash",
            workload.name()
        ),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "{} since the last image; medians of {} restarts each; the log is in memory, and the time \
                 to read, check and queue it counts, while the image and its indexes do not",
                txns_words(lab, workload),
                lab.scale.typed.restarts
            ),
            "Every restart ended in the digest that the database had before the crash.".into(),
        ],
        columns: "log,client_rate_tps,tps_before,threads,frames,log_bytes,seconds,read_seconds,\
            replay_tps,replay_tpmc",
        rows: replayed.iter().map(|r| row(workload, r)).collect(),
        claims: claims(lab, workload, &replayed),
        plot: Plot {
            title: format!("{}: log replay rates", name.replace("001-fig", "Figure ")),
            subtitle: format!("{}, {} cores", workload.name(), lab.cores),
            panels: vec![Panel::new(
                format!("{} log replay", workload.name()),
                format!("Recovery rate ({})", workload.unit()),
                Chart::lines("Client rate during run before crash (tps)", series),
            )],
        },
    })
}

fn txns_words(lab: &Lab<'_>, workload: Workload) -> String {
    let scale = &lab.scale.typed;
    let [voter, tpcc] = scale.crash_txns;
    match workload {
        Workload::Voter => format!("{voter} votes"),
        Workload::Tpcc => format!(
            "{tpcc} transactions on {} warehouses of {} items and {} customers in a district",
            scale.tpcc.warehouses, scale.tpcc.items, scale.tpcc.customers
        ),
    }
}

fn row(workload: Workload, r: &Replayed) -> Vec<Value> {
    let any = &r.passes[0];
    let read = median(r.passes.iter().map(|pass| pass.read_seconds).collect());
    vec![
        r.kind.into(),
        match r.part {
            None => Value::Null,
            Some(_) => r.run.rate.map_or(Value::Null, cell),
        },
        cell(r.run.tps),
        r.threads.into(),
        any.played.into(),
        any.bytes.into(),
        cell(r.seconds()),
        cell(read),
        cell(ratio(f64_of(r.run.txns), r.seconds())),
        match workload {
            Workload::Voter => Value::Null,
            Workload::Tpcc => cell(r.rate(workload)),
        },
    ]
}

fn claims(lab: &Lab<'_>, workload: Workload, replayed: &[Replayed]) -> Vec<Claim> {
    let rates = |kind: &str, threads: usize| -> Vec<f64> {
        let of = replayed
            .iter()
            .filter(|r| r.kind == kind && r.threads == threads);
        of.map(|r| r.rate(workload)).collect()
    };
    let (command, value) = (label(LogScheme::Command), label(VALUE));
    let middle = |kind, threads| median(rates(kind, threads));
    let before = replayed
        .iter()
        .find(|r| r.kind == command && r.part.is_none())
        .map_or(0.0, |r| workload.throughput(&r.run, r.run.seconds));
    let (paper_ratio, paper_rate) = match workload {
        Workload::Voter => ("almost 5", "1: 100K tps in both"),
        Workload::Tpcc => ("1.5", "1: 865K tpmC in both"),
    };
    let of_command = rates(command, lab.cores);
    let most = of_command.iter().copied().fold(0.0, f64::max);
    let least = of_command.iter().copied().fold(f64::MAX, f64::min);
    let mut claims = vec![
        Claim::measured(
            "replay rate, value / command, all cores",
            paper_ratio,
            Target::AtLeast(1.0),
            ratio(middle(value, lab.cores), middle(command, lab.cores)),
            "the shape is asked for: rows are replayed faster than calls",
        ),
        Claim::reported(
            "the same on one thread",
            paper_ratio,
            ratio(middle(value, 1), middle(command, 1)),
            "",
        ),
        Claim::measured(
            "replay rate of the command log / its most throughput before",
            paper_rate,
            Target::AtLeast(0.9),
            ratio(middle(command, lab.cores), before),
            "all cores replay; before, one was left to the log",
        ),
        Claim::measured(
            "replay rate of the command log, highest / lowest over the rates before",
            "not a function of the load",
            Target::AtMost(1.3),
            ratio(most, least),
            "",
        ),
    ];
    if lab.cores > 1 {
        let gain = |kind| ratio(middle(kind, lab.cores), middle(kind, 1));
        let asked = Target::AtLeast(0.8 * count_f64(lab.cores.min(2)));
        for (kind, name, asked) in [
            (value, "value", asked),
            (command, "command", asked),
            (MULTI, "command, with remote transactions", Target::None),
        ] {
            if rates(kind, 1).is_empty() {
                continue;
            }
            claims.push(Claim::measured(
                &format!("{} threads over one, {name}", lab.cores),
                "linear in the cores",
                asked,
                gain(kind),
                "",
            ));
        }
    }
    claims
}
