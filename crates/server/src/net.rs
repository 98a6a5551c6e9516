//! Sockets: TCP and Unix behind one face.

use crate::options::{ServeError, ServerOptions};
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket, whose file is removed at the end.
    Unix(UnixListener, PathBuf),
}

impl std::fmt::Display for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "{address}"),
                Err(_) => f.write_str("a TCP address"),
            },
            Listener::Unix(_, path) => write!(f, "{}", path.display()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // The file may be gone already; that is what we want.
            let _ = fs::remove_file(path);
        }
    }
}

impl Listener {
    /// Binds everything the options name, or nothing.
    pub(crate) fn bind_all(options: &ServerOptions) -> Result<Vec<Listener>, ServeError> {
        let mut all = Vec::new();
        for address in &options.listen {
            let listener = TcpListener::bind(*address).map_err(|source| ServeError::Bind {
                address: address.to_string(),
                source,
            })?;
            all.push(Listener::Tcp(listener));
        }
        if let Some(path) = &options.unix_socket {
            let address = || path.display().to_string();
            let listener = bind_unix(path).map_err(|source| ServeError::Bind {
                address: address(),
                source,
            })?;
            all.push(Listener::Unix(listener, path.clone()));
        }
        Ok(all)
    }

    /// The TCP address, if it is one.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }

    /// Accepts one connection, if one is waiting, with the names of its two ends.
    pub(crate) fn accept(&self) -> io::Result<(Stream, String, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                let local = stream.local_addr().map_or(String::new(), |a| a.to_string());
                Ok((Stream::Tcp(stream), peer.to_string(), local))
            }
            Listener::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let name = format!("{}:0", path.display());
                Ok((Stream::Unix(stream), name.clone(), name))
            }
        }
    }

    /// Registers with the poller.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => listener.register(registry, token, Interest::READABLE),
            Listener::Unix(listener, _) => listener.register(registry, token, Interest::READABLE),
        }
    }
}

/// A socket file left by a server that died is replaced; one that answers is respected.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            match std::os::unix::net::UnixStream::connect(path) {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path)?;
                    UnixListener::bind(path)?
                }
                _ => return Err(e),
            }
        }
        other => other?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    Ok(listener)
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// Unix.
    Unix(UnixStream),
}

impl Stream {
    /// Registers for both directions, edge-triggered.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => stream.register(registry, token, both),
            Stream::Unix(stream) => stream.register(registry, token, both),
        }
    }

    /// Leaves the poller.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.deregister(registry),
            Stream::Unix(stream) => stream.deregister(registry),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buf),
            Stream::Unix(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buf),
            Stream::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
