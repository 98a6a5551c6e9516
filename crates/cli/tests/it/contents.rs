//! A reader of the values of one client's keys. It reads the elements of a value and also the server's count of them,
//! because a restart computes the count anew.

use std::collections::BTreeMap;

use crate::model::{Bytes, Entry, Value};
use crate::requests::{SKETCH, names};
use crate::scripted;
use crate::sketch_model;
use crate::stream_model::{Group, Stream, id};
use crate::support::{Client, Reply, request};

/// A client's keys, by database number and name.
pub type Keys = BTreeMap<(u8, Bytes), Entry>;

/// Reads a client's keys in two databases, and the client's library. Afterwards the connection uses database 0.
pub fn read(client: &mut Client, number: usize) -> Result<Keys, String> {
    let mut keys = Keys::new();
    for db in [1, 0] {
        one_database(client, db, number, &mut keys)
            .map_err(|error| format!("reading database {db}: {error}"))?;
    }
    library(client, number, &mut keys).map_err(|error| format!("reading the library: {error}"))?;
    Ok(keys)
}

/// Reads the version of a client's function library by calling a function in it.
fn library(client: &mut Client, number: usize, keys: &mut Keys) -> std::io::Result<()> {
    let words = scripted::ask_version(number);
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    client.send(&request(&words))?;
    let version = match client.reply()? {
        Reply::Error(text) if text == "ERR Function not found" => return Ok(()),
        version => bulk(version),
    };
    let entry = Entry {
        value: Value::Library(version),
        expires_at_ms: None,
    };
    keys.insert((scripted::LIBRARIES, scripted::library_key(number)), entry);
    Ok(())
}

fn one_database(
    client: &mut Client,
    db: u8,
    number: usize,
    keys: &mut Keys,
) -> std::io::Result<()> {
    let names = names(number);
    let mut out = request(&[b"SELECT", db.to_string().as_bytes()]);
    for name in &names {
        out.extend(request(&[b"TYPE", name]));
        out.extend(request(&[b"PEXPIRETIME", name]));
    }
    client.send(&out)?;
    client.reply()?;
    let mut heads = Vec::new();
    for name in names {
        let Reply::Status(kind) = client.reply()? else {
            panic!("TYPE gave no status");
        };
        let Reply::Number(expires) = client.reply()? else {
            panic!("PEXPIRETIME gave no number");
        };
        if kind != "none" {
            heads.push((name, kind, (expires >= 0).then_some(expires)));
        }
    }
    for (name, kind, expires_at_ms) in heads {
        let value = value(client, &name, &kind)?;
        keys.insert(
            (db, name),
            Entry {
                value,
                expires_at_ms,
            },
        );
    }
    Ok(())
}

fn value(client: &mut Client, name: &[u8], kind: &str) -> std::io::Result<Value> {
    if kind == "stream" {
        return stream(client, name).map(Value::Stream);
    }
    let (all, count): (&[&[u8]], &[u8]) = match kind {
        "string" => (&[b"GET", name], b"STRLEN"),
        "hash" => (&[b"HGETALL", name], b"HLEN"),
        "list" => (&[b"LRANGE", name, b"0", b"-1"], b"LLEN"),
        "set" => (&[b"SMEMBERS", name], b"SCARD"),
        "zset" => (&[b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"], b"ZCARD"),
        other => panic!("type {other}"),
    };
    client.send(&[request(all), request(&[count, name])].concat())?;
    let (all, count) = (client.reply()?, client.reply()?);
    let (value, len) = match (kind, all) {
        ("string", Reply::Bulk(Some(bytes))) => {
            let len = bytes.len();
            let is_sketch = name.split(|byte| *byte == b':').nth(1);
            let is_sketch = is_sketch.is_some_and(|name| name[0] == SKETCH as u8);
            let value = match is_sketch {
                true => Value::Sketch(sketch_model::read(&bytes)),
                false => Value::String(bytes),
            };
            (value, len)
        }
        (_, Reply::Array(replies)) => {
            let words: Vec<Bytes> = replies.into_iter().map(bulk).collect();
            collection(name, kind, words)
        }
        (_, other) => panic!("{kind} '{}' is {other:?}", name.escape_ascii()),
    };
    if count != Reply::Number(i64::try_from(len).unwrap()) {
        let name = name.escape_ascii();
        return Err(std::io::Error::other(format!(
            "{kind} '{name}' has {len} elements and counts {count:?}"
        )));
    }
    Ok(value)
}

/// Reads a stream: all entries forwards and backwards, their count, and the group's pending entries.
fn stream(client: &mut Client, name: &[u8]) -> std::io::Result<Stream> {
    let requests: [&[&[u8]]; 5] = [
        &[b"XRANGE", name, b"-", b"+"],
        &[b"XREVRANGE", name, b"+", b"-"],
        &[b"XLEN", name],
        &[b"XINFO", b"STREAM", name],
        &[b"XINFO", b"GROUPS", name],
    ];
    client.send(&requests.map(request).concat())?;
    let entries = array(client.reply()?);
    let mut backward = array(client.reply()?);
    backward.reverse();
    let len = client.reply()?;
    let info = pairs(client.reply()?);
    let groups = array(client.reply()?);
    let wrong = |what: &str| {
        let name = name.escape_ascii();
        std::io::Error::other(format!("stream '{name}': {what}"))
    };
    if entries != backward || len != Reply::Number(i64::try_from(entries.len()).unwrap()) {
        return Err(wrong("its entries differ by order or count"));
    }
    let entries = entries.into_iter().map(|entry| {
        let [at, fields] = array(entry).try_into().expect("an entry");
        (id(&bulk(at)), array(fields).into_iter().map(bulk).collect())
    });
    let mut stream = Stream {
        entries: entries.collect(),
        last: id(&bulk(info["last-generated-id"].clone())),
        groups: BTreeMap::new(),
    };
    for group in groups {
        let group = pairs(group);
        let known = bulk(group["name"].clone());
        let (made, counts) = one_group(client, name, &known, &group)?;
        if group["pending"] != counted(made.pending.len()) {
            return Err(wrong("what is pending differs from its count"));
        }
        let of_consumer = |consumer: &Bytes| {
            let held = made.pending.values().filter(|held| held.0 == *consumer);
            (consumer.clone(), counted(held.count()))
        };
        if counts != made.consumers.iter().map(of_consumer).collect() {
            return Err(wrong("what is pending differs from its counts by consumer"));
        }
        stream.groups.insert(known, made);
    }
    Ok(stream)
}

/// Reads a group and the counts of each of its consumers.
fn one_group(
    client: &mut Client,
    name: &[u8],
    group: &[u8],
    info: &BTreeMap<String, Reply>,
) -> std::io::Result<(Group, BTreeMap<Bytes, Reply>)> {
    let requests: [&[&[u8]]; 2] = [
        &[b"XPENDING", name, group, b"-", b"+", b"100000"],
        &[b"XINFO", b"CONSUMERS", name, group],
    ];
    client.send(&requests.map(request).concat())?;
    let pending = array(client.reply()?).into_iter().map(|held| {
        let [at, consumer, _, deliveries] = array(held).try_into().expect("a pending entry");
        let Reply::Number(deliveries) = deliveries else {
            panic!("{deliveries:?} is no number")
        };
        (id(&bulk(at)), (bulk(consumer), deliveries))
    });
    let pending: BTreeMap<_, _> = pending.collect();
    let consumers = array(client.reply()?).into_iter().map(|consumer| {
        let consumer = pairs(consumer);
        (bulk(consumer["name"].clone()), consumer["pending"].clone())
    });
    let counts: BTreeMap<Bytes, Reply> = consumers.collect();
    let made = Group {
        last: id(&bulk(info["last-delivered-id"].clone())),
        consumers: counts.keys().cloned().collect(),
        pending,
    };
    Ok((made, counts))
}

fn counted(len: usize) -> Reply {
    Reply::Number(i64::try_from(len).unwrap())
}

pub fn array(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(replies) => replies,
        other => panic!("{other:?} is no array"),
    }
}

fn pairs(reply: Reply) -> BTreeMap<String, Reply> {
    let words = array(reply);
    let pair = |pair: &[Reply]| {
        let name = String::from_utf8(bulk(pair[0].clone())).unwrap();
        (name, pair[1].clone())
    };
    words.chunks(2).map(pair).collect()
}

fn collection(name: &[u8], kind: &str, words: Vec<Bytes>) -> (Value, usize) {
    let given = words.len();
    let pairs = |words: &[Bytes]| -> Vec<(Bytes, Bytes)> {
        let pair = |pair: &[Bytes]| (pair[0].clone(), pair[1].clone());
        words.chunks(2).map(pair).collect()
    };
    match kind {
        "hash" => (Value::Hash(pairs(&words).into_iter().collect()), given / 2),
        "list" => (Value::List(words.into()), given),
        "set" => (Value::Set(words.into_iter().collect()), given),
        _ => {
            let score = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<i64>().unwrap();
            let order: Vec<(i64, Bytes)> = pairs(&words)
                .into_iter()
                .map(|(member, text)| (score(&text), member))
                .collect();
            assert!(order.is_sorted(), "the order of '{}'", name.escape_ascii());
            let members = order.into_iter().map(|(score, member)| (member, score));
            (Value::Zset(members.collect()), given / 2)
        }
    }
}

pub fn bulk(reply: Reply) -> Bytes {
    match reply {
        Reply::Bulk(Some(bytes)) => bytes,
        other => panic!("{other:?} is no element"),
    }
}
