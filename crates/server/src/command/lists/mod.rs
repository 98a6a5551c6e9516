//! Lists: pushing, popping, and access to items in between.

pub(crate) mod moves;
pub(crate) mod waits;

use super::event::Class;
use super::flag::{DENY_OOM, FAST, READ, WRITE};
use super::spec::{Command, ONE, data};
use super::steps::{Parts, Pushing, Walk, Whole};
use super::{Data, Done, NOT_INTEGER, NOT_POSITIVE, SYNTAX, Stop, wrong_arity};
use crate::engine::types::Left;
use crate::engine::types::list;
use crate::engine::types::number::parse_i64;
use crate::engine::{End, Shape};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("lindex", 3, READ, ONE, lindex),
    data("linsert", 5, WRITE | DENY_OOM, ONE, linsert),
    data("llen", 2, READ | FAST, ONE, llen),
    data("lpop", -2, WRITE | FAST, ONE, lpop),
    data("lpos", -3, READ, ONE, lpos),
    data("lpush", -3, WRITE | DENY_OOM | FAST, ONE, lpush),
    data("lpushx", -3, WRITE | DENY_OOM | FAST, ONE, lpushx),
    data("lrange", 4, READ, ONE, lrange),
    data("lrem", 4, WRITE, ONE, lrem),
    data("lset", 4, WRITE | DENY_OOM, ONE, lset),
    data("ltrim", 4, WRITE, ONE, ltrim),
    data("rpop", -2, WRITE | FAST, ONE, rpop),
    data("rpush", -3, WRITE | DENY_OOM | FAST, ONE, rpush),
    data("rpushx", -3, WRITE | DENY_OOM | FAST, ONE, rpushx),
];

/// Reads an integer argument.
pub(crate) fn integer(arg: &[u8]) -> Result<i64, Stop> {
    parse_i64(arg).ok_or(Stop::from(NOT_INTEGER))
}

/// Returns the event name of a push to this end of a list.
pub(crate) fn push_event(end: End) -> &'static str {
    match end {
        End::Front => "lpush",
        End::Back => "rpush",
    }
}

/// Returns the event name of a pop from this end of a list.
pub(crate) fn pop_event(end: End) -> &'static str {
    match end {
        End::Front => "lpop",
        End::Back => "rpop",
    }
}

/// Records the event that elements of a key were removed. If no element is left, records the key's removal as well.
pub(crate) fn shrunk(
    data: &mut Data<'_, '_>,
    class: Class,
    name: &'static str,
    key: &[u8],
    left: Left,
) {
    data.changed(class, name, key);
    if left == Left::Nothing {
        data.changed(Class::Generic, "del", key);
    }
}

fn push(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    end: End,
    only_existing: bool,
) -> Done {
    let key = args.at(1);
    if !only_existing
        && let Some(work) = Pushing::new(data, args, end)
        && data.tx.get(data.table, key)?.is_none()
    {
        return Err(Stop::Long(Box::new(work)));
    }
    data.heavy(to_u64(args.len()))?;
    let items = args.from(2);
    let len = list::push(data.tx, data.table, key, end, items, only_existing)?;
    if len > 0 {
        data.changed(Class::List, push_event(end), key);
    }
    out.count(len);
    Ok(())
}

/// `LPUSH key item [item …]`
fn lpush(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    push(data, args, out, End::Front, false)
}

/// `RPUSH key item [item …]`
fn rpush(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    push(data, args, out, End::Back, false)
}

/// `LPUSHX key item [item …]`
fn lpushx(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    push(data, args, out, End::Front, true)
}

/// `RPUSHX key item [item …]`
fn rpushx(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    push(data, args, out, End::Back, true)
}

fn pop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, end: End, name: &str) -> Done {
    let key = args.at(1);
    let count = match args.len() {
        2 => None,
        3 => {
            let count = parse_i64(args.at(2)).and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or(NOT_POSITIVE)?)
        }
        _ => return Err(wrong_arity(name).into()),
    };
    data.heavy_in(key, count.unwrap_or(1))?;
    let Some(count) = count else {
        match list::pop_one(data.tx, data.table, key, end, |item| out.bulk(item))? {
            Some(left) => shrunk(data, Class::List, pop_event(end), key, left),
            None => out.null(),
        }
        return Ok(());
    };
    let Some((items, left)) = list::pop(data.tx, data.table, key, end, count)? else {
        out.null_array();
        return Ok(());
    };
    out.array(items.len());
    items.iter().for_each(|item| out.bulk(item));
    if !items.is_empty() {
        shrunk(data, Class::List, pop_event(end), key, left);
    }
    Ok(())
}

/// `LPOP key [count]`
fn lpop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    pop(data, args, out, End::Front, "lpop")
}

/// `RPOP key [count]`
fn rpop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    pop(data, args, out, End::Back, "rpop")
}

/// `LLEN key`
fn llen(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let list = data.collection(args.at(1), Shape::List)?;
    out.count(list.map_or(0, |list| list.len()));
    Ok(())
}

/// `LINDEX key index`
fn lindex(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let Some(list) = data.collection(args.at(1), Shape::List)? else {
        out.null();
        return Ok(());
    };
    let index = list::from_front(integer(args.at(2))?, list.len());
    match index.and_then(|index| list::at(&list, index)) {
        Some(item) => out.bulk(&item),
        None => out.null(),
    }
    Ok(())
}

/// `LRANGE key start stop`
fn lrange(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (from, to) = (integer(args.at(2))?, integer(args.at(3))?);
    let (start, max) = (out.buf.len(), data.reply_bytes_max);
    let Some(list) = data.collection(args.at(1), Shape::List)? else {
        out.array(0);
        return Ok(());
    };
    let (from, to) = list::stretch(from, to, list.len());
    if data.is_long(to - from) {
        let walk = Walk::ranks(Shape::List, from..to, false);
        let work = Whole::new(walk, Parts::Items, out.resp3);
        return Err(Stop::Long(Box::new(work)));
    }
    out.array(perdura_base::num::to_usize(to - from));
    for item in list::items(&list, from, to) {
        out.bulk(&item);
        if out.buf.len() - start > max {
            break;
        }
    }
    Ok(data.check_reply(out.buf.len() - start)?)
}

/// `LSET key index item`
fn lset(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let key = args.at(1);
    // The key is checked before the index.
    if data.collection(key, Shape::List)?.is_none() {
        return Err("ERR no such key".into());
    }
    let index = integer(args.at(2))?;
    if list::set(data.tx, data.table, key, index, args.at(3))? != Some(true) {
        return Err("ERR index out of range".into());
    }
    data.changed(Class::List, "lset", key);
    out.ok();
    Ok(())
}

/// `LINSERT key BEFORE|AFTER pivot item`
fn linsert(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (key, word) = (args.at(1), args.at(2));
    let before = word.eq_ignore_ascii_case(b"BEFORE");
    if !before && !word.eq_ignore_ascii_case(b"AFTER") {
        return Err(SYNTAX.into());
    }
    data.heavy_in(key, u64::MAX)?;
    let place = (args.at(3), before);
    match list::insert(data.tx, data.table, key, place, args.at(4))? {
        None => out.integer(0),
        Some(None) => out.integer(-1),
        Some(Some(len)) => {
            data.changed(Class::List, "linsert", key);
            out.count(len);
        }
    }
    Ok(())
}

/// `LTRIM key start stop`
fn ltrim(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (from, to) = (integer(args.at(2))?, integer(args.at(3))?);
    let len = data.rows_of(args.at(1))?;
    let stretch = list::stretch(from, to, len);
    data.heavy(len - (stretch.1 - stretch.0))?;
    if let Some(left) = list::trim(data.tx, data.table, args.at(1), from, to)? {
        shrunk(data, Class::List, "ltrim", args.at(1), left);
    }
    out.ok();
    Ok(())
}

/// `LREM key count item`
fn lrem(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let count = integer(args.at(2))?;
    data.heavy_in(args.at(1), u64::MAX)?;
    let (removed, left) = list::remove(data.tx, data.table, args.at(1), count, args.at(3))?;
    if removed > 0 {
        shrunk(data, Class::List, "lrem", args.at(1), left);
    }
    out.count(removed);
    Ok(())
}

/// `LPOS key item [RANK rank] [COUNT count] [MAXLEN len]`
fn lpos(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (mut rank, mut count, mut looked) = (1, None, 0);
    let positive = |arg, error: &'static str| {
        let value = parse_i64(arg).and_then(|value| u64::try_from(value).ok());
        value.ok_or(Stop::from(error))
    };
    for at in (3..args.len()).step_by(2) {
        if at + 1 == args.len() {
            return Err(SYNTAX.into());
        }
        let (word, value) = (args.at(at), args.at(at + 1));
        if word.eq_ignore_ascii_case(b"RANK") {
            rank = integer(value)?;
            if rank == 0 {
                return Err(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from \
                            the second ... or use negative to start from the end of the list"
                        .into(),
                );
            }
        } else if word.eq_ignore_ascii_case(b"COUNT") {
            count = Some(positive(value, "ERR COUNT can't be negative")?);
        } else if word.eq_ignore_ascii_case(b"MAXLEN") {
            looked = positive(value, "ERR MAXLEN can't be negative")?;
        } else {
            return Err(SYNTAX.into());
        }
    }
    data.heavy_in(args.at(1), if looked == 0 { u64::MAX } else { looked })?;
    let found = data
        .collection(args.at(1), Shape::List)?
        .map(|list| list::positions(&list, args.at(2), rank, count.unwrap_or(1), looked));
    let found = found.unwrap_or_default();
    if count.is_some() {
        out.array(found.len());
        found.iter().for_each(|index| out.count(*index));
    } else if let Some(index) = found.first() {
        out.count(*index);
    } else {
        out.null();
    }
    Ok(())
}
