//! The cost of playing a record if the CPU is the bottleneck, measured on one core and on all cores. From these costs,
//! the model of [`schedule`](super::schedule) predicts the times of restarts on machines with more cores.

use std::fmt::Write;

use anyhow::{Result, ensure};
use perdura_wal::scheme::Scheme;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use super::Lab;
use super::claim::{Claim, Finding};
use super::lab::{Crash, How, Runs, Took, crash, log};
use super::paper::Paper;
use super::scale::PAPER_DISK_MBPS;
use super::schedule::{Job, Players, schedule};
use crate::num::{count_f64, f64_of, ratio};

/// The number of log streams of the histories that are measured here.
const STREAMS: usize = 4;
/// The rate at which the paper's physical replay ran, 10^6 bytes a second. The paper's four disks read 721 MB in 6.2
/// s, and the replay took about 20 s.
const PAPER_PLAY_MBPS: f64 = 36.0;

/// The measured methods, and the scheme of the history that each method plays.
const METHODS: [(&str, Scheme); 4] = [
    ("dl1p", Scheme::Dl1p),
    ("dl2p", Scheme::Dl2p),
    ("pl2p", Scheme::Pl2p),
    ("pl2p-part", Scheme::Pl2p),
];

/// The log time of a method, on one core and on all cores.
struct Measured {
    name: &'static str,
    records: f64,
    log_bytes: f64,
    one: Runs,
    all: Runs,
}

impl Measured {
    /// Returns the median time of a record, nanoseconds.
    fn nanoseconds(&self, runs: &Runs) -> f64 {
        ratio(runs.median(log) * 1e9, self.records)
    }
}

/// The costs of all methods.
pub struct Costs {
    methods: Vec<Measured>,
    image_cost: f64,
    cores: usize,
}

/// Runs `work` on the first `count` cores that this process may use. Threads that `work` starts are restricted to
/// these cores, too.
///
/// # Errors
/// Errors of the system and of `work`.
pub fn on_cores<T>(count: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let allowed = sched_getaffinity(None::<Pid>)?;
    let mut few = CpuSet::new();
    let cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    for core in cores.take(count) {
        few.set(core);
    }
    sched_setaffinity(None::<Pid>, &few)?;
    let result = work();
    sched_setaffinity(None::<Pid>, &allowed)?;
    result
}

impl Costs {
    /// Measures the costs, each method on a history of its scheme. All restarts must end with the same digest.
    ///
    /// # Errors
    /// Errors of the store and of the restart; digests that differ.
    pub fn measure(lab: &Lab<'_>) -> Result<Costs> {
        let (rows, txns) = lab.scale.cpu;
        let mut crashes = Vec::new();
        for scheme in [Scheme::Dl1p, Scheme::Dl2p, Scheme::Pl2p] {
            lab.say(&format!(
                "writing a history of {txns} for {}",
                scheme.name()
            ));
            let mut sms = lab.sms(scheme);
            sms.rows = rows;
            crashes.push(crash(&sms, STREAMS, 1, txns)?);
        }
        let mut methods: Vec<Measured> = Vec::new();
        // The methods take turns in rounds, so that a slow phase of the machine affects all of them.
        for round in 1..=lab.scale.cost_repeats {
            lab.say(&format!("playing them from memory, round {round}"));
            for (name, scheme) in METHODS {
                let crash = crashes.iter().find(|crash| crash.sms.scheme == scheme);
                let crash = crash.expect("a history of each scheme");
                let [one, all] = measure(lab, crash, name)?;
                if let Some(method) = methods.iter_mut().find(|method| method.name == name) {
                    method.one.push(one);
                    method.all.push(all);
                } else {
                    methods.push(Measured {
                        name,
                        records: f64_of(one.report.records.seen),
                        log_bytes: f64_of(crash.log_bytes),
                        one: Runs::first(one),
                        all: Runs::first(all),
                    });
                }
            }
        }
        let first = &methods[0].one.all()[0];
        for method in &methods {
            let mut all = method.one.all().iter().chain(method.all.all());
            ensure!(
                all.all(|took| took.digest == first.digest),
                "{} restores another state",
                method.name
            );
        }
        let image_seconds = methods[0].one.median(|took| took.image);
        Ok(Costs {
            image_cost: ratio(image_seconds, f64_of(first.report.bytes.backup)),
            methods,
            cores: lab.cores,
        })
    }

    /// Returns the cost of playing a record when all cores are busy, nanoseconds of CPU time.
    fn cpu_nanoseconds(&self, method: &Measured) -> f64 {
        method.nanoseconds(&method.all) * count_f64(self.cores)
    }

    fn of(&self, name: &str) -> &Measured {
        let found = self.methods.iter().find(|method| method.name == name);
        found.expect("all methods are measured")
    }

    /// Returns a disk rate, 10^6 bytes a second: 29/36 of the rate of physical replay on this CPU. In the paper, a disk
    /// has 29 MB/s, and physical replay has 36 MB/s.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn ratio_preserving_mbps(&self) -> u64 {
        let physical = self.of("pl2p");
        let rate = ratio(physical.log_bytes / 1e6, physical.all.median(log));
        (rate * f64_of(PAPER_DISK_MBPS) / PAPER_PLAY_MBPS) as u64
    }

    /// Returns a text that describes the costs.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut out = format!("from memory, one core and {} cores:", self.cores);
        for method in &self.methods {
            let _ = write!(
                out,
                " {} {:.0} and {:.0} ns a record;",
                method.name,
                method.nanoseconds(&method.one),
                method.nanoseconds(&method.all)
            );
        }
        out.trim_end_matches(';').to_owned()
    }

    /// Returns the claims about restarts that the CPU limits, and the model's predictions for more cores.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        let (dl1p, pl2p) = (self.of("dl1p"), self.of("pl2p"));
        let part = self.of("pl2p-part");
        let mut claims = vec![
            Claim::own(
                "PL2P / DL1P log time from memory, all cores",
                Finding::AtLeast(1.5),
                pl2p.all.over(&dl1p.all, log),
                "merging keeps one player; differences keep all of them",
            ),
            Claim::own(
                "PL2P-part / DL1P log time from memory, all cores",
                Finding::AtLeast(1.15),
                part.all.over(&dl1p.all, log),
                "a baseline of today: players that share out pages still read all of twice the \
                 volume each",
            ),
            Claim::own(
                "DL1P log time from memory, one core / all cores",
                Finding::AtLeast(if self.cores >= 2 { 1.7 } else { 0.9 }),
                dl1p.one.over(&dl1p.all, log),
                "reading, checking and playing are all shared out",
            ),
        ];
        for cores in [2, 4, 8] {
            claims.push(self.modelled(cores));
        }
        claims
    }

    /// Returns the schedule model's prediction for `cores` cores and as many disks.
    fn modelled(&self, cores: usize) -> Claim {
        let rate = f64_of(self.ratio_preserving_mbps()) * 1e6;
        let (dl1p, pl2p) = (self.of("dl1p"), self.of("pl2p"));
        // The cost of a byte on one core while all cores of this machine are busy. It includes the effect of the
        // cores' contention for memory.
        let shared_out = dl1p.all.median(log) * count_f64(self.cores) / dl1p.log_bytes;
        let merged = pl2p.all.median(|took| took.log_play.min(took.log)) / pl2p.log_bytes;
        let job = |players, log_bytes, log_cost| Job {
            image_disks: 1,
            image_bytes: 0.0,
            log_disks: cores,
            log_bytes,
            disk_rate: rate,
            image_cost: self.image_cost,
            log_cost,
            players,
            cores,
            level: 2,
        };
        let differential = schedule(&job(Players::Free, dl1p.log_bytes, shared_out));
        let physical = schedule(&job(Players::Merged, pl2p.log_bytes, merged));
        let paper = match cores {
            4 => Paper::of("about six times", 6.0),
            _ => Paper::silent(),
        };
        let why = match cores {
            4 => format!(
                "merged replay is one player's time in both. The paper's DL1P(4) waited for its \
                 disks; here four players only just keep up with four such disks: what a record \
                 costs is cache misses and decoding rather than bytes, {:.0} ns of CPU for a DL \
                 record and {:.0} for a PL record of twice the size",
                self.cpu_nanoseconds(dl1p),
                ratio(merged * pl2p.log_bytes * 1e9, pl2p.records)
            ),
            _ => "the same schedule with as many disks as cores".to_owned(),
        };
        let what = format!(
            "PL2P({cores}) / DL1P({cores}) log time on {cores} cores, ratio-preserving disks"
        );
        let speedup = ratio(physical.log, differential.log);
        Claim::modelled(&what, paper, Finding::AtLeast(1.0), speedup, &why)
    }
}

/// Restarts once on one core and once on all cores.
fn measure(lab: &Lab<'_>, crash: &Crash, name: &'static str) -> Result<[Took; 2]> {
    let how = |threads| How::of_log(name, threads, 0);
    let one = on_cores(1, || crash.restart(how(1)))?;
    Ok([one, crash.restart(how(lab.cores))?])
}

#[cfg(test)]
mod tests {
    use super::super::claim::Verdict;
    use super::super::lab::testing::verdict_on;
    use super::*;

    /// Returns the claims for a machine with two cores. `times` has the log times of DL1P, PL2P and PL2P-part, each on
    /// one core and on both.
    fn of(times: [[f64; 2]; 3]) -> Vec<Claim> {
        let runs = |log| {
            Runs::first(Took {
                log,
                log_play: log,
                ..Took::default()
            })
        };
        let method = |(name, bytes), [one, all]: [f64; 2]| Measured {
            name,
            records: 1e6,
            log_bytes: bytes,
            one: runs(one),
            all: runs(all),
        };
        let methods = [("dl1p", 370e6), ("pl2p", 721e6), ("pl2p-part", 721e6)];
        Costs {
            methods: methods
                .into_iter()
                .zip(times)
                .map(|(of, times)| method(of, times))
                .collect(),
            image_cost: 1e-9,
            cores: 2,
        }
        .claims()
    }

    #[test]
    fn what_is_measured_is_reported_and_what_is_computed_is_modelled() {
        for claim in of([[0.8, 0.42], [1.2, 1.0], [1.2, 0.8]]) {
            let expected = if claim.what.contains("ratio-preserving") {
                Verdict::Modelled
            } else {
                Verdict::Reported
            };
            assert_eq!(claim.verdict, expected, "{}", claim.what);
        }
    }

    #[test]
    fn each_claim_can_fail() {
        let claims = of([[4.2, 4.0], [1.2, 1.0], [1.2, 1.1]]);
        for part in [
            "PL2P / DL1P log time from memory",
            "PL2P-part / DL1P",
            "one core / all cores",
            "on 2 cores",
        ] {
            assert_eq!(verdict_on(&claims, part), Verdict::Fails, "{part}");
        }
        let slower = of([[80.0, 40.0], [1.2, 1.0], [1.2, 1.1]]);
        for part in ["on 4 cores", "on 8 cores"] {
            assert_eq!(verdict_on(&slower, part), Verdict::Fails, "{part}");
        }
    }
}
