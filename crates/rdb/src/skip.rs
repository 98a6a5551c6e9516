//! Skips streams and modules' values, so that the import reads what follows them and names the keys
//! that it leaves out.

use std::io::Read;

use crate::error::Result;
use crate::source::Source;

/// A stream's entry id: two 64-bit numbers.
const STREAM_ID_BYTES: u64 = 16;
/// A time in milliseconds.
const TIME_BYTES: u64 = 8;

/// Steps over a stream. Type 19 (Redis 7.0) has more about the ids used, type 21 (7.2) more about
/// consumers.
pub fn stream<R: Read>(source: &mut Source<R>, kind: u8) -> Result<()> {
    for _ in 0..source.length()? {
        source.skip_string()?; // the id that the node's entries are relative to
        source.skip_string()?; // the entries, a listpack
    }
    lengths(source, 3)?; // how many entries; the last id
    if kind >= 19 {
        lengths(source, 5)?; // the first id; the greatest deleted; how many were ever added
    }
    for _ in 0..source.length()? {
        group(source, kind)?;
    }
    Ok(())
}

fn group<R: Read>(source: &mut Source<R>, kind: u8) -> Result<()> {
    source.skip_string()?; // its name
    lengths(source, 2)?; // the last id delivered
    if kind >= 19 {
        lengths(source, 1)?; // how many were read
    }
    for _ in 0..source.length()? {
        source.skip(STREAM_ID_BYTES + TIME_BYTES)?; // pending: its id, when it was delivered
        lengths(source, 1)?; // how often
    }
    for _ in 0..source.length()? {
        source.skip_string()?; // the consumer's name
        source.skip(TIME_BYTES)?; // when it was last seen
        if kind >= 21 {
            source.skip(TIME_BYTES)?; // when it was last active
        }
        for _ in 0..source.length()? {
            source.skip(STREAM_ID_BYTES)?;
        }
    }
    Ok(())
}

fn lengths<R: Read>(source: &mut Source<R>, count: usize) -> Result<()> {
    for _ in 0..count {
        source.length()?;
    }
    Ok(())
}

/// Steps over a module's value: the module's id and parts that say how long they are.
pub fn module<R: Read>(source: &mut Source<R>) -> Result<()> {
    source.length()?;
    parts(source)
}

/// Steps over what a module keeps beside the keys: its id, when to load it, and parts.
pub fn module_aux<R: Read>(source: &mut Source<R>) -> Result<()> {
    lengths(source, 3)?;
    parts(source)
}

fn parts<R: Read>(source: &mut Source<R>) -> Result<()> {
    loop {
        match source.length()? {
            0 => return Ok(()),
            1 | 2 => lengths(source, 1)?,
            3 => source.skip(4)?,
            4 => source.skip(8)?,
            5 => source.skip_string()?,
            _ => return Err(source.corrupt("no such part of a module's value")),
        }
    }
}
