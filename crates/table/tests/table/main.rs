//! Typed tables over a heap and the executor of transactions, without a log.

mod against_model;
mod effects;
mod verbs;
mod world;
