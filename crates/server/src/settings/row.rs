//! The parts of a row in the table of settings: a constructor, kinds for several rows, and conversions between values
//! and words.

use super::kind::{Kind, SECOND_US, number};
use super::{Field, Group, Setting};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const fn row(
    name: &'static str,
    group: Group,
    kind: Kind,
    doc: &'static str,
    field: Field,
) -> Setting {
    Setting {
        name,
        redis: None,
        group,
        kind,
        many: false,
        live: false,
        doc,
        default: None,
        field,
    }
}

impl Setting {
    pub(super) const fn redis(mut self, name: &'static str) -> Self {
        self.redis = Some(name);
        self
    }

    pub(super) const fn live(mut self) -> Self {
        self.live = true;
        self
    }

    pub(super) const fn many(mut self) -> Self {
        self.many = true;
        self
    }

    pub(super) const fn default(mut self, words: &'static str) -> Self {
        self.default = Some(words);
        self
    }
}

macro_rules! server {
    ($get:expr, $set:expr) => {
        $crate::settings::Field::Server {
            get: $get,
            set: $set,
        }
    };
}

macro_rules! database {
    ($get:expr, $set:expr) => {
        $crate::settings::Field::Database {
            get: $get,
            set: $set,
        }
    };
}

pub(super) const fn count(max: i64) -> Kind {
    Kind::Integer { min: 0, max }
}

pub(super) const fn seconds(max: i64) -> Kind {
    Kind::Time {
        unit_us: SECOND_US,
        min: 0,
        max,
    }
}

/// Returns the kind of a setting that is a time of at most `max` milliseconds.
pub(super) const fn millis(max: i64) -> Kind {
    Kind::Time {
        unit_us: 1000,
        min: 0,
        max,
    }
}

pub(super) const ANY_BYTES: Kind = Kind::Bytes {
    min: 0,
    max: u64::MAX,
};
pub(super) const I32_MAX: i64 = 2_147_483_647;

pub(super) fn one(value: impl ToString) -> Vec<String> {
    vec![value.to_string()]
}

pub(super) fn path(value: Option<&PathBuf>) -> Vec<String> {
    value.iter().map(|p| p.display().to_string()).collect()
}

pub(super) fn put_millis(field: &mut Duration, values: &[String]) -> Result<(), String> {
    let mut millis = 0;
    number(&mut millis, &values[0])?;
    *field = Duration::from_millis(millis);
    Ok(())
}

pub(super) fn addresses(values: &[SocketAddr]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

pub(super) fn put_path(field: &mut Option<PathBuf>, values: &[String]) -> Result<(), String> {
    *field = values.first().map(PathBuf::from);
    Ok(())
}

pub(super) fn paths(values: &[PathBuf]) -> Vec<String> {
    values
        .iter()
        .map(|path| path.display().to_string())
        .collect()
}

pub(super) fn put_paths(field: &mut Vec<PathBuf>, values: &[String]) -> Result<(), String> {
    *field = values.iter().map(PathBuf::from).collect();
    Ok(())
}

pub(super) fn put_addresses(field: &mut Vec<SocketAddr>, values: &[String]) -> Result<(), String> {
    let parsed: Result<Vec<SocketAddr>, _> = values.iter().map(|text| text.parse()).collect();
    *field = parsed.map_err(|error| error.to_string())?;
    Ok(())
}

pub(super) use {database, server};
