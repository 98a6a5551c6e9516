//! Looking ahead: the keys of all requests parsed together are fetched into the processor's cache before the first
//! request runs.
//!
//! Connections that are ready together are read together. Their first requests are treated like the requests of one
//! pipeline: see `connection/early.rs`.
//!
//! A command with many keys, or a MULTI block, fetches keys while it runs and holds its latches: see
//! [`Data::look_ahead`](crate::command::Data::look_ahead).
//!
//! Looking ahead is a hint to the processor and changes no data: see [`Db::look_ahead`](crate::engine::Db::look_ahead).
//! A key may be fetched needlessly: the request may be refused later, or may run in another database after a SELECT.
//! That costs only time. No keys are fetched for a client that may use only some keys. Otherwise the timing could show
//! the client whether other keys exist.

use crate::command::Run;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::{Stage, State};
use smallvec::SmallVec;

/// The maximum number of requests parsed together.
pub(crate) const AHEAD_REQUESTS: usize = 16;
/// The maximum number of keys fetched together for one command or one MULTI block.
pub(crate) const AHEAD_KEYS: usize = 16;
/// The maximum number of keys fetched for requests parsed together.
const PIPELINE_KEYS: usize = 64;

/// Fetches up to [`PIPELINE_KEYS`] keys that the requests name. All these keys are in the first request's database.
pub(crate) fn look<'a>(state: &State, requests: impl Iterator<Item = (&'a Session, Args<'a>)>) {
    let Stage::Ready(db) = &state.stage else {
        return;
    };
    let mut database = None;
    // This is a plain loop, because every request passes through it. A chain of iterator adapters would take twice the
    // instructions.
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
