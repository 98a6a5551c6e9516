//! A test that clients see no effect of looking ahead or of early reads. The same pipelines run in three modes: with
//! neither, with looking ahead, and with both. Each mode has a copy of one database. All modes must lead to the same
//! replies, counters and log.
//!
//! `PERDURA_AHEAD_ROUNDS` sets the number of pipelines.

use crate::connection::early::{EARLY_BYTES, EarlyBuffer, read_group};
use crate::engine::{Db, Options, Ticket};
use crate::net::Stream;
use crate::options::ServerOptions;
use crate::state::{Stage, State};
use crate::testbed::{self, Testbed};
use fastrand::Rng;
use perdura_base::StreamId;
use perdura_device::{Disk, FileDisk};
use perdura_recovery::{read_anchor, verify::log_begin};
use perdura_wal::{Check, Direction, FrameKind, scan_stream};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// The number of clients, which take turns.
const CLIENTS: usize = 3;
/// The number of keys in each of the two databases that the clients use.
const KEYS: u16 = 60;

/// The visible results of a run.
#[derive(PartialEq)]
struct Seen {
    replies: Vec<Vec<u8>>,
    /// The counts of commands, errors, hits and misses.
    counted: [u64; 4],
    /// The payloads of the groups in the log, in the log's order.
    log: Vec<Vec<u8>>,
}

fn options(dir: &Path) -> Options {
    let mut options = Options::new(dir);
    options.partitions = 16;
    options.segment_bytes = 4 << 20;
    options.streams = 1;
    options
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Returns the payloads of the log's groups after `Db::abandon` closed the database.
fn groups(dir: &Path) -> Vec<Vec<u8>> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir).expect("a disk"));
    let anchor = read_anchor(disk.as_ref())
        .expect("read")
        .expect("an anchor");
    let from = log_begin(&anchor)[0];
    let lives = anchor.lives();
    let scan = scan_stream(disk.as_ref(), &lives, StreamId(0), from, Check::All).expect("a scan");
    let mut groups = Vec::new();
    for unit in scan.units(0) {
        let read = scan.read_unit(unit, Direction::Forward, |frame, _| {
            if frame.kind == FrameKind::Group {
                groups.push(frame.payload.to_vec());
            }
            Ok(())
        });
        read.expect("frames");
    }
    groups
}

/// The mode for running the clients' input.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plainly,
    LookingAhead,
    /// The server looks ahead. It also reads the sockets of several clients before it runs the first client's requests.
    ReadingEarly,
}

/// The clients' ends of the sockets, and the buffers into which the server's loop reads.
struct Sockets {
    ends: Vec<UnixStream>,
    buffer: Vec<u8>,
    early: EarlyBuffer,
    rng: Rng,
}

impl Sockets {
    /// Runs the longest prefix of `pieces` that can be read early as one group: at most one piece of each
    /// client. Returns the number of pieces that were run.
    fn run(&mut self, state: &mut State, pieces: &[(usize, Vec<u8>)]) -> usize {
        let mut group: Vec<usize> = Vec::new();
        for (client, piece) in pieces {
            // A heavy connection is not read early: the server reads it when its turn comes.
            let heavy = self.rng.u8(..4) == 0;
            let most = if heavy {
                self.buffer.len()
            } else {
                EARLY_BYTES
            };
            if group.contains(client) || piece.is_empty() || piece.len() >= most {
                break;
            }
            self.ends[*client].write_all(piece).expect("room");
            let mut connection = state.connections.take(*client).expect("a client");
            connection.readable = true;
            connection.heavy = heavy;
            state.connections.put(*client, connection);
            group.push(*client);
        }
        read_group(state, &group, &mut self.early);
        for client in &group {
            let mut connection = state.connections.take(*client).expect("a client");
            if self.rng.u8(..4) == 0 {
                connection.keep_early(state, &self.early);
            }
            while connection.ready(state) {
                let advanced = connection.advance(state, &mut self.buffer, &self.early);
                assert!(advanced.is_ok(), "a client's socket is whole");
            }
            state.connections.put(*client, connection);
        }
        group.len()
    }
}

/// Runs the clients' pieces of input on a server in the mode `way`. Returns the visible results.
fn play(dir: &Path, way: Way, pieces: &[(usize, Vec<u8>)]) -> Seen {
    let options = options(dir);
    let db = Db::open(options.clone()).expect("a database");
    let around = Testbed::new();
    let mut state: State = around.state(ServerOptions::default(), options);
    state.stage = Stage::Ready(db.clone());
    state.looks_ahead = way != Way::Plainly;
    let mut sockets = Sockets {
        ends: Vec::new(),
        buffer: vec![0; 32 * 1024],
        early: EarlyBuffer::new(),
        rng: Rng::with_seed(5),
    };
    for id in 1..=CLIENTS {
        let index = state.connections.reserve();
        let id = u64::try_from(id).expect("a small number");
        let (ours, end) = UnixStream::pair().expect("a pair of sockets");
        ours.set_nonblocking(true).expect("a socket");
        let stream = Stream::Unix(mio::net::UnixStream::from_std(ours));
        let connection = testbed::connection(&state, stream, index, id);
        state.connections.put(index, connection);
        sockets.ends.push(end);
    }
    let mut replies = vec![Vec::new(); CLIENTS];
    let (mut at, mut together) = (0, 0);
    while at < pieces.len() {
        let ran = match way {
            Way::ReadingEarly => sockets.run(&mut state, &pieces[at..]),
            _ => 0,
        };
        if ran == 0 {
            let (client, piece) = &pieces[at];
            let mut connection = state.connections.take(*client).expect("a client");
            connection.take(&mut state, piece);
            state.connections.put(*client, connection);
        }
        together += usize::from(ran > 1);
        at += ran.max(1);
        for (client, replies) in replies.iter_mut().enumerate() {
            let mut connection = state.connections.take(client).expect("a client");
            replies.append(&mut connection.replies.buf);
            connection.replies = crate::replies::Replies::default();
            assert!(connection.open(&state) && !connection.doomed);
            state.connections.put(client, connection);
        }
    }
    assert_eq!(
        together > pieces.len() / 10,
        way == Way::ReadingEarly,
        "{together} groups of {} pieces",
        pieces.len()
    );
    let stats = &state.stats;
    let counted = [stats.commands, stats.errors, stats.hits, stats.misses];
    let epoch = state.newest;
    drop(state);
    db.wait(Ticket { epoch }).expect("it is durable");
    db.abandon();
    Seen {
        replies,
        counted,
        log: groups(dir),
    }
}

fn key(rng: &mut Rng) -> String {
    format!("key:{}", rng.u16(..KEYS))
}

fn value(rng: &mut Rng) -> String {
    let len = match rng.u8(..) {
        0 => rng.usize(..40_000),
        1..8 => rng.usize(..3000),
        _ => rng.usize(..60),
    };
    let letter = char::from(b'a' + rng.u8(..26));
    letter.to_string().repeat(len)
}

/// Commands with effects that depend on neither time nor chance. `K` is a key, `V` a value, `N` a number. The text
/// between brackets is repeated.
const REQUESTS: [&str; 57] = [
    "GET K",
    "GET K",
    "GET K",
    "SET K V",
    "SET K V",
    "SET K V",
    "SETNX K V",
    "GETSET K V",
    "SET K V PXAT 4000000000000",
    "SET K V PXAT 1",
    "PEXPIREAT K 4000000000000",
    "PERSIST K",
    "MGET [K]",
    "MSET [K V]",
    "MSETNX K V K V",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K K",
    "TOUCH K K",
    "APPEND K V",
    "STRLEN K",
    "INCR K",
    "INCRBY K N",
    "GETRANGE K 0 N",
    "COPY K K",
    "RENAME K K",
    "HSET K f V g V",
    "HGETALL K",
    "LPUSH K V",
    "RPOP K",
    "LRANGE K 0 -1",
    "SADD K N N",
    "SREM K N",
    "SINTER K K",
    "SUNIONSTORE K K K",
    "ZADD K N m",
    "ZRANGE K 0 -1",
    "TYPE K",
    "OBJECT IDLETIME K",
    "MULTI",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K K",
    "UNWATCH",
    "SELECT 0",
    "SELECT 1",
    "PING",
    "GET",
    "NOSUCH K",
    "RESET",
    "DBSIZE",
    "SCAN 0",
    "EXPIRETIME K",
];

fn request(rng: &mut Rng) -> Vec<String> {
    let mut text = String::from(REQUESTS[rng.usize(..REQUESTS.len())]);
    if let Some((before, repeated)) = text.trim_end_matches(']').split_once('[') {
        let times = rng.usize(1..50);
        text = format!("{before}{}", vec![repeated; times].join(" "));
    }
    let word = |word: &str| match word {
        "K" => key(rng),
        "V" => value(rng),
        "N" => rng.u8(..20).to_string(),
        _ => String::from(word),
    };
    text.split(' ').map(word).collect()
}

/// Returns a text with several requests. A few requests are inline commands.
fn pipeline(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.usize(1..40) {
        let words = request(rng);
        if rng.u8(..20) == 0 {
            out.extend_from_slice(format!("{}\r\n", words.join(" ")).as_bytes());
            continue;
        }
        out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
    }
    out
}

#[test]
fn random_pipelines_have_equal_replies_and_equal_log_bytes_looking_ahead_and_reading_early_or_not()
{
    let rounds = std::env::var("PERDURA_AHEAD_ROUNDS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(300);
    let mut rng = Rng::with_seed(11);
    let mut pieces = Vec::new();
    for _ in 0..rounds {
        let client = rng.usize(..CLIENTS);
        let mut input = pipeline(&mut rng);
        let cut = rng.usize(..=input.len());
        let rest = input.split_off(cut);
        pieces.push((client, input));
        pieces.push((client, rest));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let names = ["base", "plainly", "ahead", "early"];
    let [base, plainly, ahead, early] = names.map(|name| dir.path().join(name));
    Db::open(options(&base))
        .and_then(Db::close)
        .expect("a database");
    let play = |to: &Path, way| {
        copy(&base, to);
        play(to, way, &pieces)
    };
    let plainly = play(&plainly, Way::Plainly);
    let [commands, errors, hits, misses] = plainly.counted;
    assert!(errors > 0 && hits > rounds && misses > rounds && commands > 10 * rounds);
    assert!(plainly.log.len() > 100, "{} groups", plainly.log.len());
    for (to, way) in [(ahead, Way::LookingAhead), (early, Way::ReadingEarly)] {
        let found = play(&to, way);
        assert_eq!(found.counted, plainly.counted);
        assert!(found.replies == plainly.replies, "replies differ");
        assert!(found.log == plainly.log, "the logs differ");
    }
}
