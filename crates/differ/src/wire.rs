//! One connection: requests go out as they are, replies come back one by one.

use crate::reply::{Body, Reply};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A reply that takes longer is missing.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client on a Unix socket.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<UnixStream>,
    /// The connection's CLIENT ID, once asked.
    id: Option<i64>,
}

impl Wire {
    /// Connects.
    ///
    /// # Errors
    /// The socket's.
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

    /// The same connection twice, for a thread that reads and one that sends.
    ///
    /// # Errors
    /// The socket's.
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
    /// The socket's.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes).context("sending")
    }

    /// The next reply.
    ///
    /// # Errors
    /// The socket's, its end, and what is no reply.
    pub fn read(&mut self) -> Result<Reply> {
        Reply::read(&mut self.stream).context("reading a reply")
    }

    /// Asks and reads one reply.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`read`](Self::read).
    pub fn call(&mut self, words: &[&str]) -> Result<Reply> {
        let argv: Vec<Vec<u8>> = words.iter().map(|w| w.as_bytes().to_vec()).collect();
        self.send(&encode(&argv))?;
        self.read()
    }

    /// Whether a reply has come, without waiting for one.
    ///
    /// # Errors
    /// The socket's. Its end counts as something that has come.
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

    /// All replies up to that of a PING of our own, which comes in any mode but MULTI.
    ///
    /// # Errors
    /// As [`read`](Self::read).
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

    /// Says QUIT and waits until the server has closed: what it knew of this client is gone then.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn quit(&mut self) -> Result<()> {
        self.send(&encode(&[b"QUIT".to_vec()]))?;
        while self.read().is_ok() {}
        Ok(())
    }

    /// The connection's CLIENT ID, asked before.
    ///
    /// # Errors
    /// If it was not.
    pub fn id_known(&self) -> Result<i64> {
        self.id.context("CLIENT ID was not asked")
    }

    /// The connection's CLIENT ID.
    ///
    /// # Errors
    /// As [`call`](Self::call), and if the reply is no number.
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

/// Words as an array of bulk strings.
pub fn encode(argv: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", argv.len()).into_bytes();
    for word in argv {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
