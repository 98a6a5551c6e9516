//! TCP, TLS and Unix sockets with one interface.

use crate::options::{ServeError, ServerOptions};
use crate::tls::TlsStream;
use crate::tls::pool::Step;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustls::{ServerConfig, ServerConnection};
use socket2::{Domain, SockAddr, SockRef, TcpKeepalive, Type};
use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The number of unanswered keepalive probes before the system closes a connection.
const PROBES_MAX: u32 = 3;
/// The maximum number of connections that the system queues until they are accepted. The system drops further
/// connections, and their clients try again after a second.
const BACKLOG: i32 = 1024;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// TCP with TLS.
    Tls(TcpListener),
    /// A Unix socket. Its file is removed when the listener is dropped.
    Unix(UnixListener, SocketFile),
}

impl std::fmt::Display for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => {
                match listener.local_addr() {
                    Ok(address) => write!(f, "{address}")?,
                    Err(_) => f.write_str("a TCP address")?,
                }
                f.write_str(if matches!(self, Listener::Tls(_)) {
                    " (TLS)"
                } else {
                    ""
                })
            }
            Listener::Unix(_, file) => write!(f, "{}", file.path.display()),
        }
    }
}

impl Listener {
    /// Binds every address that the options name. If one fails, no address stays bound.
    pub(crate) fn bind_all(options: &ServerOptions) -> Result<Vec<Listener>, ServeError> {
        let mut all = Vec::new();
        let bind = |address: &SocketAddr| {
            let bound = TcpListener::bind(*address).and_then(|listener| {
                SockRef::from(&listener).listen(BACKLOG)?;
                Ok(listener)
            });
            bound.map_err(|source| ServeError::Bind {
                address: address.to_string(),
                source,
            })
        };
        for address in &options.listen {
            all.push(Listener::Tcp(bind(address)?));
        }
        for address in &options.tls_listen {
            all.push(Listener::Tls(bind(address)?));
        }
        if let Some(path) = &options.unix_socket {
            let address = || path.display().to_string();
            let bound = bind_unix(path).map_err(|source| ServeError::Bind {
                address: address(),
                source,
            });
            let (listener, file) = bound?;
            all.push(Listener::Unix(listener, file));
        }
        Ok(all)
    }

    /// Returns the address of a TCP listener without TLS.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Tls(_) | Listener::Unix(..) => None,
        }
    }

    /// Returns the address of a TLS listener.
    pub(crate) fn tls_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tls(listener) => listener.local_addr().ok(),
            Listener::Tcp(_) | Listener::Unix(..) => None,
        }
    }

    /// Accepts a connection, if one is waiting. Returns it with the peer's address and the server's own
    /// address.
    pub(crate) fn accept(
        &self,
        tls: Option<&Arc<ServerConfig>>,
        certified: bool,
    ) -> io::Result<(Stream, String, String)> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                let local = stream.local_addr().map_or(String::new(), |a| a.to_string());
                let stream = match (self, tls) {
                    (Listener::Tls(_), Some(config)) => {
                        Stream::Tls(Box::new(TlsStream::new(stream, config, certified)?))
                    }
                    (Listener::Tls(_), None) => return Err(io::ErrorKind::ConnectionAborted.into()),
                    _ => Stream::Tcp(stream),
                };
                Ok((stream, peer.to_string(), local))
            }
            Listener::Unix(listener, file) => {
                let (stream, _) = listener.accept()?;
                let name = format!("{}:0", file.path.display());
                Ok((Stream::Unix(stream), name.clone(), name))
            }
        }
    }

    /// Registers with the poller.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => {
                listener.register(registry, token, Interest::READABLE)
            }
            Listener::Unix(listener, _) => listener.register(registry, token, Interest::READABLE),
        }
    }
}

/// The file of a Unix socket that this process listens on. Dropping this value removes the file, unless a newer file
/// has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The file's device and inode.
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        // A newer file may have got the same inode number, so the type is checked too.
        let is_ours = |found: &fs::Metadata| {
            found.file_type().is_socket() && (found.dev(), found.ino()) == self.id
        };
        if found.is_ok_and(|found| is_ours(&found)) {
            // It is no error if the file is gone already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds a Unix socket. Replaces the unused socket file of a killed server.
fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let listener = match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            refuse_used(path)?;
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    let found = fs::symlink_metadata(path)?;
    let file = SocketFile {
        path: path.to_path_buf(),
        id: (found.dev(), found.ino()),
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    Ok((listener, file))
}

/// Fails unless the file is an unused socket. The system refuses connections to an unused socket and also to any other
/// kind of file. So the type of the file is checked first.
fn refuse_used(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        let why =
            "a file of this name exists and is not a socket. Move it away, or give another name";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        // Connecting to a listener whose queue is full fails with `WouldBlock`.
        _ => {
            let why = "another process listens on it";
            Err(io::Error::new(io::ErrorKind::AddrInUse, why))
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// TCP that speaks TLS.
    Tls(Box<TlsStream>),
    /// Unix.
    Unix(UnixStream),
}

/// A connection that was accepted.
pub(crate) struct Newcomer {
    /// The socket.
    pub stream: Stream,
    /// The peer's address.
    pub peer: String,
    /// The server's own address.
    pub local: String,
    /// True if the client came through the Unix socket.
    pub unix: bool,
    /// The number of loops that have found no room for the client.
    pub tries: usize,
}

impl Stream {
    /// Registers for reading and writing, edge-triggered.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => stream.register(registry, token, both),
            Stream::Tls(stream) => stream.socket.register(registry, token, both),
            Stream::Unix(stream) => stream.register(registry, token, both),
        }
    }

    /// Makes the system check whether the peer is still there after this many idle seconds; 0: never.
    pub(crate) fn keep_alive(&self, seconds: u32) -> io::Result<()> {
        let socket = match self {
            Stream::Tcp(stream) => SockRef::from(stream),
            Stream::Tls(stream) => SockRef::from(&stream.socket),
            Stream::Unix(_) => return Ok(()),
        };
        if seconds == 0 {
            return socket.set_keepalive(false);
        }
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(seconds.into()))
            .with_interval(Duration::from_secs((seconds / PROBES_MAX).max(1).into()))
            .with_retries(PROBES_MAX);
        socket.set_tcp_keepalive(&keepalive)
    }

    /// Leaves the poller.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.deregister(registry),
            Stream::Tls(stream) => stream.socket.deregister(registry),
            Stream::Unix(stream) => stream.deregister(registry),
        }
    }

    /// Returns whether the peer is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let peer = match self {
            Stream::Tcp(stream) => stream.peer_addr(),
            Stream::Tls(stream) => stream.socket.peer_addr(),
            Stream::Unix(_) => return true,
        };
        peer.is_ok_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// Returns whether a read that has not filled its buffer has emptied the socket.
    pub(crate) fn short_read_empties(&self) -> bool {
        !matches!(self, Stream::Tls(_))
    }

    /// Returns whether there may be more to read although the last read answered `WouldBlock`.
    pub(crate) fn stopped_early(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.stopped_early())
    }

    /// Returns whether bytes that a write has accepted still wait to be sent.
    pub(crate) fn pending(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.pending())
    }

    /// Returns whether the TLS handshake has not ended.
    pub(crate) fn handshaking(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.handshaking())
    }

    /// Returns the TLS session if the client is in its handshake and the handshake threads must process bytes.
    pub(crate) fn take_step(&mut self) -> Option<Box<ServerConnection>> {
        match self {
            Stream::Tls(stream) => stream.take_step(),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        }
    }

    /// Receives a session from the handshake threads.
    ///
    /// # Errors
    /// The client broke the protocol, or is gone.
    pub(crate) fn put_back(&mut self, step: Step) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => stream.put_back(step),
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
        }
    }

    /// Announces the end of the stream, if the protocol has a message for it.
    pub(crate) fn farewell(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.farewell();
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buf),
            Stream::Tls(stream) => stream.read(buf),
            Stream::Unix(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buf),
            Stream::Tls(stream) => stream.write(buf),
            Stream::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => stream.flush(),
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_replaces_only_a_socket_that_no_process_listens_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let refused = |path: &Path| bind_unix(path).expect_err("the name is taken").to_string();
        fs::write(&path, "precious").expect("a file");
        assert!(refused(&path).contains("not a socket"));
        assert_eq!(fs::read(&path).expect("it is there"), b"precious");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(refused(&link).contains("not a socket"));
        assert!(link.is_symlink());
        assert!(refused(dir.path()).contains("not a socket"));

        fs::remove_file(&path).expect("a file");
        let listening = bind_unix(&path).expect("the name is free");
        assert!(refused(&path).contains("another process listens"));
        drop(listening);
        assert!(!path.exists(), "the file goes with its listener");

        drop(std::os::unix::net::UnixListener::bind(&path).expect("the name is free"));
        assert!(path.exists(), "a killed server leaves its file");
        let (listener, file) = bind_unix(&path).expect("a dead socket is replaced");
        drop(listener);
        fs::remove_file(&path).expect("a file");
        fs::write(&path, "another's").expect("a file");
        drop(file);
        assert!(path.exists(), "another file of the same name stays");
    }

    #[test]
    fn a_full_queue_of_a_unix_socket_is_no_dead_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let address = SockAddr::unix(&path).expect("a path");
        let listener = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        listener.bind(&address).expect("the name is free");
        listener.listen(0).expect("a socket");
        let waits: Vec<_> = (0..4)
            .map(|_| {
                let client = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None);
                let client = client.expect("a socket");
                let _full_at_last = client.connect(&address);
                client
            })
            .collect();
        let refused = bind_unix(&path).expect_err("a process listens");
        assert!(
            refused.to_string().contains("another process listens"),
            "{refused}"
        );
        assert_eq!(waits.len(), 4);
    }

    #[test]
    fn a_connection_is_kept_alive_unless_the_setting_says_never() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let stream = Stream::Tcp(TcpStream::connect(address).expect("it listens"));
        let Stream::Tcp(socket) = &stream else { return };
        let socket = SockRef::from(socket);
        assert!(!socket.keepalive().expect("an option"));
        stream.keep_alive(300).expect("a socket");
        assert!(socket.keepalive().expect("an option"));
        let time = socket.tcp_keepalive_time().expect("an option");
        assert_eq!(time, Duration::from_secs(300));
        stream.keep_alive(0).expect("a socket");
        assert!(!socket.keepalive().expect("an option"));
    }
}
