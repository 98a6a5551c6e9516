//! Tests of realistic damage to files. Each file of a small database is truncated at every sector, zeroed from every
//! sector on, and damaged by one bit in every sector. Each file is also replaced by every older version of it, and by
//! every other file of the same kind. Every subset of a directory is deleted.
//!
//! In each case `verify`, a dry run and an ordinary start must agree: all refuse with the same message, or all start. A
//! database that starts must hold exactly a durable prefix: all epochs up to some epoch. The database must hold
//! everything that the anchor vouched for, and must survive two checkpoints and another restart.

mod flips;
mod judge;
mod subject;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use perdura_base::num::to_u64;

use crate::report::Check;
use judge::{Verdict, Wrong};
use subject::{Files, Subject, disk_of};

pub use flips::{Blocks, flips};
pub use subject::Age;

/// The directories of a database.
const FOLDERS: [&str; 3] = ["image-a", "image-b", "log"];
/// The maximum size of a directory, in files, for which the test deletes every subset of the files. In a larger
/// directory, the test deletes only single files, pairs, and all files together.
const SUBSET_FILES_MAX: usize = 9;

/// The counts of damaged cases, by result.
#[derive(Debug, Clone, Default)]
pub struct Swept {
    /// The number of damaged databases.
    pub cases: u64,
    /// The number of databases that started.
    pub started: u64,
    /// The number of refused databases.
    pub refused: u64,
    /// The number of refused cases that were salvaged. Each salvage saved exactly the data up to some epoch.
    pub salvaged: u64,
    /// The number of cases with no database left after the damage.
    pub absent: u64,
    /// Descriptions of the databases that started without acknowledged data. The anchor vouched for this data.
    pub lost: Vec<String>,
    /// All other violations.
    pub violations: Vec<String>,
}

impl Swept {
    /// Checks that every case was counted once.
    fn check(&self) {
        let wrong = to_u64(self.lost.len() + self.violations.len());
        assert_eq!(
            self.started + self.refused + self.absent + wrong,
            self.cases,
            "each case has one end"
        );
    }
}

/// Returns the kind of the file at a path. A file is replaced only by files of the same kind.
fn kind(path: &str) -> &str {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    match path.split_once('/') {
        Some(("log", _)) => "log",
        Some((_, _)) if name.starts_with("directory-") => "directory",
        _ => name,
    }
}

/// A sweep over the damaged forms of one database. It judges every case and counts the result.
struct Sweep<'a> {
    subject: &'a Subject,
    out: Swept,
    salvaged: Cell<u64>,
}

impl Sweep<'_> {
    fn case(&mut self, what: &str, files: &Files, folders: &[&str]) {
        self.out.cases += 1;
        match catch_unwind(AssertUnwindSafe(|| self.judge(files, folders))) {
            Ok(Ok(verdict)) => match verdict {
                Verdict::Starts => self.out.started += 1,
                Verdict::Absent => self.out.absent += 1,
                Verdict::Refused(..) => self.out.refused += 1,
            },
            Ok(Err(Wrong::Lost(text))) => self.out.lost.push(format!("{what}: {text}")),
            Ok(Err(Wrong::Other(text))) => self.out.violations.push(format!("{what}: {text}")),
            Err(_) => self.out.violations.push(format!("{what}: a panic")),
        }
    }
}

/// Tries all kinds of damage on one database.
///
/// # Errors
/// Fails if the small database cannot be made.
pub fn sweep(seed: u64, streams: u8, age: Age) -> Check<Swept> {
    let subject = Subject::new(seed, streams, age)?;
    let foreign = Subject::new(seed ^ 0xf0, streams, age)?;
    let mut sweep = Sweep {
        subject: &subject,
        out: Swept::default(),
        salvaged: Cell::new(0),
    };
    sweep.case("nothing", &subject.now, &FOLDERS);
    sweep.ends();
    sweep.exchanges(&foreign);
    sweep.deletions();
    sweep.out.salvaged = sweep.salvaged.get();
    sweep.out.check();
    Ok(sweep.out)
}

impl Sweep<'_> {
    fn replaced(&mut self, path: &str, bytes: Vec<u8>, what: &str) {
        let mut files = self.subject.now.clone();
        files.insert(path.to_owned(), Arc::new(bytes));
        self.case(&format!("{path} {what}"), &files, &FOLDERS);
    }

    /// Truncates every file at every sector, zeroes every file from every sector on, and flips a bit in every sector.
    fn ends(&mut self) {
        const CUT_BYTES: usize = 512;
        const FLIP_AT: usize = 9;
        let subject = self.subject;
        for (path, bytes) in &subject.now {
            for at in (0..bytes.len()).step_by(CUT_BYTES) {
                self.replaced(path, bytes[..at].to_vec(), &format!("truncated to {at}"));
                if bytes[at..].iter().any(|byte| *byte != 0) {
                    let mut zeroed = bytes[..at].to_vec();
                    zeroed.resize(bytes.len(), 0);
                    self.replaced(path, zeroed, &format!("zeroed from {at} on"));
                    let mut flipped = bytes.to_vec();
                    let place = (at + FLIP_AT).min(bytes.len() - 1);
                    flipped[place] ^= 0x10;
                    self.replaced(path, flipped, &format!("flipped at {place}"));
                }
            }
        }
    }

    /// Replaces every file by every older version of it, and by every other file of the same kind. The other files come
    /// from this database and from `foreign`.
    fn exchanges(&mut self, foreign: &Subject) {
        let subject = self.subject;
        for (path, bytes) in &subject.now {
            let versions = subject.older.get(path).into_iter().flatten();
            for (number, older) in versions.enumerate() {
                self.replaced(path, older.to_vec(), &format!("as version {number} of it"));
            }
            let others = |files: &Files| -> Vec<(String, Arc<Vec<u8>>)> {
                let like = |other: &&String| kind(other) == kind(path);
                let paths = files.keys().filter(like);
                paths
                    .map(|other| (other.clone(), Arc::clone(&files[other])))
                    .collect()
            };
            for (other, theirs) in others(&subject.now) {
                if other != *path && theirs != *bytes {
                    self.replaced(path, theirs.to_vec(), &format!("replaced by {other}"));
                }
            }
            for (other, theirs) in others(&foreign.now) {
                let what = format!("replaced by {other} of another database");
                self.replaced(path, theirs.to_vec(), &what);
            }
        }
        // These lines put the whole log of another database beside the right log, and in place of it.
        let logs = foreign
            .now
            .iter()
            .filter(|(path, _)| path.starts_with("log/"));
        let theirs: Files = logs
            .map(|(path, bytes)| (path.clone(), Arc::clone(bytes)))
            .collect();
        let mut beside = theirs.clone();
        beside.extend(subject.now.clone());
        self.case("another database's log beside", &beside, &FOLDERS);
        let mut instead = subject.now.clone();
        instead.retain(|path, _| !path.starts_with("log/"));
        instead.extend(theirs);
        self.case("another database's log instead", &instead, &FOLDERS);
    }

    /// Deletes every subset of each directory, and every subset of the files in the root.
    fn deletions(&mut self) {
        let paths: BTreeSet<&String> = self.subject.now.keys().collect();
        for folder in FOLDERS {
            let within = |path: &&&String| path.starts_with(&format!("{folder}/"));
            let units: Vec<String> = paths.iter().filter(within).map(|p| (**p).clone()).collect();
            self.subsets(&units);
        }
        let mut units: Vec<String> = FOLDERS.map(str::to_owned).to_vec();
        units.extend(
            paths
                .iter()
                .filter(|p| !p.contains('/'))
                .map(|p| (**p).clone()),
        );
        self.subsets(&units);
    }

    fn subsets(&mut self, units: &[String]) {
        let all = units.len() <= SUBSET_FILES_MAX;
        for set in 1u64..1 << units.len().min(20) {
            if !all
                && set.count_ones() > 2
                && set.count_ones() < u32::try_from(units.len()).unwrap_or(0)
            {
                continue;
            }
            let chosen = |at: &usize| set >> at & 1 == 1;
            let gone: Vec<&String> = (0..units.len())
                .filter(chosen)
                .map(|at| &units[at])
                .collect();
            let is_gone = |path: &str| {
                let at = |unit: &&&String| path == **unit || path.starts_with(&format!("{unit}/"));
                gone.iter().any(|unit| at(&unit))
            };
            let mut files = self.subject.now.clone();
            files.retain(|path, _| !is_gone(path));
            let folders: Vec<&str> = FOLDERS.into_iter().filter(|f| !is_gone(f)).collect();
            self.case(&format!("without {gone:?}"), &files, &folders);
        }
    }
}
