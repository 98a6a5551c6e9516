//! TPC-C without injected delays: compares the throughput with the log on this machine's disk and with the log in
//! memory.

use std::time::Duration;

use anyhow::Result;
use perdura::Db;

use super::super::Lab;
use super::super::sample::Sample;
use super::super::scratch::Scratch;
use super::media::is_in_memory;
use super::tables::{bench, users};
use super::users::{WaitsFor, in_real_time};
use crate::drive::{DriveOptions, Limit, RunReport};
use crate::num::{f64_of, median, ratio};
use crate::tpcc::bench::TpccBench;

/// The measured counts of users.
const USERS: [usize; 2] = [100, 500];

/// The results for one number of users, with the log on the disk and in memory.
#[derive(Debug, Clone)]
pub struct Found {
    /// The number of users if `thinks` is true, and otherwise the number of clients that do not think.
    pub users: usize,
    /// True if the users think between two transactions.
    pub thinks: bool,
    /// The number of transactions a second in each round, with the log on the disk, and with the log in memory.
    pub per_s: [Vec<f64>; 2],
    /// The median latency in each round, microseconds, in the order of `per_s`. Empty if `thinks` is true.
    pub latency_us: [Vec<f64>; 2],
}

impl Found {
    /// Returns the median throughput with the log on the disk, and with the log in memory.
    #[must_use]
    pub fn tps(&self) -> [f64; 2] {
        self.per_s.each_ref().map(|rounds| median(rounds.clone()))
    }

    /// Returns the median latency with the log on the disk, and with the log in memory.
    #[must_use]
    pub fn latency(&self) -> [f64; 2] {
        self.latency_us
            .each_ref()
            .map(|rounds| median(rounds.clone()))
    }

    /// Returns the throughput with the log in memory, divided by that with the log on the disk.
    #[must_use]
    pub fn gain(&self) -> f64 {
        let [disk, memory] = self.tps();
        ratio(memory, disk)
    }

    /// Returns the gain in each round, percent of the throughput with the log on the disk.
    #[must_use]
    pub fn percent(&self) -> Sample {
        let [disk, memory] = &self.per_s;
        let rounds = disk.iter().zip(memory);
        Sample::of(rounds.map(|(disk, memory)| 100.0 * (ratio(*memory, *disk) - 1.0)))
    }
}

/// The measurements on this machine.
#[derive(Debug)]
pub struct AsFound {
    /// The folder of the log on the disk.
    pub folder: String,
    /// The results of users who think, and after them the results of clients that do not think.
    pub found: Vec<Found>,
}

/// Measures TPC-C on both media in turn.
///
/// # Errors
/// Errors of the engine and of the data folder's disk.
pub(super) fn as_found(lab: &Lab<'_>, think: Duration) -> Result<AsFound> {
    let folder = lab.disk_folder();
    std::fs::create_dir_all(&folder)?;
    let scratch = Scratch::within(&folder)?;
    let dir = scratch.dir.join("db");
    let benches = [bench(lab, Some(&dir)), bench(lab, None)];
    let mut dbs = Vec::new();
    for bench in &benches {
        dbs.push(bench.run()?.db);
    }
    let mut found = Vec::new();
    for thinks in [true, false] {
        for users in USERS {
            lab.say(&format!(
                "as found: {users} {}",
                if thinks {
                    "users who think"
                } else {
                    "clients without think times"
                }
            ));
            let think = thinks.then_some(think);
            found.push(one(lab, (&benches, &dbs), users, think)?);
        }
    }
    for (bench, db) in benches.iter().zip(dbs) {
        bench.site.close(db)?;
    }
    let shown = folder.display();
    let folder = match is_in_memory(&folder)? {
        true => format!("{shown}, which is in memory and no disk"),
        false => shown.to_string(),
    };
    Ok(AsFound { folder, found })
}

fn one(
    lab: &Lab<'_>,
    (benches, dbs): (&[TpccBench; 2], &[Db]),
    count: usize,
    think: Option<Duration>,
) -> Result<Found> {
    let scale = &lab.scale.memory_disk;
    let mut found = Found {
        users: count,
        thinks: think.is_some(),
        per_s: Default::default(),
        latency_us: Default::default(),
    };
    for round in 0..scale.found_rounds {
        for turn in 0..2 {
            let medium = (round + turn) % 2;
            let (bench, db) = (&benches[medium], &dbs[medium]);
            let Some(think) = think else {
                let options = DriveOptions {
                    workers: 1,
                    clients: count,
                    rate: None,
                    limit: Limit::Time {
                        warm_up: scale.real_time.mul_f64(0.2),
                        measured: scale.real_time,
                    },
                };
                let mut report = RunReport::default();
                bench.measure(db, &options, &mut report)?;
                found.per_s[medium].push(report.tps);
                found.latency_us[medium].push(f64_of(report.latency_us.p50));
                continue;
            };
            let users = users(lab, count, think, scale.real_time);
            let mut load = bench.terminals(db, 1, 0);
            let ended = in_real_time(&users, db, WaitsFor::Log, &mut load)?;
            found.per_s[medium].push(ended.per_s());
        }
    }
    Ok(found)
}
