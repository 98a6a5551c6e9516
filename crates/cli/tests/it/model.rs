//! The model, which computes the expected data of a client's keys. It implements the commands of all types as plainly
//! as possible.
//!
//! The model reads the words sent to the server and returns the expected reply. The model's sets are ordered and the
//! scores are integers, so the model's data can be compared directly with the server's data.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::scripted::{self, LIBRARIES};
use crate::sketch_model::{self, Sketch};
use crate::stream_model::{Delivery, Stream};
use crate::support::Reply;

/// A string of bytes, as the protocol transports it.
pub type Bytes = Vec<u8>;
/// A request: a command with its arguments.
pub type Words = Vec<Bytes>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

const LATE_ID: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";
const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
                      the MKSTREAM option to create an empty stream automatically.";

/// A key's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Zset(BTreeMap<Bytes, i64>),
    Stream(Stream),
    Sketch(Sketch),
    /// The version of a client's function library.
    Library(Bytes),
}

impl Value {
    fn is_empty(&self) -> bool {
        match self {
            Value::String(_) | Value::Stream(_) | Value::Sketch(_) | Value::Library(_) => false,
            Value::Hash(fields) => fields.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Set(members) => members.is_empty(),
            Value::Zset(members) => members.is_empty(),
        }
    }

    /// Returns a short description of the value for people.
    pub fn brief(&self) -> String {
        let (kind, len) = match self {
            Value::String(bytes) => {
                return format!("{} bytes {:.20}", bytes.len(), bytes.escape_ascii());
            }
            Value::Hash(fields) => ("hash", fields.len()),
            Value::List(items) => ("list", items.len()),
            Value::Set(members) => ("set", members.len()),
            Value::Zset(members) => ("zset", members.len()),
            Value::Stream(stream) => return format!("{stream:?}"),
            Value::Sketch(sketch) => ("sketch", sketch.len()),
            Value::Library(version) => {
                return format!("a library of version {}", version.escape_ascii());
            }
        };
        format!("a {kind} of {len}")
    }
}

/// A key's value and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    pub expires_at_ms: Option<i64>,
}

/// The keys of two databases. Clients work in database 0, and COPY and MOVE also use database 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub keys: BTreeMap<(u8, Bytes), Entry>,
    /// The number of times that the client has incremented the shared counter.
    pub shared: u64,
}

/// The counter that all clients increment.
pub const SHARED: &[u8] = b"shared";

pub fn number(number: usize) -> Reply {
    Reply::Number(i64::try_from(number).unwrap())
}

pub fn ok() -> Reply {
    Reply::Status("OK".into())
}

pub fn parsed(word: &[u8]) -> i64 {
    std::str::from_utf8(word).unwrap().parse().unwrap()
}

/// Returns the position of a Redis index in a list of `len` items. A negative index counts from the end. The result may
/// lie outside the list.
fn position(index: i64, len: usize) -> i64 {
    let len = i64::try_from(len).unwrap();
    if index < 0 { len + index } else { index }
}

/// Returns the position of the element at `start`, and the position after the element at `stop`. Both are limited to
/// the list.
fn stretch(start: &[u8], stop: &[u8], len: usize) -> (usize, usize) {
    let from = position(parsed(start), len).max(0);
    let to = (position(parsed(stop), len) + 1).clamp(0, i64::try_from(len).unwrap());
    let from = usize::try_from(from).unwrap().min(len);
    (from, usize::try_from(to).unwrap().max(from))
}

/// Returns the geohash cell of a place. The longitude and the latitude are whole degrees. Bits of the longitude and the
/// latitude alternate in the cell, 26 of each. The lowest bit belongs to the latitude.
fn cell([longitude, latitude]: [i64; 2]) -> i64 {
    /// The greatest latitude, in units of 1/100,000,000 degree.
    const LATITUDE_MAX: i64 = 8_505_112_878;
    const DEGREE: i64 = 100_000_000;
    let north = ((latitude * DEGREE + LATITUDE_MAX) << 26) / (2 * LATITUDE_MAX);
    let east = ((longitude + 180) << 26) / 360;
    let bit = |of: i64, bit: i64| (of >> bit) & 1;
    (0..26).fold(0, |cell, n| {
        cell | (bit(north, n) << (2 * n)) | (bit(east, n) << (2 * n + 1))
    })
}

macro_rules! opened {
    ($model:ident, $key:expr, $kind:ident) => {
        match $model
            .keys
            .get_mut(&(0, $key.clone()))
            .map(|entry| &mut entry.value)
        {
            None => None,
            Some(Value::$kind(value)) => Some(value),
            Some(_) => return Reply::Error(WRONG_TYPE.into()),
        }
    };
}

macro_rules! made {
    ($model:ident, $key:expr, $kind:ident) => {{
        let entry = $model
            .keys
            .entry((0, $key.clone()))
            .or_insert_with(|| Entry {
                value: Value::$kind(Default::default()),
                expires_at_ms: None,
            });
        match &mut entry.value {
            Value::$kind(value) => value,
            _ => return Reply::Error(WRONG_TYPE.into()),
        }
    }};
}

impl Model {
    /// Applies a request and returns the expected reply. Returns `None` if the reply also depends on other clients.
    pub fn apply(&mut self, words: &Words) -> Option<Reply> {
        if words[1] == SHARED {
            self.shared += 1;
            return None;
        }
        let reply = self.run(words);
        // Redis deletes a collection when it becomes empty.
        self.keys.retain(|_, entry| !entry.value.is_empty());
        Some(reply)
    }

    fn run(&mut self, words: &Words) -> Reply {
        let (key, rest) = (&words[1], &words[2..]);
        match words[0].as_slice() {
            b"SET" => {
                let entry = Entry {
                    value: Value::String(rest[0].clone()),
                    expires_at_ms: None,
                };
                self.keys.insert((0, key.clone()), entry);
                ok()
            }
            b"APPEND" => {
                let value = made!(self, key, String);
                value.extend_from_slice(&rest[0]);
                number(value.len())
            }
            b"INCR" => {
                let value = made!(self, key, String);
                let next = if value.is_empty() {
                    1
                } else {
                    parsed(value) + 1
                };
                *value = next.to_string().into_bytes();
                Reply::Number(next)
            }
            b"DEL" => number(usize::from(self.keys.remove(&(0, key.clone())).is_some())),
            b"PEXPIREAT" | b"PERSIST" => match self.keys.get_mut(&(0, key.clone())) {
                None => number(0),
                Some(entry) => {
                    let before = entry.expires_at_ms;
                    entry.expires_at_ms = rest.first().map(|at| parsed(at));
                    number(usize::from(!rest.is_empty() || before.is_some()))
                }
            },
            b"RENAME" | b"RENAMENX" | b"COPY" | b"MOVE" => self.carry(words),
            b"HSET" | b"HDEL" => self.hash(words),
            b"SADD" | b"SREM" | b"SMOVE" => self.set(words),
            b"ZADD" | b"ZREM" | b"ZINCRBY" | b"ZPOPMIN" | b"ZREMRANGEBYRANK" | b"GEOADD" => {
                self.zset(words)
            }
            [b'X', ..] => self.stream(words),
            b"PFADD" | b"PFMERGE" => self.sketch(words),
            b"FUNCTION" => self.library(key, rest.first()),
            _ => self.list(words),
        }
    }

    /// Loads a version of a client's library, or deletes the library.
    fn library(&mut self, key: &Bytes, version: Option<&Bytes>) -> Reply {
        let at = (LIBRARIES, key.clone());
        let Some(version) = version else {
            return match self.keys.remove(&at) {
                None => Reply::Error("ERR Library not found".into()),
                Some(_) => ok(),
            };
        };
        let entry = Entry {
            value: Value::Library(version.clone()),
            expires_at_ms: None,
        };
        self.keys.insert(at, entry);
        Reply::Bulk(Some(scripted::library_name(key).into_bytes()))
    }

    /// Renames, moves or copies a key, within the key's database or to the second database.
    fn carry(&mut self, words: &Words) -> Reply {
        let (name, from) = (words[0].as_slice(), (0, words[1].clone()));
        let to = match name {
            b"MOVE" => (1, words[1].clone()),
            b"COPY" if words.iter().any(|word| word == b"DB") => (1, words[2].clone()),
            _ => (0, words[2].clone()),
        };
        let Some(entry) = self.keys.get(&from).cloned() else {
            return match name {
                b"RENAME" | b"RENAMENX" => Reply::Error("ERR no such key".into()),
                _ => number(0),
            };
        };
        if matches!(name, b"RENAMENX" | b"MOVE") && self.keys.contains_key(&to) {
            return number(0);
        }
        if name != b"COPY" {
            self.keys.remove(&from);
        }
        self.keys.insert(to, entry);
        if name == b"RENAME" { ok() } else { number(1) }
    }

    fn hash(&mut self, words: &Words) -> Reply {
        let (key, rest) = (&words[1], &words[2..]);
        if words[0] == b"HSET" {
            let fields = made!(self, key, Hash);
            let before = fields.len();
            for pair in rest.chunks(2) {
                fields.insert(pair[0].clone(), pair[1].clone());
            }
            return number(fields.len() - before);
        }
        let Some(fields) = opened!(self, key, Hash) else {
            return number(0);
        };
        number(
            rest.iter()
                .filter(|field| fields.remove(*field).is_some())
                .count(),
        )
    }

    fn set(&mut self, words: &Words) -> Reply {
        let (key, rest) = (&words[1], &words[2..]);
        match words[0].as_slice() {
            b"SADD" => {
                let members = made!(self, key, Set);
                number(
                    rest.iter()
                        .filter(|member| members.insert((*member).clone()))
                        .count(),
                )
            }
            b"SREM" => match opened!(self, key, Set) {
                None => number(0),
                Some(members) => {
                    number(rest.iter().filter(|member| members.remove(*member)).count())
                }
            },
            _ => {
                let (target, member) = (&rest[0], &rest[1]);
                let Some(_) = opened!(self, key, Set) else {
                    return number(0);
                };
                let _ = opened!(self, target, Set);
                let Some(members) = opened!(self, key, Set) else {
                    return number(0);
                };
                if target == key || !members.remove(member) {
                    return number(usize::from(target == key && members.contains(member)));
                }
                made!(self, target, Set).insert(member.clone());
                number(1)
            }
        }
    }

    fn zset(&mut self, words: &Words) -> Reply {
        let (key, rest) = (&words[1], &words[2..]);
        match words[0].as_slice() {
            b"ZADD" => {
                let members = made!(self, key, Zset);
                let before = members.len();
                for pair in rest.chunks(2) {
                    members.insert(pair[1].clone(), parsed(&pair[0]));
                }
                number(members.len() - before)
            }
            b"GEOADD" => {
                let members = made!(self, key, Zset);
                let before = members.len();
                for place in rest.chunks(3) {
                    let degrees = [&place[0], &place[1]].map(|word| parsed(word));
                    members.insert(place[2].clone(), cell(degrees));
                }
                number(members.len() - before)
            }
            b"ZINCRBY" => {
                let score = made!(self, key, Zset).entry(rest[1].clone()).or_default();
                *score += parsed(&rest[0]);
                Reply::Bulk(Some(score.to_string().into_bytes()))
            }
            name => {
                let Some(members) = opened!(self, key, Zset) else {
                    return match name {
                        b"ZPOPMIN" => Reply::Array(Vec::new()),
                        _ => number(0),
                    };
                };
                if name == b"ZREM" {
                    return number(rest.iter().filter(|m| members.remove(*m).is_some()).count());
                }
                let mut order: Vec<(i64, Bytes)> = members
                    .iter()
                    .map(|(member, score)| (*score, member.clone()))
                    .collect();
                order.sort();
                if name == b"ZPOPMIN" {
                    let (score, member) = order.swap_remove(0);
                    members.remove(&member);
                    let score = score.to_string().into_bytes();
                    return Reply::Array(vec![Reply::Bulk(Some(member)), Reply::Bulk(Some(score))]);
                }
                let (from, to) = stretch(&rest[0], &rest[1], order.len());
                for (_, member) in &order[from..to] {
                    members.remove(member);
                }
                number(to - from)
            }
        }
    }

    fn stream(&mut self, words: &Words) -> Reply {
        let (key, rest) = (&words[1], &words[2..]);
        let no_group = |text: &str| Reply::Error(format!("NOGROUP No such {text}"));
        let named = key.escape_ascii().to_string();
        match (words[0].as_slice(), rest[0].as_slice()) {
            (b"XADD", first) => {
                let (most, rest) = match first {
                    b"MAXLEN" => (Some(parsed(&rest[1])), &rest[2..]),
                    _ => (None, rest),
                };
                let ms = parsed(&rest[0][..rest[0].len() - 2]);
                let stream = made!(self, key, Stream);
                let Some(id) = stream.next(ms) else {
                    return Reply::Error(LATE_ID.into());
                };
                let reply = stream.add(id, &rest[1..]);
                most.map(|most| stream.trim(most));
                reply
            }
            (b"XGROUP", b"CREATE") => {
                let stream = made!(self, key, Stream);
                let reply = stream.manage(&rest[0], &rest[1], &rest[2..]);
                reply.expect("a group is made without one")
            }
            (b"XGROUP", verb) => match opened!(self, key, Stream) {
                None => Reply::Error(NO_KEY.into()),
                Some(stream) => {
                    let group = rest[1].escape_ascii().to_string();
                    let reply = stream.manage(verb, &rest[1], &rest[2..]);
                    let text = format!("consumer group '{group}' for key name '{named}'");
                    reply.unwrap_or_else(|| no_group(&text))
                }
            },
            (b"XREADGROUP", group) => {
                let how = Delivery {
                    consumer: rest[1].clone(),
                    most: parsed(&rest[2]),
                    keeps: rest.len() == 3,
                };
                let stream = opened!(self, key, Stream);
                let given = stream.and_then(|stream| stream.deliver(key, &rest[0], &how));
                let text = format!(
                    "key '{named}' or consumer group '{}' in XREADGROUP with GROUP option",
                    group.escape_ascii()
                );
                given.unwrap_or_else(|| no_group(&text))
            }
            (b"XCLAIM" | b"XAUTOCLAIM", group) => {
                let stream = opened!(self, key, Stream);
                let given = stream.and_then(|stream| match words[0].as_slice() {
                    b"XCLAIM" => stream.claim(&rest[0], &rest[1], &rest[2..]),
                    _ => {
                        let most = usize::try_from(parsed(&rest[2])).unwrap();
                        stream.claim_first(&rest[0], &rest[1], most)
                    }
                });
                let group = group.escape_ascii();
                let text = format!("key '{named}' or consumer group '{group}'");
                given.unwrap_or_else(|| no_group(&text))
            }
            (name, _) => match opened!(self, key, Stream) {
                None => number(0),
                Some(stream) if name == b"XDEL" => stream.delete(rest),
                Some(stream) if name == b"XTRIM" => stream.trim(parsed(&rest[1])),
                Some(stream) => stream.acknowledge(&rest[0], &rest[1..]),
            },
        }
    }

    fn sketch(&mut self, words: &Words) -> Reply {
        let (key, rest) = (&words[1], &words[2..]);
        if words[0] == b"PFADD" {
            let is_new = !self.keys.contains_key(&(0, key.clone()));
            let sketch = made!(self, key, Sketch);
            let changed = rest
                .iter()
                .filter(|element| sketch_model::add(sketch, element));
            return number(usize::from(changed.count() > 0 || is_new));
        }
        let mut merged = Sketch::new();
        for key in &words[1..] {
            let sketch = opened!(self, key, Sketch);
            for (register, value) in sketch.into_iter().flat_map(|sketch| sketch.iter()) {
                sketch_model::raise(&mut merged, *register, *value);
            }
        }
        *made!(self, key, Sketch) = merged;
        ok()
    }

    fn list(&mut self, words: &Words) -> Reply {
        let (key, rest) = (&words[1], &words[2..]);
        let name = words[0].as_slice();
        if matches!(name, b"LPUSH" | b"RPUSH") {
            let items = made!(self, key, List);
            for item in rest {
                match name {
                    b"LPUSH" => items.push_front(item.clone()),
                    _ => items.push_back(item.clone()),
                }
            }
            return number(items.len());
        }
        let Some(items) = opened!(self, key, List) else {
            return match name {
                b"LPOP" | b"RPOP" => Reply::Bulk(None),
                b"LSET" => Reply::Error("ERR no such key".into()),
                b"LTRIM" => ok(),
                _ => number(0),
            };
        };
        match name {
            b"LPOP" => Reply::Bulk(items.pop_front()),
            b"RPOP" => Reply::Bulk(items.pop_back()),
            b"LSET" => {
                let at = usize::try_from(position(parsed(&rest[0]), items.len())).ok();
                match at.and_then(|at| items.get_mut(at)) {
                    None => Reply::Error("ERR index out of range".into()),
                    Some(item) => {
                        item.clone_from(&rest[1]);
                        ok()
                    }
                }
            }
            b"LTRIM" => {
                let (from, to) = stretch(&rest[0], &rest[1], items.len());
                items.truncate(to);
                items.drain(..from);
                ok()
            }
            b"LREM" => {
                // The clients send LREM only with the count 0, which removes all equal items.
                let before = items.len();
                items.retain(|item| item != &rest[1]);
                number(before - items.len())
            }
            b"LINSERT" => match items.iter().position(|item| item == &rest[1]) {
                None => Reply::Number(-1),
                Some(at) => {
                    items.insert(at, rest[2].clone());
                    number(items.len())
                }
            },
            other => panic!("{} is not in the model", other.escape_ascii()),
        }
    }
}
