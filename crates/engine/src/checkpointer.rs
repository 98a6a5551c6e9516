//! The checkpointer's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_heap::MemoryUse;
use perdura_recovery::CheckpointProgress;
use perdura_recovery::checkpoint::VISIT_PAGES;

use crate::archiver::AtArchive;
use crate::delays::Work;
use crate::ground::Ground;
use crate::pace::ImagePacer;

/// The thread checks for work this often.
const TICK: Duration = Duration::from_millis(20);
/// The maximum time, in nanoseconds, that a checkpoint waits for room in the log. After that it is deferred.
const FULL_PATIENCE_NS: u64 = 2_000_000_000;

/// The requests for checkpoints and the outcome of the last one. `started` and `ended` count checkpoints.
#[derive(Debug, Default)]
struct Checkpoints {
    wanted: bool,
    started: u64,
    ended: u64,
    /// The error that cancelled the last checkpoint, if it was cancelled.
    error: Option<String>,
}

/// Takes checkpoints of an open database.
pub(crate) struct Checkpointer {
    ground: Arc<Ground>,
    archive: Arc<AtArchive>,
    /// Requests, and the outcome of the last checkpoint. The condition variable `ended` signals the end of a
    /// checkpoint.
    book: Mutex<Checkpoints>,
    ended: Condvar,
    /// True if checkpoints run at full speed, because the database is being closed.
    hurry: AtomicBool,
    /// True if the image copy under way must be given up, because a checkpoint has to overwrite the image.
    give_up_copy: AtomicBool,
}

impl Checkpointer {
    /// Returns a checkpointer without requests.
    pub fn new(ground: &Arc<Ground>, archive: &Arc<AtArchive>) -> Checkpointer {
        Checkpointer {
            ground: Arc::clone(ground),
            archive: Arc::clone(archive),
            book: Mutex::default(),
            ended: Condvar::new(),
            hurry: AtomicBool::new(false),
            give_up_copy: AtomicBool::new(false),
        }
    }

    /// Makes checkpoints run at full speed from now on, because the database is being closed.
    pub fn hurry(&self) {
        self.hurry.store(true, Ordering::SeqCst);
    }

    /// Asks for a checkpoint in the background. Returns `false`, and asks for none, if a checkpoint
    /// is running.
    pub fn want(&self) -> bool {
        let mut book = self.book.lock();
        assert!(book.ended <= book.started, "what ended was begun");
        let running = book.started > book.ended;
        book.wanted |= !running;
        !running
    }

    /// Notes that the copy of an image begins.
    pub fn begin_copy(&self) {
        assert!(self.archive.archives, "an image is copied into an archive");
        self.give_up_copy.store(false, Ordering::SeqCst);
    }

    /// Returns whether the copy must be given up, because a checkpoint has to overwrite the image.
    pub fn gives_up_copy(&self) -> bool {
        self.give_up_copy.load(Ordering::SeqCst)
    }

    /// Runs the checkpointer's thread.
    pub fn run(&self) {
        while !self.ground.is_stopping() {
            std::thread::park_timeout(TICK);
            if self.ground.core.wal().failure().is_some() {
                continue;
            }
            // After a cancelled checkpoint the next one is delayed, because each attempt writes marks to the log.
            let due = self
                .ground
                .delays
                .is_due(Work::Checkpoint, self.ground.now_ns())
                && self.ground.core.checkpoint_is_due();
            {
                let mut book = self.book.lock();
                if !std::mem::take(&mut book.wanted) && !due {
                    continue;
                }
                book.started += 1;
            }
            let outcome = self.run_checkpoint();
            match &outcome {
                Ok(()) => self.ground.delays.done(Work::Checkpoint),
                Err(error) => {
                    let now = self.ground.now_ns();
                    self.ground.delays.failed(Work::Checkpoint, error, now);
                }
            }
            let mut book = self.book.lock();
            assert_eq!(
                book.ended + 1,
                book.started,
                "one checkpoint runs at a time"
            );
            book.ended = book.started;
            book.error = outcome.err().map(|error| error.to_string());
            self.ended.notify_all();
        }
    }

    /// Asks for a checkpoint that begins after this call, and waits until it ends.
    pub fn checkpoint(&self) -> Result<()> {
        let mut book = self.book.lock();
        // A checkpoint that is running began before this call, so wait for the next one.
        assert!(book.ended <= book.started, "what ended was begun");
        let number = book.started + 1;
        book.wanted = true;
        while book.ended < number {
            self.ground.core.wal().check()?;
            if self.ground.is_stopping() {
                return Err(Error::Stopped("the database is being closed".into()));
            }
            self.ended.wait_for(&mut book, Duration::from_millis(50));
        }
        match book.error.clone().filter(|_| book.ended == number) {
            Some(error) => {
                self.ground.core.wal().check()?;
                Err(Error::Cancelled(error))
            }
            None => Ok(()),
        }
    }

    fn run_checkpoint(&self) -> Result<()> {
        self.wait_for_loading()?;
        self.wait_for_copy()?;
        self.ground.core.checkpoint_begin()?;
        self.archive.ask_to(self.ground.core.wal().current());
        let pages = self.ground.core.heap().memory().get(MemoryUse::Pages);
        let seconds = self.ground.options.checkpoint_seconds_max;
        let mut pacer = ImagePacer::new(pages, seconds, self.ground.now_ns());
        let mut waiting_since = None;
        loop {
            if self.ground.is_stopping() {
                return Err(Error::Stopped("the database is being closed".into()));
            }
            match self.ground.core.checkpoint_step()? {
                CheckpointProgress::Idle => return Ok(()),
                CheckpointProgress::Done => {
                    let k = self.ground.core.checkpoint_stats().last_k;
                    let anchor = self.ground.core.anchor().get();
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
                    let wait = pacer.wait_after(bytes, self.ground.now_ns());
                    let is_full = self.ground.core.heap().kept_over_bound();
                    let hurry = is_full || self.hurry.load(Ordering::SeqCst);
                    if bytes > 0 && !wait.is_zero() && !hurry {
                        std::thread::sleep(wait);
                    }
                }
                CheckpointProgress::Waiting => {
                    let now = self.ground.now_ns();
                    let waited = now - *waiting_since.get_or_insert(now);
                    if waited > FULL_PATIENCE_NS && self.ground.core.wal().is_short() {
                        let why = "the log has no room, so the image cannot be completed";
                        return Err(Error::LogFull(why.into()));
                    }
                    self.ground.wishes.nudge();
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
    }

    /// Waits while other threads load partitions that the restart has left absent.
    fn wait_for_loading(&self) -> Result<()> {
        let loading = self.ground.core.loading.as_ref();
        while loading.is_some_and(|loading| loading.is_running()) {
            if self.ground.is_stopping() {
                return Err(Error::Stopped("the database is being closed".into()));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Waits while the image that the next checkpoint overwrites is being copied. If the log has no room, or the
    /// database is being closed, makes the backup give up the copy.
    fn wait_for_copy(&self) -> Result<()> {
        while self.ground.core.checkpoint_is_held() {
            if self.ground.is_stopping() {
                return Err(Error::Stopped("the database is being closed".into()));
            }
            if self.ground.core.wal().is_short() || self.hurry.load(Ordering::SeqCst) {
                self.give_up_copy.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }
}
