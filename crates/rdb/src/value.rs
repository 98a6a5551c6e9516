//! The decoding of values: the type byte selects the encoding.

use std::io::Read;

use crate::PREALLOCATED_MAX;
use crate::error::Result;
use crate::packed::{self, Entries};
use crate::skip;
use crate::source::Source;
use crate::stream::{self, Stream};

/// A key's value.
///
/// A member or field that the dump repeats is repeated in the value. The caller checks for repeated ones.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// A list's items, first to last.
    List(Vec<Vec<u8>>),
    /// A set's members.
    Set(Vec<Vec<u8>>),
    /// A sorted set's members and scores; no score is NaN.
    Zset(Vec<(Vec<u8>, f64)>),
    /// A hash's fields and values.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// A stream, or a piece of one.
    Stream(Stream),
}

impl Value {
    /// Returns the name of the type, as the command TYPE answers it.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::Zset(_) => "zset",
            Value::Hash(_) => "hash",
            Value::Stream(_) => "stream",
        }
    }

    /// Returns the number of elements: 1 for a string, the number of entries for a stream.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Value::String(_) => 1,
            Value::List(items) | Value::Set(items) => items.len(),
            Value::Zset(pairs) => pairs.len(),
            Value::Hash(pairs) => pairs.len(),
            Value::Stream(stream) => stream.entries.len(),
        }
    }

    /// Returns whether the value is an empty collection, which Redis never keeps. False for an empty stream, which
    /// Redis allows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !matches!(self, Value::Stream(_))
    }
}

/// The data after a type byte.
pub enum Found {
    /// A value, and the count of a hash's fields that have their own deadlines. The deadlines are not read.
    Value(Value, u64),
    /// A module's value, stepped over.
    Module,
}

/// The plain encodings, which every version of Redis reads and this crate writes.
pub mod plain {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    pub const HASH: u8 = 4;
    /// Scores are 8 bytes, little-endian.
    pub const ZSET: u8 = 5;
}

/// Reads the value after a type byte.
pub fn read<R: Read>(source: &mut Source<R>, kind: u8) -> Result<Found> {
    let mut fields_with_deadline = 0;
    let value = match kind {
        plain::STRING => Value::String(source.string()?),
        plain::LIST => Value::List(strings(source)?),
        plain::SET => Value::Set(strings(source)?),
        3 => Value::Zset(scored(source, text_score)?),
        plain::ZSET => Value::Zset(scored(source, |source| {
            Ok(f64::from_le_bytes(source.array()?))
        })?),
        plain::HASH => Value::Hash(each(source, |source| {
            Ok((source.string()?, source.string()?))
        })?),
        7 => {
            skip::module(source)?;
            return Ok(Found::Module);
        }
        9 => Value::Hash(pairs(source, packed::zipmap)?),
        10 => Value::List(unpacked(source, packed::ziplist)?),
        11 => Value::Set(unpacked(source, packed::intset)?),
        12 => Value::Zset(packed_scores(source, packed::ziplist)?),
        13 => Value::Hash(pairs(source, packed::ziplist)?),
        14 => {
            let nodes = each(source, ziplist_node)?;
            Value::List(nodes.into_iter().flatten().collect())
        }
        15 | 19 | 21 => Value::Stream(stream::read(source, kind)?),
        16 => Value::Hash(pairs(source, packed::listpack)?),
        17 => Value::Zset(packed_scores(source, packed::listpack)?),
        18 => {
            let nodes = each(source, list_node)?;
            Value::List(nodes.into_iter().flatten().collect())
        }
        20 => Value::Set(unpacked(source, packed::listpack)?),
        22..=25 => Value::Hash(with_deadlines(source, kind, &mut fields_with_deadline)?),
        _ => return Err(source.corrupt("no such type of a value")),
    };
    Ok(Found::Value(value, fields_with_deadline))
}

/// Reads the items of a list's node in the encoding before Redis 7.0: a ziplist.
pub fn ziplist_node<R: Read>(source: &mut Source<R>) -> Result<Vec<Vec<u8>>> {
    unpacked(source, packed::ziplist)
}

/// Reads the items of a list's node: one long item, or a listpack of items.
pub fn list_node<R: Read>(source: &mut Source<R>) -> Result<Vec<Vec<u8>>> {
    match source.length()? {
        1 => Ok(vec![source.string()?]),
        2 => unpacked(source, packed::listpack),
        _ => Err(source.corrupt("no such node of a list")),
    }
}

/// Reads a count, then that many items by calls of `one`.
fn each<R: Read, T>(
    source: &mut Source<R>,
    mut one: impl FnMut(&mut Source<R>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = source.length()?;
    let room = usize::try_from(count).unwrap_or(usize::MAX);
    let mut all = Vec::with_capacity(room.min(PREALLOCATED_MAX));
    for _ in 0..count {
        all.push(one(source)?);
    }
    Ok(all)
}

fn strings<R: Read>(source: &mut Source<R>) -> Result<Vec<Vec<u8>>> {
    each(source, Source::string)
}

fn unpacked<R: Read>(source: &mut Source<R>, unpack: fn(&[u8]) -> Entries) -> Result<Vec<Vec<u8>>> {
    let packed = source.string()?;
    unpack(&packed).map_err(|why| source.corrupt(why))
}

/// Reads a packed collection. Returns its entries in pairs.
fn pairs<R: Read>(
    source: &mut Source<R>,
    unpack: fn(&[u8]) -> Entries,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries = unpacked(source, unpack)?.into_iter();
    let mut all = Vec::with_capacity(entries.len() / 2);
    while let Some(first) = entries.next() {
        let odd = "a packed collection of pairs has an odd number of entries";
        let second = entries.next().ok_or_else(|| source.corrupt(odd))?;
        all.push((first, second));
    }
    Ok(all)
}

fn packed_scores<R: Read>(
    source: &mut Source<R>,
    unpack: fn(&[u8]) -> Entries,
) -> Result<Vec<(Vec<u8>, f64)>> {
    let with_score = |(member, score): (Vec<u8>, Vec<u8>)| {
        let score = parse_score(&score)?;
        Some((member, score))
    };
    pairs(source, unpack)?
        .into_iter()
        .map(|pair| with_score(pair).ok_or_else(|| source.corrupt(NO_SCORE)))
        .collect()
}

pub const NO_SCORE: &str = "a score is not a number";

fn parse_score(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

fn scored<R: Read>(
    source: &mut Source<R>,
    mut score: impl FnMut(&mut Source<R>) -> Result<f64>,
) -> Result<Vec<(Vec<u8>, f64)>> {
    each(source, |source| {
        let member = source.string()?;
        let score = score(source)?;
        if score.is_nan() {
            return Err(source.corrupt(NO_SCORE));
        }
        Ok((member, score))
    })
}

/// Reads a score in the encoding of format versions before 8. A score is a length byte and then decimal text. If the
/// first byte is 253, 254 or 255, it means NaN, infinity or minus infinity, and no text follows.
pub fn text_score<R: Read>(source: &mut Source<R>) -> Result<f64> {
    match source.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => {
            let text = source.bytes(len.into())?;
            parse_score(&text).ok_or_else(|| source.corrupt(NO_SCORE))
        }
    }
}

/// Reads a hash of Redis 7.4 that has deadlines of single fields: in a listpack (types 23 and 25) or plain (types 22
/// and 24). The types of released versions (24 and 25) begin with the earliest deadline.
fn with_deadlines<R: Read>(
    source: &mut Source<R>,
    kind: u8,
    fields_with_deadline: &mut u64,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    if kind >= 24 {
        source.skip(8)?;
    }
    if kind == 22 || kind == 24 {
        return each(source, |source| {
            *fields_with_deadline += u64::from(source.length()? > 0);
            Ok((source.string()?, source.string()?))
        });
    }
    let mut entries = unpacked(source, packed::listpack)?.into_iter();
    let mut all = Vec::with_capacity(entries.len() / 3);
    while let Some(field) = entries.next() {
        let (Some(value), Some(deadline)) = (entries.next(), entries.next()) else {
            return Err(source.corrupt("a packed hash has a part of a field"));
        };
        *fields_with_deadline += u64::from(deadline != b"0");
        all.push((field, value));
    }
    Ok(all)
}
