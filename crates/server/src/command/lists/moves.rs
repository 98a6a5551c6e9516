//! Lists: moving items between lists, and popping from the first of several lists that has items.

use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, WRITE};
use crate::command::lists::{pop_event, push_event, shrunk};
use crate::command::spec::{Command, TWO, data};
use crate::command::{Data, Done, Keys, SYNTAX, Stop};
use crate::engine::End;
use crate::engine::types::list;
use crate::engine::types::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use std::ops::Range;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("lmove", 5, WRITE | DENY_OOM, TWO, lmove),
    data(
        "lmpop",
        -4,
        WRITE,
        Keys::Counted { at: 1, dest: false },
        lmpop,
    ),
    data("rpoplpush", 3, WRITE | DENY_OOM, TWO, rpoplpush),
];

/// Reads the word for an end of a list.
pub(crate) fn end(word: &[u8]) -> Result<End, Stop> {
    if word.eq_ignore_ascii_case(b"LEFT") {
        Ok(End::Front)
    } else if word.eq_ignore_ascii_case(b"RIGHT") {
        Ok(End::Back)
    } else {
        Err(SYNTAX.into())
    }
}

/// Moves an item and replies with it. Returns false if the source has no item.
pub(crate) fn shift(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    from_end: End,
    to_end: End,
) -> Result<bool, Stop> {
    let (from, to) = (args.at(1), args.at(2));
    let moved = list::shift(data.tx, data.table, (from, from_end), (to, to_end))?;
    let Some((item, left)) = moved else {
        return Ok(false);
    };
    data.changed(Class::List, push_event(to_end), to);
    shrunk(data, Class::List, pop_event(from_end), from, left);
    out.bulk(&item);
    Ok(true)
}

fn shift_or_null(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    from_end: End,
    to_end: End,
) -> Done {
    if !shift(data, args, out, from_end, to_end)? {
        out.null();
    }
    Ok(())
}

/// `LMOVE source destination LEFT|RIGHT LEFT|RIGHT`
fn lmove(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (from_end, to_end) = (end(args.at(3))?, end(args.at(4))?);
    shift_or_null(data, args, out, from_end, to_end)
}

/// `RPOPLPUSH source destination`
fn rpoplpush(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    shift_or_null(data, args, out, End::Back, End::Front)
}

/// Pops the item at an end of the first list that exists. Returns false if no list exists.
pub(crate) fn pop_first<'k>(
    data: &mut Data<'_, '_>,
    keys: impl Iterator<Item = &'k [u8]>,
    out: &mut Out<'_>,
    end: End,
) -> Result<bool, Stop> {
    for key in keys {
        let Some((items, left)) = list::pop(data.tx, data.table, key, end, 1)? else {
            continue;
        };
        out.array(2);
        out.bulk(key);
        items.iter().for_each(|item| out.bulk(item));
        shrunk(data, Class::List, pop_event(end), key, left);
        return Ok(true);
    }
    Ok(false)
}

/// The common arguments of LMPOP and ZMPOP: `numkeys key [key …] word [COUNT count]`.
#[derive(Debug)]
pub(crate) struct FromSeveral<'a> {
    /// The arguments that are keys.
    pub keys: Range<usize>,
    /// The word for the end.
    pub word: &'a [u8],
    /// The greatest number of elements to take.
    pub count: u64,
}

impl<'a> FromSeveral<'a> {
    /// Reads the arguments. `numkeys` is the index of the first one, which is the number of keys. `knows` returns
    /// whether a word names an end of a collection, as LEFT or MIN does.
    pub(crate) fn parse(
        args: &Args<'a>,
        numkeys: usize,
        knows: impl Fn(&[u8]) -> bool,
    ) -> Result<FromSeveral<'a>, Stop> {
        let positive = |at: usize| {
            let count = parse_i64(args.at(at)).filter(|count| *count > 0);
            count.and_then(|count| u64::try_from(count).ok())
        };
        let keys = positive(numkeys).ok_or("ERR numkeys should be greater than 0")?;
        let keys = usize::try_from(keys).unwrap_or(usize::MAX);
        let place = numkeys.saturating_add(1).saturating_add(keys);
        if place >= args.len() {
            return Err(SYNTAX.into());
        }
        let word = args.at(place);
        if !knows(word) {
            return Err(SYNTAX.into());
        }
        let count = match args.len() - place {
            1 => 1,
            3 if args.at(place + 1).eq_ignore_ascii_case(b"COUNT") => {
                positive(place + 2).ok_or("ERR count should be greater than 0")?
            }
            more => {
                // Redis checks the first COUNT before it refuses further arguments.
                if more > 3 && args.at(place + 1).eq_ignore_ascii_case(b"COUNT") {
                    positive(place + 2).ok_or("ERR count should be greater than 0")?;
                }
                return Err(SYNTAX.into());
            }
        };
        Ok(FromSeveral {
            keys: numkeys + 1..place,
            word,
            count,
        })
    }
}

/// Pops items from the first list that exists. Returns false if no list exists.
pub(crate) fn pop_several(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    several: &FromSeveral<'_>,
) -> Result<bool, Stop> {
    let end = end(several.word)?;
    for key in several.keys.clone().map(|at| args.at(at)) {
        data.heavy_in(key, several.count)?;
        let Some((items, left)) = list::pop(data.tx, data.table, key, end, several.count)? else {
            continue;
        };
        out.array(2);
        out.bulk(key);
        out.array(items.len());
        items.iter().for_each(|item| out.bulk(item));
        shrunk(data, Class::List, pop_event(end), key, left);
        return Ok(true);
    }
    Ok(false)
}

/// `LMPOP numkeys key [key …] LEFT|RIGHT [COUNT count]`
fn lmpop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let several = FromSeveral::parse(args, 1, |word| end(word).is_ok())?;
    if !pop_several(data, args, out, &several)? {
        out.null_array();
    }
    Ok(())
}
