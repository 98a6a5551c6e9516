//! The threads of an open database.

use std::sync::Arc;
use std::thread::{JoinHandle, Thread};

use parking_lot::Mutex;
use perdura_archive::MergerOptions;
use perdura_base::{Error, Result, StreamId};
use perdura_device::Clock;
use perdura_recovery::disks::Locks;

use crate::background::{housekeeper, loader, voucher};
use crate::merging::Merging;
use crate::shared::Shared;
use crate::yielding::Side;

/// The threads, which end when this is dropped.
pub(super) struct Threads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    _locks: Vec<Box<dyn std::any::Any + Send + Sync>>,
}

impl Threads {
    /// Starts the threads. If a thread does not start, stops the threads that have started.
    pub fn start(shared: &Arc<Shared>, locks: Locks) -> Result<Threads> {
        let threads = Threads {
            shared: Arc::clone(shared),
            handles: Mutex::new(Vec::new()),
            _locks: locks,
        };
        threads.start_flushers()?;
        threads.start_keepers()?;
        if shared.archive.archives {
            threads.start_archiver()?;
            if shared.ground.options.archive_merge {
                threads.start_merger()?;
            }
        }
        Ok(threads)
    }

    fn start_flushers(&self) -> Result<()> {
        let shared = &self.shared;
        let streams = shared.core().wal().streams();
        for stream in (0..streams).map(StreamId) {
            let name = format!("flush-{stream}");
            let thread = self.spawn(&name, move |shared| shared.log.flusher(stream))?;
            shared.ground.wishes.add_flusher(thread);
        }
        assert_eq!(
            shared.ground.wishes.flushers(),
            usize::from(streams),
            "a flusher for each stream"
        );
        Ok(())
    }

    /// Starts the threads other than flushers and archive threads: checkpointer, housekeeper and
    /// voucher, the mirror's thread if the database has nodes, and loaders if partitions are absent.
    fn start_keepers(&self) -> Result<()> {
        let shared = &self.shared;
        self.spawn("checkpoint", |shared| shared.checkpoints.run())?;
        let keeper = self.spawn("housekeep", |shared| housekeeper(&shared.ground))?;
        shared.core().wal().prepare_by(move || keeper.unpark());
        if shared.core().nodes().is_some() {
            let mirror = self.spawn("mirror", |shared| shared.mirror.run())?;
            shared.mirror.set_collector(mirror);
        }
        self.spawn("vouch", |shared| voucher(&shared.ground))?;
        if !shared.core().is_loaded() {
            for number in 0..shared.core().options().schedule.threads {
                self.spawn(&format!("load-{number}"), |shared| loader(&shared.ground))?;
            }
        }
        Ok(())
    }

    fn start_archiver(&self) -> Result<()> {
        assert!(self.shared.archive.archives, "there is an archive");
        for (name, side) in [("archive", Side::High), ("archive-low", Side::Low)] {
            self.spawn(name, move |shared| shared.archive.archiver(side))?;
        }
        self.spawn("backup", |shared| shared.backups.run())?;
        Ok(())
    }

    fn start_merger(&self) -> Result<()> {
        let ground = &self.shared.ground;
        let retention = ground.options.archive_retention.clone();
        let clock = Arc::clone(&ground.clock);
        let options = MergerOptions {
            policy: retention.policy(Arc::new(move || clock.wall_us())),
            ..MergerOptions::default()
        };
        let merging = Merging::new(self.shared.archive.lent.clone(), options, retention);
        let merging = Arc::new(Mutex::new(merging));
        for (name, side) in [("merge", Side::High), ("merge-low", Side::Low)] {
            let merging = Arc::clone(&merging);
            self.spawn(name, move |shared| shared.archive.merger(&merging, side))?;
        }
        Ok(())
    }

    /// Starts a thread and returns its handle. `stop` joins the thread. If the thread panics, the
    /// database stops.
    fn spawn(&self, name: &str, run: impl FnOnce(&Shared) + Send + 'static) -> Result<Thread> {
        let theirs = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let run = std::panic::AssertUnwindSafe(|| run(&theirs));
                if std::panic::catch_unwind(run).is_err() {
                    theirs.core().wal().fail("a background thread panicked");
                    theirs.ground.announce();
                }
            });
        let handle = spawned.map_err(|error| Error::io("start thread", name, error))?;
        let thread = handle.thread().clone();
        self.handles.lock().push(handle);
        Ok(thread)
    }

    /// Ends the threads.
    pub fn stop(&self) {
        self.shared.ground.stop();
        for handle in self.handles.lock().drain(..) {
            // A thread that panicked has already stopped the database.
            drop(handle.join());
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}
