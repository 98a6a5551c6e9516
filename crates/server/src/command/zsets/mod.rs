//! Sorted sets: adding, reading and removing members.

pub(crate) mod pops;
pub(crate) mod ranges;
pub(crate) mod sums;

use super::event::Class;
use super::flag::{DENY_OOM, FAST, READ, WRITE};
use super::keys::cursor::{count_arg, count_arg_of_pairs, scan_elements};
use super::keys::sample::Draws;
use super::lists::shrunk;
use super::spec::{Command, ONE, data};
use super::{Data, Done, SYNTAX};
use crate::engine::Shape;
use crate::engine::types::zset::{self, Conditions};
use crate::engine::types::{Source, score};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("zadd", -4, WRITE | DENY_OOM | FAST, ONE, zadd),
    data("zcard", 2, READ | FAST, ONE, zcard),
    data("zincrby", 4, WRITE | DENY_OOM | FAST, ONE, zincrby),
    data("zmscore", -3, READ | FAST, ONE, zmscore),
    data("zrandmember", -2, READ, ONE, zrandmember),
    data("zrank", 3, READ | FAST, ONE, zrank),
    data("zrem", -3, WRITE | FAST, ONE, zrem),
    data("zrevrank", 3, READ | FAST, ONE, zrevrank),
    data("zscan", -3, READ, ONE, zscan),
    data("zscore", 3, READ | FAST, ONE, zscore),
];

/// Redis's text for a malformed score.
pub(crate) const NOT_FLOAT: &str = "ERR value is not a valid float";

/// Appends members with scores: pairs in RESP3, one flat array in RESP2.
pub(crate) fn reply_scored<M: AsRef<[u8]>>(
    out: &mut Out<'_>,
    members: impl ExactSizeIterator<Item = (M, f64)>,
) {
    out.array(if out.resp3 {
        members.len()
    } else {
        members.len() * 2
    });
    for (member, score) in members {
        if out.resp3 {
            out.array(2);
        }
        out.bulk(member.as_ref());
        out.double(score);
    }
}

/// Reads the options of ZADD. Returns the conditions, whether CH is given, and the index of the first score.
fn conditions(args: &Args<'_>, increment: bool) -> (Conditions, bool, usize) {
    let mut conditions = Conditions {
        increment,
        ..Conditions::default()
    };
    let (mut changed, mut at) = (false, 2);
    while at < args.len() {
        let word = args.at(at);
        if word.eq_ignore_ascii_case(b"NX") {
            conditions.only_new = true;
        } else if word.eq_ignore_ascii_case(b"XX") {
            conditions.only_old = true;
        } else if word.eq_ignore_ascii_case(b"GT") {
            conditions.greater = true;
        } else if word.eq_ignore_ascii_case(b"LT") {
            conditions.less = true;
        } else if word.eq_ignore_ascii_case(b"CH") {
            changed = true;
        } else if word.eq_ignore_ascii_case(b"INCR") {
            conditions.increment = true;
        } else {
            break;
        }
        at += 1;
    }
    (conditions, changed, at)
}

/// `ZADD key [NX|XX] [GT|LT] [CH] [INCR] score member [score member …]`
fn zadd(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    add(data, args, out, false)
}

/// `ZINCRBY key increment member`. It would accept ZADD's options, but its number of arguments
/// leaves no room for any.
fn zincrby(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    add(data, args, out, true)
}

fn add(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, increment: bool) -> Done {
    let key = args.at(1);
    let (options, changed, first) = conditions(args, increment);
    let count = args.len() - first;
    if count == 0 || !count.is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if options.only_new && options.only_old {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    let bounds = u8::from(options.greater) + u8::from(options.less) + u8::from(options.only_new);
    if bounds > 1 {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if options.increment && count > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    // Every score is read before anything is written.
    let mut members = Vec::with_capacity(count / 2);
    for at in (first..args.len()).step_by(2) {
        let score = score::parse(args.at(at)).ok_or(NOT_FLOAT)?;
        members.push((args.at(at + 1), score));
    }
    let added = zset::add(data.tx, data.table, key, options, members)?;
    if added.not_a_number {
        return Err("ERR resulting score is not a number (NaN)".into());
    }
    if added.new + added.changed > 0 {
        let event = if options.increment { "zincr" } else { "zadd" };
        data.changed(Class::SortedSet, event, key);
    }
    match added.score {
        Some(score) if options.increment => out.double(score),
        None if options.increment => out.null(),
        _ => out.count(added.new + if changed { added.changed } else { 0 }),
    }
    Ok(())
}

/// `ZCARD key`
fn zcard(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let set = data.collection(args.at(1), Shape::Zset)?;
    out.count(set.map_or(0, |set| set.len()));
    Ok(())
}

fn reply_score(out: &mut Out<'_>, set: Option<&Source<'_>>, member: &[u8]) {
    match set.and_then(|set| set.find(member)) {
        Some(found) => out.double(found.score()),
        None => out.null(),
    }
}

/// `ZSCORE key member`
fn zscore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let set = data.collection(args.at(1), Shape::Zset)?;
    reply_score(out, set.as_ref(), args.at(2));
    Ok(())
}

/// `ZMSCORE key member [member …]`
fn zmscore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let set = data.collection(args.at(1), Shape::Zset)?;
    out.array(args.len() - 2);
    for member in args.from(2) {
        reply_score(out, set.as_ref(), member);
    }
    Ok(())
}

fn reply_rank(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, reverse: bool) -> Done {
    let set = data.collection(args.at(1), Shape::Zset)?;
    let found = set.and_then(|set| {
        let rank = zset::rank(&set, args.at(2))?;
        Some(if reverse { set.len() - 1 - rank } else { rank })
    });
    match found {
        Some(rank) => out.count(rank),
        None => out.null(),
    }
    Ok(())
}

/// `ZRANK key member`
fn zrank(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_rank(data, args, out, false)
}

/// `ZREVRANK key member`
fn zrevrank(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_rank(data, args, out, true)
}

/// `ZREM key member [member …]`
fn zrem(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let key = args.at(1);
    let (removed, left) = zset::remove(data.tx, data.table, key, args.from(2))?;
    if removed > 0 {
        shrunk(data, Class::SortedSet, "zrem", key, left);
    }
    out.count(removed);
    Ok(())
}

/// `ZRANDMEMBER key [count [WITHSCORES]]`
fn zrandmember(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if args.len() == 2 {
        let set = data.collection(args.at(1), Shape::Zset)?;
        let drawn = set.as_ref().and_then(|set| set.random(fastrand::u64(..)));
        match drawn {
            Some(entry) => out.bulk(&entry.key()),
            None => out.null(),
        }
        return Ok(());
    }
    let mut count = count_arg(args.at(2))?;
    let scores = args.len() == 4 && args.at(3).eq_ignore_ascii_case(b"WITHSCORES");
    if args.len() > 3 && !scores {
        return Err(SYNTAX.into());
    }
    if scores {
        count = count_arg_of_pairs(count)?;
    }
    let Some(set) = data.collection(args.at(1), Shape::Zset)? else {
        out.array(0);
        return Ok(());
    };
    let draws = Draws {
        count,
        parts: if scores { 2 } else { 1 },
    };
    super::keys::sample::reply(data, &set, draws, out, |out, entry| {
        out.bulk(&entry.key());
        if scores {
            out.double(entry.score());
        }
    })
}

/// `ZSCAN key cursor [MATCH pattern] [COUNT count]`
fn zscan(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    scan_elements(data, args, out, Shape::Zset, |out, entry| {
        out.bulk(&entry.key());
        // The score is a string in both versions of the protocol.
        let mut text = Vec::with_capacity(24);
        score::push(&mut text, entry.score());
        out.bulk(&text);
    })
}
