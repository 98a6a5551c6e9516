//! Threads for the cryptography of handshakes, so that the event loop need not do it.
//!
//! Each handshake costs the server a private-key operation: about 1 ms with RSA of 2048 bits, and about 4 ms with 4096.
//! The loop reads the client's bytes, hands the session to the threads as a [`Step`], and collects the finished step.
//! While the threads have a session, its connection does nothing. The threads have a lower priority than the loop, so
//! connected clients come first.

use crate::pubsub::Seat;
use rustls::ServerConnection;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The maximum number of threads.
const THREADS_MAX: usize = 4;
/// The difference between the threads' `nice` value and the loop's.
const NICER: i32 = 10;

/// A session with bytes to be processed, and its connection.
#[derive(Debug)]
pub(crate) struct Step {
    /// The client of the session.
    pub seat: Seat,
    /// The session, with the bytes that were read.
    pub session: Box<ServerConnection>,
    /// The error in the bytes. `None`: they have no error.
    pub failed: Option<rustls::Error>,
}

impl Step {
    /// Processes the bytes.
    pub(crate) fn run(&mut self) {
        self.failed = self.session.process_new_packets().err();
    }
}

/// The queues that the loop and the threads share.
#[derive(Debug, Default)]
struct Shared {
    queues: Mutex<Queues>,
    /// The signal for a waiting step or for the end of the pool.
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queues {
    waiting: VecDeque<Step>,
    done: VecDeque<Step>,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        // No thread panics while it holds the lock, so the queues are whole.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads. They end when the pool is dropped.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    wake: Arc<dyn Fn() + Send + Sync>,
    wanted: usize,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Returns a pool without threads yet. A thread calls `wake` when a step is done and no other step waits to
    /// be collected. There will be half as many threads as cores, at least one and at most [`THREADS_MAX`].
    pub(crate) fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Pool {
            shared: Arc::default(),
            wake,
            wanted: (cores / 2).clamp(1, THREADS_MAX),
            threads: Vec::new(),
        }
    }

    /// Starts the threads, unless they run.
    ///
    /// # Errors
    /// The system's error, if no thread was started at all.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        while self.threads.len() < self.wanted {
            let (shared, wake) = (Arc::clone(&self.shared), Arc::clone(&self.wake));
            let thread = thread::Builder::new().name(String::from("handshakes"));
            match thread.spawn(move || work(&shared, wake.as_ref())) {
                Ok(thread) => self.threads.push(thread),
                Err(error) if self.threads.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Hands a step to the threads.
    pub(crate) fn submit(&self, step: Step) {
        self.shared.lock().waiting.push_back(step);
        self.shared.arrived.notify_one();
    }

    /// Returns the next step that is done.
    pub(crate) fn collect(&self) -> Option<Step> {
        self.shared.lock().done.pop_front()
    }

    /// Prevents the start of threads, so that a test can run the steps with [`Pool::take_one`].
    #[cfg(test)]
    pub(crate) fn by_hand(&mut self) {
        self.wanted = 0;
    }

    /// Returns the number of steps that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Runs one waiting step in this thread. Returns `false` if no step waited.
    #[cfg(test)]
    pub(crate) fn take_one(&self) -> bool {
        let Some(step) = self.shared.lock().waiting.pop_front() else {
            return false;
        };
        finish(&self.shared, step);
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // If the thread panicked, one handshake was lost. The loop closes its connection after `HANDSHAKE`.
            drop(thread.join());
        }
    }
}

/// Runs a step. Returns whether it is the only step that waits to be collected.
fn finish(shared: &Shared, mut step: Step) -> bool {
    step.run();
    let mut queues = shared.lock();
    queues.done.push_back(step);
    queues.done.len() == 1
}

fn work(shared: &Shared, wake: &(dyn Fn() + Send + Sync)) {
    crate::cpus::unpin();
    // If the system refuses, the priority stays unchanged.
    let _refused = rustix::process::nice(NICER);
    loop {
        let mut queues = shared.lock();
        let step = loop {
            if queues.ended {
                return;
            }
            if let Some(step) = queues.waiting.pop_front() {
                break step;
            }
            let woken = shared.arrived.wait(queues);
            queues = woken.unwrap_or_else(PoisonError::into_inner);
        };
        drop(queues);
        if finish(shared, step) {
            wake();
        }
    }
}
