//! Streams in the form of payloads of DUMP and RESTORE.

use crate::command::{Data, Done, Stop};
use crate::engine::types::stream::{Consumer, Entry, Group, Id, Stream, Writing, read as open};
use perdura_rdb::{
    Stream as Dumped, StreamConsumer, StreamEntry, StreamGroup, StreamId, StreamPending,
};

fn id_of((ms, seq): StreamId) -> Id {
    Id { ms, seq }
}

fn dumped_id(id: Id) -> StreamId {
    (id.ms, id.seq)
}

/// Returns the contents of the stream of a key.
pub(crate) fn taken(data: &Data<'_, '_>, key: &[u8]) -> Result<Option<Dumped>, Stop> {
    let Some(stream) = open(data.tx, data.table, key)? else {
        return Ok(None);
    };
    let head = stream.head();
    let mut entries = Vec::new();
    stream.entries(Id::MIN..=Id::MAX, false, |entry| {
        entries.push(taken_entry(entry));
        Ok::<_, Stop>(true)
    })?;
    let mut groups = Vec::new();
    for (name, group) in stream.groups()? {
        let consumers = stream.consumers(&group)?.into_iter();
        let consumers = consumers.map(|consumer| taken_consumer(&stream, &group, consumer));
        groups.push(StreamGroup {
            name,
            last: dumped_id(group.last),
            read: group.read,
            consumers: consumers.collect::<Result<_, _>>()?,
        });
    }
    Ok(Some(Dumped {
        entries,
        last: dumped_id(head.last),
        deleted_max: dumped_id(head.deleted_max),
        added: head.added,
        groups,
    }))
}

fn taken_entry(entry: &Entry<'_>) -> StreamEntry {
    let pairs = entry.pairs();
    StreamEntry {
        id: dumped_id(entry.id),
        pairs: pairs
            .map(|(field, value)| (field.to_vec(), value.to_vec()))
            .collect(),
    }
}

fn taken_consumer(
    stream: &Stream<'_>,
    group: &Group,
    consumer: Consumer,
) -> Result<StreamConsumer, Stop> {
    let mut pending = Vec::new();
    for id in stream.each_id_of(group, &consumer, Id::MIN) {
        // A pending entry has a row for its group and a row for its consumer. Either both rows exist or neither
        // does.
        if let Some(of_group) = stream.pending(group, id)? {
            pending.push(StreamPending {
                id: dumped_id(id),
                delivered_ms: of_group.delivered_ms,
                deliveries: of_group.deliveries,
            });
        }
    }
    Ok(StreamConsumer {
        name: consumer.name,
        seen_ms: consumer.seen_ms,
        pending,
    })
}

/// Makes a stream under a key that does not exist.
pub(crate) fn made(data: &mut Data<'_, '_>, key: &[u8], dumped: &Dumped) -> Done {
    let tx = &mut *data.tx;
    let mut writing = Writing::open_or_make(tx, data.table, key, None)?;
    let mut fields: Vec<&[u8]> = Vec::new();
    for entry in &dumped.entries {
        fields.clear();
        let pairs = entry.pairs.iter();
        fields.extend(pairs.flat_map(|(field, value)| [&field[..], &value[..]]));
        writing.append(tx, id_of(entry.id), &fields)?;
    }
    writing.head.last = id_of(dumped.last);
    writing.head.deleted_max = id_of(dumped.deleted_max);
    writing.head.added = dumped.added;
    for group in &dumped.groups {
        let last = id_of(group.last);
        let mut made = writing.make_group(tx, &group.name, last, group.read)?;
        for consumer in &group.consumers {
            let (name, seen_ms) = (&consumer.name, consumer.seen_ms);
            let mut made_consumer = writing.make_consumer(tx, &mut made, name, seen_ms)?;
            for one in &consumer.pending {
                let given = (id_of(one.id), one.delivered_ms, one.deliveries);
                writing.give(tx, &mut made, &mut made_consumer, given)?;
            }
            writing.put_consumer(tx, &made, &made_consumer)?;
        }
        writing.put_group(tx, &group.name, &made)?;
    }
    writing.finish(tx)?;
    Ok(())
}
