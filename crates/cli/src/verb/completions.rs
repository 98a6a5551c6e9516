//! `perdura completions`

use anyhow::Result;
use clap::{Command, Parser};
use clap_complete::Shell;

use crate::output;

/// Print completions for a shell.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura completions bash > /usr/share/bash-completion/completions/perdura\n  \
    perdura completions fish > ~/.config/fish/completions/perdura.fish")]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub fn run(args: &Args, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "perdura", &mut text);
    output::bytes_as_they_are(&text)
}
