//! Scripts: EVAL and related commands. Each script is one transaction.
//!
//! A script is like an EXEC with commands that are not known beforehand. It runs as a data command. When a script uses
//! an undeclared key, the engine runs the script again from the start with more partitions. The time and the random
//! seed then stay unchanged. A script's commands also have effects outside of the data, from statistics to messages.
//! These effects are noted ([`ran`]) and take place once, when the transaction has committed.
//!
//! # Parts
//! * `functions`: the libraries; `library`: FUNCTION; `fcall`: FCALL and FCALL_RO.
//! * `eval`: EVAL, EVALSHA and their read-only forms. `host`: a command inside a script. `plain`: the commands of
//!   scripts that touch no data. `long`: the scripts that take long. `cache`: the scripts by their SHA-1. `script`: SCRIPT. `ran`: the work at the commit.
//!
//! # Deviations
//! * A script that runs too long is ended and undone. So SCRIPT KILL never finds a running script,
//!   and no client gets BUSY.
//! * A script has no effect if it exceeds a limit, lacks room in the log, or lacks memory. A MULTI block with this
//!   script then has no effect, either. A script that ends with an error keeps its writes, as in Redis.

pub(crate) mod cache;
mod eval;
mod fcall;
mod functions;
mod host;
mod library;
mod long;
mod plain;
pub(crate) mod ran;
mod script;

use super::Keys;
use super::spec::{Command, data, family, flag};
use crate::acl::User;
use crate::engine::Error;
use crate::session::Session;
use crate::state::State;
use functions::Functions;
use long::LongScripts;
use perdura_base::num::to_usize;
use perdura_script::{Limits, Runtime};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The key arguments of scripts and functions.
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
    family(
        "function",
        -2,
        flag::ALONE,
        library::WORDS,
        library::function,
    ),
    family(
        "script",
        -2,
        flag::APART | flag::ALONE,
        script::WORDS,
        script::script,
    ),
];

thread_local! {
    /// The runtime of scripts, which is borrowed while a script runs. It must be made on the loop's thread.
    /// [`State`] cannot hold the runtime, because [`State`] is made before that thread exists.
    static RUNTIME: RefCell<Runtime> = RefCell::new(Runtime::new(Limits::default()));
}

/// Calls `f` with the runtime of scripts. Returns `None` if a script runs already.
fn with_runtime<R>(f: impl FnOnce(&mut Runtime) -> R) -> Option<R> {
    RUNTIME.with(|runtime| Some(f(&mut *runtime.try_borrow_mut().ok()?)))
}

/// Returns the memory of the runtime of scripts, bytes.
pub(crate) fn runtime_bytes() -> usize {
    with_runtime(|runtime| runtime.memory_bytes()).unwrap_or(0)
}

/// The contents of a loop's runtime that are to be removed.
#[derive(Debug, Default)]
struct Stale {
    /// The SHA-1s of removed libraries.
    libraries: Vec<String>,
    /// True if all scripts were removed.
    all: bool,
}

/// The state of a loop that concerns scripts.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    functions: Functions,
    /// The work for this loop's runtime since another loop ran SCRIPT FLUSH or removed libraries.
    stale: Stale,
    /// The user who runs a script. `None`: no script has run yet.
    caller: Option<Arc<User>>,
    /// The client as CLIENT LIST shows it. It is set only if the client's user may not do
    /// everything.
    client: String,
    /// The number of requests that have run scripts. The next script's seed depends on this number.
    runs: u64,
    /// The scripts whose newest run was long.
    long: LongScripts,
    /// The time of each script of the running request, summed over all attempts.
    spent: RefCell<Vec<Duration>>,
    /// The lines that monitors have not been shown yet, a list for each script.
    shown: VecDeque<Vec<String>>,
    /// True if the command that runs alone is SCRIPT FLUSH.
    pub flushed: bool,
}

impl Scripts {
    /// Notes the client that will run scripts. If its request was postponed, `session.spent` is the time of the earlier
    /// attempts.
    pub(crate) fn enter(&mut self, session: &Session, now: Instant) {
        self.refresh();
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

    /// Returns the time that the `nth` script of the running request took in earlier attempts.
    pub(crate) fn spent(&self, nth: u32) -> Duration {
        let spent = self.spent.borrow();
        spent
            .get(to_usize(u64::from(nth)))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the time that all scripts of one request took together, in all attempts. The request is the newest one
    /// that ran scripts.
    pub(crate) fn spent_by_all(&self) -> Duration {
        self.spent.borrow().iter().sum()
    }

    /// Adds the time of an attempt at the `nth` script of the running request.
    fn note_spent(&self, nth: u32, took: Duration) {
        let (nth, mut spent) = (to_usize(u64::from(nth)), self.spent.borrow_mut());
        if nth >= spent.len() {
            spent.resize(nth + 1, Duration::ZERO);
        }
        spent[nth] += took;
    }

    /// Returns the user who runs a script, and the client as CLIENT LIST shows it.
    pub(crate) fn caller(&self) -> Option<(Arc<User>, String)> {
        Some((Arc::clone(self.caller.as_ref()?), self.client.clone()))
    }

    /// Removes and returns the lines of the next script. Monitors are to be shown these lines.
    pub(crate) fn take_shown(&mut self) -> Vec<String> {
        self.shown.pop_front().unwrap_or_default()
    }

    /// Returns the number of libraries and the number of their functions.
    pub(crate) fn libraries(&self) -> (usize, usize) {
        (self.functions.libraries().len(), self.functions.count())
    }

    /// Takes over the libraries of another loop that runs a command alone.
    pub(crate) fn adopt(&mut self, from: &Scripts) {
        let gone = self.functions.adopt(&from.functions);
        self.stale.libraries.extend(gone);
        self.stale.all |= from.flushed;
    }

    /// Removes from the runtime what another loop has removed.
    fn refresh(&mut self) {
        if self.stale.all || !self.stale.libraries.is_empty() {
            let stale = std::mem::take(&mut self.stale);
            with_runtime(|runtime| {
                let each = stale.libraries.iter();
                each.for_each(|sha| runtime.drop_library(sha));
                if stale.all {
                    runtime.forget();
                }
            });
        }
    }
}

impl State {
    /// Reads the libraries of functions from the database, which has just been opened.
    pub(crate) fn load_functions(&mut self) -> Result<(), Error> {
        let Some(db) = self.db() else { return Ok(()) };
        let read = with_runtime(|runtime| Functions::read(db, runtime));
        if let Some(read) = read {
            self.scripts.functions = read?;
        }
        Ok(())
    }

    /// Returns a seed that no other script has had since the server started.
    fn seed_of(&self, nth: u32) -> u64 {
        let nth = self.scripts.runs << 16 ^ u64::from(nth);
        let of_loop = u64::try_from(self.event_loop).unwrap_or(u64::MAX) << 56;
        perdura_base::checksum::hash64(nth ^ of_loop, self.common.run_id.as_bytes())
    }
}
