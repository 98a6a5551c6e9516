//! One client's connection: frames in, replies out, on a thread that blocks.
//!
//! One call reads all bytes that have arrived, and one call sends the replies to them. So a client that sends several
//! frames at once gets their replies at once.
//!
//! # What a client can cost
//! Before its *welcome* a client has [`Limits::greeting`] of time and [`GREETING_BYTES_MAX`] bytes. After it, a frame
//! must be complete [`Limits::frame`] after its first byte. Replies that the client does not read end the connection
//! ([`Limits::write`]). So a connection keeps at most the longest frame and [`REPLY_BYTES_MAX`] of replies.

use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perdura_mirror::{FRAME_BYTES_MAX, Framer, Malformed, Node, Peer};

use crate::socket::{Socket, is_tls};

/// The most bytes that one call reads before the client has proven its identity. Also the longest frame that it may
/// send until then.
const GREETING_BYTES_MAX: usize = 1024;
/// The most bytes that one call reads after the *welcome*.
const READ_BYTES: usize = 256 * 1024;
/// The bytes of replies above which they are sent before the next frame is answered.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// The time that a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The limit from the connection's begin to its *welcome*.
    pub greeting: Duration,
    /// The limit from a frame's first byte to its last one.
    pub frame: Duration,
    /// The limit for reading replies.
    pub write: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            greeting: Duration::from_secs(5),
            frame: Duration::from_secs(30),
            write: Duration::from_secs(30),
        }
    }
}

/// The result of answering the frames that had arrived.
struct Answered {
    frames: usize,
    /// True if the connection ends.
    ends: bool,
}

/// A client's connection.
pub(crate) struct Serving<'a, W: FnOnce()> {
    node: &'a Mutex<Node>,
    socket: Socket,
    limits: Limits,
    peer: Peer,
    framer: Framer,
    /// The function that runs before a client that has proven its identity is welcomed.
    welcomed: Option<W>,
}

impl<'a, W: FnOnce()> Serving<'a, W> {
    /// Returns the connection of a socket that has just been accepted.
    pub(crate) fn new(
        node: &'a Mutex<Node>,
        socket: Socket,
        peer: Peer,
        limits: Limits,
        welcomed: W,
    ) -> Serving<'a, W> {
        Serving {
            node,
            socket,
            limits,
            peer,
            framer: Framer::new(),
            welcomed: Some(welcomed),
        }
    }

    /// Serves the client until it leaves or breaks a rule.
    ///
    /// # Errors
    /// Fails with the reason why the connection ended, unless the client left.
    pub(crate) fn run(mut self) -> Result<()> {
        let deadline = Instant::now() + self.limits.greeting;
        self.socket.set_deadline(deadline);
        while !self.peer.is_welcome() {
            if Instant::now() >= deadline || self.framer.pending() > GREETING_BYTES_MAX {
                let why = "the client did not authenticate in time";
                return Err(Error::new(ErrorKind::TimedOut, why));
            }
            let Some(answered) = self.round(GREETING_BYTES_MAX)? else {
                return Ok(());
            };
            if answered.ends {
                return Ok(());
            }
        }
        self.socket.set_read_timeout(self.limits.frame)?;
        // The time since which the thread has waited for the rest of an incomplete frame.
        let mut half: Option<Instant> = None;
        while let Some(answered) = self.round(READ_BYTES)? {
            if answered.ends {
                break;
            }
            assert!(
                self.framer.pending() < FRAME_BYTES_MAX,
                "an incomplete frame is shorter than the longest one"
            );
            half = match half {
                _ if self.framer.pending() == 0 => None,
                Some(since) if answered.frames == 0 => Some(since),
                _ => Some(Instant::now()),
            };
            if half.is_some_and(|since| since.elapsed() >= self.limits.frame) {
                return Err(Error::new(ErrorKind::TimedOut, "half a frame"));
            }
        }
        Ok(())
    }

    /// Waits a limited time for at most `len` bytes, and answers the frames that they complete. Returns `None` at the
    /// connection's end.
    fn round(&mut self, len: usize) -> Result<Option<Answered>> {
        match self.socket.read(self.framer.room(len))? {
            None => Ok(Some(Answered {
                frames: 0,
                ends: false,
            })),
            Some(0) => Ok(None),
            Some(read) => {
                self.framer.filled(read);
                self.answer().map(Some)
            }
        }
    }

    /// Answers all whole frames that have arrived.
    fn answer(&mut self) -> Result<Answered> {
        let mut replies = Vec::new();
        let (mut frames, mut ends) = (0, false);
        let speaks_tls = !self.peer.is_welcome() && is_tls(self.framer.arrived());
        let why = "TLS, which this address of the node does not accept (--tls-listen)";
        let mut not_ours = speaks_tls.then(|| Malformed(why.to_owned()));
        while !ends {
            let outcome = match not_ours.take().map_or_else(|| self.framer.take(), Err) {
                Ok(None) => break,
                Ok(Some(frame)) => self.node.lock().handle(&mut self.peer, frame),
                Err(malformed) => self.node.lock().refuse_malformed(&self.peer, malformed),
            };
            if self.peer.is_welcome()
                && let Some(welcomed) = self.welcomed.take()
            {
                welcomed();
            }
            (frames, ends) = (frames + 1, outcome.ends);
            if let Some(fd) = outcome.memory.as_ref().and_then(|memory| memory.fd()) {
                self.socket.write(&replies)?;
                replies.clear();
                self.socket.write_with(&outcome.reply, fd)?;
                continue;
            }
            if replies.is_empty() {
                replies = outcome.reply;
            } else {
                replies.extend_from_slice(&outcome.reply);
            }
            if replies.len() >= REPLY_BYTES_MAX {
                self.socket.write(&replies)?;
                replies.clear();
            }
        }
        if !replies.is_empty() {
            self.socket.write(&replies)?;
        }
        if ends {
            self.socket.let_go();
        }
        Ok(Answered { frames, ends })
    }
}
