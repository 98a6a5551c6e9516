//! The options of the server at its start, and the possible reasons for a refusal to start.

use crate::cpus;
use crate::engine::Durability;
use crate::settings::{ClientShare, OutputLimits, PackedLimits};
use crate::tls::{TlsAuthClients, TlsFiles};
use perdura_base::limits::VALUE_BYTES_MAX;
use perdura_logging::{LogFormat, LogLevel};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// The addresses to listen on, and the rights and bounds of clients.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// TCP addresses to listen on; port 0 picks a free one. The list may be empty if there is a socket.
    pub listen: Vec<SocketAddr>,
    /// A Unix socket to listen on. Only its owner can connect.
    pub unix_socket: Option<PathBuf>,
    /// TCP addresses to listen on for TLS connections; port 0 picks a free one.
    pub tls_listen: Vec<SocketAddr>,
    /// The server's certificate and the intermediate certificates up to the root, PEM.
    pub tls_cert_file: Option<PathBuf>,
    /// The private key of the server's certificate, PEM.
    pub tls_key_file: Option<PathBuf>,
    /// The root certificates that sign clients' certificates, PEM.
    pub tls_ca_cert_file: Option<PathBuf>,
    /// The rule for client certificates.
    pub tls_auth_clients: TlsAuthClients,
    /// True if the server may listen without TLS on addresses that other machines can reach.
    pub allow_plaintext: bool,
    /// The password of AUTH. If it is `None` and no users are named, only loopback addresses may be listened on.
    pub requirepass: Option<String>,
    /// The number of event loops. `None`: it depends on the CPUs; see [`loops`](Self::loops).
    pub loops: Option<NonZeroUsize>,
    /// The CPUs on which the loops run, one for each loop in turn. Empty: any CPU.
    pub loop_cpus: Vec<usize>,
    /// The maximum number of clients at a time.
    pub maxclients: usize,
    /// The maximum number of clients that have not authenticated, if a password is needed.
    pub maxclients_unauthenticated: usize,
    /// The share of the memory limit for clients' buffers.
    pub client_share: ClientShare,
    /// The maximum size of one request or one MULTI block, bytes.
    pub query_bytes_max: usize,
    /// The maximum size of one reply, bytes.
    pub reply_bytes_max: usize,
    /// The number of unsent bytes above which a client's new requests are stored. These requests run when the
    /// client has read enough replies.
    pub output_bytes_pause: usize,
    /// The maximum idle time of a client, seconds; 0: no limit.
    pub idle_seconds_max: u64,
    /// Seconds between TCP keepalives; 0: no keepalives are sent.
    pub tcp_keepalive_seconds: u32,
    /// The maximum unsent bytes of a client, for each class of clients.
    pub output_limits: OutputLimits,
    /// The letters of the events that are published, in canonical order.
    pub notify_keyspace_events: String,
    /// The shortest duration of a command that is noted in SLOWLOG, in microseconds; -1: no command is noted.
    pub slowlog_slower_than_us: i64,
    /// The maximum number of entries in SLOWLOG.
    pub slowlog_len_max: usize,
    /// The maximum number of keys in the table of CLIENT TRACKING; 0: no limit.
    pub tracking_keys_max: u64,
    /// The maximum size, in bytes, of a HyperLogLog in the sparse encoding (runs of equal registers).
    pub hll_sparse_bytes_max: u64,
    /// True if the durations of commands are counted.
    pub latency_tracking: bool,
    /// True if each key stores the time of its last use, in seconds.
    pub key_idle_times: bool,
    /// The shortest duration of an event that is noted for LATENCY LATEST, in milliseconds; 0: no event is noted.
    pub latency_threshold_ms: u64,
    /// Percentiles that INFO latencystats shows.
    pub latency_percentiles: Vec<f64>,
    /// The maximum sizes of packed collections.
    pub packed: PackedLimits,
    /// The clients that may use DEBUG.
    pub enable_debug_command: DebugAccess,
    /// A file of users, as ACL SAVE writes it.
    pub aclfile: Option<PathBuf>,
    /// Users, each `name rule …` as for ACL SETUSER.
    pub users: Vec<String>,
    /// Entries that ACL LOG keeps.
    pub acllog_len_max: usize,
    /// The rule for a new user's channels of pub/sub: `allchannels` or `resetchannels`.
    pub acl_pubsub_default: String,
    /// True if clients from other machines are turned away while no password is set.
    pub protected_mode: bool,
    /// The address of the metrics and the status page. `None`: they are not served.
    pub metrics_listen: Option<SocketAddr>,
    /// The durability of a new session. A reply waits until the writes that it shows have this durability.
    pub durability: Durability,
    /// The server's reaction after the database has stopped because of a failure of its disk.
    pub on_stop: OnStop,
    /// Host names, with or without a port, that requests for the metrics may name besides the address.
    pub http_hosts: Vec<String>,
    /// The password for the metrics. `None`: they need no password.
    pub http_password: Option<String>,
    /// True if other machines may read the metrics without a password.
    pub http_public: bool,
    /// The lowest level of events that the operator's log shows.
    pub log_level: LogLevel,
    /// The form of the operator's log lines.
    pub log_format: LogFormat,
    /// The file that the settings were read from, for CONFIG REWRITE. `None`: there was no file.
    pub config_file: Option<PathBuf>,
    /// The changed settings that have an effect in Redis but not in this server, each with its new value.
    pub ignored: BTreeMap<&'static str, String>,
}

/// The clients that may use DEBUG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugAccess {
    /// No client.
    No,
    /// Every client that may run the command.
    Yes,
    /// Clients on this machine.
    Local,
}

/// The server's reaction if a disk failure stops the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// The server answers its clients with the error and ends.
    Exit,
    /// The server continues to answer: durable data can be read, every other request gets an error.
    Stay,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            unix_socket: None,
            tls_listen: Vec::new(),
            tls_cert_file: None,
            tls_key_file: None,
            tls_ca_cert_file: None,
            tls_auth_clients: TlsAuthClients::No,
            allow_plaintext: false,
            requirepass: None,
            loops: None,
            loop_cpus: Vec::new(),
            maxclients: 10_000,
            maxclients_unauthenticated: 1000,
            client_share: ClientShare::Percent(5),
            query_bytes_max: 1 << 30,
            reply_bytes_max: VALUE_BYTES_MAX,
            output_bytes_pause: 1 << 20,
            idle_seconds_max: 0,
            tcp_keepalive_seconds: 300,
            output_limits: OutputLimits::default(),
            notify_keyspace_events: String::new(),
            slowlog_slower_than_us: 10_000,
            slowlog_len_max: 128,
            tracking_keys_max: 1_000_000,
            hll_sparse_bytes_max: 3000,
            latency_tracking: true,
            key_idle_times: true,
            latency_threshold_ms: 0,
            latency_percentiles: vec![50.0, 99.0, 99.9],
            packed: PackedLimits::default(),
            enable_debug_command: DebugAccess::No,
            aclfile: None,
            users: Vec::new(),
            acllog_len_max: 128,
            acl_pubsub_default: String::from("resetchannels"),
            protected_mode: true,
            metrics_listen: None,
            durability: Durability::Disk,
            on_stop: OnStop::Exit,
            http_hosts: Vec::new(),
            http_password: None,
            http_public: false,
            log_level: LogLevel::Notice,
            log_format: LogFormat::Text,
            config_file: None,
            ignored: BTreeMap::new(),
        }
    }
}

impl ServerOptions {
    /// Refuses options that would expose the database or leave it unreachable.
    ///
    /// # Errors
    /// [`ServeError::Options`] with the reason.
    pub fn check(&self) -> Result<(), ServeError> {
        if self.listen.is_empty() && self.tls_listen.is_empty() && self.unix_socket.is_none() {
            return Err(ServeError::Options(String::from(
                "neither an address nor a Unix socket to listen on was given",
            )));
        }
        if self.requirepass.as_ref().is_some_and(String::is_empty) {
            return Err(ServeError::Options(String::from("the password is empty")));
        }
        let reachable = |address: &&SocketAddr| !address.ip().is_loopback();
        let exposed = self.listen.iter().chain(&self.tls_listen).find(reachable);
        let named = self.aclfile.is_some() || !self.users.is_empty();
        if named && self.aclfile.is_some() && !self.users.is_empty() {
            return Err(ServeError::Options(String::from(
                "users come from an ACL file or from the configuration, not from both",
            )));
        }
        if let Some(address) = self.metrics_listen.filter(|a| reachable(&a))
            && self.http_password.is_none()
            && !self.http_public
        {
            return Err(ServeError::Options(format!(
                "metrics-listen {address} can be reached from other machines. Set http-password, \
                 listen on a loopback address such as 127.0.0.1, or set http-public"
            )));
        }
        if let (Some(address), None, false) = (exposed, &self.requirepass, named) {
            return Err(no_password(*address));
        }
        match self.listen.iter().find(reachable) {
            Some(address) if !self.allow_plaintext => Err(ServeError::Options(readable(
                *address,
                "passwords and data",
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the number of event loops. If none is given, it is 1 on one or two CPUs, otherwise one less than the CPUs,
    /// but at most 8.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.loops
            .map_or_else(cpus::default_loops, NonZeroUsize::get)
    }

    /// Returns the files for TLS.
    #[must_use]
    pub fn tls_files(&self) -> TlsFiles {
        TlsFiles {
            cert: self.tls_cert_file.clone(),
            key: self.tls_key_file.clone(),
            ca_cert: self.tls_ca_cert_file.clone(),
            auth_clients: self.tls_auth_clients,
        }
    }

    /// Refuses users that would expose the database. `open` is true if a client may connect without a password.
    pub(crate) fn check_users(&self, open: bool) -> Result<(), ServeError> {
        let mut all = self.listen.iter().chain(&self.tls_listen);
        match all.find(|address| !address.ip().is_loopback()) {
            Some(address) if open => Err(no_password(*address)),
            _ => Ok(()),
        }
    }

    /// Returns whether a new user may use all channels of pub/sub.
    pub(crate) fn acl_all_channels(&self) -> bool {
        self.acl_pubsub_default.eq_ignore_ascii_case("allchannels")
    }
}

fn no_password(address: SocketAddr) -> ServeError {
    let remedy = "set a password (requirepass, or that of the user default)";
    ServeError::Options(unguarded(address, remedy))
}

/// Returns the error text for a refusal to listen on `address`, which other machines can reach. The text names
/// `remedy`.
#[must_use]
pub fn unguarded(address: SocketAddr, remedy: &str) -> String {
    format!(
        "{address} can be reached from other machines; {remedy} or listen on a loopback address \
         such as 127.0.0.1"
    )
}

/// Returns the reason why the server does not listen without TLS on an address that other machines can reach.
/// `what` is the data that would be readable on the network.
#[must_use]
pub fn readable(address: SocketAddr, what: &str) -> String {
    format!(
        "{address} can be reached from other machines, and {what} would cross the network \
         unencrypted. Use TLS there (tls-listen), or set allow-plaintext"
    )
}

/// The reason why the server did not start or did not end cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The options are contradictory or expose the database.
    #[error("{0}")]
    Options(String),
    /// An address or socket could not be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address or path.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The certificates or the key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The users cannot be read.
    #[error("ACL: {0}")]
    Users(String),
    /// The event loop failed.
    #[error("event loop: {0}")]
    Loop(#[from] io::Error),
    /// The database did not open, or did not close cleanly.
    #[error(transparent)]
    Database(#[from] perdura_base::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_address_for_metrics_needs_a_password_or_a_word() {
        let mut options = ServerOptions {
            metrics_listen: Some("0.0.0.0:0".parse().expect("an address")),
            ..ServerOptions::default()
        };
        let error = options.check().expect_err("exposed").to_string();
        for part in ["0.0.0.0:0", "http-password", "http-public"] {
            assert!(error.contains(part), "{error}");
        }
        options.http_public = true;
        assert!(options.check().is_ok());
        options.http_public = false;
        options.http_password = Some(String::from("secret"));
        assert!(options.check().is_ok());
        options.http_password = None;
        options.metrics_listen = Some("[::1]:0".parse().expect("an address"));
        assert!(options.check().is_ok());
    }

    #[test]
    fn a_foreign_address_needs_a_password() {
        let mut options = ServerOptions {
            listen: vec!["0.0.0.0:0".parse().expect("an address")],
            ..ServerOptions::default()
        };
        let error = options.check().expect_err("exposed").to_string();
        assert!(
            error.contains("0.0.0.0:0") && error.contains("requirepass"),
            "{error}"
        );
        options.requirepass = Some(String::from("secret"));
        let error = options.check().expect_err("readable").to_string();
        assert!(error.contains("allow-plaintext"), "{error}");
        options.allow_plaintext = true;
        assert!(options.check().is_ok());
        options.tls_listen = std::mem::take(&mut options.listen);
        options.allow_plaintext = false;
        assert!(options.check().is_ok());
        options.requirepass = Some(String::new());
        assert!(options.check().is_err());
        options.requirepass = None;
        assert!(options.check().is_err());
        options.tls_listen.clear();
        assert!(options.check().is_err());
    }
}
