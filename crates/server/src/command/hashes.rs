//! Hashes.

use super::event::Class;
use super::flag::{DENY_OOM, FAST, READ, WRITE};
use super::keys::cursor::{count_arg, count_arg_of_pairs, scan_elements};
use super::keys::sample::Draws;
use super::spec::{Command, ONE, data};
use super::steps::{Parts, Walk, Whole};
use super::{Data, Done, NOT_INTEGER, SYNTAX, Stop, wrong_arity};
use crate::decimal::{FloatError, add_decimals};
use crate::engine::types::{Entry, Left, hash};
use crate::engine::{Shape, Source};
use crate::number::{parse_i64, push_i64};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

const ADDS: u32 = WRITE | DENY_OOM | FAST;
const SEES: u32 = READ | FAST;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("hdel", -3, WRITE | FAST, ONE, hdel),
    data("hexists", 3, SEES, ONE, hexists),
    data("hget", 3, SEES, ONE, hget),
    data("hgetall", 2, READ, ONE, hgetall),
    data("hincrby", 4, ADDS, ONE, hincrby),
    data("hincrbyfloat", 4, ADDS, ONE, hincrbyfloat),
    data("hkeys", 2, READ, ONE, hkeys),
    data("hlen", 2, SEES, ONE, hlen),
    data("hmget", -3, SEES, ONE, hmget),
    data("hmset", -4, ADDS, ONE, hmset),
    data("hrandfield", -2, READ, ONE, hrandfield),
    data("hscan", -3, READ, ONE, hscan),
    data("hset", -4, ADDS, ONE, hset),
    data("hsetnx", 4, ADDS, ONE, hsetnx),
    data("hstrlen", 3, SEES, ONE, hstrlen),
    data("hvals", 2, READ, ONE, hvals),
];

fn source<'d>(data: &'d Data<'_, '_>, args: &Args<'_>) -> Result<Option<Source<'d>>, Stop> {
    data.collection(args.at(1), Shape::Hash)
}

fn set_pairs(data: &mut Data<'_, '_>, args: &Args<'_>, name: &str) -> Result<u64, Stop> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name).into());
    }
    let pairs = args.from(2).step_by(2).zip(args.from(3).step_by(2));
    let created = hash::set(data.tx, data.table, args.at(1), pairs)?;
    data.changed(Class::Hash, "hset", args.at(1));
    Ok(created)
}

/// `HSET key field value [field value …]`
pub(crate) fn hset(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    out.count(set_pairs(data, args, "hset")?);
    Ok(())
}

/// `HMSET key field value [field value …]`
pub(crate) fn hmset(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    set_pairs(data, args, "hmset")?;
    out.ok();
    Ok(())
}

/// `HSETNX key field value`
pub(crate) fn hsetnx(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let found = hash::source(data.tx, data.table, args.at(1))?;
    let absent = found.is_none_or(|hash| hash.find(args.at(2)).is_none());
    if absent {
        set_pairs(data, args, "hsetnx")?;
    }
    out.integer(i64::from(absent));
    Ok(())
}

fn reply_value(found: Option<Entry<'_>>, out: &mut Out<'_>) {
    match found {
        Some(entry) => out.bulk(&entry.value()),
        None => out.null(),
    }
}

/// `HGET key field`
pub(crate) fn hget(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let hash = source(data, args)?;
    reply_value(hash.as_ref().and_then(|hash| hash.find(args.at(2))), out);
    Ok(())
}

/// `HMGET key field [field …]`
pub(crate) fn hmget(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let start = out.buf.len();
    let hash = source(data, args)?;
    out.array(args.len() - 2);
    for field in args.from(2) {
        reply_value(hash.as_ref().and_then(|hash| hash.find(field)), out);
        data.check_reply(out.buf.len() - start)?;
    }
    Ok(())
}

/// Replies with the fields, the values, or the pairs of all elements.
fn reply_all(
    data: &Data<'_, '_>,
    hash: Option<&Source<'_>>,
    fields: bool,
    values: bool,
    out: &mut Out<'_>,
) -> Done {
    let start = out.buf.len();
    let count = hash.map_or(0, Source::len);
    if data.is_long(count) {
        let walk = Walk::all(Shape::Hash, count);
        let parts = Parts::Pairs {
            names: fields,
            values,
        };
        return Err(Stop::Long(Box::new(Whole::new(walk, parts, out.resp3))));
    }
    let len = perdura_base::num::to_usize(count);
    if fields && values {
        out.map(len);
    } else {
        out.array(len);
    }
    for entry in hash.into_iter().flat_map(Source::iter) {
        if fields {
            out.bulk(&entry.key());
        }
        if values {
            out.bulk(&entry.value());
        }
        data.check_reply(out.buf.len() - start)?;
    }
    Ok(())
}

/// `HGETALL key`
pub(crate) fn hgetall(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_all(data, source(data, args)?.as_ref(), true, true, out)
}

/// `HKEYS key`
pub(crate) fn hkeys(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_all(data, source(data, args)?.as_ref(), true, false, out)
}

/// `HVALS key`
pub(crate) fn hvals(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_all(data, source(data, args)?.as_ref(), false, true, out)
}

/// `HDEL key field [field …]`
pub(crate) fn hdel(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (removed, left) = hash::remove(data.tx, data.table, args.at(1), args.from(2))?;
    if removed > 0 {
        data.changed(Class::Hash, "hdel", args.at(1));
        if left == Left::Nothing {
            data.changed(Class::Generic, "del", args.at(1));
        }
    }
    out.count(removed);
    Ok(())
}

/// `HEXISTS key field`
pub(crate) fn hexists(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let found = source(data, args)?.is_some_and(|hash| hash.find(args.at(2)).is_some());
    out.integer(i64::from(found));
    Ok(())
}

/// `HLEN key`
pub(crate) fn hlen(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    out.count(source(data, args)?.map_or(0, |hash| hash.len()));
    Ok(())
}

/// `HSTRLEN key field`
pub(crate) fn hstrlen(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let hash = source(data, args)?;
    let found = hash.as_ref().and_then(|hash| hash.find(args.at(2)));
    let bytes = found.map_or(0, |entry| entry.value_len());
    out.count(u64::try_from(bytes).unwrap_or(u64::MAX));
    Ok(())
}

fn value_of(data: &Data<'_, '_>, args: &Args<'_>) -> Result<Option<Vec<u8>>, Stop> {
    let hash = hash::source(data.tx, data.table, args.at(1))?;
    let found = hash.as_ref().and_then(|hash| hash.find(args.at(2)));
    Ok(found.map(|entry| entry.value().to_vec()))
}

fn put_number(data: &mut Data<'_, '_>, args: &Args<'_>, value: &[u8], event: &'static str) -> Done {
    let pair = (args.at(2), value);
    hash::set(data.tx, data.table, args.at(1), [pair])?;
    data.changed(Class::Hash, event, args.at(1));
    Ok(())
}

/// `HINCRBY key field delta`
pub(crate) fn hincrby(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let delta = parse_i64(args.at(3)).ok_or(NOT_INTEGER)?;
    let old = match value_of(data, args)? {
        Some(value) => parse_i64(&value).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let sum = old
        .checked_add(delta)
        .ok_or("ERR increment or decrement would overflow")?;
    let mut value = Vec::with_capacity(20);
    push_i64(&mut value, sum);
    put_number(data, args, &value, "hincrby")?;
    out.integer(sum);
    Ok(())
}

/// `HINCRBYFLOAT key field delta`
pub(crate) fn hincrbyfloat(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let delta = args.at(3);
    // The delta is checked first, because Redis's error for a wrong delta differs from the error for a wrong
    // old value.
    add_decimals(b"0", delta).map_err(|error| match error {
        FloatError::Invalid => "ERR value is not a valid float",
        FloatError::Infinite => "ERR value is NaN or Infinity",
    })?;
    let old = value_of(data, args)?.unwrap_or_else(|| b"0".to_vec());
    let sum = add_decimals(&old, delta).map_err(|error| match error {
        FloatError::Invalid => "ERR hash value is not a float",
        FloatError::Infinite => "ERR increment would produce NaN or Infinity",
    })?;
    put_number(data, args, &sum, "hincrbyfloat")?;
    out.bulk(&sum);
    Ok(())
}

/// `HRANDFIELD key [count [WITHVALUES]]`
pub(crate) fn hrandfield(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if args.len() == 2 {
        let hash = source(data, args)?;
        match hash
            .as_ref()
            .and_then(|hash| hash.random(fastrand::u64(..)))
        {
            Some(entry) => out.bulk(&entry.key()),
            None => out.null(),
        }
        return Ok(());
    }
    let mut count = count_arg(args.at(2))?;
    let values = args.len() == 4 && args.at(3).eq_ignore_ascii_case(b"WITHVALUES");
    if args.len() > 3 && !values {
        return Err(SYNTAX.into());
    }
    if values {
        count = count_arg_of_pairs(count)?;
    }
    let Some(hash) = source(data, args)? else {
        out.array(0);
        return Ok(());
    };
    let draws = Draws {
        count,
        parts: if values { 2 } else { 1 },
    };
    super::keys::sample::reply(data, &hash, draws, out, |out, entry| {
        out.bulk(&entry.key());
        if values {
            out.bulk(&entry.value());
        }
    })
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count]`
pub(crate) fn hscan(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    scan_elements(data, args, out, Shape::Hash, |out, entry| {
        out.bulk(&entry.key());
        out.bulk(&entry.value());
    })
}
