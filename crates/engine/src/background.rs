//! The threads of the checkpointer, the voucher and the housekeeper.

use std::sync::atomic::Ordering;
use std::time::Duration;

use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, Result, StreamId};
use perdura_device::Clock;
use perdura_heap::MemoryUse;
use perdura_recovery::CheckpointProgress;
use perdura_recovery::checkpoint::VISIT_PAGES;
use perdura_wal::Rung;

use crate::delays::Work;
use crate::pace::ImagePacer;
use crate::shared::Shared;

/// The housekeeper's and checkpointer's rhythm.
const TICK: Duration = Duration::from_millis(20);
/// The housekeeper's while elements of deleted collections wait to be removed.
const HURRY_TICK: Duration = Duration::from_millis(1);
/// Expired rows are looked for every so many ticks.
const PURGE_TICKS: u64 = 5;
/// How long a checkpoint waits for a full disk before it is put off, nanoseconds.
const FULL_PATIENCE_NS: u64 = 2_000_000_000;
/// How often a flusher tries again on a full disk.
pub(crate) const FULL_RETRY: Duration = Duration::from_millis(100);
/// Between two parts of a segment being zeroed.
const ZEROING_PAUSE: Duration = Duration::from_millis(1);

/// How old what the anchor vouches for may become while the log is written, nanoseconds.
const VOUCH_NS: u64 = 1_000_000_000;

impl Shared {
    pub fn checkpointer(&self) {
        while !self.is_stopping() {
            std::thread::park_timeout(TICK);
            if self.core.wal().failure().is_some() {
                continue;
            }
            // After a cancelled checkpoint the next one takes its time: each writes marks to the log.
            let due = self.delays.is_due(Work::Checkpoint, self.clock.mono_ns())
                && self.core.checkpoint_is_due();
            {
                let mut book = self.checkpoints.lock();
                if !std::mem::take(&mut book.wanted) && !due {
                    continue;
                }
                book.started += 1;
            }
            let outcome = self.run_checkpoint();
            match &outcome {
                Ok(()) => self.delays.done(Work::Checkpoint),
                Err(error) => {
                    let now = self.clock.mono_ns();
                    self.delays.failed(Work::Checkpoint, error, now);
                }
            }
            let mut book = self.checkpoints.lock();
            assert_eq!(
                book.ended + 1,
                book.started,
                "one checkpoint runs at a time"
            );
            book.ended = book.started;
            book.error = outcome.err().map(|error| error.to_string());
            self.checkpoint_ended.notify_all();
        }
    }

    /// Has a checkpoint taken that begins now or later, and waits for its end.
    pub fn checkpoint(&self) -> Result<()> {
        let mut book = self.checkpoints.lock();
        // One that is running began before this call: wait for the next.
        assert!(book.ended <= book.started, "what ended was begun");
        let number = book.started + 1;
        book.wanted = true;
        while book.ended < number {
            self.core.wal().check()?;
            if self.is_stopping() {
                return Err(Error::Stopped("the database is being closed".into()));
            }
            self.checkpoint_ended
                .wait_for(&mut book, Duration::from_millis(50));
        }
        match book.error.clone().filter(|_| book.ended == number) {
            Some(error) => {
                self.core.wal().check()?;
                Err(Error::Cancelled(error))
            }
            None => Ok(()),
        }
    }

    fn run_checkpoint(&self) -> Result<()> {
        self.wait_for_copy()?;
        self.core.checkpoint_begin()?;
        self.archive_to(self.core.wal().current());
        let pages = self.core.heap().memory().get(MemoryUse::Pages);
        let seconds = self.options.checkpoint_seconds_max;
        let mut pacer = ImagePacer::new(pages, seconds, self.clock.mono_ns());
        let mut waiting_since = None;
        loop {
            if self.is_stopping() {
                return Err(Error::Stopped("the database is being closed".into()));
            }
            match self.core.checkpoint_step()? {
                CheckpointProgress::Idle => return Ok(()),
                CheckpointProgress::Done => {
                    let k = self.core.checkpoint_stats().last_k;
                    let anchor = self.core.anchor().get();
                    let named = anchor.newest_image().map(|slot| anchor.image(slot).k.0);
                    assert_eq!(
                        named,
                        Some(k),
                        "I6: the anchor names the checkpoint that is done"
                    );
                    return Ok(());
                }
                CheckpointProgress::Working(bytes) => {
                    assert!(
                        bytes <= to_u64(PAGE_BYTES) * u64::from(VISIT_PAGES),
                        "a step writes what was copied under one latch"
                    );
                    let wait = pacer.wait_after(bytes, self.clock.mono_ns());
                    let is_full = self.core.heap().kept_over_bound();
                    let hurry = is_full || self.hurry.load(Ordering::SeqCst);
                    if bytes > 0 && !wait.is_zero() && !hurry {
                        std::thread::sleep(wait);
                    }
                }
                CheckpointProgress::Waiting => {
                    let now = self.clock.mono_ns();
                    let waited = now - *waiting_since.get_or_insert(now);
                    if waited > FULL_PATIENCE_NS && self.core.wal().is_short() {
                        let why = "the log has no room, so the image cannot be completed";
                        return Err(Error::LogFull(why.into()));
                    }
                    self.nudge();
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
    }

    pub fn housekeeper(&self) {
        let mut log_bytes = 0;
        let mut tick = 0u64;
        let pause = || std::thread::sleep(ZEROING_PAUSE);
        let mut much_to_purge = false;
        while !self.is_stopping() {
            std::thread::park_timeout(if much_to_purge { HURRY_TICK } else { TICK });
            if self.core.wal().failure().is_some() {
                continue;
            }
            for stream in (0..self.core.wal().streams()).map(StreamId) {
                let work = Work::Segment(stream);
                while self.delays.is_due(work, self.clock.mono_ns()) && !self.is_stopping() {
                    let prepared = self.core.wal().prepare_segment(stream, &pause);
                    if matches!(prepared, Ok(false)) {
                        self.note_log(work, Ok(()));
                        break;
                    }
                    let failed = prepared.is_err();
                    self.note_log(work, prepared.map(drop));
                    // Writers may have waited for this, and for another one behind it.
                    self.announce();
                    if failed {
                        break;
                    }
                }
            }
            if self.delays.is_due(Work::Removal, self.clock.mono_ns()) {
                match self.core.clear_away() {
                    Ok(()) => self.delays.done(Work::Removal),
                    Err(error) => {
                        let now = self.clock.mono_ns();
                        self.delays.failed(Work::Removal, &error, now);
                    }
                }
            }
            tick += 1;
            if much_to_purge || tick.is_multiple_of(PURGE_TICKS) {
                much_to_purge = self.purge();
            }
            let queued = self.core.wal().stats().queued_bytes;
            self.core
                .heap()
                .memory()
                .change(MemoryUse::Log, log_bytes, queued);
            log_bytes = queued;
        }
    }

    /// Tells the anchor about once a second how far the log is durable. It runs in a separate thread
    /// because the housekeeper may zero a segment for longer than that.
    pub fn voucher(&self) {
        let mut not_before_ns = 0;
        let mut checked_ns = 0;
        while !self.is_stopping() {
            std::thread::park_timeout(TICK);
            let now_ns = self.clock.mono_ns();
            let due = now_ns >= not_before_ns && self.delays.is_due(Work::Vouch, now_ns);
            if !due || self.core.wal().failure().is_some() {
                continue;
            }
            // A database that is not written must not seem to be well.
            if now_ns >= checked_ns + VOUCH_NS {
                checked_ns = now_ns;
                if self.core.check_files().is_err() {
                    self.announce();
                    continue;
                }
            }
            let durable = self.core.wal().durable(Rung::Disk);
            match self.core.vouch() {
                Ok(written) => {
                    let vouched = self.core.anchor().get().vouched.epoch;
                    assert!(
                        durable <= vouched,
                        "I13: the anchor vouches for what was durable before"
                    );
                    self.delays.done(Work::Vouch);
                    not_before_ns = now_ns + u64::from(written) * VOUCH_NS;
                }
                Err(error) if self.core.wal().failure().is_none() => {
                    self.delays.failed(Work::Vouch, &error, now_ns);
                }
                Err(_) => self.announce(),
            }
        }
    }

    /// Notes whether a stream's log can be extended or written and returns how long to wait if not. A
    /// full disk is tried again at an even pace: writes are to go on as soon as there is space.
    pub fn note_log(&self, work: Work, done: Result<()>) -> Duration {
        match done {
            Err(error) if !error.is_disk_full() => {
                self.delays.failed(work, &error, self.clock.mono_ns())
            }
            Ok(()) => {
                self.delays.done(work);
                Duration::ZERO
            }
            Err(_) => {
                self.delays.done(work);
                FULL_RETRY
            }
        }
    }

    /// One step for every partition. Whether one of them had all the work that a step takes.
    fn purge(&self) -> bool {
        let mut much = false;
        for _ in 0..self.core.heap().geometry().partitions {
            // A full log or a stopped database: expired rows are hidden anyway, and removing
            // them can wait.
            match self.core.purge_step() {
                Ok(done) => {
                    much |= done >= self.core.options().orphans.step_rows;
                    if done > 0 && self.core.tells_of_expired() {
                        self.nudge();
                    }
                }
                Err(_) => return false,
            }
        }
        much
    }
}
