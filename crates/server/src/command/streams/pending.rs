//! XACK and XPENDING: delivered entries that are not acknowledged.

use super::{Several, count, interval, no_group, reply_id, strict_id};
use crate::command::event::Class;
use crate::command::flag::{FAST, READ, WRITE};
use crate::command::spec::{Command, ONE, data};
use crate::command::{Data, Done, NOT_INTEGER, SYNTAX, Stop};
use crate::engine::types::number::parse_i64;
use crate::engine::types::stream::{Group, Id, Pending, Stream, Writing};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("xack", -4, WRITE | FAST, ONE, xack),
    data("xpending", -3, READ, ONE, xpending),
];

/// `XACK key group id [id …]`
fn xack(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (key, name) = (args.at(1), args.at(2));
    let found = Writing::open(data.tx, data.table, key)?;
    let group = match &found {
        Some(writing) => writing.stream(data.tx)?.group(name)?,
        None => None,
    };
    let (Some(writing), Some(mut group)) = (found, group) else {
        out.count(0);
        return Ok(());
    };
    data.heavy(to_u64(args.len()))?;
    let ids: Result<Vec<Id>, Stop> = args.from(3).map(|text| strict_id(text, 0)).collect();
    let acknowledged = writing.acknowledge(data.tx, name, &mut group, &ids?)?;
    writing.finish(data.tx)?;
    if acknowledged > 0 {
        data.changed(Class::Quiet, "", key);
    }
    out.count(acknowledged);
    Ok(())
}

/// A request for pending entries.
struct Query<'a> {
    from: Id,
    to: Id,
    count: u64,
    idle_min: Option<i64>,
    consumer: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    /// Reads the request. `None`: a summary is wanted.
    fn parse(args: &Args<'a>) -> Result<Option<Query<'a>>, Stop> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(SYNTAX.into());
        }
        let (mut first, mut idle_min) = (3, None);
        if args.at(3).eq_ignore_ascii_case(b"IDLE") {
            idle_min = Some(parse_i64(args.at(4)).ok_or(NOT_INTEGER)?);
            if args.len() < 8 {
                return Err(SYNTAX.into());
            }
            first = 5;
        }
        let count = count(args.at(first + 2))?;
        let (from, to) = interval(args.at(first), args.at(first + 1))?;
        Ok(Some(Query {
            from,
            to,
            count,
            idle_min,
            consumer: args.from(first + 3).next(),
        }))
    }
}

/// `XPENDING key group [[IDLE min-idle] start end count [consumer]]`
fn xpending(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let query = Query::parse(args)?;
    let stream = super::stream(data, args.at(1))?;
    let group = match &stream {
        Some(stream) => stream.group(args.at(2))?,
        None => None,
    };
    let (Some(stream), Some(group)) = (stream, group) else {
        return Err(no_group(args.at(1), args.at(2)));
    };
    match query {
        None => summary(&stream, &group, out),
        Some(query) => {
            let most = match query.idle_min {
                None => query.count,
                Some(_) => u64::MAX,
            };
            data.heavy(most.min(group.pending))?;
            list(&stream, &group, &query, data.tx.now_ms(), out)
        }
    }
}

/// Replies with the number of pending entries, the first and the last pending entry, and each consumer's number of
/// pending entries.
fn summary(stream: &Stream<'_>, group: &Group, out: &mut Out<'_>) -> Done {
    out.array(4);
    out.count(group.pending);
    if group.pending == 0 {
        out.null();
        out.null();
        out.null_array();
        return Ok(());
    }
    for reverse in [false, true] {
        let mut edge = Id::MIN;
        stream.each_pending(group, Id::MIN..=Id::MAX, reverse, |id, _| {
            edge = id;
            Ok(false)
        })?;
        reply_id(out, edge);
    }
    let mut several = Several::new(out);
    for consumer in stream.consumers(group)? {
        if consumer.pending > 0 {
            several.add(|out| {
                out.array(2);
                out.bulk(&consumer.name);
                out.bulk(consumer.pending.to_string().as_bytes());
            });
        }
    }
    several.reply(out);
    Ok(())
}

fn list(
    stream: &Stream<'_>,
    group: &Group,
    query: &Query<'_>,
    now: u64,
    out: &mut Out<'_>,
) -> Done {
    let mut several = Several::new(out);
    let idle = |pending: &Pending| now.saturating_sub(pending.delivered_ms);
    let is_idle = |pending: &Pending| {
        let idle = i64::try_from(idle(pending)).unwrap_or(i64::MAX);
        query.idle_min.is_none_or(|min| min == 0 || idle >= min)
    };
    let mut add = |id: Id, pending: &Pending, name: &[u8]| {
        several.add(|out| {
            out.array(4);
            reply_id(out, id);
            out.bulk(name);
            out.count(idle(pending));
            out.count(pending.deliveries);
        });
    };
    let mut left = query.count;
    match query.consumer {
        Some(name) => {
            let consumer = stream.consumer(group, name)?;
            let ids = consumer
                .iter()
                .flat_map(|consumer| stream.each_id_of(group, consumer, query.from));
            for id in ids.take_while(|id| *id <= query.to) {
                if left == 0 {
                    break;
                }
                if let Some(pending) = stream.pending(group, id)?.filter(is_idle) {
                    add(id, &pending, name);
                    left -= 1;
                }
            }
        }
        None if left > 0 => {
            stream.each_pending(group, query.from..=query.to, false, |id, pending| {
                if is_idle(&pending) {
                    add(id, &pending, &stream.holder(group, &pending)?.name);
                    left -= 1;
                }
                Ok(left > 0)
            })?;
        }
        None => {}
    }
    several.reply(out);
    Ok(())
}
