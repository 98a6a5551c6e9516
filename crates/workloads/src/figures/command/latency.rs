//! Figures 4 and 7: latency by the clients' rate, of Voter and of TPC-C.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::rates::setting;
use super::stand::{SYNC_US, Workload};
use super::sweep::Sweep;
use super::{SCHEMES, VALUE, label};
use crate::drive::{LogScheme, RunReport};
use crate::num::f64_of;

/// The paper's difference in latency between the value log and no log, milliseconds: 15 % of 6 ms.
const NOTICED_MS: f64 = 0.9;

/// Makes figure 4: the latency of Voter.
///
/// # Errors
/// Errors of the engine.
pub fn voter_latency(lab: &Lab<'_>) -> Result<Figure> {
    Ok(latency(lab, "001-fig4", lab.sweep(Workload::Voter)?))
}

/// Makes figure 7: the latency of TPC-C.
///
/// # Errors
/// Errors of the engine.
pub fn tpcc_latency(lab: &Lab<'_>) -> Result<Figure> {
    Ok(latency(lab, "001-fig7", lab.sweep(Workload::Tpcc)?))
}

/// Returns the median latency, milliseconds.
fn p50_ms(run: &RunReport) -> f64 {
    f64_of(run.latency_us.p50) / 1e3
}

/// Returns the latency that 99 of 100 transactions do not exceed, milliseconds.
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

/// Returns the most by which the paper's latency exceeds the interval of its group commits, which is 5 ms.
fn group_commit() -> Paper {
    Paper::below("5 to 7 ms with groups every 5 ms: at most 2 above", 2.0)
}

fn latency_claims(sweep: &Sweep) -> Vec<Claim> {
    let half = |scheme| sweep.at_part(scheme, 0.5);
    let over_sync = |scheme| half(scheme).sample(|run| p99_ms(run) - sweep.sync_p99_ms);
    let command = LogScheme::Command;
    let soon = Bounds(Better::Less, Finding::AtMost(2.0));
    let mut claims = vec![
        Claim::measured(
            "p99 at half load over the idle disk's sync p99, command",
            group_commit(),
            soon,
            over_sync(command),
            "the disk is asked to sync at once, and not every 5 ms",
        )
        .in_unit(" ms"),
        Claim::measured(
            "the same, value",
            group_commit(),
            soon,
            over_sync(VALUE),
            "",
        )
        .in_unit(" ms"),
        Claim::measured(
            "median at half load, command - none",
            Paper::of("almost the same", 0.0).within(NOTICED_MS),
            Bounds(Better::Less, Finding::AtMost(2.0)),
            half(command).pair(half(LogScheme::None), |ours, none| {
                p50_ms(ours) - p50_ms(none)
            }),
            "without a log nothing waits here, while the paper's has 5 to 7 ms in all modes",
        )
        .in_unit(" ms"),
        Claim::measured(
            "command's median at half load / at the lowest rate",
            Paper::between("5 to 7 ms at both", 5.0 / 7.0, 7.0 / 5.0).within(0.0),
            Bounds(Better::Less, Finding::AtMost(1.5)),
            half(command).over(sweep.at_part(command, 0.0), p50_ms),
            "",
        ),
    ];
    claims.extend(value_claims(sweep));
    claims.push(
        Claim::own(
            "99 of 100 syncs of the idle disk, at most",
            Finding::AtLeast(f64_of(SYNC_US) / 1e3),
            sweep.sync_p99_ms,
            "the modelled disk really waits",
        )
        .in_unit(" ms"),
    );
    claims
}

/// Returns the claims about the latency of the value log.
fn value_claims(sweep: &Sweep) -> Vec<Claim> {
    let over = |part| {
        let of = |scheme: LogScheme| sweep.at_part(scheme, part);
        of(VALUE).over(of(LogScheme::Command), p50_ms)
    };
    let is_longer = Bounds(Better::More, Finding::AtLeast(1.0));
    let near = "median at nine tenths of what no log reaches, value / command";
    match sweep.workload {
        Workload::Voter => {
            let paper = Paper::of("1.15: 15 % higher", 1.15);
            vec![Claim::measured(near, paper, is_longer, over(0.9), "")]
        }
        Workload::Tpcc => {
            let paper = || Paper::above("at least 1.45, at all rates", 1.45);
            let half = "median at half load, value / command";
            vec![
                Claim::measured(half, paper(), is_longer, over(0.5), ""),
                Claim::measured(near, paper(), is_longer, over(0.9), ""),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::testing::{expect, sweep};
    use super::*;

    const COMMAND: &str = "p99 at half load over the idle disk's sync p99, command";
    const OF_VALUE: &str = "the same, value";
    const OVER_NONE: &str = "median at half load, command - none";
    const FLAT: &str = "command's median at half load / at the lowest rate";
    const NEAR: &str = "median at nine tenths of what no log reaches, value / command";
    const HALF: &str = "median at half load, value / command";
    const SYNC: &str = "99 of 100 syncs of the idle disk, at most";

    /// Returns the claims if `change` is applied to all runs of a scheme with a rate of at least `part`.
    fn changed(scheme: LogScheme, part: f64, change: fn(&mut RunReport)) -> Vec<Claim> {
        let mut of = sweep(Workload::Tpcc);
        let least = of.at_part(scheme, part).rate;
        let points = of.points.iter_mut();
        points
            .filter(|point| point.scheme == scheme && point.rate >= least)
            .flat_map(|point| &mut point.runs)
            .for_each(change);
        latency_claims(&of)
    }

    #[test]
    fn the_papers_values_are_as_the_paper() {
        for workload in [Workload::Voter, Workload::Tpcc] {
            let made = latency_claims(&sweep(workload));
            for what in [COMMAND, OF_VALUE, OVER_NONE, FLAT, NEAR] {
                expect(&made, what, Verdict::AsPaper);
            }
            expect(&made, SYNC, Verdict::Reported);
        }
        expect(
            &latency_claims(&sweep(Workload::Tpcc)),
            HALF,
            Verdict::AsPaper,
        );
    }

    #[test]
    fn each_claim_comes_out_otherwise_with_other_data() {
        let late = changed(LogScheme::Command, 0.5, |run| {
            run.latency_us.p50 *= 2;
            run.latency_us.p99 *= 2;
        });
        for what in [COMMAND, OVER_NONE, FLAT, NEAR, HALF] {
            expect(&late, what, Verdict::Fails);
        }
        let later = changed(LogScheme::Command, 0.5, |run| run.latency_us.p50 += 1_000);
        expect(&later, OVER_NONE, Verdict::Weaker);
        let late_value = changed(VALUE, 0.5, |run| run.latency_us.p99 *= 2);
        expect(&late_value, OF_VALUE, Verdict::Fails);
        let mut fast = sweep(Workload::Tpcc);
        fast.sync_p99_ms = 0.9;
        expect(&latency_claims(&fast), SYNC, Verdict::Fails);
    }
}
