//! `perdura logd`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use perdura_device::{FileDisk, read_input};
use perdura_logd::{LoadServerTls, LogdOptions, PeerOptions, TcpNet};
use perdura_mirror::Key;
use perdura_server::settings::{Settings, units};
use perdura_server::{readable, unguarded};
use perdura_wal::block::BLOCK_BYTES_MAX;

use crate::exit::Usage;
use crate::output;
use crate::setting_args::NodeArgs;

/// The maximum number of rings of a node. One reply must be able to name all rings of a database.
const RINGS_MAX: usize = 4096;
/// The longest time that a thread of a spinning node looks for the next frame before sleeping.
const SPIN: Duration = Duration::from_micros(200);
/// The maximum length of a key file, in bytes.
const KEY_FILE_BYTES_MAX: usize = 64 * 1024;

/// Keep the newest bytes of databases' logs in this machine's memory, as a node of the mirrored log.
///
/// `perdura serve` with nodes sends the database's log to the nodes. A commit then waits for the memories of two nodes
/// instead of the disk. The log reaches the disk a little later. When a node ends, its memory is lost. No write is lost
/// while the database server or one node still runs. Run each node of a pair on a separate machine with a separate
/// power supply.
///
/// The node ends on SIGTERM and SIGINT. On SIGHUP the node reads the certificates again.
#[derive(Debug, Parser)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    perdura logd\n  \
    perdura logd --listen 10.0.0.2:7379 --key-file /etc/perdura/logd.key --allow-plaintext\n  \
    perdura logd --dir /var/lib/perdura/logd\n  \
    perdura logd --listen 10.0.0.2:7379 --peer 10.0.0.3:7379 --key-file k --allow-plaintext\n  \
    perdura logd --tls-listen 10.0.0.2:7379 --key-file k --tls-cert-file cert.pem --tls-key-file key.pem\n\n\
    A key is any text of 16 to 4096 bytes, the same for the nodes and their databases:\n  \
    (umask 077; head -c 32 /dev/urandom | base64 > logd.key)\n\n\
    An address that other machines can reach needs a key."
)]
#[group(skip)]
pub struct Args {
    /// An address to listen on. Port 0 picks a free one [default: 127.0.0.1:7379, or none if `tls-listen` is set].
    #[arg(long, value_name = "IP:PORT")]
    listen: Vec<SocketAddr>,
    /// Size of a ring. A ring holds the newest log of one stream of a database, until the database's disk has this log.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = units::bytes)]
    ring: u64,
    /// Maximum number of rings, for all databases together. A ring's memory is allocated when the ring is opened.
    #[arg(long, value_name = "N", default_value_t = 64)]
    rings_max: usize,
    /// A file with the key that databases need to connect.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Poll for the next block for a while before sleeping. This reduces the delay and costs processor time.
    #[arg(long)]
    spin: bool,
    /// Accept blocks only as messages. Writers on this machine then cannot map rings into their own memory.
    #[arg(long)]
    no_share: bool,
    /// Also copy the rings to this directory at least every 50 ms. Replies do not wait for the copies.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The other node of the pair. This node does not start if the two nodes would not form a mirror. It reports when
    /// the peer is lost and when the peer is back.
    #[arg(long, value_name = "HOST:PORT")]
    peer: Option<String>,
    /// Allow the peer on this machine, although the pair then fails together.
    #[arg(long, requires = "peer")]
    one_machine: bool,
    #[command(flatten)]
    flags: NodeArgs,
}

impl Args {
    fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::default();
        self.flags.0.apply(&mut settings)?;
        Ok(settings)
    }

    fn options(&self) -> Result<LogdOptions> {
        ensure!(
            self.ring >= perdura_base::num::to_u64(BLOCK_BYTES_MAX),
            Usage(format!(
                "--ring {} is too small: a ring must hold the longest block, {BLOCK_BYTES_MAX} bytes",
                self.ring
            ))
        );
        ensure!(
            (1..=RINGS_MAX).contains(&self.rings_max),
            Usage(format!("--rings-max is 1 to {RINGS_MAX}"))
        );
        let server = self.settings()?.server;
        let key = key(self.key_file.as_deref())?;
        let usual = LogdOptions::default();
        let listen = match (self.listen.is_empty(), server.tls_listen.is_empty()) {
            (true, true) => usual.listen.clone(),
            _ => self.listen.clone(),
        };
        let reachable = |address: &&SocketAddr| !address.ip().is_loopback();
        let exposed = listen.iter().chain(&server.tls_listen).find(reachable);
        if let (Some(address), false) = (exposed, key.is_set()) {
            let remedy = "set a key (--key-file)";
            return Err(Usage(unguarded(*address, remedy)).into());
        }
        if let (Some(address), false) = (listen.iter().find(reachable), server.allow_plaintext) {
            return Err(Usage(readable(*address, "the database's changes")).into());
        }
        let peer = self.peer.as_ref().map(|address| {
            // Both nodes have the same configuration. So a node that only accepts TLS uses TLS to its peer too.
            let net = TcpNet::new(std::slice::from_ref(address), None)?;
            let files = server.tls_files();
            let load = move || {
                files
                    .client_config()
                    .map_err(|why| format!("--peer of a node that listens only with TLS: {why}"))
            };
            Ok::<PeerOptions, anyhow::Error>(PeerOptions {
                address: address.clone(),
                net: match listen.is_empty() {
                    true => net.with_tls_from(Arc::new(load))?,
                    false => net,
                },
                one_machine: self.one_machine,
            })
        });
        let peer = peer.transpose()?;
        let files = server.tls_files();
        let load_tls: Option<LoadServerTls> = match server.tls_listen.is_empty() {
            true => None,
            false => Some(Arc::new(move || files.server_config())),
        };
        let tls = load_tls.as_ref().map(|load| load()).transpose();
        let tls = tls.map_err(|why| Usage(format!("TLS: {why}")))?;
        let hard_copy = self.dir.as_deref().map(FileDisk::shared).transpose()?;
        Ok(LogdOptions {
            hard_copy,
            peer,
            listen,
            tls_listen: server.tls_listen,
            tls,
            load_tls,
            key,
            ring_bytes: self.ring,
            rings_max: self.rings_max,
            shares: !self.no_share,
            spin: if self.spin { SPIN } else { Duration::ZERO },
            ..usual
        })
    }
}

/// Returns the key from a file, or the empty key if no file is given.
pub fn key(path: Option<&Path>) -> Result<Key> {
    let Some(path) = path else {
        return Ok(Key::none());
    };
    let name = path.display().to_string();
    let bytes = read_input(path, KEY_FILE_BYTES_MAX).with_context(|| name.clone())?;
    Ok(Key::from_file(&name, &bytes)?)
}

pub fn run(args: &Args) -> Result<()> {
    let options = args.options()?;
    output::start_log(&args.settings()?.server)?;
    Ok(perdura_logd::serve(options)?)
}
