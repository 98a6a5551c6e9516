//! `perdura man`

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Command, Parser};

use crate::output;

/// Write manual pages into a directory: one for the program and one for each verb.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura man /usr/share/man/man1\n  \
    perdura man . && man ./perdura-serve.1")]
pub struct Args {
    /// The directory. It is created if it does not exist.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn run(args: &Args, command: Command) -> Result<()> {
    let place = || args.dir.display().to_string();
    std::fs::create_dir_all(&args.dir).with_context(place)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), &args.dir)
        .with_context(place)?;
    output::text(&format!("{}\n", args.dir.join("perdura.1").display()))
}
