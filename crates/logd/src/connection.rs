//! A node's connection to one client: a thread reads frames and sends replies.
//!
//! One system call reads all bytes that have arrived. Another call sends the replies to all frames in these bytes. So a
//! client that sends several frames together gets the replies together.
//!
//! # Limits
//! A client must reach its *welcome* within [`Limits::greeting`], with frames of at most [`GREETING_BYTES_MAX`] bytes.
//! Later frames must be complete within [`Limits::frame`] after their first byte. If a client does not read its replies
//! for [`Limits::write`], the connection ends. So a connection needs memory for at most one frame of the maximum
//! length, and for [`REPLY_BYTES_MAX`] bytes of replies.

use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perdura_mirror::{FRAME_BYTES_MAX, Framer, Malformed, Node, Peer};

use crate::socket::{Socket, is_tls};

/// The maximum number of bytes that one call reads until the client has proven its key. Until then, a longer frame is
/// refused.
const GREETING_BYTES_MAX: usize = 1024;
/// The maximum number of bytes that one call reads after the *welcome*.
const READ_BYTES: usize = 256 * 1024;
/// The maximum number of bytes of replies that wait to be sent. If there are more, they are sent before the next frame
/// is answered.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// The longest times that the node waits for a client.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The time from the beginning of the connection to its *welcome*.
    pub greeting: Duration,
    /// The time from the first byte of a frame to the last one.
    pub frame: Duration,
    /// The time for the client to read the sent replies.
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
    /// True if the connection must end.
    ends: bool,
}

/// A client's connection.
pub(crate) struct Serving<'a, W: FnOnce()> {
    node: &'a Mutex<Node>,
    socket: Socket,
    limits: Limits,
    peer: Peer,
    framer: Framer,
    /// A function to call between the client's proof of the key and the *welcome*.
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

    /// Serves the client until it leaves or violates the protocol or a limit.
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
        // The time since which the thread has waited for the rest of an incomplete frame. `None`: no frame is
        // incomplete.
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

    /// Waits a limited time for at most `len` bytes, and answers the frames that these bytes complete. Returns `None`
    /// when the connection has ended.
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

    /// Answers all complete frames that have arrived.
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
