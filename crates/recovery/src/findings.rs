//! The findings of `perdura verify`: the counts of everything it read, and the damage.

use std::collections::BTreeMap;

use perdura_base::Error;
use serde::Serialize;

/// The findings of a check.
#[derive(Default, Serialize)]
pub struct Findings {
    /// The findings for the two images.
    pub images: Vec<ImageFindings>,
    /// The findings for the trees, by folder.
    #[serde(flatten)]
    pub trees: BTreeMap<&'static str, TreeFindings>,
    /// The findings for every stream.
    pub streams: Vec<StreamFindings>,
    /// The last epoch that a restart keeps.
    pub durable_epoch: Option<u64>,
    /// Count of rows after a restart in memory.
    pub rows: Option<u64>,
    /// The digest of all rows after a restart in memory.
    pub digest: Option<String>,
    /// Notes for the operator about things that are not damage.
    pub notes: Vec<String>,
    /// The reason why a restart refuses the database. `None`: a restart accepts it.
    pub refused: Option<String>,
    /// All damage, even damage to data that has an intact copy elsewhere.
    pub problems: Vec<Problem>,
}

/// The findings for one image.
#[derive(Serialize)]
pub struct ImageFindings {
    /// A or B.
    pub slot: String,
    /// The image's state in the anchor.
    pub state: &'static str,
    /// The image's checkpoint epoch.
    pub checkpoint: u64,
    /// Pages that the image's directory lists.
    pub pages: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The XOR of all page digests of the image.
    pub proof: Option<String>,
}

/// The findings for one stream of the log.
#[derive(Serialize)]
pub struct StreamFindings {
    /// The stream's number.
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
    /// The position where the stream's valid blocks end.
    pub valid_end: u64,
    /// The position where a restart cuts the stream. `None`: the position is not known.
    pub cut: Option<u64>,
}

/// One case of damage.
#[derive(Serialize)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The byte offset of the damage in the file. `None`: the damage is not at one offset.
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
    /// Pages that a crash has torn. The double-write file has an intact copy of each.
    pub torn: u64,
    /// Pages of the file that were never written.
    pub unwritten: u64,
    /// Count of leaf pages after the restart.
    pub leaves: u64,
    /// Inner pages after the restart.
    pub inner: u64,
    /// Free pages after the restart.
    pub free: u64,
}
