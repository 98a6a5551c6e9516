//! Users at terminals. Each user thinks, has a transaction executed, waits for its redo, and thinks again.
//!
//! One thread executes the transactions in the order in which users request them. In *virtual time*, only the
//! execution takes time on this machine. A virtual clock schedules the transactions on `cores` modelled cores: each
//! occupies the first free core for its measured CPU time. Waits and think times pass only on the virtual clock. So
//! 500 users who think for a sixth of a second take no more real time than their transactions. In *real time*, waits
//! and think times elapse on this machine, too.
//!
//! Waits overlap: no user waits for the redo of another user. The paper's throughput is proportional to the number of
//! users, so waits must overlap on its disks, too. The think times of a user are computed from the seed and the user's
//! number, so they are the same on both media.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use perdura_base::Epoch;
use perdura_base::checksum::mix64;
use perdura_base::num::to_u64;

use crate::drive::{Load, Log};
use crate::num::{f64_of, ratio};

/// The time between two readings of the durable epoch in a run in real time.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// The shortest think time, and the width of the range of think times, both as fractions of the mean.
const THINK: (f64, f64) = (0.5, 1.0);

/// A group of users, and the time for which they are observed.
#[derive(Debug, Clone, Copy)]
pub struct Users {
    /// The number of users.
    pub count: usize,
    /// The mean think time. Think times are uniform between 0.5 and 1.5 times the mean.
    pub think: Duration,
    /// The seed of the think times.
    pub seed: u64,
    /// The time at the start that is not measured.
    pub warm_up: Duration,
    /// The measured part of the time.
    pub measured: Duration,
}

/// The transactions that ended in the measured time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ended {
    /// The number of transactions.
    pub txns: u64,
    /// The measured time, seconds.
    pub seconds: f64,
}

impl Ended {
    /// Returns the number of transactions a second.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        ratio(f64_of(self.txns), self.seconds)
    }
}

/// The users' sources of think times, and the number of transactions that ended in the measured time.
struct Watched {
    users: Users,
    randoms: Vec<Rng>,
    txns: u64,
}

impl Watched {
    fn new(users: &Users) -> Watched {
        assert!(users.count > 0, "somebody works");
        let random = |user| Rng::with_seed(mix64(mix64(users.seed).wrapping_add(to_u64(user))));
        Watched {
            users: *users,
            randoms: (0..users.count).map(random).collect(),
            txns: 0,
        }
    }

    /// Returns the time of each user's first request, uniform between zero and the mean think time.
    fn begin(&mut self) -> Vec<Duration> {
        let think = self.users.think;
        let draw = |random: &mut Rng| think.mul_f64(random.f64());
        self.randoms.iter_mut().map(draw).collect()
    }

    /// Counts a transaction that ended at `at`, if `at` is in the measured time. Returns the time of its user's next
    /// request.
    fn ended(&mut self, user: usize, at: Duration) -> Duration {
        let is_measured = at >= self.users.warm_up && at < self.end();
        self.txns += u64::from(is_measured);
        let part = THINK.1.mul_add(self.randoms[user].f64(), THINK.0);
        at + self.users.think.mul_f64(part)
    }

    fn end(&self) -> Duration {
        self.users.warm_up + self.users.measured
    }

    fn counted(&self) -> Ended {
        Ended {
            txns: self.txns,
            seconds: self.users.measured.as_secs_f64(),
        }
    }
}

/// The times of an executed transaction.
#[derive(Debug, Clone, Copy)]
pub struct Executed {
    /// The time that the execution took.
    pub took: Duration,
    /// The time that the user waits for the transaction's redo.
    pub wait: Duration,
}

/// Runs the users in virtual time on a machine of `cores` cores.
///
/// # Errors
/// Errors of `execute`.
pub fn in_virtual_time(
    users: &Users,
    cores: usize,
    mut execute: impl FnMut() -> Result<Executed>,
) -> Result<Ended> {
    assert!(cores > 0, "something executes");
    let mut watched = Watched::new(users);
    let first = watched.begin();
    let mut asks: BinaryHeap<_> = first.into_iter().zip(0..).map(Reverse).collect();
    // For each core, the time at which it becomes free.
    let mut free: BinaryHeap<_> = std::iter::repeat_n(Reverse(Duration::ZERO), cores).collect();
    let end = watched.end();
    while let Some(Reverse((at, user))) = asks.pop() {
        if at >= end {
            break;
        }
        let Reverse(core) = free.pop().expect("there is a core");
        let executed = execute()?;
        let done = at.max(core) + executed.took;
        free.push(Reverse(done));
        let next = watched.ended(user, done + executed.wait);
        assert!(next >= at, "time goes on");
        asks.push(Reverse((next, user)));
    }
    Ok(watched.counted())
}

/// The event that ends a user's wait in real time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The end of a delay.
    Delay(Duration),
    /// The transaction's durability in the log.
    Log,
}

/// The kind of an event in the schedule of real time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The user requests a transaction.
    Asks,
    /// The user's wait is over.
    Over,
}

/// Runs the users in real time, all in the calling thread.
///
/// # Errors
/// Errors of a transaction and of the log.
pub fn in_real_time(
    users: &Users,
    log: &impl Log,
    waits_for: WaitsFor,
    load: &mut impl Load,
) -> Result<Ended> {
    let mut watched = Watched::new(users);
    let first = watched.begin().into_iter().zip(0..);
    let mut due: BinaryHeap<_> = first
        .map(|(at, user)| Reverse((at, user, Event::Asks)))
        .collect();
    let mut waiting: Vec<(Epoch, usize)> = Vec::new();
    let mut last = Epoch(0);
    let end = watched.end();
    let begin = Instant::now();
    loop {
        let now = begin.elapsed();
        if now >= end {
            break;
        }
        let durable = log.durable();
        waiting.retain(|(epoch, user)| {
            let is_durable = *epoch <= durable;
            if is_durable {
                due.push(Reverse((now, *user, Event::Over)));
            }
            !is_durable
        });
        let Some(Reverse((at, user, event))) = due.peek().copied() else {
            std::thread::sleep(LOOK_EVERY);
            continue;
        };
        if at > now {
            let left = at.min(end) - now;
            std::thread::sleep(match waiting.is_empty() {
                true => left,
                false => left.min(LOOK_EVERY),
            });
            continue;
        }
        due.pop();
        match event {
            Event::Over => {
                let next = watched.ended(user, now);
                due.push(Reverse((next, user, Event::Asks)));
            }
            Event::Asks => {
                let epoch = load.step()?.epoch;
                last = last.max(epoch);
                match waits_for {
                    WaitsFor::Delay(delay) => {
                        let over = begin.elapsed() + delay;
                        due.push(Reverse((over, user, Event::Over)));
                    }
                    WaitsFor::Log => {
                        log.nudge();
                        waiting.push((epoch, user));
                    }
                }
            }
        }
    }
    log.wait(last)?;
    Ok(watched.counted())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::drive::{LogCounters, Submitted};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn users(count: usize, measured: Duration) -> Users {
        Users {
            count,
            think: ms(100),
            seed: 11,
            warm_up: ms(400),
            measured,
        }
    }

    fn per_s(users: &Users, cores: usize, took: Duration, wait: Duration) -> f64 {
        let ended = in_virtual_time(users, cores, || Ok(Executed { took, wait }));
        ended.unwrap().per_s()
    }

    #[test]
    fn a_cycle_is_thinking_executing_and_waiting() {
        let users = users(200, ms(20_000));
        let of = |took, wait| per_s(&users, 2, took, wait);
        let near = |ours: f64, theirs: f64| {
            assert!((ours / theirs - 1.0).abs() < 0.01, "{ours} is not {theirs}");
        };
        near(of(ms(0), ms(0)), 200.0 / 0.1);
        near(of(ms(0), ms(20)), 200.0 / 0.12);
        near(of(Duration::from_micros(100), ms(0)), 200.0 / 0.1);
        let gain = of(ms(0), ms(0)) / of(ms(0), ms(20));
        assert!(
            (gain - 1.2).abs() < 0.005,
            "both meet the same users: {gain}"
        );
    }

    #[test]
    fn waits_overlap_and_executions_do_not() {
        let users = users(500, ms(5_000));
        let overlapping = per_s(&users, 1, ms(0), ms(900));
        assert!((overlapping / 500.0 - 1.0).abs() < 0.05, "{overlapping}");
        let one = per_s(&users, 1, ms(1), ms(0));
        assert!((one / 1_000.0 - 1.0).abs() < 0.01, "a core is full: {one}");
        let two = per_s(&users, 2, ms(1), ms(0));
        assert!(
            (two / 2_000.0 - 1.0).abs() < 0.01,
            "two cores are full: {two}"
        );
    }

    #[test]
    fn the_seed_decides_who_asks_when() {
        let of = |seed| {
            let users = Users {
                seed,
                ..users(20, ms(1_000))
            };
            let mut took = 0;
            let execute = || {
                took += 1;
                Ok(Executed {
                    took: Duration::from_micros(took),
                    wait: ms(took % 7),
                })
            };
            in_virtual_time(&users, 1, execute).unwrap()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    /// A log whose durable epoch is always `by` epochs behind the newest.
    struct Behind {
        submitted: AtomicU64,
        by: u64,
    }

    impl Log for &Behind {
        fn durable(&self) -> Epoch {
            Epoch(
                self.submitted
                    .load(Ordering::SeqCst)
                    .saturating_sub(self.by),
            )
        }
        fn wait(&self, epoch: Epoch) -> Result<()> {
            anyhow::ensure!(epoch.0 <= self.submitted.load(Ordering::SeqCst), "stopped");
            Ok(())
        }
        fn nudge(&self) {}
        fn counters(&self) -> LogCounters {
            LogCounters::default()
        }
    }

    impl Load for &Behind {
        fn step(&mut self) -> Result<Submitted> {
            let epoch = self.submitted.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Submitted {
                kind: 0,
                epoch: Epoch(epoch),
                aborted: false,
                log_bytes: None,
            })
        }
    }

    #[test]
    fn in_real_time_users_wait_for_their_delay_or_for_the_log() {
        let users = Users {
            count: 10,
            think: ms(4),
            seed: 3,
            warm_up: ms(10),
            measured: ms(300),
        };
        let run = |by, waits_for| {
            let log = Behind {
                submitted: AtomicU64::new(0),
                by,
            };
            let ended = in_real_time(&users, &&log, waits_for, &mut &log).unwrap();
            (ended, log.submitted.into_inner())
        };
        let (free, _) = run(0, WaitsFor::Log);
        let (delayed, _) = run(0, WaitsFor::Delay(ms(60)));
        assert!(free.txns > 10, "{free:?}");
        // A user's cycle takes at least 62 ms, and the first one may have begun before the measured time.
        assert!(delayed.txns <= 60, "six rounds of ten: {delayed:?}");
        assert!(delayed.txns < free.txns);
        let (stuck, submitted) = run(1_000, WaitsFor::Log);
        assert_eq!((stuck.txns, submitted), (0, 10), "nothing became durable");
    }
}
