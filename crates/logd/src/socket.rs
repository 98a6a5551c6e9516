//! A node's end of a connection: a TCP socket that blocks, perhaps with TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::TcpKeepalive;

use crate::local;

/// The idle time after which the system asks whether the peer is still there, and the pause between its questions.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));
/// The number of unanswered questions after which the peer counts as gone.
const KEEPALIVE_PROBES: u32 = 3;
/// The time that a peer has for reading the last frame.
const LETTING_GO: Duration = Duration::from_millis(250);

/// A socket whose reads may look for a while before they sleep.
#[derive(Debug)]
pub(crate) struct Spinning {
    stream: socket2::Socket,
    spin: Duration,
    /// The time at which all reads must have ended. `None`: no such time is set.
    deadline: Option<Instant>,
}

impl Read for Spinning {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        if !self.spin.is_zero() {
            let begin = Instant::now();
            while begin.elapsed() < self.spin {
                match recv(&self.stream, &mut *buf, RecvFlags::DONTWAIT) {
                    Ok((read, _)) => return Ok(read),
                    Err(rustix::io::Errno::AGAIN) => std::hint::spin_loop(),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.stream.read(buf)
    }
}

impl Write for Spinning {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether the first bytes of a peer are a TLS record: an alert or a handshake. As the length of a first frame
/// these bytes would be too large.
pub(crate) fn is_tls(first: &[u8]) -> bool {
    matches!(first, [21 | 22, 3, 1..=4, ..])
}

/// The place of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Anywhere: it has connected by TCP.
    Afar,
    /// On the node's machine: it has connected by a Unix socket, and takes descriptors.
    Here,
}

/// A node's end of a connection.
#[derive(Debug)]
pub(crate) enum Socket {
    /// TCP, or a Unix socket.
    Plain(Spinning),
    /// TCP whose client speaks TLS.
    Tls(Box<StreamOwned<ServerConnection, Spinning>>),
}

impl Socket {
    /// Prepares a connection that was just accepted. A write that takes longer than `patience` ends it.
    ///
    /// # Errors
    /// Fails with the error of the system or of the session.
    pub(crate) fn new(
        stream: socket2::Socket,
        from: Origin,
        tls: Option<&Arc<ServerConfig>>,
        spin: Duration,
        patience: Duration,
    ) -> io::Result<Socket> {
        stream.set_write_timeout(Some(patience))?;
        if from == Origin::Afar {
            stream.set_tcp_nodelay(true)?;
            let keepalive = TcpKeepalive::new()
                .with_time(KEEPALIVE.0)
                .with_interval(KEEPALIVE.1)
                .with_retries(KEEPALIVE_PROBES);
            stream.set_tcp_keepalive(&keepalive)?;
        }
        let stream = Spinning {
            stream,
            spin,
            deadline: None,
        };
        Ok(match tls {
            None => Socket::Plain(stream),
            Some(config) => {
                let session =
                    ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Socket::Tls(Box::new(StreamOwned::new(session, stream)))
            }
        })
    }

    /// Sets the time at which all reads must have ended, those of a handshake included. A read after it returns `None`.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.spinning().deadline = Some(deadline);
    }

    /// Sets the time that one read may wait for the peer, and clears the deadline.
    pub(crate) fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        let spinning = self.spinning();
        spinning.deadline = None;
        spinning.stream.set_read_timeout(Some(timeout))
    }

    fn spinning(&mut self) -> &mut Spinning {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(stream) => &mut stream.sock,
        }
    }

    /// Reads bytes that have arrived. Returns their number, at least one; 0 at the connection's end; `None` if the time
    /// was over before.
    ///
    /// # Errors
    /// Fails with the connection's error.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match self {
            Socket::Plain(stream) => stream.read(buf),
            Socket::Tls(stream) => stream.read(buf),
        };
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
                // Frames carry their length, so an end without a farewell is as good as one with it.
                ErrorKind::UnexpectedEof => Ok(Some(0)),
                _ => Err(error),
            },
        }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// Fails with the connection's error, or if the peer does not read.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Socket::Plain(stream) => stream.write_all(bytes),
            Socket::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// Like [`write`](Self::write), with a descriptor, over a Unix socket.
    ///
    /// # Errors
    /// Fails with the connection's error, or if the peer does not read.
    pub(crate) fn write_with(&mut self, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
        local::send_with(&self.spinning().stream, bytes, fd)
    }

    /// Says that nothing follows, and waits a moment until the peer has read it. A socket that is closed with unread
    /// bytes discards the bytes sent last.
    pub(crate) fn let_go(&mut self) {
        // The peer may be gone.
        if let Socket::Tls(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let stream = &mut self.spinning().stream;
        let _ = stream.shutdown(Shutdown::Write);
        let begin = Instant::now();
        let mut void = [0; 4096];
        while begin.elapsed() < LETTING_GO {
            let _ = stream.set_read_timeout(Some(LETTING_GO));
            match stream.read(&mut void) {
                Ok(read) if read > 0 => {}
                _ => break,
            }
        }
    }
}
