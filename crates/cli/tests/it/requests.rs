//! Random requests over all types.
//!
//! A key's name says what it is usually for, so that most requests find their type; SET, RENAME, COPY
//! and MOVE see to it that some do not. One request in some brings many elements at once or a long
//! one, so that small collections turn into rows of their own, and DEL and overwriting leave large
//! ones behind for the purge.

use crate::model::{Bytes, SHARED, Words};
use crate::stream_model::GROUP;
use crate::support::{Client, Reply, request};

/// Names of each kind that a client has.
const NAMES: u64 = 7;
/// What names are for: strings, hashes, lists, sets, sorted sets and places, streams.
const KINDS: [char; 6] = ['s', 'h', 'l', 'e', 'z', 'x'];
/// What the names of HyperLogLogs begin with: these keys have no other type, for their bytes are those of a string.
pub const SKETCH: char = 'p';
/// Different fields, items and members.
const ELEMENTS: u64 = 400;
/// A deadline that no test reaches, in milliseconds: the year 2096.
const FAR_MS: u64 = 4_000_000_000_000;

/// All names that a client's keys can have, but for those of counters.
pub fn names(client: usize) -> Vec<Bytes> {
    let counters = (0..4).map(|n| format!("{client}:n{n}").into_bytes());
    KINDS
        .iter()
        .chain(&[SKETCH])
        .flat_map(|kind| (0..NAMES).map(move |n| format!("{client}:{kind}{n}").into_bytes()))
        .chain(counters)
        .collect()
}

/// One request, or a transaction of some.
#[derive(Debug, Clone)]
pub enum Op {
    One(Words),
    Multi(Vec<Words>),
}

impl Op {
    pub fn draw(rng: &mut fastrand::Rng, client: usize) -> Op {
        let mut draw = Draw { rng, client };
        if draw.rng.u8(..5) == 0 {
            let length = draw.rng.usize(2..6);
            return Op::Multi((0..length).map(|_| draw.words()).collect());
        }
        Op::One(draw.words())
    }

    /// The requests in it.
    pub fn parts(&self) -> &[Words] {
        match self {
            Op::One(words) => std::slice::from_ref(words),
            Op::Multi(all) => all,
        }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        let mut one = |words: &[&[u8]]| out.extend(request(&as_sent(words)));
        let is_multi = matches!(self, Op::Multi(_));
        if is_multi {
            one(&[b"MULTI"]);
        }
        for words in self.parts() {
            one(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        if is_multi {
            one(&[b"EXEC"]);
        }
    }

    /// Reads the replies to this request; the last one says that it was done.
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

/// The words of a request, of which the key is the first here, as they are sent.
fn as_sent<'w>(words: &[&'w [u8]]) -> Vec<&'w [u8]> {
    match words {
        [b"XGROUP", key, verb, rest @ ..] => [&[b"XGROUP", *verb, *key], rest].concat(),
        [b"XREADGROUP", key, consumer, most] => vec![
            b"XREADGROUP",
            b"GROUP",
            GROUP,
            consumer,
            b"COUNT",
            most,
            b"STREAMS",
            key,
            b">",
        ],
        _ => words.to_vec(),
    }
}

struct Draw<'a> {
    rng: &'a mut fastrand::Rng,
    client: usize,
}

impl Draw<'_> {
    fn words(&mut self) -> Words {
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

    /// A name for a kind; now and then for any.
    fn key(&mut self, kind: char) -> Bytes {
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

    fn value(&mut self) -> Bytes {
        let longest = if self.rng.u8(..20) == 0 { 3000 } else { 30 };
        self.bytes(longest)
    }

    fn number(&mut self) -> Bytes {
        self.rng.i64(-500..500).to_string().into_bytes()
    }

    /// How many elements a request brings.
    fn count(&mut self) -> usize {
        if self.rng.u8(..15) == 0 {
            self.rng.usize(100..300)
        } else {
            self.rng.usize(1..4)
        }
    }

    /// A request with some elements, each made of `parts` words.
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

    /// The id of an entry, which may be there.
    fn id(&mut self) -> Bytes {
        let ms = self.rng.u8(1..4);
        format!("{ms}-{}", self.rng.u8(..40)).into_bytes()
    }

    fn stream(&mut self) -> Words {
        let key = self.key('x');
        let word = |number: u8| number.to_string().into_bytes();
        let group = || GROUP.to_vec();
        let consumer = |draw: &mut Self| vec![b'c', b'0' + draw.rng.u8(..3)];
        match self.rng.u8(..16) {
            0..6 => {
                let mut words = vec![b"XADD".to_vec(), key];
                if self.rng.u8(..4) == 0 {
                    words.extend([b"MAXLEN".to_vec(), word(self.rng.u8(..60))]);
                }
                // Seldom a later one, so that most ids still ascend.
                let ms = 1 + self.rng.u8(..40) / 39 + self.rng.u8(..40) / 39;
                words.push(format!("{ms}-*").into_bytes());
                for _ in 0..self.rng.usize(1..4) {
                    let field = format!("field {}", self.rng.u8(..3)).into_bytes();
                    words.extend([field, self.value()]);
                }
                words
            }
            6 | 7 => {
                let mut words = vec![b"XDEL".to_vec(), key];
                (0..self.rng.usize(1..6)).for_each(|_| words.push(self.id()));
                words
            }
            8 => {
                let most = word(self.rng.u8(..60));
                vec![b"XTRIM".to_vec(), key, b"MAXLEN".to_vec(), most]
            }
            9 => {
                let [create, from, make] = [&b"CREATE"[..], b"0", b"MKSTREAM"].map(<[u8]>::to_vec);
                vec![b"XGROUP".to_vec(), key, create, group(), from, make]
            }
            10 => {
                let name = consumer(self);
                vec![
                    b"XGROUP".to_vec(),
                    key,
                    b"DELCONSUMER".to_vec(),
                    group(),
                    name,
                ]
            }
            11..14 => {
                let (name, most) = (consumer(self), word(self.rng.u8(1..12)));
                vec![b"XREADGROUP".to_vec(), key, name, most]
            }
            _ => {
                let mut words = vec![b"XACK".to_vec(), key, group()];
                (0..self.rng.usize(1..12)).for_each(|_| words.push(self.id()));
                words
            }
        }
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
            // A key onto itself is an error of its own.
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
