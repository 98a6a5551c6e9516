//! `perdura config`

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use perdura_server::settings::{Settings, document};

use super::{database, serve};
use crate::exit::Usage;
use crate::output;

/// Show, check or create settings.
///
/// Reads the flags, the environment variables and the file of settings that `perdura serve` reads.
#[derive(Debug, Parser)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    perdura config --print-effective --config /etc/perdura/perdura.toml --maxmemory 8GiB\n  \
    perdura config --check /etc/perdura/perdura.toml\n  \
    perdura config --sample > perdura.toml"
)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Args {
    /// Print every setting with its value and where the value comes from. Passwords are masked.
    #[arg(long, group = "what")]
    print_effective: bool,
    /// Read a file and report its faults.
    #[arg(long, value_name = "FILE", group = "what")]
    check: Option<PathBuf>,
    /// Print a file with all settings, commented out.
    #[arg(long, group = "what")]
    sample: bool,
    /// Print the tables of the documentation.
    #[arg(long, group = "what", hide = true)]
    document: bool,
    #[command(flatten)]
    serve: serve::Args,
}

pub fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.check {
        let mut settings = Settings::default();
        let notes = serve::read(path, &mut settings)?;
        settings.finish();
        let place = path.display();
        database::engine_options(&settings)?;
        let sound = settings.server.check();
        sound.map_err(|error| Usage(format!("{place}: {error}")))?;
        let notes: String = notes.iter().map(|note| format!("{note}\n")).collect();
        return output::text(&format!("{notes}{place}: sound\n"));
    }
    if args.sample {
        return output::text(&document::sample());
    }
    if args.document {
        return output::text(&document::tables());
    }
    let (settings, _) = args.serve.settings()?;
    output::text(&document::effective(&settings))
}
