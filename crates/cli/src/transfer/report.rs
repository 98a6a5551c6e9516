//! The report on the moved keys, the omitted ones, and the reasons, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use perdura_base::num::to_u64;
use serde::Serialize;

use crate::output;

/// The most keys that a list of examples names.
const NAMED_MAX: usize = 20;
/// The most bytes of a key that are shown.
const KEY_SHOWN: usize = 100;

/// The number of keys by type.
pub type ByType = BTreeMap<String, u64>;

/// A key that was not moved, with the reason.
#[derive(Debug, Clone, Serialize)]
pub struct Left {
    /// The database's number at the source.
    pub db: u64,
    /// The key, escaped.
    pub key: String,
    /// The reason.
    pub why: String,
}

/// A count with some examples.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Lefts {
    /// The number of keys.
    pub count: u64,
    /// The first of these keys.
    pub first: Vec<Left>,
}

impl Lefts {
    /// Notes a key.
    pub fn add(&mut self, db: u64, key: &[u8], why: impl Into<String>) {
        self.count += 1;
        if self.first.len() < NAMED_MAX {
            self.first.push(Left {
                db,
                key: output::bytes(key, KEY_SHOWN),
                why: why.into(),
            });
        }
        debug_assert!(
            to_u64(self.first.len()) <= self.count,
            "examples are counted"
        );
    }

    fn put(&self, out: &mut String, what: &str) {
        if self.count == 0 {
            return;
        }
        let _ = writeln!(out, "{what}: {}", self.count);
        for left in &self.first {
            let _ = writeln!(out, "  db {} '{}': {}", left.db, left.key, left.why);
        }
        let named = to_u64(self.first.len());
        if self.count > named {
            let _ = writeln!(out, "  and {} more", self.count - named);
        }
    }
}

/// The counts of the source.
#[derive(Debug, Default, Serialize)]
pub struct Read {
    /// The keys that were passed on.
    pub keys: ByType,
    /// The number of their elements. A string is one element.
    pub elements: u64,
    /// The approximate number of their bytes.
    pub bytes: u64,
    /// The number of keys passed on that have an expiry.
    pub with_expiry: u64,
    /// The number of keys that had expired already and were left out.
    pub expired: u64,
    /// The number of keys that vanished while they were read.
    pub vanished: u64,
    /// The number of libraries of functions passed on.
    pub libraries: u64,
    /// The values that no command here can make: those of modules.
    pub unsupported: Lefts,
    /// The number of fields of hashes whose own deadlines were left out.
    pub fields_with_deadline: u64,
}

impl Read {
    /// Notes a key, or its first piece.
    pub fn key(&mut self, kind: &str, expires: bool) {
        match self.keys.get_mut(kind) {
            Some(count) => *count += 1,
            None => drop(self.keys.insert(kind.to_owned(), 1)),
        }
        self.with_expiry += u64::from(expires);
        debug_assert!(self.with_expiry <= self.total(), "a key expires once");
    }

    /// Notes the elements of a key.
    pub fn elements(&mut self, value: &perdura_rdb::Value) {
        self.elements += to_u64(value.len());
        self.bytes += to_u64(super::commands::bytes(value));
    }

    /// Returns the number of all keys passed on.
    pub fn total(&self) -> u64 {
        self.keys.values().sum()
    }

    /// Appends the lines about everything that was left out.
    pub fn put_left(&self, out: &mut String) {
        if self.expired > 0 {
            let _ = writeln!(out, "expired before: {}", self.expired);
        }
        if self.vanished > 0 {
            let _ = writeln!(out, "deleted or expired meanwhile: {}", self.vanished);
        }
        if self.fields_with_deadline > 0 {
            let _ = writeln!(
                out,
                "fields of hashes that had an expiry and have lost it: {}",
                self.fields_with_deadline
            );
        }
        self.unsupported.put(out, "not supported, not copied");
    }
}

/// The counts of the target.
#[derive(Debug, Default, Serialize)]
pub struct Written {
    /// The keys that were acknowledged.
    pub keys: ByType,
    /// The number of libraries of functions that were acknowledged.
    pub libraries: u64,
    /// The number of keys and libraries that existed already and were left unchanged.
    pub kept: u64,
    /// The keys and libraries that were refused.
    pub refused: Lefts,
}

/// The report of an import.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The source.
    pub source: String,
    /// The target.
    pub target: String,
    /// The counts of the source.
    pub read: Read,
    /// The counts of the target.
    pub written: Written,
    /// The keys at the target by type, counted afterwards. `None`: the target was not empty before.
    pub counted: Option<ByType>,
    /// The fault of the counts. `None`: they agree.
    pub mismatch: Option<String>,
    /// The time it took, seconds.
    pub seconds: f64,
}

impl Report {
    /// Returns whether everything of the source is at the target.
    pub fn is_whole(&self) -> bool {
        self.read.unsupported.count == 0
            && self.written.refused.count == 0
            && self.mismatch.is_none()
    }

    /// Returns the report for people.
    pub fn text(&self) -> String {
        let total: u64 = self.written.keys.values().sum();
        let mut out = format!(
            "{} -> {}: {total} keys, {} elements, {} bytes in {:.1} s\n",
            self.source, self.target, self.read.elements, self.read.bytes, self.seconds
        );
        let _ = writeln!(
            out,
            "{:<8} {:>12} {:>12} {:>12}",
            "type", "read", "written", "at target"
        );
        for (kind, read) in &self.read.keys {
            let written = self.written.keys.get(kind).copied().unwrap_or(0);
            let counted = self.counted.as_ref().map_or("-".into(), |counted| {
                counted.get(kind).copied().unwrap_or(0).to_string()
            });
            let _ = writeln!(out, "{kind:<8} {read:>12} {written:>12} {counted:>12}");
        }
        if self.read.libraries > 0 {
            let (read, written) = (self.read.libraries, self.written.libraries);
            let _ = writeln!(
                out,
                "libraries of functions: {read} read, {written} written"
            );
        }
        if self.written.kept > 0 {
            let _ = writeln!(
                out,
                "existed before and were not changed: {}",
                self.written.kept
            );
        }
        self.read.put_left(&mut out);
        self.written.refused.put(&mut out, "refused by the target");
        if let Some(text) = &self.mismatch {
            let _ = writeln!(out, "the counts differ: {text}");
        }
        out
    }
}
