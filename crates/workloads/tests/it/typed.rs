//! Runs Voter and TPC-C at a small scale, to test only the code. Every scheme must make the same database. The database
//! must meet the consistency conditions. A restart after a crash must restore the database.

use std::time::Duration;

use perdura::yardstick::Yardstick;
use perdura::{Options, ValueForm};
use perdura_workloads::drive::{Beside, DriveOptions, Limit, LogScheme, Site};
use perdura_workloads::tpcc::bench::{TpccBench, check};
use perdura_workloads::tpcc::inputs::{Mix, Scale};
use perdura_workloads::voter::bench::VoterBench;
use perdura_workloads::voter::inputs::Election;

const SCHEMES: [LogScheme; 6] = [
    LogScheme::None,
    LogScheme::Differential,
    LogScheme::Value(ValueForm::Columns),
    LogScheme::Value(ValueForm::Rows),
    LogScheme::Value(ValueForm::Before),
    LogScheme::Command,
];

fn site(dir: &std::path::Path, scheme: LogScheme, in_memory: bool) -> Site {
    let mut options = Options::new(dir);
    options.partitions = 4;
    options.segment_bytes = 1 << 20;
    Site::new(options, in_memory, scheme)
}

/// Returns the result. If it is an error, panics with the error and the scheme.
fn run<R>(scheme: LogScheme, done: anyhow::Result<R>) -> R {
    done.unwrap_or_else(|error| panic!("{scheme:?}: {error:#}"))
}

fn of_txns(txns: u64) -> DriveOptions {
    DriveOptions {
        workers: 1,
        clients: 50,
        rate: None,
        limit: Limit::Txns(txns),
    }
}

fn tpcc(site: Site, txns: u64) -> TpccBench {
    TpccBench {
        site,
        scale: Scale {
            warehouses: 3,
            items: 200,
            customers: 30,
        },
        mix: Mix {
            remote_lines: 5.0,
            ..Mix::default()
        },
        seed: 7,
        drive: Some(of_txns(txns)),
        own_dates: true,
        digest: true,
    }
}

#[test]
fn tpcc_meets_its_conditions_and_is_the_same_under_every_scheme() {
    let dir = tempfile::tempdir().unwrap();
    let mut digests = Vec::new();
    for scheme in SCHEMES {
        let bench = tpcc(site(dir.path(), scheme, true), 3_000);
        let ended = run(scheme, bench.run());
        let report = &ended.report;
        assert_eq!((report.txns, report.unstarted), (3_000, 0));
        assert!((1..=60).contains(&report.aborts), "{}", report.aborts);
        let counts: Vec<u64> = report.kinds.iter().map(|kind| kind.txns).collect();
        assert_eq!(counts, [1_350, 1_290, 120, 120, 120]);
        let is_logged = report.log_bytes_per_txn > 10.0;
        assert_eq!(is_logged, scheme != LogScheme::None, "{scheme:?}");
        for condition in check(&ended.db).unwrap() {
            assert_eq!(condition.first, None, "{scheme:?}: {condition:?}");
        }
        digests.push(report.digest.clone().unwrap());
        bench.site.close(ended.db).unwrap();
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "one database");
}

#[test]
fn tpcc_comes_back_after_a_crash_and_goes_on() {
    for scheme in SCHEMES
        .into_iter()
        .filter(|scheme| *scheme != LogScheme::None)
    {
        let dir = tempfile::tempdir().unwrap();
        let bench = tpcc(site(dir.path(), scheme, false), 1_000);
        let ended = run(scheme, bench.run());
        // The database is dropped without being closed.
        ended.db.abandon();
        let db = run(scheme, bench.open_populated());
        let digest = format!("{:016x}", db.digest().unwrap());
        assert_eq!(Some(digest), ended.report.digest, "{scheme:?}");
        let violated = |found: &perdura_workloads::tpcc::check::Condition| found.violations > 0;
        assert!(!check(&db).unwrap().iter().any(violated), "{scheme:?}");
        drop(db);
        let again = bench.run().unwrap();
        assert_eq!(again.report.load_seconds, 0.0, "it was there");
        bench.site.close(again.db).unwrap();
        let mut other = bench.clone();
        other.scale.warehouses = 2;
        let refused = other.run().err().map(|error| error.to_string());
        assert!(refused.is_some_and(|why| why.contains("2 warehouses")));
    }
}

#[test]
fn workers_and_checkpoints_do_not_disturb_the_conditions() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = tpcc(site(dir.path(), LogScheme::Command, true), 3_000);
    bench.drive = Some(DriveOptions {
        workers: 2,
        ..of_txns(3_000)
    });
    bench.site.snapshot_every = Some(std::time::Duration::from_millis(50));
    let ended = bench.run().unwrap();
    assert_eq!(ended.report.txns, 3_000);
    for condition in check(&ended.db).unwrap() {
        assert_eq!(condition.first, None, "{condition:?}");
    }
    bench.site.close(ended.db).unwrap();
}

#[test]
fn voter_counts_the_same_votes_under_every_scheme() {
    let dir = tempfile::tempdir().unwrap();
    let mut digests = Vec::new();
    for scheme in SCHEMES {
        let bench = VoterBench {
            site: site(dir.path(), scheme, true),
            election: Election::default(),
            seed: 3,
            drive: of_txns(2_000),
            digest: true,
        };
        let ended = run(scheme, bench.run());
        assert_eq!(ended.report.txns, 2_000);
        let refused = ended.report.kinds[1].txns;
        assert!((5..=60).contains(&refused), "one in a hundred: {refused}");
        digests.push(ended.report.digest.unwrap());
        bench.site.close(ended.db).unwrap();
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "one election");
}

#[test]
fn a_log_that_cannot_be_replayed_is_refused_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut refused = site(dir.path(), LogScheme::Value(ValueForm::Columns), false);
    refused.yardstick = Yardstick::Cut(50);
    let bench = tpcc(refused, 10);
    let why = bench.run().err().map(|error| format!("{error:#}"));
    assert!(why.is_some_and(|why| why.contains("cannot be replayed")));
    assert_eq!(
        dir.path().read_dir().unwrap().count(),
        0,
        "nothing was made"
    );
}

#[test]
fn runs_beside_a_measured_one_find_latencies_syncs_and_what_checkpoints_keep() {
    let dir = tempfile::tempdir().unwrap();
    let scheme = LogScheme::Command;
    let mut bench = tpcc(site(dir.path(), scheme, false), 0);
    bench.own_dates = false;
    bench.drive = Some(DriveOptions {
        limit: Limit::Time {
            warm_up: Duration::from_millis(50),
            measured: Duration::from_millis(400),
        },
        ..of_txns(0)
    });
    let mut ended = run(scheme, bench.run());
    let nothing = bench.run_beside(&ended.db, Beside::default(), &mut ended.report);
    run(scheme, nothing);
    assert!(ended.report.half_load.is_none() && ended.report.under_checkpoints.is_none());
    let beside = Beside {
        half_load: true,
        checkpoints: true,
    };
    let done = bench.run_beside(&ended.db, beside, &mut ended.report);
    run(scheme, done);
    let half = ended.report.half_load.unwrap();
    assert!((half.rate - ended.report.tps / 2.0).abs() < 1e-9);
    assert!(half.latency_us.p99 > 0 && half.sync_us.is_some_and(|us| us.p50 > 0));
    let under = ended.report.under_checkpoints.unwrap();
    assert!(under.tps > 0.0 && under.of_tps > 0.0);
    assert!(
        under.kept_bytes_max > 0 && under.kept_share > 0.0,
        "{under:?}"
    );
    assert_eq!(under.kept_bytes_after, 0);
    for condition in check(&ended.db).unwrap() {
        assert_eq!(condition.first, None, "{condition:?}");
    }
    ended.db.abandon();
}
