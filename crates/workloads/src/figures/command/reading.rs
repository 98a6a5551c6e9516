//! Section V-C5: the share of reading in a replay.

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::paper::Paper;
use super::super::sample::Sample;
use super::stand::{LOG_MBPS, Setting, Stand, Workload, driven, workers};
use super::{VALUE, label};
use crate::drive::{Limit, LogScheme};
use crate::num::{median, ratio};

/// The share of reading in a replay.
pub struct ReadShare {
    /// The workload.
    pub workload: Workload,
    /// The form of the log.
    pub scheme: LogScheme,
    /// The time of reading and the time of playing of each restart, seconds.
    restarts: Vec<(f64, f64)>,
}

impl ReadShare {
    /// Returns the time that reading adds to a replay, as a part of the time of playing, for all restarts.
    pub fn shares(&self) -> Vec<f64> {
        let shares = self.restarts.iter().map(|(read, play)| ratio(*read, *play));
        shares.collect()
    }

    /// Returns the median time of reading.
    pub fn read_seconds(&self) -> f64 {
        median(self.restarts.iter().map(|(read, _)| *read).collect())
    }

    /// Returns the median time of playing.
    pub fn play_seconds(&self) -> f64 {
        median(self.restarts.iter().map(|(_, play)| *play).collect())
    }
}

/// Measures the shares of both workloads with both logs.
///
/// # Errors
/// Errors of the engine and of the restart.
pub fn measure(lab: &Lab<'_>) -> Result<Vec<ReadShare>> {
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
                restarts: passes
                    .iter()
                    .map(|pass| (pass.read_seconds, pass.seconds - pass.read_seconds))
                    .collect(),
            });
        }
    }
    Ok(shares)
}

/// Returns the claims about the share of reading in a replay.
pub fn claims(shares: &[ReadShare]) -> Vec<Claim> {
    let of = |workload, scheme| {
        let mut found = shares.iter();
        let found = found.find(|share| share.workload == workload && share.scheme == scheme);
        found.map_or_else(Vec::new, ReadShare::shares)
    };
    let mut claims = Vec::new();
    for (workload, value_paper, ratio_paper) in [
        (
            Workload::Voter,
            Paper::of("0.30", 0.30),
            Paper::above("above 30: 0.30 and below 0.01", 30.0),
        ),
        (
            Workload::Tpcc,
            Paper::of("0.08", 0.08),
            Paper::above("above 8: 0.08 and below 0.01", 8.0),
        ),
    ] {
        let (command, value) = (of(workload, LogScheme::Command), of(workload, VALUE));
        let what = |log: &str| format!("reading / playing the log, {}, {log}", workload.name());
        claims.push(Claim::measured(
            &what("command log"),
            Paper::below("less than 0.01", 0.01),
            Bounds(Better::Less, Finding::AtMost(median(value.clone()))),
            Sample::of(command.iter().copied()),
            "required: no more than with the value log",
        ));
        claims.push(Claim::measured(
            &what("value log"),
            value_paper,
            Bounds(Better::Neither, Finding::AtLeast(median(command.clone()))),
            Sample::of(value.iter().copied()),
            "required: no less than with the command log",
        ));
        claims.push(Claim::measured(
            &format!("the same, {}, value / command", workload.name()),
            ratio_paper,
            Bounds(Better::More, Finding::AtLeast(1.0)),
            Sample::of(
                value
                    .iter()
                    .zip(&command)
                    .map(|(value, command)| ratio(*value, *command)),
            ),
            "",
        ));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::testing::expect;
    use super::*;

    /// Returns the claims if reading has these shares, with the command log and with the value log.
    fn claims_of(command: [f64; 2], value: [f64; 2]) -> Vec<Claim> {
        let workloads = [Workload::Voter, Workload::Tpcc].into_iter().enumerate();
        let shares = workloads.flat_map(|(at, workload)| {
            let of = [(LogScheme::Command, command[at]), (VALUE, value[at])];
            of.map(|(scheme, share)| ReadShare {
                workload,
                scheme,
                restarts: vec![(share, 1.0); 2],
            })
        });
        claims(&shares.collect::<Vec<_>>())
    }

    fn names(workload: Workload) -> [String; 3] {
        let name = workload.name();
        [
            format!("reading / playing the log, {name}, command log"),
            format!("reading / playing the log, {name}, value log"),
            format!("the same, {name}, value / command"),
        ]
    }

    #[test]
    fn each_claim_follows_from_the_shares() {
        let tables = [
            (Verdict::AsPaper, claims_of([0.009, 0.009], [0.3, 0.08])),
            (Verdict::Weaker, claims_of([0.05, 0.05], [0.2, 0.06])),
            (Verdict::Fails, claims_of([0.4, 0.2], [0.3, 0.08])),
        ];
        for (expected, made) in tables {
            for workload in [Workload::Voter, Workload::Tpcc] {
                for what in names(workload) {
                    expect(&made, &what, expected);
                }
            }
        }
    }
}
