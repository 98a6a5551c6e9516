//! The claims of figures 5 and 8: the speed of replays, compared.

use perdura_recovery::report::OrderedReport;

use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::paper::Paper;
use super::super::sample::Sample;
use super::stand::Workload;
use super::{VALUE, label};
use crate::drive::{LogScheme, RunReport};
use crate::num::{count_f64, median, ratio};

/// The name of the setting with the mix of the specification, in which about one transaction in ten
/// uses two warehouses.
pub const MULTI: &str = "Command log, remote transactions";

/// A crash, and the restarts that replay it.
pub struct Replayed {
    /// The name of the setting before the crash.
    pub kind: &'static str,
    /// The clients' rate before the crash, as a part of the highest rate. `None`: no limit.
    pub part: Option<f64>,
    /// The report of the run before the crash.
    pub run: RunReport,
    /// The number of threads of the restarts.
    pub threads: usize,
    /// The reports of all restarts.
    pub passes: Vec<OrderedReport>,
}

impl Replayed {
    /// Returns the median time of a restart.
    pub fn seconds(&self) -> f64 {
        median(self.passes.iter().map(|pass| pass.seconds).collect())
    }

    /// Returns the number of transactions of the run divided by the time of the replay, in the
    /// paper's unit.
    pub fn rate(&self, workload: Workload) -> f64 {
        workload.throughput(&self.run, self.seconds())
    }
}

/// The paper's statements about the replay of a workload.
struct ReplayValues {
    value_over_command: Paper,
    command_over_run: Paper,
}

fn says(workload: Workload) -> ReplayValues {
    match workload {
        Workload::Voter => ReplayValues {
            value_over_command: Paper::of("almost 5", 5.0),
            command_over_run: Paper::of("about 1: 100K tps and 95K tps", 1.05),
        },
        Workload::Tpcc => ReplayValues {
            value_over_command: Paper::of("about 1.5", 1.5),
            command_over_run: Paper::of("1: 865K tpmC in both", 1.0),
        },
    }
}

/// Returns the replay rates of all restarts, in the order of the crashes. `seconds` returns the part of a restart's
/// time that counts.
fn rates(
    workload: Workload,
    replayed: &[Replayed],
    kind: &str,
    threads: usize,
    seconds: fn(&OrderedReport) -> f64,
) -> Vec<f64> {
    let of = |r: &&Replayed| r.kind == kind && r.threads == threads;
    let crashes = replayed.iter().filter(of);
    let rate = |r: &Replayed, pass| workload.throughput(&r.run, seconds(pass));
    let rates = crashes.flat_map(|r| r.passes.iter().map(move |pass| rate(r, pass)));
    rates.collect()
}

/// Returns the quotients of restarts.
fn quotients(a: &[f64], b: &[f64]) -> Sample {
    Sample::of(a.iter().zip(b).map(|(a, b)| ratio(*a, *b)))
}

/// Returns the claims about the restarts of all crashes. `workers` ran the transactions before the crashes.
pub fn claims(
    workload: Workload,
    [cores, workers]: [usize; 2],
    replayed: &[Replayed],
) -> Vec<Claim> {
    let (command, value) = (label(LogScheme::Command), label(VALUE));
    let all = |kind, threads| rates(workload, replayed, kind, threads, |pass| pass.seconds);
    let playing = |kind| {
        let playing = |pass: &OrderedReport| pass.seconds - pass.read_seconds;
        rates(workload, replayed, kind, 1, playing)
    };
    let before = replayed
        .iter()
        .find(|r| r.kind == command && r.part.is_none())
        .map_or(0.0, |r| workload.throughput(&r.run, r.run.seconds));
    let is_faster = Bounds(Better::Neither, Finding::AtLeast(1.0));
    let over_command = |what: &str, ours, why| {
        Claim::measured(
            what,
            says(workload).value_over_command,
            is_faster,
            ours,
            why,
        )
    };
    let mut claims = vec![
        over_command(
            "replay rate, value / command, one thread",
            quotients(&all(value, 1), &all(command, 1)),
            "reading the log from memory counts",
        ),
        over_command(
            &format!("the same, {cores} thread(s): one for each core"),
            quotients(&all(value, cores), &all(command, cores)),
            "the paper has one site for each core",
        ),
        over_command(
            "the same, one thread, without reading the log",
            quotients(&playing(value), &playing(command)),
            "the paper leaves the reading out",
        ),
        Claim::measured(
            &format!(
                "command: replay rate with {workers} thread(s) / most throughput before, as many workers"
            ),
            says(workload).command_over_run,
            Bounds(Better::More, Finding::AtLeast(0.9)),
            Sample::of(
                all(command, workers)
                    .into_iter()
                    .map(|rate| ratio(rate, before)),
            ),
            "before, clients did not limit",
        ),
        Claim::measured(
            "replay rate of the command log, highest / lowest over the rates before",
            Paper::of("1: \"not a function of previous load\"", 1.0),
            Bounds(Better::Less, Finding::AtMost(1.3)),
            spread(workload, replayed, command, cores),
            "",
        ),
    ];
    if cores > 1 {
        claims.extend(parallel_claims(cores, &all));
    }
    claims
}

/// Returns the highest replay rate divided by the lowest, among crashes at different rates of the clients. The first
/// restarts of all crashes are compared, then the second restarts, and so on.
fn spread(workload: Workload, replayed: &[Replayed], kind: &str, threads: usize) -> Sample {
    let of = |r: &&Replayed| r.kind == kind && r.threads == threads;
    let crashes: Vec<&Replayed> = replayed.iter().filter(of).collect();
    let restarts = crashes.iter().map(|r| r.passes.len()).min().unwrap_or(0);
    Sample::of((0..restarts).map(|restart| {
        let rate = |r: &&Replayed| workload.throughput(&r.run, r.passes[restart].seconds);
        let most = crashes.iter().map(rate).fold(0.0, f64::max);
        ratio(most, crashes.iter().map(rate).fold(f64::MAX, f64::min))
    }))
}

/// Returns the claims about the speed-up by threads. The paper states the speed-up for the value log. It replays both
/// logs in parallel.
fn parallel_claims(cores: usize, all: &dyn Fn(&'static str, usize) -> Vec<f64>) -> Vec<Claim> {
    let gain = |kind| quotients(&all(kind, cores), &all(kind, 1));
    let linear = count_f64(cores);
    let least = Finding::AtLeast(0.8 * linear);
    let what = |name: &str| format!("{cores} threads over one, {name}");
    let paper = Paper::of(&format!("linear in the cores: {cores}"), linear);
    let value = gain(label(VALUE));
    let mut claims = vec![
        Claim::measured(
            &what("value"),
            paper,
            Bounds(Better::More, least),
            value,
            "",
        ),
        Claim::own(&what("command"), least, gain(label(LogScheme::Command)), ""),
    ];
    if !all(MULTI, 1).is_empty() {
        let name = what("command, with remote transactions");
        let why = "a distributed transaction needs several partitions at once";
        claims.push(Claim::own(&name, Finding::AtLeast(1.0), gain(MULTI), why));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::testing::{expect, run_of};
    use super::*;

    const ONE: &str = "replay rate, value / command, one thread";
    const ALL: &str = "the same, 2 thread(s): one for each core";
    const PLAYING: &str = "the same, one thread, without reading the log";
    const RUN: &str =
        "command: replay rate with 1 thread(s) / most throughput before, as many workers";
    const SPREAD: &str = "replay rate of the command log, highest / lowest over the rates before";
    const LINEAR: [&str; 3] = [
        "2 threads over one, value",
        "2 threads over one, command",
        "2 threads over one, command, with remote transactions",
    ];

    /// Returns crashes. The replay of a command log takes the time that `seconds` returns, divided by the number of
    /// threads. The replay of a value log is `faster` times as fast.
    fn crashes(faster: f64, seconds: impl Fn(&str, Option<f64>, usize) -> f64) -> Vec<Replayed> {
        let mut all = Vec::new();
        for kind in [label(LogScheme::Command), label(VALUE), MULTI] {
            for part in [None, Some(0.5)] {
                for threads in [1, 2] {
                    let speed = if kind == label(VALUE) { faster } else { 1.0 };
                    let seconds = seconds(kind, part, threads) / speed / count_f64(threads);
                    let pass = OrderedReport {
                        seconds,
                        read_seconds: seconds / 10.0,
                        ..OrderedReport::default()
                    };
                    all.push(Replayed {
                        kind,
                        part,
                        run: run_of(10_000, 20.0),
                        threads,
                        passes: vec![pass; 2],
                    });
                }
            }
        }
        all
    }

    #[test]
    fn the_papers_values_are_as_the_paper() {
        for (workload, faster) in [(Workload::Voter, 5.0), (Workload::Tpcc, 1.5)] {
            let made = claims(workload, [2, 1], &crashes(faster, |_, _, _| 1.0));
            for what in [ONE, ALL, PLAYING, RUN, SPREAD, LINEAR[0]] {
                expect(&made, what, Verdict::AsPaper);
            }
            expect(&made, LINEAR[1], Verdict::Reported);
            expect(&made, LINEAR[2], Verdict::Reported);
        }
    }

    #[test]
    fn each_claim_comes_out_otherwise_with_other_data() {
        let tpcc = |crashes: &[Replayed]| claims(Workload::Tpcc, [2, 1], crashes);
        let slow = tpcc(&crashes(0.9, |_, part, threads| {
            if threads == 2 {
                3.0
            } else {
                part.map_or(1.2, |_| 1.4)
            }
        }));
        for what in [ONE, ALL, PLAYING, RUN, LINEAR[0], LINEAR[1], LINEAR[2]] {
            expect(&slow, what, Verdict::Fails);
        }
        let uneven = tpcc(&crashes(1.5, |_, part, _| part.map_or(1.0, |_| 1.5)));
        expect(&uneven, SPREAD, Verdict::Fails);
        let little = crashes(1.14, |_, _, _| 1.0);
        for what in [ONE, ALL, PLAYING] {
            expect(
                &claims(Workload::Voter, [2, 1], &little),
                what,
                Verdict::Weaker,
            );
        }
    }
}
