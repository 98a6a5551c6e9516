//! The commands, with names, arguments and functions.
//!
//! A *data* command runs inside a transaction. It may be run again from its start when the engine widens the set of
//! latched partitions. Therefore the command changes only the transaction and the reply. It validates before it writes:
//! a command that replies with an error has changed nothing. A *plain* command touches the connection or the server and
//! runs once.

pub(crate) mod absent;
pub(crate) mod connection;
pub(crate) mod data;
pub(crate) mod describe;
pub(crate) mod dispatch;
mod documents;
pub(crate) mod event;
pub(crate) mod geo;
pub(crate) mod hashes;
pub(crate) mod hyperloglog;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod lookup;
pub(crate) mod notice;
pub(crate) mod options;
pub(crate) mod refused;
pub(crate) mod run;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod sets;
pub(crate) mod spec;
pub(crate) mod steps;
pub(crate) mod streams;
pub(crate) mod strings;
pub(crate) mod table;
pub(crate) mod wait;
pub(crate) mod zsets;

use crate::engine::{Durability, Epoch};
use crate::resp::foreign::Foreign;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::session::{Mute, Session};
use crate::state::State;
use crate::tell::Message;

pub(crate) use data::{Data, Done, Later, Stop};
pub(crate) use spec::{Command, Keys, flag};

/// The function of a command, which runs inside or outside of a transaction.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Inside a transaction.
    Data(DataFn),
    /// Outside of transactions.
    Plain(PlainFn),
}

/// A command that runs inside a transaction.
pub(crate) type DataFn = fn(&mut Data<'_, '_>, &Args<'_>, &mut Out<'_>) -> Done;
/// A command that runs outside of transactions.
pub(crate) type PlainFn = fn(&mut Cx<'_>, &Args<'_>);

/// The next action of the connection after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// The connection continues with the next request.
    Continue,
    /// The connection closes once its replies have left.
    Close,
    /// The connection runs nothing more until an answer comes from another thread or client.
    Block,
    /// The connection runs nothing more until the command has run to its end in steps.
    Steps,
    /// The connection runs nothing more until the command has ended on the thread beside the loop.
    Beside,
    /// Nothing has happened: the request runs again later.
    Postpone,
    /// Nothing has happened: a transaction in [`Flights`](crate::flights::Flights) is in the way. The request runs again
    /// when the number of landings differs from this number.
    Held(u64),
    /// Nothing has happened: the request runs again when the log has room for this number of bytes.
    Behind(usize),
    /// Nothing has happened: the request runs again when the restart has loaded more partitions.
    Absent,
    /// Nothing has happened: the client does not speak Redis's protocol and is disconnected at once.
    Expel(Foreign),
    /// The whole server ends, with a checkpoint or without.
    Shutdown { checkpoint: bool },
}

impl After {
    /// Returns whether the command continues to run, and will reply later.
    pub(crate) fn goes_on(self) -> bool {
        matches!(self, After::Steps | After::Beside)
    }
}

/// The context of a plain command.
pub(crate) struct Cx<'a> {
    /// The server.
    pub state: &'a mut State,
    /// The client.
    pub session: &'a mut Session,
    /// The client's replies.
    pub out: Out<'a>,
    /// The effects that the command leaves to its caller.
    pub effects: Effects,
    /// True if the command is part of a MULTI block.
    pub in_block: bool,
}

/// The epochs of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Told {
    /// The newest epoch that the reply depends on: the reply waits until this epoch has the client's
    /// durability. Zero means that the reply depends on no epoch.
    pub epoch: Epoch,
    /// The epoch of the command's writes; zero if the command has written nothing.
    pub written: Epoch,
}

impl Told {
    /// The epochs of a reply that depends on no write.
    pub(crate) const NOTHING: Self = Self::read(Epoch(0));

    /// Returns the epochs of a command that has read data and has written nothing.
    pub(crate) const fn read(epoch: Epoch) -> Self {
        Told {
            epoch,
            written: Epoch(0),
        }
    }
}

/// The effects of one command besides its reply. The command determines them, and [`execute`](dispatch::execute)
/// then carries them out. The documentation of [`dispatch`] gives the order.
#[derive(Debug)]
#[must_use]
pub(crate) struct Effects {
    /// The newest epoch that the reply depends on; zero if it depends on none.
    pub epoch: Epoch,
    /// The epoch of the command's writes; zero if the command has written nothing.
    pub written: Epoch,
    /// The next action of the connection.
    pub after: After,
    /// The lowest durability that the reply waits for, even if the client has chosen a lower one.
    pub least: Durability,
    /// The pushes among the replies. They are sent to the client even if the replies are dropped.
    pub pushed: Vec<u8>,
    /// The messages that a MULTI block publishes if it commits. EXEC consumes them.
    pub held_back: Vec<Message>,
}

impl Effects {
    /// The effects of a command with a reply that depends on no write.
    pub(crate) const NONE: Self = Self::of(Told::NOTHING, After::Continue);

    /// Returns the effects of a command that has a reply or waits for one.
    pub(crate) const fn of(told: Told, after: After) -> Self {
        Effects {
            epoch: told.epoch,
            written: told.written,
            after,
            least: Durability::Mem,
            pushed: Vec::new(),
            held_back: Vec::new(),
        }
    }

    /// Adds `inner`, the effects of one command of a MULTI block, to the effects of the block.
    fn add(&mut self, inner: Effects) {
        let Effects {
            epoch,
            written,
            after,
            least,
            pushed,
            held_back,
        } = inner;
        self.epoch = self.epoch.max(epoch);
        self.written = self.written.max(written);
        if after != After::Continue {
            self.after = after;
        }
        self.least = self.least.max(least);
        self.pushed.extend(pushed);
        self.held_back.extend(held_back);
    }
}

impl Cx<'_> {
    /// Makes the reply depend on all writes so far. Commands with the flag [`APART`](flag::APART) are exempt. Even an
    /// error, or a count computed from memory, can reveal a write.
    #[inline]
    pub(crate) fn rest_on_writes(&mut self, command: &Command) {
        // If the database is stopped, a reply that waits would never be sent.
        if !command.has(flag::APART) && self.state.stopped.is_none() {
            self.effects.epoch = self.effects.epoch.max(self.state.newest());
        }
    }

    /// Saves the push that begins at `from` in the replies, if CLIENT REPLY will drop the command's reply.
    /// CLIENT REPLY never drops pushes.
    pub(crate) fn keep_push(&mut self, from: usize) {
        if matches!(self.session.mute, Mute::All | Mute::Skip) {
            let push = self.out.buf.get(from..).unwrap_or(&[]);
            self.effects.pushed.extend_from_slice(push);
        }
    }
}

/// Returns Redis's text for a wrong number of arguments.
pub(crate) fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Redis's text for options that make no sense.
pub(crate) const SYNTAX: &str = "ERR syntax error";
/// Redis's text for a malformed integer.
pub(crate) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
/// Redis's text for a count that is not positive.
pub(crate) const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
/// Redis's text for a value beyond the limit.
pub(crate) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// The placeholder for the function of commands that run outside of transactions.
pub(crate) fn no_data(_: &mut Data<'_, '_>, _: &Args<'_>, _: &mut Out<'_>) -> Done {
    Ok(())
}
