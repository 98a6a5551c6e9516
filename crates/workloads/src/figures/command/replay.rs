//! Figures 5 and 8: the speed of a replay, by the rate of the clients before the crash.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::clients::COUNTS;
use super::replayed::{MULTI, Replayed, claims};
use super::stand::{Setting, Stand, Workload, driven_by, workers};
use super::{VALUE, label};
use crate::drive::{Limit, LogScheme};
use crate::num::{f64_of, median, ratio};
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

/// Returns the compared numbers of threads: one, as many as ran transactions before the crash, and all cores.
fn thread_counts(lab: &Lab<'_>) -> Vec<usize> {
    let mut threads = vec![1, workers(lab), lab.cores];
    threads.dedup();
    threads
}

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
            // The largest number of clients, so that clients do not limit the throughput before the crash.
            let clients = COUNTS[COUNTS.len() - 1];
            let drive = driven_by(clients, workers(lab), rate, Limit::Txns(txns));
            let run = stand.run(drive)?;
            if part.is_none() {
                most = run.tps;
            }
            let crash = stand.crash()?;
            for threads in thread_counts(lab) {
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
        claims: claims(workload, [lab.cores, workers(lab)], &replayed),
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
