//! A client that caches values until the server invalidates them (client tracking).
//!
//! One connection writes. Another connection, in RESP3, reads and caches. After the reply to a write has come, the
//! reader sends a PING. All invalidations of the write must arrive before the PING's reply, so the values that are
//! still cached must be up to date. After a crash the keys must have all acknowledged writes. Each write in doubt must
//! be there whole, or not at all. The cache is then empty, because the connection is gone.

use std::collections::{BTreeMap, VecDeque};

use crate::model::{Bytes, Words};
use crate::scripted;
use crate::support::{Client, Reply, Server, request};

const KEYS: u64 = 8;

/// The database of the tracked keys. Other tests count the keys of the first databases, so this is a later database.
const DATABASE: u8 = 4;

type Values = BTreeMap<Bytes, Bytes>;

/// A change of several keys at once: each key with its new value. `None`: the key is deleted.
type Change = Vec<(Bytes, Option<Bytes>)>;

pub struct Tracking {
    number: u64,
    rng: fastrand::Rng,
    values: Values,
    /// The writes without a reply, in order.
    in_doubt: VecDeque<Change>,
    next: u64,
    /// Count of reads that the cache answered.
    pub hits: u64,
    /// Count of invalidations that the reader received.
    pub invalidations: u64,
}

impl Tracking {
    pub fn new(number: u64, seed: u64) -> Tracking {
        Tracking {
            number,
            rng: fastrand::Rng::with_seed(seed ^ 0x7472_6163 ^ number),
            values: Values::new(),
            in_doubt: VecDeque::new(),
            next: 0,
            hits: 0,
            invalidations: 0,
        }
    }

    /// Works until the connections break.
    pub fn work(&mut self, port: u16) {
        let mut ways = [&[][..], &["NOLOOP"], &["BCAST", "PREFIX", "t"], &["OPTIN"]];
        self.rng.shuffle(&mut ways);
        let connected = Client::connect_to(port, DATABASE).and_then(|writer| {
            let reader = Reader::connect(port, ways[0])?;
            Ok((writer, reader))
        });
        let Ok((mut writer, mut reader)) = connected else {
            return;
        };
        while self.round(&mut writer, &mut reader).is_ok() {}
        self.invalidations += reader.invalidations;
    }

    /// Makes a few writes with reads in between. Then checks that the cache is up to date.
    fn round(&mut self, writer: &mut Client, reader: &mut Reader) -> std::io::Result<()> {
        let writes = self.rng.usize(1..4);
        for _ in 0..writes {
            let change = self.change();
            let bytes = self.encoded(&change);
            self.in_doubt.push_back(change);
            writer.send(&bytes)?;
            // These reads may overtake the write.
            for _ in 0..self.rng.usize(..3) {
                let key = self.key();
                self.hits += u64::from(reader.read(&key)?);
            }
        }
        while let Some(change) = self.in_doubt.front() {
            answered(writer, change)?;
            let change = self.in_doubt.pop_front().expect("it was there");
            apply(&mut self.values, change);
        }
        reader.catch_up()?;
        for (key, cached) in &reader.cache {
            let key_text = key.escape_ascii();
            assert_eq!(
                cached.as_ref(),
                self.values.get(key),
                "{key_text} is cached and was changed; tracking {:?}",
                reader.way
            );
        }
        let key = self.key();
        self.hits += u64::from(reader.read(&key)?);
        assert_eq!(reader.cache[&key].as_ref(), self.values.get(&key), "a read");
        Ok(())
    }

    fn key(&mut self) -> Bytes {
        format!("t{}:{}", self.number, self.rng.u64(..KEYS)).into_bytes()
    }

    fn change(&mut self) -> Change {
        let keys = if self.rng.bool() {
            1
        } else {
            self.rng.usize(2..4)
        };
        let mut change = BTreeMap::new();
        for _ in 0..keys {
            self.next += 1;
            let value = (self.rng.u8(..5) > 0).then(|| self.next.to_string().into_bytes());
            change.insert(self.key(), value);
        }
        change.into_iter().collect()
    }

    /// Returns the request for a change. A change of one key is a command. A change of several keys is a transaction, a
    /// script or a function.
    fn encoded(&mut self, change: &Change) -> Vec<u8> {
        let words = |words: &Words| {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            request(&words)
        };
        let parts = change.iter().map(|(key, value)| match value {
            Some(value) => vec![b"SET".to_vec(), key.clone(), value.clone()],
            None => vec![b"DEL".to_vec(), key.clone()],
        });
        let parts: Vec<Words> = parts.collect();
        if parts.len() == 1 {
            return words(&parts[0]);
        }
        words(&scripted::request(
            &parts,
            self.rng.bool(),
            self.rng.usize(..=parts.len()),
        ))
    }

    /// Compares the data of a restarted server with the writes.
    pub fn check(&mut self, server: &Server) -> Result<(), String> {
        let mut client =
            Client::connect_to(server.port(), DATABASE).map_err(|error| error.to_string())?;
        let mut found = Values::new();
        for number in 0..KEYS {
            let key = format!("t{}:{number}", self.number);
            match client
                .ask(&["GET", &key])
                .map_err(|error| error.to_string())?
            {
                Reply::Bulk(None) => {}
                Reply::Bulk(Some(value)) => drop(found.insert(key.into_bytes(), value)),
                other => return Err(format!("{key} is {other:?}")),
            }
        }
        let in_doubt = std::mem::take(&mut self.in_doubt);
        let mut values = self.values.clone();
        for change in in_doubt {
            if values == found {
                break;
            }
            apply(&mut values, change);
        }
        if values != found {
            return Err(format!("acknowledged {:?}, found {found:?}", self.values));
        }
        self.values = found;
        Ok(())
    }
}

fn apply(values: &mut Values, change: Change) {
    for (key, value) in change {
        match value {
            Some(value) => drop(values.insert(key, value)),
            None => drop(values.remove(&key)),
        }
    }
}

/// Reads the reply to a change. An error is not allowed.
fn answered(writer: &mut Client, change: &Change) -> std::io::Result<()> {
    let reply = writer.reply()?;
    let replies = match reply {
        Reply::Array(replies) => replies,
        reply => vec![reply],
    };
    let good = |reply: &Reply| matches!(reply, Reply::Status(_) | Reply::Number(_));
    assert!(
        replies.len() == change.len() && replies.iter().all(good),
        "{replies:?}"
    );
    Ok(())
}

/// The connection that reads and caches.
struct Reader {
    client: Client,
    way: Vec<String>,
    /// Each key that the reader has read, with its value. An invalidation removes the key. `None`: the key did not
    /// exist.
    cache: BTreeMap<Bytes, Option<Bytes>>,
    invalidations: u64,
}

impl Reader {
    fn connect(port: u16, way: &[&str]) -> std::io::Result<Reader> {
        let mut client = Client::connect_to(port, DATABASE)?;
        client.ask(&["HELLO", "3"])?;
        let words = [&["CLIENT", "TRACKING", "ON"], way].concat();
        assert_eq!(client.ask(&words)?, Reply::Status("OK".into()));
        Ok(Reader {
            client,
            way: way.iter().map(|word| (*word).to_owned()).collect(),
            cache: BTreeMap::new(),
            invalidations: 0,
        })
    }

    /// Reads a key, from the cache if possible. Returns whether the cache had it.
    fn read(&mut self, key: &Bytes) -> std::io::Result<bool> {
        if self.cache.contains_key(key) {
            return Ok(true);
        }
        if self.way == ["OPTIN"] {
            self.client
                .send(&request(&[b"CLIENT", b"CACHING", b"YES"]))?;
            assert_eq!(self.reply()?, Reply::Status("OK".into()));
        }
        self.client.send(&request(&[b"GET", key]))?;
        match self.reply()? {
            Reply::Bulk(value) => drop(self.cache.insert(key.clone(), value)),
            other => panic!("GET answers {other:?}"),
        }
        Ok(false)
    }

    /// Receives all invalidations that the server has sent so far.
    fn catch_up(&mut self) -> std::io::Result<()> {
        self.client.send(&request(&[b"PING"]))?;
        assert_eq!(self.reply()?, Reply::Status("PONG".into()));
        Ok(())
    }

    /// Returns the next reply. Applies the invalidations that come before it.
    fn reply(&mut self) -> std::io::Result<Reply> {
        loop {
            match self.client.reply()? {
                Reply::Push(message) => self.forget(message),
                reply => return Ok(reply),
            }
        }
    }

    fn forget(&mut self, message: Vec<Reply>) {
        let [kind, keys] = message.try_into().expect("a kind and keys");
        assert_eq!(kind, Reply::Bulk(Some(b"invalidate".to_vec())));
        self.invalidations += 1;
        match keys {
            Reply::Bulk(None) => self.cache.clear(),
            Reply::Array(keys) => {
                for key in keys {
                    let Reply::Bulk(Some(key)) = key else {
                        panic!("{key:?} is no key");
                    };
                    self.cache.remove(&key);
                }
            }
            other => panic!("{other:?} are no keys"),
        }
    }
}
