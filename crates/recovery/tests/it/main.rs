//! Tests of restarts through the public interface.

mod cuts;
mod displaced;
mod made;
mod mirrored;
mod ordered;
mod players;
mod recover;
mod schedule;
mod verified;
