//! Tests that use only the log's public interface. All written frames must be read back, and damage must not be
//! mistaken for an expected end.

mod cursor;
mod damage;
mod drain_rules;
mod drained;
mod epoch_source;
mod full_disk;
mod in_flight;
mod lanes;
mod mirrored;
mod newer;
mod round_trip;
mod sealed;
mod setup;
mod spares;
mod threads;
