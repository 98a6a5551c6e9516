//! Looking ahead: the keys of requests that were parsed together are fetched together, before the first of them runs.
//!
//! Connections that are ready at the same time are read together, and their first requests are treated like those of
//! one pipeline: see `connection/early.rs`.
//!
//! A command with many keys, and a block of MULTI, fetches its keys while it runs, under its latches: see
//! [`Data::look_ahead`](crate::command::Data::look_ahead).
//!
//! Looking ahead is a hint to the processor and changes no data: see
//! [`Db::look_ahead`](crate::engine::Db::look_ahead). A wrong guess costs only time: a request may be refused
//! when its turn comes, or may run in another database after a SELECT. No keys are fetched for a client that
//! may use only some keys. Otherwise the timing could reveal whether other keys exist.

use crate::command::Run;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::{Stage, State};
use smallvec::SmallVec;

/// The most requests that are parsed together.
pub(crate) const AHEAD_REQUESTS: usize = 16;
/// The most keys that are fetched together for one command or one MULTI block.
pub(crate) const AHEAD_KEYS: usize = 16;
/// The most keys that are fetched for requests that were parsed together.
const PIPELINE_KEYS: usize = 64;

/// Fetches the keys of those requests that use the same database as the first request.
pub(crate) fn look<'a>(state: &State, requests: impl Iterator<Item = (&'a Session, Args<'a>)>) {
    let Stage::Ready(db) = &state.stage else {
        return;
    };
    let mut database = None;
    // A plain loop, because every request runs it: a chain of iterator adapters takes twice the instructions.
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
            // Many pipelines repeat one key. A key that equals the previous one is already in the list.
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
