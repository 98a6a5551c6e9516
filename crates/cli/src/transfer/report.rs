//! The report on transferred and omitted keys, with the reasons for omissions, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use perdura_base::num::to_u64;
use serde::Serialize;

use crate::output;

/// The maximum number of keys in a list of examples.
const NAMED_MAX: usize = 20;
/// The maximum number of bytes to show of a key.
const KEY_SHOWN: usize = 100;

/// The number of keys by type.
pub type ByType = BTreeMap<String, u64>;

/// A key that was not transferred, with the reason.
#[derive(Debug, Clone, Serialize)]
pub struct Left {
    /// The database's number at the source.
    pub db: u64,
    /// The key, escaped.
    pub key: String,
    /// The reason.
    pub why: String,
}

/// The keys that were not transferred: their number, and some of them as examples.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Lefts {
    /// The number of keys.
    pub count: u64,
    /// The first keys that were not transferred, as examples.
    pub first: Vec<Left>,
}

impl Lefts {
    /// Counts a key that was not transferred.
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

/// The counts that the source reports.
#[derive(Debug, Default, Serialize)]
pub struct Read {
    /// The number of keys passed to the target, by type.
    pub keys: ByType,
    /// The number of elements in these keys. A string is one element.
    pub elements: u64,
    /// The approximate number of bytes in these keys.
    pub bytes: u64,
    /// The number of these keys that have an expiry.
    pub with_expiry: u64,
    /// The number of keys that were left out because they had already expired.
    pub expired: u64,
    /// The number of keys that vanished during the read: clients deleted the keys, or the keys expired.
    pub vanished: u64,
    /// The number of function libraries passed to the target.
    pub libraries: u64,
    /// The keys that were left out because their values belong to modules. No command can create such a key.
    pub unsupported: Lefts,
    /// The number of hash fields that were transferred without their expiry.
    pub fields_with_deadline: u64,
}

impl Read {
    /// Counts a key. Called when its first piece is passed to the target.
    pub fn key(&mut self, kind: &str, expires: bool) {
        match self.keys.get_mut(kind) {
            Some(count) => *count += 1,
            None => drop(self.keys.insert(kind.to_owned(), 1)),
        }
        self.with_expiry += u64::from(expires);
        debug_assert!(self.with_expiry <= self.total(), "a key expires once");
    }

    /// Counts the elements of a piece.
    pub fn elements(&mut self, value: &perdura_rdb::Value) {
        self.elements += to_u64(value.len());
        self.bytes += to_u64(super::commands::bytes(value));
    }

    /// Returns the number of keys passed to the target, of all types.
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

/// The counts that the target reports.
#[derive(Debug, Default, Serialize)]
pub struct Written {
    /// The number of keys that the target acknowledged, by type.
    pub keys: ByType,
    /// The number of libraries of functions that the target acknowledged.
    pub libraries: u64,
    /// The number of keys and libraries that already existed and were left unchanged.
    pub kept: u64,
    /// The keys and libraries that the target refused.
    pub refused: Lefts,
}

/// The report of an import.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The source.
    pub source: String,
    /// The target.
    pub target: String,
    /// The counts that the source reports.
    pub read: Read,
    /// The counts that the target reports.
    pub written: Written,
    /// The number of keys at the target by type, counted after the import. `None`: not counted, because the target
    /// was not empty before.
    pub counted: Option<ByType>,
    /// A description of the difference between the written keys and the counted keys. `None`: they agree.
    pub mismatch: Option<String>,
    /// The duration of the import, seconds.
    pub seconds: f64,
}

impl Report {
    /// Returns whether everything in the source was transferred.
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
