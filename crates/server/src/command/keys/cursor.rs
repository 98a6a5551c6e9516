//! The common part of SCAN, HSCAN, SSCAN and ZSCAN: the cursor and the options.

use crate::command::{Data, Done, NOT_INTEGER, SYNTAX, Stop};
use crate::engine::Shape;
use crate::engine::types::Entry;
use crate::glob;
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// Reads a cursor as C's `strtoul` does: a sign is allowed, and an empty text is zero.
pub(crate) fn parse_cursor(arg: &[u8]) -> Result<u64, Stop> {
    let (negative, digits) = match arg {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, arg),
    };
    if digits.is_empty() && arg.is_empty() {
        return Ok(0);
    }
    let mut value = (!digits.is_empty()).then_some(0u64);
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
        value = value
            .zip(digit)
            .and_then(|(v, d)| v.checked_mul(10)?.checked_add(d));
    }
    let value = value.ok_or("ERR invalid cursor")?;
    Ok(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// The options after a cursor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanOptions<'a> {
    /// The pattern that names must match. `None`: every name matches.
    pub pattern: Option<&'a [u8]>,
    /// The approximate number of elements to return.
    pub count: usize,
    /// The type that keys must have.
    pub kind: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Reads the options, beginning at argument `at`. TYPE is an option only if `keys` are scanned.
    pub(crate) fn parse(args: &Args<'a>, mut at: usize, keys: bool) -> Result<Self, Stop> {
        let mut options = ScanOptions {
            pattern: None,
            count: 10,
            kind: None,
        };
        while at < args.len() {
            let word = args.at(at);
            if at + 1 == args.len() {
                return Err(SYNTAX.into());
            }
            let value = args.at(at + 1);
            if word.eq_ignore_ascii_case(b"COUNT") {
                let count = parse_i64(value).ok_or(NOT_INTEGER)?;
                if count < 1 {
                    return Err(SYNTAX.into());
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX);
            } else if word.eq_ignore_ascii_case(b"MATCH") {
                options.pattern = (value != b"*").then_some(value);
            } else if keys && word.eq_ignore_ascii_case(b"TYPE") {
                options.kind = Some(value);
            } else {
                return Err(SYNTAX.into());
            }
            at += 2;
        }
        Ok(options)
    }

    /// Returns whether a name matches the pattern.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| pattern == b"*" || glob::matches(pattern, name))
    }
}

/// Replies to HSCAN, SSCAN and ZSCAN with the next cursor and the matching elements. `each` writes
/// the parts of an element: one part for a member, two for an element with a value or a score.
pub(crate) fn scan_elements(
    data: &Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    shape: Shape,
    mut each: impl FnMut(&mut Out<'_>, &Entry<'_>),
) -> Done {
    let cursor = parse_cursor(args.at(2))?;
    let Some(source) = data.collection(args.at(1), shape)? else {
        out.array(2);
        out.bulk(b"0");
        out.array(0);
        return Ok(());
    };
    let options = ScanOptions::parse(args, 3, false)?;
    data.heavy(to_u64(options.count).min(source.len()))?;
    let start = out.buf.len();
    let (mut found, next) = source.scan(cursor, options.count);
    out.array(2);
    let mut digits = Vec::with_capacity(20);
    crate::number::push_u64(&mut digits, next);
    out.bulk(&digits);
    found.retain(|entry| options.matches(&entry.key()));
    let parts = match shape {
        Shape::List | Shape::Set => 1,
        Shape::Hash | Shape::Zset | Shape::Stream => 2,
    };
    out.array(found.len() * parts);
    for entry in &found {
        each(out, entry);
    }
    Ok(data.check_reply(out.buf.len() - start)?)
}

/// Reads the number of random elements that a request wants.
pub(crate) fn count_arg(arg: &[u8]) -> Result<i64, Stop> {
    match parse_i64(arg) {
        None => Err(NOT_INTEGER.into()),
        Some(i64::MIN) => {
            let max = i64::MAX;
            let text = format!("ERR value is out of range, value must between -{max} and {max}");
            Err(text.into())
        }
        Some(count) => Ok(count),
    }
}

/// Fails if a request wants too many random elements. Each element takes two items of the reply.
pub(crate) fn count_arg_of_pairs(count: i64) -> Result<i64, Stop> {
    if count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return Err("ERR value is out of range".into());
    }
    Ok(count)
}
