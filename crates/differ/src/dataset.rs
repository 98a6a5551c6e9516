//! Compares the two servers' data, key by key.

use crate::divergence::Divergence;
use crate::step::Argv;
use crate::tables::is_missing;
use crate::wires::Wires;
use crate::words;
use anyhow::Result;
use std::collections::BTreeSet;

/// The number of databases that scripts use.
const DATABASES: usize = 4;

fn argv(words: &[&[u8]]) -> Argv {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Compares all keys, their types, deadlines and values.
pub(crate) fn compare(wires: &mut Wires) -> Result<Option<Divergence>> {
    for database in 0..DATABASES {
        let number = database.to_string();
        if let Some(found) = wires.ask(argv(&[b"SELECT", number.as_bytes()]))?.err() {
            return Ok(Some(found.at(&format!("in database {database}"))));
        }
        if let Some(found) = compare_database(wires)? {
            return Ok(Some(found.at(&format!("in database {database}"))));
        }
    }
    // The connection began with database 0, so that database is selected again.
    Ok(wires.ask(argv(&[b"SELECT", b"0"]))?.err())
}

fn compare_database(wires: &mut Wires) -> Result<Option<Divergence>> {
    let mut keys: BTreeSet<Vec<u8>> = BTreeSet::new();
    if is_missing("KEYS") {
        keys.extend(words::all_keys());
    } else {
        match wires.ask(argv(&[b"KEYS", b"*"]))? {
            Err(found) => return Ok(Some(found)),
            Ok(seen) => keys.extend(seen.theirs.leaves().into_iter().map(<[u8]>::to_vec)),
        }
    }
    let keys: Vec<Vec<u8>> = keys.into_iter().collect();
    let mut asked = Vec::new();
    for key in &keys {
        asked.push(argv(&[b"TYPE", key]));
        asked.push(argv(&[b"PEXPIRETIME", key]));
    }
    let types = match wires.ask_all(asked)? {
        Err(found) => return Ok(Some(found)),
        Ok(seen) => seen,
    };
    let mut reads = Vec::new();
    for (key, seen) in keys.iter().zip(types.iter().step_by(2)) {
        reads.push(match seen.theirs.text().unwrap_or_default() {
            b"string" => argv(&[b"GET", key]),
            b"hash" => argv(&[b"HGETALL", key]),
            b"list" => argv(&[b"LRANGE", key, b"0", b"-1"]),
            b"set" => argv(&[b"SMEMBERS", key]),
            b"zset" => argv(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]),
            _ => argv(&[b"EXISTS", key]),
        });
    }
    Ok(wires.ask_all(reads)?.err())
}
