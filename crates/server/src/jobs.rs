//! Commands that run in steps: see [`crate::command::steps`].
//!
//! A *job* is a command that runs in steps. The job's connection runs no other request until the job has ended. So the
//! client's later requests wait, and the replies keep their order. The keys that the job reads are watched as by WATCH.
//! The memory that the job holds is accounted to its client. If the client disconnects, the job ends without a reply.

use crate::acl;
use crate::command::data::{Claims, Observing, Outcome};
use crate::command::dispatch::{Finished, note_run};
use crate::command::run::{Begun, add_partitions, failed, run_data, told_by};
use crate::command::steps::{Progress, Step, Work};
use crate::command::wait::answer;
use crate::command::{After, Data, Told, flag};
use crate::connection::Connection;
use crate::engine::{Attempt, Db, Error, PartitionSet, Ticket, Tx};
use crate::pubsub::Seat;
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::{Stage, State};
use crate::watch::Own;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum length, in bytes, of a request that a job copies. A job takes over the buffer of a longer request.
const TAKEN_OVER_BYTES: usize = 64 << 10;

/// A command that runs in steps.
#[derive(Debug)]
struct Job {
    seat: Seat,
    database: u8,
    begun: Begun,
    args: OwnedArgs,
    /// True if `args` are ranges of a buffer that the job has not received yet.
    lacks_bytes: bool,
    work: Box<dyn Work>,
    watched: Own,
    took: Duration,
    /// True if the keys that the job reads have changed. Its work is then useless, and the command must begin
    /// again.
    stale: bool,
    /// The number of log bytes that the last step needed but had no room for. 0 if the step had enough room.
    lacked: usize,
}

impl Job {
    /// Notes in the client's memory account how many bytes the job holds.
    fn note(&self, connection: &mut Connection) {
        connection.gathered = self.work.bytes();
        connection.under_way = self.args.bytes();
    }
}

/// The work of a command that will run in steps, and its watched sources.
pub(crate) struct Stepping {
    /// The work.
    pub work: Box<dyn Work>,
    /// The sources. They are watched since the transaction that made the work.
    pub watched: Own,
}

/// All jobs, in the order of their turns.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    queue: VecDeque<Job>,
}

impl Jobs {
    /// Returns whether there are no jobs.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of jobs.
    pub(crate) fn count(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether the newest job waits for its request's buffer.
    pub(crate) fn lack_bytes(&self) -> bool {
        self.queue.back().is_some_and(|job| job.lacks_bytes)
    }

    /// Gives the newest job the request's buffer. The request begins at `begin`.
    pub(crate) fn take_over(&mut self, bytes: Vec<u8>, begin: usize) {
        if let Some(job) = self.queue.back_mut() {
            debug_assert!(job.lacks_bytes, "a request is taken over once");
            job.args.fill(bytes, begin);
            job.lacks_bytes = false;
        }
    }
}

/// The result of a step.
enum Turn {
    More,
    Again,
    /// The log had no room for this number of bytes. The step has changed nothing.
    Behind(usize),
    Ended(Result<(), Failure>, Told),
}

/// The reason why a command replies with an error.
enum Failure {
    Text(Cow<'static, str>),
    Engine(Error),
}

impl State {
    /// Makes a command that will run in steps watch its sources. The caller holds the latches of the sources' partitions.
    #[cold]
    pub(crate) fn watch_sources(&self, database: u8, args: &Args<'_>, work: &dyn Work) -> Own {
        let mut watched = Own::new();
        for key in work.sources(args).map(|at| args.at(at)) {
            self.common.watches.add(&mut watched, database, key, None);
        }
        if let Some(scan) = work.scan() {
            self.common.scans.with(|scans| scans.add(database, scan));
        }
        watched
    }

    /// Makes a command run in steps. `stepping` has its work and its watched sources. If its request is long, the caller
    /// hands over the buffer: [`Jobs::take_over`].
    pub(crate) fn add_job(
        &mut self,
        session: &Session,
        begun: Begun,
        args: &Args<'_>,
        stepping: Stepping,
    ) {
        let Stepping { work, watched } = stepping;
        let lacks_bytes = args.extent() > TAKEN_OVER_BYTES;
        debug_assert!(
            !self.jobs.queue.iter().any(|job| job.seat == session.seat),
            "a client has one job"
        );
        self.jobs.queue.push_back(Job {
            seat: session.seat,
            database: session.database,
            args: match lacks_bytes {
                true => OwnedArgs::places(args),
                false => OwnedArgs::copy(args),
            },
            lacks_bytes,
            begun,
            work,
            watched,
            took: Duration::ZERO,
            stale: false,
            lacked: 0,
        });
    }

    /// Drops the job of a client that has gone, if it had one.
    pub(crate) fn drop_job(&mut self, id: u64) {
        let job = self.jobs.queue.iter().position(|job| job.seat.id == id);
        if let Some(mut job) = job.and_then(|at| self.jobs.queue.remove(at)) {
            self.common.watches.forget(&mut job.watched);
        }
    }

    /// Drops all jobs, because the server ends.
    pub(crate) fn drop_jobs(&mut self) {
        for mut job in std::mem::take(&mut self.jobs.queue) {
            self.common.watches.forget(&mut job.watched);
        }
    }

    /// Returns whether a job must not take a step now. Either the job writes while writes are deferred, or it needs a
    /// partition that a transaction holds for long. The job waits, because the loop must not wait for
    /// the disk.
    fn keeps_job_back(&self, job: &Job) -> bool {
        if self.common.flights.any() && self.is_held(job) {
            return true;
        }
        if !job.begun.command.has(flag::WRITE) {
            return false;
        }
        let behind = |db: &&Db| db.is_behind(job.work.logged().max(job.lacked));
        match self.db().filter(behind) {
            Some(db) => db.nudge(),
            None => return self.pause.until().is_some(),
        }
        true
    }

    /// Returns whether a job needs a partition that a transaction holds for long.
    #[cold]
    fn is_held(&self, job: &Job) -> bool {
        self.common.flights.holds(&self.partitions_of(job))
    }

    fn partitions_of(&self, job: &Job) -> PartitionSet {
        let mut partitions = PartitionSet::empty();
        if let Some(db) = self.db() {
            add_partitions(db, job.begun.command, &job.args.args(), &mut partitions);
        }
        partitions
    }

    /// Returns whether any job may take a step now.
    pub(crate) fn has_jobs(&self) -> bool {
        let mut jobs = self.jobs.queue.iter();
        jobs.any(|job| !self.keeps_job_back(job))
    }

    /// Lets the next job take a step.
    pub(crate) fn step_job(&mut self) {
        let Some(mut job) = self.jobs.queue.pop_front() else {
            return;
        };
        let landings = self.common.flights.landings();
        if self.keeps_job_back(&job) {
            if self.common.flights.any() {
                let partitions = self.partitions_of(&job);
                self.want(&partitions, landings);
            }
            return self.jobs.queue.push_back(job);
        }
        let index = job.seat.index;
        let Some(mut connection) = self.connections.take(index) else {
            return self.common.watches.forget(&mut job.watched);
        };
        if connection.session.seat != job.seat || connection.closing || connection.doomed {
            self.common.watches.forget(&mut job.watched);
            return self.connections.put(index, connection);
        }
        self.start_clock();
        let began = self.clock;
        let turn = if let Err(text) = self.judge_job(&connection.session, &job) {
            Turn::Ended(Err(Failure::Text(text.into())), Told::NOTHING)
        } else if job.stale
            || (job.work.reads() && self.common.watches.changed(&job.watched).is_some())
        {
            Turn::Again
        } else {
            self.running = job.seat;
            let turn = self.try_step(&mut job, &connection.session);
            self.running = Seat::NOBODY;
            turn
        };
        job.took += began.elapsed();
        job.lacked = match turn {
            Turn::Behind(bytes) => bytes,
            _ => 0,
        };
        match turn {
            Turn::More | Turn::Behind(_) => {
                job.note(&mut connection);
                connection.account(self);
                self.jobs.queue.push_back(job);
                self.connections.put(index, connection);
            }
            Turn::Again => self.begin_again(job, connection),
            Turn::Ended(result, told) => {
                let start = connection.replies.buf.len();
                let resp3 = connection.session.resp3;
                let mut out = Out::new(&mut connection.replies.buf, resp3);
                match result {
                    Ok(()) => job.work.reply(&mut out),
                    Err(Failure::Text(text)) => out.error(&text),
                    Err(Failure::Engine(error)) => failed(self, &error, &mut out),
                }
                self.end_job(job, connection, start, told);
            }
        }
    }

    /// Checks that the user may still run the command. Between two steps, the user may lose access, and other clients
    /// may change the data. `Err` is the error reply.
    fn judge_job(&mut self, session: &Session, job: &Job) -> Result<(), String> {
        match session.user.unlimited() {
            true => Ok(()),
            false => acl::check(self, session, job.begun.command, &job.args.args()),
        }
    }

    fn try_step(&mut self, job: &mut Job, session: &Session) -> Turn {
        let Stage::Ready(db) = &self.stage else {
            return Turn::Again;
        };
        let args = job.args.args();
        let mut partitions = PartitionSet::empty();
        add_partitions(db, job.begun.command, &args, &mut partitions);
        let mut step = Step::new(self.steps);
        let (command, observing) = (job.begun.command, Observing::of(self));
        let claims = RefCell::new(Claims::new(&self.common));
        let mut run = |tx: &mut Tx<'_>| {
            let claims = &mut claims.borrow_mut();
            claims.restart();
            let mut data = Data::new(self, db, tx, job.database);
            data.run_for(&session.user);
            let stepped = data.step(job.work.as_mut(), command, &args, &mut step)?;
            data.serve(claims)?;
            Ok((stepped, data.finish()?))
        };
        let publish = |(stepped, outcome): &mut (Result<Progress, _>, Outcome), ticket: Ticket| {
            outcome.publish(&observing, &mut claims.borrow_mut(), ticket.epoch);
            if !matches!(stepped, Ok(Progress::More | Progress::Changed)) {
                self.note_reads(session, command, &args);
            }
        };
        let result = Claims::complete(&claims, || {
            db.try_transact_then(&partitions, self.wall_ms(), &mut run, publish)
        });
        drop(claims);
        match result {
            Ok(Attempt::Behind { bytes }) => Turn::Behind(bytes),
            Ok(Attempt::Committed((Ok(Progress::More), _), _)) => {
                job.work.committed();
                Turn::More
            }
            Ok(Attempt::Committed((Ok(Progress::Changed), _), _)) => Turn::Again,
            Ok(Attempt::Committed((Ok(Progress::Complete), outcome), ticket)) => {
                let told = outcome.told(ticket.epoch, self.reached);
                outcome.settle(self);
                Turn::Ended(Ok(()), told)
            }
            Ok(Attempt::Committed((Err(text), outcome), ticket)) => {
                let told = outcome.told(ticket.epoch, self.reached);
                outcome.settle(self);
                Turn::Ended(Err(Failure::Text(text)), told)
            }
            Err(error) => {
                let told = told_by(self, &error);
                Turn::Ended(Err(Failure::Engine(error)), told)
            }
        }
    }

    /// Runs the command again, in steps or at once, because the data that it has read has changed.
    fn begin_again(&mut self, mut job: Job, mut connection: Box<Connection>) {
        self.common.watches.forget(&mut job.watched);
        let index = job.seat.index;
        let args = job.args.args();
        let start = connection.replies.buf.len();
        let (session, replies) = (&connection.session, &mut connection.replies);
        let began = Instant::now();
        self.running = job.seat;
        let begun = Begun {
            vainly: job.begun.vainly + 1,
            ..job.begun
        };
        let (told, after) = run_data(self, session, replies, begun, &args);
        self.running = Seat::NOBODY;
        job.took += began.elapsed();
        let lacked = match after {
            After::Behind(bytes) => Some(bytes),
            After::Held(_) | After::Absent => Some(0),
            _ => None,
        };
        if let Some(bytes) = lacked {
            (job.stale, job.lacked) = (true, bytes);
            self.jobs.queue.push_back(job);
            return self.connections.put(index, connection);
        }
        if after == After::Beside {
            (connection.gathered, connection.under_way) = (0, self.beside.bytes());
            connection.account(self);
            return self.connections.put(index, connection);
        }
        if after != After::Steps {
            return self.end_job(job, connection, start, told);
        }
        if let Some(anew) = self.jobs.queue.back_mut() {
            anew.took = job.took;
            if std::mem::take(&mut anew.lacks_bytes) {
                anew.args = job.args;
            }
            anew.note(&mut connection);
        }
        connection.account(self);
        self.connections.put(index, connection);
    }

    /// Ends a job and lets the client continue. The job's reply begins at `start`.
    fn end_job(&mut self, mut job: Job, mut connection: Box<Connection>, start: usize, told: Told) {
        self.common.watches.forget(&mut job.watched);
        self.newest = self.newest.max(told.epoch);
        (connection.gathered, connection.under_way) = (0, 0);
        debug_assert!(
            start <= connection.replies.buf.len(),
            "the reply stands behind those before"
        );
        let reply = connection.replies.buf.get(start..).unwrap_or(&[]);
        let args = job.args.args();
        let finished = Finished {
            command: job.begun.command,
            args: &args,
            reply,
            took: job.took,
        };
        note_run(self, &connection.session, &finished);
        connection.session.end_caching(job.begun.command);
        answer(self, &mut connection, start, told);
        self.read_mail_behind(&mut connection.session, &mut connection.replies);
        connection.account(self);
        self.connections.put(job.seat.index, connection);
        self.read_mail();
        self.touch(job.seat.index);
    }
}

#[cfg(test)]
mod tests;
