//! XRANGE and XREVRANGE.

use super::{Excerpt, Several, collect, count, interval};
use crate::command::flag::READ;
use crate::command::spec::{Command, ONE, data};
use crate::command::{Data, Done, SYNTAX};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("xrange", -4, READ, ONE, xrange),
    data("xrevrange", -4, READ, ONE, xrevrange),
];

/// `XRANGE key start end [COUNT count]`
fn xrange(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    range(data, args, out, false)
}

/// `XREVRANGE key end start [COUNT count]`
fn xrevrange(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    range(data, args, out, true)
}

fn range(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, reverse: bool) -> Done {
    let (from, to) = match reverse {
        false => interval(args.at(2), args.at(3))?,
        true => interval(args.at(3), args.at(2))?,
    };
    let (mut max, mut at) = (None, 4);
    while at < args.len() {
        if !args.at(at).eq_ignore_ascii_case(b"COUNT") || at + 1 == args.len() {
            return Err(SYNTAX.into());
        }
        max = Some(count(args.at(at + 1))?);
        at += 2;
    }
    let Some(stream) = super::stream(data, args.at(1))? else {
        out.array(0);
        return Ok(());
    };
    if max == Some(0) {
        out.null_array();
        return Ok(());
    }
    let mut several = Several::new(out);
    let most = stream.at_most(from, to);
    data.heavy(max.map_or(most, |max| max.min(most)))?;
    let excerpt = Excerpt {
        from,
        to,
        max: max.unwrap_or(0),
        reverse,
    };
    collect(data, &stream, excerpt, &mut several)?;
    several.reply(out);
    Ok(())
}
