//! A small client, and servers that it connects to.

use perdura::{Db, Options, Progress};
use perdura_server::{Server, ServerOptions};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server on a free port over a database in a temporary directory.
pub struct Running {
    pub server: Server,
    pub _dir: TempDir,
}

/// Returns the options of a server on a free port. The variable `PERDURA_TEST_LOOPS` sets the number of its loops.
pub fn local() -> ServerOptions {
    let loops = std::env::var("PERDURA_TEST_LOOPS").ok();
    let loops = loops.map(|loops| loops.parse().expect("a number of loops"));
    ServerOptions {
        loops,
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        ..ServerOptions::default()
    }
}

/// Returns options with small segments and few partitions, so that a test's database is made in milliseconds.
pub fn small(dir: &Path) -> Options {
    let mut options = Options::new(dir);
    options.partitions = 16;
    options.segment_bytes = 1 << 20;
    options.memory_limit = Some(1 << 30);
    options.value_bytes_max = 1 << 20;
    options
}

pub fn start() -> Running {
    start_with(local())
}

pub fn start_with(options: ServerOptions) -> Running {
    let password = options.requirepass.clone();
    let dir = TempDir::new().expect("a directory");
    let server = Server::start(options, small(&dir.path().join("data")));
    let running = Running {
        server: server.expect("a server"),
        _dir: dir,
    };
    if running.server.local_addr().is_some() {
        running.wait_until_loaded(password.as_deref());
    }
    running
}

impl Running {
    pub fn connect(&self) -> Client<TcpStream> {
        let address = self.server.local_addr().expect("a TCP address");
        let stream = TcpStream::connect(address).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client::new(stream)
    }

    /// Returns a client that has sent the request `line` and is now blocked by the server.
    pub fn waiting(&self, line: &str) -> Client<TcpStream> {
        let mut client = self.connect();
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let before = client.figure("blocked_clients");
        client.push(&words);
        self.await_figure("blocked_clients", before + 1);
        client
    }

    /// Waits until the field `name` of INFO has the value `value`. INFO also counts the client that sends it.
    pub fn await_figure(&self, name: &str, value: u64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut client = self.connect();
        while client.figure(name) != value {
            assert!(Instant::now() < deadline, "{name} is not {value}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn wait_until_loaded(&self, password: Option<&str>) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut client = self.connect();
        if let Some(password) = password {
            assert_eq!(client.send(&format!("AUTH {password}")), "+OK");
        }
        while client.send("PING").starts_with("-LOADING") {
            assert!(Instant::now() < deadline, "still loading");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Returns a server that opens its database only after a message arrives at `gate`.
pub fn start_gated(gate: std::sync::mpsc::Receiver<()>, password: Option<&str>) -> Running {
    let dir = TempDir::new().expect("a directory");
    let db = small(&dir.path().join("data"));
    let open = move |progress: Arc<Progress>| {
        gate.recv().expect("a sign");
        Db::open_with_progress(db, progress)
    };
    let options = ServerOptions {
        requirepass: password.map(String::from),
        ..local()
    };
    let server = Server::start_with(options, 1 << 20, open);
    Running {
        server: server.expect("a server"),
        _dir: dir,
    }
}

/// A client that reads replies as text: `+OK`, `-ERR …`, `:1`, `,1.5`, `"bulk"`, `nil`, `[a, b]`, `{k: v}`.
pub struct Client<S> {
    stream: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    pub fn new(stream: S) -> Self {
        Client {
            stream: BufReader::new(stream),
        }
    }

    pub fn socket(&mut self) -> &mut S {
        self.stream.get_mut()
    }

    /// Sends bytes unchanged.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("a write");
    }

    /// Sends words as an array of bulk strings, without waiting.
    pub fn push(&mut self, words: &[&[u8]]) {
        self.write(&encode(words));
    }

    /// Sends words separated by blanks and reads the reply.
    pub fn send(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.call(&words)
    }

    pub fn call(&mut self, words: &[&[u8]]) -> String {
        self.push(words);
        self.read()
    }

    /// Returns a figure of INFO.
    pub fn figure(&mut self, name: &str) -> u64 {
        let info = self.send("INFO");
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        let value = value.and_then(|rest| rest.strip_prefix(':'));
        value.and_then(|text| text.trim().parse().ok()).expect(name)
    }

    /// Sends each line and compares the reply.
    pub fn expect(&mut self, dialog: &[(&str, &str)]) {
        for (line, reply) in dialog {
            assert_eq!(self.send(line), *reply, "reply to {line}");
        }
    }

    /// Reads a bulk reply of any bytes.
    pub fn read_bulk(&mut self) -> Vec<u8> {
        let head = self.line().expect("a reply");
        let len: usize = head[1..].parse().expect("a length");
        let mut bytes = vec![0; len + 2];
        self.stream.read_exact(&mut bytes).expect("a bulk");
        bytes.truncate(len);
        bytes
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            if self.stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    /// Reads the next reply. Returns `closed` at the end.
    pub fn read(&mut self) -> String {
        let Some(line) = self.line() else {
            return String::from("closed");
        };
        let (kind, rest) = line.split_at(1);
        match kind {
            "+" | "-" | ":" | "," => line,
            "_" => String::from("nil"),
            "$" | "=" if rest == "-1" => String::from("nil"),
            "*" if rest == "-1" => String::from("nil array"),
            "$" | "=" => {
                let len: usize = rest.parse().expect("a length");
                let mut bytes = vec![0; len + 2];
                self.stream.read_exact(&mut bytes).expect("a bulk string");
                bytes.truncate(len);
                format!("\"{}\"", String::from_utf8_lossy(&bytes))
            }
            "*" | "~" => {
                let len: usize = rest.parse().expect("a length");
                let items: Vec<String> = (0..len).map(|_| self.read()).collect();
                format!("[{}]", items.join(", "))
            }
            ">" => {
                let len: usize = rest.parse().expect("a length");
                let items: Vec<String> = (0..len).map(|_| self.read()).collect();
                format!(">[{}]", items.join(", "))
            }
            "%" => {
                let len: usize = rest.parse().expect("a length");
                let items: Vec<String> = (0..len)
                    .map(|_| format!("{}: {}", self.read(), self.read()))
                    .collect();
                format!("{{{}}}", items.join(", "))
            }
            _ => panic!("no reply: {line}"),
        }
    }
}

pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
