//! Sorted sets: popping members at an end.

use crate::command::event::Class;
use crate::command::flag::{FAST, WRITE};
use crate::command::lists::moves::FromSeveral;
use crate::command::lists::shrunk;
use crate::command::spec::{Command, ONE, data};
use crate::command::zsets::reply_scored;
use crate::command::{Data, Done, Keys, NOT_POSITIVE, SYNTAX, Stop};
use crate::engine::End;
use crate::engine::types::number::parse_i64;
use crate::engine::types::zset;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data(
        "zmpop",
        -4,
        WRITE,
        Keys::Counted { at: 1, dest: false },
        zmpop,
    ),
    data("zpopmax", -2, WRITE | FAST, ONE, zpopmax),
    data("zpopmin", -2, WRITE | FAST, ONE, zpopmin),
];

/// Returns the name of the event of a pop at this end.
fn event(end: End) -> &'static str {
    match end {
        End::Front => "zpopmin",
        End::Back => "zpopmax",
    }
}

fn pop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, end: End) -> Done {
    let key = args.at(1);
    let count = match args.len() {
        2 => None,
        3 => {
            let count = parse_i64(args.at(2)).and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or(NOT_POSITIVE)?)
        }
        _ => return Err(SYNTAX.into()),
    };
    data.heavy_in(key, count.unwrap_or(1))?;
    let popped = zset::pop(data.tx, data.table, key, end, count.unwrap_or(1))?;
    let Some((members, left)) = popped.filter(|(members, _)| !members.is_empty()) else {
        out.array(0);
        return Ok(());
    };
    match members.first() {
        Some((member, score)) if count.is_none() => {
            out.array(2);
            out.bulk(member);
            out.double(*score);
        }
        _ => reply_scored(out, members.iter().map(|(member, score)| (member, *score))),
    }
    shrunk(data, Class::SortedSet, event(end), key, left);
    Ok(())
}

/// `ZPOPMIN key [count]`
fn zpopmin(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    pop(data, args, out, End::Front)
}

/// `ZPOPMAX key [count]`
fn zpopmax(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    pop(data, args, out, End::Back)
}

/// Pops the member at an end of the first sorted set that exists. Returns false if no sorted set
/// exists.
pub(crate) fn pop_first<'k>(
    data: &mut Data<'_, '_>,
    keys: impl Iterator<Item = &'k [u8]>,
    out: &mut Out<'_>,
    end: End,
) -> Result<bool, Stop> {
    for key in keys {
        let Some((members, left)) = zset::pop(data.tx, data.table, key, end, 1)? else {
            continue;
        };
        out.array(3);
        out.bulk(key);
        for (member, score) in &members {
            out.bulk(member);
            out.double(*score);
        }
        shrunk(data, Class::SortedSet, event(end), key, left);
        return Ok(true);
    }
    Ok(false)
}

/// Reads the word for an end of a sorted set.
pub(crate) fn end(word: &[u8]) -> Option<End> {
    if word.eq_ignore_ascii_case(b"MIN") {
        Some(End::Front)
    } else if word.eq_ignore_ascii_case(b"MAX") {
        Some(End::Back)
    } else {
        None
    }
}

/// Pops members of the first sorted set that exists. Returns false if no sorted set exists.
pub(crate) fn pop_several(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    several: &FromSeveral<'_>,
) -> Result<bool, Stop> {
    let end = end(several.word).ok_or(SYNTAX)?;
    for key in several.keys.clone().map(|at| args.at(at)) {
        data.heavy_in(key, several.count)?;
        let Some((members, left)) = zset::pop(data.tx, data.table, key, end, several.count)? else {
            continue;
        };
        out.array(2);
        out.bulk(key);
        out.array(members.len());
        for (member, score) in &members {
            out.array(2);
            out.bulk(member);
            out.double(*score);
        }
        shrunk(data, Class::SortedSet, event(end), key, left);
        return Ok(true);
    }
    Ok(false)
}

/// `ZMPOP numkeys key [key …] MIN|MAX [COUNT count]`
fn zmpop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let several = FromSeveral::parse(args, 1, |word| end(word).is_some())?;
    if !pop_several(data, args, out, &several)? {
        out.null_array();
    }
    Ok(())
}
