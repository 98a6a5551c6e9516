//! Scripts: EVAL and its kin, as one transaction each.
//!
//! A script is like an EXEC whose commands are not known beforehand. It runs as a data command, so that the engine runs it
//! again from its start with more partitions when it uses a key that it did not declare; time and seed are then the same.
//! What its commands do beside the data, from counting to messages, is noted ([`ran`]) and done when the
//! transaction has committed, once.
//!
//! # Parts
//! * `functions`: the libraries; `library`: FUNCTION; `fcall`: FCALL and FCALL_RO.
//! * `eval`: EVAL, EVALSHA and those that only read. `host`: a command inside of a script. `plain`: those that touch no
//!   data and are allowed there. `cache`: the scripts by their SHA-1. `script`: SCRIPT. `ran`: what is done at the
//!   commit.
//!
//! # Deviations
//! * There is no BUSY state: a script that runs too long is ended and undone, so SCRIPT KILL never finds one.
//! * A script that passes a limit, that the log has no room for or that needs more memory than there is does not happen at
//!   all, and neither does the MULTI block around it. One that ends with an error keeps what it has written, as in Redis.

mod cache;
mod eval;
mod fcall;
mod functions;
mod host;
mod library;
mod plain;
pub(crate) mod ran;
mod script;

use super::Keys;
use super::spec::{Command, data, family, flag};
use crate::acl::User;
use crate::engine::Error;
use crate::session::Session;
use crate::state::State;
use cache::Cache;
use functions::Functions;
use perdura_base::num::to_usize;
use perdura_script::{Limits, Runtime};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The keys of scripts and functions.
const COUNTED: Keys = Keys::Counted { at: 2, dest: false };

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("eval", -3, flag::SCRIPTS, COUNTED, eval::eval),
    data(
        "eval_ro",
        -3,
        flag::SCRIPTS | flag::READ,
        COUNTED,
        eval::eval_ro,
    ),
    data("evalsha", -3, flag::SCRIPTS, COUNTED, eval::evalsha),
    data(
        "evalsha_ro",
        -3,
        flag::SCRIPTS | flag::READ,
        COUNTED,
        eval::evalsha_ro,
    ),
    data("fcall", -3, flag::SCRIPTS, COUNTED, fcall::fcall),
    data(
        "fcall_ro",
        -3,
        flag::SCRIPTS | flag::READ,
        COUNTED,
        fcall::fcall_ro,
    ),
    family("function", -2, 0, library::WORDS, library::function),
    family("script", -2, flag::APART, script::WORDS, script::script),
];

thread_local! {
    /// What runs scripts, in use while one runs. It belongs to the loop's thread, on which it is made: the state, which is
    /// made before that thread, cannot hold it.
    static RUNTIME: RefCell<Runtime> = RefCell::new(Runtime::new(Limits::default()));
}

/// Does something with what runs scripts. `None`: a script runs already.
fn with_runtime<R>(f: impl FnOnce(&mut Runtime) -> R) -> Option<R> {
    RUNTIME.with(|runtime| Some(f(&mut *runtime.try_borrow_mut().ok()?)))
}

/// Memory of what runs scripts, bytes.
pub(crate) fn runtime_bytes() -> usize {
    with_runtime(|runtime| runtime.memory_bytes()).unwrap_or(0)
}

/// What the server has of scripts.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    cache: RefCell<Cache>,
    functions: Functions,
    /// Who runs one.
    caller: Option<Arc<User>>,
    /// The client as CLIENT LIST shows it, if something may be denied to it.
    client: String,
    /// How many have run; the seed of the next comes from it.
    runs: u64,
    /// What each script of the running request took, all of its attempts together.
    spent: RefCell<Vec<Duration>>,
    /// What a monitor is shown of the scripts that have run, until it has been shown them.
    shown: VecDeque<Vec<String>>,
}

impl Scripts {
    /// A client is about to run scripts, maybe the one that was kept back for the log.
    pub(crate) fn enter(&mut self, session: &Session, now: Instant) {
        let spent = self.spent.get_mut();
        spent.clear();
        spent.push(session.spent);
        if !session.user.unlimited() {
            self.client = super::connection::client::line(session, now);
        }
        self.caller = Some(Arc::clone(&session.user));
        self.runs += 1;
        self.shown.clear();
    }

    /// What the `nth` script of the running request took in the attempts before.
    pub(crate) fn spent(&self, nth: u32) -> Duration {
        let spent = self.spent.borrow();
        spent
            .get(to_usize(u64::from(nth)))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the time of all scripts of the newest request that ran any, its earlier attempts included.
    pub(crate) fn spent_by_all(&self) -> Duration {
        self.spent.borrow().iter().sum()
    }

    /// An attempt at the `nth` script of the running request has ended.
    fn note_spent(&self, nth: u32, took: Duration) {
        let (nth, mut spent) = (to_usize(u64::from(nth)), self.spent.borrow_mut());
        if nth >= spent.len() {
            spent.resize(nth + 1, Duration::ZERO);
        }
        spent[nth] += took;
    }

    /// Who runs a script, and the client as CLIENT LIST shows it.
    pub(crate) fn caller(&self) -> Option<(Arc<User>, String)> {
        Some((Arc::clone(self.caller.as_ref()?), self.client.clone()))
    }

    /// What the commands of the next script are shown as.
    pub(crate) fn take_shown(&mut self) -> Vec<String> {
        self.shown.pop_front().unwrap_or_default()
    }

    /// Libraries that are kept, and their functions.
    pub(crate) fn libraries(&self) -> (usize, usize) {
        (self.functions.libraries().len(), self.functions.count())
    }

    /// Scripts that are kept, and their bytes.
    pub(crate) fn cached(&self) -> (usize, usize) {
        let cache = self.cache.borrow();
        (cache.len(), cache.bytes())
    }
}

impl State {
    /// Reads the libraries of functions of the database, which has just been opened.
    pub(crate) fn load_functions(&mut self) -> Result<(), Error> {
        let Some(db) = self.db() else { return Ok(()) };
        let read = with_runtime(|runtime| Functions::read(db, runtime));
        if let Some(read) = read {
            self.scripts.functions = read?;
        }
        Ok(())
    }

    /// A seed that no other script of this life of the server has.
    fn seed_of(&self, nth: u32) -> u64 {
        let nth = self.scripts.runs << 16 ^ u64::from(nth);
        perdura_base::checksum::hash64(nth, self.run_id.as_bytes())
    }
}
