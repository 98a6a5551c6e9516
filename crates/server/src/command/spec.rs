//! The description of a command: name, arguments and keys.
//!
//! Every family of commands has a table of rows; `table` joins these tables. A row contains everything that
//! dispatch, COMMAND, access control and the documentation know about a command.

use super::options::{Grammar, Role};
use super::{DataFn, PlainFn, Run, wrong_arity};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use perdura_base::flaw::{Flaw, armed};

/// Flags of a command, one bit each.
pub(crate) mod flag {
    /// Changes data.
    pub(crate) const WRITE: u32 = 1;
    /// Reads data only.
    pub(crate) const READ: u32 = 2;
    /// Runs while the database is loading.
    pub(crate) const LOADING: u32 = 4;
    /// Runs before AUTH.
    pub(crate) const NO_AUTH: u32 = 8;
    /// Refused within MULTI.
    pub(crate) const NO_MULTI: u32 = 16;
    /// Runs at once even within MULTI.
    pub(crate) const IMMEDIATE: u32 = 32;
    /// Is for administrators.
    pub(crate) const ADMIN: u32 = 64;
    /// Takes constant time.
    pub(crate) const FAST: u32 = 128;
    /// May need more memory.
    pub(crate) const DENY_OOM: u32 = 256;
    /// May wait for another client.
    pub(crate) const BLOCKING: u32 = 512;
    /// Uses channels.
    pub(crate) const PUBSUB: u32 = 1024;
    /// Is dangerous: not every user should be allowed to run it.
    pub(crate) const DANGEROUS: u32 = 2048;
    /// May have to wait for a password to be tried or hashed.
    pub(crate) const PROVES: u32 = 4096;
    /// Runs scripts.
    pub(crate) const SCRIPTS: u32 = 8192;
    /// Runs outside of transactions, and either shows no data or sets the epoch of its reply itself. Without this flag,
    /// the reply of a command outside of transactions depends on every earlier write.
    pub(crate) const APART: u32 = 1 << 14;
    /// May have to run while no other loop runs a round: see [`crate::alone`].
    pub(crate) const ALONE: u32 = 1 << 15;
}

/// The arguments that are keys. They determine the partitions that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// No key.
    None,
    /// The arguments from `first` to `last`, `step` apart. A negative `last` counts from the end. COMMAND
    /// reports these three numbers.
    Range { first: usize, last: i8, step: usize },
    /// Argument `at` is the number of keys that follow it. With `dest` the first argument is a key,
    /// too.
    Counted { at: usize, dest: bool },
    /// The keys of SORT: the first argument and the target of STORE. A pattern of SORT may lead to
    /// keys in any partition.
    Sort(&'static Grammar),
    /// The first argument and the target that an option names.
    Stored(&'static Grammar),
    /// The first half of the arguments after the word STREAMS. COMMAND reports that clients must search for this word
    /// from argument `from` on.
    Streams {
        grammar: &'static Grammar,
        from: usize,
    },
    /// The keys of MIGRATE: the third argument, or the arguments after KEYS if the third argument is empty.
    Migrate,
    /// Any key. The command needs all partitions.
    All,
}

/// The first argument.
pub(crate) const ONE: Keys = Keys::Range {
    first: 1,
    last: 1,
    step: 1,
};
/// The second argument, which follows a subcommand.
pub(crate) const SECOND: Keys = Keys::Range {
    first: 2,
    last: 2,
    step: 1,
};
/// The first two arguments.
pub(crate) const TWO: Keys = Keys::Range {
    first: 1,
    last: 2,
    step: 1,
};
/// Every argument.
pub(crate) const EACH: Keys = Keys::Range {
    first: 1,
    last: -1,
    step: 1,
};
/// Keys and values in turn.
pub(crate) const PAIRS: Keys = Keys::Range {
    first: 1,
    last: -1,
    step: 2,
};

/// One command.
pub(crate) struct Command {
    /// The name in lower case.
    pub name: &'static str,
    /// The number of arguments, including the name. A negative value gives the least number of arguments.
    pub arity: i8,
    /// The flags: see [`flag`].
    pub flags: u32,
    /// The arguments that are keys.
    pub keys: Keys,
    /// The known second words, each with an arity. The arity counts the command's two words. If the list is empty, the
    /// command takes any second word.
    pub words: &'static [(&'static str, i8)],
    /// The function that runs the command.
    pub run: Run,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns a command that runs inside a transaction.
pub(crate) const fn data(
    name: &'static str,
    arity: i8,
    flags: u32,
    keys: Keys,
    run: DataFn,
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys,
        words: &[],
        run: Run::Data(run),
    }
}

/// Returns a command that runs outside of transactions.
pub(crate) const fn plain(name: &'static str, arity: i8, flags: u32, run: PlainFn) -> Command {
    Command {
        run: Run::Plain(run),
        ..data(name, arity, flags, Keys::None, super::no_data)
    }
}

/// Returns a command with these second words. The second word selects the action.
pub(crate) const fn family(
    name: &'static str,
    arity: i8,
    flags: u32,
    words: &'static [(&'static str, i8)],
    run: PlainFn,
) -> Command {
    Command {
        words,
        ..plain(name, arity, flags, run)
    }
}

impl Command {
    /// Returns the command with these keys.
    pub(crate) const fn keyed(self, keys: Keys) -> Command {
        Command { keys, ..self }
    }

    /// Returns the command with these second words.
    pub(crate) const fn with_words(self, words: &'static [(&'static str, i8)]) -> Command {
        Command { words, ..self }
    }

    /// Returns the index of the request's second word in [`words`](Self::words); `None` if it is
    /// not there.
    #[inline]
    pub(crate) fn word_at(&self, args: &Args<'_>) -> Option<usize> {
        if self.words.is_empty() || args.len() < 2 {
            return None;
        }
        self.find_word(args.at(1))
    }

    fn find_word(&self, word: &[u8]) -> Option<usize> {
        self.words
            .iter()
            .position(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes()))
    }

    /// Returns the command's name, with the request's second word if the command knows that word.
    pub(crate) fn full_name(&self, args: &Args<'_>) -> String {
        match self.word_at(args) {
            Some(at) => format!("{}|{}", self.name, self.words[at].0),
            None => String::from(self.name),
        }
    }

    /// Returns whether the command has all of `flags`.
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }

    /// Returns whether the command accepts this second word. A command without subcommands accepts any word.
    pub(crate) fn has_word(&self, word: &[u8]) -> bool {
        let same = |(known, _): &(&str, i8)| word.eq_ignore_ascii_case(known.as_bytes());
        self.words.is_empty() || self.words.iter().any(same)
    }

    /// Checks the second word and the number of arguments.
    #[inline(always)]
    pub(crate) fn check_shape(&self, args: &Args<'_>) -> Result<(), String> {
        if !self.words.is_empty() && args.len() >= 2 {
            return self.check_word(args);
        }
        if fits(self.arity, args.len()) {
            Ok(())
        } else {
            Err(wrong_arity(self.name))
        }
    }

    fn check_word(&self, args: &Args<'_>) -> Result<(), String> {
        let word = args.at(1);
        match self
            .words
            .iter()
            .find(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes()))
        {
            Some((_, arity)) if fits(*arity, args.len()) => Ok(()),
            Some((known, _)) => Err(wrong_arity(&format!("{}|{known}", self.name))),
            None => {
                // Redis shows the word as a C string, which ends at its first zero byte.
                let end = word.iter().take(128).take_while(|byte| **byte != 0).count();
                let word = String::from_utf8_lossy(&word[..end]);
                let name = self.name.to_ascii_uppercase();
                Err(format!("ERR unknown subcommand '{word}'. Try {name} HELP."))
            }
        }
    }

    /// Returns the keys among the arguments.
    #[inline]
    pub(crate) fn key_args<'a>(&self, args: &Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let args = *args;
        self.keys.places(&args).map(move |i| args.at(i))
    }
}

/// An iterator over the indexes of a request's keys. Every request uses it twice, so it is written by hand for speed.
struct Places {
    /// True if the first argument is a key. This key comes before all other keys.
    dest: bool,
    first: usize,
    end: usize,
    step: usize,
    /// The index of one more key, which comes after all others.
    more: Option<usize>,
}

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.dest {
            self.dest = false;
            return Some(1);
        }
        if self.first < self.end {
            let at = self.first;
            self.first += self.step;
            return Some(at);
        }
        self.more.take()
    }
}

const NO_PLACES: Places = Places {
    dest: false,
    first: 1,
    end: 1,
    step: 1,
    more: None,
};

impl Keys {
    #[inline]
    fn places(self, args: &Args<'_>) -> Places {
        let Keys::Range { first, last, step } = self else {
            return self.places_by_words(args);
        };
        let from_end = usize::from(last.unsigned_abs());
        let behind = if last < 0 {
            (args.len() + 1).saturating_sub(from_end)
        } else {
            from_end + 1
        };
        Places {
            first,
            end: behind.min(args.len()),
            step,
            ..NO_PLACES
        }
    }

    /// Returns the places of the keys for every variant but [`Keys::Range`].
    fn places_by_words(self, args: &Args<'_>) -> Places {
        let end = args.len();
        let find = |word: &[u8], from: usize| {
            let mut rest = from..end;
            rest.find(|at| args.at(*at).eq_ignore_ascii_case(word))
        };
        match self {
            Keys::Counted { at, dest } => {
                let count = (at < end).then(|| parse_i64(args.at(at))).flatten();
                let count = count.map_or(0, |n| usize::try_from(n).unwrap_or(0));
                Places {
                    dest: dest && end > 1,
                    first: at + 1,
                    end: at.saturating_add(count).saturating_add(1).min(end),
                    ..NO_PLACES
                }
            }
            Keys::Sort(grammar) | Keys::Stored(grammar) => Places {
                end: end.min(2),
                more: match armed(Flaw::FirstTargetJudged) {
                    true => grammar.of(args, Role::Target).next(),
                    false => grammar.last(args, Role::Target),
                },
                ..NO_PLACES
            },
            Keys::Streams { grammar, .. } => {
                let keys = grammar.streams(args);
                Places {
                    first: keys.start,
                    end: keys.end,
                    ..NO_PLACES
                }
            }
            Keys::Migrate => match find(b"KEYS", 6).filter(|at| at + 1 < end) {
                _ if end < 4 => NO_PLACES,
                None => Places {
                    first: 3,
                    end: 4,
                    ..NO_PLACES
                },
                Some(at) if args.at(3).is_empty() => Places {
                    first: at + 1,
                    end,
                    ..NO_PLACES
                },
                Some(_) => NO_PLACES,
            },
            Keys::Range { .. } | Keys::None | Keys::All => NO_PLACES,
        }
    }
}

/// Returns whether `count` arguments are right for an arity.
fn fits(arity: i8, count: usize) -> bool {
    let wanted = usize::from(arity.unsigned_abs());
    if arity < 0 {
        count >= wanted
    } else {
        count == wanted
    }
}
