//! CLIENT LIST and CLIENT INFO: a line for each client.

use crate::blocking::Waiter;
use crate::command::{Cx, SYNTAX};
use crate::connection::Connection;
use crate::number::parse_i64;
use crate::pubsub::Topic;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::State;
use std::time::Instant;

/// The kinds of clients that a request may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Pubsub,
    /// Masters and replicas, which this server does not have.
    Other,
}

impl Kind {
    /// Parses the word for a kind.
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

    /// Returns the kind of a client. A monitor counts as a replica.
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
pub(super) fn info(cx: &mut Cx<'_>, args: &Args<'_>) {
    let line = describe(cx.session, cx.state.now, Load::running(cx, args));
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
        let line = describe(cx.session, now, Load::running(cx, args));
        lines.push((cx.session.seat.id, line));
    }
    for state in cx.state.each() {
        for (_, other) in state.connections.iter() {
            if wanted(&other.session) {
                let line = describe(&other.session, now, Load::of(other, state));
                lines.push((other.session.seat.id, line));
            }
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

/// The buffers of a client, and whether the client waits.
#[derive(Default)]
struct Load {
    input_bytes: usize,
    input_free: usize,
    argument_bytes: usize,
    output_bytes: usize,
    output_room: usize,
    waits: bool,
    doomed: bool,
    tracking: Option<Told>,
}

/// A client's settings for CLIENT TRACKING: see [`crate::tracking`].
struct Told {
    broken: bool,
    broadcasts: bool,
    redirection: i64,
}

impl Told {
    fn of(session: &Session, state: &State) -> Option<Told> {
        let tracker = state.tracker(session.seat.id)?;
        Some(Told {
            broken: tracker.broken,
            broadcasts: tracker.prefixes.is_some(),
            redirection: state.redirection(session.seat.id),
        })
    }
}

impl Load {
    fn of(connection: &Connection, state: &State) -> Load {
        let (input_bytes, input_free) = connection.input_bytes();
        let id = connection.session.seat.id;
        let waiting = state.common.blocking.with(|blocking| {
            let waiter = blocking.get(id);
            waiter.map(Waiter::argument_bytes)
        });
        Load {
            input_bytes,
            input_free,
            argument_bytes: waiting.unwrap_or(0),
            output_bytes: connection.replies.unsent(),
            output_room: connection.replies.buf.capacity(),
            waits: waiting.is_some() || state.rung_waits.contains(id),
            doomed: connection.doomed || connection.closing,
            tracking: Told::of(&connection.session, state),
        }
    }

    /// Returns the load of the client whose request is running. The client's input is in a buffer that all clients
    /// share, so the buffer's free space is not counted for the client.
    fn running(cx: &Cx<'_>, args: &Args<'_>) -> Load {
        Load {
            input_bytes: cx.session.unread,
            argument_bytes: args.from(0).map(<[u8]>::len).sum(),
            output_room: cx.out.buf.capacity(),
            tracking: Told::of(cx.session, cx.state),
            ..Load::default()
        }
    }

    /// Returns the memory that the client takes, bytes. Arguments are added only for a waiting client. Any
    /// other client's arguments are part of the input, which is counted already.
    fn bytes(&self, block_bytes: usize) -> usize {
        let buffers = self.input_bytes + self.input_free + self.output_room.max(self.output_bytes);
        let arguments = if self.waits { self.argument_bytes } else { 0 };
        size_of::<Connection>() + buffers + arguments + block_bytes
    }
}

fn flags(session: &Session, load: &Load) -> String {
    let told = |of: fn(&Told) -> bool| load.tracking.as_ref().is_some_and(of);
    let all = [
        (session.monitors, 'O'),
        (session.subscriptions.is_some(), 'P'),
        (session.block.is_some(), 'x'),
        (load.waits, 'b'),
        (load.tracking.is_some(), 't'),
        (told(|told| told.broken), 'R'),
        (told(|told| told.broadcasts), 'B'),
        (load.doomed, 'A'),
        (session.unix, 'U'),
        (session.no_evict, 'e'),
    ];
    let held: String = all.iter().filter(|(on, _)| *on).map(|(_, c)| *c).collect();
    if held.is_empty() {
        String::from("N")
    } else {
        held
    }
}

/// Returns a client's line, with zeros instead of the sizes of its buffers. The line only identifies the client.
pub(crate) fn line(session: &Session, now: Instant) -> String {
    describe(session, now, Load::default())
}

/// Returns the line of one client.
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
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} \
         ssub={} multi={} qbuf={} qbuf-free={} argv-mem={} multi-mem={} rbs={} rbp={} obl={} \
         oll=0 omem={} tot-mem={} events=r cmd={} user={} redir={} resp={} lib-name={} lib-ver={} \
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
        load.argument_bytes,
        block_bytes,
        load.output_room,
        load.output_room,
        load.output_bytes,
        load.output_bytes,
        load.bytes(block_bytes),
        session.last_name(),
        String::from_utf8_lossy(session.user_name()),
        load.tracking.as_ref().map_or(-1, |told| told.redirection),
        if session.resp3 { 3 } else { 2 },
        String::from_utf8_lossy(&session.library[0]),
        String::from_utf8_lossy(&session.library[1]),
        session.durability.name(),
    )
}
