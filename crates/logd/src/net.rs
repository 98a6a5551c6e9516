//! The network in production: TCP, optionally with TLS, and Unix sockets on the node's machine. No call waits.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perdura_base::{Error, Result};
use perdura_mirror::{Connection, Framer, Identity, Machine, Net, Sent, Shared};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Socket, Type};

use crate::identity;
use crate::local::{self, Stream};
use crate::mapping::Mapping;
use crate::socket::is_tls;

/// The longest time to make a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// The maximum number of bytes that one call reads.
const READ_BYTES: usize = 256 * 1024;

/// A function that loads, from files, the TLS configuration for connections to nodes.
pub type LoadClientTls =
    Arc<dyn Fn() -> std::result::Result<Arc<ClientConfig>, String> + Send + Sync>;

/// Connections to nodes over TCP. They use TLS if the network has a configuration for it.
///
/// An address is `IP:port` or a name with a port. Names are resolved only when the network is made, because resolving
/// waits.
#[derive(Clone)]
pub struct TcpNet {
    tls: Arc<Mutex<Option<Arc<ClientConfig>>>>,
    loader: Option<LoadClientTls>,
    resolved: HashMap<String, SocketAddr>,
    machine: Machine,
    /// The epoll instance that reports arrivals on all connections.
    arrivals: Arc<OwnedFd>,
}

impl TcpNet {
    /// Makes a network for these addresses, each `HOST:port`. Resolves their names now.
    ///
    /// # Errors
    /// Fails with [`Error::Usage`] for a name that has no address.
    pub fn new(addresses: &[String], tls: Option<Arc<ClientConfig>>) -> Result<TcpNet> {
        let resolve = |address: &String| {
            let mut found = address.to_socket_addrs().ok().into_iter().flatten();
            let first = found.next().ok_or_else(|| no_address(address));
            first.map(|first| (address.clone(), first))
        };
        let resolved = addresses.iter().map(resolve).collect::<Result<_>>()?;
        let (machine, _) = identity::machine();
        let arrivals = epoll::create(epoll::CreateFlags::CLOEXEC);
        let arrivals = arrivals.map_err(|e| Error::io("make", "an epoll", e.into()))?;
        Ok(TcpNet {
            tls: Arc::new(Mutex::new(tls)),
            loader: None,
            resolved,
            machine,
            arrivals: Arc::new(arrivals),
        })
    }

    /// Loads the TLS configuration with `loader`, now and at each [`reload`](Net::reload).
    ///
    /// # Errors
    /// Fails with an [`Error::Usage`] that says what is wrong with the files.
    pub fn with_tls_from(self, loader: LoadClientTls) -> Result<TcpNet> {
        let net = TcpNet {
            loader: Some(loader),
            ..self
        };
        net.reload()?;
        Ok(net)
    }

    /// Adds a socket to the epoll instance. From then on the instance reports bytes that arrive on the socket, until
    /// the socket is closed.
    fn watched(&self, socket: Socket) -> io::Result<Socket> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&*self.arrivals, &socket, data, epoll::EventFlags::IN)?;
        Ok(socket)
    }

    /// Returns the socket address of one of the network's addresses. `None`: the network does not have that address.
    pub(crate) fn resolved(&self, address: &str) -> Option<SocketAddr> {
        self.resolved.get(address).copied()
    }

    /// Returns whether an address of the network is a loopback address.
    #[must_use]
    pub fn is_loopback(&self, address: &str) -> bool {
        let known = self.resolved.get(address);
        known.is_some_and(|address| address.ip().is_loopback())
    }
}

fn no_address(address: &str) -> Error {
    Error::Usage(format!(
        "{address} is not a known address of a node. Give HOST:PORT, for example 10.0.0.2:7379"
    ))
}

impl Net for TcpNet {
    fn connect(&self, address: &str) -> Result<Box<dyn Connection>> {
        let known = self.resolved.get(address).copied();
        let to = known.or_else(|| address.parse().ok());
        let to = to.ok_or_else(|| no_address(address))?;
        let tls = self.tls.lock().clone();
        let session = tls.as_ref().map(|config| {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let host = host.trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(host).map_err(|_| no_address(address))?;
            let session = ClientConnection::new(Arc::clone(config), name);
            session.map_err(|e| Error::Usage(format!("TLS to {address}: {e}")))
        });
        let session = session.transpose()?;
        Ok(Box::new(
            match begin(&to).and_then(|socket| self.watched(socket)) {
                Ok(socket) => TcpConnection::new(Ok(Stream::far(socket)), session),
                Err(error) => TcpConnection::new(Err(error.to_string()), session),
            },
        ))
    }

    fn reload(&self) -> Result<bool> {
        let Some(loader) = &self.loader else {
            return Ok(false);
        };
        let config = loader().map_err(Error::Usage)?;
        *self.tls.lock() = Some(config);
        Ok(true)
    }

    fn wait(&self, timeout: Duration) {
        let mut found = [MaybeUninit::uninit(); 1];
        let timeout = Timespec::try_from(timeout).ok();
        // If the wait was interrupted, the caller just checks again.
        let _ = epoll::wait(&*self.arrivals, &mut found[..], timeout.as_ref());
    }

    fn local(&self, node: &Identity) -> Option<Box<dyn Connection>> {
        // All machines whose id is unknown count as one machine, so the node may be on another machine after all. Then
        // its socket's name is not found here.
        if node.machine != self.machine {
            return None;
        }
        let socket = local::connect(node.inc).and_then(|socket| self.watched(socket));
        let socket = socket.ok()?;
        Some(Box::new(TcpConnection::new(
            Ok(Stream::local(socket)),
            None,
        )))
    }
}

/// Begins to connect to an address.
fn begin(to: &SocketAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(*to), kind, None)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&(*to).into()) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            Err(error)
        }
        _ => Ok(socket),
    }
}

/// The layer between the frames and the socket.
enum Way {
    /// No layer. If the socket has accepted only a part of a frame, the buffer has the bytes left to send. The index
    /// is the first byte in the buffer that the socket has not accepted.
    Plain(Vec<u8>, usize),
    /// A TLS session. It keeps the bytes that the socket has not accepted.
    Tls {
        session: Box<ClientConnection>,
        /// True if the session has a frame that waits for the end of the handshake.
        waits: bool,
    },
}

/// A connection to a node.
struct TcpConnection {
    /// The socket, or the reason why the connection is broken.
    stream: std::result::Result<Stream, String>,
    line: Line,
}

impl TcpConnection {
    fn new(
        stream: std::result::Result<Stream, String>,
        session: Option<ClientConnection>,
    ) -> TcpConnection {
        let way = match session {
            None => Way::Plain(Vec::new(), 0),
            Some(mut session) => {
                // No limit is needed, because the session has at most one frame: see `take`.
                session.set_buffer_limit(None);
                Way::Tls {
                    session: Box::new(session),
                    waits: false,
                }
            }
        };
        let line = Line {
            connecting: Some(Instant::now() + CONNECT),
            way,
            framer: Framer::new(),
            has_begun: false,
        };
        TcpConnection { stream, line }
    }

    /// Calls `work` with the socket. After an error the connection is broken for good.
    fn on_socket<T>(
        &mut self,
        work: impl FnOnce(&mut Line, &mut Stream) -> io::Result<T>,
    ) -> std::result::Result<T, String> {
        let stream = match &mut self.stream {
            Ok(stream) => stream,
            Err(why) => return Err(why.clone()),
        };
        let error = match work(&mut self.line, stream) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let why = match error.kind() {
            ErrorKind::UnexpectedEof => "the node closed the connection".to_owned(),
            _ => error.to_string(),
        };
        // The node may have sent frames before the connection broke. Read them before the socket is closed, and
        // ignore errors.
        while self.line.read(stream).is_ok_and(|more| more) {}
        self.stream = Err(why.clone());
        Err(why)
    }
}

/// A connection except for its socket.
struct Line {
    /// The deadline for connecting. `None`: the connection has been made.
    connecting: Option<Instant>,
    way: Way,
    framer: Framer,
    /// True if the first bytes from the node have been checked.
    has_begun: bool,
}

impl Line {
    /// Returns whether the connection has been made.
    fn made(&mut self, stream: &Stream) -> io::Result<bool> {
        let Some(until) = self.connecting else {
            return Ok(true);
        };
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(stream, PollFlags::OUT)];
        if poll(&mut fds, Some(&at_once)).map_err(io::Error::from)? == 0 {
            return match Instant::now() < until {
                true => Ok(false),
                false => Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!("no connection within {} s", CONNECT.as_secs()),
                )),
            };
        }
        match stream.take_error()? {
            Some(error) => Err(error),
            None => {
                self.connecting = None;
                Ok(true)
            }
        }
    }

    /// Sends bytes of frames that [`take`](Self::take) has accepted, until the socket takes no more. Returns whether no
    /// bytes are left.
    fn push(&mut self, stream: &mut Stream) -> io::Result<bool> {
        if !self.made(stream)? {
            return Ok(self.is_empty());
        }
        match &mut self.way {
            Way::Plain(rest, at) => {
                while *at < rest.len() {
                    match write(stream, &rest[*at..], &[])? {
                        0 => return Ok(false),
                        written => *at += written,
                    }
                }
                rest.clear();
                *at = 0;
                Ok(true)
            }
            Way::Tls { session, waits } => {
                while session.wants_write() {
                    match session.write_tls(stream) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Ok(0) => return Err(ErrorKind::WriteZero.into()),
                        written => _ = written?,
                    }
                }
                *waits &= session.is_handshaking();
                Ok(!*waits)
            }
        }
    }

    /// Returns whether all accepted bytes have been sent.
    fn is_empty(&self) -> bool {
        match &self.way {
            Way::Plain(rest, at) => *at == rest.len(),
            Way::Tls { session, waits } => !session.wants_write() && !waits,
        }
    }

    /// Accepts a frame for sending. Accepts either the complete frame or none of it.
    fn take(&mut self, stream: &mut Stream, head: &[u8], tail: &[u8]) -> io::Result<Sent> {
        let made = self.made(stream)?;
        if !self.push(stream)? {
            return Ok(Sent::Full);
        }
        match &mut self.way {
            Way::Plain(rest, at) => {
                assert!(rest.is_empty() && *at == 0, "one frame at a time");
                let written = if made { write(stream, head, tail)? } else { 0 };
                if written == 0 && made {
                    return Ok(Sent::Full);
                }
                let of_tail = written.saturating_sub(head.len());
                rest.extend_from_slice(&head[written.min(head.len())..]);
                rest.extend_from_slice(&tail[of_tail..]);
            }
            Way::Tls { session, waits } => {
                session.writer().write_all(head)?;
                session.writer().write_all(tail)?;
                *waits = session.is_handshaking();
                self.push(stream)?;
            }
        }
        Ok(Sent::Yes)
    }

    /// Sends accepted bytes, and then reads once. Returns whether bytes have arrived.
    fn pull(&mut self, stream: &mut Stream) -> io::Result<bool> {
        self.push(stream)?;
        if self.connecting.is_some() || !self.read(stream)? {
            return Ok(false);
        }
        // If these bytes are part of a handshake, the node may wait for an answer.
        self.push(stream)?;
        Ok(true)
    }

    /// Fails if the first bytes from the node are a TLS record.
    fn check_begin(&mut self) -> io::Result<()> {
        if self.has_begun || self.framer.pending() < 4 {
            return Ok(());
        }
        self.has_begun = true;
        match is_tls(self.framer.arrived()) {
            true => Err(io::Error::new(
                ErrorKind::InvalidData,
                "the node uses TLS at this address, but this side does not. Give the authority \
                 of its certificate (log-tls-ca-cert-file)",
            )),
            false => Ok(()),
        }
    }

    /// Reads once. Returns whether bytes have arrived.
    fn read(&mut self, stream: &mut Stream) -> io::Result<bool> {
        let Way::Tls { session, .. } = &mut self.way else {
            let read = arrived(stream.read(self.framer.room(READ_BYTES)))?;
            self.framer.filled(read);
            return self.check_begin().map(|()| read > 0);
        };
        let is_handshaking = session.is_handshaking();
        if arrived(session.read_tls(stream))? == 0 {
            return Ok(false);
        }
        session.process_new_packets().map_err(|error| {
            // This sends the alert that names the error. The node may be unable to take it, so errors are ignored.
            let _ = session.write_tls(stream);
            io::Error::new(ErrorKind::InvalidData, in_words(is_handshaking, &error))
        })?;
        loop {
            match arrived(session.reader().read(self.framer.room(READ_BYTES)))? {
                0 => return Ok(true),
                read => self.framer.filled(read),
            }
        }
    }
}

/// Returns a description of a TLS error for an operator.
fn in_words(is_handshaking: bool, error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(_) if is_handshaking => {
            format!(
                "the node does not use TLS at this address ({error}). Give the address of its \
                 --tls-listen"
            )
        }
        rustls::Error::InvalidCertificate(_) => {
            format!("the node's certificate is not trusted here: {error}")
        }
        _ => format!("TLS: {error}"),
    }
}

/// Converts the result of a read. Returns 0 if no bytes have arrived, and an error if the connection has ended.
fn arrived(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        other => other,
    }
}

/// Writes once. Returns the number of bytes that the socket took.
fn write(stream: &mut Stream, head: &[u8], tail: &[u8]) -> io::Result<usize> {
    match stream.write_vectored(&[IoSlice::new(head), IoSlice::new(tail)]) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        other => other,
    }
}

impl Connection for TcpConnection {
    fn send(&mut self, head: &[u8], tail: &[u8]) -> std::result::Result<Sent, String> {
        self.on_socket(|line, stream| line.take(stream, head, tail))
    }

    fn receive(&mut self) -> std::result::Result<Option<Vec<u8>>, String> {
        loop {
            // Frames that arrived before the connection broke are still returned.
            match self.line.framer.take() {
                Ok(Some(frame)) => return Ok(Some(frame.to_vec())),
                Ok(None) => {}
                Err(malformed) => self.stream = Err(malformed.to_string()),
            }
            if !self.on_socket(Line::pull)? {
                return Ok(None);
            }
        }
    }

    fn memory(&mut self) -> Option<Arc<dyn Shared>> {
        let passed = self.stream.as_mut().ok()?.take_passed()?;
        let mapping = Mapping::of(passed).ok()?;
        Some(Arc::new(mapping))
    }

    fn stands(&mut self) -> std::result::Result<(), String> {
        self.on_socket(|_, stream| match stream.stands()? {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().ok().map(AsFd::as_fd)
    }

    fn has_unsent(&self) -> bool {
        let waits = match &self.line.way {
            Way::Plain(rest, at) => *at < rest.len(),
            Way::Tls { session, .. } => session.wants_write(),
        };
        waits || self.line.connecting.is_some()
    }
}
