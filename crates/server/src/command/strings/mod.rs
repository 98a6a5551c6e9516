//! Strings: SET and its relatives.

pub(crate) mod bitfield;
pub(crate) mod bits;
pub(crate) mod counters;
pub(crate) mod lcs;
pub(crate) mod ranges;

use super::event::Class;
use super::flag::{DENY_OOM, FAST, READ, WRITE};
use super::keys::expiry::{Deadline, deadline_option};
use super::spec::{Command, EACH, ONE, PAIRS, data};
use super::steps::{Destination, Given, Origin, Reading, Writing};
use super::strings::ranges::write_over;
use super::{Data, Done, NOT_INTEGER, SYNTAX, Stop, TOO_LONG, wrong_arity};
use crate::ahead::AHEAD_KEYS;
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("append", 3, WRITE | DENY_OOM | FAST, ONE, append),
    data("get", 2, READ | FAST, ONE, get),
    data("getdel", 2, WRITE | FAST, ONE, getdel),
    data("getex", -2, WRITE | FAST, ONE, getex),
    data("getset", 3, WRITE | DENY_OOM | FAST, ONE, getset),
    data("mget", -2, READ | FAST, EACH, mget),
    data("mset", -3, WRITE | DENY_OOM, PAIRS, mset),
    data("msetnx", -3, WRITE | DENY_OOM, PAIRS, msetnx),
    data("psetex", 4, WRITE | DENY_OOM, ONE, psetex),
    data("set", -3, WRITE | DENY_OOM, ONE, set),
    data("setex", 4, WRITE | DENY_OOM, ONE, setex),
    data("setnx", 3, WRITE | DENY_OOM | FAST, ONE, setnx),
    data("strlen", 2, READ | FAST, ONE, strlen),
];

/// Appends the value of a row as a reply.
macro_rules! reply_row {
    ($out:expr, $row:expr) => {
        match $row.value_slice() {
            Some(value) => $out.bulk(value),
            None => {
                $out.bulk_head($row.value_len());
                $row.copy_value($out.buf);
                $out.end();
            }
        }
    };
}

/// Replies with the value of `key`, or with null. Returns `None` if the key does not exist, and otherwise the
/// key's expiry.
fn reply_value(
    data: &mut Data<'_, '_>,
    key: &[u8],
    out: &mut Out<'_>,
) -> Result<Option<Option<u64>>, Stop> {
    let found = match data.string(key)? {
        Some(row) => {
            reply_row!(out, row);
            Some(row.expiry_ms())
        }
        None => {
            out.null();
            None
        }
    };
    data.looked_up(found.is_some());
    Ok(found)
}

/// Writes an argument as the string of a key, with an expiry. If the expiry has already passed, the
/// key is deleted.
fn write(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    value: usize,
    expiry: Option<u64>,
    out: &Out<'_>,
) -> Done {
    let key = args.at(1);
    if expiry.is_some_and(|at| at <= data.tx.now_ms()) {
        // Observers see, as in Redis, that the key is written and that it has expired at once.
        data.tx.delete(data.table, key)?;
        data.changed(Class::String, "set", key);
        data.changed(Class::Generic, "expire", key);
        data.changed(Class::Expired, "expired", key);
        return Ok(());
    }
    put(data, args, value, expiry, out)?;
    if expiry.is_some() {
        data.changed(Class::Generic, "expire", key);
    }
    Ok(())
}

/// Writes an argument as the string of the first argument's key, whatever the key held before.
fn put(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    value: usize,
    expiry: Option<u64>,
    out: &Out<'_>,
) -> Done {
    let key = args.at(1);
    if !data.name_text(data.database, key, expiry)? {
        let destination = Destination {
            database: data.database,
            key: 1,
        };
        let origin = Origin::Given(0, Given::Arg(value));
        Writing::if_long(data, args, destination, origin, out.resp3)?;
        data.tx.put(data.table, key, args.at(value), expiry)?;
    }
    data.changed(Class::String, "set", key);
    Ok(())
}

/// `GET key`
pub(crate) fn get(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let found = data.string(args.at(1))?;
    let is_found = found.is_some();
    match found.map(|row| (row.value_slice(), row)) {
        None => out.null(),
        Some((Some(value), _)) => out.bulk(value),
        Some((None, row)) => {
            let reading = Reading::bytes(&row, 0..row.value_len());
            return reading.counted().run(data, args, out);
        }
    }
    data.looked_up(is_found);
    Ok(())
}

#[derive(Default)]
struct ValueOptions {
    only_new: bool,
    only_old: bool,
    reply_old: bool,
    keep_expiry: bool,
    drop_expiry: bool,
    deadline: Option<Deadline>,
}

/// Reads the options, beginning at argument `at`. The options about writing are accepted only if the command
/// `writes`, as SET does.
fn value_options(args: &Args<'_>, mut at: usize, writes: bool) -> Option<ValueOptions> {
    let mut options = ValueOptions::default();
    while at < args.len() {
        let word = args.at(at);
        let free = options.deadline.is_none();
        if word.eq_ignore_ascii_case(b"PERSIST") && free && !writes {
            options.drop_expiry = true;
        } else if word.eq_ignore_ascii_case(b"NX") && !options.only_old && writes {
            options.only_new = true;
        } else if word.eq_ignore_ascii_case(b"XX") && !options.only_new && writes {
            options.only_old = true;
        } else if word.eq_ignore_ascii_case(b"GET") && writes {
            options.reply_old = true;
        } else if word.eq_ignore_ascii_case(b"KEEPTTL") && free && writes {
            options.keep_expiry = true;
        } else {
            let kind = deadline_option(word)?;
            let same = options.deadline.as_ref().is_none_or(|d| d.kind == kind);
            let fixed = options.keep_expiry || options.drop_expiry;
            if fixed || !same || at + 1 == args.len() {
                return None;
            }
            at += 1;
            options.deadline = Some(Deadline { kind, arg: at });
        }
        at += 1;
    }
    Some(options)
}

/// `SET key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]`
pub(crate) fn set(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (key, value) = (args.at(1), args.at(2));
    if value.len() > data.value_bytes_max {
        return Err(TOO_LONG.into());
    }
    if args.len() == 3 {
        put(data, args, 2, None, out)?;
        out.ok();
        return Ok(());
    }
    let Some(options) = value_options(args, 3, true) else {
        return Err(SYNTAX.into());
    };
    let mut expiry = None;
    if let Some(deadline) = &options.deadline {
        match deadline.resolve(args, data.tx.now_ms(), "set") {
            Ok(at) => expiry = Some(at),
            Err(error) => {
                return Err(error.into());
            }
        }
    }
    let old = if options.reply_old {
        reply_value(data, key, out)?
    } else if options.only_new || options.only_old || options.keep_expiry {
        data.tx.get(data.table, key)?.map(|row| row.expiry_ms())
    } else {
        None
    };
    if (options.only_new && old.is_some()) || (options.only_old && old.is_none()) {
        if !options.reply_old {
            out.null();
        }
        return Ok(());
    }
    if options.keep_expiry {
        expiry = old.flatten();
    }
    if options.keep_expiry {
        put(data, args, 2, expiry, out)?;
    } else {
        write(data, args, 2, expiry, out)?;
    }
    if !options.reply_old {
        out.ok();
    }
    Ok(())
}

/// `SETNX key value`
pub(crate) fn setnx(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if args.at(2).len() > data.value_bytes_max {
        return Err(TOO_LONG.into());
    }
    let absent = data.tx.get(data.table, args.at(1))?.is_none();
    if absent {
        put(data, args, 2, None, out)?;
    }
    out.integer(i64::from(absent));
    Ok(())
}

fn set_with_ttl(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    option: &[u8],
    name: &str,
) -> Done {
    if args.at(3).len() > data.value_bytes_max {
        return Err(TOO_LONG.into());
    }
    let Some(kind) = deadline_option(option) else {
        return Err(SYNTAX.into());
    };
    let at = (Deadline { kind, arg: 2 }).resolve(args, data.tx.now_ms(), name)?;
    write(data, args, 3, Some(at), out)?;
    out.ok();
    Ok(())
}

/// `SETEX key seconds value`
pub(crate) fn setex(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    set_with_ttl(data, args, out, b"EX", "setex")
}

/// `PSETEX key milliseconds value`
pub(crate) fn psetex(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    set_with_ttl(data, args, out, b"PX", "psetex")
}

/// `GETSET key value`
pub(crate) fn getset(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if args.at(2).len() > data.value_bytes_max {
        return Err(TOO_LONG.into());
    }
    reply_value(data, args.at(1), out)?;
    put(data, args, 2, None, out)
}

/// `GETDEL key`
pub(crate) fn getdel(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if reply_value(data, args.at(1), out)?.is_some() {
        data.tx.delete(data.table, args.at(1))?;
        data.changed(Class::Generic, "del", args.at(1));
    }
    Ok(())
}

/// `GETEX key [EX s|PX ms|EXAT s|PXAT ms|PERSIST]`
pub(crate) fn getex(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let key = args.at(1);
    let Some(options) = value_options(args, 2, false) else {
        return Err(SYNTAX.into());
    };
    let start = out.buf.len();
    let Some(before) = reply_value(data, key, out)? else {
        return Ok(());
    };
    let mut expiry = None;
    if let Some(deadline) = &options.deadline {
        match deadline.resolve(args, data.tx.now_ms(), "getex") {
            Ok(at) => expiry = Some(at),
            Err(error) => {
                out.buf.truncate(start);
                return Err(error.into());
            }
        }
    }
    match expiry {
        Some(at) if at <= data.tx.now_ms() => {
            data.tx.delete(data.table, key)?;
            data.changed(Class::Generic, "del", key);
        }
        Some(_) => {
            data.tx.set_expiry(data.table, key, expiry)?;
            data.changed(Class::Generic, "expire", key);
        }
        None if options.drop_expiry && before.is_some() => {
            data.tx.set_expiry(data.table, key, None)?;
            data.changed(Class::Generic, "persist", key);
        }
        None => {}
    }
    Ok(())
}

/// `STRLEN key`
pub(crate) fn strlen(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let len = data.string(args.at(1))?.map(|row| row.value_len());
    data.looked_up(len.is_some());
    out.count(u64::try_from(len.unwrap_or(0)).unwrap_or(u64::MAX));
    Ok(())
}

/// `APPEND key value`
pub(crate) fn append(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (key, piece) = (args.at(1), args.at(2));
    let old = data.string(key)?.map_or(0, |row| row.value_len());
    if old + piece.len() > data.value_bytes_max {
        return Err(TOO_LONG.into());
    }
    let bytes = write_over(data, args, old, Given::Arg(2), out)?;
    data.changed(Class::String, "append", key);
    out.count(u64::try_from(bytes).unwrap_or(u64::MAX));
    Ok(())
}

/// `MGET key [key …]`
pub(crate) fn mget(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let start = out.buf.len();
    out.array(args.len() - 1);
    for (at, key) in (1..).zip(args.from(1)) {
        if at % AHEAD_KEYS == 1 {
            data.look_ahead(args.from(at));
        }
        // MGET treats a key of another type as absent.
        match reply_value(data, key, out) {
            Err(Stop::Error(_)) => out.null(),
            done => _ = done?,
        }
        data.check_reply(out.buf.len() - start)?;
    }
    Ok(())
}

/// Returns whether the arguments of MSET or MSETNX are complete pairs and within the limits. If
/// not, replies with the error.
fn check_pairs(data: &Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, name: &str) -> bool {
    if args.len().is_multiple_of(2) {
        out.error(&wrong_arity(name));
        return false;
    }
    if args
        .from(2)
        .step_by(2)
        .any(|value| value.len() > data.value_bytes_max)
    {
        out.error(TOO_LONG);
        return false;
    }
    true
}

fn put_pairs(data: &mut Data<'_, '_>, args: &Args<'_>) -> Done {
    data.tx.expect_rows(args.len() / 2, args.extent())?;
    for at in (1..args.len()).step_by(2) {
        if at % (2 * AHEAD_KEYS) == 1 {
            data.look_ahead(args.from(at).step_by(2));
        }
        let (key, value) = (args.at(at), args.at(at + 1));
        data.tx.put(data.table, key, value, None)?;
        data.changed(Class::String, "set", key);
    }
    Ok(())
}

/// `MSET key value [key value …]`
pub(crate) fn mset(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if check_pairs(data, args, out, "mset") {
        put_pairs(data, args)?;
        out.ok();
    }
    Ok(())
}

/// `MSETNX key value [key value …]`: sets no key if one of the keys exists.
pub(crate) fn msetnx(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if !check_pairs(data, args, out, "msetnx") {
        return Ok(());
    }
    for key in args.from(1).step_by(2) {
        if data.tx.get(data.table, key)?.is_some() {
            out.integer(0);
            return Ok(());
        }
    }
    put_pairs(data, args)?;
    out.integer(1);
    Ok(())
}

/// Reads an integer argument, or replies with the error.
pub(crate) fn integer_arg(arg: &[u8], out: &mut Out<'_>) -> Option<i64> {
    let value = parse_i64(arg);
    if value.is_none() {
        out.error(NOT_INTEGER);
    }
    value
}
