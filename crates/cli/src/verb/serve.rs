//! `perdura serve`

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use perdura_server::settings::{Settings, file};

use super::database::engine_options;
use crate::exit::Usage;
use crate::output;
use crate::setting_args::AllFlags;

/// The environment variable that names the file of settings.
const FILE_VARIABLE: &str = "PERDURA_CONFIG";

/// Serve a database over the Redis protocol.
///
/// Creates the database if it does not exist. The server replies to a write when the write would survive a power cut,
/// unless the client asks for less with CLIENT DURABILITY. It ends on SIGTERM, SIGINT or SHUTDOWN, with a checkpoint. A
/// second signal ends it at once without loss.
///
/// Each setting can be given as a flag (--maxclients), an environment variable (PERDURA_MAXCLIENTS) or a key of the
/// file. Flags override variables, and variables override the file.
#[derive(Debug, Parser)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    perdura serve\n  \
    perdura serve --data /srv/db --listen 127.0.0.1:7000 --maxmemory 8GiB\n  \
    perdura serve --config /etc/perdura/perdura.toml\n  \
    perdura serve --data /srv/db --streams 2 --log-dir /disk1/db --log-dir /disk2/db\n  \
    PERDURA_REQUIREPASS=... perdura serve --listen 0.0.0.0:6379 --allow-plaintext\n  \
    perdura serve --unix-socket run/perdura.sock\n\n\
    An address that other machines can reach needs a password."
)]
#[group(skip)]
pub struct Args {
    /// A TOML file of settings. See `perdura config` [env: PERDURA_CONFIG].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: AllFlags,
}

impl Args {
    /// Returns the settings from the file, the variables and the flags. Also returns the warnings about them.
    pub fn settings(&self) -> Result<(Settings, Vec<String>)> {
        let from_variable = || std::env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
        let path = self
            .config
            .clone()
            .or_else(|| from_variable().map(PathBuf::from));
        let mut settings = Settings::default();
        let mut notes = Vec::new();
        if let Some(path) = path {
            notes = read(&path, &mut settings)?;
        }
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()));
        settings.read_environment(variables).map_err(Usage)?;
        self.flags.0.apply(&mut settings)?;
        settings.finish();
        Ok((settings, notes))
    }
}

/// Reads a file of settings into `settings` and returns the warnings. A faulty file is a usage error.
pub fn read(path: &Path, settings: &mut Settings) -> Result<Vec<String>> {
    Ok(file::read(path, settings).map_err(Usage)?)
}

pub fn run(args: &Args) -> Result<()> {
    let (settings, notes) = args.settings()?;
    let database = engine_options(&settings)?;
    let options = settings.server;
    output::start_log(&options)?;
    for note in notes {
        tracing::warn!(target: "cli", "{note}");
    }
    let addresses = options.listen.iter().chain(&options.tls_listen);
    let socket = options.unix_socket.iter();
    let places: Vec<String> = addresses
        .map(ToString::to_string)
        .chain(socket.map(|path| path.display().to_string()))
        .collect();
    tracing::info!(
        target: "cli", "perdura {} on {}, to be reached at {}",
        env!("CARGO_PKG_VERSION"),
        database.data.display(),
        places.join(", ")
    );
    let data = database.data.display().to_string();
    perdura_server::serve(options, database).with_context(|| data)
}
