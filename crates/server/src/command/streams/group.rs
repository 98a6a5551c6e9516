//! XGROUP: making and removing groups and their consumers.

use super::{id_or_end, shown, strict_id};
use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, WRITE};
use crate::command::spec::{Command, SECOND, data};
use crate::command::{Data, Done, NOT_INTEGER, Stop};
use crate::engine::types::number::parse_i64;
use crate::engine::types::stream::{Group, Id, Writing};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The second words of XGROUP.
const WORDS: &[(&str, i8)] = &[
    ("create", -5),
    ("createconsumer", 5),
    ("delconsumer", 5),
    ("destroy", 4),
    ("help", 2),
    ("setid", -5),
];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] =
    &[data("xgroup", -2, WRITE | DENY_OOM, SECOND, xgroup).with_words(WORDS)];

const HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> ...]. Subcommands are:",
    "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <entries-read>]",
    "    Makes a group that begins behind an id, or behind the last entry.",
    "CREATECONSUMER <key> <group> <consumer>",
    "    Makes a consumer.",
    "DELCONSUMER <key> <group> <consumer>",
    "    Removes a consumer with all that it has not acknowledged.",
    "DESTROY <key> <group>",
    "    Removes a group.",
    "SETID <key> <group> <id|$> [ENTRIESREAD <entries-read>]",
    "    Sets the id up to which a group has read.",
    "HELP",
    "    Prints this help.",
];

/// The options of CREATE and SETID.
#[derive(Default)]
struct Options {
    makes_stream: bool,
    read: Option<u64>,
}

fn options(args: &Args<'_>, creates: bool, sets: bool) -> Result<Options, Stop> {
    let mut options = Options::default();
    let mut at = 5;
    while at < args.len() {
        if creates && args.at(at).eq_ignore_ascii_case(b"MKSTREAM") {
            options.makes_stream = true;
            at += 1;
        } else if (creates || sets)
            && args.at(at).eq_ignore_ascii_case(b"ENTRIESREAD")
            && at + 1 < args.len()
        {
            options.read = match parse_i64(args.at(at + 1)).ok_or(NOT_INTEGER)? {
                -1 => None,
                read => {
                    let read = u64::try_from(read);
                    Some(read.map_err(|_| "ERR value for ENTRIESREAD must be positive or -1")?)
                }
            };
            at += 2;
        } else {
            return Err(wrong_number(args));
        }
    }
    Ok(options)
}

fn wrong_number(args: &Args<'_>) -> Stop {
    let word = shown(args.at(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{word}'. Try XGROUP HELP.")
        .into()
}

/// `XGROUP CREATE|CREATECONSUMER|DELCONSUMER|DESTROY|HELP|SETID …`
fn xgroup(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let is = |known: &str| args.at(1).eq_ignore_ascii_case(known.as_bytes());
    if is("help") {
        out.help(HELP);
        return Ok(());
    }
    let (key, name) = (args.at(2), args.at(3));
    let options = options(args, is("create"), is("setid"))?;
    let found = Writing::open(data.tx, data.table, key)?;
    if found.is_none() && !options.makes_stream {
        let text = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
                    MKSTREAM option to create an empty stream automatically.";
        return Err(text.into());
    }
    let group = match &found {
        Some(writing) => writing.stream(data.tx)?.group(name)?,
        None => None,
    };
    if is("create") {
        create(data, args, found, group.as_ref(), &options)?;
        out.ok();
        return Ok(());
    }
    let Some(writing) = found else {
        return Ok(());
    };
    if is("destroy") {
        out.count(u64::from(group.is_some()));
        if let Some(group) = group {
            data.heavy(group.pending)?;
            writing.destroy_group(data.tx, name, &group)?;
            data.changed(Class::Stream, "xgroup-destroy", key);
        }
        return writing.finish(data.tx).map_err(Stop::from);
    }
    let Some(mut group) = group else {
        let (group, key) = (shown(name), shown(key));
        return Err(
            format!("NOGROUP No such consumer group '{group}' for key name '{key}'").into(),
        );
    };
    if is("setid") && args.len() > 7 {
        return Err(wrong_number(args));
    }
    if is("setid") {
        group.last = begin(args.at(4), writing.head.last, id_or_end)?;
        group.read = options.read;
        writing.put_group(data.tx, name, &group)?;
        data.changed(Class::Stream, "xgroup-setid", key);
        out.ok();
    } else {
        let there = writing.stream(data.tx)?.consumer(&group, args.at(4))?;
        match (is("createconsumer"), there) {
            (true, Some(_)) | (false, None) => out.count(0),
            (true, None) => {
                super::consumer(data, &writing, &mut group, key, args.at(4))?;
                out.count(1);
            }
            (false, Some(consumer)) => {
                data.heavy(consumer.pending)?;
                out.count(consumer.pending);
                writing.delete_consumer(data.tx, &mut group, &consumer)?;
                data.changed(Class::Stream, "xgroup-delconsumer", key);
            }
        }
        writing.put_group(data.tx, name, &group)?;
    }
    writing.finish(data.tx).map_err(Stop::from)
}

/// Returns the id after which a new group starts to read. The text `$` means `last`, the stream's newest id. Any other
/// text is parsed as an id.
fn begin(text: &[u8], last: Id, parse: fn(&[u8], u64) -> Result<Id, Stop>) -> Result<Id, Stop> {
    match text {
        b"$" => Ok(last),
        id => parse(id, 0),
    }
}

fn create(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    found: Option<Writing>,
    group: Option<&Group>,
    options: &Options,
) -> Done {
    if args.len() > 8 {
        return Err(wrong_number(args));
    }
    let (key, name) = (args.at(2), args.at(3));
    let last = found.as_ref().map_or(Id::MIN, |found| found.head.last);
    let begin = begin(args.at(4), last, strict_id)?;
    if group.is_some() {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    let mut writing = match found {
        Some(found) => found,
        None => Writing::open_or_make(data.tx, data.table, key, None)?,
    };
    writing.make_group(data.tx, name, begin, options.read)?;
    writing.finish(data.tx)?;
    data.changed(Class::Stream, "xgroup-create", key);
    Ok(())
}
