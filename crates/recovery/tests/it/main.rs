//! Restarts from outside: players, orders, schedules, cuts.

mod cuts;
mod displaced;
mod made;
mod mirrored;
mod ordered;
mod players;
mod recover;
mod schedule;
mod verified;
