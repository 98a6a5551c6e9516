//! A run of Voter: begins the election if the database is empty, and takes calls.

use std::time::Instant;

use anyhow::Result;
use perdura::{Abort, Builder, Db, Error};

use super::areas::area_codes;
use super::inputs::{CONTESTANTS, Calls, Election};
use super::procedures::{COUNTED, vote};
use super::schema::{AreaCodeState, Contestant, Vote, VotesByPhone};
use crate::drive::archived::watched;
use crate::drive::{Beside, DriveOptions, Driven, Load, RunReport, Site, Submitted, drive};

/// The kinds of calls, by their results.
const KINDS: [&str; 2] = ["counted", "refused"];

/// The settings of a run, and its database.
#[derive(Debug, Clone)]
pub struct VoterBench {
    /// The database.
    pub site: Site,
    /// The settings of the election.
    pub election: Election,
    /// The seed of all random values.
    pub seed: u64,
    /// The driver's settings.
    pub drive: DriveOptions,
    /// True if the report is to contain the digest of the database after the run.
    pub digest: bool,
}

/// An ended run and the database, which is still open.
pub struct VoterRun {
    /// The results.
    pub report: RunReport,
    /// The database.
    pub db: Db,
}

impl VoterBench {
    /// Opens the database, begins the election if the database is empty, and takes calls.
    ///
    /// # Errors
    /// An invalid election; errors of the engine.
    pub fn run(&self) -> Result<VoterRun> {
        self.election.check().map_err(Error::Usage)?;
        let db = self.site.open(declare)?;
        let begin = Instant::now();
        self.populate(&db)?;
        let mut report = RunReport {
            workload: "voter",
            scheme: self.site.scheme.name(),
            streams: db.stats().log.streams,
            partitions: db.all_partitions().len(),
            seed: self.seed,
            load_seconds: begin.elapsed().as_secs_f64(),
            ..RunReport::default()
        };
        self.site.begin(&db)?;
        self.measure(&db, &mut report)?;
        if self.digest {
            report.digest = Some(format!("{:016x}", db.digest()?));
        }
        Ok(VoterRun { report, db })
    }

    /// Takes calls and enters the results in `report`.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn measure(&self, db: &Db, report: &mut RunReport) -> Result<()> {
        let (driven, archive) = watched(db, || {
            self.site
                .with_snapshots(db, || self.take_calls(db, &self.drive, self.seed))
        })?;
        report.measured(&self.drive, &driven, &KINDS);
        report.archive = archive;
        Ok(())
    }

    /// Takes calls again with the settings of `beside`. Enters the results in `report`, which already has the results
    /// of the previous run.
    ///
    /// # Errors
    /// Errors of [`Beside::run`].
    pub fn run_beside(&self, db: &Db, beside: Beside, report: &mut RunReport) -> Result<()> {
        let log = self.site.log_dir();
        beside.run(db, log, &self.drive, report, |options| {
            // This seed is not the seed of the first run, whose callers have no votes left.
            self.take_calls(db, options, self.seed.wrapping_add(1))
        })
    }

    fn take_calls(&self, db: &Db, options: &DriveOptions, seed: u64) -> Result<Driven> {
        drive(db, options, KINDS.len(), |worker| Phones {
            db,
            calls: Calls::new(self.election, seed, worker),
            votes_per_phone: self.election.votes_per_phone,
        })
    }

    /// Begins the election by inserting contestants and area codes, unless the database has contestants.
    pub(crate) fn populate(&self, db: &Db) -> Result<()> {
        let contestants: Vec<Contestant> = (1..=self.election.contestants)
            .zip(CONTESTANTS)
            .map(|(number, name)| Contestant {
                number,
                name: name.to_owned(),
            })
            .collect();
        db.write(|tx| {
            if tx.contains::<Contestant>(1)? {
                return Ok(());
            }
            for row in &contestants {
                tx.insert(row)?;
            }
            for (area_code, state) in area_codes() {
                tx.insert(&AreaCodeState { area_code, state })?;
            }
            Ok::<_, Error>(())
        })?;
        Ok(())
    }
}

/// Adds the tables and the procedure of Voter to a program's declarations.
pub fn declare(builder: Builder) -> Builder {
    builder
        .table::<Contestant>()
        .table::<AreaCodeState>()
        .table::<Vote>()
        .table::<VotesByPhone>()
        .procedure(vote)
}

/// The calls that one worker takes.
struct Phones<'a> {
    db: &'a Db,
    calls: Calls,
    votes_per_phone: u8,
}

impl Load for Phones<'_> {
    fn step(&mut self) -> Result<Submitted> {
        let call = self.calls.next_call();
        let args = (call.phone, call.contestant, self.votes_per_phone);
        let pending = match self.db.submit(vote, args) {
            Ok(pending) => pending,
            Err(Abort::Database(error)) => return Err(error.into()),
            Err(Abort::Refused(why)) => anyhow::bail!("a vote aborted: {why}"),
        };
        Ok(Submitted {
            kind: usize::from(*pending.value() != COUNTED),
            epoch: pending.ticket().epoch,
            aborted: false,
            log_bytes: None,
        })
    }
}
