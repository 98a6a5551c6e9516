//! Popping from lists and sorted sets, and waiting for an element to pop.
//!
//! BLPOP works like LPOP, BRPOP like RPOP, and so on. A command that finds no element returns the keys to wait for. The
//! command is run again from its start when one of these keys may have an element.

use crate::blocking::{Nothing, Wait, parse_timeout};
use crate::command::flag::{BLOCKING, DENY_OOM, FAST, WRITE};
use crate::command::lists::moves::{self, FromSeveral};
use crate::command::spec::{Command, TWO, data};
use crate::command::zsets::pops;
use crate::command::{Data, Done, Keys, Stop};
use crate::engine::{End, Shape};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use std::ops::Range;
use std::time::Duration;

/// The keys of a command whose arguments are keys and then a timeout.
const BEFORE_TIMEOUT: Keys = Keys::Range {
    first: 1,
    last: -2,
    step: 1,
};
/// The keys of a command whose arguments begin with a timeout, the number of keys, and the keys.
const BEHIND_TIMEOUT: Keys = Keys::Counted { at: 2, dest: false };
const TAKES: u32 = WRITE | BLOCKING;
const MOVES: u32 = WRITE | DENY_OOM | BLOCKING;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("blmove", 6, MOVES, TWO, blmove),
    data("blmpop", -5, TAKES, BEHIND_TIMEOUT, blmpop),
    data("blpop", -3, TAKES, BEFORE_TIMEOUT, blpop),
    data("brpop", -3, TAKES, BEFORE_TIMEOUT, brpop),
    data("brpoplpush", 4, MOVES, TWO, brpoplpush),
    data("bzmpop", -5, TAKES, BEHIND_TIMEOUT, bzmpop),
    data("bzpopmax", -3, TAKES | FAST, BEFORE_TIMEOUT, bzpopmax),
    data("bzpopmin", -3, TAKES | FAST, BEFORE_TIMEOUT, bzpopmin),
];

fn shift_or_wait(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    from_end: End,
    to_end: End,
) -> Done {
    let timeout = parse_timeout(args.at(args.len() - 1))?;
    if moves::shift(data, args, out, from_end, to_end)? {
        return Ok(());
    }
    let wait = wait(1..2, None, Shape::List, timeout);
    Err(Stop::Wait(Wait {
        nothing: Nothing::Null,
        ..wait
    }))
}

/// `BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout`
fn blmove(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (from_end, to_end) = (moves::end(args.at(3))?, moves::end(args.at(4))?);
    shift_or_wait(data, args, out, from_end, to_end)
}

/// `BRPOPLPUSH source destination timeout`
fn brpoplpush(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    shift_or_wait(data, args, out, End::Back, End::Front)
}

/// Pops an element of the first key that has one, or waits until one of the keys has an element. The last
/// argument is the timeout.
fn pop_or_wait(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    shape: Shape,
    end: End,
) -> Done {
    let last = args.len() - 1;
    let timeout = parse_timeout(args.at(last))?;
    let keys = args.from(1).take(last - 1);
    let popped = match shape {
        Shape::Zset => pops::pop_first(data, keys, out, end)?,
        _ => moves::pop_first(data, keys, out, end)?,
    };
    if popped {
        return Ok(());
    }
    Err(Stop::Wait(wait(1..last, None, shape, timeout)))
}

/// `BLPOP key [key …] timeout`
fn blpop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    pop_or_wait(data, args, out, Shape::List, End::Front)
}

/// `BRPOP key [key …] timeout`
fn brpop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    pop_or_wait(data, args, out, Shape::List, End::Back)
}

/// `BZPOPMIN key [key …] timeout`
fn bzpopmin(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    pop_or_wait(data, args, out, Shape::Zset, End::Front)
}

/// `BZPOPMAX key [key …] timeout`
fn bzpopmax(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    pop_or_wait(data, args, out, Shape::Zset, End::Back)
}

/// Returns the [`Wait`] of a command that waits for one of several keys. `count` is the index of the argument that
/// holds the number of keys, if there is one.
fn wait(keys: Range<usize>, count: Option<usize>, shape: Shape, timeout: Option<Duration>) -> Wait {
    Wait {
        shape,
        keys,
        count,
        paired: Vec::new(),
        timeout,
        nothing: Nothing::NullArray,
        gone: None,
    }
}

/// Makes the command wait for one of the keys of `several`.
fn wait_for(several: &FromSeveral<'_>, shape: Shape, timeout: Option<Duration>) -> Done {
    let (keys, count) = (several.keys.clone(), several.keys.start - 1);
    Err(Stop::Wait(wait(keys, Some(count), shape, timeout)))
}

/// `BLMPOP timeout numkeys key [key …] LEFT|RIGHT [COUNT count]`
fn blmpop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let several = FromSeveral::parse(args, 2, |word| moves::end(word).is_ok())?;
    let timeout = parse_timeout(args.at(1))?;
    if moves::pop_several(data, args, out, &several)? {
        return Ok(());
    }
    wait_for(&several, Shape::List, timeout)
}

/// `BZMPOP timeout numkeys key [key …] MIN|MAX [COUNT count]`
fn bzmpop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let several = FromSeveral::parse(args, 2, |word| pops::end(word).is_some())?;
    let timeout = parse_timeout(args.at(1))?;
    if pops::pop_several(data, args, out, &several)? {
        return Ok(());
    }
    wait_for(&several, Shape::Zset, timeout)
}
