//! The findings of a check: what was read, and what is damaged.

use std::collections::BTreeMap;

use perdura_base::Error;
use serde::Serialize;

/// The findings of a check.
#[derive(Default, Serialize)]
pub struct Findings {
    /// Both images.
    pub images: Vec<ImageFindings>,
    /// The trees, by their folders.
    #[serde(flatten)]
    pub trees: BTreeMap<&'static str, TreeFindings>,
    /// Every stream.
    pub streams: Vec<StreamFindings>,
    /// The epoch that the log reaches.
    pub durable_epoch: Option<u64>,
    /// Rows after the restart.
    pub rows: Option<u64>,
    /// Their digest.
    pub digest: Option<String>,
    /// Notes for the operator, although nothing is damaged.
    pub notes: Vec<String>,
    /// The reason for which a restart refuses the database.
    pub refused: Option<String>,
    /// All damage, also where another copy is whole.
    pub problems: Vec<Problem>,
}

/// One image.
#[derive(Serialize)]
pub struct ImageFindings {
    /// A or B.
    pub slot: String,
    /// Its state in the anchor.
    pub state: &'static str,
    /// Its checkpoint epoch.
    pub checkpoint: u64,
    /// Pages that its directory lists.
    pub pages: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The sum of its pages' digests.
    pub proof: Option<String>,
}

/// One stream of the log.
#[derive(Serialize)]
pub struct StreamFindings {
    /// Its number.
    pub stream: u8,
    /// Blocks that count.
    pub blocks: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Transactions.
    pub groups: u64,
    /// Page records.
    pub records: u64,
    /// Ordered frames.
    pub ordered: u64,
    /// The end of its valid blocks.
    pub valid_end: u64,
    /// The position at which a restart cuts it.
    pub cut: Option<u64>,
}

/// Damage.
#[derive(Serialize)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The byte offset in it, if one place is damaged.
    pub offset: Option<u64>,
    /// The damage: what was expected, and what was found.
    pub what: String,
}

impl Findings {
    pub(crate) fn problem(&mut self, file: impl Into<String>, error: &Error) {
        let (file, offset, what) = match error {
            Error::Corrupt(damage) => (
                damage.file.clone(),
                Some(damage.offset),
                format!(
                    "expected {}, found {}. {}",
                    damage.expected, damage.found, damage.consequence
                ),
            ),
            other => (file.into(), None, other.to_string()),
        };
        self.problems.push(Problem { file, offset, what });
    }
}

/// A tree.
#[derive(Default, Serialize)]
pub struct TreeFindings {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Pages that are whole on disk.
    pub whole: u64,
    /// Pages that a crash has torn and that the double-write file has.
    pub torn: u64,
    /// Pages of the file that were never written.
    pub unwritten: u64,
    /// After the restart: leaves.
    pub leaves: u64,
    /// Pages that lead to others.
    pub inner: u64,
    /// Free pages.
    pub free: u64,
}
