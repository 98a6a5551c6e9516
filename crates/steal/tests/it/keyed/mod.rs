//! Transactions over keys: basics, restarts by every method, rollbacks over crashes.

mod basics;
mod checkpoints;
mod damage;
mod refusals;
mod restarts;
mod support;
mod verified;
