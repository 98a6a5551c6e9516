//! Keys, whatever they hold.

use super::{Data, SYNTAX};
use crate::engine::Abort;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use std::ops::Range;

type Done = Result<(), Abort>;

/// `DEL key [key …]`, and UNLINK, which differs only where freeing takes long.
pub(crate) fn del(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let mut count = 0;
    for key in args.from(1) {
        count += i64::from(data.tx.delete(data.table, key)?);
    }
    out.integer(count);
    Ok(())
}

/// `EXISTS key [key …]`: a key named twice counts twice. TOUCH answers the same.
pub(crate) fn exists(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let mut count = 0;
    for key in args.from(1) {
        let found = data.tx.get(data.table, key)?.is_some();
        data.looked_up(found);
        count += i64::from(found);
    }
    out.integer(count);
    Ok(())
}

/// `TYPE key`
pub(crate) fn kind(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let found = data.tx.get(data.table, args.at(1))?.is_some();
    out.simple(if found { "string" } else { "none" });
    Ok(())
}

/// `DBSIZE`
pub(crate) fn dbsize(data: &mut Data<'_, '_>, _: &Args<'_>, out: &mut Out<'_>) -> Done {
    out.count(data.tx.len(data.table)?);
    Ok(())
}

/// `FLUSHDB [ASYNC|SYNC]`: both free what was there in the background.
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
        out.error(SYNTAX);
        return Ok(());
    }
    databases.try_for_each(|database| data.flush(database))?;
    out.ok();
    Ok(())
}
