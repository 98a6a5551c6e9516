//! Figures 3, 4, 6 and 7: throughput and latency by the clients' rate, of Voter and of TPC-C.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::stand::{LOG_MBPS, SYNC_US, Workload, workers};
use super::sweep::{Point, Sweep, cpu_us};
use super::{SCHEMES, VALUE, label};
use crate::drive::{LogScheme, RunReport};
use crate::num::{f64_of, ratio};

/// Makes figure 3: the throughput of Voter.
///
/// # Errors
/// Errors of the engine.
pub fn voter_throughput(lab: &Lab<'_>) -> Result<Figure> {
    Ok(throughput(lab, "001-fig3", lab.sweep(Workload::Voter)?))
}

/// Makes figure 4: the latency of Voter.
///
/// # Errors
/// Errors of the engine.
pub fn voter_latency(lab: &Lab<'_>) -> Result<Figure> {
    Ok(latency(lab, "001-fig4", lab.sweep(Workload::Voter)?))
}

/// Makes figure 6: the throughput of TPC-C.
///
/// # Errors
/// Errors of the engine.
pub fn tpcc_throughput(lab: &Lab<'_>) -> Result<Figure> {
    Ok(throughput(lab, "001-fig6", lab.sweep(Workload::Tpcc)?))
}

/// Makes figure 7: the latency of TPC-C.
///
/// # Errors
/// Errors of the engine.
pub fn tpcc_latency(lab: &Lab<'_>) -> Result<Figure> {
    Ok(latency(lab, "001-fig7", lab.sweep(Workload::Tpcc)?))
}

/// The paper's statements about a workload.
struct Paper {
    command_over_none: &'static str,
    command_over_value: &'static str,
    value_over_none: &'static str,
    keeps_up: &'static str,
    latency: &'static str,
    value_latency: &'static str,
}

fn paper(workload: Workload) -> Paper {
    match workload {
        Workload::Voter => Paper {
            command_over_none: "1: both saturate at 95K tps",
            command_over_value: "1.2: 95K and 80K tps",
            value_over_none: "0.85",
            keeps_up: "all match the rate until 80K tps",
            latency: "5 to 7 ms below 50K tps",
            value_latency: "1.15",
        },
        Workload::Tpcc => Paper {
            command_over_none: "nearly 1",
            command_over_value: "1.5",
            value_over_none: "0.66",
            keeps_up: "until 21K tps and 30K tps",
            latency: "as Voter's",
            value_latency: "at least 1.45",
        },
    }
}

fn setting(lab: &Lab<'_>, workload: Workload) -> Vec<String> {
    let scale = &lab.scale.typed;
    let what = match workload {
        Workload::Voter => "Voter, 6 contestants, 2 votes for each phone number".to_owned(),
        Workload::Tpcc => format!(
            "TPC-C, {} warehouses of {} items and {} customers in a district, all transactions local",
            scale.tpcc.warehouses, scale.tpcc.items, scale.tpcc.customers
        ),
    };
    vec![
        format!(
            "{what}; {} worker(s) of {} core(s) in the clients' process",
            workers(lab),
            lab.cores
        ),
        format!(
            "{} round(s), medians; {:.1} s each after {:.1} s that are not measured; one snapshot in each \
             run; a log disk of {LOG_MBPS} MB/s that takes a sync in {SYNC_US} us",
            scale.rounds,
            scale.measured.as_secs_f64(),
            scale.warm_up.as_secs_f64()
        ),
    ]
}

fn throughput(lab: &Lab<'_>, name: &'static str, sweep: &Sweep) -> Figure {
    let workload = sweep.workload;
    let amount = move |run: &RunReport| workload.throughput(run, run.seconds);
    Figure {
        name,
        title: format!("{} throughput by client rate", workload.name()),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: setting(lab, workload),
        columns: "log,client_rate_tps,tps,tpmc,tps_least,tps_most,cpu_us_per_txn,\
            log_bytes_per_txn",
        rows: sweep.points.iter().map(|p| row(workload, p)).collect(),
        claims: throughput_claims(sweep),
        plot: Plot {
            title: format!("{}: throughput", name.replace("001-fig", "Figure ")),
            subtitle: format!("{}, medians", workload.name()),
            panels: vec![Panel::new(
                format!("{} throughput", workload.name()),
                format!("Throughput ({})", workload.unit()),
                Chart::lines(
                    "Client rate (tps)",
                    SCHEMES
                        .map(|scheme| Series::solid(label(scheme), sweep.line(scheme, amount)))
                        .to_vec(),
                ),
            )],
        },
    }
}

fn row(workload: Workload, point: &Point) -> Vec<Value> {
    let all = || point.runs.iter().map(|run| run.tps);
    vec![
        point.scheme.name().into(),
        point.rate.map_or(Value::Null, cell),
        cell(point.median(|run| run.tps)),
        match workload {
            Workload::Voter => Value::Null,
            Workload::Tpcc => cell(point.median(|run| workload.throughput(run, run.seconds))),
        },
        cell(all().fold(f64::MAX, f64::min)),
        cell(all().fold(0.0, f64::max)),
        cell(point.cpu_us()),
        cell(point.median(|run| run.log_bytes_per_txn)),
    ]
}

fn throughput_claims(sweep: &Sweep) -> Vec<Claim> {
    let says = paper(sweep.workload);
    let most = |scheme| sweep.saturated(scheme).median(|run| run.tps);
    let cpu = |scheme| sweep.saturated(scheme).median(cpu_us);
    let (none, command, value) = (LogScheme::None, LogScheme::Command, VALUE);
    let kept_up = SCHEMES.map(|scheme| {
        let point = sweep.at_part(scheme, 0.5);
        ratio(point.median(|run| run.tps), point.rate.unwrap_or(0.0))
    });
    let value_asked = match sweep.workload {
        Workload::Voter => Target::None,
        Workload::Tpcc => Target::AtLeast(0.75),
    };
    vec![
        Claim::measured(
            "most transactions a second, command / none",
            says.command_over_none,
            Target::AtLeast(0.95),
            ratio(most(command), most(none)),
            "without a rate, the median of the rounds",
        ),
        Claim::measured(
            "the same, command / value",
            says.command_over_value,
            Target::AtLeast(1.0),
            ratio(most(command), most(value)),
            "the shape is asked for: rows cost more than calls",
        ),
        Claim::measured(
            "the same, value / none",
            says.value_over_none,
            value_asked,
            ratio(most(value), most(none)),
            "",
        ),
        Claim::measured(
            "least throughput / client rate at half of what no log reaches",
            says.keeps_up,
            Target::AtLeast(0.97),
            kept_up.into_iter().fold(f64::MAX, f64::min),
            "",
        ),
        Claim::reported("transactions a second without a log", "-", most(none), ""),
        Claim::reported(
            "CPU of a transaction without a log",
            "-",
            cpu(none),
            "of the process: with clients, snapshots and what else runs",
        )
        .in_unit(" us"),
        Claim::reported(
            "more of it with a command log",
            "nearly zero",
            cpu(command) - cpu(none),
            "",
        )
        .in_unit(" us"),
        Claim::reported(
            "more of it with a value log",
            "-",
            cpu(value) - cpu(none),
            "",
        )
        .in_unit(" us"),
    ]
}

fn p50_ms(run: &RunReport) -> f64 {
    f64_of(run.latency_us.p50) / 1e3
}

fn p99_ms(run: &RunReport) -> f64 {
    f64_of(run.latency_us.p99) / 1e3
}

fn latency(lab: &Lab<'_>, name: &'static str, sweep: &Sweep) -> Figure {
    let workload = sweep.workload;
    let mut words = setting(lab, workload);
    words.push(
        "From the intended start to durable; beyond saturation it grows with the length of a run, \
         because nobody turns clients away. Without a log nothing waits for a disk."
            .into(),
    );
    let mut series: Vec<Series> = SCHEMES
        .map(|scheme| Series::solid(label(scheme), sweep.line(scheme, p50_ms)))
        .to_vec();
    series.extend(SCHEMES.map(|scheme| {
        Series::broken(
            format!("{}: 99 of 100", label(scheme)),
            sweep.line(scheme, p99_ms),
        )
    }));
    Figure {
        name,
        title: format!("{} latency by client rate", workload.name()),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: words,
        columns: "log,client_rate_tps,tps,p50_ms,p99_ms",
        rows: sweep
            .points
            .iter()
            .map(|point| {
                vec![
                    point.scheme.name().into(),
                    point.rate.map_or(Value::Null, cell),
                    cell(point.median(|run| run.tps)),
                    cell(point.median(p50_ms)),
                    cell(point.median(p99_ms)),
                ]
            })
            .collect(),
        claims: latency_claims(sweep),
        plot: Plot {
            title: format!("{}: latency", name.replace("001-fig", "Figure ")),
            subtitle: format!(
                "{}, medians of the rounds; lines are the median transaction",
                workload.name()
            ),
            panels: vec![Panel::new(
                format!("{} latency", workload.name()),
                "Latency (ms)",
                Chart::Powers {
                    x: "Client rate (tps)".into(),
                    x_powers: false,
                    series,
                },
            )],
        },
    }
}

fn latency_claims(sweep: &Sweep) -> Vec<Claim> {
    let says = paper(sweep.workload);
    let over_sync = |scheme| sweep.at_part(scheme, 0.5).median(p99_ms) - sweep.sync_p99_ms;
    let p50 = |scheme, part| sweep.at_part(scheme, part).median(p50_ms);
    let command = LogScheme::Command;
    vec![
        Claim::measured(
            "p99 at half load over the idle disk's sync p99, command",
            says.latency,
            Target::AtMost(2.0),
            over_sync(command),
            "the paper commits groups every 5 ms",
        )
        .in_unit(" ms"),
        Claim::measured(
            "the same, value",
            says.latency,
            Target::AtMost(2.0),
            over_sync(VALUE),
            "",
        )
        .in_unit(" ms"),
        Claim::measured(
            "command's median at half load / at the lowest rate",
            "about the same",
            Target::AtMost(1.5),
            ratio(p50(command, 0.5), p50(command, 0.0)),
            "",
        ),
        Claim::reported(
            "median at nine tenths of what no log reaches, value / command",
            says.value_latency,
            ratio(p50(VALUE, 0.9), p50(command, 0.9)),
            "the value log saturates earlier",
        ),
        Claim::reported(
            "99 of 100 syncs of the idle disk, at most",
            "-",
            sweep.sync_p99_ms,
            "",
        )
        .in_unit(" ms"),
    ]
}
