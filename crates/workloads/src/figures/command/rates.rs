//! Figures 3 and 6: throughput by the clients' rate, of Voter and of TPC-C.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::super::sample::Sample;
use super::clients::{self, disk_part, limit, waiting};
use super::stand::{LOG_MBPS, SYNC_US, Workload, workers};
use super::sweep::{Point, Sweep, cpu_added, cpu_us};
use super::{CHEAP, CHEAP_CPU, SCHEMES, label};
use crate::drive::RunReport;
use crate::num::{count_f64, ratio};

pub use super::latency::{tpcc_latency, voter_latency};

/// Makes figure 3: the throughput of Voter.
///
/// # Errors
/// Errors of the engine.
pub fn voter_throughput(lab: &Lab<'_>) -> Result<Figure> {
    Ok(throughput(lab, "001-fig3", lab.sweep(Workload::Voter)?))
}

/// Makes figure 6: the throughput of TPC-C.
///
/// # Errors
/// Errors of the engine.
pub fn tpcc_throughput(lab: &Lab<'_>) -> Result<Figure> {
    Ok(throughput(lab, "001-fig6", lab.sweep(Workload::Tpcc)?))
}

/// The paper's statements about the throughput of a workload.
struct RateValues {
    command_over_none: Paper,
    command_over_value: Paper,
    value_over_none: Paper,
    keeps_up: &'static str,
}

fn says(workload: Workload) -> RateValues {
    match workload {
        Workload::Voter => RateValues {
            command_over_none: Paper::of("1: both saturate at 95K tps", 1.0).within(0.05),
            command_over_value: Paper::of("1.2: 95K and 80K tps", 1.2),
            value_over_none: Paper::of("0.85: 15 % less", 0.85),
            keeps_up: "all match the rate until 80K tps, of 95K",
        },
        Workload::Tpcc => RateValues {
            command_over_none: Paper::of("nearly the same", 1.0).within(0.05),
            command_over_value: Paper::of("1.5", 1.5),
            value_over_none: Paper::of("0.66", 0.66),
            keeps_up: "all until 21K tps, of 30K",
        },
    }
}

/// Returns the setting of the experiment, in words.
pub fn setting(lab: &Lab<'_>, workload: Workload) -> Vec<String> {
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
            log_bytes_per_txn,clients,clients_waiting,all_clients_waited_part,disk_part,cpus_busy,limit",
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
        match point.rate {
            None => cell(point.median(|run| count_f64(run.clients.unwrap_or(0)))),
            Some(_) => Value::Null,
        },
        cell(point.median(waiting)),
        cell(point.median(|run| run.waited_part)),
        cell(point.median(disk_part)),
        cell(point.median(|run| ratio(run.cpu_seconds.unwrap_or(0.0), run.seconds))),
        match point.rate {
            None => limit(point).name().into(),
            Some(_) => Value::Null,
        },
    ]
}

/// Returns a value for each round: the part of the clients' rate that the slowest scheme reaches at half load.
fn kept_up(sweep: &Sweep) -> Sample {
    let points = SCHEMES.map(|scheme| sweep.at_part(scheme, 0.5));
    let reached = |point: &Point, round: usize| {
        let run = point.runs.get(round);
        ratio(run.map_or(0.0, |run| run.tps), point.rate.unwrap_or(0.0))
    };
    let rounds = points[0].runs.len();
    Sample::of((0..rounds).map(|round| {
        let of = points.map(|point| reached(point, round));
        of.into_iter().fold(f64::MAX, f64::min)
    }))
}

fn throughput_claims(sweep: &Sweep) -> Vec<Claim> {
    let says = says(sweep.workload);
    let [command, value, none] = SCHEMES.map(|scheme| sweep.saturated(scheme));
    let most = |run: &RunReport| run.tps;
    let is_more = Bounds(Better::More, Finding::AtLeast(1.0));
    let compared = format!(
        "without a rate, {} clients a worker, by rounds; limit of the command log: {}",
        command.clients,
        limit(command).name()
    );
    let mut claims = vec![
        Claim::measured(
            "most transactions a second, command / none",
            says.command_over_none,
            Bounds(Better::More, Finding::AtLeast(CHEAP)),
            command.over(none, most),
            &compared,
        ),
        Claim::measured(
            "the same, command / value",
            says.command_over_value,
            is_more,
            command.over(value, most),
            "",
        ),
        Claim::measured(
            "the same, value / none",
            says.value_over_none,
            Bounds(Better::Less, Finding::AtMost(1.0)),
            value.over(none, most),
            "smaller is what the paper found: what a value log costs",
        ),
        Claim::measured(
            "least throughput / client rate at half of what no log reaches",
            Paper::of(says.keeps_up, 1.0).within(0.03),
            Bounds(Better::More, Finding::AtLeast(0.97)),
            kept_up(sweep),
            "",
        ),
    ];
    claims.extend(clients::claims(sweep));
    claims.extend(cpu_claims([command, value, none]));
    claims
}

/// Returns the claims about the CPU time of a transaction.
fn cpu_claims([command, value, none]: [&Point; 3]) -> Vec<Claim> {
    vec![
        Claim::own(
            "transactions a second without a log",
            Finding::Any,
            none.sample(|run| run.tps),
            "",
        ),
        Claim::own(
            "CPU of a transaction without a log",
            Finding::Any,
            none.sample(cpu_us),
            "of the process: with clients, snapshots and what else runs",
        )
        .in_unit(" us"),
        Claim::measured(
            "more of it with a command log, as a part",
            Paper::of("nearly zero", 0.0).within(0.05),
            Bounds(Better::Less, Finding::AtMost(CHEAP_CPU)),
            command.pair(none, cpu_added),
            "",
        ),
        Claim::own(
            "more of it with a value log, as a part",
            Finding::AtLeast(0.0),
            value.pair(none, cpu_added),
            "",
        ),
        Claim::measured(
            "CPU of a transaction, value - command",
            Paper::above("above 0: the overhead of making records", 0.0).within(0.0),
            Bounds(Better::More, Finding::AtLeast(0.0)),
            value.pair(command, |value, command| cpu_us(value) - cpu_us(command)),
            "",
        )
        .in_unit(" us"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::VALUE;
    use super::super::testing::{expect, sweep, verdict};
    use super::*;
    use crate::drive::LogScheme;

    const RATIO: &str = "most transactions a second, command / none";
    const OVER_VALUE: &str = "the same, command / value";
    const OF_VALUE: &str = "the same, value / none";
    const KEPT_UP: &str = "least throughput / client rate at half of what no log reaches";
    const ADDED: &str = "more of it with a command log, as a part";
    const ADDED_BY_VALUE: &str = "more of it with a value log, as a part";
    const CPU: &str = "CPU of a transaction, value - command";

    /// Returns the claims if `change` is applied to all runs of a scheme.
    fn changed(workload: Workload, scheme: LogScheme, change: fn(&mut RunReport)) -> Vec<Claim> {
        let mut of = sweep(workload);
        let points = of.points.iter_mut().filter(|point| point.scheme == scheme);
        points.flat_map(|point| &mut point.runs).for_each(change);
        throughput_claims(&of)
    }

    #[test]
    fn the_papers_values_are_as_the_paper() {
        for workload in [Workload::Voter, Workload::Tpcc] {
            let made = throughput_claims(&sweep(workload));
            for what in [RATIO, OVER_VALUE, OF_VALUE, KEPT_UP, ADDED, CPU] {
                assert_eq!(verdict(&made, what), Verdict::AsPaper, "{what}");
            }
            assert_eq!(verdict(&made, ADDED_BY_VALUE), Verdict::Reported);
        }
    }

    #[test]
    fn each_claim_comes_out_otherwise_with_other_data() {
        let (command, tpcc) = (LogScheme::Command, Workload::Tpcc);
        let slow = changed(tpcc, command, |run| run.tps *= 0.6);
        expect(&slow, RATIO, Verdict::Fails);
        expect(&slow, OVER_VALUE, Verdict::Fails);
        expect(&slow, KEPT_UP, Verdict::Fails);
        let slower = changed(tpcc, command, |run| run.tps *= 0.9);
        expect(&slower, RATIO, Verdict::Weaker);
        let cheap = changed(tpcc, VALUE, |run| run.tps *= 1.4);
        expect(&cheap, OF_VALUE, Verdict::Weaker);
        expect(&cheap, OVER_VALUE, Verdict::Weaker);
        let free = changed(tpcc, VALUE, |run| run.tps *= 1.6);
        expect(&free, OF_VALUE, Verdict::Fails);
        let dear = changed(tpcc, VALUE, |run| run.tps *= 0.5);
        expect(&dear, OF_VALUE, Verdict::Stronger);
        let busy = changed(tpcc, command, |run| {
            run.cpu_seconds = run.cpu_seconds.map(|s| s * 1.1)
        });
        expect(&busy, ADDED, Verdict::Weaker);
        let busier = changed(tpcc, command, |run| {
            run.cpu_seconds = run.cpu_seconds.map(|s| s * 2.0)
        });
        expect(&busier, ADDED, Verdict::Fails);
        expect(&busier, CPU, Verdict::Fails);
        let unknown = changed(tpcc, LogScheme::None, |run| run.cpu_seconds = None);
        expect(&unknown, ADDED, Verdict::Fails);
        let idle = changed(tpcc, VALUE, |run| {
            run.cpu_seconds = run.cpu_seconds.map(|s| s * 0.5)
        });
        expect(&idle, ADDED_BY_VALUE, Verdict::Fails);
    }
}
