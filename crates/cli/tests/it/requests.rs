//! Random requests for keys of all types.
//!
//! A key's name determines the key's usual type. So most requests find a key of the needed type. SET, RENAME, COPY and
//! MOVE change the types of some keys. Some requests add many elements or a long element, so that small collections
//! turn into separate rows. When DEL or an overwrite removes a large collection, the purge later deletes the rows.

use crate::model::{Bytes, SHARED, Words};
use crate::scripted;
use crate::support::{Client, Reply, request};

/// Count of names of each kind that a client has.
const NAMES: u64 = 7;
/// The letters for the kinds of keys: strings, hashes, lists, sets, sorted sets, streams. Some sorted sets contain
/// geographic places.
const KINDS: [char; 6] = ['s', 'h', 'l', 'e', 'z', 'x'];
/// The first letter of the names of HyperLogLogs. Their values are strings, so these keys have no separate type.
pub const SKETCH: char = 'p';
/// The number of distinct fields, items and members that requests can name.
const ELEMENTS: u64 = 400;
/// A deadline, in milliseconds since 1970. It is in the year 2096, so no test reaches it.
const FAR_MS: u64 = 4_000_000_000_000;

/// Returns all possible names of a client's keys, counters included.
pub fn names(client: usize) -> Vec<Bytes> {
    let counters = (0..4).map(|n| format!("{client}:n{n}").into_bytes());
    KINDS
        .iter()
        .chain(&[SKETCH])
        .flat_map(|kind| (0..NAMES).map(move |n| format!("{client}:{kind}{n}").into_bytes()))
        .chain(counters)
        .collect()
}

/// The kinds of requests that are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// All types equally.
    All,
    /// Mostly streams and functions. The library of [`scripted::runner`] must be loaded.
    Streams,
}

/// One request, or a transaction of several.
#[derive(Debug, Clone)]
pub enum Op {
    One(Words),
    Multi(Vec<Words>),
    /// A script that runs these requests.
    Script(Vec<Words>),
    /// A function that runs these requests.
    Call(Vec<Words>),
}

impl Op {
    pub fn draw(rng: &mut fastrand::Rng, client: usize, mix: Mix) -> Op {
        let mut draw = Draw { rng, client, mix };
        let all = |draw: &mut Draw<'_>| {
            let length = draw.rng.usize(2..6);
            (0..length).map(|_| draw.words()).collect()
        };
        match (draw.rng.u8(..40), mix) {
            (0..8, _) => Op::Multi(all(&mut draw)),
            (8..12, _) => Op::Script(all(&mut draw)),
            (12..20, Mix::Streams) => Op::Call(all(&mut draw)),
            (20, Mix::Streams) => Op::One(draw.library()),
            _ => Op::One(draw.words()),
        }
    }

    /// Returns the single requests that this operation runs.
    pub fn parts(&self) -> &[Words] {
        match self {
            Op::One(words) => std::slice::from_ref(words),
            Op::Multi(all) | Op::Script(all) | Op::Call(all) => all,
        }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        let mut one = |words: &Words| {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            out.extend(request(&words));
        };
        let all: Vec<Words> = self.parts().iter().map(as_sent).collect();
        // Only some of the keys are declared, so the transaction may find out later that it needs more partitions.
        let declared = all[0].len() % (all.len() + 1);
        match self {
            Op::One(_) => one(&all[0]),
            Op::Script(_) => one(&scripted::request(&all, false, declared)),
            Op::Call(_) => one(&scripted::request(&all, true, declared)),
            Op::Multi(_) => {
                one(&vec![b"MULTI".to_vec()]);
                all.iter().for_each(&mut one);
                one(&vec![b"EXEC".to_vec()]);
            }
        }
    }

    /// Reads all replies to this operation. Returns the last one, which confirms the whole operation.
    pub fn answer(&self, client: &mut Client) -> std::io::Result<Reply> {
        if let Op::Multi(all) = self {
            for _ in 0..=all.len() {
                let queued = client.reply()?;
                assert!(matches!(queued, Reply::Status(_)), "{queued:?}");
            }
        }
        client.reply()
    }
}

/// Returns a request's words in the order in which they are sent. In `words`, the key is always the second word.
fn as_sent(words: &Words) -> Words {
    let rest = words.get(2..).unwrap_or_default();
    let put = |fixed: &[&[u8]], rest: &[Bytes]| {
        let fixed = fixed.iter().map(|word| word.to_vec());
        fixed.chain(rest.iter().cloned()).collect()
    };
    let key = words[1].as_slice();
    match (words[0].as_slice(), rest) {
        (b"XGROUP", [verb, rest @ ..]) => put(&[b"XGROUP", verb, key], rest),
        (b"XREADGROUP", [group, consumer, most, how @ ..]) => {
            let fixed: [&[u8]; 6] = [b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", most];
            let stream = [&b"STREAMS"[..], key, b">"].map(<[u8]>::to_vec);
            put(&fixed, &[how, &stream].concat())
        }
        (b"XCLAIM", [group, consumer, rest @ ..]) => {
            put(&[b"XCLAIM", key, group, consumer, b"0"], rest)
        }
        (b"XAUTOCLAIM", [group, consumer, most]) => {
            let fixed: [&[u8]; 6] = [b"XAUTOCLAIM", key, group, consumer, b"0", b"0-0"];
            put(&fixed, &[b"COUNT".to_vec(), most.clone()])
        }
        (b"FUNCTION", rest) => scripted::manage_library(key, rest.first()),
        _ => words.clone(),
    }
}

/// The random numbers and parameters for a client's requests.
pub struct Draw<'a> {
    pub rng: &'a mut fastrand::Rng,
    client: usize,
    mix: Mix,
}

impl Draw<'_> {
    fn words(&mut self) -> Words {
        if self.mix == Mix::Streams && self.rng.u8(..10) < 6 {
            return self.stream();
        }
        match self.rng.u8(..100) {
            0..13 => self.string(),
            13..25 => self.hash(),
            25..40 => self.list(),
            40..50 => self.set(),
            50..62 => self.zset(),
            62..78 => self.stream(),
            78..84 => self.sketch(),
            _ => self.whole_key(),
        }
    }

    /// Chooses the name of a key at random. Most names are of kind `kind`. A few are of a different kind.
    pub fn key(&mut self, kind: char) -> Bytes {
        let kind = if self.rng.u8(..12) == 0 {
            KINDS[self.rng.usize(..KINDS.len())]
        } else {
            kind
        };
        format!("{}:{kind}{}", self.client, self.rng.u64(..NAMES)).into_bytes()
    }

    fn any_key(&mut self) -> Bytes {
        let kind = KINDS[self.rng.usize(..KINDS.len())];
        self.key(kind)
    }

    fn element(&mut self) -> Bytes {
        format!("e{}", self.rng.u64(..ELEMENTS)).into_bytes()
    }

    fn bytes(&mut self, longest: usize) -> Bytes {
        let len = self.rng.usize(..longest);
        std::iter::repeat_with(|| self.rng.u8(..))
            .take(len)
            .collect()
    }

    pub fn value(&mut self) -> Bytes {
        let longest = if self.rng.u8(..20) == 0 { 3000 } else { 30 };
        self.bytes(longest)
    }

    fn number(&mut self) -> Bytes {
        self.rng.i64(-500..500).to_string().into_bytes()
    }

    /// Draws how many elements a request has.
    fn count(&mut self) -> usize {
        if self.rng.u8(..15) == 0 {
            self.rng.usize(100..300)
        } else {
            self.rng.usize(1..4)
        }
    }

    /// Returns a request on a key of this kind, with a random number of elements. `element` writes an element's words.
    fn with_elements(
        &mut self,
        name: &str,
        kind: char,
        mut element: impl FnMut(&mut Self, &mut Words),
    ) -> Words {
        let mut words = vec![name.into(), self.key(kind)];
        for _ in 0..self.count() {
            element(self, &mut words);
        }
        words
    }

    fn string(&mut self) -> Words {
        match self.rng.u8(..10) {
            0..5 => {
                let longest = if self.rng.u8(..20) == 0 { 40_000 } else { 300 };
                vec![b"SET".to_vec(), self.key('s'), self.bytes(longest)]
            }
            5..7 => {
                let more = vec![self.rng.u8(..); self.rng.usize(1..50)];
                vec![b"APPEND".to_vec(), self.key('s'), more]
            }
            7..9 => {
                let counter = format!("{}:n{}", self.client, self.rng.u8(..4));
                vec![b"INCR".to_vec(), counter.into_bytes()]
            }
            _ => vec![b"INCR".to_vec(), SHARED.to_vec()],
        }
    }

    fn hash(&mut self) -> Words {
        if self.rng.u8(..3) > 0 {
            return self.with_elements("HSET", 'h', |draw, words| {
                words.extend([draw.element(), draw.value()]);
            });
        }
        self.with_elements("HDEL", 'h', |draw, words| words.push(draw.element()))
    }

    fn list(&mut self) -> Words {
        let key = self.key('l');
        match self.rng.u8(..12) {
            0..5 => {
                let name = if self.rng.bool() { "LPUSH" } else { "RPUSH" };
                self.with_elements(name, 'l', |draw, words| {
                    let item = if draw.rng.u8(..10) == 0 {
                        draw.value()
                    } else {
                        draw.element()
                    };
                    words.push(item);
                })
            }
            5..7 => vec![b"LPOP".to_vec(), key],
            7..9 => vec![b"RPOP".to_vec(), key],
            9 => vec![b"LSET".to_vec(), key, self.number(), self.element()],
            10 => match self.rng.u8(..3) {
                0 => vec![b"LTRIM".to_vec(), key, b"1".to_vec(), b"-2".to_vec()],
                1 => vec![b"LTRIM".to_vec(), key, self.number(), self.number()],
                _ => vec![b"LREM".to_vec(), key, b"0".to_vec(), self.element()],
            },
            _ => {
                let (pivot, item) = (self.element(), self.value());
                vec![b"LINSERT".to_vec(), key, b"BEFORE".to_vec(), pivot, item]
            }
        }
    }

    fn set(&mut self) -> Words {
        match self.rng.u8(..6) {
            0..3 => self.with_elements("SADD", 'e', |draw, words| {
                let member = if draw.rng.u8(..30) == 0 {
                    draw.value()
                } else {
                    draw.element()
                };
                words.push(member);
            }),
            3..5 => self.with_elements("SREM", 'e', |draw, words| words.push(draw.element())),
            _ => {
                let (from, to) = (self.key('e'), self.key('e'));
                vec![b"SMOVE".to_vec(), from, to, self.element()]
            }
        }
    }

    fn zset(&mut self) -> Words {
        let key = self.key('z');
        match self.rng.u8(..10) {
            0..5 => self.with_elements("ZADD", 'z', |draw, words| {
                words.extend([draw.number(), draw.element()]);
            }),
            5..7 => self.with_elements("ZREM", 'z', |draw, words| words.push(draw.element())),
            7 if self.rng.bool() => self.with_elements("GEOADD", 'z', |draw, words| {
                let (longitude, latitude) = (draw.rng.i16(-180..180), draw.rng.i16(-85..86));
                let place = [longitude, latitude].map(|degrees| degrees.to_string().into_bytes());
                words.extend(place);
                words.push(draw.element());
            }),
            7 => vec![b"ZINCRBY".to_vec(), key, self.number(), self.element()],
            8 => vec![b"ZPOPMIN".to_vec(), key],
            _ => {
                let from = self.rng.i64(-8..8);
                let to = from + self.rng.i64(0..5);
                let word = |number: i64| number.to_string().into_bytes();
                vec![b"ZREMRANGEBYRANK".to_vec(), key, word(from), word(to)]
            }
        }
    }

    /// Chooses at random between a request that loads the client's library and a request that deletes it.
    fn library(&mut self) -> Words {
        let mut words = vec![b"FUNCTION".to_vec(), scripted::library_key(self.client)];
        if self.rng.u8(..4) > 0 {
            words.push(self.rng.u8(..).to_string().into_bytes());
        }
        words
    }

    fn sketch(&mut self) -> Words {
        let name = |draw: &mut Self| {
            format!("{}:{SKETCH}{}", draw.client, draw.rng.u64(..NAMES)).into_bytes()
        };
        let key = name(self);
        match self.rng.u8(..10) {
            0 => vec![b"DEL".to_vec(), key],
            1..3 => vec![b"PFMERGE".to_vec(), key, name(self), name(self)],
            _ => {
                let mut words = vec![b"PFADD".to_vec(), key];
                (0..self.count()).for_each(|_| words.push(self.element()));
                words
            }
        }
    }

    fn whole_key(&mut self) -> Words {
        let (key, other) = (self.any_key(), self.any_key());
        match self.rng.u8(..11) {
            0..4 => vec![b"DEL".to_vec(), key],
            4 => {
                let at = FAR_MS + self.rng.u64(..1000);
                vec![b"PEXPIREAT".to_vec(), key, at.to_string().into_bytes()]
            }
            5 => vec![b"PERSIST".to_vec(), key],
            6 => vec![b"MOVE".to_vec(), key, b"1".to_vec()],
            // COPY refuses two equal keys, which the model does not know. So DEL is sent instead.
            7..11 if key == other => vec![b"DEL".to_vec(), key],
            7 => vec![b"RENAMENX".to_vec(), key, other],
            8 => vec![b"RENAME".to_vec(), key, other],
            9 => vec![b"COPY".to_vec(), key, other, b"REPLACE".to_vec()],
            _ => {
                let mut words = vec![b"COPY".to_vec(), key, other];
                words.extend([b"DB".to_vec(), b"1".to_vec(), b"REPLACE".to_vec()]);
                words
            }
        }
    }
}
