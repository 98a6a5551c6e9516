//! Streams: adding entries, reading them, and groups of consumers.
//!
//! | module | commands |
//! |---|---|
//! | [`add`] | XADD, XTRIM, XDEL, XSETID, XLEN |
//! | [`range`] | XRANGE, XREVRANGE |
//! | [`read`] | XREAD, XREADGROUP |
//! | [`group`] | XGROUP |
//! | [`pending`] | XACK, XPENDING |
//! | [`claim`] | XCLAIM, XAUTOCLAIM |
//! | [`info`] | XINFO |
//! | [`dump`] | a stream in the payloads of DUMP and RESTORE |

pub(crate) mod add;
pub(crate) mod claim;
pub(crate) mod dump;
pub(crate) mod group;
pub(crate) mod info;
pub(crate) mod pending;
pub(crate) mod range;
pub(crate) mod read;

use super::event::Class;
use super::{Data, Stop};
use crate::engine::types::number::parse_i64;
use crate::engine::types::stream::{Consumer, Entry, Group, Id, Stream, Writing, read as open};
use crate::resp::reply::Out;

/// Redis's text for a malformed id.
const BAD_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// Reads an id; `-` and `+` are errors. If the second number of the id is missing, it is `seq`.
fn strict_id(text: &[u8], seq: u64) -> Result<Id, Stop> {
    // Redis first copies the text to a buffer of this size, and refuses a longer text.
    const BYTES_MAX: usize = 127;
    let id = (text.len() <= BYTES_MAX).then(|| Id::parse(text, seq));
    id.flatten().ok_or_else(|| BAD_ID.into())
}

/// Reads an id. `-` is the lowest id and `+` the highest.
fn id_or_end(text: &[u8], seq: u64) -> Result<Id, Stop> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        _ => strict_id(text, seq),
    }
}

/// Reads the ends of an interval of ids. `(` before an id excludes it.
fn interval(from: &[u8], to: &[u8]) -> Result<(Id, Id), Stop> {
    let end = |text: &[u8], seq: u64| match text {
        [b'(', id @ ..] if !id.is_empty() => strict_id(id, seq).map(|id| (id, true)),
        _ => id_or_end(text, seq).map(|id| (id, false)),
    };
    let (from, is_open) = end(from, 0)?;
    let from = start_of(from, is_open)?;
    let (to, is_open) = end(to, u64::MAX)?;
    let to = match is_open {
        false => Some(to),
        true => to.previous(),
    };
    Ok((from, to.ok_or("ERR invalid end ID for the interval")?))
}

fn start_of(from: Id, is_open: bool) -> Result<Id, Stop> {
    let from = match is_open {
        false => Some(from),
        true => from.next(),
    };
    from.ok_or_else(|| "ERR invalid start ID for the interval".into())
}

/// Reads the start of an interval.
fn start(text: &[u8]) -> Result<Id, Stop> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => start_of(strict_id(id, 0)?, true),
        _ => id_or_end(text, 0),
    }
}

/// Reads a count; a negative one becomes 0.
fn count(text: &[u8]) -> Result<u64, Stop> {
    let count = parse_i64(text).ok_or(super::NOT_INTEGER)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Appends an id.
fn reply_id(out: &mut Out<'_>, id: Id) {
    let mut text = Vec::with_capacity(24);
    id.push(&mut text);
    out.bulk(&text);
}

/// Appends an entry: the id, and the fields with values.
fn reply_entry(out: &mut Out<'_>, entry: &Entry<'_>) {
    out.array(2);
    reply_id(out, entry.id);
    out.array(entry.len() * 2);
    for (field, value) in entry.pairs() {
        out.bulk(&field);
        out.bulk(&value);
    }
}

/// A list of replies. Its length is known only when the last reply has been written.
struct Several {
    buf: Vec<u8>,
    resp3: bool,
    count: usize,
}

impl Several {
    fn new(out: &Out<'_>) -> Several {
        Several {
            buf: Vec::new(),
            resp3: out.resp3,
            count: 0,
        }
    }

    /// Writes one more reply.
    fn add(&mut self, write: impl FnOnce(&mut Out<'_>)) {
        write(&mut Out::new(&mut self.buf, self.resp3));
        self.count += 1;
    }

    /// Appends all replies as an array.
    fn reply(self, out: &mut Out<'_>) {
        out.array(self.count);
        out.append(self.buf);
    }
}

/// The entries in a range of ids.
struct Excerpt {
    from: Id,
    to: Id,
    /// The greatest number of entries; 0: all.
    max: u64,
    /// True if the last entry comes first.
    reverse: bool,
}

impl Excerpt {
    /// Returns the excerpt from id `from` to id `to`, in ascending order.
    fn between(from: Id, to: Id, max: u64) -> Excerpt {
        Excerpt {
            from,
            to,
            max,
            reverse: false,
        }
    }

    /// Returns the excerpt that has only the entry with this id.
    fn one(id: Id) -> Excerpt {
        Excerpt::between(id, id, 1)
    }
}

/// Appends the entries of an excerpt to `several`.
fn collect(
    data: &Data<'_, '_>,
    stream: &Stream<'_>,
    excerpt: Excerpt,
    several: &mut Several,
) -> Result<(), Stop> {
    let Excerpt {
        from,
        to,
        max,
        reverse,
    } = excerpt;
    let mut left = if max == 0 { u64::MAX } else { max };
    stream.entries(from..=to, reverse, |entry| {
        several.add(|out| reply_entry(out, entry));
        data.check_reply(several.buf.len())?;
        left -= 1;
        Ok::<_, Stop>(left > 0)
    })
}

/// Opens the stream of a key to read it, and counts the lookup.
fn stream<'d>(data: &'d Data<'_, '_>, key: &[u8]) -> Result<Option<Stream<'d>>, Stop> {
    let found = open(data.tx, data.table, key)?;
    data.looked_up(found.is_some());
    Ok(found)
}

/// Returns the consumer with this name, and makes it if it does not exist.
fn consumer(
    data: &mut Data<'_, '_>,
    writing: &Writing,
    group: &mut Group,
    key: &[u8],
    name: &[u8],
) -> Result<Consumer, Stop> {
    if let Some(found) = writing.stream(data.tx)?.consumer(group, name)? {
        return Ok(found);
    }
    let now = data.tx.now_ms();
    let made = writing.make_consumer(data.tx, group, name, now)?;
    data.changed(Class::Stream, "xgroup-createconsumer", key);
    Ok(made)
}

/// Returns a name as Redis's error texts show it: as in C, it ends at its first zero byte.
fn shown(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}

/// Returns Redis's text for a group that does not exist.
fn no_group(key: &[u8], group: &[u8]) -> Stop {
    let (key, group) = (shown(key), shown(group));
    format!("NOGROUP No such key '{key}' or consumer group '{group}'").into()
}
