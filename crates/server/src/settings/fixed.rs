//! Settings of Redis that have one possible value here. There are three reasons: the log guarantees this value, the
//! server has no alternative, or a different setting serves the purpose. A client may read such a setting and set it to
//! its one value. Any other value is refused with the reason, so that no setting makes a false promise.

use super::kind::Kind;
use super::texts::save_points;

/// A name with one possible value.
#[derive(Debug)]
pub struct Fixed {
    /// Its name.
    pub name: &'static str,
    /// The value; empty if it follows from other settings.
    pub value: &'static str,
    /// Other values that are accepted, because they mean the same as `value` here.
    pub also: &'static [&'static str],
    /// The reason why it has no other value.
    pub why: &'static str,
}

const IMMUTABLE: &str = "can't set immutable config";
const NO_REPLICAS: &str = "there are no replicas";
const TLS: &str = "TLS is rustls with its own protocols (1.2, 1.3) and suites; this cannot be set";

const fn fixed(name: &'static str, value: &'static str, why: &'static str) -> Fixed {
    Fixed {
        name,
        value,
        also: &[],
        why,
    }
}

/// All names with one possible value.
pub static FIXED: &[Fixed] = &[
    fixed(
        "appendfsync",
        "always",
        "every write is durable before its reply; see CLIENT DURABILITY mem",
    ),
    fixed("appendonly", "yes", "the log cannot be switched off"),
    fixed("bind", "", IMMUTABLE),
    fixed("cluster-enabled", "no", IMMUTABLE),
    fixed("databases", "16", IMMUTABLE),
    fixed("dir", "", IMMUTABLE),
    fixed(
        "maxmemory-policy",
        "noeviction",
        "only noeviction is supported for now",
    ),
    fixed("min-replicas-to-write", "0", NO_REPLICAS),
    fixed("min-slaves-to-write", "0", NO_REPLICAS),
    fixed("port", "", IMMUTABLE),
    fixed("replicaof", "", NO_REPLICAS),
    fixed(
        "save",
        "",
        "there are no snapshots by time: checkpoints follow the log",
    ),
    fixed("slaveof", "", NO_REPLICAS),
    fixed("tls-ca-cert-dir", "", TLS),
    fixed("tls-ciphers", "", TLS),
    fixed("tls-ciphersuites", "", TLS),
    fixed("tls-client-cert-file", "", NO_REPLICAS),
    fixed("tls-client-key-file", "", NO_REPLICAS),
    fixed("tls-client-key-file-pass", "", NO_REPLICAS),
    fixed("tls-dh-params-file", "", TLS),
    fixed(
        "tls-key-file-pass",
        "",
        "the key is read without a passphrase",
    ),
    fixed("tls-port", "", IMMUTABLE),
    fixed("tls-prefer-server-ciphers", "no", TLS),
    Fixed {
        name: "tls-protocols",
        value: "",
        also: &["TLSv1.2 TLSv1.3", "TLSv1.3 TLSv1.2"],
        why: TLS,
    },
];

/// Returns the row of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Fixed> {
    FIXED.iter().find(|row| row.name == name)
}

/// Returns the setting to use instead of this name. `None`: no setting replaces the name.
#[must_use]
pub fn instead(name: &str) -> Option<&'static str> {
    match name {
        "bind" | "port" => Some("listen"),
        "tls-port" => Some("tls-listen"),
        "dir" => Some("data"),
        _ => None,
    }
}

impl Fixed {
    /// Accepts the fixed value, and each value that means the same.
    ///
    /// # Errors
    /// A description of what is wrong with the form of the value, or the reason why the value is impossible.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let policies = &[
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "noeviction",
        ];
        match self.name {
            "appendonly" => Kind::Bool.canonical(value).map(drop)?,
            "appendfsync" => Kind::Choice(&["everysec", "always", "no"])
                .canonical(value)
                .map(drop)?,
            "maxmemory-policy" => Kind::Choice(policies).canonical(value).map(drop)?,
            "save" => save_points(value)?,
            _ => {}
        }
        if self.allows(value) {
            Ok(())
        } else {
            Err(self.why.into())
        }
    }

    /// Returns whether a value is accepted: it is the fixed value, or means the same.
    fn allows(&self, value: &str) -> bool {
        value.eq_ignore_ascii_case(self.value)
            || self
                .also
                .iter()
                .any(|also| also.eq_ignore_ascii_case(value))
    }
}
