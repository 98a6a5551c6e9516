//! The start times of flushes, and the rate of writing an image.
//!
//! Group commit needs no timer: a flush starts when the previous flush has ended, and includes all frames appended
//! meanwhile. This is enough while cores are idle. When every core is busy, each sync takes CPU time from transactions.
//! Then flushes are spaced by the measured cost of a sync, so that they use a fixed share of one core. A flush is
//! delayed at most [`SPACING_NS_MAX`].
//!
//! | the flush is wanted by | it is spaced when | share of a core |
//! |---|---|---|
//! | a thread that waits for it, or an event loop for its clients | every core is busy | 1/8 |
//! | threads that have appended and continue | these *workers* never idle; or they seldom idle, and every core is busy | 1/64 |
//! | such workers | they idle, and every core is busy | 1/8 |
//!
//! A thread that waits can do nothing until the flush has ended, so delaying the flush also costs the thread's
//! throughput. A thread that continues loses nothing, while a next transaction is available. The thread's CPU clock
//! shows this: [`Workers`] compares the CPU clock with the wall clock each time a thread is the first to request a
//! flush. A worker at half load sleeps half of the time. A worker also sleeps while all its clients wait for the
//! delayed flush. A worker that sleeps gets flushes at once, unless every core is busy.
//!
//! In the second row of the table, spacing can defeat itself. All clients of a worker may come to wait for the delayed
//! flush, so that the worker has nothing to do. So `Spacing` adapts. If the workers were busy, a flush makes the
//! spacing grow by a quarter, up to a target that follows from the cost. Otherwise the flush halves the spacing. So it
//! settles where the workers just stay busy. If a thread begins to wait, this spacing no longer delays the flush.
//!
//! A fixed spacing (`flush-every`) replaces all of this. The starts of two flushes are then at least this time apart,
//! even if threads wait, unless the log has no room for more frames.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest delay of a flush, nanoseconds.
pub const SPACING_NS_MAX: u64 = 5_000_000;
/// While the cores are saturated, syncs that threads wait for may use 1/`SYNC_SHARE` of a core.
const SYNC_SHARE: u64 = 8;
/// While the workers never idle, syncs that no thread waits for may use 1/`PIPELINED_SHARE` of a core.
const PIPELINED_SHARE: u64 = 64;
/// A time in nanoseconds, for syncs that no thread waits for. Their first spacing has this length. The spacing then
/// grows by at least this much at a time, until it reaches its target.
const STEP_NS: u64 = 50_000;
/// The smoothing time of [`Workers`], nanoseconds.
const LATELY_NS: u64 = 4_000_000;
/// A worker that runs at least this share of the time counts as busy. The rest goes to interrupts and to threads that
/// preempt the worker.
const BUSY_PERMILLE: u64 = 970;
/// While every core is busy, a worker that runs at least this share of the time counts as busy. This share is lower
/// than [`BUSY_PERMILLE`], because the flusher preempts workers while every core is busy.
const BUSY_PERMILLE_SATURATED: u64 = 800;
/// A waiting thread flushes by itself if a flush takes at most this long, nanoseconds. Waking the flusher and being
/// woken again would take about as long.
const SHORT_NS: u64 = 400_000;
/// The machine's idle time is read this often, nanoseconds.
const GAUGE_NS: u64 = 20_000_000;

/// Decides when the next flush may start.
#[derive(Debug, Default)]
pub struct FlushPacer {
    /// Smoothed CPU time of a flush, nanoseconds.
    cost_ns: u64,
    /// Smoothed duration of a flush, nanoseconds.
    wall_ns: u64,
    last_start_ns: u64,
    gauge: IdleGauge,
    /// The spacing of flushes that no thread waits for.
    pipelined: Spacing,
    /// The CPU time that a durable write costs the machine, in nanoseconds. It includes interrupts. It was measured
    /// when the log was opened.
    machine_cost_ns: u64,
    /// A fixed spacing, nanoseconds; 0: automatic.
    every_ns: u64,
}

impl FlushPacer {
    /// Returns a pacer. A durable write costs the machine `machine_cost_ns` of CPU time. `every` is the fixed spacing;
    /// zero: automatic.
    #[must_use]
    pub fn new(machine_cost_ns: u64, every: Duration) -> FlushPacer {
        FlushPacer {
            machine_cost_ns,
            every_ns: u64::try_from(every.as_nanos()).unwrap_or(u64::MAX),
            ..FlushPacer::default()
        }
    }

    /// Returns the delay of a flush that a thread waits for, nanoseconds. 0: the flush starts now.
    pub fn delay_ns(&mut self, now_ns: u64) -> u64 {
        let spacing_ns = if self.every_ns > 0 {
            self.every_ns
        } else if self.gauge.saturated(now_ns) {
            spacing_ns(self.cost_ns, SYNC_SHARE)
        } else {
            0
        };
        self.left_of(spacing_ns, now_ns)
    }

    /// Returns the delay of a flush that no thread waits for, in nanoseconds. `ran_permille` is the share of recent
    /// time for which the threads that want the flush were running, in thousandths.
    pub fn delay_pipelined_ns(&mut self, now_ns: u64, ran_permille: u64) -> u64 {
        let delay_ns = self.delay_ns(now_ns);
        if self.every_ns > 0 {
            return delay_ns;
        }
        let busy_permille = if self.gauge.saturated {
            BUSY_PERMILLE_SATURATED
        } else {
            BUSY_PERMILLE
        };
        let target_ns = spacing_ns(self.cost_ns.max(self.machine_cost_ns), PIPELINED_SHARE);
        let is_bound = ran_permille >= busy_permille;
        let spacing_ns = self.pipelined.next(is_bound, target_ns);
        self.left_of(spacing_ns, now_ns).max(delay_ns)
    }

    fn left_of(&self, spacing_ns: u64, now_ns: u64) -> u64 {
        spacing_ns.saturating_sub(now_ns.saturating_sub(self.last_start_ns))
    }

    /// Returns the delay of the next write, in nanoseconds. Call this while the last write is still in flight. Both
    /// writes complete by themselves. The delay is at least [`delay_ns`](Self::delay_ns). The next write also starts at
    /// least half of `latency_ns` after the start of the last write, so about two writes are in flight at a time. More
    /// and smaller writes would cost more than they save.
    pub fn delay_behind_ns(&mut self, now_ns: u64, latency_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(self.last_start_ns);
        self.delay_ns(now_ns)
            .max((latency_ns / 2).saturating_sub(since_ns))
    }

    /// Notes the start of a write that completes by itself, and the write's cost to the machine.
    pub fn note_begun(&mut self, now_ns: u64, cost_ns: u64) {
        self.note_start(now_ns);
        self.cost_ns = cost_ns;
        // The smoothed duration shrinks, so that after a slow flush a waiting thread will try again to flush by itself.
        self.wall_ns = self.wall_ns * 7 / 8;
    }

    /// Notes that a flush took from `start_ns` to `end_ns` and used `cpu_ns` of CPU.
    pub fn note(&mut self, start_ns: u64, end_ns: u64, cpu_ns: u64) {
        assert!(
            self.last_start_ns <= start_ns,
            "flushes of the first stream follow one another"
        );
        assert!(start_ns <= end_ns, "a flush ends after it has begun");
        self.note_start(start_ns);
        self.note_end(end_ns.saturating_sub(start_ns), cpu_ns);
    }

    /// Notes the start of a flush that does not delay other flushes.
    pub fn note_start(&mut self, start_ns: u64) {
        assert!(start_ns > 0, "the clock runs");
        self.last_start_ns = self.last_start_ns.max(start_ns);
    }

    /// Notes that a flush took `wall_ns` and used `cpu_ns` of CPU.
    pub fn note_end(&mut self, wall_ns: u64, cpu_ns: u64) {
        self.wall_ns = (self.wall_ns * 7 + wall_ns) / 8;
        self.cost_ns = (self.cost_ns * 7 + cpu_ns) / 8;
    }

    /// Returns whether flushes are short enough for a waiting thread to make them by itself.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.wall_ns <= SHORT_NS
    }

    /// Returns whether flushes are being spaced.
    #[must_use]
    pub fn is_spacing(&self) -> bool {
        self.gauge.saturated || self.pipelined.ns > 0 || self.every_ns > 0
    }

    /// Returns the smoothed CPU time of a flush, nanoseconds.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        self.cost_ns
    }
}

/// Returns the spacing that makes flushes of this cost use 1/`share` of a core.
fn spacing_ns(cost_ns: u64, share: u64) -> u64 {
    cost_ns.saturating_mul(share).min(SPACING_NS_MAX)
}

/// The spacing of flushes that no thread waits for. It approaches its target step by step.
#[derive(Debug, Default)]
struct Spacing {
    ns: u64,
}

impl Spacing {
    /// Returns the spacing before the next flush. `is_bound` says that throughput is limited by CPU time, and not by
    /// the wait for flushes.
    fn next(&mut self, is_bound: bool, target_ns: u64) -> u64 {
        self.ns = if is_bound {
            (self.ns + (self.ns / 4).max(STEP_NS)).min(target_ns)
        } else if self.ns / 2 < STEP_NS {
            0
        } else {
            self.ns / 2
        };
        self.ns
    }
}

std::thread_local! {
    /// The wall clock and this thread's CPU clock at the thread's last call of [`Workers::tell`].
    static TOLD: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// The share of time for which the *workers* run. The workers are the threads that append and continue.
#[derive(Debug, Default)]
pub struct Workers {
    /// In thousandths, smoothed over [`LATELY_NS`].
    ran_permille: AtomicU64,
}

impl Workers {
    /// Notes the share of time that the calling thread has run since its last call of this function.
    pub fn tell(&self, now_ns: u64) {
        let cpu_ns = thread_cpu_ns();
        let (told_ns, told_cpu_ns) = TOLD.replace((now_ns, cpu_ns));
        self.note(
            now_ns.saturating_sub(told_ns),
            cpu_ns.saturating_sub(told_cpu_ns),
        );
    }

    /// Notes that a worker has run `cpu_ns` of the last `wall_ns`. If two threads call this at once, one update may be
    /// lost.
    fn note(&self, wall_ns: u64, cpu_ns: u64) {
        let Some(permille) = (cpu_ns.saturating_mul(1000)).checked_div(wall_ns) else {
            return;
        };
        let (permille, weight) = (permille.min(1000), wall_ns.min(LATELY_NS));
        let before = self.ran_permille.load(Ordering::Relaxed);
        let after = (before * (LATELY_NS - weight) + permille * weight).div_ceil(LATELY_NS);
        debug_assert!(after <= 1000, "a mean of shares is a share");
        self.ran_permille.store(after, Ordering::Relaxed);
    }

    /// Returns the share of recent time for which the workers were running, in thousandths.
    #[must_use]
    pub fn ran_permille(&self) -> u64 {
        self.ran_permille.load(Ordering::Relaxed)
    }
}

/// Measures from the kernel's accounting whether the machine has idle cores.
#[derive(Debug, Default)]
pub(crate) struct IdleGauge {
    next_ns: u64,
    last: Option<(u64, u64)>,
    saturated: bool,
}

impl IdleGauge {
    /// Returns a gauge with a constant answer.
    #[cfg(test)]
    pub fn fixed(saturated: bool) -> IdleGauge {
        IdleGauge {
            next_ns: u64::MAX,
            last: None,
            saturated,
        }
    }

    /// Returns whether every core has recently been busy.
    pub fn saturated(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + GAUGE_NS;
            let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
            if let Some((idle, total)) = parse_idle(&stat) {
                if let Some((idle_before, total_before)) = self.last {
                    let idle = idle.saturating_sub(idle_before);
                    let total = total.saturating_sub(total_before);
                    self.saturated = is_saturated(idle, total);
                }
                self.last = Some((idle, total));
            }
        }
        self.saturated
    }
}

/// Returns the idle ticks and the total ticks of all cores, from the text of `/proc/stat`.
fn parse_idle(stat: &str) -> Option<(u64, u64)> {
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8)
        .map_while(|field| field.parse().ok())
        .collect();
    // The fields are user, nice, system, idle, iowait, irq, softirq, steal. Low-priority work (nice) and waiting for
    // I/O count as idle.
    let idle = ticks.get(1)? + ticks.get(3)? + ticks.get(4)?;
    Some((idle, ticks.iter().sum()))
}

/// Returns whether less than a tenth of all core time is idle.
fn is_saturated(idle: u64, total: u64) -> bool {
    total > 0 && idle * 10 < total
}

/// Returns the CPU time of the calling thread, nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Spreads an image's writes over time, so that they do not starve the log. The rate is high enough to finish within
/// the longest allowed duration, and at least `IMAGE_RATE_MIN`.
#[derive(Debug)]
pub struct ImagePacer {
    bytes_per_second: u64,
    started_ns: u64,
    written: u64,
}

/// The minimum rate at which an image is written, in bytes a second. It applies to small images too.
const IMAGE_RATE_MIN: u64 = 48 << 20;

impl ImagePacer {
    /// Returns a pacer for an image of about `expected_bytes` that must be written within
    /// `seconds_max`.
    #[must_use]
    pub fn new(expected_bytes: u64, seconds_max: u64, now_ns: u64) -> Self {
        let rate = expected_bytes
            .div_ceil(seconds_max.max(1))
            .max(IMAGE_RATE_MIN);
        ImagePacer {
            bytes_per_second: rate,
            started_ns: now_ns,
            written: 0,
        }
    }

    /// Returns the pause after `bytes` more were written.
    pub fn wait_after(&mut self, bytes: u64, now_ns: u64) -> Duration {
        assert!(
            self.started_ns <= now_ns,
            "both times are of the clock that the image was begun by"
        );
        self.written += bytes;
        let due_ns = u128::from(self.written) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let due_ns = self.started_ns + u64::try_from(due_ns).unwrap_or(u64::MAX / 2);
        Duration::from_nanos(due_ns.saturating_sub(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_spaced_by_their_cost_and_never_by_more_than_the_limit() {
        assert_eq!(spacing_ns(0, SYNC_SHARE), 0);
        assert_eq!(spacing_ns(30_000, SYNC_SHARE), 240_000);
        assert_eq!(spacing_ns(30_000, PIPELINED_SHARE), 1_920_000);
        assert_eq!(spacing_ns(u64::MAX, SYNC_SHARE), SPACING_NS_MAX);
    }

    /// A worker with clients that wait for flushes, in virtual time. Each transaction takes `txn_ns`, a flush
    /// `SYNC_NS`. At most `clients` transactions may be begun and not yet durable. In an open loop one transaction
    /// arrives every `every_ns`, and the number of clients is not limited.
    struct Model {
        txn_ns: u64,
        every_ns: u64,
        clients: u64,
    }

    const SYNC_NS: u64 = 200_000;
    const COST_NS: u64 = 40_000;

    impl Model {
        /// Runs the model for two seconds. For the second half, returns the mean spacing of flushes, and the worker's
        /// running time in thousandths. With a `cost_ns` of 0 flushes are never delayed.
        fn run(&self, cost_ns: u64) -> (u64, u64) {
            let mut pacer = FlushPacer::new(cost_ns, Duration::ZERO);
            let workers = Workers::default();
            // The cores are never all busy in this model.
            pacer.gauge.next_ns = u64::MAX;
            let (mut now_ns, end_ns) = (1, 2_000_000_000);
            let (mut next_ns, mut flushes, mut ran_ns) = (1, 0, 0);
            // Transactions that the flush under way makes durable, and transactions that wait for
            // the next flush.
            let (mut flushed, mut waiting) = (0, 0);
            while now_ns < end_ns {
                let flush_ns = now_ns + pacer.delay_pipelined_ns(now_ns, workers.ran_permille());
                let flushed_ns = flush_ns + SYNC_NS;
                let (begin_ns, mut busy_ns, mut t_ns) = (now_ns, 0, now_ns);
                let mut is_begun = false;
                while t_ns < flushed_ns {
                    if t_ns >= flush_ns && !is_begun {
                        (flushed, waiting, is_begun) = (waiting, 0, true);
                    }
                    let may_begin = flushed + waiting < self.clients && next_ns <= t_ns;
                    if may_begin {
                        (waiting, busy_ns) = (waiting + 1, busy_ns + self.txn_ns);
                        next_ns += self.every_ns;
                    }
                    t_ns += self.txn_ns;
                }
                pacer.note(flush_ns, flushed_ns, cost_ns);
                workers.note(t_ns - begin_ns, busy_ns);
                (flushed, now_ns) = (0, t_ns);
                if now_ns > end_ns / 2 {
                    (flushes, ran_ns) = (flushes + 1, ran_ns + busy_ns);
                }
            }
            (end_ns / 2 / flushes, ran_ns * 1000 / (end_ns / 2))
        }
    }

    #[test]
    fn flushes_of_a_full_pipeline_are_spaced_to_a_small_share_of_a_core() {
        let full = Model {
            txn_ns: 20_000,
            every_ns: 0,
            clients: 1000,
        };
        let (spacing_ns, ran) = full.run(COST_NS);
        assert!(
            spacing_ns >= COST_NS * PIPELINED_SHARE * 9 / 10,
            "{spacing_ns}"
        );
        assert!(ran >= 990, "{ran}");
    }

    #[test]
    fn flushes_of_an_open_loop_at_half_load_follow_one_another() {
        let half = Model {
            txn_ns: 20_000,
            every_ns: 40_000,
            clients: u64::MAX,
        };
        let (spacing_ns, _) = half.run(COST_NS);
        assert!(spacing_ns <= SYNC_NS * 11 / 10, "{spacing_ns}");
    }

    #[test]
    fn clients_that_all_wait_for_the_flush_are_not_made_to_wait_longer() {
        for clients in [1, 5, 20, 50, 100] {
            let closed = Model {
                txn_ns: 20_000,
                every_ns: 0,
                clients,
            };
            let ((_, ran), (_, unspaced)) = (closed.run(COST_NS), closed.run(0));
            assert!(
                ran >= unspaced * 19 / 20,
                "{clients} clients: {ran} of {unspaced}"
            );
        }
    }

    #[test]
    fn a_fixed_spacing_holds_whoever_waits() {
        let mut pacer = FlushPacer::new(0, Duration::from_millis(5));
        assert_eq!(pacer.delay_ns(7_000_000), 0, "long after the last one");
        pacer.note(7_000_000, 7_200_000, 0);
        assert_eq!(pacer.delay_ns(8_000_000), 4_000_000);
        assert_eq!(pacer.delay_pipelined_ns(8_000_000, 0), 4_000_000);
        assert_eq!(pacer.delay_ns(12_000_000), 0);
    }

    #[test]
    fn a_worker_that_runs_is_busy_and_one_that_sleeps_is_not() {
        let workers = Workers::default();
        workers.note(LATELY_NS / 40, LATELY_NS / 40);
        assert_eq!(workers.ran_permille(), 25, "a moment says little");
        workers.note(LATELY_NS, LATELY_NS);
        assert_eq!(workers.ran_permille(), 1000);
        workers.note(LATELY_NS / 4, LATELY_NS / 8);
        assert_eq!(workers.ran_permille(), 875);
        workers.note(0, 0);
        assert_eq!(workers.ran_permille(), 875);
    }

    #[test]
    fn while_every_core_is_busy_workers_that_idle_wait_for_less_than_those_that_do_not() {
        let mut pacer = FlushPacer::new(0, Duration::ZERO);
        (pacer.gauge.saturated, pacer.gauge.next_ns) = (true, u64::MAX);
        for flush in 1..100 {
            pacer.note(flush, flush, 40_000);
        }
        let eighth_ns = spacing_ns(pacer.cost_ns, SYNC_SHARE);
        let mut longest_ns = |ran_permille| {
            let all = (0..100).map(|_| pacer.delay_pipelined_ns(99, ran_permille));
            all.max().unwrap_or(0)
        };
        assert_eq!(longest_ns(500), eighth_ns);
        assert_eq!(longest_ns(900), 8 * eighth_ns);
        assert_eq!(pacer.delay_ns(99), eighth_ns, "a thread that waits");
    }

    #[test]
    fn the_kernels_accounting_is_read() {
        let stat = "cpu  10 1 5 100 20 0 1 2 0 0\ncpu0 1 2 3\n";
        assert_eq!(parse_idle(stat), Some((121, 139)), "niced work gives way");
        assert_eq!(parse_idle("nothing"), None);
        assert!(is_saturated(9, 100));
        assert!(!is_saturated(10, 100));
        assert!(!is_saturated(0, 0));
    }

    #[test]
    fn an_image_is_written_in_time_and_not_faster() {
        let mut pacer = ImagePacer::new(600 << 20, 10, 0);
        assert_eq!(pacer.wait_after(60 << 20, 0), Duration::from_secs(1));
        assert_eq!(pacer.wait_after(0, 2_000_000_000), Duration::ZERO);
    }
}
