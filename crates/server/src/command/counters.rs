//! Counters: strings that hold a number. They keep their expiry.

use super::strings::integer_arg;
use super::{Data, NOT_INTEGER};
use crate::engine::Abort;
use crate::number::{FloatError, add_decimals, parse_i64, push_i64};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

type Done = Result<(), Abort>;

fn add(data: &mut Data<'_, '_>, key: &[u8], delta: i64, out: &mut Out<'_>) -> Done {
    let (old, expiry) = match data.tx.get(data.table, key)? {
        Some(row) => (row.value_slice().and_then(parse_i64), row.expiry_ms()),
        None => (Some(0), None),
    };
    let Some(old) = old else {
        out.error(NOT_INTEGER);
        return Ok(());
    };
    let Some(new) = old.checked_add(delta) else {
        out.error("ERR increment or decrement would overflow");
        return Ok(());
    };
    let start = out.buf.len();
    push_i64(out.buf, new);
    // The reply's digits are the value: written from there, then made a reply.
    let put = data.tx.put(data.table, key, &out.buf[start..], expiry);
    out.buf.truncate(start);
    put?;
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
    match data.tx.get(data.table, args.at(1))? {
        Some(row) => {
            row.copy_value(&mut old);
            expiry = row.expiry_ms();
        }
        None => old.push(b'0'),
    }
    match add_decimals(&old, args.at(2)) {
        Ok(sum) => {
            data.tx.put(data.table, args.at(1), &sum, expiry)?;
            out.bulk(&sum);
        }
        Err(FloatError::Invalid) => out.error("ERR value is not a valid float"),
        Err(FloatError::Infinite) => out.error("ERR increment would produce NaN or Infinity"),
    }
    Ok(())
}
