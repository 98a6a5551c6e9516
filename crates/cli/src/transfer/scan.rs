//! The source of keys in a running server. SCAN finds the keys, and the reading commands of each type read the values
//! in pieces.
//!
//! The source is read in steps. One SCAN returns some hundred keys. One batch of requests then asks for each key's type
//! and expiry, and for the length of each string. A second batch asks for the values. If a value is larger than one
//! piece, its other pieces are then read one after another.
//!
//! SCAN may return a key twice. Writing a list or a stream twice does harm ([`Part::is_harmless_twice`]), so the target
//! first deletes a repeated list or stream.

use anyhow::{Context, Result, bail, ensure};
use perdura_rdb::{Stream, Value};

use super::client::{Connection, Reply};
use super::commands::{bytes, put};
use super::progress::Line;
use super::report::{ByType, Read};
use super::{Databases, Part, Sink, now_ms, streams};

/// The number of keys that one SCAN requests.
const KEYS_A_STEP: &[u8] = b"500";
/// The number of elements in one piece.
const PIECE: usize = 512;
/// [`PIECE`] as text, for SCAN commands.
const PIECE_TEXT: &[u8] = b"512";
/// The cursor after the last entry of a stream. The next read returns the rest of the stream: the last id, and the
/// groups with pending entries.
const END_OF_STREAM: &[u8] = b"end";
/// The maximum number of values in one batch of requests.
const KEYS_AT_ONCE: usize = 100;
/// The maximum number of bytes in the strings that one batch requests. The server holds the replies in memory until the
/// replies are read.
const BYTES_AT_ONCE: u64 = 4 << 20;

/// The maximum total size of the first pieces that wait in memory. Each waits until the other pieces of its key can
/// follow. Beyond this size, first pieces are dropped and requested again.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The facts known about a key before its value is read.
struct Head {
    key: Vec<u8>,
    kind: Kind,
    expires_at_ms: Option<i64>,
    /// The length of the string, if the key is a string.
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    List,
    Set,
    Zset,
    Hash,
    Stream,
}

/// Returns the non-empty databases of a server, each with its number of keys.
pub fn keyspace(connection: &mut Connection) -> Result<Vec<(u64, u64)>> {
    let Reply::Bulk(Some(text)) = connection.ask(&[b"INFO", b"keyspace"])? else {
        bail!("INFO keyspace did not return a text");
    };
    let text = String::from_utf8_lossy(&text);
    let of_line = |line: &str| {
        let (db, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
        let keys = rest.split(',').next()?;
        Some((db.parse().ok()?, keys.parse().ok()?))
    };
    Ok(text.lines().filter_map(of_line).collect())
}

/// Reads all keys of a server and passes them to a sink.
pub fn read(
    connection: &mut Connection,
    databases: &Databases,
    sink: &mut dyn Sink,
    read: &mut Read,
) -> Result<()> {
    libraries(connection, sink, read)?;
    let all = keyspace(connection)?;
    let chosen: Vec<(u64, u64, u64)> = all
        .into_iter()
        .filter_map(|(db, keys)| Some((db, databases.target(db)?, keys)))
        .collect();
    let line = Line::new(Some(chosen.iter().map(|(_, _, keys)| keys).sum()));
    let mut knows_expiretime = true;
    for (db, target, _) in chosen {
        connection.ask(&[b"SELECT", db.to_string().as_bytes()])?;
        each_step(connection, |connection, keys| {
            let heads = heads(connection, db, keys, &mut knows_expiretime, read)?;
            let mut scan = Step {
                connection,
                target,
                sink,
                read,
            };
            scan.values(heads)?;
            line.show(read.total() + read.expired + read.unsupported.count, read);
            Ok(())
        })
        .with_context(|| format!("reading database {db}"))?;
    }
    line.end();
    Ok(())
}

/// Passes a server's function libraries to the sink. Passes nothing if the server does not know functions, or does not
/// let this user list libraries.
fn libraries(connection: &mut Connection, sink: &mut dyn Sink, read: &mut Read) -> Result<()> {
    connection.send(&[b"FUNCTION", b"LIST", b"WITHCODE"])?;
    let Reply::Array(libraries) = connection.receive()? else {
        return Ok(());
    };
    for library in libraries {
        let Reply::Array(fields) = library else {
            continue;
        };
        let named = |pair: &&[Reply]| matches!(&pair[0], Reply::Bulk(Some(word)) if word == b"library_code");
        if let Some([_, Reply::Bulk(Some(code))]) = fields.chunks_exact(2).find(named) {
            read.libraries += 1;
            sink.library(code)?;
        }
    }
    Ok(())
}

/// Counts a server's keys by type.
pub fn count(connection: &mut Connection, databases: &[u64]) -> Result<ByType> {
    let mut counts = ByType::new();
    for db in databases {
        connection.ask(&[b"SELECT", db.to_string().as_bytes()])?;
        each_step(connection, |connection, keys| {
            let mut requests = Vec::new();
            keys.iter()
                .for_each(|key| put(&mut requests, &[b"TYPE", key]));
            connection.send_bytes(&requests)?;
            for _ in &keys {
                match connection.receive()? {
                    Reply::Status(kind) if kind == "none" => {}
                    Reply::Status(kind) => *counts.entry(kind).or_default() += 1,
                    other => bail!("TYPE returned {other:?}"),
                }
            }
            Ok(())
        })?;
    }
    Ok(counts)
}

/// Scans the selected database, and calls `step` with the keys of each SCAN reply.
fn each_step(
    connection: &mut Connection,
    mut step: impl FnMut(&mut Connection, Vec<Vec<u8>>) -> Result<()>,
) -> Result<()> {
    let mut cursor = b"0".to_vec();
    loop {
        let reply = connection.ask(&[b"SCAN", &cursor, b"COUNT", KEYS_A_STEP])?;
        let (next, keys) =
            cursor_and_strings(reply).context("SCAN returned an unexpected reply")?;
        if !keys.is_empty() {
            step(connection, keys)?;
        }
        if next == b"0" {
            return Ok(());
        }
        cursor = next;
    }
}

fn cursor_and_strings(reply: Reply) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Reply::Array(parts) = reply else {
        return None;
    };
    let [Reply::Bulk(Some(cursor)), Reply::Array(_)] = parts.as_slice() else {
        return None;
    };
    let cursor = cursor.clone();
    let strings = strings(parts.into_iter().nth(1)?)?;
    Some((cursor, strings))
}

fn strings(reply: Reply) -> Option<Vec<Vec<u8>>> {
    let Reply::Array(parts) = reply else {
        return None;
    };
    let string = |part| match part {
        Reply::Bulk(string) => string,
        _ => None,
    };
    parts.into_iter().map(string).collect()
}

/// Requests the keys' types, expiries and string lengths. Leaves out keys that cannot be transferred.
fn heads(
    connection: &mut Connection,
    db: u64,
    keys: Vec<Vec<u8>>,
    knows_expiretime: &mut bool,
    read: &mut Read,
) -> Result<Vec<Head>> {
    if *knows_expiretime {
        // PEXPIRETIME exists since Redis 7.0. For a missing key the reply is -2.
        connection.send(&[b"PEXPIRETIME", b""])?;
        *knows_expiretime = connection.receive()?.error().is_none();
    }
    let mut requests = Vec::new();
    for key in &keys {
        let expiry: &[u8] = if *knows_expiretime {
            b"PEXPIRETIME"
        } else {
            b"PTTL"
        };
        put(&mut requests, &[b"TYPE", key]);
        put(&mut requests, &[expiry, key]);
        put(&mut requests, &[b"STRLEN", key]);
    }
    connection.send_bytes(&requests)?;
    let mut heads = Vec::with_capacity(keys.len());
    for key in keys {
        let (kind, expiry, len) = (
            connection.receive()?,
            connection.receive()?,
            connection.receive()?,
        );
        let Reply::Status(kind) = kind else {
            bail!("TYPE returned {kind:?}");
        };
        let Some(expiry) = expiry.number() else {
            bail!("the time to live of a key is {expiry:?}");
        };
        let kind = match kind.as_str() {
            "string" => Kind::String,
            "list" => Kind::List,
            "set" => Kind::Set,
            "zset" => Kind::Zset,
            "hash" => Kind::Hash,
            "stream" => Kind::Stream,
            "none" => {
                read.vanished += 1;
                continue;
            }
            other => {
                read.unsupported.add(db, &key, format!("a {other}"));
                continue;
            }
        };
        let expires_at_ms = match (*knows_expiretime, expiry) {
            (_, ..0) => None,
            (true, at) => Some(at),
            (false, left) => Some(now_ms().saturating_add(left)),
        };
        let bytes = len.number().and_then(|len| u64::try_from(len).ok());
        heads.push(Head {
            key,
            kind,
            expires_at_ms,
            bytes: bytes.unwrap_or(0),
        });
    }
    Ok(heads)
}

/// The transfer of the values of all keys from one SCAN reply.
struct Step<'a> {
    connection: &'a mut Connection,
    target: u64,
    sink: &'a mut dyn Sink,
    read: &'a mut Read,
}

impl Step<'_> {
    fn values(&mut self, heads: Vec<Head>) -> Result<()> {
        let mut left = heads.as_slice();
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = |head: &&Head| {
                let fits = bytes == 0 || bytes + head.bytes <= BYTES_AT_ONCE;
                bytes += head.bytes;
                fits
            };
            let some = left.iter().take(KEYS_AT_ONCE).take_while(fits).count();
            debug_assert!(some > 0, "each turn takes a key");
            let (now, later) = left.split_at(some);
            self.some_values(now)?;
            left = later;
        }
        Ok(())
    }

    /// Requests the first pieces of all keys together. Then reads the other pieces of each key that has more than one.
    fn some_values(&mut self, heads: &[Head]) -> Result<()> {
        let mut requests = Vec::new();
        heads
            .iter()
            .for_each(|head| ask(&mut requests, head, b"0", 0));
        self.connection.send_bytes(&requests)?;
        let (mut more, mut held) = (Vec::new(), 0);
        for head in heads {
            let reply = self.connection.receive()?;
            let (cursor, value) = piece(head.kind, reply)
                .with_context(|| format!("key '{}'", head.key.escape_ascii()))?;
            if cursor == b"0" {
                self.hand_on(head, &value, true, true)?;
            } else {
                // The sink must get all pieces of a key in succession, so this first piece has to wait.
                held += bytes(&value);
                if held <= HELD_BYTES_MAX {
                    more.push((head, cursor, Some(value)));
                } else {
                    more.push((head, b"0".to_vec(), None));
                }
            }
        }
        for (head, mut cursor, value) in more {
            let value = match value {
                Some(Value::Stream(mut stream)) if cursor == END_OF_STREAM => {
                    let is_there = streams::read_end(self.connection, &head.key, &mut stream)
                        .with_context(|| format!("key '{}'", head.key.escape_ascii()))?;
                    match is_there {
                        true => drop(self.hand_on(head, &Value::Stream(stream), true, true)?),
                        false => self.read.vanished += 1,
                    }
                    continue;
                }
                value => value,
            };
            let mut from = value.as_ref().map_or(0, Value::len);
            let mut first = value.is_none();
            if let Some(value) = value
                && !self.hand_on(head, &value, true, false)?
            {
                continue;
            }
            loop {
                let (next, value) = self
                    .next_piece(head, &cursor, from)
                    .with_context(|| format!("key '{}'", head.key.escape_ascii()))?;
                from += value.len();
                let last = next == b"0";
                let wanted = self.hand_on(head, &value, first, last)?;
                first = false;
                if last || !wanted {
                    break;
                }
                cursor = next;
            }
        }
        Ok(())
    }

    /// Reads one piece of a key's value, beginning at a cursor. The last piece of a stream is everything except the
    /// entries.
    fn next_piece(&mut self, head: &Head, cursor: &[u8], from: usize) -> Result<(Vec<u8>, Value)> {
        debug_assert!(
            cursor != b"0" || from == 0,
            "what begins anew has read nothing"
        );
        if cursor == END_OF_STREAM {
            let mut end = Stream::default();
            let is_there = streams::read_end(self.connection, &head.key, &mut end)?;
            ensure!(
                is_there,
                "it was deleted while it was read. Stop the writers and try again"
            );
            return Ok((b"0".to_vec(), Value::Stream(end)));
        }
        let mut request = Vec::new();
        ask(&mut request, head, cursor, from);
        self.connection.send_bytes(&request)?;
        piece(head.kind, self.connection.receive()?)
    }

    /// Passes a piece to the sink. Returns false if the key has expired or vanished, so that its other pieces need not
    /// be read.
    fn hand_on(&mut self, head: &Head, value: &Value, first: bool, last: bool) -> Result<bool> {
        if first {
            if head.expires_at_ms.is_some_and(|at| at <= now_ms()) {
                self.read.expired += 1;
                return Ok(false);
            }
            if last && value.is_empty() {
                self.read.vanished += 1;
                return Ok(false);
            }
            self.read
                .key(value.type_name(), head.expires_at_ms.is_some());
        }
        self.read.elements(value);
        self.sink.part(&Part {
            db: self.target,
            key: &head.key,
            value,
            first,
            last,
            expires_at_ms: head.expires_at_ms,
        })?;
        Ok(true)
    }
}

/// Appends the request for a piece of a value.
fn ask(out: &mut Vec<u8>, head: &Head, cursor: &[u8], from: usize) {
    let key = head.key.as_slice();
    let scan = |out: &mut Vec<u8>, name: &[u8]| {
        put(out, &[name, key, cursor, b"COUNT", PIECE_TEXT]);
    };
    match head.kind {
        Kind::String => put(out, &[b"GET", key]),
        Kind::Set => scan(out, b"SSCAN"),
        Kind::Zset => scan(out, b"ZSCAN"),
        Kind::Hash => scan(out, b"HSCAN"),
        Kind::Stream => {
            let begin = if cursor == b"0" { b"-" } else { cursor };
            put(out, &[b"XRANGE", key, begin, b"+", b"COUNT", PIECE_TEXT]);
        }
        Kind::List => {
            let (begin, end) = (from.to_string(), (from + PIECE - 1).to_string());
            put(out, &[b"LRANGE", key, begin.as_bytes(), end.as_bytes()]);
        }
    }
}

/// Returns the cursor of the next piece, and the piece in `reply`. The cursor `0` means that no further piece follows.
fn piece(kind: Kind, reply: Reply) -> Result<(Vec<u8>, Value)> {
    if let Some(text) = reply.error() {
        bail!("it changed while it was read ({text}). Stop the writers and try again");
    }
    let end = b"0".to_vec();
    let strange = "the server returned something other than a value";
    Ok(match kind {
        Kind::String => match reply {
            Reply::Bulk(Some(value)) => (end, Value::String(value)),
            // The key has vanished.
            Reply::Bulk(None) => (end, Value::Set(Vec::new())),
            _ => bail!(strange),
        },
        Kind::List => {
            let items = strings(reply).context(strange)?;
            let cursor = if items.len() < PIECE {
                end
            } else {
                b"more".to_vec()
            };
            (cursor, Value::List(items))
        }
        Kind::Stream => {
            let entries = streams::entries(reply).context(strange)?;
            let last = entries.last().filter(|_| entries.len() == PIECE);
            let cursor = match last.and_then(|last| streams::behind(last.id)) {
                Some(next) => streams::text(next).into_bytes(),
                None => END_OF_STREAM.to_vec(),
            };
            let piece = Stream {
                entries,
                ..Stream::default()
            };
            (cursor, Value::Stream(piece))
        }
        Kind::Set => {
            let (cursor, members) = cursor_and_strings(reply).context(strange)?;
            (cursor, Value::Set(members))
        }
        Kind::Hash => {
            let (cursor, flat) = cursor_and_strings(reply).context(strange)?;
            (cursor, Value::Hash(pairs(flat).context(strange)?))
        }
        Kind::Zset => {
            let (cursor, flat) = cursor_and_strings(reply).context(strange)?;
            let scored = |(member, score): (Vec<u8>, Vec<u8>)| {
                let score = std::str::from_utf8(&score).ok()?.parse().ok()?;
                Some((member, score))
            };
            let pairs = pairs(flat).context(strange)?;
            let pairs: Option<Vec<(Vec<u8>, f64)>> = pairs.into_iter().map(scored).collect();
            (cursor, Value::Zset(pairs.context(strange)?))
        }
    })
}

fn pairs(flat: Vec<Vec<u8>>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut pairs = Vec::with_capacity(flat.len() / 2);
    let mut flat = flat.into_iter();
    while let Some(first) = flat.next() {
        pairs.push((first, flat.next()?));
    }
    Some(pairs)
}
