//! Checks the passwords that must be hashed with argon2id, and delays the answers to wrong passwords.
//!
//! [`gate`] checks a request that logs in before the request runs. If a [`Secret`] of the user has no mark yet,
//! argon2id must try the password, which takes tens of milliseconds. A separate thread does that. Until the thread is
//! done, the request stays unread in its connection's input, as under CLIENT PAUSE, and has had no effect. A right
//! password gives the secret its mark. A wrong password enters a short list of refuted passwords. Then [`gate`] checks
//! the request again.
//!
//! A request with a wrong password is postponed once more, until its delay is over ([`throttle`](super::throttle)). A
//! request may have several passwords: EXEC has the passwords of all commands of its block. The passwords are checked
//! one at a time, and [`Proof`] records the progress. Each wrong password is counted and delays the answer.
//!
//! A password that was right once in this process gave its secret a mark, so it is always checked at once. An address
//! has one check at a time on each loop, so other passwords wait for at most one check per address. Checks of addresses that
//! recently sent wrong passwords come last.
//!
//! The thread hashes new passwords, too. ACL LIST, ACL GETUSER, ACL SAVE and CONFIG REWRITE wait until all passwords
//! are hashed.
//!
//! Invariants: `checks`, `overflow` and `unhashed` contain no session twice, and the `asks` of each of these sessions
//! is true. If a session's proof has a time in `held`, the prover's `held` contains the session once, with this time.

use super::secret::{Mark, Secret};
use super::throttle::{Address, Throttle, delay};
use super::user::Judged;
use super::{Acl, User};
use crate::command::Command;
use crate::control::{Control, Message};
use crate::cpus;
use crate::engine::MemoryUse;
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::State;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

/// The maximum number of checks that wait at one time. No two of them are for the same address.
const CHECKS_MAX: usize = 64;
/// The number of clients in `overflow` that are resumed together.
const WOKEN: usize = 16;
/// The maximum number of refuted passwords that are remembered.
const REFUTED_MAX: usize = 1024;
/// The number of new passwords that may wait to be hashed. ACL SETUSER waits while there are that many.
const FRESH_MAX: usize = 64;

/// A password to be tried.
struct Check {
    seat: Seat,
    address: Address,
    mark: Mark,
    password: Box<[u8]>,
    secrets: Vec<Arc<Secret>>,
}

/// The progress in judging the passwords of a client's next request.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    /// The index, within the block, of the next command to check.
    command: usize,
    /// The index, among the command's needs, of the next need to check.
    need: usize,
    /// True if the thread has tried the password of this need, and the password is wrong.
    refuted: bool,
    /// The time when the delayed answer to a wrong password is due. `None`: the answer is not delayed.
    held: Option<Instant>,
}

impl Proof {
    /// Moves to the next need of the command.
    fn pass(&mut self) {
        *self = Proof {
            command: self.command,
            need: self.need + 1,
            ..Proof::default()
        };
    }

    /// Moves to the next command of the block.
    fn pass_command(&mut self) {
        *self = Proof {
            command: self.command + 1,
            ..Proof::default()
        };
    }
}

/// A job for the thread that hashes and tries passwords.
enum Job {
    Hash(Arc<Secret>),
    Verify(Arc<Secret>, Box<[u8]>),
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Proved {
    /// A new password was hashed.
    Hashed,
    /// The password was tried; true if it is right.
    Verified(bool),
}

/// The waiting passwords and clients, and the thread for trying passwords.
#[derive(Default)]
pub(crate) struct Prover {
    worker: Option<SyncSender<Job>>,
    /// The check that the thread is working on. `None`: the thread is hashing a new password or is idle.
    trying: Option<Check>,
    busy: bool,
    /// True if the thread's last job was to try a password. If a new password waits to be hashed, the thread's next job
    /// is to hash it.
    tried: bool,
    /// The number of times that the thread was given a password to try.
    tries: u64,
    checks: VecDeque<Check>,
    fresh: VecDeque<Arc<Secret>>,
    overflow: VecDeque<Seat>,
    unhashed: Vec<Seat>,
    refuted: VecDeque<(Mark, u64)>,
    held: BTreeSet<(Instant, u64, usize)>,
    accounted: u64,
    memory_bytes: u64,
}

impl Prover {
    /// Returns the time when the first delayed answer may be sent.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.held.first().map(|(at, ..)| *at)
    }

    /// Returns how often argon2id had to try a password, which is the main cost of logins.
    pub(crate) fn tries(&self) -> u64 {
        self.tries
    }

    fn refutes(&self, mark: &Mark, secret: &Secret) -> bool {
        let mut all = self.refuted.iter();
        all.any(|(known, id)| *id == secret.id && known.is(mark))
    }

    /// Returns the unmarked `secrets` that the password may still match.
    fn open(&self, mark: &Mark, secrets: Vec<Arc<Secret>>) -> Vec<Arc<Secret>> {
        let mut secrets = secrets;
        secrets.retain(|secret| secret.is(mark).is_none() && !self.refutes(mark, secret));
        secrets
    }

    /// Takes the oldest check from an address without recent wrong passwords. If all addresses sent wrong passwords
    /// recently, takes the oldest check.
    fn next_check(&mut self, throttle: &Throttle, now: Instant) -> Option<Check> {
        let clean = |check: &Check| throttle.count(check.address, now) == 0;
        let at = self.checks.iter().position(clean).unwrap_or(0);
        self.checks.remove(at)
    }

    fn forget(&mut self, session: &mut Session) {
        let seat = session.seat;
        if let Some(at) = std::mem::take(&mut session.proof).held {
            self.held.remove(&(at, seat.id, seat.index));
        }
        if std::mem::take(&mut session.asks) {
            self.checks.retain(|check| check.seat != seat);
            self.overflow.retain(|waiting| *waiting != seat);
            self.unhashed.retain(|waiting| *waiting != seat);
        }
    }
}

/// A condition that must be settled before a request can run.
enum Need<'a> {
    /// A login: the user's name, and the password to be checked.
    Login(&'a [u8], &'a [u8]),
    /// The removal of a password: the user's name, and the password. The password must be tried with the user's
    /// unmarked secrets first, because a matching secret without a mark is not recognized.
    Removal(&'a [u8], &'a [u8]),
    /// All new passwords must be hashed.
    Hashed,
    /// The number of new passwords that wait to be hashed must be less than [`FRESH_MAX`].
    Room,
}

/// The next step for a request.
enum Verdict {
    Run,
    Try(Mark, Box<[u8]>, Vec<Arc<Secret>>),
    Wait,
    HoldBack,
}

/// Returns whether a request is postponed. A postponed request has had no effect. It is checked again after the thread
/// has checked or hashed a password, or when the request's delay is over.
#[cold]
pub(crate) fn gate(
    state: &mut State,
    session: &mut Session,
    command: &Command,
    args: &Args<'_>,
) -> bool {
    session.asks = false;
    let now = Instant::now();
    let seat = session.seat;
    let held = session.proof.held.filter(|at| *at > now);
    if session.proof.held.is_some() && held.is_none() {
        session.proof.pass();
    }
    let verdict = match held {
        Some(_) => Verdict::HoldBack,
        None => judge(state, session, command, args),
    };
    match verdict {
        Verdict::Run => {
            session.proof = Proof::default();
            return false;
        }
        Verdict::Wait => {
            session.asks = true;
            state.prover.unhashed.push(seat);
        }
        Verdict::Try(mark, password, secrets) => {
            session.asks = true;
            let address = Address::of(&session.peer);
            let prover = &mut state.prover;
            let mut asking = prover.checks.iter().chain(&prover.trying);
            if prover.checks.len() >= CHECKS_MAX || asking.any(|check| check.address == address) {
                prover.overflow.push_back(seat);
            } else {
                prover.checks.push_back(Check {
                    seat,
                    address,
                    mark,
                    password,
                    secrets,
                });
            }
        }
        Verdict::HoldBack => {
            let at = held.unwrap_or_else(|| {
                session.wrong = session.wrong.saturating_add(1);
                let address = Address::of(&session.peer);
                let count = state.common.throttle.lock().wrong(address, now);
                now + delay(count.max(session.wrong))
            });
            session.proof.held = Some(at);
            state.prover.held.insert((at, seat.id, seat.index));
        }
    }
    true
}

/// Checks a request's needs, beginning with the need that the session's proof names, and updates the proof.
fn judge(state: &State, session: &mut Session, command: &Command, args: &Args<'_>) -> Verdict {
    let Session { block, proof, .. } = session;
    match block {
        // The commands of a block run when EXEC runs. A broken block runs no command.
        Some(block) if !block.broken => {
            for (command, owned) in block.queue.iter().skip(proof.command) {
                let verdict = judge_command(state, proof, command, &owned.args());
                if !matches!(verdict, Verdict::Run) {
                    return verdict;
                }
                proof.pass_command();
            }
            Verdict::Run
        }
        Some(_) => Verdict::Run,
        None => judge_command(state, proof, command, args),
    }
}

fn judge_command(state: &State, proof: &mut Proof, command: &Command, args: &Args<'_>) -> Verdict {
    for need in needs(&state.acl, command, args)
        .into_iter()
        .skip(proof.need)
    {
        match judge_need(state, need, proof.refuted) {
            Verdict::Run => proof.pass(),
            verdict => return verdict,
        }
    }
    Verdict::Run
}

/// Checks a need. `refuted` is true if the thread has tried all secrets for this request and found the password wrong.
/// `refuted` is necessary because the short list of refuted passwords may no longer contain the password.
fn judge_need(state: &State, need: Need<'_>, refuted: bool) -> Verdict {
    let prover = &state.prover;
    let attempt = |mark, password: &[u8], secrets| match prover.open(&mark, secrets) {
        secrets if refuted || secrets.is_empty() => None,
        secrets => Some(Verdict::Try(mark, password.into(), secrets)),
    };
    match need {
        Need::Login(name, password) => {
            let mark = Mark::of(password);
            let judged = state.acl.user(name).map(|user| user.judge(&mark));
            match judged {
                Some(Judged::Right) => Verdict::Run,
                Some(Judged::Unknown(secrets)) if password.len() <= super::PASSWORD_BYTES_MAX => {
                    attempt(mark, password, secrets).unwrap_or(Verdict::HoldBack)
                }
                Some(Judged::Unknown(_) | Judged::Wrong) | None => Verdict::HoldBack,
            }
        }
        Need::Removal(name, password) => {
            let secrets = state.acl.user(name).map(|user| user.passwords.clone());
            attempt(Mark::of(password), password, secrets.unwrap_or_default())
                .unwrap_or(Verdict::Run)
        }
        Need::Hashed if state.acl.is_hashed() => Verdict::Run,
        Need::Room if prover.fresh.len() < FRESH_MAX => Verdict::Run,
        Need::Hashed | Need::Room => Verdict::Wait,
    }
}

/// Returns the needs of a request.
fn needs<'a>(acl: &Acl, command: &Command, args: &Args<'a>) -> Vec<Need<'a>> {
    let mut needs = Vec::new();
    match command.name {
        "auth" if args.len() == 3 => needs.push(Need::Login(args.at(1), args.at(2))),
        "auth" if args.len() == 2 && !acl.default_user().nopass => {
            needs.push(Need::Login(super::DEFAULT, args.at(1)));
        }
        "hello" => {
            let mut at = 2;
            while at + 1 < args.len() {
                if args.at(at).eq_ignore_ascii_case(b"AUTH") && at + 2 < args.len() {
                    needs.push(Need::Login(args.at(at + 1), args.at(at + 2)));
                    at += 1;
                }
                at += 2;
            }
        }
        "config" if args.len() > 1 && args.at(1).eq_ignore_ascii_case(b"rewrite") => {
            needs.push(Need::Hashed);
        }
        "acl" if args.len() > 1 => match args.at(1).to_ascii_lowercase().as_slice() {
            b"list" | b"getuser" | b"save" => needs.push(Need::Hashed),
            b"setuser" if args.len() > 2 => {
                needs.push(Need::Room);
                let removed = |word: &&[u8]| word.first() == Some(&b'<');
                let removed = args.from(3).filter(removed);
                needs.extend(removed.map(|word| Need::Removal(args.at(2), &word[1..])));
            }
            _ => {}
        },
        _ => {}
    }
    needs
}

impl State {
    /// Gives the thread the next job if the thread is idle. Resumes the clients at the end of their delays.
    pub(crate) fn tend_passwords(&mut self, now: Instant) {
        while let Some((at, id, index)) = self.prover.held.first().copied()
            && at <= now
        {
            self.prover.held.pop_first();
            self.resume(Seat {
                event_loop: self.event_loop,
                index,
                id,
            });
        }
        // The thread of another loop may have hashed the passwords.
        if self.peers.several() && !self.prover.unhashed.is_empty() && self.acl.is_hashed() {
            self.resume_unhashed();
        }
        let fresh = self.acl.take_fresh();
        self.prover.fresh.extend(fresh);
        if !self.prover.busy {
            self.begin_proof(now);
        }
        if self.prover.trying.is_none() && self.prover.checks.is_empty() {
            self.wake_some();
        }
    }

    fn begin_proof(&mut self, now: Instant) {
        if self.prover.checks.is_empty() && self.prover.fresh.is_empty() {
            return;
        }
        let worker = match self.prover.worker.clone() {
            Some(worker) => worker,
            None => match start_worker(&self.control) {
                Ok(worker) => self.prover.worker.insert(worker).clone(),
                Err(error) => {
                    // The checks wait until a thread can be started.
                    tracing::error!("Cannot start the thread that tries passwords: {error}");
                    return;
                }
            },
        };
        let (prover, common) = (&mut self.prover, Arc::clone(&self.common));
        let hash_first = prover.tried && !prover.fresh.is_empty();
        let mut job = None;
        while !hash_first
            && job.is_none()
            && let Some(mut check) = prover.next_check(&common.throttle.lock(), now)
        {
            // Secrets that other checks have settled since the check was queued need not be tried.
            let secrets = std::mem::take(&mut check.secrets);
            check.secrets = prover.open(&check.mark, secrets);
            match check.secrets.pop() {
                Some(secret) => {
                    prover.memory_bytes = secret.memory_bytes();
                    job = Some(Job::Verify(Arc::clone(&secret), check.password.clone()));
                    check.secrets.push(secret);
                    prover.trying = Some(check);
                }
                None => {
                    let seat = check.seat;
                    self.after_proof(seat);
                    return self.begin_proof(now);
                }
            }
        }
        let job = job.or_else(|| {
            let secret = prover.fresh.pop_front()?;
            prover.memory_bytes = secret.memory_bytes();
            Some(Job::Hash(secret))
        });
        let Some(job) = job else { return };
        prover.busy = worker.try_send(job).is_ok();
        prover.tried = prover.trying.is_some();
        prover.tries += u64::from(prover.tried && prover.busy);
        if !prover.busy {
            // The thread has ended. The next round starts another one.
            prover.worker = None;
            prover.checks.extend(prover.trying.take());
        }
        self.account_proof();
    }

    /// Processes the result of the thread's job.
    pub(crate) fn proved(&mut self, proved: &Proved) {
        self.prover.busy = false;
        match (proved, self.prover.trying.take()) {
            (Proved::Verified(right), Some(mut check)) => {
                if let Some(secret) = check.secrets.pop() {
                    match right {
                        true => secret.learn(check.mark),
                        false => self.prover.refute(check.mark, &[secret]),
                    }
                }
                let seat = check.seat;
                if *right || check.secrets.is_empty() {
                    self.note_proof(seat, !*right);
                    self.after_proof(seat);
                } else if self.connections.holds(seat) {
                    self.prover.checks.push_back(check);
                }
            }
            (Proved::Hashed | Proved::Verified(_), _) => {
                self.resume_unhashed();
                // Clients of other loops may wait for the same hash.
                self.common.wake_others(self.event_loop);
            }
        }
        self.account_proof();
        self.tend_passwords(Instant::now());
    }

    /// Resumes the clients that wait until new passwords are hashed.
    fn resume_unhashed(&mut self) {
        for seat in std::mem::take(&mut self.prover.unhashed) {
            self.resume(seat);
        }
    }

    /// Records in a client's proof whether the tried password is wrong.
    fn note_proof(&mut self, seat: Seat, refuted: bool) {
        let Some(mut connection) = self.connections.take(seat.index) else {
            return;
        };
        if connection.session.seat == seat {
            connection.session.proof.refuted = refuted;
        }
        self.connections.put(seat.index, connection);
    }

    /// Resumes a client, and some of the clients in `overflow`.
    fn after_proof(&mut self, seat: Seat) {
        self.resume(seat);
        self.wake_some();
    }

    /// Resumes some of the clients in `overflow`.
    fn wake_some(&mut self) {
        for _ in 0..WOKEN {
            let Some(seat) = self.prover.overflow.pop_front() else {
                break;
            };
            self.resume(seat);
        }
    }

    /// Resumes a postponed client.
    fn resume(&mut self, seat: Seat) {
        let Some(mut connection) = self.connections.take(seat.index) else {
            return;
        };
        if connection.session.seat == seat {
            connection.postponed = false;
            self.touch(seat.index);
        }
        self.connections.put(seat.index, connection);
    }

    /// Removes a client from all queues, because the client disconnects or its request may no longer run.
    pub(crate) fn forget_proof(&mut self, session: &mut Session) {
        self.prover.forget(session);
    }

    /// Reports to the database how much memory the checks and their passwords take.
    fn account_proof(&mut self) {
        let prover = &self.prover;
        let waiting: usize = prover.checks.iter().map(|check| check.password.len()).sum();
        let running = if prover.busy { prover.memory_bytes } else { 0 };
        let bytes = running.saturating_add(u64::try_from(waiting).unwrap_or(u64::MAX));
        let before = prover.accounted;
        if let Some(db) = self.db().filter(|_| bytes != before) {
            db.memory().change(MemoryUse::Passwords, before, bytes);
            self.prover.accounted = bytes;
        }
    }
}

impl Prover {
    fn refute(&mut self, mark: Mark, secrets: &[Arc<Secret>]) {
        let refuted = secrets.iter().map(|secret| (mark, secret.id));
        self.refuted.extend(refuted);
        let over = self.refuted.len().saturating_sub(REFUTED_MAX);
        self.refuted.drain(..over);
    }
}

impl Acl {
    /// Returns whether no password is waiting to be hashed.
    pub(crate) fn is_hashed(&self) -> bool {
        let stored = |user: &Arc<User>| user.passwords.iter().all(|secret| secret.is_stored());
        self.users().all(stored)
    }
}

fn start_worker(control: &Control) -> std::io::Result<SyncSender<Job>> {
    let (sender, jobs) = sync_channel(1);
    let control = control.clone();
    let body = move || work(&jobs, &control);
    let started = thread::Builder::new()
        .name(String::from("passwords"))
        .spawn(body);
    started.map(|_| sender)
}

/// Runs jobs on the thread until the queue of jobs is closed.
fn work(jobs: &Receiver<Job>, control: &Control) {
    cpus::unpin();
    while let Ok(job) = jobs.recv() {
        // A panic is caught, because clients wait for the job's result.
        let proved = match job {
            Job::Hash(secret) => {
                let _ = catch_unwind(AssertUnwindSafe(|| secret.hash()));
                Proved::Hashed
            }
            Job::Verify(secret, password) => {
                let right = catch_unwind(AssertUnwindSafe(|| secret.verify(&password)));
                Proved::Verified(right.unwrap_or(false))
            }
        };
        control.send(Message::Proved(proved));
    }
}
