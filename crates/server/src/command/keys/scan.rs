//! Looking through the keys of a database: SCAN, KEYS, RANDOMKEY.
//!
//! A cursor is a partition and a place in the order of the keys' hashes. Neither growth nor a
//! restart changes that order. So a key that exists during the whole scan is returned, and a cursor
//! is still valid after a restart. A call looks at a limited number of places, and many of them may have
//! no key. It then returns the keys found so far, perhaps none.

use crate::command::flag::{DANGEROUS, READ};
use crate::command::keys::cursor::{ScanOptions, parse_cursor};
use crate::command::spec::{Command, Keys as Named, data};
use crate::command::steps::Keys;
use crate::command::{Data, Done, Stop};
use crate::engine::scan_places;
use crate::engine::types::type_name;
use crate::glob;
use crate::number::push_u64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("keys", 2, READ | DANGEROUS, Named::All, keys),
    data("randomkey", 1, READ, Named::All, randomkey),
    data("scan", -2, READ, Named::All, scan),
];

/// The greatest number of rows that are read from a partition at once.
const STRIDE: usize = 1024;

/// `SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]`
fn scan(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let mut cursor = parse_cursor(args.at(1))?;
    let options = ScanOptions::parse(args, 2, true)?;
    if data.is_long(to_u64(options.count)) {
        data.heavy(to_u64(options.count).min(data.tx.len(data.table)?))?;
    }
    let (mut looked, mut count) = (0, 0usize);
    let mut places = scan_places(options.count);
    let mut found = Vec::new();
    let mut inner = Out::new(&mut found, out.resp3);
    loop {
        let stride = STRIDE.min(options.count - looked);
        let table = data.table;
        let (rows, next) = data
            .tx
            .scan_keys_within(table, cursor, stride, &mut places)?;
        looked += rows.len();
        for row in rows {
            let key = row.key();
            let kind = type_name(&row).as_bytes();
            let wanted = options.kind.is_none_or(|k| k.eq_ignore_ascii_case(kind));
            if wanted && options.matches(&key) {
                inner.bulk(&key);
                count += 1;
            }
        }
        data.check_reply(inner.buf.len())?;
        cursor = next;
        if cursor == 0 || looked >= options.count || places == 0 {
            break;
        }
    }
    out.array(2);
    let mut digits = Vec::new();
    push_u64(&mut digits, cursor);
    out.bulk(&digits);
    out.array(count);
    out.buf.extend_from_slice(&found);
    Ok(())
}

/// `KEYS pattern`
fn keys(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if data.is_long(data.tx.len(data.table)?) {
        return Err(Stop::Long(Box::new(Keys::new(data.table))));
    }
    let (mut cursor, mut count) = (0, 0usize);
    let mut found = Vec::new();
    let mut inner = Out::new(&mut found, out.resp3);
    loop {
        let (rows, next) = data.tx.scan_keys(data.table, cursor, STRIDE)?;
        for row in rows {
            let key = row.key();
            if args.at(1) == b"*" || glob::matches(args.at(1), &key) {
                inner.bulk(&key);
                count += 1;
            }
        }
        data.check_reply(inner.buf.len())?;
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    out.array(count);
    out.buf.extend_from_slice(&found);
    Ok(())
}

/// `RANDOMKEY`
fn randomkey(data: &mut Data<'_, '_>, _: &Args<'_>, out: &mut Out<'_>) -> Done {
    match data.tx.random_key(data.table, fastrand::u64(..))? {
        Some(row) => out.bulk(&row.key()),
        None => out.null(),
    }
    Ok(())
}
