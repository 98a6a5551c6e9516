//! Looking ahead: the keys of requests that were parsed at once are fetched together, before the
//! first of them runs.
//!
//! Connections that are ready at the same time are read together, and their first requests are treated
//! like those of one pipeline: see `connection/early.rs`.
//!
//! A command with many keys, and a block of MULTI, fetches its own as it goes along, under the latches
//! that it holds: see [`Data::look_ahead`](crate::command::Data::look_ahead).
//!
//! It is a hint to the processor and changes nothing: see [`Db::look_ahead`](crate::engine::Db::look_ahead).
//! A request may be refused later, or see another database behind a SELECT. Clients that are
//! limited to some keys get none, so that no time that passes tells them of the others.

use crate::command::Run;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::{Stage, State};

/// So many requests are parsed at once.
pub(crate) const AHEAD_REQUESTS: usize = 16;
/// So many keys are fetched at once for a command or a block that has more.
pub(crate) const AHEAD_KEYS: usize = 16;
/// The most keys that are fetched for requests parsed at once.
const PIPELINE_KEYS: usize = 64;

/// Fetches what these requests will need, as far as they are of the same database as the first one.
pub(crate) fn look<'a>(state: &State, requests: impl Iterator<Item = (&'a Session, Args<'a>)>) {
    let Stage::Ready(db) = &state.stage else {
        return;
    };
    let open = |(session, args): &(&Session, Args<'_>)| args.len() > 1 && session.user.unlimited();
    let mut requests = requests.filter(open).peekable();
    let Some((first, _)) = requests.peek() else {
        return;
    };
    let database = first.database;
    let keys = requests
        .filter(|(session, _)| session.database == database)
        .filter_map(|(_, args)| {
            let command = state.lookup.find(args.at(0))?;
            matches!(command.run, Run::Data(_)).then(|| command.key_args(&args))
        })
        .flatten();
    // Of requests for one key, which is a common pipeline, the first has fetched it.
    let mut last = None;
    let others = keys.filter(|key| last.replace(*key) != Some(*key));
    db.look_ahead(db.database(database), others.take(PIPELINE_KEYS));
}

#[cfg(test)]
mod tests;
