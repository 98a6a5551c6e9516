//! Settings with a special syntax: limits of output buffers, classes of keyspace events, percentiles. Error texts and
//! forms are Redis's.

use super::kind::Kind;
use crate::host_name::HostName;

/// The limit on the unread bytes of each client of a class. A client beyond the limit is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimit {
    /// The unread bytes that disconnect a client at once; 0: no limit.
    pub hard_bytes: u64,
    /// The unread bytes that disconnect a client after [`soft_seconds`](Self::soft_seconds); 0: no limit.
    pub soft_bytes: u64,
    /// The time in seconds for which `soft_bytes` or more may stay unread.
    pub soft_seconds: u64,
}

/// The limits of all classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Clients that send commands.
    pub normal: OutputLimit,
    /// Replicas. This class is accepted because configurations of Redis set it.
    pub replica: OutputLimit,
    /// Clients that are subscribed.
    pub pubsub: OutputLimit,
}

impl Default for OutputLimits {
    fn default() -> Self {
        let limit = |hard_bytes, soft_bytes, soft_seconds| OutputLimit {
            hard_bytes,
            soft_bytes,
            soft_seconds,
        };
        OutputLimits {
            normal: limit(0, 0, 0),
            replica: limit(256 << 20, 64 << 20, 60),
            pubsub: limit(32 << 20, 8 << 20, 60),
        }
    }
}

impl OutputLimits {
    /// Changes the limits of the classes that a text names. The text has the form `class hard soft seconds …`.
    pub(super) fn update(&mut self, text: &str) -> Result<(), String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        let mut changed = *self;
        for four in words.chunks_exact(4) {
            let class = match four[0].to_ascii_lowercase().as_str() {
                "normal" => &mut changed.normal,
                "slave" | "replica" => &mut changed.replica,
                "pubsub" => &mut changed.pubsub,
                _ => {
                    return Err(
                        "Invalid client class specified in buffer limit configuration.".into(),
                    );
                }
            };
            let parsed = (
                super::units::bytes(four[1]),
                super::units::bytes(four[2]),
                four[3].parse(),
            );
            let (Ok(hard_bytes), Ok(soft_bytes), Ok(soft_seconds)) = parsed else {
                return Err(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                        .into(),
                );
            };
            *class = OutputLimit {
                hard_bytes,
                soft_bytes,
                soft_seconds,
            };
        }
        *self = changed;
        Ok(())
    }

    /// Returns the limits as CONFIG GET shows them.
    pub(super) fn show(&self) -> String {
        let classes = [
            ("normal", self.normal),
            ("slave", self.replica),
            ("pubsub", self.pubsub),
        ];
        classes
            .map(|(name, limit)| {
                format!(
                    "{name} {} {} {}",
                    limit.hard_bytes, limit.soft_bytes, limit.soft_seconds
                )
            })
            .join(" ")
    }
}

/// The minimum share, in bytes, that a percentage yields. It lets clients send requests even if `maxmemory` is tiny.
const SHARE_BYTES_MIN: u64 = 16 << 20;

/// The part of `maxmemory` for clients' buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientShare {
    /// This number of bytes; 0: no limit.
    Bytes(u64),
    /// This percentage of `maxmemory`, and 16 MiB at least.
    Percent(u64),
}

impl ClientShare {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return super::units::bytes(text).map(ClientShare::Bytes);
        };
        match percent.parse() {
            Ok(percent @ 0..=100) => Ok(ClientShare::Percent(percent)),
            _ => Err("argument must be a memory or percent value".into()),
        }
    }

    pub(super) fn show(&self) -> String {
        match self {
            ClientShare::Bytes(bytes) => bytes.to_string(),
            ClientShare::Percent(percent) => format!("{percent}%"),
        }
    }

    /// Returns the clients' share of the memory limit `limit`, bytes. `None`: clients have no limit.
    pub(crate) fn of(self, limit: u64) -> Option<u64> {
        match self {
            ClientShare::Bytes(0) | ClientShare::Percent(0) => None,
            ClientShare::Bytes(bytes) => Some(bytes),
            ClientShare::Percent(_) if limit == u64::MAX => None,
            ClientShare::Percent(percent) => Some((limit / 100 * percent).max(SHARE_BYTES_MIN)),
        }
    }
}

/// The classes that `A` means, in display order.
const ALL_CLASSES: &str = "g$lshzxetd";

/// Returns the canonical form of classes of keyspace events.
pub(super) fn events(text: &str) -> Result<String, String> {
    if text.chars().any(|c| !"Ag$lshzxeKEtmdn".contains(c)) {
        return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into());
    }
    let has = |c: char| text.contains(c);
    let mut shown = String::new();
    if has('A') || ALL_CLASSES.chars().all(has) {
        shown.push('A');
    } else {
        shown.extend(ALL_CLASSES.chars().chain(['n']).filter(|c| has(*c)));
    }
    shown.extend("KEm".chars().filter(|c| has(*c)));
    // Redis does not show `n` beside `A`. Here `n` is shown, because the shown text is also the stored one.
    if shown.starts_with('A') && has('n') {
        shown.push('n');
    }
    Ok(shown)
}

/// Reads percentiles between 0 and 100.
pub(super) fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    let mut found = Vec::new();
    for word in text.split_whitespace() {
        let percentile: f64 = word
            .parse()
            .map_err(|_| "Invalid latency-tracking-info-percentiles parameters")?;
        if !(0.0..=100.0).contains(&percentile) {
            return Err(
                "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                    .into(),
            );
        }
        found.push(percentile);
    }
    Ok(found)
}

/// Checks the value of `save`: pairs of seconds and changes.
pub(super) fn save_points(text: &str) -> Result<(), String> {
    let positive = Kind::Integer {
        min: 0,
        max: i64::MAX,
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let sound =
        words.len().is_multiple_of(2) && words.iter().all(|word| positive.canonical(word).is_ok());
    if sound {
        Ok(())
    } else {
        Err("Invalid save parameters".into())
    }
}

/// Returns a host in lower case. It is a name, an IPv4 address or a bracketed IPv6 address, perhaps with a port.
pub(super) fn host(text: &str) -> Result<String, String> {
    match HostName::parse(text) {
        Some(_) => Ok(text.to_ascii_lowercase()),
        None => Err(format!("'{text}' is not a host. Give NAME or NAME:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_clients_is_bytes_or_a_part_of_the_limit() {
        let of = |text, limit| ClientShare::parse(text).map(|share| share.of(limit));
        assert_eq!(of("5%", 100 << 30), Ok(Some(5 << 30)));
        assert_eq!(of("5%", 1000), Ok(Some(SHARE_BYTES_MIN)));
        assert_eq!(of("5%", u64::MAX), Ok(None));
        assert_eq!(of("1mb", u64::MAX), Ok(Some(1 << 20)));
        assert_eq!(of("0", 1000), Ok(None));
        assert!(of("101%", 1000).is_err() && of("x", 1000).is_err());
    }

    #[test]
    fn limits_change_by_class_or_not_at_all() {
        let mut limits = OutputLimits::default();
        assert_eq!(
            limits.show(),
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
        );
        assert!(limits.update("normal 1mb 0 0 replica 1 2 3").is_ok());
        let now = "normal 1048576 0 0 slave 1 2 3 pubsub 33554432 8388608 60";
        assert_eq!(limits.show(), now);
        for bad in ["normal 0 0", "normal 5 5 5 master 0 0 0", "normal x 0 0"] {
            assert!(limits.update(bad).is_err(), "{bad}");
        }
        assert_eq!(limits.show(), now);
    }

    #[test]
    fn events_are_shown_as_redis_does() {
        for (given, shown) in [
            ("KEA", "AKE"),
            ("KElgxnm", "glxnKEm"),
            ("g$lshzxetd", "A"),
            ("", ""),
            ("KEn", "nKE"),
        ] {
            assert_eq!(events(given).as_deref(), Ok(shown), "{given}");
        }
        assert!(events("Kq").is_err());
    }

    #[test]
    fn percentiles_and_save_points_are_checked() {
        assert_eq!(percentiles("50 99.95"), Ok(vec![50.0, 99.95]));
        assert_eq!(percentiles(""), Ok(vec![]));
        assert!(percentiles("50 101").is_err() && percentiles("x").is_err());
        assert!(save_points("3600 1 60 10").is_ok() && save_points("a b").is_err());
    }
}
