//! Sets: all commands except intersections, unions and differences.

pub(crate) mod joins;

use super::event::Class;
use super::flag::{DENY_OOM, FAST, READ, WRITE};
use super::keys::cursor::{count_arg, scan_elements};
use super::keys::sample::Draws;
use super::spec::{Command, ONE, TWO, data};
use super::steps::{Parts, Walk, Whole};
use super::{Data, Done, SYNTAX, Stop};
use crate::engine::types::{Left, open, set};
use crate::engine::{Shape, Source};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_usize;

const SEES: u32 = READ | FAST;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("sadd", -3, WRITE | DENY_OOM | FAST, ONE, sadd),
    data("scard", 2, SEES, ONE, scard),
    data("sismember", 3, SEES, ONE, sismember),
    data("smembers", 2, READ, ONE, smembers),
    data("smismember", -3, SEES, ONE, smismember),
    data("smove", 4, WRITE | FAST, TWO, smove),
    data("spop", -2, WRITE | FAST, ONE, spop),
    data("srandmember", -2, READ, ONE, srandmember),
    data("srem", -3, WRITE | FAST, ONE, srem),
    data("sscan", -3, READ, ONE, sscan),
];

fn source<'d>(data: &'d Data<'_, '_>, args: &Args<'_>) -> Result<Option<Source<'d>>, Stop> {
    data.collection(args.at(1), Shape::Set)
}

/// `SADD key member [member …]`
pub(crate) fn sadd(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let added = set::add(data.tx, data.table, args.at(1), args.from(2))?;
    if added > 0 {
        data.changed(Class::Set, "sadd", args.at(1));
    }
    out.count(added);
    Ok(())
}

/// Records the event that members were removed. If no member is left, records the key's removal as well.
fn note_removal(data: &mut Data<'_, '_>, event: &'static str, key: &[u8], left: Left) {
    data.changed(Class::Set, event, key);
    if left == Left::Nothing {
        data.changed(Class::Generic, "del", key);
    }
}

/// `SREM key member [member …]`
pub(crate) fn srem(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (removed, left) = set::remove(data.tx, data.table, args.at(1), args.from(2))?;
    if removed > 0 {
        note_removal(data, "srem", args.at(1), left);
    }
    out.count(removed);
    Ok(())
}

/// `SCARD key`
pub(crate) fn scard(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    out.count(source(data, args)?.map_or(0, |set| set.len()));
    Ok(())
}

/// `SISMEMBER key member`
pub(crate) fn sismember(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let found = source(data, args)?.is_some_and(|set| set.find(args.at(2)).is_some());
    out.integer(i64::from(found));
    Ok(())
}

/// `SMISMEMBER key member [member …]`
pub(crate) fn smismember(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let set = source(data, args)?;
    out.array(args.len() - 2);
    for member in args.from(2) {
        let found = set.as_ref().is_some_and(|set| set.find(member).is_some());
        out.integer(i64::from(found));
    }
    Ok(())
}

/// Replies with every member.
pub(super) fn reply_members(
    data: &Data<'_, '_>,
    set: Option<&Source<'_>>,
    out: &mut Out<'_>,
) -> Done {
    let start = out.buf.len();
    out.set(set.map_or(0, |set| usize::try_from(set.len()).unwrap_or(usize::MAX)));
    for entry in set.into_iter().flat_map(Source::iter) {
        out.bulk(&entry.key());
        data.check_reply(out.buf.len() - start)?;
    }
    Ok(())
}

/// `SMEMBERS key`
pub(crate) fn smembers(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let set = source(data, args)?;
    if let Some(set) = set.as_ref().filter(|set| data.is_long(set.len())) {
        let walk = Walk::all(Shape::Set, set.len());
        let work = Whole::new(walk, Parts::Members, out.resp3);
        return Err(Stop::Long(Box::new(work)));
    }
    reply_members(data, set.as_ref(), out)
}

/// `SPOP key [count]`
pub(crate) fn spop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if args.len() > 3 {
        return Err(SYNTAX.into());
    }
    let count = if args.len() == 3 {
        let count = parse_i64(args.at(2)).and_then(|count| u64::try_from(count).ok());
        Some(count.ok_or("ERR value is out of range, must be positive")?)
    } else {
        None
    };
    let key = args.at(1);
    let Some(set) = set::source(data.tx, data.table, key)? else {
        if count.is_some() {
            out.set(0);
        } else {
            out.null();
        }
        return Ok(());
    };
    let few = count.unwrap_or(1).min(set.len());
    data.heavy(few)?;
    data.tx.expect_removals(to_usize(few))?;
    let Some(set) = set::source(data.tx, data.table, key)? else {
        return Ok(());
    };
    let (start, all) = (out.buf.len(), count.is_some_and(|count| count >= set.len()));
    let popped: Vec<Vec<u8>> = if all {
        reply_members(data, Some(&set), out)?;
        Vec::new()
    } else {
        let drawn = set.sample(count.unwrap_or(1), |below| fastrand::u64(..below));
        drawn.iter().map(|entry| entry.key().to_vec()).collect()
    };
    if all {
        data.tx.delete(data.table, key)?;
        note_removal(data, "spop", key, Left::Nothing);
        return Ok(());
    }
    if count.is_some() {
        out.set(popped.len());
    }
    for member in &popped {
        out.bulk(member);
        data.check_reply(out.buf.len() - start)?;
    }
    if !popped.is_empty() {
        let members = popped.iter().map(Vec::as_slice);
        let (_, left) = set::remove(data.tx, data.table, key, members)?;
        note_removal(data, "spop", key, left);
    }
    Ok(())
}

/// `SRANDMEMBER key [count]`
pub(crate) fn srandmember(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    match args.len() {
        2 => {
            let set = source(data, args)?;
            match set.as_ref().and_then(|set| set.random(fastrand::u64(..))) {
                Some(entry) => out.bulk(&entry.key()),
                None => out.null(),
            }
            Ok(())
        }
        3 => {
            let count = count_arg(args.at(2))?;
            match source(data, args)? {
                Some(set) => {
                    let draws = Draws { count, parts: 1 };
                    super::keys::sample::reply(data, &set, draws, out, |out, entry| {
                        out.bulk(&entry.key());
                    })
                }
                None => {
                    out.array(0);
                    Ok(())
                }
            }
        }
        _ => Err(SYNTAX.into()),
    }
}

/// `SMOVE from to member`
pub(crate) fn smove(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (from, to, member) = (args.at(1), args.at(2), args.at(3));
    let Some(row) = data.tx.get(data.table, from)? else {
        out.integer(0);
        return Ok(());
    };
    let there = open::source(data.tx, data.table, row, Shape::Set)?
        .find(member)
        .is_some();
    set::source(data.tx, data.table, to)?;
    if there && from != to {
        let (_, left) = set::remove(data.tx, data.table, from, [member])?;
        note_removal(data, "srem", from, left);
        if set::add(data.tx, data.table, to, [member])? > 0 {
            data.changed(Class::Set, "sadd", to);
        }
    }
    out.integer(i64::from(there));
    Ok(())
}

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`
pub(crate) fn sscan(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    scan_elements(data, args, out, Shape::Set, |out, entry| {
        out.bulk(&entry.key());
    })
}
