//! Looking ahead: the keys of requests that were parsed together are fetched together, before the first of them runs.
//!
//! Connections that are ready at the same time are read together, and their first requests are treated like those of
//! one pipeline: see `connection/early.rs`.
//!
//! A command with many keys, and a block of MULTI, fetches its keys while it runs, under its latches: see
//! [`Data::look_ahead`](crate::command::Data::look_ahead).
//!
//! It is a hint to the processor and changes nothing: see [`Db::look_ahead`](crate::engine::Db::look_ahead). A
//! request may be refused later, or see another database behind a SELECT. For clients that are limited to some keys
//! nothing is fetched, so that no delay shows them other keys.

use crate::command::Run;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::{Stage, State};
use smallvec::SmallVec;

/// The most requests that are parsed together.
pub(crate) const AHEAD_REQUESTS: usize = 16;
/// The most keys that are fetched together for a command or a block that has more.
pub(crate) const AHEAD_KEYS: usize = 16;
/// The most keys that are fetched for requests that were parsed together.
const PIPELINE_KEYS: usize = 64;

/// Fetches the keys of these requests, as far as they are of the same database as the first one.
pub(crate) fn look<'a>(state: &State, requests: impl Iterator<Item = (&'a Session, Args<'a>)>) {
    let Stage::Ready(db) = &state.stage else {
        return;
    };
    let mut database = None;
    // This is a plain loop: each request runs it, and a chain of adapters takes twice the instructions.
    let mut keys: SmallVec<[&[u8]; PIPELINE_KEYS]> = SmallVec::new();
    for (session, args) in requests {
        if args.len() <= 1 || !session.user.unlimited() {
            continue;
        }
        if *database.get_or_insert(session.database) != session.database {
            continue;
        }
        let Some(command) = state.lookup.find(args.at(0)) else {
            continue;
        };
        if !matches!(command.run, Run::Data(_)) {
            continue;
        }
        for key in command.key_args(&args) {
            // In a pipeline of requests for one key, which is common, the first request has fetched it.
            if keys.last() != Some(&key) {
                keys.push(key);
            }
            if keys.len() == PIPELINE_KEYS {
                break;
            }
        }
        if keys.len() == PIPELINE_KEYS {
            break;
        }
    }
    if let Some(database) = database {
        db.look_ahead(db.database(database), keys.iter().copied());
    }
}

#[cfg(test)]
mod tests;
