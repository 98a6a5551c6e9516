//! Compares both datasets, key by key.

use crate::play::{Divergence, Player};
use crate::script::Argv;
use crate::tables::is_missing;
use crate::words;
use anyhow::Result;
use std::collections::BTreeSet;

/// The databases that scripts use.
const DATABASES: usize = 4;

fn argv(words: &[&[u8]]) -> Argv {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Compares all keys, their types, deadlines and values.
pub(crate) fn compare(player: &mut Player<'_>) -> Result<Option<Divergence>> {
    for database in 0..DATABASES {
        let number = database.to_string();
        if let Some(found) = player.ask(argv(&[b"SELECT", number.as_bytes()]))?.err() {
            return Ok(Some(found.at(&format!("in database {database}"))));
        }
        if let Some(found) = compare_database(player)? {
            return Ok(Some(found.at(&format!("in database {database}"))));
        }
    }
    // Leave the connection as it was found.
    Ok(player.ask(argv(&[b"SELECT", b"0"]))?.err())
}

fn compare_database(player: &mut Player<'_>) -> Result<Option<Divergence>> {
    let mut keys: BTreeSet<Vec<u8>> = BTreeSet::new();
    if is_missing("KEYS") {
        keys.extend(words::all_keys());
    } else {
        match player.ask(argv(&[b"KEYS", b"*"]))? {
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
    let types = match player.ask_all(asked)? {
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
    Ok(player.ask_all(reads)?.err())
}
