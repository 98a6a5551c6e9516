//! The findings of a check of a database: what was read, and what is damaged.

use std::collections::BTreeMap;

use perdura_base::Error;
use serde::Serialize;

/// The findings of a check.
#[derive(Default, Serialize)]
pub struct Findings {
    /// The findings for both images.
    pub images: Vec<ImageFindings>,
    /// The findings for the trees, by folder.
    #[serde(flatten)]
    pub trees: BTreeMap<&'static str, TreeFindings>,
    /// The findings for every stream.
    pub streams: Vec<StreamFindings>,
    /// The last epoch that a restart keeps.
    pub durable_epoch: Option<u64>,
    /// The number of rows after a restart in memory.
    pub rows: Option<u64>,
    /// The digest of those rows.
    pub digest: Option<String>,
    /// Notes for the operator about things that are not damage.
    pub notes: Vec<String>,
    /// Why a restart refuses the database, if it does.
    pub refused: Option<String>,
    /// All damage, including damage for which an intact copy exists.
    pub problems: Vec<Problem>,
}

/// The findings for one image.
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

/// The findings for one stream of the log.
#[derive(Serialize)]
pub struct StreamFindings {
    /// Its number.
    pub stream: u8,
    /// Valid blocks.
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

/// A place that is damaged.
#[derive(Serialize)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The byte offset of the damage in the file, if it is at one place.
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

/// The findings for a tree.
#[derive(Default, Serialize)]
pub struct TreeFindings {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Pages that are intact on disk.
    pub whole: u64,
    /// Pages that a crash has torn and of which the double-write file has a copy.
    pub torn: u64,
    /// Pages of the file that were never written.
    pub unwritten: u64,
    /// Leaves after the restart.
    pub leaves: u64,
    /// Inner pages after the restart.
    pub inner: u64,
    /// Free pages after the restart.
    pub free: u64,
}
