//! A server inside this process, which serves a stopped database during a transfer. Only the process's user can open
//! its socket.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use perdura_server::{Server, ServerOptions};

use super::address::{Address, Endpoint};
use super::now_ms;

/// The server in this process.
pub struct Embedded {
    server: Server,
    dir: PathBuf,
    /// The server's address.
    pub address: Address,
}

impl Embedded {
    /// Opens or creates the database and serves it.
    pub fn start(database: perdura::Options) -> Result<Embedded> {
        let dir = std::env::temp_dir().join(format!(
            "perdura-transfer-{}-{}",
            std::process::id(),
            now_ms()
        ));
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("making {}", dir.display()))?;
        let socket = dir.join("socket");
        let name = database.data.display().to_string();
        let options = ServerOptions {
            listen: Vec::new(),
            unix_socket: Some(socket.clone()),
            ..ServerOptions::default()
        };
        let server = Server::start(options, database).with_context(|| name)?;
        Ok(Embedded {
            server,
            dir,
            address: Address {
                endpoint: Endpoint::Unix(socket),
                user: None,
                password: None,
            },
        })
    }

    /// Stops the server and closes the database with a checkpoint.
    pub fn stop(self) -> Result<()> {
        let stopped = self.server.stop();
        // The socket is already removed. If the directory stays, it does no harm.
        let _ = std::fs::remove_dir_all(&self.dir);
        Ok(stopped?)
    }

    /// Stops the server after its connection has failed with `error`. Returns the server's own error if it has one,
    /// because the server's error explains more. Otherwise returns `error`.
    pub fn failure(self, error: anyhow::Error) -> anyhow::Error {
        self.stop().err().unwrap_or(error)
    }
}
