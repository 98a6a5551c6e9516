//! What a client's keys must hold: the commands of all types, as plainly as they can be said.
//!
//! The model reads the words that go to the server and gives the reply that must come back. Sets are
//! ordered and scores are whole numbers here, so that what a server holds compares as it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::support::Reply;

/// A string of the protocol.
pub type Bytes = Vec<u8>;
/// A request.
pub type Words = Vec<Bytes>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A key's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Zset(BTreeMap<Bytes, i64>),
}

impl Value {
    fn is_empty(&self) -> bool {
        match self {
            Value::String(_) => false,
            Value::Hash(fields) => fields.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Set(members) => members.is_empty(),
            Value::Zset(members) => members.is_empty(),
        }
    }

    /// A few words for people.
    pub fn brief(&self) -> String {
        let (kind, len) = match self {
            Value::String(bytes) => {
                return format!("{} bytes {:.20}", bytes.len(), bytes.escape_ascii());
            }
            Value::Hash(fields) => ("hash", fields.len()),
            Value::List(items) => ("list", items.len()),
            Value::Set(members) => ("set", members.len()),
            Value::Zset(members) => ("zset", members.len()),
        };
        format!("a {kind} of {len}")
    }
}

/// A key's value and when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    pub expires_at_ms: Option<i64>,
}

/// Keys of two databases. Clients work in database 0; COPY and MOVE reach database 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub keys: BTreeMap<(u8, Bytes), Entry>,
    /// How often the client has incremented the shared counter.
    pub shared: u64,
}

/// The counter that all clients increment.
pub const SHARED: &[u8] = b"shared";

fn number(number: usize) -> Reply {
    Reply::Number(i64::try_from(number).unwrap())
}

fn ok() -> Reply {
    Reply::Status("OK".into())
}

fn parsed(word: &[u8]) -> i64 {
    std::str::from_utf8(word).unwrap().parse().unwrap()
}

/// A position as Redis counts: from the end if negative. Outside is outside.
fn position(index: i64, len: usize) -> i64 {
    let len = i64::try_from(len).unwrap();
    if index < 0 { len + index } else { index }
}

/// The elements `from..to` that a range from `start` to `stop` means.
fn stretch(start: &[u8], stop: &[u8], len: usize) -> (usize, usize) {
    let from = position(parsed(start), len).max(0);
    let to = (position(parsed(stop), len) + 1).clamp(0, i64::try_from(len).unwrap());
    let from = usize::try_from(from).unwrap().min(len);
    (from, usize::try_from(to).unwrap().max(from))
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
    /// Does what a request does. `None` is the reply that other clients have a say in.
    pub fn apply(&mut self, words: &Words) -> Option<Reply> {
        if words[1] == SHARED {
            self.shared += 1;
            return None;
        }
        let reply = self.run(words);
        // Redis has no empty collections.
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
            b"ZADD" | b"ZREM" | b"ZINCRBY" | b"ZPOPMIN" | b"ZREMRANGEBYRANK" => self.zset(words),
            _ => self.list(words),
        }
    }

    /// Whole keys to other names and databases.
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
                // All of them: the count is always zero here.
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
