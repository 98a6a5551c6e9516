//! The expiry of keys. Deadlines are absolute milliseconds. A key is deleted when its deadline has passed.

use crate::command::event::Class;
use crate::command::flag::{FAST, READ, WRITE};
use crate::command::spec::{Command, ONE, data};
use crate::command::strings::integer_arg;
use crate::command::{Data, Done, NOT_INTEGER};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("expire", -3, WRITE | FAST, ONE, expire),
    data("expireat", -3, WRITE | FAST, ONE, expireat),
    data("expiretime", 2, READ | FAST, ONE, expiretime),
    data("persist", 2, WRITE | FAST, ONE, persist),
    data("pexpire", -3, WRITE | FAST, ONE, pexpire),
    data("pexpireat", -3, WRITE | FAST, ONE, pexpireat),
    data("pexpiretime", 2, READ | FAST, ONE, pexpiretime),
    data("pttl", 2, READ | FAST, ONE, pttl),
    data("ttl", 2, READ | FAST, ONE, ttl),
];

/// The form of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// True for an amount in seconds, false for milliseconds.
    seconds: bool,
    /// True for an amount counted from now, false for an amount from 1970.
    relative: bool,
}

/// Returns the kind of deadline that an option of SET or GETEX names.
pub(crate) fn deadline_option(word: &[u8]) -> Option<Kind> {
    let kind = |seconds, relative| Some(Kind { seconds, relative });
    if word.eq_ignore_ascii_case(b"EX") {
        kind(true, true)
    } else if word.eq_ignore_ascii_case(b"PX") {
        kind(false, true)
    } else if word.eq_ignore_ascii_case(b"EXAT") {
        kind(true, false)
    } else if word.eq_ignore_ascii_case(b"PXAT") {
        kind(false, false)
    } else {
        None
    }
}

/// A deadline as a request gives it.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// The form of the deadline.
    pub kind: Kind,
    /// The index of the argument that holds the number.
    pub arg: usize,
}

impl Deadline {
    /// Returns the deadline in absolute milliseconds, or Redis's error for the command called
    /// `name`.
    pub(crate) fn resolve(&self, args: &Args<'_>, now: u64, name: &str) -> Result<u64, String> {
        let amount = parse_i64(args.at(self.arg)).ok_or_else(|| String::from(NOT_INTEGER))?;
        let at = if amount > 0 {
            absolute(self.kind, amount, now)
        } else {
            None
        };
        at.and_then(|at| u64::try_from(at).ok())
            .ok_or_else(|| invalid(name))
    }
}

fn invalid(name: &str) -> String {
    format!("ERR invalid expire time in '{name}' command")
}

/// Returns a deadline in absolute milliseconds, which may be before 1970. `None`: the deadline is out of range.
fn absolute(kind: Kind, amount: i64, now: u64) -> Option<i64> {
    let ms = if kind.seconds {
        amount.checked_mul(1000)?
    } else {
        amount
    };
    if kind.relative {
        ms.checked_add(i64::try_from(now).ok()?)
    } else {
        Some(ms)
    }
}

#[derive(Default)]
struct Conditions {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

fn conditions(args: &Args<'_>) -> Result<Conditions, String> {
    let mut all = Conditions::default();
    for word in args.from(3) {
        match () {
            () if word.eq_ignore_ascii_case(b"NX") => all.none = true,
            () if word.eq_ignore_ascii_case(b"XX") => all.some = true,
            () if word.eq_ignore_ascii_case(b"GT") => all.later = true,
            () if word.eq_ignore_ascii_case(b"LT") => all.earlier = true,
            () => {
                let word = String::from_utf8_lossy(word);
                return Err(format!("ERR Unsupported option {word}"));
            }
        }
    }
    if all.none && (all.some || all.later || all.earlier) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(String::from(text));
    }
    if all.later && all.earlier {
        let text = "ERR GT and LT options at the same time are not compatible";
        return Err(String::from(text));
    }
    Ok(all)
}

fn set_deadline(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    kind: Kind,
    name: &str,
) -> Done {
    let wanted = match conditions(args) {
        Ok(wanted) => wanted,
        Err(error) => {
            return Err(error.into());
        }
    };
    let Some(amount) = integer_arg(args.at(2), out) else {
        return Ok(());
    };
    let now = data.tx.now_ms();
    let Some(at) = absolute(kind, amount, now) else {
        return Err(invalid(name).into());
    };
    // A deadline before 1970 has passed, so it is the same as one in 1970.
    let at = u64::try_from(at).unwrap_or(0);
    let key = args.at(1);
    let Some(old) = data.tx.get(data.table, key)?.map(|row| row.expiry_ms()) else {
        out.integer(0);
        return Ok(());
    };
    // A key without a deadline counts as having the latest of all deadlines.
    let refused = (wanted.none && old.is_some())
        || (wanted.some && old.is_none())
        || (wanted.later && old.is_none_or(|old| at <= old))
        || (wanted.earlier && old.is_some_and(|old| at >= old));
    if !refused {
        if at <= now {
            data.tx.delete(data.table, key)?;
            data.changed(Class::Generic, "del", key);
        } else {
            data.tx.set_expiry(data.table, key, Some(at))?;
            data.changed(Class::Generic, "expire", key);
        }
    }
    out.integer(i64::from(!refused));
    Ok(())
}

/// `EXPIRE key seconds [NX|XX|GT|LT]`
pub(crate) fn expire(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    set_deadline(
        data,
        args,
        out,
        Kind {
            seconds: true,
            relative: true,
        },
        "expire",
    )
}

/// `PEXPIRE key milliseconds [NX|XX|GT|LT]`
pub(crate) fn pexpire(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    set_deadline(
        data,
        args,
        out,
        Kind {
            seconds: false,
            relative: true,
        },
        "pexpire",
    )
}

/// `EXPIREAT key seconds [NX|XX|GT|LT]`
pub(crate) fn expireat(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    set_deadline(
        data,
        args,
        out,
        Kind {
            seconds: true,
            relative: false,
        },
        "expireat",
    )
}

/// `PEXPIREAT key milliseconds [NX|XX|GT|LT]`
pub(crate) fn pexpireat(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    set_deadline(
        data,
        args,
        out,
        Kind {
            seconds: false,
            relative: false,
        },
        "pexpireat",
    )
}

/// `PERSIST key`
pub(crate) fn persist(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let expires = data
        .tx
        .get(data.table, args.at(1))?
        .is_some_and(|row| row.expiry_ms().is_some());
    if expires {
        data.tx.set_expiry(data.table, args.at(1), None)?;
        data.changed(Class::Generic, "persist", args.at(1));
    }
    out.integer(i64::from(expires));
    Ok(())
}

/// Replies -2 for a missing key, -1 for a key without a deadline, and otherwise `show(deadline, now)`.
fn reply_deadline(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    show: fn(u64, u64) -> u64,
) -> Done {
    let now = data.tx.now_ms();
    let found = data
        .tx
        .peek(data.table, args.at(1))?
        .map(|row| row.expiry_ms());
    data.looked_up(found.is_some());
    match found {
        None => out.integer(-2),
        Some(None) => out.integer(-1),
        Some(Some(at)) => out.count(show(at, now)),
    }
    Ok(())
}

fn rounded(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

/// `TTL key`
pub(crate) fn ttl(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_deadline(data, args, out, |at, now| rounded(at.saturating_sub(now)))
}

/// `PTTL key`
pub(crate) fn pttl(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_deadline(data, args, out, u64::saturating_sub)
}

/// `EXPIRETIME key`
pub(crate) fn expiretime(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_deadline(data, args, out, |at, _| rounded(at))
}

/// `PEXPIRETIME key`
pub(crate) fn pexpiretime(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    reply_deadline(data, args, out, |at, _| at)
}
