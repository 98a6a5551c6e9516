//! The log from outside: everything that was written is read back, and damage is not mistaken for an expected end.

mod cursor;
mod damage;
mod drain_rules;
mod drained;
mod epoch_source;
mod full_disk;
mod in_flight;
mod mirrored;
mod newer;
mod round_trip;
mod sealed;
mod setup;
mod spares;
mod threads;
