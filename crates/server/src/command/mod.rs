//! The commands: what each is called, what it takes, and the function that runs it.
//!
//! A *data* command runs inside a transaction and may be run again from its start when the
//! engine widens the set of latched partitions; it therefore changes nothing but the
//! transaction and the reply, and validates before it writes: an error that it reports in its
//! reply leaves no trace. A *plain* command touches the connection or the server and runs once.

pub(crate) mod block;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod describe;
pub(crate) mod dispatch;
pub(crate) mod expiry;
pub(crate) mod hello;
pub(crate) mod info;
pub(crate) mod keys;
pub(crate) mod lookup;
pub(crate) mod server;
pub(crate) mod strings;
pub(crate) mod table;

use crate::engine::{Abort, Db, Epoch, Error, Flushed, Renewal, TableId, Tx};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::State;

/// What is true of a command, one bit each.
pub(crate) mod flag {
    /// Changes data.
    pub(crate) const WRITE: u8 = 1;
    /// Reads data only.
    pub(crate) const READ: u8 = 2;
    /// Runs while the database is loading.
    pub(crate) const LOADING: u8 = 4;
    /// Runs before AUTH.
    pub(crate) const NO_AUTH: u8 = 8;
    /// Refused within MULTI.
    pub(crate) const NO_MULTI: u8 = 16;
    /// Runs at once even within MULTI.
    pub(crate) const IMMEDIATE: u8 = 32;
    /// For administrators.
    pub(crate) const ADMIN: u8 = 64;
    /// Takes constant time.
    pub(crate) const FAST: u8 = 128;
}

/// Which arguments are keys, and so which partitions a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// None.
    None,
    /// From `first` to `last` (negative: from the end) by `step`, as COMMAND reports it.
    Range { first: usize, last: i8, step: usize },
    /// All partitions.
    All,
}

/// How a command runs.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Inside a transaction.
    Data(DataFn),
    /// Outside.
    Plain(PlainFn),
}

/// A command that runs inside a transaction.
pub(crate) type DataFn = fn(&mut Data<'_, '_>, &Args<'_>, &mut Out<'_>) -> Result<(), Abort>;
/// A command that runs outside of transactions.
pub(crate) type PlainFn = fn(&mut Cx<'_>, &Args<'_>);

/// One command.
pub(crate) struct Command {
    /// Its name in lower case.
    pub name: &'static str,
    /// The number of arguments, the name included; negative: at least so many.
    pub arity: i8,
    /// See [`flag`].
    pub flags: u8,
    /// Its keys.
    pub keys: Keys,
    /// The second words it knows with their arity, which counts both words; none if it takes
    /// any.
    pub words: &'static [(&'static str, i8)],
    /// Its function.
    pub run: Run,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Command {
    /// Whether all of `flags` hold.
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Checks the second word and the number of arguments.
    pub(crate) fn check_shape(&self, args: &Args<'_>) -> Result<(), String> {
        if self.words.is_empty() || args.len() < 2 {
            return if fits(self.arity, args.len()) {
                Ok(())
            } else {
                Err(wrong_arity(self.name))
            };
        }
        let word = args.at(1);
        match self
            .words
            .iter()
            .find(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes()))
        {
            Some((_, arity)) if fits(*arity, args.len()) => Ok(()),
            Some((known, _)) => Err(wrong_arity(&format!("{}|{known}", self.name))),
            None => {
                let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
                let name = self.name.to_ascii_uppercase();
                Err(format!("ERR unknown subcommand '{word}'. Try {name} HELP."))
            }
        }
    }

    /// The keys among the arguments.
    pub(crate) fn key_args<'a>(&self, args: &Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let args = *args;
        let (first, last, step) = match self.keys {
            Keys::Range { first, last, step } => {
                let from_end = usize::from(last.unsigned_abs());
                let last = if last < 0 {
                    args.len().saturating_sub(from_end)
                } else {
                    from_end
                };
                (first, last.min(args.len().saturating_sub(1)), step)
            }
            Keys::None | Keys::All => (1, 0, 1),
        };
        (first..=last).step_by(step).map(move |i| args.at(i))
    }
}

/// What a data command works on.
pub(crate) struct Data<'a, 'tx> {
    /// The transaction.
    pub tx: &'a mut Tx<'tx>,
    /// The client's database, 0 to 15.
    pub database: u8,
    /// Its table.
    pub table: TableId,
    db: &'a Db,
    /// New tables of what this transaction has flushed.
    renewal: Option<Renewal>,
    /// The longest value, bytes.
    pub value_bytes_max: usize,
    /// The longest reply, bytes.
    pub reply_bytes_max: usize,
    /// Keys looked up and found.
    pub hits: u64,
    /// Keys looked up in vain.
    pub misses: u64,
}

/// What a transaction leaves to be done when it has committed.
#[must_use]
pub(crate) struct Outcome {
    hits: u64,
    misses: u64,
    flushed: Option<Flushed>,
}

impl Outcome {
    /// Counts the lookups, and gives back what a flush has emptied.
    pub(crate) fn settle(self, state: &mut State) {
        state.stats.hits += self.hits;
        state.stats.misses += self.misses;
        if let (Some(flushed), Some(db)) = (self.flushed, state.db()) {
            db.reclaim_flushed(flushed);
        }
    }
}

impl<'a, 'tx> Data<'a, 'tx> {
    /// What the commands of one transaction work on, beginning with a database.
    pub(crate) fn new(state: &State, db: &'a Db, tx: &'a mut Tx<'tx>, database: u8) -> Self {
        Data {
            tx,
            database,
            table: db.database(database),
            db,
            renewal: None,
            value_bytes_max: state.value_bytes_max,
            reply_bytes_max: state.options.reply_bytes_max,
            hits: 0,
            misses: 0,
        }
    }

    /// Goes on with a database.
    pub(crate) fn select(&mut self, database: u8) {
        self.database = database;
        self.table = self.table_of(database);
    }

    fn table_of(&self, database: u8) -> TableId {
        let renewed = self.renewal.as_ref().and_then(|r| r.table(database));
        renewed.unwrap_or_else(|| self.db.database(database))
    }

    /// Empties a database for the rest of this transaction, and for all when it commits. One
    /// that is empty stays as it is.
    pub(crate) fn flush(&mut self, database: u8) -> Result<(), Abort> {
        if self.tx.len(self.table_of(database))? > 0 {
            let renewal = self.renewal.get_or_insert_default();
            self.db.begin_flush(self.tx, Some(database), renewal)?;
            self.select(self.database);
        }
        Ok(())
    }

    /// Ends the transaction; nothing may fail after it.
    pub(crate) fn finish(self) -> Result<Outcome, Abort> {
        let flushed = match &self.renewal {
            Some(renewal) => Some(self.db.finish_flush(self.tx, renewal)?),
            None => None,
        };
        Ok(Outcome {
            hits: self.hits,
            misses: self.misses,
            flushed,
        })
    }

    /// Counts a lookup.
    pub(crate) fn looked_up(&mut self, found: bool) {
        if found {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
    }

    /// Stops a transaction whose reply has outgrown its limit; `bytes` is its size so far.
    pub(crate) fn check_reply(&self, bytes: usize) -> Result<(), Abort> {
        if bytes <= self.reply_bytes_max {
            return Ok(());
        }
        let max = self.reply_bytes_max;
        Err(Abort::Error(Error::Usage(format!(
            "the reply is longer than the {max} bytes allowed; ask for fewer keys at once. \
             Nothing was changed"
        ))))
    }
}

/// What the connection does after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Goes on.
    Continue,
    /// Closes once its replies have left.
    Close,
    /// Runs nothing more until an answer comes from another thread.
    Block,
    /// The whole server ends, with a checkpoint or without.
    Shutdown { checkpoint: bool },
}

/// What a plain command works on.
pub(crate) struct Cx<'a> {
    /// The server.
    pub state: &'a mut State,
    /// The client.
    pub session: &'a mut Session,
    /// Its replies.
    pub out: Out<'a>,
    /// What the reply rests on; zero for nothing.
    pub epoch: Epoch,
    /// What happens next.
    pub after: After,
}

/// Redis's text for a wrong number of arguments.
pub(crate) fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Whether `count` arguments are right for an arity.
fn fits(arity: i8, count: usize) -> bool {
    let wanted = usize::from(arity.unsigned_abs());
    if arity < 0 {
        count >= wanted
    } else {
        count == wanted
    }
}

/// Redis's text for options that make no sense.
pub(crate) const SYNTAX: &str = "ERR syntax error";
/// Redis's text for a malformed integer.
pub(crate) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
/// Redis's text for a value beyond the limit.
pub(crate) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
