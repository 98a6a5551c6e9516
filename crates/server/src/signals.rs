//! The signals that the server's loop acts on. A handler sets a flag and writes a byte that wakes the loop.

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGXCPU};
use signal_hook::low_level::pipe;
use signal_hook::{SigId, flag};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a process that got a second SIGTERM while it was closing.
const EXIT_IMPATIENT: i32 = 1;

/// The signals of this process that its server acts on.
#[derive(Debug)]
pub(crate) struct Signals {
    woken: UnixStream,
    ends: Arc<AtomicBool>,
    runs_out: Arc<AtomicBool>,
    reloads: Arc<AtomicBool>,
}

/// The requests that signals have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// True if the server must take a checkpoint and end.
    pub ends: bool,
    /// True if the server must reload the certificates.
    pub reloads: bool,
}

impl Signals {
    /// Takes over the signals. A first SIGTERM or SIGINT ends the server cleanly, a second one at once. SIGXCPU
    /// ends it cleanly, however often it comes. SIGHUP reloads the certificates.
    pub(crate) fn take() -> io::Result<Signals> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let taken = Signals {
            woken: UnixStream::from_std(ours),
            ends: Arc::default(),
            runs_out: Arc::default(),
            reloads: Arc::default(),
        };
        let note = |signal, noted: &Arc<AtomicBool>| -> io::Result<SigId> {
            // The flag is set before the loop is woken.
            flag::register(signal, Arc::clone(noted))?;
            pipe::register(signal, theirs.try_clone()?)
        };
        for signal in [SIGTERM, SIGINT] {
            flag::register_conditional_shutdown(signal, EXIT_IMPATIENT, Arc::clone(&taken.ends))?;
            note(signal, &taken.ends)?;
        }
        note(SIGXCPU, &taken.runs_out)?;
        note(SIGHUP, &taken.reloads)?;
        Ok(taken)
    }

    /// Registers the signals with the poller.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.woken, token, Interest::READABLE)
    }

    /// Returns the requests of the signals since the last call.
    pub(crate) fn heed(&mut self) -> Wishes {
        let mut sink = [0; 16];
        // The pipe has one byte for each signal. The flags say which signals they were.
        while matches!(self.woken.read(&mut sink), Ok(1..)) {}
        let ends = self.ends.load(Ordering::SeqCst) || self.runs_out.swap(false, Ordering::SeqCst);
        Wishes {
            ends,
            reloads: self.reloads.swap(false, Ordering::SeqCst),
        }
    }
}
