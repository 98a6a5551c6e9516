//! XADD, XTRIM, XDEL, XSETID and XLEN.

use super::{reply_id, strict_id};
use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, FAST, READ, WRITE};
use crate::command::spec::{Command, ONE, data};
use crate::command::{Data, Done, NOT_INTEGER, SYNTAX, Stop, wrong_arity};
use crate::engine::types::number::parse_i64;
use crate::engine::types::stream::{Id, Threshold, Trim, Writing};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("xadd", -5, WRITE | DENY_OOM | FAST, ONE, xadd),
    data("xdel", -3, WRITE | FAST, ONE, xdel),
    data("xlen", 2, READ | FAST, ONE, xlen),
    data("xsetid", -3, WRITE | DENY_OOM | FAST, ONE, xsetid),
    data("xtrim", -4, WRITE, ONE, xtrim),
];

/// The greatest number of entries that approximate trimming (`~`) removes if the request gives no LIMIT.
const ROUGH_LIMIT: u64 = 10_000;

/// The part of an id that the server must choose.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// The whole id.
    Any,
    /// The sequence number within this millisecond.
    Within(u64),
    /// Nothing: the request gives the whole id.
    This(Id),
}

impl Wanted {
    fn parse(text: &[u8]) -> Result<Wanted, Stop> {
        match text {
            b"*" => Ok(Wanted::Any),
            [ms @ .., b'-', b'*'] => Ok(Wanted::Within(strict_id(ms, 0)?.ms)),
            _ => strict_id(text, 0).map(Wanted::This),
        }
    }

    /// Returns the id of a new entry; `None` if it would not be greater than `last`.
    fn choose(self, last: Id, now_ms: u64) -> Option<Id> {
        let at = |ms| Id { ms, seq: 0 };
        let id = match self {
            Wanted::Any if now_ms > last.ms => at(now_ms),
            Wanted::Any => last.next()?,
            Wanted::Within(ms) if ms == last.ms => Id {
                ms,
                seq: last.seq.checked_add(1)?,
            },
            Wanted::Within(ms) => at(ms),
            Wanted::This(id) => id,
        };
        (id > last).then_some(id)
    }
}

/// The options of XADD and XTRIM.
struct Options {
    trim: Option<Trim>,
    only_existing: bool,
    /// The index of the first argument after the options. For XADD this argument is the id, if there is one.
    end: usize,
    wanted: Option<Wanted>,
}

fn options(args: &Args<'_>, adds: bool) -> Result<Options, Stop> {
    let mut options = Options {
        trim: None,
        only_existing: false,
        end: args.len(),
        wanted: None,
    };
    let (mut limit, mut at) = (None, 2);
    while at < args.len() {
        let (word, more) = (args.at(at), args.len() - 1 - at);
        let is = |known: &[u8]| word.eq_ignore_ascii_case(known);
        if adds && word == b"*" {
            options.wanted = Some(Wanted::Any);
            options.end = at;
            break;
        } else if (is(b"MAXLEN") || is(b"MINID")) && more > 0 {
            if options.trim.is_some() {
                let text = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
                return Err(text.into());
            }
            let sign = args.at(at + 1);
            let is_rough = more >= 2 && sign == b"~";
            at += 1 + usize::from(is_rough || more >= 2 && sign == b"=");
            let threshold = match is(b"MAXLEN") {
                true => {
                    let max = parse_i64(args.at(at)).ok_or(NOT_INTEGER)?;
                    let max = u64::try_from(max);
                    Threshold::Length(max.map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
                }
                false => Threshold::Id(strict_id(args.at(at), 0)?),
            };
            options.trim = Some(Trim {
                threshold,
                is_rough,
                limit: 0,
            });
        } else if is(b"LIMIT") && more > 0 {
            at += 1;
            let max = parse_i64(args.at(at)).ok_or(NOT_INTEGER)?;
            limit = Some(u64::try_from(max).map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
        } else if adds && is(b"NOMKSTREAM") {
            options.only_existing = true;
        } else if adds {
            options.wanted = Some(Wanted::parse(word)?);
            options.end = at;
            break;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    if limit.is_some_and(|limit| limit > 0) && options.trim.is_none() {
        let text = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
        return Err(text.into());
    }
    if !adds && options.trim.is_none() {
        return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
    }
    let is_rough = options.trim.is_some_and(|trim| trim.is_rough);
    if limit.is_some() && !is_rough {
        let text = "ERR syntax error, LIMIT cannot be used without the special ~ option";
        return Err(text.into());
    }
    if let Some(trim) = options.trim.as_mut().filter(|trim| trim.is_rough) {
        trim.limit = limit.unwrap_or(ROUGH_LIMIT);
    }
    Ok(options)
}

/// `XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value [field value …]`
fn xadd(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let key = args.at(1);
    let options = options(args, true)?;
    let fields: Vec<&[u8]> = args.from(options.end + 1).collect();
    let Some(wanted) = options
        .wanted
        .filter(|_| !fields.is_empty() && fields.len().is_multiple_of(2))
    else {
        return Err(wrong_arity("xadd").into());
    };
    if matches!(wanted, Wanted::This(Id::MIN)) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let found = Writing::open(data.tx, data.table, key)?;
    if found.is_none() && options.only_existing {
        out.null();
        return Ok(());
    }
    let last = found.as_ref().map_or(Id::MIN, |found| found.head.last);
    if last == Id::MAX {
        let text = "ERR The stream has exhausted the last possible ID, unable to add more items";
        return Err(text.into());
    }
    let Some(id) = wanted.choose(last, data.tx.now_ms()) else {
        let text =
            "ERR The ID specified in XADD is equal or smaller than the target stream top item";
        return Err(text.into());
    };
    let mut writing = match found {
        Some(found) => found,
        None => Writing::open_or_make(data.tx, data.table, key, None)?,
    };
    if let Some(trim) = &options.trim {
        data.heavy(above(data, &writing, trim)?)?;
    }
    writing.add(data.tx, id, &fields)?;
    data.changed(Class::Stream, "xadd", key);
    if let Some(trim) = &options.trim
        && writing.trim(data.tx, trim)? > 0
    {
        data.changed(Class::Stream, "xtrim", key);
    }
    writing.finish(data.tx)?;
    reply_id(out, id);
    Ok(())
}

/// Returns an upper bound on the number of entries that are trimmed.
fn above(data: &Data<'_, '_>, writing: &Writing, trim: &Trim) -> Result<u64, Stop> {
    let all = match trim.threshold {
        Threshold::Length(max) => writing.head.length.saturating_sub(max),
        Threshold::Id(min) if min <= writing.head.first => 0,
        Threshold::Id(min) => writing.stream(data.tx)?.at_most(Id::MIN, min),
    };
    Ok(if trim.limit > 0 {
        all.min(trim.limit)
    } else {
        all
    })
}

/// `XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count]`
fn xtrim(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let options = options(args, false)?;
    let mut trimmed = 0;
    if let (Some(mut writing), Some(trim)) = (
        Writing::open(data.tx, data.table, args.at(1))?,
        &options.trim,
    ) {
        data.heavy(above(data, &writing, trim)?)?;
        trimmed = writing.trim(data.tx, trim)?;
        writing.finish(data.tx)?;
    }
    if trimmed > 0 {
        data.changed(Class::Stream, "xtrim", args.at(1));
    }
    out.count(trimmed);
    Ok(())
}

/// `XDEL key id [id …]`
fn xdel(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let Some(mut writing) = Writing::open(data.tx, data.table, args.at(1))? else {
        out.count(0);
        return Ok(());
    };
    data.heavy(to_u64(args.len()))?;
    let ids: Result<Vec<Id>, Stop> = args.from(2).map(|text| strict_id(text, 0)).collect();
    let mut deleted = 0;
    for id in ids? {
        deleted += u64::from(writing.delete(data.tx, id)?);
    }
    writing.finish(data.tx)?;
    if deleted > 0 {
        data.changed(Class::Stream, "xdel", args.at(1));
    }
    out.count(deleted);
    Ok(())
}

/// `XLEN key`
fn xlen(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let stream = super::stream(data, args.at(1))?;
    out.count(stream.map_or(0, |stream| stream.head().length));
    Ok(())
}

/// `XSETID key last-id [ENTRIESADDED count] [MAXDELETEDID id]`
fn xsetid(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let last = strict_id(args.at(2), 0)?;
    let (mut added, mut deleted_max, mut at) = (None, Id::MIN, 3);
    while at < args.len() {
        let is = |known: &[u8]| at + 1 < args.len() && args.at(at).eq_ignore_ascii_case(known);
        if is(b"ENTRIESADDED") {
            let count = parse_i64(args.at(at + 1)).ok_or(NOT_INTEGER)?;
            let count = u64::try_from(count).map_err(|_| "ERR entries_added must be positive")?;
            added = Some(count);
        } else if is(b"MAXDELETEDID") {
            deleted_max = strict_id(args.at(at + 1), 0)?;
            if last < deleted_max {
                let text = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
                return Err(text.into());
            }
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let Some(mut writing) = Writing::open(data.tx, data.table, args.at(1))? else {
        return Err("ERR no such key".into());
    };
    if writing.head.length > 0 {
        if last < writing.stream(data.tx)?.last_there()? {
            let text = "ERR The ID specified in XSETID is smaller than the target stream top item";
            return Err(text.into());
        }
        if added.is_some_and(|added| added < writing.head.length) {
            let text = "ERR The entries_added specified in XSETID is smaller than the target stream length";
            return Err(text.into());
        }
    }
    writing.head.last = last;
    writing.head.added = added.unwrap_or(writing.head.added);
    if deleted_max != Id::MIN {
        writing.head.deleted_max = deleted_max;
    }
    writing.finish(data.tx)?;
    data.changed(Class::Stream, "xsetid", args.at(1));
    out.ok();
    Ok(())
}
