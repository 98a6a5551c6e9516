use super::*;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// A dummy log. An epoch becomes durable when a caller waits, or after several reads of the durable epoch.
struct Dummy {
    current: AtomicU64,
    durable: AtomicU64,
    looks: AtomicU64,
    outstanding: AtomicUsize,
    outstanding_max: AtomicUsize,
    begun: AtomicU64,
    stopped: AtomicBool,
}

impl Default for Dummy {
    fn default() -> Dummy {
        Dummy {
            current: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            outstanding: AtomicUsize::new(0),
            outstanding_max: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }
}

impl Dummy {
    fn close(&self) {
        let epoch = self.current.fetch_add(1, Ordering::SeqCst);
        self.durable.fetch_max(epoch, Ordering::SeqCst);
        self.outstanding.store(0, Ordering::SeqCst);
    }
}

impl Log for Dummy {
    fn durable(&self) -> Epoch {
        if self.looks.fetch_add(1, Ordering::SeqCst) % 1000 == 999 {
            self.close();
        }
        Epoch(self.durable.load(Ordering::SeqCst))
    }

    fn wait(&self, epoch: Epoch) -> Result<()> {
        ensure!(!self.stopped.load(Ordering::SeqCst), "the log has stopped");
        while self.durable.load(Ordering::SeqCst) < epoch.0 {
            self.close();
        }
        Ok(())
    }

    fn nudge(&self) {}

    fn counters(&self) -> LogCounters {
        let begun = self.begun.load(Ordering::SeqCst);
        LogCounters {
            log_bytes: begun * 100,
            device_bytes: begun * 128,
            syncs: self.current.load(Ordering::SeqCst),
        }
    }
}

struct Steps<'a> {
    log: &'a Dummy,
    number: u64,
    stall_at: Option<u64>,
    fail_at: Option<u64>,
}

impl Load for Steps<'_> {
    fn step(&mut self) -> Result<Submitted> {
        self.number += 1;
        ensure!(self.fail_at != Some(self.number), "step {}", self.number);
        if self.stall_at == Some(self.number) {
            std::thread::sleep(Duration::from_millis(80));
        }
        let outstanding = self.log.outstanding.fetch_add(1, Ordering::SeqCst) + 1;
        self.log
            .outstanding_max
            .fetch_max(outstanding, Ordering::SeqCst);
        self.log.begun.fetch_add(1, Ordering::SeqCst);
        let current = self.log.current.load(Ordering::SeqCst);
        // Every third transaction only reads, and reads data of an older epoch.
        let epoch = if self.number.is_multiple_of(3) {
            current.saturating_sub(1)
        } else {
            current
        };
        Ok(Submitted {
            kind: usize::from(self.number.is_multiple_of(3)),
            epoch: Epoch(epoch),
            aborted: self.number.is_multiple_of(10),
            log_bytes: self.number.is_multiple_of(2).then_some(self.number),
        })
    }
}

fn run(log: &Dummy, options: &DriveOptions, stall_at: Option<u64>) -> Result<Driven> {
    drive(log, options, 2, |_| Steps {
        log,
        number: 0,
        stall_at,
        fail_at: None,
    })
}

#[test]
fn a_closed_loop_runs_as_many_as_asked_and_never_more_at_once_than_clients() {
    let log = Dummy::default();
    let options = DriveOptions {
        workers: 1,
        clients: 7,
        rate: None,
        limit: Limit::Txns(1_000),
    };
    let driven = run(&log, &options, None).unwrap();
    assert_eq!(driven.latencies.len(), 1_000);
    assert_eq!((driven.kinds[0].txns, driven.kinds[1].txns), (667, 333));
    assert_eq!(driven.kinds[0].aborts + driven.kinds[1].aborts, 100);
    assert_eq!(driven.kinds[0].sized + driven.kinds[1].sized, 500);
    assert_eq!(driven.log.log_bytes, 100_000);
    // A transaction that is durable at once does not occupy a client. The others do.
    let most = log.outstanding_max.load(Ordering::SeqCst);
    assert!((7..=11).contains(&most), "{most}");

    assert!(driven.waited_seconds > 0.0, "all clients waited at times");
    let options_of_many = DriveOptions {
        clients: 2_000,
        ..options
    };
    let many = run(&Dummy::default(), &options_of_many, None).unwrap();
    assert_eq!(
        many.waited_seconds, 0.0,
        "one client of many is always free"
    );

    let mut report = RunReport::default();
    report.measured(&options, &driven, &["write", "read"]);
    assert_eq!(
        (report.txns, report.aborts, report.clients),
        (1_000, 100, Some(7))
    );
    assert!(report.tps > 0.0 && report.rate.is_none());
    assert!((report.log_bytes_per_txn - 100.0).abs() < 1e-9);
    assert_eq!(report.kinds[1].name, "read");
}

#[test]
fn workers_share_out_a_number_of_transactions() {
    let log = Dummy::default();
    let options = DriveOptions {
        workers: 3,
        clients: 8,
        rate: None,
        limit: Limit::Txns(1_000),
    };
    assert_eq!(run(&log, &options, None).unwrap().latencies.len(), 1_000);
    assert_eq!((0..3).map(|w| options.share(8, w)).sum::<u64>(), 8);
    assert_eq!(options.share(8, 2), 2);
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_a_stall_against_all_that_arrive_meanwhile() {
    let log = Dummy::default();
    let options = DriveOptions {
        workers: 2,
        clients: 2,
        rate: Some(2_000.0),
        limit: Limit::Time {
            warm_up: Duration::from_millis(100),
            measured: Duration::from_millis(400),
        },
    };
    let driven = run(&log, &options, Some(300)).unwrap();
    let txns = driven.latencies.len();
    assert!((400..=1_000).contains(&txns), "{txns}");
    assert!((driven.seconds - 0.4).abs() < 1e-9);
    // In both workers, the transactions that were due in the 80 ms had to wait, the first of them for the whole time.
    assert!(driven.latencies.max() >= 75_000);
    assert!(driven.latencies.value_at_quantile(0.9) >= 20_000);
}

#[test]
fn what_an_open_loop_could_not_begin_is_counted() {
    let log = Dummy::default();
    let options = DriveOptions {
        workers: 1,
        clients: 1,
        rate: Some(1_000.0),
        limit: Limit::Time {
            warm_up: Duration::ZERO,
            measured: Duration::from_millis(40),
        },
    };
    // The first transaction takes 80 ms.
    let driven = run(&log, &options, Some(1)).unwrap();
    assert!(
        (35..=40).contains(&driven.unstarted),
        "{}",
        driven.unstarted
    );
    assert_eq!(driven.latencies.len(), 0, "it was durable too late");
}

#[test]
fn a_step_or_a_log_that_fails_ends_the_run() {
    let log = Dummy::default();
    let options = DriveOptions {
        workers: 2,
        clients: 4,
        rate: None,
        limit: Limit::Time {
            warm_up: Duration::ZERO,
            measured: Duration::from_secs(60),
        },
    };
    let failed = drive(&log, &options, 2, |worker| Steps {
        log: &log,
        number: 0,
        stall_at: None,
        fail_at: (worker == 1).then_some(50),
    });
    assert_eq!(failed.unwrap_err().to_string(), "step 50");
    log.stopped.store(true, Ordering::SeqCst);
    assert!(run(&log, &options, None).is_err());
}

#[test]
fn options_out_of_range_are_refused() {
    let log = Dummy::default();
    let mut options = DriveOptions {
        workers: 0,
        clients: 4,
        rate: None,
        limit: Limit::Txns(1),
    };
    assert!(run(&log, &options, None).is_err());
    options.workers = 5;
    assert!(run(&log, &options, None).is_err());
    options.workers = 1;
    options.rate = Some(0.0);
    assert!(run(&log, &options, None).is_err());
}
