//! CLIENT LIST and CLIENT INFO: a line for each client.

use super::super::{Cx, SYNTAX};
use crate::connection::Connection;
use crate::number::parse_i64;
use crate::pubsub::Topic;
use crate::resp::parse::Args;
use crate::session::{Durability, Session};
use crate::state::State;
use std::time::Instant;

/// The kinds of clients that may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Pubsub,
    /// Masters and replicas, of which there are none.
    Other,
}

impl Kind {
    /// The kind that a word names.
    pub(super) fn parse(word: &[u8]) -> Result<Kind, String> {
        match word.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Kind::Normal),
            b"pubsub" => Ok(Kind::Pubsub),
            b"master" | b"replica" | b"slave" => Ok(Kind::Other),
            _ => {
                let word = String::from_utf8_lossy(word);
                Err(format!("ERR Unknown client type '{word}'"))
            }
        }
    }

    /// The kind of a client. Who monitors counts as a replica.
    pub(super) fn of(session: &Session) -> Kind {
        if session.monitors {
            Kind::Other
        } else if session.subscriptions.is_some() {
            Kind::Pubsub
        } else {
            Kind::Normal
        }
    }
}

/// `CLIENT INFO`
pub(super) fn info(cx: &mut Cx<'_>) {
    let line = describe(cx.session, cx.state.now, Load::default());
    cx.out.text(&line);
}

enum Filter {
    All,
    Kind(Kind),
    Ids(Vec<u64>),
}

/// `CLIENT LIST [TYPE type|ID id [id …]]`
pub(super) fn list(cx: &mut Cx<'_>, args: &Args<'_>) {
    let filter = match filter(args) {
        Ok(filter) => filter,
        Err(error) => return cx.out.error(&error),
    };
    let now = cx.state.now;
    let mut lines = Vec::new();
    let wanted = |session: &Session| match &filter {
        Filter::All => true,
        Filter::Kind(kind) => Kind::of(session) == *kind,
        Filter::Ids(ids) => ids.contains(&session.seat.id),
    };
    if wanted(cx.session) {
        let line = describe(cx.session, now, Load::default());
        lines.push((cx.session.seat.id, line));
    }
    for (_, other) in cx.state.connections.iter() {
        if wanted(&other.session) {
            let line = describe(&other.session, now, Load::of(other, cx.state));
            lines.push((other.session.seat.id, line));
        }
    }
    lines.sort_unstable();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    cx.out.text(&text);
}

fn filter(args: &Args<'_>) -> Result<Filter, String> {
    if args.len() == 2 {
        return Ok(Filter::All);
    }
    if args.len() == 4 && args.at(2).eq_ignore_ascii_case(b"TYPE") {
        return Kind::parse(args.at(3)).map(Filter::Kind);
    }
    if args.len() > 3 && args.at(2).eq_ignore_ascii_case(b"ID") {
        let id = |arg| parse_i64(arg).ok_or_else(|| String::from("ERR Invalid client ID"));
        let ids: Result<Vec<i64>, String> = args.from(3).map(id).collect();
        let ids = ids?.into_iter().filter_map(|id| u64::try_from(id).ok());
        return Ok(Filter::Ids(ids.collect()));
    }
    Err(String::from(SYNTAX))
}

/// What waits for a client, and what it is doing.
#[derive(Default)]
struct Load {
    input_bytes: usize,
    input_free: usize,
    output_bytes: usize,
    waits: bool,
    doomed: bool,
}

impl Load {
    fn of(connection: &Connection, state: &State) -> Load {
        let (input_bytes, input_free) = connection.input_bytes();
        Load {
            input_bytes,
            input_free,
            output_bytes: connection.replies.unsent(),
            waits: state.blocking.contains(connection.session.seat.id),
            doomed: connection.doomed || connection.closing,
        }
    }
}

fn flags(session: &Session, load: &Load) -> String {
    let all = [
        (session.monitors, 'O'),
        (session.subscriptions.is_some(), 'P'),
        (session.block.is_some(), 'x'),
        (load.waits, 'b'),
        (load.doomed, 'A'),
        (session.unix, 'U'),
    ];
    let held: String = all.iter().filter(|(on, _)| *on).map(|(_, c)| *c).collect();
    if held.is_empty() {
        String::from("N")
    } else {
        held
    }
}

/// The line of a client, for those who only want to name it.
pub(crate) fn line(session: &Session, now: Instant) -> String {
    describe(session, now, Load::default())
}

/// The line of one client.
fn describe(session: &Session, now: Instant, load: Load) -> String {
    let multi = session
        .block
        .as_ref()
        .map_or(String::from("-1"), |b| b.queue.len().to_string());
    let block_bytes = session.block.as_ref().map_or(0, |b| b.bytes);
    let subscribed = |topic| {
        session
            .subscriptions
            .as_ref()
            .map_or(0, |own| own.count(topic))
    };
    let memory = load.output_bytes + load.input_bytes + load.input_free + block_bytes;
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} \
         ssub={} multi={} qbuf={} qbuf-free={} argv-mem=0 multi-mem={} rbs=0 rbp=0 obl={} oll=0 \
         omem={} tot-mem={} events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={} \
         durability={}\n",
        session.seat.id,
        session.peer,
        session.local,
        session.seat.index,
        String::from_utf8_lossy(&session.name),
        now.saturating_duration_since(session.since).as_secs(),
        now.saturating_duration_since(session.active).as_secs(),
        flags(session, &load),
        session.database,
        subscribed(Topic::Channel),
        subscribed(Topic::Pattern),
        subscribed(Topic::Shard),
        multi,
        load.input_bytes,
        load.input_free,
        block_bytes,
        load.output_bytes,
        load.output_bytes,
        memory,
        session.last_name(),
        String::from_utf8_lossy(session.user_name()),
        if session.resp3 { 3 } else { 2 },
        String::from_utf8_lossy(&session.library[0]),
        String::from_utf8_lossy(&session.library[1]),
        match session.durability {
            Durability::Disk => "disk",
            Durability::Mem => "mem",
        },
    )
}
