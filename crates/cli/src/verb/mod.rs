//! The verbs.

pub mod bench;
pub mod completions;
pub mod config;
pub mod crash;
pub mod database;
pub mod digest;
pub mod dump;
pub mod export;
pub mod import;
pub mod man;
pub mod repair;
pub mod reproduce;
pub mod restart;
pub mod serve;
pub mod verify;
