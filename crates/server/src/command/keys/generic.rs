//! Renaming, moving and copying keys, and OBJECT.

use crate::command::event::Class;
use crate::command::flag::{DANGEROUS, DENY_OOM, FAST, READ, WRITE};
use crate::command::spec::{Command, Keys, ONE, SECOND, TWO, data};
use crate::command::steps::{Copying, Destination, Fold, Origin, Purpose, Writing};
use crate::command::{Data, Done, SYNTAX, Stop};
use crate::engine::{Kind, types};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("copy", -3, WRITE | DENY_OOM, TWO, copy),
    data("move", 3, WRITE | FAST, ONE, move_key),
    data("object", -2, READ, SECOND, object).with_words(OBJECT_WORDS),
    data("rename", 3, WRITE, TWO, rename),
    data("renamenx", 3, WRITE | FAST, TWO, renamenx),
    data("swapdb", 3, WRITE | FAST | DANGEROUS, Keys::All, swapdb),
];

const OBJECT_WORDS: &[(&str, i8)] = &[
    ("encoding", 3),
    ("freq", 3),
    ("help", 2),
    ("idletime", 3),
    ("refcount", 3),
];
const NO_KEY: &str = "ERR no such key";
const IDLE_TIMES_OFF: &str = "ERR idle times of keys are not recorded. CONFIG SET key-idle-times \
                              yes records them from then on";
const SAME: &str = "ERR source and destination objects are the same";

/// Reads the index of a database from an argument.
fn database(arg: &[u8]) -> Result<u8, Stop> {
    let number = parse_i64(arg).ok_or(crate::command::NOT_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err(crate::command::server::NOT_INT.into());
    }
    let known = u8::try_from(number).ok().filter(|index| *index < 16);
    known.ok_or_else(|| "ERR DB index is out of range".into())
}

/// Returns `Err(Stop::Long)` if the first argument's key holds a long string. That error makes the command copy the
/// string in steps.
fn copy_in_steps(data: &Data<'_, '_>, args: &Args<'_>, target: Destination, out: &Out<'_>) -> Done {
    let row = data.tx.get(data.table, args.at(1))?;
    let Some(row) = row.filter(|row| row.kind() == Kind::String) else {
        return Ok(());
    };
    let origin = Origin::Keys(Fold::Same, 1, vec![row.value_len()]);
    Writing::if_long(data, args, target, origin, out.resp3)
}

/// Moves the value of the first argument's key to another key.
fn move_to(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    destination: Destination,
    out: &Out<'_>,
) -> Done {
    let (from, to) = (args.at(1), args.at(destination.key));
    let expiry = data
        .tx
        .get(data.table, from)?
        .and_then(|row| row.expiry_ms());
    if data.name_text(destination.database, to, expiry)? {
        data.tx.delete(data.table, from)?;
        return Ok(());
    }
    copy_in_steps(data, args, destination, out)?;
    let (table, target) = (data.table, data.table_of(destination.database));
    data.tx.rename(table, from, target, to)?;
    Ok(())
}

fn rename_key(data: &mut Data<'_, '_>, args: &Args<'_>, out: &Out<'_>) -> Done {
    let destination = Destination {
        database: data.database,
        key: 2,
    };
    move_to(data, args, destination, out)?;
    data.changed(Class::Generic, "rename_from", args.at(1));
    data.changed(Class::Generic, "rename_to", args.at(2));
    Ok(())
}

/// `RENAME key newkey`
fn rename(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (from, to) = (args.at(1), args.at(2));
    if data.tx.get(data.table, from)?.is_none() {
        return Err(NO_KEY.into());
    }
    if from != to {
        rename_key(data, args, out)?;
    }
    out.ok();
    Ok(())
}

/// `RENAMENX key newkey`
fn renamenx(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (from, to) = (args.at(1), args.at(2));
    if data.tx.get(data.table, from)?.is_none() {
        return Err(NO_KEY.into());
    }
    let free = data.tx.get(data.table, to)?.is_none();
    if free {
        rename_key(data, args, out)?;
    }
    out.integer(i64::from(free));
    Ok(())
}

/// `COPY source destination [DB index] [REPLACE]`
fn copy(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (from, to) = (args.at(1), args.at(2));
    let (mut target, mut replace) = (data.database, false);
    let mut at = 3;
    while at < args.len() {
        let word = args.at(at);
        if word.eq_ignore_ascii_case(b"REPLACE") {
            replace = true;
        } else if word.eq_ignore_ascii_case(b"DB") && at + 1 < args.len() {
            at += 1;
            target = database(args.at(at))?;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    if target == data.database && from == to {
        return Err(SAME.into());
    }
    let table = data.table_of(target);
    if data.tx.get(data.table, from)?.is_none() || (!replace && data.tx.get(table, to)?.is_some()) {
        out.integer(0);
        return Ok(());
    }
    let purpose = Purpose::Copy { replace };
    if let Some(work) = Copying::whole(data, purpose, from, target)? {
        return Err(Stop::Long(Box::new(work)));
    }
    let expiry = data
        .tx
        .get(data.table, from)?
        .and_then(|row| row.expiry_ms());
    if !data.name_text(target, to, expiry)? {
        let destination = Destination {
            database: target,
            key: 2,
        };
        copy_in_steps(data, args, destination, out)?;
        types::copy(data.tx, data.table, from, table, to)?;
    }
    data.changed_in(target, Class::Generic, "copy_to", to);
    out.integer(1);
    Ok(())
}

/// `MOVE key db`
fn move_key(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let key = args.at(1);
    let target = database(args.at(2))?;
    if target == data.database {
        return Err(SAME.into());
    }
    let table = data.table_of(target);
    let movable = data.tx.get(data.table, key)?.is_some() && data.tx.get(table, key)?.is_none();
    if movable {
        if let Some(work) = Copying::whole(data, Purpose::Move, key, target)? {
            return Err(Stop::Long(Box::new(work)));
        }
        let destination = Destination {
            database: target,
            key: 1,
        };
        move_to(data, args, destination, out)?;
        data.changed(Class::Generic, "move_from", key);
        data.changed_in(target, Class::Generic, "move_to", key);
    }
    out.integer(i64::from(movable));
    Ok(())
}

/// `SWAPDB index1 index2`
fn swapdb(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let index = |at, text: &'static str| {
        let number = parse_i64(args.at(at)).and_then(|n| i32::try_from(n).ok());
        number.ok_or(text)
    };
    let first = index(1, "ERR invalid first DB index")?;
    let second = index(2, "ERR invalid second DB index")?;
    let known = |number| u8::try_from(number).ok().filter(|index| *index < 16);
    let (Some(a), Some(b)) = (known(first), known(second)) else {
        return Err("ERR DB index is out of range".into());
    };
    if a != b {
        data.swap([a, b])?;
    }
    out.ok();
    Ok(())
}

/// `OBJECT ENCODING|FREQ|HELP|IDLETIME|REFCOUNT key`
fn object(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let is = |word: &[u8]| args.at(1).eq_ignore_ascii_case(word);
    if is(b"HELP") {
        let lines = [
            "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ENCODING <key>: how Redis would keep it.",
            "FREQ <key>: refused, accesses are not counted.",
            "IDLETIME <key>: seconds since a command last used it.",
            "REFCOUNT <key>: 1, nothing is shared.",
        ];
        out.array(lines.len());
        lines.iter().for_each(|line| out.simple(line));
        return Ok(());
    }
    let Some(row) = data.tx.peek(data.table, args.at(2))? else {
        out.null();
        return Ok(());
    };
    if is(b"ENCODING") {
        out.bulk(types::encoding(&row).as_bytes());
    } else if is(b"FREQ") {
        let text = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                    Please note that when switching between policies at runtime LRU and LFU data \
                    will take some time to adjust.";
        return Err(text.into());
    } else if is(b"IDLETIME") {
        let idle = data.tx.idle_seconds(data.table, args.at(2))?;
        out.count(idle.ok_or(IDLE_TIMES_OFF)?);
    } else {
        out.integer(1);
    }
    Ok(())
}
