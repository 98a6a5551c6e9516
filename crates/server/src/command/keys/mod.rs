//! Keys of any type.

pub(crate) mod cursor;
pub(crate) mod dump;
pub(crate) mod expiry;
pub(crate) mod generic;
pub(crate) mod sample;
pub(crate) mod scan;
pub(crate) mod sort;

use super::Keys;
use super::event::Class;
use super::flag::{DANGEROUS, FAST, READ, WRITE};
use super::spec::{Command, EACH, ONE, data};
use super::{Data, Done, SYNTAX};
use crate::engine::types::type_name;
use crate::engine::{Error, TableId, Tx};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use std::ops::Range;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("dbsize", 1, READ | FAST, Keys::All, dbsize),
    data("del", -2, WRITE, EACH, del),
    data("exists", -2, READ | FAST, EACH, exists),
    data("flushall", -1, WRITE | DANGEROUS, Keys::All, flushall),
    data("flushdb", -1, WRITE | DANGEROUS, Keys::All, flushdb),
    data("touch", -2, READ | FAST, EACH, touch),
    data("type", 2, READ | FAST, ONE, kind),
    data("unlink", -2, WRITE | FAST, EACH, del),
];

/// `DEL key [key …]`, and UNLINK, which is equivalent here.
pub(crate) fn del(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let mut count = 0;
    data.tx.expect_removals(args.len() - 1)?;
    for key in args.from(1) {
        if data.tx.delete(data.table, key)? {
            data.changed(Class::Generic, "del", key);
            count += 1;
        }
    }
    out.integer(count);
    Ok(())
}

/// `EXISTS key [key …]`: a key named twice counts twice.
pub(crate) fn exists(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    count_there(data, args, out, |tx, table, key| {
        Ok(tx.peek(table, key)?.is_some())
    })
}

/// `TOUCH key [key …]`: like EXISTS, but the keys count as used.
fn touch(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    count_there(data, args, out, |tx, table, key| {
        Ok(tx.get(table, key)?.is_some())
    })
}

fn count_there(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    is_there: fn(&Tx<'_>, TableId, &[u8]) -> Result<bool, Error>,
) -> Done {
    let mut count = 0;
    for key in args.from(1) {
        let found = is_there(data.tx, data.table, key)?;
        data.looked_up(found);
        count += i64::from(found);
    }
    out.integer(count);
    Ok(())
}

/// `TYPE key`
pub(crate) fn kind(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let found = data.tx.peek(data.table, args.at(1))?;
    out.simple(found.map_or("none", |row| type_name(&row)));
    Ok(())
}

/// `DBSIZE`
pub(crate) fn dbsize(data: &mut Data<'_, '_>, _: &Args<'_>, out: &mut Out<'_>) -> Done {
    out.count(data.tx.len(data.table)?);
    Ok(())
}

/// `FLUSHDB [ASYNC|SYNC]`: always frees the old contents in the background.
pub(crate) fn flushdb(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    flush(data, args, out, data.database..data.database + 1)
}

/// `FLUSHALL [ASYNC|SYNC]`
pub(crate) fn flushall(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    flush(data, args, out, 0..16)
}

fn flush(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    mut databases: Range<u8>,
) -> Done {
    let known =
        |word: &[u8]| word.eq_ignore_ascii_case(b"ASYNC") || word.eq_ignore_ascii_case(b"SYNC");
    if args.len() > 2 || !args.from(1).all(known) {
        return Err(SYNTAX.into());
    }
    databases.try_for_each(|database| data.flush(database))?;
    out.ok();
    Ok(())
}
