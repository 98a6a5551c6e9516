//! XINFO: figures about streams, groups and consumers.

use super::{Excerpt, Several, collect, reply_entry, reply_id, shown};
use crate::command::flag::READ;
use crate::command::spec::{Command, SECOND, data};
use crate::command::{Data, Done, NOT_INTEGER, Stop};
use crate::engine::types::number::parse_i64;
use crate::engine::types::stream::{Consumer, Group, Id, Stream};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The second words of XINFO.
const WORDS: &[(&str, i8)] = &[("consumers", 4), ("groups", 3), ("help", 2), ("stream", -3)];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] =
    &[data("xinfo", -2, READ, SECOND, xinfo).with_words(WORDS)];

const HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> ...]. Subcommands are:",
    "CONSUMERS <key> <group>",
    "    Answers the consumers of a group.",
    "GROUPS <key>",
    "    Answers the groups of a stream.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Answers what a stream is like.",
    "HELP",
    "    Prints this help.",
];

/// The limit for XINFO STREAM FULL without COUNT. It applies to the list of entries and to each list of pending
/// entries.
const SHOWN: u64 = 10;

/// `XINFO CONSUMERS|GROUPS|HELP|STREAM …`
fn xinfo(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let is = |known: &str| args.at(1).eq_ignore_ascii_case(known.as_bytes());
    if is("help") {
        out.help(HELP);
        return Ok(());
    }
    let stream = super::stream(data, args.at(2))?.ok_or("ERR no such key")?;
    if is("stream") {
        return of_stream(data, &stream, args, out);
    }
    if is("groups") {
        let groups = stream.groups()?;
        out.array(groups.len());
        for (name, group) in groups {
            out.map(6);
            out.bulk(b"name");
            out.bulk(&name);
            out.bulk(b"consumers");
            out.integer(i64::try_from(stream.consumers(&group)?.len()).unwrap_or(i64::MAX));
            out.bulk(b"pending");
            out.count(group.pending);
            reading(&stream, &group, out);
        }
        return Ok(());
    }
    let Some(group) = stream.group(args.at(3))? else {
        let name = |at| shown(args.at(at));
        let text = format!(
            "NOGROUP No such consumer group '{}' for key name '{}'",
            name(3),
            name(2)
        );
        return Err(text.into());
    };
    let consumers = stream.consumers(&group)?;
    out.array(consumers.len());
    for consumer in consumers {
        out.map(3);
        out.bulk(b"name");
        out.bulk(&consumer.name);
        out.bulk(b"pending");
        out.count(consumer.pending);
        out.bulk(b"idle");
        out.count(data.tx.now_ms().saturating_sub(consumer.seen_ms));
    }
    Ok(())
}

/// Appends the progress of a group to a map, as three pairs of a name and a value.
fn reading(stream: &Stream<'_>, group: &Group, out: &mut Out<'_>) {
    out.bulk(b"last-delivered-id");
    reply_id(out, group.last);
    out.bulk(b"entries-read");
    match group.read {
        Some(read) => out.count(read),
        None => out.null(),
    }
    out.bulk(b"lag");
    match stream.head().lag(group) {
        Some(lag) => out.integer(lag),
        None => out.null(),
    }
}

fn of_stream(data: &Data<'_, '_>, stream: &Stream<'_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let full = match args.len() {
        3 => None,
        len => {
            let is_count = || len == 6 && args.at(4).eq_ignore_ascii_case(b"COUNT");
            if !args.at(3).eq_ignore_ascii_case(b"FULL") || len != 4 && !is_count() {
                let word = String::from_utf8_lossy(args.at(1));
                return Err(format!(
                    "ERR unknown subcommand or wrong number of arguments for '{word}'. Try XINFO HELP."
                )
                .into());
            }
            let count = match len {
                6 => parse_i64(args.at(5)).ok_or(NOT_INTEGER)?,
                _ => 10,
            };
            Some(u64::try_from(count).unwrap_or(SHOWN))
        }
    };
    let head = stream.head();
    out.map(if full.is_some() { 9 } else { 10 });
    out.bulk(b"length");
    out.count(head.length);
    let nodes = stream.nodes();
    out.bulk(b"radix-tree-keys");
    out.count(nodes);
    out.bulk(b"radix-tree-nodes");
    out.count(nodes + 1);
    for (name, id) in [
        ("last-generated-id", head.last),
        ("max-deleted-entry-id", head.deleted_max),
    ] {
        out.bulk(name.as_bytes());
        reply_id(out, id);
    }
    out.bulk(b"entries-added");
    out.count(head.added);
    out.bulk(b"recorded-first-entry-id");
    reply_id(out, head.first);
    if let Some(count) = full {
        return in_full(data, stream, count, out);
    }
    out.bulk(b"groups");
    out.integer(i64::try_from(stream.groups()?.len()).unwrap_or(i64::MAX));
    for (name, reverse) in [("first-entry", false), ("last-entry", true)] {
        out.bulk(name.as_bytes());
        let mut has_any = false;
        stream.entries(Id::MIN..=Id::MAX, reverse, |entry| {
            reply_entry(out, entry);
            has_any = true;
            Ok::<_, Stop>(false)
        })?;
        if !has_any {
            out.null();
        }
    }
    Ok(())
}

/// Replies with the entries and the groups. The list of entries and each list of pending entries have at most `count`
/// items. If `count` is 0, the lists have no limit.
fn in_full(data: &Data<'_, '_>, stream: &Stream<'_>, count: u64, out: &mut Out<'_>) -> Done {
    let head = stream.head();
    data.heavy(if count == 0 {
        head.length
    } else {
        count.min(head.length)
    })?;
    out.bulk(b"entries");
    let mut entries = Several::new(out);
    let excerpt = Excerpt::between(Id::MIN, Id::MAX, count);
    collect(data, stream, excerpt, &mut entries)?;
    entries.reply(out);
    out.bulk(b"groups");
    let groups = stream.groups()?;
    out.array(groups.len());
    for (name, group) in groups {
        out.map(7);
        out.bulk(b"name");
        out.bulk(&name);
        reading(stream, &group, out);
        out.bulk(b"pel-count");
        out.count(group.pending);
        out.bulk(b"pending");
        let mut left = if count == 0 { u64::MAX } else { count };
        let mut pending = Several::new(out);
        stream.each_pending(&group, Id::MIN..=Id::MAX, false, |id, one| {
            let holder = stream.holder(&group, &one)?;
            pending.add(|out| {
                out.array(4);
                reply_id(out, id);
                out.bulk(&holder.name);
                out.count(one.delivered_ms);
                out.count(one.deliveries);
            });
            left -= 1;
            Ok(left > 0)
        })?;
        pending.reply(out);
        out.bulk(b"consumers");
        let consumers = stream.consumers(&group)?;
        out.array(consumers.len());
        for consumer in consumers {
            of_consumer(stream, &group, &consumer, count, out)?;
        }
    }
    Ok(())
}

fn of_consumer(
    stream: &Stream<'_>,
    group: &Group,
    consumer: &Consumer,
    count: u64,
    out: &mut Out<'_>,
) -> Done {
    out.map(4);
    out.bulk(b"name");
    out.bulk(&consumer.name);
    out.bulk(b"seen-time");
    out.count(consumer.seen_ms);
    out.bulk(b"pel-count");
    out.count(consumer.pending);
    out.bulk(b"pending");
    let max = if count == 0 { u64::MAX } else { count };
    let mut pending = Several::new(out);
    for (id, _) in stream.each_id_of(group, consumer, Id::MIN).zip(0..max) {
        let Some(one) = stream.pending(group, id)? else {
            continue;
        };
        pending.add(|out| {
            out.array(3);
            reply_id(out, id);
            out.count(one.delivered_ms);
            out.count(one.deliveries);
        });
    }
    pending.reply(out);
    Ok(())
}
