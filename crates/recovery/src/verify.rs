//! Checks every byte that a restart could need, then restarts the database in memory.
//!
//! The restart decides: opening the database, a dry run and `verify` call one function, so they refuse the
//! same databases with the same words. The checks before it read what a restart would not (the older
//! image, and the log that only the older image needs), so they find damage before it costs anything.

mod image;
pub(crate) mod tree;

use std::collections::BTreeMap;

use perdura_base::{Epoch, Error, ImageSlot, Pos, Result, StreamId};
use perdura_wal::anchor::COMBINED;
use perdura_wal::{Check, Direction, Frame, FrameKind, RestartRecord, StreamScan, scan_stream};
use serde::Serialize;

use crate::anchor::Anchor;
use crate::archived::check_archive;
use crate::close::durable_end;
use crate::component::COMPONENTS;
use crate::found::{VERSION_PATH, find};
use crate::given::check_given;
use crate::losses::AcceptedLoss;
use crate::mirrored::undrained;
use crate::owner::OWNERS;
use crate::restart::{RestartOptions, Restarted, restart};

pub(crate) use self::image::check_image;
pub use self::tree::TreeFindings;

/// What the checks found.
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
    /// What an operator should know although nothing is damaged.
    pub notes: Vec<String>,
    /// What a restart refuses the database for.
    pub refused: Option<String>,
    /// Damage, whether or not something can stand in for it.
    pub problems: Vec<Problem>,
}

/// One image.
#[derive(Serialize)]
pub struct ImageFindings {
    /// A or B.
    pub slot: String,
    /// What the anchor says of it.
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
    /// Where its valid blocks end.
    pub valid_end: u64,
    /// Where a restart cuts it.
    pub cut: Option<u64>,
}

/// Damage.
#[derive(Serialize)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The byte offset in it, if one place is damaged.
    pub offset: Option<u64>,
    /// What was expected and found.
    pub what: String,
}

impl Findings {
    fn problem(&mut self, file: impl Into<String>, error: &Error) {
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

/// What was found, and whether a restart refuses the database for it.
pub struct Verified {
    /// The findings.
    pub found: Findings,
    /// The restart's error, if it fails.
    pub refusal: Option<Error>,
}

/// Checks a stopped database and restarts it in memory; `options` are those of a dry run, over disks that what it writes to
/// pages does not change. `describe` gives the rows and the digest. `Ok(None)` if there is no database.
///
/// # Errors
/// What keeps a restart from even beginning: no anchor that can be read, files that are missing or
/// another database's.
pub fn verify(
    options: &RestartOptions,
    describe: &dyn Fn(&Restarted) -> Result<(u64, String)>,
) -> Result<Option<Verified>> {
    assert!(!options.mode.changes_disks(), "verify changes nothing");
    let Some((_, anchor, notes)) = find(options.disks.data.as_ref(), &options.disks.logs)? else {
        return Ok(None);
    };
    check_given(options, &anchor)?;
    let checked = Checked { options, anchor };
    let mut found = Findings::default();
    checked.check_anchor(&notes, &mut found);
    for component in COMPONENTS {
        component.check_disk(options, &checked.anchor, &mut found);
    }
    checked.check_log(&mut found);
    let restarted = restart(options).and_then(|restarted| {
        let Some(restarted) = restarted else {
            return Ok(None);
        };
        restarted.data().check(&mut found)?;
        describe(&restarted).map(Some)
    });
    let refusal = match restarted {
        Ok(described) => {
            (found.rows, found.digest) = described.unzip();
            None
        }
        Err(error) => {
            found.refused = Some(error.to_string());
            // What only the restart finds: frames that contradict each other.
            if found.problems.is_empty() && matches!(error, Error::Corrupt(_)) {
                found.problem("log", &error);
            }
            Some(error)
        }
    };
    Ok(Some(Verified { found, refusal }))
}

struct Checked<'a> {
    options: &'a RestartOptions,
    anchor: Anchor,
}

impl Checked<'_> {
    fn check_anchor(&self, notes: &[String], found: &mut Findings) {
        let losses = self.anchor.losses.iter().map(AcceptedLoss::text);
        let losses = losses.map(|text| format!("a loss was accepted: {text}"));
        found.notes.extend(losses);
        let is_combined = notes.iter().any(|note| note.starts_with(COMBINED));
        let other = match is_combined {
            true => "the other copy has that part whole",
            false => "the other copy is whole",
        };
        for note in notes {
            // An update that was interrupted between the copies is no damage.
            let (file, what) = if note.starts_with("anchor copy") {
                ("anchor", format!("{note}; {other}"))
            } else if note.starts_with(VERSION_PATH) {
                (VERSION_PATH, note.clone())
            } else {
                found.notes.push(note.clone());
                continue;
            };
            found.problems.push(Problem {
                file: file.to_owned(),
                offset: None,
                what,
            });
        }
    }

    fn check_log(&self, found: &mut Findings) {
        let begin = log_begin(&self.anchor);
        let mut scans = Vec::new();
        for stream in (0..self.anchor.streams).map(StreamId) {
            match self.scan(stream, begin[usize::from(stream.0)]) {
                Ok(scan) => scans.push(scan),
                Err(error) => return found.problem(format!("log stream {stream}"), &error),
            }
        }
        let may_lack = self.options.tail.may_lack(&self.anchor);
        let cut = self.anchor.decide_cut(&scans, may_lack);
        let cut = cut.inspect_err(|error| found.problem("log", error)).ok();
        found.notes.extend(undrained(&self.anchor, cut.as_ref()));
        for scan in scans {
            let ends_at = cut.as_ref().map(|cut| cut.cut[usize::from(scan.stream.0)]);
            check_stream(scan, ends_at, found);
        }
        assert_eq!(
            found.streams.len(),
            usize::from(self.anchor.streams),
            "findings of every stream"
        );
        if let Some(cut) = &cut {
            found.durable_epoch = Some(cut.durable.0);
            self.check_end(cut.durable, found);
            if let Err(error) = check_archive(&self.anchor, None, &durable_end(cut)) {
                found.problem("log", &error);
            }
        }
    }

    /// Every complete image rests on an epoch that the log must have reached.
    fn check_end(&self, durable: Epoch, found: &mut Findings) {
        for slot in ImageSlot::ALL {
            let image = self.anchor.image(slot);
            if image.is_complete() && image.cover.end_epoch > durable {
                let needs = image.cover.end_epoch;
                found.problems.push(Problem {
                    file: "log".into(),
                    offset: None,
                    what: format!(
                        "image {slot} rests on epoch {needs}; the log ends with {durable}"
                    ),
                });
            }
        }
    }

    fn scan(&self, stream: StreamId, from: Pos) -> Result<StreamScan> {
        let disk = self.options.disks.logs[usize::from(stream.0)].as_ref();
        scan_stream(disk, &self.anchor.lives(), stream, from, Check::All)
    }
}

/// Checks every frame of a stream up to its cut, if there is one.
fn check_stream(mut scan: StreamScan, ends_at: Option<Pos>, found: &mut Findings) {
    let stream = scan.stream;
    if let Some(end) = ends_at {
        let before = scan.blocks.len();
        scan.cut_at(end);
        let void = before - scan.blocks.len();
        if void > 0 {
            found.notes.push(format!(
                "log stream {stream}: {void} void block(s) at its end"
            ));
        }
    }
    found.notes.append(&mut scan.notes);
    let mut counts = FrameCounts::default();
    for unit in scan.units(1 << 20) {
        let read = scan.read_unit(unit, Direction::Forward, |frame, block| {
            if parses(frame, &mut counts) {
                return Ok(());
            }
            Err(Error::corrupt(
                format!("log stream {stream}"),
                block.pos.0,
                format!("a frame of kind {:?}", frame.kind),
                "bytes that do not parse",
                "The checksums hold, so this is a bug in the writer. Keep a copy.",
            ))
        });
        if let Err(error) = read {
            found.problem(format!("log stream {stream}"), &error);
        }
    }
    found.streams.push(StreamFindings {
        stream: stream.0,
        blocks: scan.blocks.len(),
        bytes: scan.bytes_read,
        groups: counts.groups,
        records: counts.records,
        ordered: counts.ordered,
        valid_end: scan.valid_end.0,
        cut: ends_at.map(|pos| pos.0),
    });
}

/// The frames of a stream, counted.
#[derive(Default)]
pub(crate) struct FrameCounts {
    pub groups: u64,
    pub records: u64,
    pub ordered: u64,
}

/// Counts what a frame holds. Returns whether its payload parses.
fn parses(frame: Frame<'_>, counts: &mut FrameCounts) -> bool {
    let mut owners = OWNERS.iter();
    match owners.find_map(|owner| owner.parses(frame, counts)) {
        Some(parses) => parses,
        // The log's own.
        None => frame.kind != FrameKind::Restart || RestartRecord::decode(frame.payload).is_some(),
    }
}

/// Where the log that a restart could need begins, in each stream: at the older image.
#[must_use]
pub fn log_begin(anchor: &Anchor) -> Vec<Pos> {
    let complete = anchor.images.iter().filter(|image| image.is_complete());
    let oldest = complete.min_by_key(|image| image.k);
    oldest.map_or_else(
        || vec![Pos(0); usize::from(anchor.streams)],
        |image| image.cover.begin.clone(),
    )
}
