//! The thread that copies a node's rings to the node's own disk.
//!
//! If the disk fails or is full, the copy ends but the node does not. All files stay as they are.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perdura_base::{Error, Result};
use perdura_device::Disk;
use perdura_mirror::Node;
use perdura_mirror::hard_copy::{Found, HardCopier, HardCopyStats, earlier};

use crate::threads;

/// The time from the start of one step to the start of the next. On a disk that is fast enough, this time plus the
/// duration of a step is below 50 ms.
const EVERY: Duration = Duration::from_millis(25);
/// The maximum number of log lines about files of earlier starts.
const LINES_MAX: usize = 10;

/// The state of a hard copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HardCopyState {
    /// The figures of the hard copy.
    pub stats: HardCopyStats,
    /// The reason why the hard copy has stopped. `None`: it has not stopped.
    pub stopped: Option<String>,
}

impl std::fmt::Display for HardCopyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HardCopyStats {
            files,
            copied_bytes,
            damaged_rings,
        } = &self.stats;
        write!(f, "hard copy of {copied_bytes} bytes, {files} files")?;
        if *damaged_rings > 0 {
            write!(f, ", {damaged_rings} rings damaged in memory")?;
        }
        match &self.stopped {
            None => Ok(()),
            Some(why) => write!(f, ", STOPPED: {why}"),
        }
    }
}

/// A running hard copy and its thread.
pub(crate) struct HardCopy {
    state: Arc<Mutex<HardCopyState>>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl HardCopy {
    /// Locks the directory, and starts to copy in the background.
    ///
    /// # Errors
    /// Fails with the error of the disk. This includes the error if another node has locked the directory.
    pub(crate) fn start(disk: Arc<dyn Disk>, node: Arc<Mutex<Node>>) -> Result<HardCopy> {
        let name = disk.name();
        let (copier, found) = HardCopier::new(Arc::clone(&disk))?;
        say_found(&name, &found);
        node.lock().remember(earlier(disk.as_ref(), &found)?);
        let state = Arc::<Mutex<HardCopyState>>::default();
        let (stop, stopped) = channel();
        let copying = Copying {
            copier,
            node,
            state: Arc::clone(&state),
            name,
        };
        let thread = threads::spawn("logd copy", move || copying.run(&stopped));
        let thread = thread.map_err(|e| Error::io("start", "a thread", e))?;
        Ok(HardCopy {
            state,
            stop,
            thread,
        })
    }

    /// Returns the state of the hard copy.
    pub(crate) fn state(&self) -> HardCopyState {
        self.state.lock().clone()
    }

    /// Copies the present contents of the rings once more, and ends the thread.
    pub(crate) fn stop(self) {
        drop(self.stop);
        self.thread.join().expect("the thread that copies");
    }
}

/// Logs the files that earlier starts of the node have left.
fn say_found(name: &str, found: &[Found]) {
    let bytes: u64 = found.iter().map(|found| found.bytes).sum();
    let count = found.len();
    tracing::info!("Hard copy in {name}: {count} files of earlier lives, {bytes} bytes");
    let troubles = found.iter().filter_map(|found| match &found.ring {
        Err(why) => Some(format!("{}: {why}", found.name)),
        Ok(ring) if ring.torn > 0 => Some(format!(
            "{}: {} bytes after position {} are not part of the copy",
            found.name, ring.torn, ring.end
        )),
        Ok(_) => None,
    });
    troubles
        .take(LINES_MAX)
        .for_each(|line| tracing::warn!("{line}"));
}

/// The state of the thread.
struct Copying {
    copier: HardCopier,
    node: Arc<Mutex<Node>>,
    state: Arc<Mutex<HardCopyState>>,
    name: String,
}

impl Copying {
    fn run(mut self, stopped: &Receiver<()>) {
        loop {
            let begin = Instant::now();
            if !self.step() {
                return;
            }
            let left = EVERY.saturating_sub(begin.elapsed());
            if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                // All clients have gone, so this step copies the last bytes.
                self.step();
                return;
            }
        }
    }

    /// Takes one step of the copy. Returns whether to continue.
    fn step(&mut self) -> bool {
        let (copier, node) = (&mut self.copier, &self.node);
        let done = catch_unwind(AssertUnwindSafe(|| copier.step(node)));
        let why = match done {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it panicked".to_owned()),
        };
        let stats = self.copier.stats();
        let mut state = self.state.lock();
        if stats.damaged_rings > state.stats.damaged_rings {
            tracing::error!(
                "The hard copy in {}: the memory of a ring is damaged. The ring is copied up to \
                 the damage",
                self.name
            );
        }
        state.stats = stats;
        let Some(why) = why else { return true };
        tracing::error!(
            "The hard copy in {} has stopped. The node continues without it: {why}",
            self.name
        );
        state.stopped = Some(why);
        false
    }
}
