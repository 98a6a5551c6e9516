//! Helpers that start nodes in this process and connect clients to them.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use perdura_base::{Pos, StreamId, Uuid};
use perdura_logd::{Client, Limits, Logd, LogdOptions, TcpNet};
use perdura_logging::Capture;
use perdura_mirror::{Caller, Generation, Held, Key, Reply, Request, RingState};

pub const UUID: Uuid = Uuid([7; 16]);
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The log of a node.
#[derive(Clone, Default)]
pub struct Said(Capture);

impl Said {
    /// Returns the first line.
    pub fn first(&self) -> String {
        self.0.lines().swap_remove(0)
    }

    /// Waits until a line contains these words.
    pub fn wait_for(&self, words: &str) {
        eventually(words, || {
            self.0.lines().iter().any(|line| line.contains(words))
        });
    }
}

/// Waits until `holds` returns true.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub fn options() -> LogdOptions {
    LogdOptions {
        listen: vec![local()],
        ring_bytes: 8 << 20,
        rings_max: 4,
        ..LogdOptions::default()
    }
}

/// Returns short limits, for tests of clients that are slow on purpose.
pub fn impatient() -> Limits {
    let short = Duration::from_millis(400);
    Limits {
        greeting: short,
        frame: short,
        write: short,
    }
}

pub fn start(options: LogdOptions) -> (Logd, Said) {
    let said = Said::default();
    let logd = said.0.run(|| Logd::start(options));
    (logd.unwrap(), said)
}

pub fn caller(key: Key) -> Caller {
    Caller {
        uuid: UUID,
        generation: Generation(1),
        key,
        ring_bytes_min: 8 << 20,
    }
}

pub fn net() -> TcpNet {
    TcpNet::new(&[], None).unwrap()
}

pub fn address(logd: &Logd) -> String {
    logd.addresses()[0].to_string()
}

pub fn client(logd: &Logd) -> Client {
    Client::connect(&net(), &address(logd), &caller(Key::none()), PATIENCE).unwrap()
}

/// Returns a plain TCP socket connected to the node.
pub fn raw(logd: &Logd) -> TcpStream {
    let socket = TcpStream::connect(logd.addresses()[0]).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub fn open(generation: u64, stream: u8, start: u64) -> Request<'static> {
    Request::Open {
        generation: Generation(generation),
        stream: StreamId(stream),
        start: Pos(start),
    }
}

pub fn append(generation: u64, stream: u8, (pos, low): (u64, u64), bytes: &[u8]) -> Request<'_> {
    Request::Append {
        generation: Generation(generation),
        stream: StreamId(stream),
        pos: Pos(pos),
        low: Pos(low),
        bytes,
        pad: 0,
    }
}

pub fn read(generation: u64, stream: u8, from: u64, len: u32) -> Request<'static> {
    Request::Read {
        generation: Generation(generation),
        stream: StreamId(stream),
        from: Pos(from),
        len,
    }
}

/// Returns the state of the ring in a *held* reply.
pub fn held(frame: &[u8]) -> RingState {
    match Reply::decode(frame).unwrap() {
        Reply::Held(Held { ring, .. }) => ring,
        other => panic!("{other:?}"),
    }
}
