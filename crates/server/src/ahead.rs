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
use smallvec::SmallVec;

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
    let mut database = None;
    // By hand: each request runs this, and a chain of adapters takes twice the instructions.
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
            // Of requests for one key, which is a common pipeline, the first has fetched it.
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
