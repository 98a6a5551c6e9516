//! `perdura dump`: the bytes of a stopped database, decoded.

mod anchor;
mod checkpoint;
mod log;
mod ordered;
mod page;
mod run;

use anyhow::Result;
use clap::Subcommand;

/// Show what the files of a stopped database hold. Changes nothing.
#[derive(Debug, Subcommand)]
pub enum Object {
    Log(log::Args),
    Page(page::Args),
    Checkpoint(checkpoint::Args),
    Anchor(anchor::Args),
    Run(run::Args),
}

pub fn run(object: &Object) -> Result<()> {
    match object {
        Object::Log(args) => log::run(args),
        Object::Page(args) => page::run(args),
        Object::Checkpoint(args) => checkpoint::run(args),
        Object::Anchor(args) => anchor::run(args),
        Object::Run(args) => run::run(args),
    }
}
