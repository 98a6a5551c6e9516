//! The commands that create a stream, and the commands that read a stream.
//!
//! Entries are added by XADD with their ids. Everything else is called the *end* of a stream. XSETID sets the last id,
//! the greatest deleted id and the number of added entries. XGROUP creates the groups and consumers. XCLAIM FORCE
//! creates the pending entries, but no pending entry for a deleted entry. Redis writes the same commands to its
//! append-only file.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use perdura::types::stream::Id;
use perdura_rdb::{Stream, StreamConsumer, StreamEntry, StreamGroup, StreamId, StreamPending};

use super::client::{Connection, Reply};
use super::commands::put;
use super::now_ms;

/// The number of pending entries that one request asks for.
const PENDING_AT_ONCE: usize = 512;

/// Returns an id in the form that clients use.
pub fn text((ms, seq): StreamId) -> String {
    Id { ms, seq }.to_string()
}

fn parse(text: &[u8]) -> Option<StreamId> {
    Id::parse(text, 0).map(|id| (id.ms, id.seq))
}

/// Returns the id that follows the given id, or `None` after the greatest id. The caller requests the range from this
/// id, because servers before 6.2 cannot exclude the first id of a range.
pub fn behind((ms, seq): StreamId) -> Option<StreamId> {
    Id { ms, seq }.next().map(|id| (id.ms, id.seq))
}

/// Returns the number of commands that write a stream's last id, groups, consumers and pending entries. The commands
/// for the entries are not counted.
pub fn commands_of_end(stream: &Stream) -> usize {
    let of_consumer = |consumer: &StreamConsumer| 1 + consumer.pending.len();
    let of_group = |group: &StreamGroup| 1 + group.consumers.iter().map(of_consumer).sum::<usize>();
    1 + stream.groups.iter().map(of_group).sum::<usize>()
}

/// Appends the commands that add entries. Returns the number of commands.
pub fn put_entries(out: &mut Vec<u8>, key: &[u8], entries: &[StreamEntry]) -> usize {
    for entry in entries {
        let id = text(entry.id);
        let mut words = vec![b"XADD", key, id.as_bytes()];
        for (field, value) in &entry.pairs {
            words.extend([&field[..], &value[..]]);
        }
        put(out, &words);
    }
    entries.len()
}

/// Appends the commands that write the end of a stream. Returns the number of commands. `is_empty` means that the
/// stream has no entries and does not exist at the target yet.
pub fn put_end(out: &mut Vec<u8>, key: &[u8], stream: &Stream, is_empty: bool) -> usize {
    if is_empty {
        put(out, &[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
    }
    let (added, deleted_max) = (stream.added.to_string(), text(stream.deleted_max));
    let last = text(stream.last);
    let mut words = vec![&b"XSETID"[..], key, last.as_bytes()];
    // Servers before 7.0 do not know these options.
    let counted = stream.entries.len() + usize::from(is_empty);
    if stream.deleted_max != (0, 0) || usize::try_from(stream.added) != Ok(counted) {
        words.extend([&b"ENTRIESADDED"[..], added.as_bytes()]);
        words.extend([&b"MAXDELETEDID"[..], deleted_max.as_bytes()]);
    }
    put(out, &words);
    for group in &stream.groups {
        put_group(out, key, group);
    }
    commands_of_end(stream) + usize::from(is_empty)
}

fn put_group(out: &mut Vec<u8>, key: &[u8], group: &StreamGroup) {
    let (name, last) = (&group.name[..], text(group.last));
    let read = group.read.map(|read| read.to_string());
    let mut words = vec![&b"XGROUP"[..], b"CREATE", key, name, last.as_bytes()];
    if let Some(read) = &read {
        words.extend([&b"ENTRIESREAD"[..], read.as_bytes()]);
    }
    put(out, &words);
    for consumer in &group.consumers {
        put(
            out,
            &[b"XGROUP", b"CREATECONSUMER", key, name, &consumer.name],
        );
        for one in &consumer.pending {
            let (id, time) = (text(one.id), one.delivered_ms.to_string());
            let deliveries = one.deliveries.to_string();
            put(
                out,
                &[
                    b"XCLAIM",
                    key,
                    name,
                    &consumer.name,
                    b"0",
                    id.as_bytes(),
                    b"TIME",
                    time.as_bytes(),
                    b"RETRYCOUNT",
                    deliveries.as_bytes(),
                    b"FORCE",
                    b"JUSTID",
                ],
            );
        }
    }
}

/// Returns the entries in a reply to XRANGE.
pub fn entries(reply: Reply) -> Option<Vec<StreamEntry>> {
    let Reply::Array(entries) = reply else {
        return None;
    };
    let entry = |reply| {
        let Reply::Array(parts) = reply else {
            return None;
        };
        let [Reply::Bulk(Some(id)), Reply::Array(words)] = &parts[..] else {
            return None;
        };
        let pairs = words.chunks_exact(2).map(|pair| match pair {
            [Reply::Bulk(Some(field)), Reply::Bulk(Some(value))] => {
                Some((field.clone(), value.clone()))
            }
            _ => None,
        });
        Some(StreamEntry {
            id: parse(id)?,
            pairs: pairs.collect::<Option<_>>()?,
        })
    };
    entries.into_iter().map(entry).collect()
}

/// The fields of a reply to XINFO, by their names.
struct Info(HashMap<Vec<u8>, Reply>);

impl Info {
    fn new(reply: Reply) -> Result<Info> {
        let Reply::Array(words) = reply else {
            bail!("XINFO returned {reply:?}");
        };
        let mut fields = HashMap::new();
        let mut words = words.into_iter();
        while let (Some(Reply::Bulk(Some(name))), Some(value)) = (words.next(), words.next()) {
            fields.insert(name, value);
        }
        Ok(Info(fields))
    }

    fn text(&self, name: &str) -> Option<&[u8]> {
        match self.0.get(name.as_bytes()) {
            Some(Reply::Bulk(Some(text))) => Some(text),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        u64::try_from(self.0.get(name.as_bytes())?.number()?).ok()
    }

    fn id(&self, name: &str) -> Option<StreamId> {
        parse(self.text(name)?)
    }
}

fn infos(reply: Reply) -> Result<Vec<Info>> {
    match reply {
        Reply::Array(all) => all.into_iter().map(Info::new).collect(),
        other => bail!("XINFO returned {other:?}"),
    }
}

/// Reads the end of a stream into `stream`. Returns false if the stream has vanished.
pub fn read_end(connection: &mut Connection, key: &[u8], stream: &mut Stream) -> Result<bool> {
    connection.send(&[b"XINFO", b"STREAM", key])?;
    let reply = connection.receive()?;
    if reply.error().is_some() {
        return Ok(false);
    }
    let head = Info::new(reply)?;
    stream.last = head
        .id("last-generated-id")
        .context("a stream has no last id")?;
    // Servers before 7.0 do not report these fields.
    stream.deleted_max = head.id("max-deleted-entry-id").unwrap_or_default();
    let added = head.number("entries-added").or(head.number("length"));
    stream.added = added.context("a stream has no length")?;
    for group in infos(connection.ask(&[b"XINFO", b"GROUPS", key])?)? {
        stream.groups.push(read_group(connection, key, &group)?);
    }
    Ok(true)
}

fn read_group(connection: &mut Connection, key: &[u8], group: &Info) -> Result<StreamGroup> {
    let name = group.text("name").context("a group has no name")?;
    let mut consumers: Vec<StreamConsumer> = Vec::new();
    let now = u64::try_from(now_ms()).unwrap_or(0);
    for consumer in infos(connection.ask(&[b"XINFO", b"CONSUMERS", key, name])?)? {
        let idle = consumer.number("idle").unwrap_or(0);
        consumers.push(StreamConsumer {
            name: consumer
                .text("name")
                .context("a consumer has no name")?
                .to_vec(),
            seen_ms: now.saturating_sub(idle),
            pending: Vec::new(),
        });
    }
    let mut next = Some((0, 0));
    while let Some(from) = next.take() {
        let (start, count) = (text(from), PENDING_AT_ONCE.to_string());
        let words: [&[u8]; 6] = [
            b"XPENDING",
            key,
            name,
            start.as_bytes(),
            b"+",
            count.as_bytes(),
        ];
        let Reply::Array(all) = connection.ask(&words)? else {
            bail!("XPENDING returned an unexpected reply");
        };
        let is_full = all.len() == PENDING_AT_ONCE;
        for one in all {
            let (holder, pending) =
                pending(one, now).context("XPENDING returned an unexpected reply")?;
            next = behind(pending.id).filter(|_| is_full);
            // Entries of a consumer that was created after the list of consumers was read are left out. The transfer
            // need not be a snapshot.
            if let Some(consumer) = consumers.iter_mut().find(|one| one.name == holder) {
                consumer.pending.push(pending);
            }
        }
    }
    Ok(StreamGroup {
        name: name.to_vec(),
        last: group
            .id("last-delivered-id")
            .context("a group has no last id")?,
        read: group.number("entries-read"),
        consumers,
    })
}

/// Returns the name of a pending entry's consumer, and the entry's state.
fn pending(reply: Reply, now: u64) -> Option<(Vec<u8>, StreamPending)> {
    let Reply::Array(parts) = reply else {
        return None;
    };
    let [
        Reply::Bulk(Some(id)),
        Reply::Bulk(Some(holder)),
        idle,
        deliveries,
    ] = &parts[..]
    else {
        return None;
    };
    let number = |reply: &Reply| u64::try_from(reply.number()?).ok();
    let pending = StreamPending {
        id: parse(id)?,
        delivered_ms: now.saturating_sub(number(idle)?),
        deliveries: number(deliveries)?,
    };
    Some((holder.clone(), pending))
}
