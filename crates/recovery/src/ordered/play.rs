//! Plays the ordered frames on several threads. A thread reads more frames if few frames wait. Otherwise it plays
//! frames.

use parking_lot::{Condvar, Mutex, MutexGuard};
use perdura_base::checksum::mix64;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, Result};
use perdura_device::Clock;

use super::admit::{Admission, Admitted};
use super::log::{Entry, Epochs};
use super::queues::Queues;
use super::{OrderedPlayer, refuse};
use crate::level::Schedule;
use crate::threads::{OnPanic, run_threads};

/// The approximate amount of log that threads read ahead of playing, bytes. Threads read whole epochs, so the amount
/// may be larger. It contains enough short frames for all threads, and still fits in the processor's cache.
const AHEAD_BYTES: u64 = 1 << 20;

/// The maximum number of frames of one partition that a thread plays before it chooses its next work.
const RUN_MAX: usize = 16;

/// The state that the threads share.
struct Shared {
    queues: Queues,
    /// True while a thread reads frames.
    feeding: bool,
    /// True once the whole log is read.
    ended: bool,
    /// True once an error or a panic has ended the pass.
    stopped: bool,
    /// Count of frames that threads are playing.
    playing: usize,
    /// Count of threads that wait for work.
    idle: usize,
    played: u64,
}

/// The source of the frames.
struct Feeder<'a> {
    epochs: Epochs<'a>,
    admission: Admission,
    ns: u64,
}

/// The second pass over a log.
pub(super) struct Pass<'a> {
    shared: Mutex<Shared>,
    wake: Condvar,
    feeder: Mutex<Feeder<'a>>,
    player: Option<&'a dyn OrderedPlayer>,
    clock: &'a dyn Clock,
}

/// The result of a pass.
pub(super) struct Done {
    pub played: u64,
    pub reflected: u64,
    pub bytes: u64,
    /// For each partition, the highest sequence number in the image and in the log.
    pub numbers: Vec<u64>,
    /// The time that threads spent reading, nanoseconds.
    pub read_ns: u64,
}

impl<'a> Pass<'a> {
    pub fn new(
        epochs: Epochs<'a>,
        admission: Admission,
        player: Option<&'a dyn OrderedPlayer>,
        clock: &'a dyn Clock,
        partitions: u16,
    ) -> Pass<'a> {
        Pass {
            shared: Mutex::new(Shared {
                queues: Queues::new(partitions),
                feeding: false,
                ended: false,
                stopped: false,
                playing: 0,
                idle: 0,
                played: 0,
            }),
            wake: Condvar::new(),
            feeder: Mutex::new(Feeder {
                epochs,
                admission,
                ns: 0,
            }),
            player,
            clock,
        }
    }

    /// Plays all frames. The first error ends the pass.
    pub fn run(&self, schedule: &Schedule) -> Result<()> {
        let work = |state, run_max| self.work(Chooser { state, run_max });
        match schedule.inline {
            // A single thread without a seed plays in the order of the log.
            Some(0) => work(0, 1),
            Some(seed) => work(seed, RUN_MAX),
            None if schedule.threads == 1 => work(0, 1),
            None => run_threads(schedule.threads, || work(0, RUN_MAX)),
        }
    }

    /// Returns the result. Must be called after [`run`](Self::run) has returned.
    pub fn into_done(self) -> Done {
        let (shared, feeder) = (self.shared.into_inner(), self.feeder.into_inner());
        assert!(
            shared.ended && shared.queues.is_empty(),
            "all frames were played"
        );
        let (reflected, bytes, numbers) = feeder.admission.into_figures();
        Done {
            played: shared.played,
            reflected,
            bytes,
            numbers,
            read_ns: feeder.ns,
        }
    }

    fn work(&self, mut chooser: Chooser) -> Result<()> {
        let stop = || {
            self.shared.lock().stopped = true;
            self.wake.notify_all();
        };
        let _others_end = OnPanic(stop);
        let result = self.steps(&mut chooser);
        if result.is_err() {
            stop();
        }
        result
    }

    fn steps(&self, chooser: &mut Chooser) -> Result<()> {
        let mut run = Vec::with_capacity(RUN_MAX);
        let mut shared = self.shared.lock();
        loop {
            if shared.stopped {
                return Ok(());
            }
            let may_feed = !shared.ended && !shared.feeding && shared.queues.weight() < AHEAD_BYTES;
            let ready = shared.queues.ready();
            if may_feed && chooser.feeds(ready) {
                shared.feeding = true;
                let fed = MutexGuard::unlocked(&mut shared, || self.feed());
                shared.feeding = false;
                // The flag is set before this thread unlocks `shared`. Otherwise another thread could see waiting
                // frames while no thread reads or plays, and would wrongly report that the numbers contradict each
                // other.
                shared.stopped |= fed.is_err();
                match fed? {
                    Some(admitted) => shared.queues.push(admitted),
                    None => shared.ended = true,
                }
                if shared.idle > 0 {
                    self.wake.notify_all();
                }
            } else if shared
                .queues
                .take(chooser.of(ready), chooser.run_max(), &mut run)
            {
                shared.playing += 1;
                let played = MutexGuard::unlocked(&mut shared, || self.play(&mut run));
                shared.playing -= 1;
                shared.stopped |= played.is_err();
                played?;
                shared.played += to_u64(run.len());
                for (number, entry) in run.drain(..) {
                    shared.queues.done(number, &entry);
                }
                if shared.idle > 0 && shared.queues.ready() > 1 {
                    self.wake.notify_one();
                }
            } else if shared.ended && shared.queues.is_empty() {
                self.wake.notify_all();
                return Ok(());
            } else if shared.playing == 0 && !shared.feeding {
                return Err(stuck(&shared.queues));
            } else {
                shared.idle += 1;
                self.wake.wait(&mut shared);
                shared.idle -= 1;
            }
        }
    }

    /// Reads and admits the frames of the next epoch. `None`: the log has ended.
    fn feed(&self) -> Result<Option<Admitted>> {
        let mut feeder = self.feeder.lock();
        let begin = self.clock.mono_ns();
        let admitted = match feeder.epochs.next_epoch()? {
            None => None,
            Some(entries) => Some(feeder.admission.admit(entries)?),
        };
        feeder.ns += self.clock.mono_ns().saturating_sub(begin);
        Ok(admitted)
    }

    fn play(&self, run: &mut [(usize, Entry)]) -> Result<()> {
        let player = self.player.expect("without a player no frame is admitted");
        run.iter_mut()
            .try_for_each(|(_, entry)| entry.with(|frame, origin| player.play(frame, origin)))
    }
}

/// Returns the error for frames that wait for each other. Their sequence numbers contradict each other: two partitions
/// order the frames in opposite ways.
#[cold]
fn stuck(queues: &Queues) -> Error {
    let Some(entry) = queues.waiting() else {
        return Error::Stopped("ordered frames are played, and none is left to wait".into());
    };
    let parts: Vec<String> = entry
        .parts()
        .iter()
        .map(|(partition, pseq)| format!("{pseq} of partition {partition}"))
        .collect();
    refuse(
        &entry.head.origin,
        "transactions whose partitions agree on their order".into(),
        format!(
            "transaction {} waits for a transaction that waits for it",
            parts.join(", ")
        ),
        "The checksums match, so this is a bug in Perdura. Copy the files and report the bug.",
    )
}

/// The choice of a thread's next work. With a seed the choice is random. Without a seed the thread reads if reading is
/// allowed. Otherwise the thread plays the oldest ready frame.
struct Chooser {
    state: u64,
    run_max: usize,
}

impl Chooser {
    /// Returns whether the thread should read more frames instead of playing one of the `ready` frames.
    fn feeds(&mut self, ready: usize) -> bool {
        self.state == 0 || ready == 0 || self.below(2) == 0
    }

    /// Returns the index of the frame to play next. The index is less than `ready`, the count of ready frames.
    fn of(&mut self, ready: usize) -> usize {
        if self.state == 0 || ready < 2 {
            return 0;
        }
        to_usize(self.below(to_u64(ready)))
    }

    /// Returns the maximum number of one partition's frames that a thread takes at once.
    fn run_max(&mut self) -> usize {
        if self.state == 0 {
            return self.run_max;
        }
        1 + to_usize(self.below(to_u64(self.run_max)))
    }

    fn below(&mut self, limit: u64) -> u64 {
        assert!(self.state != 0, "an order by a seed");
        self.state = mix64(self.state).max(1);
        self.state % limit
    }
}
