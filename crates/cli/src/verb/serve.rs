//! `perdura serve`

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use perdura_server::ServerOptions;

use super::database::DatabaseArgs;

/// The variable that keeps the password out of the list of processes.
const PASSWORD_VARIABLE: &str = "PERDURA_REQUIREPASS";

/// Serve a database over the Redis protocol.
///
/// Makes the database if there is none. Every reply to a write waits until the write would survive
/// a power cut, unless the client asks for less with CLIENT DURABILITY. Ends on SIGTERM, SIGINT or
/// SHUTDOWN, with a checkpoint; a second signal ends at once and loses nothing.
#[derive(Debug, Parser)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    perdura serve\n  \
    perdura serve --data /srv/db --listen 127.0.0.1:7000 --maxmemory 8GiB\n  \
    perdura serve --data /srv/db --streams 2 --log-dir /disk1/db --log-dir /disk2/db\n  \
    PERDURA_REQUIREPASS=... perdura serve --listen 0.0.0.0:6379\n  \
    perdura serve --unix-socket run/perdura.sock\n\n\
    An address that other machines can reach needs a password."
)]
pub struct Args {
    /// The data directory.
    #[arg(long, value_name = "DIR", default_value = "perdura-data")]
    data: PathBuf,
    /// An address to listen on; may be repeated [default: 127.0.0.1:6379, or none if there is a
    /// Unix socket].
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    listen: Vec<SocketAddr>,
    /// A Unix socket to listen on.
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// The password of AUTH. Others can see it in the list of processes; the variable
    /// PERDURA_REQUIREPASS hides it.
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
    /// The most clients at once.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    maxclients: usize,
    #[command(flatten)]
    database: DatabaseArgs,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| format!("{error}; give HOST:PORT"))?;
    found.next().ok_or_else(|| "the name has no address".into())
}

pub fn run(args: Args) -> Result<()> {
    let mut listen = args.listen;
    if listen.is_empty() && args.unix_socket.is_none() {
        listen = ServerOptions::default().listen;
    }
    let from_environment = std::env::var(PASSWORD_VARIABLE)
        .ok()
        .filter(|word| !word.is_empty());
    let options = ServerOptions {
        listen,
        unix_socket: args.unix_socket,
        requirepass: args.requirepass.or(from_environment),
        maxclients: args.maxclients,
        ..ServerOptions::default()
    };
    let database = args.database.options(args.data)?;
    let places: Vec<String> = options
        .listen
        .iter()
        .map(ToString::to_string)
        .chain(
            options
                .unix_socket
                .iter()
                .map(|path| path.display().to_string()),
        )
        .collect();
    say(&format!(
        "perdura {} serves {} on {}",
        env!("CARGO_PKG_VERSION"),
        database.data.display(),
        places.join(", ")
    ));
    let data = database.data.display().to_string();
    perdura_server::serve(options, database, say).with_context(|| data)
}

fn say(line: &str) {
    eprintln!("{line}");
}
