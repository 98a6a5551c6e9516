//! A fuzz test of the parser, the dispatcher and every command, with a working database. The test sends almost valid
//! requests, split into pieces at random.
//!
//! An input is one to three requests. They are made from the table of commands and from a list of words. Each word has
//! a meaning in some command. Then the test damages the input: bits, digits and line ends change, and pieces vanish or
//! are repeated. One of four clients sends the input in up to three pieces, before or after AUTH. The clients' MULTI
//! blocks, subscriptions and waits overlap. The test fails on a panic, a stopped database, or a reply that a
//! client cannot parse. Some inputs are requests of other protocols with commands in their bodies. A web page can make
//! a browser send these requests. None of these commands may run.
//!
//! A panic prints the seed and the input. `PERDURA_FUZZ_INPUTS` is the number of inputs, and
//! `PERDURA_FUZZ_SEED` the seed. Ten million inputs take minutes:
//!
//! ```text
//! PERDURA_FUZZ_INPUTS=10000000 cargo test -p perdura-server --lib fuzz -- --nocapture
//! ```
//!
//! `PERDURA_FUZZ_ONLY=youngest` runs only the commands for streams, geo data, HyperLogLogs, scripts and tracking.

#[cfg(test)]
mod limited;

use crate::command::steps::Steps;
use crate::command::table;
use crate::command::wait::expire;
use crate::connection::Connection;
use crate::control::Message;
use crate::engine::{Db, Options};
use crate::net::Stream;
use crate::options::ServerOptions;
use crate::state::{Stage, State};
use crate::testbed::{self, Testbed};
use fastrand::Rng;
use std::time::{Duration, Instant};

/// The number of inputs before the test replaces the server. A new server is needed because inputs change
/// settings and users.
const INPUTS_PER_SERVER: u64 = 1000;
/// The number of clients.
const CLIENTS: usize = 4;
/// The number of inputs between two rounds of the loop. In a round, the clock and the durable epoch advance.
const ROUND: u64 = 32;

/// Words with a meaning in some command.
const WORDS: &str = "\
    k k1 k2 k3 x:{t}:1 * ? [a- k* \\ 0 1 2 -1 -2 10 100 16 255 63 64 4294967296 \
    9223372036854775807 -9223372036854775808 9223372036854775808 18446744073709551615 1.5 -0 \
    1e308 1e-320 inf -inf +inf nan 0x10 (1 (inf [a (a + - [ ( $ # a b c value AND OR XOR NOT \
    EX PX EXAT PXAT KEEPTTL NX XX GT LT CH INCR GET PERSIST BY LIMIT ASC DESC ALPHA STORE \
    WITHSCORES WITHVALUES BYSCORE BYLEX REV WEIGHTS AGGREGATE SUM MIN MAX COUNT MATCH TYPE \
    string hash list zset LEFT RIGHT BEFORE AFTER RANK MAXLEN LEN IDX MINMATCHLEN WITHMATCHLEN \
    REPLACE DB ABSTTL IDLETIME FREQ ASYNC SYNC BIT BYTE u8 i64 u64 #1 OVERFLOW WRAP SAT FAIL \
    SET INCRBY ON OFF AUTH SETNAME default alice secret 3 ID ADDR LADDR SKIPME YES NO NORMAL \
    PUBSUB on off nopass >secret <secret ~* %R~k* &* +@all -@all +get -set (+set ~k1) reset resetpass \
    maxmemory timeout notify-keyspace-events KEA slowlog-log-slower-than maxclients w_* w_*->f \
    RESET FILTERBY ACLCAT PATTERN MODULE __keyspace@0__:k \
    FROMMEMBER FROMLONLAT BYRADIUS BYBOX ANY WITHDIST WITHHASH WITHCOORD STOREDIST km 180 -85.05 13.36 \
    GETREG DECODE ENCODING TODENSE HYLL \
    REDIRECT BCAST PREFIX OPTIN OPTOUT NOLOOP \
    STREAMS GROUP CONSUMER > * 1-1 5-* 0-0 1-0 2-18446744073709551615 (1-1 ~ = MINID NOMKSTREAM MKSTREAM NOACK BLOCK \
    IDLE TIME RETRYCOUNT FORCE JUSTID LASTID ENTRIESREAD ENTRIESADDED MAXDELETEDID FULL CREATE SETID g g1 c1 \
    LOAD FLUSH DUMP RESTORE APPEND LIBRARYNAME WITHCODE lib f g_ro";

/// Scripts that run the commands in their arguments, scripts with fixed commands, and scripts that fail.
const SCRIPTS: [&str; 20] = [
    "return 1",
    "return redis.call(ARGV[1], KEYS[1])",
    "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))",
    "return redis.pcall(unpack(ARGV))",
    "return {redis.pcall(unpack(ARGV)), redis.pcall(unpack(ARGV))}",
    "redis.setresp(3) return redis.call(unpack(ARGV))",
    "return {KEYS, ARGV, #KEYS, {map = {a = 1}}, {set = {b = true}}, {double = 1.5}}",
    "return redis.call('XADD', KEYS[1], '*', unpack(ARGV))",
    "return redis.call('XRANGE', KEYS[1], '-', '+')",
    "for i = 1, 20 do redis.call('XADD', KEYS[1], '*', 'i', i) end return redis.call('XLEN', KEYS[1])",
    "redis.call('SET', KEYS[1], ARGV[1]) error(ARGV[1])",
    "redis.call('SET', KEYS[1], 1) return redis.call('LPUSH', KEYS[1], 1)",
    "return cmsgpack.unpack(ARGV[1])",
    "return cjson.decode(ARGV[1])",
    "return {struct.unpack(ARGV[1], ARGV[2])}",
    "return {err = ARGV[1]}",
    "return redis.status_reply(ARGV[1])",
    "return string.rep('x', 2^30)",
    "#!lua flags=no-writes\nreturn redis.call(unpack(ARGV))",
    "return redis.call('PFADD', KEYS[1], unpack(ARGV)) + redis.call('PFCOUNT', KEYS[1])",
];

/// A library of functions.
const LIBRARY: &str = "#!lua name=lib\n\
    redis.register_function('f', function(keys, args) return redis.call(unpack(args)) end) \
    redis.register_function{function_name = 'g_ro', callback = function(keys, args) return redis.call('GET', keys[1]) end, \
    flags = {'no-writes'}}";

/// The prefixes of the command names that `PERDURA_FUZZ_ONLY=youngest` selects.
const YOUNGEST: [&str; 8] = [
    "x", "geo", "pf", "eval", "fcall", "function", "script", "client",
];

struct Fuzz {
    rng: Rng,
    seed: u64,
    number: u64,
    names: Vec<(&'static str, i8, Vec<&'static str>)>,
    words: Vec<&'static str>,
    input: Vec<u8>,
    spare: Vec<Stream>,
    next_id: u64,
    /// The number of pieces of input that were answered, and the number of answers that begin with an error.
    answers: (u64, u64),
}

impl Drop for Fuzz {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "seed {}, input {}: {}",
                self.seed,
                self.number,
                self.input.escape_ascii()
            );
        }
    }
}

impl Fuzz {
    fn new(seed: u64, youngest: bool) -> Self {
        let is_young = |name: &str| YOUNGEST.iter().any(|begin| name.starts_with(begin));
        let mut names: Vec<_> = table::all()
            .filter(|command| !youngest || is_young(command.name))
            .map(|command| {
                let words = command.words.iter().map(|(word, _)| *word).collect();
                (command.name, command.arity, words)
            })
            .collect();
        names.sort_unstable();
        Fuzz {
            rng: Rng::with_seed(seed),
            seed,
            number: 0,
            names,
            words: WORDS.split(' ').chain([""]).collect(),
            input: Vec::new(),
            spare: Vec::new(),
            next_id: 1,
            answers: (0, 0),
        }
    }

    fn word(&mut self) -> Vec<u8> {
        match self.rng.u8(..40) {
            0 => {
                let len = self.rng.usize(..40);
                (0..len).map(|_| self.rng.u8(..)).collect()
            }
            1 => vec![b'v'; self.rng.usize(..3000)],
            2 => self.rng.i64(..).to_string().into_bytes(),
            3 => {
                let at = self.rng.usize(..self.names.len());
                self.names[at].0.as_bytes().to_vec()
            }
            4..16 => format!("k{}", self.rng.u8(..8)).into_bytes(),
            _ => self.words[self.rng.usize(..self.words.len())]
                .as_bytes()
                .to_vec(),
        }
    }

    fn request(&mut self) -> Vec<Vec<u8>> {
        if self.rng.u8(..12) == 0 {
            let often: &[&[&str]] = &[
                &["AUTH", "secret"],
                &["HELLO", "3", "AUTH", "default", "secret"],
                &["MULTI"],
                &["EXEC"],
                &["RESET"],
                &["SUBSCRIBE", "k1", "k2"],
                &["PSUBSCRIBE", "k*"],
            ];
            let chosen = often[self.rng.usize(..often.len())];
            return chosen.iter().map(|word| word.as_bytes().to_vec()).collect();
        }
        if self.rng.u8(..12) == 0 {
            return self.script();
        }
        let at = self.rng.usize(..self.names.len());
        let (name, arity, words) = &self.names[at];
        let mut words_of = vec![name.as_bytes().to_vec()];
        if !words.is_empty() && self.rng.u8(..16) != 0 {
            let word = words[self.rng.usize(..words.len())];
            words_of.push(word.as_bytes().to_vec());
        }
        let least = usize::from(arity.unsigned_abs()).saturating_sub(words_of.len());
        let more = match self.rng.u8(..8) {
            0 => self.rng.usize(..40),
            1..4 => 0,
            _ => self.rng.usize(..6),
        };
        for at in 0..least + more {
            // The first argument is mostly a key; otherwise commands would hardly ever find a key.
            let word = match self.rng.u8(..8) {
                0..6 if at == 0 => format!("k{}", self.rng.u8(..8)).into_bytes(),
                _ => self.word(),
            };
            words_of.push(word);
        }
        words_of
    }

    /// Makes a request that runs a script or a function, with some keys and words.
    fn script(&mut self) -> Vec<Vec<u8>> {
        let (command, what) = match self.rng.u8(..16) {
            0 => {
                return [&b"FUNCTION"[..], b"LOAD", b"REPLACE", LIBRARY.as_bytes()]
                    .map(<[u8]>::to_vec)
                    .to_vec();
            }
            1 => ("FCALL", "f"),
            2 => ("FCALL_RO", "g_ro"),
            3 => ("EVAL_RO", SCRIPTS[self.rng.usize(..SCRIPTS.len())]),
            _ => ("EVAL", SCRIPTS[self.rng.usize(..SCRIPTS.len())]),
        };
        let (keys, args) = (self.rng.usize(..3), self.rng.usize(..5));
        let mut words = vec![
            command.as_bytes().to_vec(),
            what.as_bytes().to_vec(),
            keys.to_string().into_bytes(),
        ];
        words.extend((0..keys).map(|_| format!("k{}", self.rng.u8(..8)).into_bytes()));
        for nth in 0..args {
            words.push(if nth == 0 && self.rng.bool() {
                self.names[self.rng.usize(..self.names.len())]
                    .0
                    .as_bytes()
                    .to_vec()
            } else {
                self.word()
            });
        }
        words
    }

    fn make(&mut self) {
        self.input.clear();
        for _ in 0..=self.rng.u8(..3) {
            let words = self.request();
            if self.rng.u8(..10) == 0 {
                self.input.extend_from_slice(&words.join(&b' '));
                self.input.extend_from_slice(b"\r\n");
                continue;
            }
            let head = format!("*{}\r\n", words.len());
            self.input.extend_from_slice(head.as_bytes());
            for word in words {
                let head = format!("${}\r\n", word.len());
                self.input.extend_from_slice(head.as_bytes());
                self.input.extend_from_slice(&word);
                self.input.extend_from_slice(b"\r\n");
            }
        }
        if self.rng.u8(..4) == 0 {
            for _ in 0..=self.rng.u8(..3) {
                self.damage();
            }
        }
    }

    fn damage(&mut self) {
        let (rng, input) = (&mut self.rng, &mut self.input);
        if input.is_empty() {
            return;
        }
        let at = rng.usize(..input.len());
        let end = (at + 1 + rng.usize(..16)).min(input.len());
        match rng.u8(..8) {
            0 => input[at] ^= 1 << rng.u8(..8),
            1 => input[at] = rng.u8(..),
            2 => {
                input.drain(at..end);
            }
            3 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            4 => input.truncate(at),
            5 => {
                input.splice(at..at, *b"\r\n");
            }
            _ => {
                let digit = input.iter().skip(at).position(u8::is_ascii_digit);
                if let Some(digit) = digit {
                    input[at + digit] = b'0' + rng.u8(..10);
                }
            }
        }
    }

    fn connect(&mut self, state: &mut State, index: usize) {
        let stream = self.spare.pop().unwrap_or_else(testbed::socket);
        let connection = testbed::connection(state, stream, index, self.next_id);
        self.next_id += 1;
        state.connections.put(index, connection);
    }

    fn disconnect(&mut self, state: &mut State, mut connection: Box<Connection>) {
        connection.unaccount(state);
        state.forget(&mut connection.session);
        self.spare.push(connection.stream);
    }

    /// Makes a request of a foreign protocol, with Redis commands in the body. A web page can make a browser send this
    /// request.
    fn make_foreign(&mut self) {
        self.make();
        let requests = std::mem::take(&mut self.input);
        let names = [
            "GET", "POST", "PUT", "OPTIONS", "PRI", "FLUSHALL", "*1", "$1", "x",
        ];
        let method = match self.rng.u8(..4) {
            0 => self.names[self.rng.usize(..self.names.len())].0,
            _ => names[self.rng.usize(..names.len())],
        };
        let target = ["/", "*", "/a?b=c'd'", "http://k:1/", "k:1"][self.rng.usize(..5)];
        let version = ["HTTP/1.1", "HTTP/1.0", "HTTP/2.0"][self.rng.usize(..3)];
        let head = match self.rng.u8(..8) {
            0 => String::from("Host: k\r\n"),
            1 => String::from("*2\r\n$4\r\nPoSt\r\n$1\r\n/\r\n"),
            2 => String::from("POST / \r\n"),
            3 => String::from("\u{16}\u{3}\u{1}\n"),
            4 => String::from("\0\u{1}\0\u{8}\n"),
            _ => format!("{method} {target} {version}\r\nHost: k\r\n\r\n"),
        };
        self.input.extend_from_slice(head.as_bytes());
        self.input.extend_from_slice(&requests);
    }

    /// Sends a request of a foreign protocol on a new connection. Asserts that no command in this request runs.
    fn intrude(&mut self, state: &mut State) {
        self.make_foreign();
        let index = self.rng.usize(..CLIENTS);
        if let Some(connection) = state.connections.take(index) {
            self.disconnect(state, connection);
        }
        self.connect(state, index);
        let Some(mut connection) = state.connections.take(index) else {
            return;
        };
        if self.rng.bool() {
            connection.take(state, b"AUTH secret\r\n");
        }
        let commands = state.stats.commands;
        let cut = self.rng.usize(..=self.input.len());
        connection.take(state, &self.input[..cut]);
        if !connection.doomed && !connection.closing {
            connection.take(state, &self.input[cut..]);
        }
        // While clients are paused, the input is neither parsed nor run.
        let kept_back = connection.postponed;
        assert!(
            connection.doomed || connection.closing || kept_back,
            "it is still open"
        );
        assert_eq!(
            state.stats.commands, commands,
            "a request behind it has run"
        );
        self.disconnect(state, connection);
        self.connect(state, index);
    }

    /// Sends one input to one client.
    fn step(&mut self, state: &mut State) {
        if self.rng.u8(..32) == 0 {
            return self.intrude(state);
        }
        self.make();
        let index = self.rng.usize(..CLIENTS);
        let mut rest = std::mem::take(&mut self.input);
        let pieces = self.rng.usize(..3);
        let mut cuts: Vec<usize> = (0..pieces).map(|_| self.rng.usize(..=rest.len())).collect();
        cuts.sort_unstable();
        cuts.push(rest.len());
        let mut from = 0;
        self.input.clone_from(&rest);
        for cut in cuts {
            let Some(mut connection) = state.connections.take(index) else {
                break;
            };
            if (connection.blocked || connection.postponed) && self.rng.bool() {
                self.disconnect(state, connection);
                self.connect(state, index);
                continue;
            }
            connection.take(state, &rest[from..cut]);
            from = cut;
            if connection.replies.unsent() > 0 {
                let first = connection.replies.buf[0];
                self.answers.0 += 1;
                self.answers.1 += u64::from(first == b'-');
                assert!(
                    b"+-:$*_%~=,#>|(".contains(&first),
                    "a reply begins with {first}"
                );
            }
            if connection.closing || connection.doomed {
                self.disconnect(state, connection);
                self.connect(state, index);
                continue;
            }
            connection.unaccount(state);
            state.connections.put(index, connection);
        }
        rest.clear();
    }
}

/// Waits until no command runs on the thread beside the loop.
fn land(state: &mut State) {
    while state.beside.is_busy() {
        state.land();
        std::thread::yield_now();
    }
}

fn run(seed: u64, inputs: u64, youngest: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(dir.path().join("data"));
    options.partitions = 16;
    options.segment_bytes = 4 << 20;
    options.checkpoint_log_bytes = 64 << 20;
    options.memory_limit = Some(256 << 20);
    options.value_bytes_max = 64 << 10;
    let db = Db::open(options.clone()).expect("a database");
    let around = Testbed::new();
    let mut fuzz = Fuzz::new(seed, youngest);
    let mut slowest = (Duration::ZERO, 0, Vec::new());
    let began = Instant::now();
    while fuzz.number < inputs {
        let server = ServerOptions {
            requirepass: (fuzz.rng.u8(..4) == 0).then(|| String::from("secret")),
            query_bytes_max: 1 << 20,
            reply_bytes_max: 1 << 20,
            ..ServerOptions::default()
        };
        let mut state = around.state(server, options.clone());
        state.stage = Stage::Ready(db.clone());
        state.steps = Steps {
            long: 2,
            elements: 3,
        };
        db.memory().set_limit(256 << 20);
        for _ in 0..CLIENTS {
            let index = state.connections.reserve();
            fuzz.connect(&mut state, index);
        }
        for _ in 0..INPUTS_PER_SERVER.min(inputs - fuzz.number) {
            let since = Instant::now();
            fuzz.step(&mut state);
            let took = since.elapsed();
            if took > slowest.0 {
                slowest = (took, fuzz.number, fuzz.input.clone());
            }
            fuzz.number += 1;
            if fuzz.number.is_multiple_of(ROUND) {
                land(&mut state);
                state.begin_round();
                while !state.jobs.is_empty() {
                    state.step_job();
                }
                expire(&mut state, Instant::now());
                state.touched.clear();
                db.nudge();
                state.tend_passwords(Instant::now());
                while let Ok(message) = around.messages.try_recv() {
                    match message {
                        Message::Proved(proved) => state.proved(&proved),
                        _ => state
                            .common
                            .saves
                            .store(false, std::sync::atomic::Ordering::Release),
                    }
                }
                assert_eq!(db.is_stopped(), None, "the database has stopped");
            }
        }
        land(&mut state);
        for index in 0..CLIENTS {
            if let Some(connection) = state.connections.take(index) {
                fuzz.disconnect(&mut state, connection);
            }
        }
        fuzz.spare.truncate(CLIENTS);
    }
    let seconds = began.elapsed().as_secs_f64();
    eprintln!(
        "{inputs} inputs of seed {seed} in {seconds:.1} s, answered {} times, {} by errors; the \
         slowest, number {}, took {:?}: {}",
        fuzz.answers.0,
        fuzz.answers.1,
        slowest.1,
        slowest.0,
        slowest.2.escape_ascii()
    );
}

#[test]
fn no_input_makes_it_panic() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let inputs = number("PERDURA_FUZZ_INPUTS").unwrap_or(30_000);
    let youngest = std::env::var("PERDURA_FUZZ_ONLY").is_ok_and(|only| only == "youngest");
    run(number("PERDURA_FUZZ_SEED").unwrap_or(1), inputs, youngest);
}
