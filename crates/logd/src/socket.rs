//! A node's end of a connection: a blocking TCP socket, optionally with TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::TcpKeepalive;

use crate::local;

/// The idle time before the system probes the peer, and the time between two probes.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));
/// The number of unanswered probes after which a connection counts as broken.
const KEEPALIVE_PROBES: u32 = 3;
/// The time that a peer gets to read the last frame.
const LETTING_GO: Duration = Duration::from_millis(250);

/// A socket whose reads poll for some time before they sleep.
#[derive(Debug)]
pub(crate) struct Spinning {
    stream: socket2::Socket,
    spin: Duration,
    /// The deadline of all reads. `None`: no deadline is set.
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

/// Returns whether the first bytes from a peer are a TLS record: an alert or a handshake. A frame never begins with
/// such bytes. Decoded as a frame's length, they would give more than the maximum length.
pub(crate) fn is_tls(first: &[u8]) -> bool {
    matches!(first, [21 | 22, 3, 1..=4, ..])
}

/// The place of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Any machine. The client has connected over TCP.
    Afar,
    /// The node's machine. The client has connected over a Unix socket, and can receive descriptors.
    Here,
}

/// A node's end of a connection.
#[derive(Debug)]
pub(crate) enum Socket {
    /// TCP without TLS, or a Unix socket.
    Plain(Spinning),
    /// TCP with TLS.
    Tls(Box<StreamOwned<ServerConnection, Spinning>>),
}

impl Socket {
    /// Prepares a connection that was just accepted. A write fails if it takes longer than `patience`.
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

    /// Sets the deadline of all reads, including the reads of a handshake. A read after the deadline returns `None`.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.spinning().deadline = Some(deadline);
    }

    /// Sets the maximum time of one read, and clears the deadline.
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

    /// Reads bytes that have arrived. Returns their number, or 0 if the connection has ended. Returns `None` if no
    /// byte has arrived in time.
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
                // Frames have a length, so it does not matter whether the peer has announced the end of the TLS
                // session.
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

    /// Like [`write`](Self::write), but over a Unix socket and together with a descriptor.
    ///
    /// # Errors
    /// Fails with the connection's error, or if the peer does not read.
    pub(crate) fn write_with(&mut self, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
        local::send_with(&self.spinning().stream, bytes, fd)
    }

    /// Tells the peer that the connection ends. Then discards the bytes that the peer still sends. Stops when the peer
    /// has closed the connection, or soon after [`LETTING_GO`]. If a socket with unread bytes is closed, the system
    /// discards the bytes that were sent last.
    pub(crate) fn let_go(&mut self) {
        // The peer may be gone, so errors are ignored.
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
