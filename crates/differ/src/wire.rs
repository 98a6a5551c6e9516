//! One connection to a server. Requests are sent as bytes, and replies are read one by one.

use crate::reply::{Body, Reply};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The longest wait for a reply. A later reply counts as missing.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client on a Unix socket.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<UnixStream>,
    /// The connection's CLIENT ID. `None`: the server was not asked yet.
    id: Option<i64>,
}

impl Wire {
    /// Connects to a socket.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn connect(path: &Path) -> Result<Wire> {
        let stream =
            UnixStream::connect(path).with_context(|| format!("connecting {}", path.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Wire {
            stream: BufReader::with_capacity(1 << 16, stream),
            id: None,
        })
    }

    /// Splits the connection in two: one part for a reading thread, and one part for a sending thread.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn split(self) -> Result<(Wire, Wire)> {
        let second = self.stream.get_ref().try_clone()?;
        let writing = Wire {
            stream: BufReader::new(second),
            id: self.id,
        };
        Ok((self, writing))
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes).context("sending")
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// Errors of the socket, the end of the connection, and bytes that are not a reply.
    pub fn read(&mut self) -> Result<Reply> {
        Reply::read(&mut self.stream).context("reading a reply")
    }

    /// Sends a request and reads one reply.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and [`read`](Self::read).
    pub fn call(&mut self, words: &[&str]) -> Result<Reply> {
        let argv: Vec<Vec<u8>> = words.iter().map(|w| w.as_bytes().to_vec()).collect();
        self.send(&encode(&argv))?;
        self.read()
    }

    /// Returns whether a reply has come, without waiting for one.
    ///
    /// # Errors
    /// Errors of the socket. If the server has closed the connection, that counts as a reply.
    pub fn has_something(&mut self) -> Result<bool> {
        if !self.stream.buffer().is_empty() {
            return Ok(true);
        }
        self.stream.get_ref().set_nonblocking(true)?;
        let filled = self.stream.fill_buf().map(|_| ());
        self.stream.get_ref().set_nonblocking(false)?;
        match filled {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e).context("looking for a reply"),
        }
    }

    /// Sends a PING with `token` and returns all replies that come before the PING's. Must not be
    /// called within MULTI.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn drain(&mut self, token: &str) -> Result<Vec<Reply>> {
        self.send(&encode(&[b"PING".to_vec(), token.as_bytes().to_vec()]))?;
        let mut replies = Vec::new();
        loop {
            let reply = self.read()?;
            let ours = match &reply.body {
                Body::Text(text) => reply.kind == b'$' && text == token.as_bytes(),
                Body::Items(items) => items.len() == 2 && items[1].text() == Some(token.as_bytes()),
                Body::Nil => false,
            };
            if ours {
                return Ok(replies);
            }
            replies.push(reply);
        }
    }

    /// Sends QUIT and waits until the server has closed the connection. At that point the server has
    /// removed this client.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn quit(&mut self) -> Result<()> {
        self.send(&encode(&[b"QUIT".to_vec()]))?;
        while self.read().is_ok() {}
        Ok(())
    }

    /// Returns the connection's CLIENT ID if [`id`](Self::id) has been called before.
    ///
    /// # Errors
    /// The id is not known.
    pub fn id_known(&self) -> Result<i64> {
        self.id.context("CLIENT ID was not asked")
    }

    /// Returns the connection's CLIENT ID, and asks the server for it the first time.
    ///
    /// # Errors
    /// Those of [`call`](Self::call), and a reply that is not a number.
    pub fn id(&mut self) -> Result<i64> {
        if let Some(id) = self.id {
            return Ok(id);
        }
        let reply = self.call(&["CLIENT", "ID"])?;
        let Some(id) = reply.int() else {
            bail!("CLIENT ID answers {reply}");
        };
        self.id = Some(id);
        Ok(id)
    }
}

/// Encodes words as an array of bulk strings.
pub fn encode(argv: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", argv.len()).into_bytes();
    for word in argv {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
