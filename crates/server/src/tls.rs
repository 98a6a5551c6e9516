//! TLS on the loop's sockets, by `rustls`.
//!
//! A session of `rustls` does no I/O: it decrypts the socket's bytes to text, and encrypts text to bytes. So
//! for the edge-triggered loop a TLS connection is one more kind of stream. Two things differ from a bare
//! socket:
//!
//! * A short read does not mean that the socket is empty: the bytes of one read may decrypt to nothing, or to
//!   less. The loop therefore reads until the session reports that nothing is left.
//! * Text that a write has accepted may still be in the session, encrypted. [`Write::flush`] sends it to the
//!   socket, and returns `WouldBlock` while some is left.
//!
//! # Handshakes
//! The loop only moves the bytes of a handshake. Separate threads process the bytes ([`pool`]):
//! [`TlsStream::take_step`] hands over the session and [`TlsStream::put_back`] returns it. While the threads have the
//! session, a read returns `WouldBlock`.
//!
//! # Limits for clients in a handshake
//! A handshake must end within [`HANDSHAKE`] and within [`HANDSHAKE_BYTES_MAX`] received bytes ([`CERTIFIED_BYTES_MAX`]
//! if clients show certificates). The loop closes a connection that exceeds a limit. The server stores no tickets and
//! no sessions for clients that may connect again. One call reads the socket at most [`READS_MAX`] times, so a client
//! that sends records without text cannot delay the rest.
//!
//! # What is not supported
//! * Resumption of sessions. Clients of a database keep their connections. Any client could fill the memory of a cache
//!   of sessions.
//! * Key files with a password. Make the key file readable by the server alone instead.

pub(crate) mod pool;

use crate::engine::read_input;
use mio::net::TcpStream;
use pool::Step;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The maximum size of a certificate file or a key file, bytes.
const PEM_BYTES_MAX: usize = 16 << 20;
/// The longest time that a handshake may take.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// The maximum number of bytes that a client may send before its handshake is done.
const HANDSHAKE_BYTES_MAX: usize = 16 * 1024;
/// The limit that replaces [`HANDSHAKE_BYTES_MAX`] if clients send a chain of certificates.
const CERTIFIED_BYTES_MAX: usize = 64 * 1024;
/// The maximum size, in bytes, of the text that a session has encrypted but not yet sent.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of reads of the socket in one call.
const READS_MAX: usize = 16;

/// The rule for client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsAuthClients {
    /// The server requests no certificates from clients.
    #[default]
    No,
    /// A client may connect without a certificate. If it shows one, the certificate must be valid.
    Optional,
    /// A client without a certificate is refused.
    Yes,
}

/// The files for TLS, as the settings name them.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    /// The PEM file with the server's certificate and the intermediate certificates up to the root.
    pub cert: Option<PathBuf>,
    /// The PEM file with the private key of the certificate.
    pub key: Option<PathBuf>,
    /// The PEM file with the root certificates. The peer's certificates must come from these roots.
    pub ca_cert: Option<PathBuf>,
    /// The rule for client certificates.
    pub auth_clients: TlsAuthClients,
}

impl TlsFiles {
    /// Returns the configuration for connections of clients.
    ///
    /// # Errors
    /// The mistake in the files, with the file's name.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, String> {
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else {
            let why = "it needs a certificate and its key (tls-cert-file, tls-key-file)";
            return Err(String::from(why));
        };
        let chain = certificates(cert)?;
        let secret = secret(key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if self.auth_clients == TlsAuthClients::No {
            builder.with_no_client_auth()
        } else {
            let Some(path) = &self.ca_cert else {
                let why = "clients' certificates cannot be checked without tls-ca-cert-file";
                return Err(String::from(why));
            };
            let roots = Arc::new(roots(path)?);
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            if self.auth_clients == TlsAuthClients::Optional {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier
                .build()
                .map_err(|error| format!("{}: {error}", path.display()))?;
            builder.with_client_cert_verifier(verifier)
        };
        let mut config = builder
            .with_single_cert(chain, secret)
            .map_err(|error| mismatch(cert, key, &error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Returns the configuration for connections to other servers. The other servers' certificates must come
    /// from the roots in `ca_cert`. If `cert` is set, this side shows that certificate.
    ///
    /// # Errors
    /// The mistake in the files, with the file's name.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let Some(path) = &self.ca_cert else {
            let why = "the other side's certificate cannot be checked without tls-ca-cert-file";
            return Err(String::from(why));
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots(path)?);
        Ok(Arc::new(match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(certificates(cert)?, secret(key)?)
                .map_err(|error| mismatch(cert, key, &error))?,
            _ => builder.with_no_client_auth(),
        }))
    }
}

fn mismatch(cert: &Path, key: &Path, error: &rustls::Error) -> String {
    format!("{} and {}: {error}", cert.display(), key.display())
}

fn secret(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&pem(path)?)
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file of certificates or of a key. The file may be a pipe.
fn pem(path: &Path) -> Result<Vec<u8>, String> {
    read_input(path, PEM_BYTES_MAX).map_err(|error| format!("{}: {error}", path.display()))
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem(path)?).collect();
    let all = all.map_err(|error| format!("{}: {error}", path.display()))?;
    if all.is_empty() {
        return Err(format!("{}: contains no certificate", path.display()));
    }
    Ok(all)
}

/// A connected socket that speaks TLS.
#[derive(Debug)]
pub(crate) struct TlsStream {
    /// The socket.
    pub socket: TcpStream,
    /// The session; `None` while the threads have it.
    session: Option<Box<ServerConnection>>,
    /// True if bytes of the handshake have been read, but the threads have not processed them yet.
    due: bool,
    /// Bytes that the client may still send before the handshake is done.
    handshake_bytes: usize,
    /// True if the last call stopped after [`READS_MAX`] reads of the socket. The socket may have more bytes.
    stopped_early: bool,
}

impl TlsStream {
    /// Returns a session over a socket that has just been accepted.
    pub(crate) fn new(
        socket: TcpStream,
        config: &Arc<ServerConfig>,
        certified: bool,
    ) -> io::Result<Self> {
        let mut session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(BUFFER_BYTES_MAX));
        Ok(TlsStream {
            socket,
            session: Some(Box::new(session)),
            due: false,
            handshake_bytes: if certified {
                CERTIFIED_BYTES_MAX
            } else {
                HANDSHAKE_BYTES_MAX
            },
            stopped_early: false,
        })
    }

    /// Returns whether the handshake is not done yet.
    pub(crate) fn handshaking(&self) -> bool {
        let session = self.session.as_ref();
        session.is_none_or(|session| session.is_handshaking())
    }

    /// Returns the session for the threads, if it has bytes to be processed.
    pub(crate) fn take_step(&mut self) -> Option<Box<ServerConnection>> {
        std::mem::take(&mut self.due).then(|| self.session.take())?
    }

    /// Receives the session from the threads, and sends the answers in the session to the client.
    ///
    /// # Errors
    /// The client broke the protocol, or is gone.
    pub(crate) fn put_back(&mut self, step: Step) -> io::Result<()> {
        debug_assert!(self.session.is_none(), "it was away");
        self.session = Some(step.session);
        let pushed = match self.push() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            pushed => pushed,
        };
        match step.failed {
            Some(error) => Err(io::Error::new(ErrorKind::InvalidData, error)),
            None => pushed,
        }
    }

    /// Returns whether there may be more to read although the last read answered `WouldBlock`.
    pub(crate) fn stopped_early(&self) -> bool {
        self.stopped_early
    }

    /// Returns whether encrypted bytes still wait to be sent.
    pub(crate) fn pending(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.wants_write())
    }

    /// Announces the end of the stream, if the socket has room for that now.
    pub(crate) fn farewell(&mut self) {
        if let Some(session) = self.session.as_mut().filter(|one| !one.is_handshaking()) {
            session.send_close_notify();
            // The peer may be gone.
            let _ = self.push();
        }
    }

    fn push(&mut self) -> io::Result<()> {
        let session = self.session.as_mut().ok_or(ErrorKind::WouldBlock)?;
        while session.wants_write() {
            match session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reads bytes of an established session from the socket. Returns `false` at the end of the stream.
    fn pull(&mut self, session: &mut ServerConnection) -> io::Result<bool> {
        let read = session.read_tls(&mut self.socket)?;
        if let Err(error) = session.process_new_packets() {
            // This sends the alert with the reason. A failure to send it does not matter.
            let _ = session.write_tls(&mut self.socket);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(read > 0)
    }

    fn read_from(&mut self, session: &mut ServerConnection, buf: &mut [u8]) -> io::Result<usize> {
        for _ in 0..READS_MAX {
            match session.reader().read(buf) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // Requests mark their own end, so the end of the stream counts even if the client has not
                // announced it.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            match self.pull(session) {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.stopped_early = true;
        Err(ErrorKind::WouldBlock.into())
    }

    /// Reads bytes of the handshake from the socket for the threads. Returns 0 at the end of the stream, and
    /// `WouldBlock` otherwise, because a handshake yields no text.
    fn pull_handshake(&mut self) -> io::Result<usize> {
        let Some(session) = self.session.as_mut().filter(|_| !self.due) else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let read = session.read_tls(&mut self.socket)?;
        let left = self.handshake_bytes.checked_sub(read);
        self.handshake_bytes = left.ok_or(ErrorKind::InvalidData)?;
        self.due = read > 0;
        match read {
            0 => Ok(0),
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Read for TlsStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stopped_early = false;
        if self.handshaking() {
            return self.pull_handshake();
        }
        let Some(mut session) = self.session.take() else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let read = self.read_from(&mut session, buf);
        self.session = Some(session);
        read
    }
}

impl Write for TlsStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        // Bytes that the session encrypted earlier leave first.
        self.push()?;
        let session = self.session.as_mut().ok_or(ErrorKind::WouldBlock)?;
        let taken = session.writer().write(buf)?;
        match self.push() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}
