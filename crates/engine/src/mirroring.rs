//! The use of an open database's nodes: sending blocks, waiting for replies, and deciding when blocks are copied to
//! disk.
//!
//! While acknowledgements rely on nodes, a thread that waits for an acknowledgement ends the epoch, ships it and
//! collects the replies. A single waiter spins briefly before it sleeps, because being woken takes longer than the
//! nodes need. If several threads wait, none spins. While one epoch is under way to the nodes, new frames gather in the
//! next.
//!
//! The mirror's own thread collects replies for all threads that sleep, maintains connections and changes the view. The
//! flushers copy the shipped blocks to disk. They do so when a caller waits for the disk, or when much data or old data
//! is not on disk. They also do so at a change of view, and when the database is closed. If the view's mode does not
//! rely on nodes, acknowledgements wait for the disk. The flushers then work as without nodes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use perdura_base::{Epoch, Result};
use perdura_mirror::{Managed, Status};
use perdura_wal::Rung;

use crate::delays::Work;
use crate::ground::Ground;
use crate::nodes::NodesInUse;

/// A single waiter spins this long before it sleeps, nanoseconds.
const SPIN_NS: u64 = 60_000;
/// A number of bytes. When this much of the log is not on disk, the copy to disk is due.
const COPY_BYTES: u64 = 1 << 19;
/// An age in nanoseconds. When data of this age is not on disk, the copy to disk is due.
const COPY_AGE_NS: u64 = 10_000_000;
/// The mirror's thread ships at most this many epochs before it checks connections and the view again.
const SHIPS_MAX: usize = 16;
/// The mirror's thread checks at least this often for pings, connections, and an epoch that no caller waits for.
const LOOK_IDLE: Duration = Duration::from_millis(1);
/// An age in nanoseconds. If data of this age is not on disk, epochs are shipped at most once in [`LOOK_IDLE`]. The
/// disk then has time to catch up, so little data would be lost if nodes and machine failed together. If the disk
/// stalls altogether, shipping continues until the *tail*, the log that is not on disk, has its maximum size.
const COPY_LATE_NS: u64 = 35_000_000;
/// If this many bytes are not on disk, the limit of [`COPY_LATE_NS`] applies too. A disk of 45 MB a second writes this
/// many bytes in 35 ms.
const COPY_LATE_BYTES: u64 = 3 << 19;
/// A clean close waits at most this long until the arbiter has stored the last view, nanoseconds.
const STOP_NS: u64 = 5_000_000_000;

/// The nodes of an open database, for use by all threads. A single waiting thread collects the replies by itself. If
/// several threads wait, the mirror's thread collects for them.
pub(crate) struct Mirror {
    ground: Arc<Ground>,
    /// Threads that wait for replies.
    waiters: AtomicUsize,
    /// True while a thread spins and collects replies.
    spins: AtomicBool,
    /// The mirror's thread.
    collector: OnceLock<Thread>,
    /// Changes of view that were not reported yet.
    views: Mutex<Vec<String>>,
}

impl Mirror {
    /// Returns a mirror, before the thread begins.
    pub fn new(ground: &Arc<Ground>) -> Mirror {
        Mirror {
            ground: Arc::clone(ground),
            waiters: AtomicUsize::new(0),
            spins: AtomicBool::new(false),
            collector: OnceLock::new(),
            views: Mutex::default(),
        }
    }

    /// Sets the mirror's thread. Called once.
    pub fn set_collector(&self, thread: Thread) {
        let named = self.collector.set(thread);
        assert!(named.is_ok(), "a database has one mirror");
    }

    fn wake_collector(&self) {
        if let Some(collector) = self.collector.get() {
            collector.unpark();
        }
    }

    /// Returns a line for each change of view since the last call.
    pub fn take_views(&self) -> Vec<String> {
        std::mem::take(&mut self.views.lock())
    }

    /// Ships the appended frames and spins briefly for the replies. Returns whether all appended frames are
    /// acknowledged.
    pub fn ship_here(&self) -> bool {
        let wal = self.ground.core.wal();
        let newest = wal.last_appended();
        debug_assert!(
            newest <= wal.current(),
            "a frame joins the current epoch at the latest"
        );
        if self.is_mirrored() && wal.durable(Rung::Mirror) < newest {
            self.ship();
            return self.spin_for_nodes(newest);
        }
        false
    }

    fn nodes(&self) -> Option<&NodesInUse> {
        self.ground.core.nodes()
    }

    /// Returns whether acknowledgements currently rely on nodes.
    pub fn is_mirrored(&self) -> bool {
        self.nodes().is_some_and(NodesInUse::is_mirrored)
    }

    /// Ships the appended frames and collects replies of nodes. While the copy to disk is late, ships nothing and only
    /// collects. Returns whether more is acknowledged than before.
    pub fn ship(&self) -> bool {
        let Some(nodes) = self.nodes() else {
            return false;
        };
        match self.is_copy_late() {
            true => self.collected(nodes.try_pump(self.ground.now_ns())),
            false => self.ship_now(nodes),
        }
    }

    /// Returns whether the copy is so late that acknowledgements have to slow down.
    fn is_copy_late(&self) -> bool {
        self.is_mirrored()
            && (self.ground.core.wal().waiting_bytes(Rung::Disk) >= COPY_LATE_BYTES
                || self.ground.core.age_ns(Rung::Disk) >= COPY_LATE_NS)
    }

    fn ship_now(&self, nodes: &NodesInUse) -> bool {
        let wal = self.ground.core.wal();
        // An error has stopped the log. Every caller checks for that.
        if wal.durable(Rung::Mirror) < wal.last_appended() && self.ground.core.ship().is_err() {
            self.ground.announce();
            return false;
        }
        self.collected(nodes.pump_soon(self.ground.now_ns()))
    }

    /// Returns whether `pumped`, the result of a pump, says that more is acknowledged. If so, wakes the waiting
    /// threads.
    fn collected(&self, pumped: Option<bool>) -> bool {
        let rose = pumped.unwrap_or(false);
        if rose {
            let wal = self.ground.core.wal();
            assert!(
                wal.durable(Rung::Mirror) < wal.current(),
                "an epoch is acknowledged when it has ended"
            );
            self.ground.announce();
        }
        rose
    }

    /// Returns the number of the current view, and the state of each node. `None`: the database has no nodes.
    pub fn status(&self) -> Option<Status> {
        let nodes = self.nodes()?;
        let status = nodes.status(self.ground.now_ns());
        // While this call had the nodes locked, another thread may have shipped an epoch and not sent its blocks. Send
        // them now.
        if nodes.is_missed() {
            self.collected(nodes.pump_soon(self.ground.now_ns()));
        }
        Some(status)
    }

    /// Sends blocks to a group's only remaining node while the disk still writes these blocks. Does so only if
    /// acknowledgements need the disk. Without this call, the node would reply only after the disk's write has ended.
    pub fn offer_written(&self) {
        let alone = self.nodes().filter(|nodes| !nodes.is_mirrored());
        if alone.and_then(|nodes| nodes.pump_soon(self.ground.now_ns())) == Some(true) {
            self.ground.announce();
        }
    }

    /// Reports to waiting threads and to the mirror that the disk has synced more. The mirror needs this if a group has
    /// one node left: a block is then acknowledged when the node and the disk have it.
    pub fn tell_synced(&self) {
        if let Some(nodes) = self.nodes().filter(|nodes| !nodes.is_mirrored()) {
            nodes.pump(self.ground.now_ns());
        }
        self.ground.announce();
    }

    /// Waits until nodes hold an epoch. Returns early if acknowledgements stop relying on nodes.
    pub fn wait_for_nodes(&self, epoch: Epoch) -> Result<()> {
        let wal = self.ground.core.wal();
        if wal.durable(Rung::Mirror) >= epoch {
            return Ok(());
        }
        let before = self.waiters.fetch_add(1, Ordering::SeqCst);
        let waited = self.wait_among(before, epoch);
        let counted = self.waiters.fetch_sub(1, Ordering::SeqCst);
        assert!(counted > 0, "each thread that waits is counted");
        waited
    }

    /// Waits as `wait_for_nodes` says. The calling thread is already counted in `waiters`. `others` is the number of
    /// threads that were waiting before it.
    fn wait_among(&self, others: usize, epoch: Epoch) -> Result<()> {
        let wal = self.ground.core.wal();
        while wal.durable(Rung::Mirror) < epoch && self.is_mirrored() {
            wal.check()?;
            // If several threads wait while an epoch is under way to the nodes, none ships. The frames of all gather in
            // the next epoch, which the mirror's thread ships.
            let is_under_way = wal.durable(Rung::Mirror).0 + 1 < wal.current().0;
            if others == 0 || !is_under_way {
                self.ship();
            }
            if others == 0 && !self.is_copy_late() && self.spin_for_nodes(epoch) {
                return Ok(());
            }
            if wal.durable(Rung::Mirror) >= epoch {
                break;
            }
            self.wake_collector();
            self.ground
                .wait_until(Rung::Mirror, epoch, || self.is_mirrored())?;
        }
        Ok(())
    }

    /// Collects replies for [`SPIN_NS`] without sleeping, unless a thread already spins. Returns whether the epoch is
    /// acknowledged.
    fn spin_for_nodes(&self, epoch: Epoch) -> bool {
        let wal = self.ground.core.wal();
        let Some(nodes) = self.nodes() else {
            return false;
        };
        if self.spins.swap(true, Ordering::SeqCst) {
            return false;
        }
        let begun_ns = self.ground.now_ns();
        while wal.durable(Rung::Mirror) < epoch {
            // The next epoch can be shipped once the nodes have acknowledged this one.
            if self.collected(nodes.try_pump(self.ground.now_ns()))
                && wal.durable(Rung::Mirror) < epoch
            {
                self.ship();
            }
            if self.ground.now_ns() > begun_ns + SPIN_NS {
                break;
            }
            // A node on this machine may wait for this CPU core.
            std::thread::yield_now();
        }
        self.spins.store(false, Ordering::SeqCst);
        if wal.durable(Rung::Mirror) < wal.last_appended() {
            // Other threads may have begun to wait meanwhile. Ship for them, because the mirror's thread may be asleep
            // until a node sends something.
            self.ship();
            self.wake_collector();
        }
        wal.durable(Rung::Mirror) >= epoch
    }

    /// Returns whether a flusher has to copy the shipped blocks to disk now. Always true while acknowledgements wait
    /// for the disk.
    pub fn copy_is_due(&self) -> bool {
        let Some(nodes) = self.nodes().filter(|nodes| nodes.is_mirrored()) else {
            return true;
        };
        let wal = self.ground.core.wal();
        if nodes.take_copy_wish() {
            self.ground.wishes.note_wanted();
        }
        self.ground.wishes.is_wanted()
            || wal.waiting_bytes(Rung::Disk) >= COPY_BYTES
            || self.ground.core.age_ns(Rung::Disk) >= COPY_AGE_NS
            || self.ground.is_stopping()
    }

    /// Runs the mirror's thread.
    pub fn run(&self) {
        let Some(nodes) = self.nodes() else {
            return;
        };
        let wal = self.ground.core.wal();
        while !self.ground.is_stopping() {
            if wal.failure().is_some() {
                self.ground.announce();
                return;
            }
            let was_mirrored = nodes.is_mirrored();
            match nodes.manage(self.ground.now_ns()) {
                Ok(Managed::Step) => self.ground.delays.done(Work::View),
                Ok(Managed::Idle | Managed::Stopped) => {}
                Err(_) if wal.failure().is_some() => continue,
                Err(error) => {
                    self.ground
                        .delays
                        .failed(Work::View, &error, self.ground.now_ns());
                }
            }
            if was_mirrored != nodes.is_mirrored() {
                self.ground.wishes.nudge();
            }
            self.tell_views(nodes);
            if self.is_copy_late() {
                self.ship_now(nodes);
                std::thread::sleep(LOOK_IDLE);
                continue;
            }
            // The next epoch can be shipped once the nodes have acknowledged this one.
            let _more_was = (0..SHIPS_MAX).take_while(|_| self.ship()).count();
            let is_awaited = wal.durable(Rung::Mirror) < wal.last_appended();
            match is_awaited && !self.spins.load(Ordering::SeqCst) {
                true => nodes.wait(LOOK_IDLE),
                false => std::thread::park_timeout(LOOK_IDLE),
            }
        }
    }

    fn tell_views(&self, nodes: &NodesInUse) {
        let mut lines = nodes.take_events();
        debug_assert!(
            lines.iter().all(|line| !line.is_empty()),
            "a change has a text"
        );
        if !lines.is_empty() {
            self.views.lock().append(&mut lines);
        }
    }

    /// Ends the mirror, after all data is on disk and the threads have ended. View and anchor then say that the disks
    /// have everything. If the arbiter does not answer, view and anchor remain unchanged, and the next open asks the
    /// arbiter.
    pub fn end(&self) -> Result<()> {
        let Some(nodes) = self.nodes() else {
            return Ok(());
        };
        nodes.begin_stop();
        let begun_ns = self.ground.now_ns();
        assert!(self.ground.is_stopping(), "no thread ships any more");
        while !nodes.has_stopped() {
            self.ground.core.flush_all()?;
            nodes.pump(self.ground.now_ns());
            let managed = nodes.manage(self.ground.now_ns());
            self.tell_views(nodes);
            match managed {
                Ok(Managed::Step | Managed::Stopped) => {}
                Ok(Managed::Idle) => std::thread::sleep(LOOK_IDLE),
                Err(error) if self.ground.core.wal().failure().is_some() => return Err(error),
                Err(_) => std::thread::sleep(LOOK_IDLE),
            }
            if self.ground.now_ns() > begun_ns + STOP_NS {
                return Ok(());
            }
        }
        Ok(())
    }
}
