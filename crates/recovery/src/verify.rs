//! Checks every byte that a restart could need, then restarts the database in memory.
//!
//! The checks report findings, but only the restart can refuse the database. Opening the database, a dry run and
//! `verify` call the same function for the restart. So the three refuse the same databases, with the same error texts.
//! The checks also read data that the restart does not read: the older image, and the log that only the older image
//! needs. So `verify` finds damage before a restart needs the damaged data.

use perdura_base::{Epoch, Error, ImageSlot, Pos, Result, StreamId};
use perdura_wal::anchor::COMBINED;
use perdura_wal::{Check, Direction, Frame, FrameKind, RestartRecord, StreamScan, scan_stream};

use crate::anchor::Anchor;
use crate::archived::check_archive;
use crate::close::durable_end;
use crate::component::COMPONENTS;
use crate::found::{VERSION_PATH, find};
use crate::given::check_given;
use crate::losses::AcceptedLoss;
use crate::mirrored::undrained;

use crate::owner::{FrameCounts, OWNERS};
use crate::restart::{RestartOptions, Restarted, restart};

pub use crate::findings::{Findings, ImageFindings, Problem, StreamFindings, TreeFindings};

/// The findings, and the error if a restart refuses the database.
pub struct Verified {
    /// The findings.
    pub found: Findings,
    /// The restart's error, if it fails.
    pub refusal: Option<Error>,
}

/// Checks a stopped database and restarts it in memory. `options` must be the options of a dry run, and the disks must
/// discard written pages. `describe` returns the number of rows and their digest. `Ok(None)`: there is no database.
///
/// # Errors
/// Errors that prevent a restart from beginning: an unreadable anchor, missing files, or files of a foreign database.
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
            // Frames that contradict each other are found only by the restart. So the restart's error is added to the
            // problems.
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
        let losses = losses.map(|text| format!("a loss was accepted earlier: {text}"));
        found.notes.extend(losses);
        let is_combined = notes.iter().any(|note| note.starts_with(COMBINED));
        let other = match is_combined {
            true => "that part of the other copy is intact",
            false => "the other copy is intact",
        };
        for note in notes {
            // The other notes report no damage: an update of the anchor was interrupted, or the anchor is combined from
            // its two copies.
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

    /// Checks that the log reaches the end epoch of each complete image.
    fn check_end(&self, durable: Epoch, found: &mut Findings) {
        for slot in ImageSlot::ALL {
            let image = self.anchor.image(slot);
            if image.is_complete() && image.cover.end_epoch > durable {
                let needs = image.cover.end_epoch;
                found.problems.push(Problem {
                    file: "log".into(),
                    offset: None,
                    what: format!(
                        "image {slot} needs the log up to epoch {needs}, but the log ends with \
                         epoch {durable}"
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

/// Checks every frame of a stream, up to `ends_at` if that position is known.
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
                "The checksums match, so this is a bug in Perdura. Copy the files and report the \
                 bug.",
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

/// Counts the records of a frame in `counts`. Returns whether the frame's payload parses.
fn parses(frame: Frame<'_>, counts: &mut FrameCounts) -> bool {
    let mut owners = OWNERS.iter();
    match owners.find_map(|owner| owner.parses(frame, counts)) {
        Some(parses) => parses,
        // A frame without an owner belongs to the log itself.
        None => frame.kind != FrameKind::Restart || RestartRecord::decode(frame.payload).is_some(),
    }
}

/// Returns, for each stream, the first position of the log that a restart could need. It is the begin mark of the older
/// complete image's checkpoint.
#[must_use]
pub fn log_begin(anchor: &Anchor) -> Vec<Pos> {
    let complete = anchor.images.iter().filter(|image| image.is_complete());
    let oldest = complete.min_by_key(|image| image.k);
    oldest.map_or_else(
        || vec![Pos(0); usize::from(anchor.streams)],
        |image| image.cover.begin.clone(),
    )
}
