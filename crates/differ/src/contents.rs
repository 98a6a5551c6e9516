//! Reads the complete contents of one server. Equal data gives equal contents.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use crate::reply::{Body, Reply};
use crate::wire::{Wire, encode};

/// The number of databases that scripts use.
const DATABASES: u8 = 4;

/// The type and the value of each key, by database and key. Values without an order are sorted. Deadlines are not
/// included.
pub type Contents = BTreeMap<(u8, Vec<u8>), (Vec<u8>, Reply)>;

/// Reads all databases that scripts use, and selects database 0 again.
///
/// # Errors
/// Errors of the connection, and unexpected replies.
pub fn read(wire: &mut Wire) -> Result<Contents> {
    let mut contents = Contents::new();
    for database in 0..DATABASES {
        wire.call(&["SELECT", &database.to_string()])?;
        let keys = wire.call(&["KEYS", "*"])?;
        let keys: Vec<Vec<u8>> = keys.leaves().into_iter().map(<[u8]>::to_vec).collect();
        let types = ask(
            wire,
            keys.iter().map(|key| vec![b"TYPE".to_vec(), key.clone()]),
        )?;
        let types: Vec<Vec<u8>> = types
            .iter()
            .map(|kind| kind.text().map(<[u8]>::to_vec).context("a type"))
            .collect::<Result<_>>()?;
        let mut reads = Vec::new();
        for (key, kind) in keys.iter().zip(&types) {
            reads.push(read_of(kind, key)?);
        }
        let values = ask(wire, reads.into_iter())?;
        for ((key, kind), value) in keys.into_iter().zip(types).zip(values) {
            let value = match kind.as_slice() {
                b"set" => sorted(value, 1),
                b"hash" => sorted(value, 2),
                _ => value,
            };
            contents.insert((database, key), (kind, value));
        }
    }
    wire.call(&["SELECT", "0"])?;
    Ok(contents)
}

fn read_of(kind: &[u8], key: &[u8]) -> Result<Vec<Vec<u8>>> {
    let words: &[&[u8]] = match kind {
        b"string" => &[b"GET", key],
        b"hash" => &[b"HGETALL", key],
        b"list" => &[b"LRANGE", key, b"0", b"-1"],
        b"set" => &[b"SMEMBERS", key],
        b"zset" => &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
        other => bail!("a key of type {}", String::from_utf8_lossy(other)),
    };
    Ok(words.iter().map(|word| word.to_vec()).collect())
}

fn ask(wire: &mut Wire, asked: impl Iterator<Item = Vec<Vec<u8>>>) -> Result<Vec<Reply>> {
    let mut replies = Vec::new();
    for argv in asked {
        wire.send(&encode(&argv))?;
        replies.push(wire.read()?);
    }
    Ok(replies)
}

/// Divides the items of a reply into groups of `group` items and sorts the groups.
fn sorted(reply: Reply, group: usize) -> Reply {
    let Body::Items(items) = reply.body else {
        return reply;
    };
    let mut groups: Vec<Vec<Reply>> = items.chunks(group).map(<[Reply]>::to_vec).collect();
    groups.sort();
    Reply {
        kind: reply.kind,
        body: Body::Items(groups.concat()),
    }
}
