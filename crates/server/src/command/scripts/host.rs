//! Runs a command inside a script. First come Redis's checks, in Redis's order and with Redis's texts. Then the
//! command itself runs, in the script's transaction.

use super::eval::May;
use super::plain;
use super::ran::Ran;
use crate::acl::User;
use crate::command::server::memory::usage_within;
use crate::command::{Command, Data, Run, flag};
use crate::denial::{Denied, Reason};
use crate::engine::Error;
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::reply::Out;
use crate::stats::Counted;
use perdura_base::limits::KEY_BYTES_MAX;
use perdura_script::{Ask, Halt, Host, LONG_RUN, Words};
use std::sync::Arc;
use std::time::Instant;

const UNKNOWN: &str = "ERR Unknown Redis command called from script";
const WRONG_ARITY: &str = "ERR Wrong number of args calling Redis command from script";
const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";
const READ_ONLY: &str = "ERR Write commands are not allowed from read-only scripts.";
const NOT_TO_CHECK: &str = "ERR Invalid command passed to redis.acl_check_cmd()";

/// The data commands that Redis does not allow in scripts. All these commands can wait for keys. But Redis allows newer
/// commands that wait, for example BLMPOP.
const WAITING: [&str; 6] = [
    "blmove",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzpopmax",
    "bzpopmin",
];

/// The lowest level that `redis.log` writes: a notice.
const LOGGED_FROM: u8 = b'2';

/// Returns whether a request is MEMORY USAGE, the only subcommand of MEMORY that scripts may run.
/// Libraries for queues use it to find the size of a queue.
fn is_memory_usage(command: &Command, args: &Args<'_>) -> bool {
    command.name == "memory" && args.at(1).eq_ignore_ascii_case(b"usage")
}

/// The context of a running script.
pub(super) struct Inner<'h, 'a, 'tx> {
    data: &'h mut Data<'a, 'tx>,
    may: May,
    user: Option<Arc<User>>,
    monitored: bool,
    began: Instant,
    /// The time when the last command was counted.
    clock: Instant,
    /// The arguments of the command that runs.
    words: OwnedArgs,
    /// True if the run has taken long.
    is_long: bool,
    /// The error that ends the transaction. `None`: the transaction continues.
    halted: Option<Error>,
}

impl<'h, 'a, 'tx> Inner<'h, 'a, 'tx> {
    /// Returns the context of a script that begins in a transaction.
    pub(super) fn new(data: &'h mut Data<'a, 'tx>, may: May) -> Self {
        data.ran().begin();
        let state = data.state();
        let (now, caller) = (Instant::now(), state.scripts.caller.as_ref());
        Inner {
            user: caller.filter(|user| !user.unlimited()).map(Arc::clone),
            monitored: state.common.monitors.is_in_use(),
            data,
            may,
            began: now,
            clock: now,
            words: OwnedArgs::default(),
            is_long: false,
            halted: None,
        }
    }

    /// Ends the script. Returns whether the run has taken long, and the error that ends the transaction, if there is
    /// one.
    pub(super) fn end(self) -> (bool, Option<Error>) {
        (self.is_long, self.halted)
    }

    /// Adds a script to the cache. The script must compile.
    pub(super) fn keep(&self, sha: &str, source: &[u8]) {
        let common = &self.data.state().common;
        common.scripts.lock().keep(sha, source, false);
    }

    /// Returns the command if a script of this caller may run it. The error is a reply.
    fn check(&mut self, args: &Args<'_>) -> Result<(usize, &'static Command), String> {
        let Some((slot, command)) = self.data.state().lookup.find_slot(args.at(0)) else {
            return Err(String::from(UNKNOWN));
        };
        let known = command.words.is_empty() || args.len() < 2 || command.has_word(args.at(1));
        if !known {
            return Err(String::from(UNKNOWN));
        }
        if command.check_shape(args).is_err() {
            return Err(String::from(WRONG_ARITY));
        }
        if command.has(flag::SCRIPTS) || WAITING.contains(&command.name) {
            return Err(String::from(NOT_ALLOWED));
        }
        let writes =
            command.has(flag::WRITE) || matches!(command.name, "publish" | "spublish" | "pfcount");
        if writes && !self.may.write {
            return Err(String::from(READ_ONLY));
        }
        self.check_user(command, args)?;
        for key in command.key_args(args) {
            if key.len() > KEY_BYTES_MAX {
                let bytes = key.len();
                return Err(format!(
                    "ERR a key has {bytes} bytes; the most is {KEY_BYTES_MAX}"
                ));
            }
        }
        Ok((slot, command))
    }

    fn check_user(&mut self, command: &Command, args: &Args<'_>) -> Result<(), String> {
        let Some(user) = &self.user else {
            return Ok(());
        };
        if let Err(denied) = user.check(command, args) {
            let why = match denied.reason {
                Reason::Command => "run this command or subcommand",
                Reason::Key => "access at least one of the keys mentioned in the command arguments",
                Reason::Channel | Reason::Auth => "publish to the channel mentioned in the command",
            };
            self.note_denied(denied);
            return Err(format!("ERR The user executing the script can't {why}"));
        }
        user.check_sort(command, args).map_err(|option| {
            format!("ERR {option} option of SORT denied due to insufficient ACL permissions.")
        })
    }

    fn note_denied(&mut self, denied: Denied) {
        self.data.ran().denied.push(denied);
    }

    fn command(&mut self, args: &Args<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let (slot, command) = match self.check(args) {
            Ok(found) => found,
            Err(error) => {
                out.error(&error);
                return Ok(());
            }
        };
        let database = self.data.database;
        match command.run {
            Run::Data(_) => {
                self.data.run(command, args, out)?;
                self.data.check_reply(out.buf.len())?;
            }
            Run::Plain(_) if plain::run(self.data, command, args, out) => {}
            Run::Plain(_) if is_memory_usage(command, args) => {
                usage_within(self.data.tx, self.data.table, args, out)?;
            }
            Run::Plain(_) => {
                out.error(NOT_ALLOWED);
                return Ok(());
            }
        }
        let counted = Counted::new(slot, command, args);
        // A command's time begins when the previous command was counted, as in a block.
        let now = Instant::now();
        let took = now.saturating_duration_since(self.clock);
        self.clock = now;
        if !self.is_long && now.saturating_duration_since(self.began) >= LONG_RUN {
            self.note_long();
        }
        let ran: &mut Ran = self.data.ran();
        ran.note(counted, took, out.buf);
        if self.monitored {
            ran.show(database, command, args);
        }
        Ok(())
    }

    fn may_run(&self, args: &Args<'_>, out: &mut Out<'_>) {
        let found = self.data.state().lookup.find_slot(args.at(0));
        let known = found.filter(|(_, command)| command.check_shape(args).is_ok());
        let Some((_, command)) = known else {
            return out.error(NOT_TO_CHECK);
        };
        let allowed = self
            .user
            .as_ref()
            .is_none_or(|user| user.check(command, args).is_ok());
        out.integer(i64::from(allowed));
    }
}

impl Host for Inner<'_, '_, '_> {
    fn call(&mut self, ask: Ask, words: &Words, reply: &mut Vec<u8>) -> Result<(), Halt> {
        let mut owned = std::mem::take(&mut self.words);
        owned.refill(words.iter());
        let done = self.answer(ask, &owned.args(), reply);
        self.words = owned;
        done
    }

    fn note_long(&mut self) {
        self.is_long = true;
        self.data.note_long();
    }
}

impl Inner<'_, '_, '_> {
    fn answer(&mut self, ask: Ask, args: &Args<'_>, reply: &mut Vec<u8>) -> Result<(), Halt> {
        match ask {
            Ask::Command { resp3 } => {
                let ran = self.command(args, &mut Out::new(reply, resp3));
                ran.map_err(|error| {
                    self.halted = Some(error);
                    Halt
                })
            }
            Ask::MayRun => {
                self.may_run(args, &mut Out::new(reply, false));
                Ok(())
            }
            Ask::Log => {
                if args.len() == 2 && args.at(0).first() >= Some(&LOGGED_FROM) {
                    let line = String::from_utf8_lossy(args.at(1)).into_owned();
                    self.data.ran().lines.push(format!("A script says: {line}"));
                }
                Out::new(reply, false).ok();
                Ok(())
            }
        }
    }
}
