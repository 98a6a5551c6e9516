//! Reports as the paper has them, for tests of claims.

use super::super::claim::{Claim, Verdict};
use super::clients::COUNTS;
use super::stand::Workload;
use super::sweep::{Point, Sweep};
use super::{SCHEMES, VALUE};
use crate::drive::{KindReport, LogScheme, RunReport};
use crate::latency::LatencyUs;
use crate::num::f64_of;
use crate::tpcc::inputs::Kind;

/// Returns the verdict on the claim `what`.
pub fn verdict(claims: &[Claim], what: &str) -> Verdict {
    let found = claims.iter().find(|claim| claim.what == what);
    found
        .unwrap_or_else(|| panic!("there is a claim {what}, among {:?}", names(claims)))
        .verdict
}

/// Checks the verdict on the claim `what`.
pub fn expect(claims: &[Claim], what: &str, expected: Verdict) {
    assert_eq!(verdict(claims, what), expected, "{what}");
}

fn names(claims: &[Claim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.what.as_str()).collect()
}

/// Returns the report of a run of one second with `txns` transactions, all of them New-Orders.
pub fn run_of(txns: u64, cpu_us: f64) -> RunReport {
    let kinds = Kind::NAMES.map(|name| KindReport {
        name,
        txns: if name == Kind::NAMES[0] { txns } else { 0 },
        aborts: 0,
        log_bytes_per_txn: None,
    });
    RunReport {
        txns,
        seconds: 1.0,
        tps: f64_of(txns),
        cpu_seconds: Some(f64_of(txns) * cpu_us / 1e6),
        kinds: kinds.to_vec(),
        ..RunReport::default()
    }
}

/// Returns the highest number of transactions a second, and the CPU time of a transaction, microseconds, as in the
/// paper.
fn most(workload: Workload, scheme: LogScheme) -> (u64, f64) {
    match (workload, scheme) {
        (Workload::Voter, VALUE) => (80_000, 11.8),
        (Workload::Voter, _) => (95_000, 10.0),
        (Workload::Tpcc, VALUE) => (20_000, 15.0),
        (Workload::Tpcc, _) => (30_000, 10.0),
    }
}

/// Returns a sweep as in the paper. With a thousand clients, the clients are the bottleneck of both logs.
pub fn sweep(workload: Workload) -> Sweep {
    let (none, _) = most(workload, LogScheme::None);
    let rates: Vec<(u64, f64)> = vec![(none / 4, 0.25), (none / 2, 0.5), (none / 10 * 9, 0.9)];
    let mut points = Vec::new();
    for scheme in SCHEMES {
        let (txns, cpu_us) = most(workload, scheme);
        for clients in COUNTS {
            let mut point = Point::closed(scheme, clients);
            let is_few = clients == COUNTS[0] && scheme != LogScheme::None;
            let report = RunReport {
                clients: Some(clients),
                waited_part: if is_few { 0.4 } else { 0.0 },
                latency_mean_us: 2_000.0,
                ..run_of(txns, cpu_us)
            };
            point.runs = vec![report.clone(), report];
            points.push(point);
        }
        for (rate, part) in &rates {
            let longer = match (scheme, workload) {
                (VALUE, Workload::Tpcc) => 1_500,
                (VALUE, Workload::Voter) if *part >= 0.9 => 1_150,
                _ => 1_000,
            };
            let mut report = run_of(*rate, cpu_us);
            report.latency_us = LatencyUs {
                p50: 6 * longer,
                p99: 6_500,
                ..LatencyUs::default()
            };
            let mut point = Point::new(scheme, Some(f64_of(*rate)));
            point.runs = vec![report.clone(), report];
            points.push(point);
        }
    }
    Sweep {
        workload,
        points,
        rates: rates
            .into_iter()
            .map(|(rate, part)| (part, f64_of(rate)))
            .collect(),
        sync_p99_ms: 5.0,
    }
}
