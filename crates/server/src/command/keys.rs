//! Keys, whatever they hold.

use super::Data;
use crate::engine::Abort;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

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
