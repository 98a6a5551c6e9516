//! Counters: strings that hold a number. A change of the number keeps the key's expiry.

use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, FAST, WRITE};
use crate::command::spec::{Command, ONE, data};
use crate::command::strings::integer_arg;
use crate::command::{Data, Done, NOT_INTEGER};
use crate::decimal::{FloatError, add_decimals};
use crate::number::{parse_i64, push_i64};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("decr", 2, WRITE | DENY_OOM | FAST, ONE, decr),
    data("decrby", 3, WRITE | DENY_OOM | FAST, ONE, decrby),
    data("incr", 2, WRITE | DENY_OOM | FAST, ONE, incr),
    data("incrby", 3, WRITE | DENY_OOM | FAST, ONE, incrby),
    data("incrbyfloat", 3, WRITE | DENY_OOM | FAST, ONE, incrbyfloat),
];

fn add(data: &mut Data<'_, '_>, key: &[u8], delta: i64, out: &mut Out<'_>) -> Done {
    let (old, expiry) = match data.string(key)? {
        Some(row) => (row.value_slice().and_then(parse_i64), row.expiry_ms()),
        None => (Some(0), None),
    };
    let Some(old) = old else {
        return Err(NOT_INTEGER.into());
    };
    let Some(new) = old.checked_add(delta) else {
        return Err("ERR increment or decrement would overflow".into());
    };
    let start = out.buf.len();
    push_i64(out.buf, new);
    // The digits in the reply's buffer are the new value. They are written to the key from there,
    // and then removed from the buffer.
    let put = data.tx.put(data.table, key, &out.buf[start..], expiry);
    out.buf.truncate(start);
    put?;
    // The event is the same for INCR, DECR, INCRBY and DECRBY, as in Redis.
    data.changed(Class::String, "incrby", key);
    out.integer(new);
    Ok(())
}

/// `INCR key`
pub(crate) fn incr(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    add(data, args.at(1), 1, out)
}

/// `DECR key`
pub(crate) fn decr(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    add(data, args.at(1), -1, out)
}

/// `INCRBY key delta`
pub(crate) fn incrby(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    match integer_arg(args.at(2), out) {
        Some(delta) => add(data, args.at(1), delta, out),
        None => Ok(()),
    }
}

/// `DECRBY key delta`
pub(crate) fn decrby(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let Some(delta) = integer_arg(args.at(2), out) else {
        return Ok(());
    };
    match delta.checked_neg() {
        Some(delta) => add(data, args.at(1), delta, out),
        None => {
            out.error("ERR decrement would overflow");
            Ok(())
        }
    }
}

/// `INCRBYFLOAT key delta`
pub(crate) fn incrbyfloat(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (mut old, mut expiry) = (Vec::new(), None);
    match data.string(args.at(1))? {
        Some(row) => {
            row.copy_value(&mut old);
            expiry = row.expiry_ms();
        }
        None => old.push(b'0'),
    }
    match add_decimals(&old, args.at(2)) {
        Ok(sum) => {
            data.tx.put(data.table, args.at(1), &sum, expiry)?;
            data.changed(Class::String, "incrbyfloat", args.at(1));
            out.bulk(&sum);
        }
        Err(FloatError::Invalid) => out.error("ERR value is not a valid float"),
        Err(FloatError::Infinite) => out.error("ERR increment would produce NaN or Infinity"),
    }
    Ok(())
}
