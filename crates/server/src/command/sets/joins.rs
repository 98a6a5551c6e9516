//! Several sets at once: intersections, unions and differences.

use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, READ, WRITE};
use crate::command::spec::{Command, EACH, Keys, data};
use crate::command::steps::{Joined, Joining};
use crate::command::{Data, Done, SYNTAX, Stop};
use crate::engine::Source;
use crate::engine::types::Texts;
use crate::engine::types::set::{self, Join};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// The flags of a command that stores the members it finds.
const STORES: u32 = WRITE | DENY_OOM;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("sdiff", -2, READ, EACH, sdiff),
    data("sdiffstore", -3, STORES, EACH, sdiffstore),
    data("sinter", -2, READ, EACH, sinter),
    data(
        "sintercard",
        -3,
        READ,
        Keys::Counted { at: 1, dest: false },
        sintercard,
    ),
    data("sinterstore", -3, STORES, EACH, sinterstore),
    data("sunion", -2, READ, EACH, sunion),
    data("sunionstore", -3, STORES, EACH, sunionstore),
];

/// Returns the sets of several keys. Fails for a key of a wrong type, even if the value is not needed.
pub(in crate::command) fn sources<'d, 'k>(
    data: &'d Data<'_, '_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<Option<Source<'d>>>, Stop> {
    let find = |key| Ok(set::source(data.tx, data.table, key)?);
    keys.map(find).collect()
}

fn reply_join(data: &Data<'_, '_>, args: &Args<'_>, join: Join, out: &mut Out<'_>) -> Done {
    let start = out.buf.len();
    let sets = sources(data, args.from(1))?;
    let keys = 1..args.len();
    if let Some(work) = Joining::new(data, &sets, join, Joined::Replied, keys) {
        return Err(Stop::Long(Box::new(work)));
    }
    data.heavy(looked_at(&sets))?;
    // The reply begins with the count, which is known only after the last member.
    let (mut count, mut members) = (0, Vec::new());
    let mut inner = Out::new(&mut members, out.resp3);
    set::join(&sets, join, u64::MAX, |member| {
        inner.bulk(&member);
        count += 1;
        Ok(data.check_reply(inner.buf.len())?)
    })?;
    out.set(count);
    out.buf.extend_from_slice(&members);
    Ok(data.check_reply(out.buf.len() - start)?)
}

fn store_join(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    join: Join,
    event: &'static str,
    out: &mut Out<'_>,
) -> Done {
    let mut members = Texts::default();
    let sets = sources(data, args.from(2))?;
    let keys = 2..args.len();
    if let Some(work) = Joining::new(data, &sets, join, Joined::Stored(event), keys) {
        return Err(Stop::Long(Box::new(work)));
    }
    data.heavy(looked_at(&sets))?;
    set::join(&sets, join, u64::MAX, |member| {
        members.push(&member);
        Ok(())
    })?;
    drop(sets);
    store(data, args.at(1), event, &members)?;
    out.count(u64::try_from(members.len()).unwrap_or(u64::MAX));
    Ok(())
}

/// Returns an upper bound on the number of members that a join reads.
fn looked_at(sets: &[Option<Source<'_>>]) -> u64 {
    sets.iter().flatten().map(Source::len).sum()
}

/// Replaces the value of a key by a set. Without members the key is deleted.
pub(in crate::command) fn store(
    data: &mut Data<'_, '_>,
    key: &[u8],
    event: &'static str,
    members: &Texts,
) -> Done {
    let was_there = set::store(data.tx, data.table, key, members.iter())?;
    if !members.is_empty() {
        data.changed(Class::Set, event, key);
    } else if was_there {
        data.changed(Class::Generic, "del", key);
    }
    Ok(())
}

/// `SINTER key [key …]`
pub(crate) fn sinter(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_join(data, args, Join::Intersection, out)
}

/// `SUNION key [key …]`
pub(crate) fn sunion(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_join(data, args, Join::Union, out)
}

/// `SDIFF key [key …]`
pub(crate) fn sdiff(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_join(data, args, Join::Difference, out)
}

/// `SINTERSTORE to key [key …]`
pub(crate) fn sinterstore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    store_join(data, args, Join::Intersection, "sinterstore", out)
}

/// `SUNIONSTORE to key [key …]`
pub(crate) fn sunionstore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    store_join(data, args, Join::Union, "sunionstore", out)
}

/// `SDIFFSTORE to key [key …]`
pub(crate) fn sdiffstore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    store_join(data, args, Join::Difference, "sdiffstore", out)
}

/// Reads two arguments of SINTERCARD and ZINTERCARD: the number of keys at argument 1, and the limit after the keys, 0
/// for no limit.
pub(crate) fn count_and_limit(args: &Args<'_>) -> Result<(usize, u64), Stop> {
    let count = parse_i64(args.at(1)).filter(|count| *count > 0);
    let count = count.ok_or("ERR numkeys should be greater than 0")?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > args.len() - 2 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let (mut limit, mut at) = (0, count + 2);
    while at < args.len() {
        if !args.at(at).eq_ignore_ascii_case(b"LIMIT") || at + 1 == args.len() {
            return Err(SYNTAX.into());
        }
        let wanted = parse_i64(args.at(at + 1)).and_then(|limit| u64::try_from(limit).ok());
        limit = wanted.ok_or("ERR LIMIT can't be negative")?;
        at += 2;
    }
    Ok((count, limit))
}

/// `SINTERCARD numkeys key [key …] [LIMIT limit]`
pub(crate) fn sintercard(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (keys, limit) = count_and_limit(args)?;
    let sets = sources(data, args.from(2).take(keys))?;
    let max = if limit == 0 { u64::MAX } else { limit };
    let mut count = 0;
    let least = sets
        .iter()
        .map(|set| set.as_ref().map_or(0, Source::len))
        .min();
    let looked = least.unwrap_or(0).saturating_mul(to_u64(sets.len()));
    data.heavy(looked)?;
    set::join(&sets, Join::Intersection, max, |_| {
        count += 1;
        Ok(())
    })?;
    out.count(count);
    Ok(())
}
