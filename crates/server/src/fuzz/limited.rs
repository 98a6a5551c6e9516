//! Tests access control by its effects: clients of a user who may use only some keys send every kind of
//! request.
//!
//! The user may read and write keys that begin with `a:`, only read keys of `r:`, and only write keys of `w:`. It
//! may access no other keys. The user knows the names of keys that begin with `s:`. The names of keys that begin with
//! `HiddenName` must stay hidden. An administrator fills and changes keys of all types with all these prefixes.
//! Requests are made from templates with any number of options in any order, or at random. They are sent alone,
//! in MULTI blocks and in scripts.
//!
//! The keys that the user may not write must stay unchanged, and no key may be created outside of `a:` and
//! `w:`. No reply, push or invalidation contains a hidden value or name. No command accesses a key that it does
//! not declare.
//!
//! `PERDURA_ACL_COMMANDS` is the number of inputs, and `PERDURA_FUZZ_SEED` the seed:
//!
//! ```text
//! PERDURA_ACL_COMMANDS=1000000 cargo test -p perdura-server --lib limited -- --nocapture
//! ```

use super::{CLIENTS, Fuzz, LIBRARY, land};
use crate::acl::User;
use crate::command::steps::Steps;
use crate::command::wait::expire;
use crate::control::Message;
use crate::engine::{Db, Options, UNDECLARED_KEY};
use crate::options::ServerOptions;
use crate::state::{Stage, State};
use crate::testbed::Testbed;
use perdura_base::flaw::{Flaw, arm};
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Instant;

/// The rules of the user.
const RULES: &str = "on nopass +@all -@admin -@dangerous +sort +sort_ro +restore -dbsize -randomkey \
                     -scan ~a:* %R~r:* %W~w:* &a:*";
/// A word in every value that the user may not read.
const VALUE: &str = "HiddenValue";
/// The prefix of key names that the user must not learn.
const NAME: &str = "HiddenName";
/// The first words of the panic message about a leak.
const MARK: &str = "what the user does not have";
/// The number of inputs between two comparisons of values.
const COMPARED: u64 = 16;
/// The number of newest inputs that a failure shows.
const SHOWN: usize = 48;
/// The number of inputs that one server gets.
const INPUTS_PER_SERVER: u64 = 4000;
/// The index of the administrator's client. The other clients are the user's.
const ROOT: usize = 0;

/// The types: strings, lists, hashes, sets, sorted sets, geo data and streams.
const TYPES: &[u8] = b"slhezgx";

/// Requests that may name several target keys. The command uses only one target. Each `T` becomes a target, or nothing.
const TARGETS: &str = "GEORADIUS K 13.36 38.11 100 km T O T|GEORADIUSBYMEMBER K 1 100 km T T O|SORT K T O T\
    |SORT K O T T|XREADGROUP COUNT 1 GROUP STREAMS STREAMS O STREAMS K K > >";

/// Requests. `K` is a key, `C` the number of keys that follow, `O` an option with its arguments, `N` a number.
const TEMPLATES: &str = "GEORADIUS K 13.36 38.11 100 km O O O|GEORADIUSBYMEMBER K 1 100 km O O O\
    |GEOSEARCHSTORE K K FROMLONLAT 13.36 38.11 BYRADIUS 100 km O|GEOSEARCH K FROMMEMBER 1 BYRADIUS 100 km O O\
    |SORT K O O O O|SORT_RO K O O O|XREAD O O STREAMS K K 0 0|XREADGROUP O GROUP g c O STREAMS K K > >\
    |XREADGROUP COUNT 1 GROUP STREAMS STREAMS O STREAMS K K > >|XREADGROUP GROUP g streams STREAMS K 0\
    |ZUNIONSTORE K C K K O O|ZINTERSTORE K C K K O|ZDIFFSTORE K C K K|ZUNION C K K O|ZINTERCARD C K K LIMIT N\
    |SINTERCARD C K K O|ZMPOP C K K MIN COUNT 2|LMPOP C K K LEFT O|BLMPOP 0.01 C K K LEFT|BZMPOP 0.01 C K K MAX\
    |BLPOP K K 0.01|BZPOPMIN K K 0.01|COPY K K O O|MOVE K N|RENAME K K|RENAMENX K K|BITOP AND K K K|LCS K K O\
    |PFMERGE K K K|PFCOUNT K K|PFADD K 1|MSET K 1 K 2|MSETNX K 1 K 2|MGET K K K|DEL K K|UNLINK K|TOUCH K K\
    |EXISTS K K|SMOVE K K 1|LMOVE K K LEFT RIGHT|BLMOVE K K LEFT RIGHT 0.01|RPOPLPUSH K K|SINTERSTORE K K K\
    |SUNION K K|SDIFFSTORE K K K|ZRANGESTORE K K 0 -1 O|OBJECT ENCODING K|MEMORY USAGE K O|DUMP K|EXPIRE K N\
    |XGROUP CREATE K g2 0 O|XINFO STREAM K FULL|XCLAIM K g c 0 1-1|XAUTOCLAIM K g c 0 0|XRANGE K - +\
    |GETDEL K|GETEX K O|SET K N O|SET K N GET|APPEND K N|WATCH K K|SUBSCRIBE K|PUBLISH K N|SPUBLISH K N\
    |PSUBSCRIBE *|MIGRATE h 1 K 0 10 KEYS K|MIGRATE h 1  0 10 KEYS K|DEBUG OBJECT K|COMMAND GETKEYS SORT K O O\
    |BITFIELD K GET u8 0 O|SETRANGE K N N|INCR K|LPUSH K N|SADD K N|ZADD K N N|HSET K N N|XADD K N-1 f N\
    |GEOADD K 13.36 38.11 N|LRANGE K 0 -1|HGETALL K|SMEMBERS K|ZRANGE K 0 -1 O|GET K|STRLEN K|TYPE K";

/// Options of various commands. A request may get options that its own command does not have.
const OPTIONS: &str = "STORE K|STOREDIST K|STORE STORE|STOREDIST STORE|STORE|COUNT N|COUNT STORE|ANY|WITHDIST|ASC|DESC\
    |ALPHA|BY s:s*|BY nosort|BY s:h*->f|GET s:s*|GET #|GET s:h*->f|LIMIT 0 2|LIMIT STORE K|REPLACE|DB 1|DB 0\
    |BLOCK 1|NOACK|GROUP g c|STREAMS K|WEIGHTS 1 2|AGGREGATE MAX|WITHSCORES|KEYS K|GET|EX 10|KEEPTTL|NX|XX\
    |MKSTREAM|SAMPLES N|REV|BYSCORE|nonsense|K";

/// Requests that change the state for later requests.
const OFTEN: &str = "MULTI|EXEC|EXEC|DISCARD|HELLO 3|HELLO 3|CLIENT TRACKING ON BCAST|CLIENT TRACKING OFF\
    |CLIENT TRACKING ON|CLIENT TRACKING ON BCAST PREFIX s: PREFIX a: PREFIX H|SELECT 0|SELECT 1|RESET\
    |AUTH default x|CLIENT NO-EVICT on|ACL WHOAMI|ACL LIST|PUBSUB CHANNELS|FUNCTION LIST|INFO|CONFIG GET *\
    |MONITOR|SLOWLOG GET|CLIENT LIST|KEYS *|RANDOMKEY|SCAN 0|FLUSHALL|SWAPDB 0 1|UNWATCH|CLIENT REPLY ON";

/// Scripts that run a request.
const SCRIPTS: [&str; 4] = [
    "return redis.pcall(unpack(ARGV))",
    "return redis.call(unpack(ARGV))",
    "redis.setresp(3) return {redis.pcall(unpack(ARGV)), redis.pcall(unpack(ARGV))}",
    "return {redis.acl_check_cmd(unpack(ARGV)), redis.pcall(unpack(ARGV))}",
];

type Words = Vec<Vec<u8>>;

struct Limited {
    fuzz: Fuzz,
    user: Arc<User>,
    root: Arc<User>,
    /// The keys that the user may not write, with the values that the administrator has read last.
    seen: Vec<Vec<u8>>,
    /// The newest inputs.
    recent: VecDeque<Vec<u8>>,
    /// The numbers of replies, of denials among the replies, and of pushes.
    counts: [u64; 3],
}

impl Drop for Limited {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, number {}:", self.fuzz.seed, self.fuzz.number);
            for input in &self.recent {
                eprintln!("{}", input.escape_ascii());
            }
        }
    }
}

fn words(line: &str) -> Words {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

fn encode(words: &Words, to: &mut Vec<u8>) {
    to.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

fn holds(bytes: &[u8], mark: &str) -> bool {
    bytes
        .windows(mark.len())
        .any(|window| window == mark.as_bytes())
}

/// Returns requests that create `key` with a value of the type `kind`.
fn filling(key: &str, kind: u8, values: [&str; 3]) -> Vec<String> {
    let [one, two, three] = values;
    let mut lines = vec![format!("DEL {key}")];
    lines.push(match kind {
        b's' => format!("SET {key} {one}"),
        b'l' => format!("RPUSH {key} {one} {two} {three}"),
        b'h' => format!("HSET {key} f {one} {two} {three}"),
        b'e' => format!("SADD {key} {one} {two} {three}"),
        b'z' => format!("ZADD {key} 1 {one} 2 {two} 3 {three}"),
        b'g' => format!("GEOADD {key} 13.36 38.11 {one} 13.37 38.12 {two} 13.4 38.2 {three}"),
        _ => format!("XADD {key} 1-1 f {one}"),
    });
    if kind == b'x' {
        lines.push(format!("XADD {key} 1-2 f {two}"));
        lines.push(format!("XGROUP CREATE {key} g 0"));
        lines.push(format!("XGROUP CREATE {key} STREAMS 0"));
    }
    lines
}

impl Limited {
    fn new(seed: u64) -> Self {
        let mut user = User::new(b"limited", false);
        let rules = RULES.split(' ').map(str::as_bytes);
        user.apply(rules, false).expect("rules");
        Limited {
            fuzz: Fuzz::new(seed, false),
            user: Arc::new(user),
            root: Arc::new(User::all_powerful(b"root")),
            seen: Vec::new(),
            recent: VecDeque::new(),
            counts: [0; 3],
        }
    }

    fn pick<'a>(&mut self, list: &'a str) -> &'a str {
        let count = list.split('|').count();
        let at = self.fuzz.rng.usize(..count);
        list.split('|').nth(at).unwrap_or_default()
    }

    /// Returns the name of a key of this type. The user knows the name.
    fn key(&mut self, kind: u8) -> Vec<u8> {
        let prefix = match self.fuzz.rng.u8(..20) {
            0..11 => "a",
            11 => "r",
            12 => "w",
            _ => "s",
        };
        let kind = char::from(kind);
        format!("{prefix}:{kind}{}", self.fuzz.rng.u8(..2)).into_bytes()
    }

    /// Appends the words of a template, with its placeholder letters replaced.
    fn expand(&mut self, template: &str, kind: u8, to: &mut Words) {
        for (at, token) in template.split(' ').enumerate() {
            match token {
                "K" => {
                    let kind = match self.fuzz.rng.u8(..8) {
                        0 => TYPES[self.fuzz.rng.usize(..TYPES.len())],
                        _ => kind,
                    };
                    to.push(self.key(kind));
                }
                "C" => {
                    let keys = template.split(' ').skip(at).filter(|word| *word == "K");
                    let count = match self.fuzz.rng.u8(..8) {
                        0 => self.fuzz.rng.usize(..5),
                        _ => keys.count(),
                    };
                    to.push(count.to_string().into_bytes());
                }
                "N" => to.push(self.fuzz.rng.u8(..4).to_string().into_bytes()),
                "T" => {
                    if self.fuzz.rng.u8(..4) > 0 {
                        let target = self.pick("STORE K|STORE K|STOREDIST K");
                        self.expand(target, kind, to);
                    }
                }
                "O" => {
                    if self.fuzz.rng.bool() {
                        let option = self.pick(OPTIONS);
                        self.expand(option, kind, to);
                    }
                }
                word => to.push(word.as_bytes().to_vec()),
            }
        }
    }

    /// Returns a request with a random command of the table. Its arguments are keys of type `kind`, and words with a
    /// meaning in some command.
    fn any(&mut self, kind: u8) -> Words {
        let at = self.fuzz.rng.usize(..self.fuzz.names.len());
        let (name, arity, second) = self.fuzz.names[at].clone();
        let mut request = words(name);
        if !second.is_empty() {
            request.extend(words(second[self.fuzz.rng.usize(..second.len())]));
        }
        let least = usize::from(arity.unsigned_abs()).saturating_sub(request.len());
        for _ in 0..least + self.fuzz.rng.usize(..4) {
            request.push(match self.fuzz.rng.u8(..3) {
                0 => {
                    let count = self.fuzz.words.len();
                    self.fuzz.words[self.fuzz.rng.usize(..count)]
                        .as_bytes()
                        .to_vec()
                }
                _ => self.key(kind),
            });
        }
        request
    }

    fn request(&mut self) -> Words {
        let kind = TYPES[self.fuzz.rng.usize(..TYPES.len())];
        let mut request = Words::new();
        match self.fuzz.rng.u8(..16) {
            0 | 1 => request = words(self.pick(OFTEN)),
            2..5 => request = self.any(kind),
            _ => {
                let list = match self.fuzz.rng.u8(..5) {
                    0 => TARGETS,
                    _ => TEMPLATES,
                };
                let template = self.pick(list);
                // Places are sorted sets. SORT is for lists, sets and sorted sets.
                let kind = match template.as_bytes() {
                    [b'G', b'E', b'O', ..] => b'g',
                    [b'X', ..] => b'x',
                    [b'Z', ..] => b'z',
                    [b'S', b'O', b'R', b'T', ..] => b"lez"[self.fuzz.rng.usize(..3)],
                    _ => kind,
                };
                self.expand(template, kind, &mut request);
            }
        }
        let script = SCRIPTS[self.fuzz.rng.usize(..SCRIPTS.len())]
            .as_bytes()
            .to_vec();
        let head = match self.fuzz.rng.u8(..10) {
            0 | 1 => vec![b"EVAL".to_vec(), script, b"0".to_vec()],
            2 => vec![b"EVAL".to_vec(), script, b"1".to_vec(), self.key(kind)],
            3 => words("FCALL f 0"),
            _ => return request,
        };
        [head, request].concat()
    }

    /// Runs a request of the administrator, and returns the reply.
    fn root(&mut self, state: &mut State, around: &Testbed, line: &str) -> Vec<u8> {
        let mut request = Vec::new();
        encode(&words(line), &mut request);
        let mut reply = Vec::new();
        while reply.is_empty() {
            let mut connection = state.connections.take(ROOT).expect("the administrator");
            connection.session.user = Arc::clone(&self.root);
            connection.session.authenticated = true;
            connection.take(state, &std::mem::take(&mut request));
            reply = std::mem::take(&mut connection.replies).buf;
            connection.account(state);
            state.connections.put(ROOT, connection);
            if reply.is_empty() {
                // The request runs in steps, or waits for the log.
                turn(state, around);
            }
        }
        reply
    }

    /// Creates a key again with new values.
    fn fill(&mut self, state: &mut State, around: &Testbed, (prefix, kind): (&str, u8)) {
        let number = self.fuzz.rng.u8(..100);
        let hidden = [0, 1, 2].map(|nth| format!("{VALUE}{number}.{nth}"));
        let plain = ["0", "1", "2"];
        let values = match prefix {
            "a" | "r" => plain,
            _ => [0, 1, 2].map(|nth| hidden[nth].as_str()),
        };
        for digit in 0..2 {
            let name = char::from(kind);
            for line in filling(&format!("{prefix}:{name}{digit}"), kind, values) {
                let reply = self.root(state, around, &line);
                assert_ne!(reply.first(), Some(&b'-'), "{}", reply.escape_ascii());
            }
        }
    }

    /// Returns the keys that the user may not write, with their values.
    fn hidden(&mut self, state: &mut State, around: &Testbed) -> Vec<Vec<u8>> {
        let mut seen = Vec::new();
        for database in [1, 0] {
            self.root(state, around, &format!("SELECT {database}"));
            let reply = self.root(state, around, "KEYS *");
            let names = reply.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            let outside = |name: &&[u8]| {
                let is_size = matches!(name.first(), None | Some(b'$' | b'*'));
                !is_size && !name.starts_with(b"a:") && !name.starts_with(b"w:")
            };
            let mut names: Vec<Vec<u8>> = names.filter(outside).map(<[u8]>::to_vec).collect();
            names.sort_unstable();
            for name in names {
                let line = format!("DUMP {}", String::from_utf8_lossy(&name));
                let value = self.root(state, around, &line);
                seen.extend([name, value]);
            }
        }
        seen
    }

    /// Lets the administrator give new values to the keys of one random prefix and one random type.
    fn administer(&mut self, state: &mut State, around: &Testbed) {
        let kind = TYPES[self.fuzz.rng.usize(..TYPES.len())];
        let prefix = ["a", "a", "a", "w", "r", "s", NAME][self.fuzz.rng.usize(..7)];
        let is_unfit = matches!(kind, b'x') && matches!(prefix, "r" | "w");
        if is_unfit {
            // In Redis too, XREADGROUP changes a key that the user may only read, and XCLAIM reads a key that
            // the user may only write.
            return;
        }
        // The comparison comes first; otherwise a forbidden change would become part of the expected state.
        self.compare(state, around);
        if self.fuzz.rng.u8(..4) == 0 {
            self.root(state, around, "SELECT 1");
        }
        self.fill(state, around, (prefix, kind));
        self.root(state, around, "SELECT 0");
        self.root(state, around, &format!("PUBLISH {NAME} {VALUE}"));
        self.look(state);
        self.seen = self.hidden(state, around);
    }

    /// Lets a client of the user send a request.
    fn act(&mut self, state: &mut State) {
        let index = 1 + self.fuzz.rng.usize(..CLIENTS - 1);
        let mut input = Vec::new();
        for _ in 0..=self.fuzz.rng.u8(..2) {
            let request = self.request();
            encode(&request, &mut input);
        }
        let Some(mut connection) = state.connections.take(index) else {
            return;
        };
        let stands = connection.blocked || connection.postponed;
        if connection.closing || connection.doomed || (stands && self.fuzz.rng.bool()) {
            self.fuzz.disconnect(state, connection);
            self.fuzz.connect(state, index);
            return;
        }
        connection.session.user = Arc::clone(&self.user);
        connection.session.authenticated = true;
        connection.take(state, &input);
        connection.account(state);
        state.connections.put(index, connection);
        self.recent.push_back(input);
        if self.recent.len() > SHOWN {
            self.recent.pop_front();
        }
        self.look(state);
    }

    /// Checks the replies and pushes of the user's clients for leaks.
    fn look(&mut self, state: &mut State) {
        for index in 1..CLIENTS {
            let Some(mut connection) = state.connections.take(index) else {
                continue;
            };
            let told = std::mem::take(&mut connection.replies).buf;
            connection.account(state);
            state.connections.put(index, connection);
            for mark in [VALUE, NAME, UNDECLARED_KEY] {
                assert!(
                    !holds(&told, mark),
                    "{MARK}: shown in {}",
                    told.escape_ascii()
                );
            }
            self.counts[0] += u64::from(!told.is_empty());
            self.counts[1] += u64::from(holds(&told, "NOPERM") || holds(&told, "can't access"));
            self.counts[2] += u64::from(holds(&told, "invalidate"));
        }
    }

    fn compare(&mut self, state: &mut State, around: &Testbed) {
        let seen = self.hidden(state, around);
        for (before, now) in self.seen.iter().zip(&seen) {
            let [before, now] = [before, now].map(|bytes| bytes.escape_ascii());
            assert_eq!(before.to_string(), now.to_string(), "{MARK}: changed");
        }
        assert_eq!(self.seen.len(), seen.len(), "{MARK}: it has come or gone");
    }
}

/// Does the work that the event loop does between requests.
fn turn(state: &mut State, around: &Testbed) {
    land(state);
    state.begin_round();
    while !state.jobs.is_empty() {
        state.step_job();
    }
    expire(state, Instant::now());
    state.common.tell_prefixes();
    state.read_mail();
    state.touched.clear();
    if let Some(db) = state.db() {
        db.nudge();
    }
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
}

fn run(seed: u64, inputs: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(dir.path().join("data"));
    options.partitions = 16;
    options.segment_bytes = 4 << 20;
    options.checkpoint_log_bytes = 64 << 20;
    options.memory_limit = Some(256 << 20);
    options.value_bytes_max = 64 << 10;
    let db = Db::open(options.clone()).expect("a database");
    let around = Testbed::new();
    let mut limited = Limited::new(seed);
    let began = Instant::now();
    while limited.fuzz.number < inputs {
        let server = ServerOptions {
            notify_keyspace_events: String::from("KEA"),
            reply_bytes_max: 1 << 20,
            ..ServerOptions::default()
        };
        let mut state = around.state(server, options.clone());
        state.stage = Stage::Ready(db.clone());
        state.load_functions().expect("functions");
        state.steps = Steps {
            long: 2,
            elements: 3,
        };
        let off = std::iter::once(&b"off"[..]);
        state.acl.set_user(b"default", off, false).expect("rules");
        for _ in 0..CLIENTS {
            let index = state.connections.reserve();
            limited.fuzz.connect(&mut state, index);
        }
        limited.prepare(&mut state, &around);
        for _ in 0..INPUTS_PER_SERVER.min(inputs - limited.fuzz.number) {
            match limited.fuzz.rng.u8(..20) {
                0 => limited.administer(&mut state, &around),
                _ => limited.act(&mut state),
            }
            limited.fuzz.number += 1;
            if limited.fuzz.number.is_multiple_of(COMPARED) {
                turn(&mut state, &around);
                limited.look(&mut state);
                limited.compare(&mut state, &around);
                assert_eq!(db.is_stopped(), None, "the database has stopped");
            }
        }
        turn(&mut state, &around);
        for index in 0..CLIENTS {
            if let Some(connection) = state.connections.take(index) {
                limited.fuzz.disconnect(&mut state, connection);
            }
        }
        limited.fuzz.spare.truncate(CLIENTS);
    }
    let [replies, denials, invalidations] = limited.counts;
    eprintln!(
        "{inputs} inputs of seed {seed} in {:.1} s: {replies} times answered, {denials} times with a \
         denial, {invalidations} times with an invalidation",
        began.elapsed().as_secs_f64()
    );
    // The test proves something only if some requests are denied and others are not.
    assert!(denials > inputs / 20 && replies > denials + inputs / 20);
    assert!(invalidations > 0);
}

impl Limited {
    /// Fills the databases 0 and 1, and loads the functions.
    fn prepare(&mut self, state: &mut State, around: &Testbed) {
        for database in [1, 0] {
            self.root(state, around, "SELECT 0");
            self.root(state, around, &format!("SELECT {database}"));
            self.root(state, around, "FLUSHDB");
            for kind in TYPES {
                for prefix in ["a", "r", "w", "s", NAME] {
                    if *kind != b'x' || !matches!(prefix, "r" | "w") {
                        self.fill(state, around, (prefix, *kind));
                    }
                }
            }
        }
        let load = ["FUNCTION", "LOAD", "REPLACE", LIBRARY];
        let mut request = Vec::new();
        encode(
            &load.map(|word| word.as_bytes().to_vec()).to_vec(),
            &mut request,
        );
        let mut connection = state.connections.take(ROOT).expect("the administrator");
        connection.take(state, &request);
        state.connections.put(ROOT, connection);
        while self.root(state, around, "PING") != b"+PONG\r\n" {}
        self.seen = self.hidden(state, around);
        self.recent.clear();
    }
}

#[test]
fn a_user_limited_to_a_prefix_has_nothing_else() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let inputs = number("PERDURA_ACL_COMMANDS").unwrap_or(10_000);
    run(number("PERDURA_FUZZ_SEED").unwrap_or(1), inputs);
}

#[test]
fn a_seeded_bug_of_access_control_is_noticed() {
    for flaw in [Flaw::FirstTargetJudged, Flaw::HiddenNameTold] {
        arm(Some(flaw));
        let ran = catch_unwind(|| run(1, 10_000));
        arm(None);
        let Err(panic) = ran else {
            panic!("{flaw:?} is not noticed");
        };
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(
            text.contains(MARK),
            "{flaw:?} is not noticed by what shows: {text}"
        );
    }
}
