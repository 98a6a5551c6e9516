//! Transactions over keys: basics, restarts by every method, and rollbacks that crashes interrupt.

mod basics;
mod checkpoints;
mod damage;
mod refusals;
mod restarts;
mod support;
mod verified;
