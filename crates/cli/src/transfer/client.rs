//! A connection that sends requests to a server and receives its replies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::address::{Address, Endpoint};
use super::commands;

/// The longest wait for a server that is loading its data.
const LOADING_MAX: Duration = Duration::from_secs(3600);
/// The longest wait for one reply.
const REPLY_MAX: Duration = Duration::from_secs(300);
/// The deepest allowed nesting of replies. A peer that nests deeper is not a Redis server.
const DEPTH_MAX: u8 = 8;
/// The number of bytes read from the socket at once.
const BUFFER_BYTES: usize = 1 << 18;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status.
    Status(String),
    /// An error.
    Error(String),
    /// A number.
    Number(i64),
    /// A string, or null.
    Bulk(Option<Vec<u8>>),
    /// An array of replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns the first error in the reply, at any depth. `None`: it has no error.
    pub fn error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            Reply::Array(replies) => replies.iter().find_map(Reply::error),
            Reply::Status(_) | Reply::Number(_) | Reply::Bulk(_) => None,
        }
    }

    /// Returns the number. `None`: the reply is not a number.
    pub fn number(&self) -> Option<i64> {
        match self {
            Reply::Number(number) => Some(*number),
            _ => None,
        }
    }
}

trait Socket: Read + Write + Send {}
impl Socket for TcpStream {}
impl Socket for UnixStream {}

/// The sending half of a connection.
pub struct Sender(Box<dyn Socket>);

impl Sender {
    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}

/// The receiving half of a connection.
pub struct Receiver(BufReader<Box<dyn Socket>>);

/// A connection to a server, after the login.
pub struct Connection {
    sender: Sender,
    receiver: Receiver,
}

impl Connection {
    /// Connects and logs in. Waits while the server loads its data.
    pub fn open(address: &Address) -> Result<Connection> {
        let (ours, theirs): (Box<dyn Socket>, Box<dyn Socket>) = match &address.endpoint {
            Endpoint::Tcp(host, port) => {
                let socket = TcpStream::connect((host.as_str(), *port))
                    .with_context(|| format!("connecting to {address}"))?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(REPLY_MAX))?;
                (Box::new(socket.try_clone()?), Box::new(socket))
            }
            Endpoint::Unix(path) => {
                let socket = UnixStream::connect(path)
                    .with_context(|| format!("connecting to {address}"))?;
                socket.set_read_timeout(Some(REPLY_MAX))?;
                (Box::new(socket.try_clone()?), Box::new(socket))
            }
        };
        let mut connection = Connection {
            sender: Sender(ours),
            receiver: Receiver(BufReader::with_capacity(BUFFER_BYTES, theirs)),
        };
        connection.log_in(address)?;
        connection.await_loaded(address)?;
        Ok(connection)
    }

    fn log_in(&mut self, address: &Address) -> Result<()> {
        let Some(password) = &address.password else {
            return Ok(());
        };
        let user = address.user.as_deref().map(str::as_bytes);
        let words: Vec<&[u8]> = [Some(&b"AUTH"[..]), user, Some(password.as_bytes())]
            .into_iter()
            .flatten()
            .collect();
        self.ask(&words)
            .with_context(|| format!("logging in to {address}"))?;
        Ok(())
    }

    fn await_loaded(&mut self, address: &Address) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.send(&[b"PING"])?;
            match self.receive()?.error() {
                None => return Ok(()),
                Some(text) if text.starts_with("LOADING") && begin.elapsed() < LOADING_MAX => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Some(text) => bail!("{address} answered with an error: {text}"),
            }
        }
    }

    /// Sends a request.
    pub fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        commands::put(&mut bytes, words);
        self.send_bytes(&bytes)
    }

    /// Sends requests that are already encoded.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sender.send(bytes)
    }

    /// Receives the next reply.
    pub fn receive(&mut self) -> io::Result<Reply> {
        self.receiver.receive()
    }

    /// Sends a request and receives its reply. An error reply is returned as an error.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Reply> {
        self.send(words)?;
        let reply = self.receive()?;
        if let Some(text) = reply.error() {
            let name = words.first().copied().unwrap_or_default();
            bail!("{}: {text}", name.escape_ascii());
        }
        Ok(reply)
    }

    /// Returns the two halves of the client, so that two threads can use one half each.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

impl Receiver {
    /// Receives the next reply.
    pub fn receive(&mut self) -> io::Result<Reply> {
        self.reply(0)
    }

    fn reply(&mut self, depth: u8) -> io::Result<Reply> {
        debug_assert!(depth <= DEPTH_MAX, "replies nest no deeper than they may");
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "the server sent no reply");
        let mut line = Vec::new();
        let got = self
            .0
            .by_ref()
            .take(1 << 16)
            .read_until(b'\n', &mut line)
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the server has not answered for five minutes",
                ),
                _ => error,
            })?;
        if got == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection",
            ));
        }
        let line = line.strip_suffix(b"\r\n").ok_or_else(bad)?;
        let (kind, rest) = line.split_first().ok_or_else(bad)?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        let number = || {
            let text = std::str::from_utf8(rest).ok();
            text.and_then(|text| text.parse::<i64>().ok())
                .ok_or_else(bad)
        };
        match kind {
            b'+' => Ok(Reply::Status(text())),
            b'-' => Ok(Reply::Error(text())),
            b':' => Ok(Reply::Number(number()?)),
            b'$' => match u64::try_from(number()?) {
                Err(_) => Ok(Reply::Bulk(None)),
                Ok(len) => {
                    let mut body = Vec::new();
                    // Memory is allocated only as bytes arrive, whatever length the peer announces.
                    self.0.by_ref().take(len).read_to_end(&mut body)?;
                    let mut end = [0; 2];
                    self.0.read_exact(&mut end)?;
                    if u64::try_from(body.len()) != Ok(len) || end != *b"\r\n" {
                        return Err(bad());
                    }
                    Ok(Reply::Bulk(Some(body)))
                }
            },
            b'*' if depth < DEPTH_MAX => match u64::try_from(number()?) {
                Err(_) => Ok(Reply::Bulk(None)),
                Ok(len) => (0..len)
                    .map(|_| self.reply(depth + 1))
                    .collect::<io::Result<_>>()
                    .map(Reply::Array),
            },
            _ => Err(bad()),
        }
    }
}
