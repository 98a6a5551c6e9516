//! XREAD and XREADGROUP: new entries of streams, for any client or for one consumer of a group.
//!
//! XREADGROUP writes the deliveries: the group's position, and two rows for each entry to be acknowledged. Its reply
//! leaves when these writes are durable. So an entry that a consumer has received is still pending after a crash.

use std::time::Duration;

use super::{Excerpt, Several, collect, consumer, count, reply_entry, reply_id, shown, strict_id};
use crate::blocking::{Nothing, Wait};
use crate::command::event::Class;
use crate::command::flag::{BLOCKING, READ, WRITE};
use crate::command::options::{Found, Grammar, Role, role, word};
use crate::command::spec::{Command, data};
use crate::command::{Data, Done, Keys, SYNTAX, Stop};
use crate::engine::Shape;
use crate::engine::types::number::parse_i64;
use crate::engine::types::stream::{Consumer, Group, Id, Stream, Writing};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data(
        "xread",
        -4,
        READ | BLOCKING,
        Keys::Streams {
            grammar: &OPTIONS,
            from: 1,
        },
        xread,
    ),
    data(
        "xreadgroup",
        -7,
        WRITE | BLOCKING,
        Keys::Streams {
            grammar: &OPTIONS,
            from: 4,
        },
        xreadgroup,
    ),
];

/// Redis's text for XREADGROUP when its stream is deleted or replaced.
const STREAM_GONE: &str = "UNBLOCKED the stream key no longer exists";

/// The options of XREAD and XREADGROUP.
static OPTIONS: Grammar = Grammar {
    from: 1,
    words: &[
        word("BLOCK", 1),
        word("COUNT", 1),
        word("GROUP", 2),
        word("NOACK", 0),
        role("STREAMS", Role::Streams),
    ],
};

/// The request of XREAD or XREADGROUP.
#[derive(Default)]
struct Query<'a> {
    /// The greatest number of entries of each stream; 0: all.
    count: u64,
    /// The maximum wait. `None`: the client does not wait; `Some(None)`: it waits without a limit.
    block: Option<Option<Duration>>,
    /// The group and the consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    is_acknowledged: bool,
    /// The index of the argument that is the first key. The ids follow the keys.
    first: usize,
    /// The number of keys.
    keys: usize,
}

impl<'a> Query<'a> {
    fn parse(args: &Args<'a>, has_group: bool) -> Result<Query<'a>, Stop> {
        let mut query = Query::default();
        let only_groups = |option: &str| match has_group {
            true => Ok(()),
            false => Err(Stop::from(format!(
                "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
            ))),
        };
        for Found { at, word } in OPTIONS.walk(args) {
            match word.ok_or(SYNTAX)?.name {
                "BLOCK" => query.block = Some(milliseconds(args.at(at + 1))?),
                "COUNT" => query.count = count(args.at(at + 1))?,
                "GROUP" => {
                    only_groups("GROUP")?;
                    query.group = Some((args.at(at + 1), args.at(at + 2)));
                }
                "NOACK" => {
                    only_groups("NOACK")?;
                    query.is_acknowledged = true;
                }
                // The option is STREAMS, and the grammar finds its keys.
                _ if (args.len() - at - 1).is_multiple_of(2) => {
                    let keys = OPTIONS.streams(args);
                    (query.first, query.keys) = (keys.start, keys.len());
                }
                _ => {
                    let text = "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.";
                    return Err(text.into());
                }
            }
        }
        if query.keys == 0 {
            return Err(SYNTAX.into());
        }
        if has_group && query.group.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        Ok(query)
    }

    /// Returns the names of the group and of the consumer.
    fn names(&self) -> Result<(&'a [u8], &'a [u8]), Stop> {
        self.group.ok_or_else(|| SYNTAX.into())
    }

    /// Returns the keys, each with its id.
    fn streams(&self, args: &Args<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let pairs = args.from(self.first).zip(args.from(self.first + self.keys));
        pairs.take(self.keys)
    }

    /// Makes the client wait if BLOCK is given, or else replies with null. `ids` are the ids that
    /// the command uses when it is run again.
    fn wait(&self, ids: Vec<Box<[u8]>>, out: &mut Out<'_>) -> Done {
        match self.block {
            None => {
                out.null_array();
                Ok(())
            }
            Some(timeout) => Err(Stop::Wait(Wait {
                shape: Shape::Stream,
                keys: self.first..self.first + self.keys,
                count: None,
                paired: ids,
                timeout,
                nothing: Nothing::NullArray,
                gone: self.group.map(|_| STREAM_GONE),
            })),
        }
    }
}

/// Reads the argument of BLOCK, which is a number of milliseconds. Returns `None` for 0, which means no limit.
fn milliseconds(text: &[u8]) -> Result<Option<Duration>, Stop> {
    let ms = parse_i64(text).ok_or("ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

/// The replies for several streams, each under its key. In RESP3 they are a map.
struct Answers {
    several: Several,
}

impl Answers {
    fn add(&mut self, key: &[u8], entries: Several) {
        self.several.add(|out| {
            if !out.resp3 {
                out.array(2);
            }
            out.bulk(key);
            entries.reply(out);
        });
    }

    /// Appends the replies. Returns whether there are any.
    fn reply(self, out: &mut Out<'_>) -> bool {
        let Several { buf, resp3, count } = self.several;
        if count == 0 {
            return false;
        }
        match resp3 {
            true => out.map(count),
            false => out.array(count),
        }
        out.append(buf);
        true
    }
}

/// `XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key …] id [id …]`
fn xread(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let query = Query::parse(args, false)?;
    let mut after = Vec::with_capacity(query.keys);
    for (key, id) in query.streams(args) {
        let stream = super::stream(data, key)?;
        after.push(match id {
            b"$" => stream.map_or(Id::MIN, |stream| stream.head().last),
            b">" => {
                let text = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.";
                return Err(text.into());
            }
            id => strict_id(id, 0)?,
        });
    }
    let mut answers = Answers {
        several: Several::new(out),
    };
    for ((key, _), after) in query.streams(args).zip(&after) {
        let Some(stream) = super::open(data.tx, data.table, key)? else {
            continue;
        };
        let mut entries = Several::new(out);
        if let Some(from) = after.next() {
            data.heavy(few(query.count, stream.at_most(from, Id::MAX)))?;
            let excerpt = Excerpt::between(from, Id::MAX, query.count);
            collect(data, &stream, excerpt, &mut entries)?;
        }
        if entries.count > 0 {
            answers.add(key, entries);
            data.check_reply(answers.several.buf.len())?;
        }
    }
    if answers.reply(out) {
        return Ok(());
    }
    let ids = after.iter().map(|id| id.to_string().into_bytes().into());
    query.wait(ids.collect(), out)
}

/// `XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key …] id [id …]`
fn xreadgroup(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let query = Query::parse(args, true)?;
    let (group_name, _) = query.names()?;
    let mut asked = Vec::with_capacity(query.keys);
    for (key, id) in query.streams(args) {
        asked.push(seek(data, &query, key, id)?);
    }
    let mut answers = Answers {
        several: Several::new(out),
    };
    let mut done: Vec<&[u8]> = Vec::with_capacity(query.keys);
    for mut sought in asked {
        let key = sought.key;
        // If the request names a stream twice, the first read has changed the group.
        if done.contains(&key)
            && let Some(changed) = sought.writing.stream(data.tx)?.group(group_name)?
        {
            sought.group = changed;
        }
        done.push(key);
        if let Some(entries) = read_group(data, &query, sought, Several::new(out))? {
            answers.add(key, entries);
            data.check_reply(answers.several.buf.len())?;
        }
    }
    if answers.reply(out) {
        return Ok(());
    }
    query.wait(vec![b">"[..].into(); query.keys], out)
}

/// A stream that a consumer reads, and its group.
struct Sought<'a> {
    key: &'a [u8],
    writing: Writing,
    group: Group,
    /// The id after which the consumer reads its pending entries. The highest id means that the consumer reads new
    /// entries.
    after: Id,
}

impl Sought<'_> {
    /// Returns an upper bound on the number of entries that the consumer reads. They are the new entries of the group,
    /// or the consumer's pending entries with ids above `after`.
    fn due(&self, stream: &Stream<'_>, consumer: &[u8]) -> Result<u64, Stop> {
        if self.after != Id::MAX {
            let consumer = stream.consumer(&self.group, consumer)?;
            return Ok(consumer.map_or(0, |consumer| consumer.pending));
        }
        let new = self.group.last.next();
        Ok(new.map_or(0, |from| stream.at_most(from, Id::MAX)))
    }
}

/// Finds a stream and its group.
///
/// Fails if the stream or the group does not exist, or if XREADGROUP does not accept the id.
fn seek<'a>(
    data: &mut Data<'_, '_>,
    query: &Query<'a>,
    key: &'a [u8],
    id: &[u8],
) -> Result<Sought<'a>, Stop> {
    let (group_name, consumer_name) = query.names()?;
    let writing = Writing::open(data.tx, data.table, key)?;
    data.looked_up(writing.is_some());
    let group = match &writing {
        Some(writing) => writing.stream(data.tx)?.group(group_name)?,
        None => None,
    };
    let Some((writing, group)) = writing.zip(group) else {
        return Err(no_group(data, key, group_name));
    };
    let after = match id {
        b">" => Id::MAX,
        b"$" => {
            let text = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
                        this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would \
                        just return an empty result set.";
            return Err(text.into());
        }
        id => strict_id(id, 0)?,
    };
    let sought = Sought {
        key,
        writing,
        group,
        after,
    };
    let most = sought.due(&sought.writing.stream(data.tx)?, consumer_name)?;
    data.heavy(few(query.count, most))?;
    Ok(sought)
}

/// Delivers entries of a stream to a consumer. Returns `None` if the stream has nothing new for the consumer.
fn read_group(
    data: &mut Data<'_, '_>,
    query: &Query<'_>,
    mut sought: Sought<'_>,
    mut entries: Several,
) -> Result<Option<Several>, Stop> {
    let (group_name, consumer_name) = query.names()?;
    let mut ids = Vec::new();
    let is_history = sought.after != Id::MAX;
    if !is_history && let Some(from) = sought.group.last.next() {
        let mut left = few(query.count, u64::MAX);
        let stream = sought.writing.stream(data.tx)?;
        stream.entries(from..=Id::MAX, false, |entry| {
            entries.add(|out| reply_entry(out, entry));
            data.check_reply(entries.buf.len())?;
            ids.push(entry.id);
            left -= 1;
            Ok::<_, Stop>(left > 0)
        })?;
    }
    if ids.is_empty() && !is_history {
        return Ok(None);
    }
    let Sought {
        key,
        writing,
        group,
        ..
    } = &mut sought;
    let mut consumer = consumer(data, writing, group, key, consumer_name)?;
    if is_history {
        entries = history(data, &sought, &consumer, query.count, entries)?;
    }
    consumer.seen_ms = data.tx.now_ms();
    deliver(
        data,
        &mut sought,
        &mut consumer,
        &ids,
        query.is_acknowledged,
    )?;
    let Sought {
        key,
        writing,
        group,
        ..
    } = sought;
    writing.put_consumer(data.tx, &group, &consumer)?;
    writing.put_group(data.tx, group_name, &group)?;
    writing.finish(data.tx)?;
    data.changed(Class::Quiet, "", key);
    Ok(Some(entries))
}

/// Returns the lesser of a count and `most`. A count of 0 means no limit.
fn few(count: u64, most: u64) -> u64 {
    if count == 0 { most } else { count.min(most) }
}

fn no_group(data: &Data<'_, '_>, key: &[u8], group: &[u8]) -> Stop {
    if data.is_retry() {
        return "NOGROUP the consumer group this client was blocked on no longer exists".into();
    }
    let (key, group) = (shown(key), shown(group));
    let text = format!(
        "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    );
    text.into()
}

/// Notes that entries were delivered to a consumer.
fn deliver(
    data: &mut Data<'_, '_>,
    sought: &mut Sought<'_>,
    consumer: &mut Consumer,
    ids: &[Id],
    is_acknowledged: bool,
) -> Done {
    let Sought { writing, group, .. } = sought;
    let now = data.tx.now_ms();
    data.tx.expect_elements(ids.len())?;
    for id in ids {
        writing.head.delivered(group, *id);
        if !is_acknowledged {
            writing.give(data.tx, group, consumer, (*id, now, 1))?;
        }
    }
    Ok(())
}

/// Delivers a consumer's unacknowledged entries again. Only entries with ids above `sought.after` are delivered.
fn history(
    data: &mut Data<'_, '_>,
    sought: &Sought<'_>,
    consumer: &Consumer,
    max: u64,
    mut entries: Several,
) -> Result<Several, Stop> {
    let Sought { writing, group, .. } = sought;
    let Some(from) = sought.after.next() else {
        return Ok(entries);
    };
    let max = few(max, u64::MAX);
    let mut again = Vec::new();
    {
        let stream = writing.stream(data.tx)?;
        for (id, _) in stream.each_id_of(group, consumer, from).zip(0..max) {
            let before = entries.count;
            collect(data, &stream, Excerpt::one(id), &mut entries)?;
            if entries.count > before {
                again.push(id);
                continue;
            }
            // The entry has been deleted.
            entries.add(|out| {
                out.array(2);
                reply_id(out, id);
                out.null_array();
            });
        }
    }
    let now = data.tx.now_ms();
    for id in again {
        writing.deliver_again(data.tx, group, id, now)?;
    }
    Ok(entries)
}
