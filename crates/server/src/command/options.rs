//! The parser for options that can name keys. Each command with such options has a table of all its options, and the
//! parser reads this table.
//!
//! Access control must check exactly the keys that the command then uses. So access control and the command share one
//! [`Grammar`]. They take a key from the place that [`Grammar::last`] or [`Grammar::streams`] returns.

use crate::resp::parse::Args;
use std::ops::Range;

/// The role of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The option names no key.
    Plain,
    /// The option's argument is the key of the result. If the option is given several times, the
    /// last one counts.
    Target,
    /// The option's argument is a pattern that leads to keys.
    Pattern,
    /// All later arguments belong to this option. The first half are keys, and the second half has one word for each
    /// key.
    Streams,
}

/// An option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    /// The option's name in upper case.
    pub name: &'static str,
    /// The number of the option's arguments.
    pub takes: usize,
    /// The meaning of the option's arguments.
    pub role: Role,
}

/// Returns an option that names no key.
pub(crate) const fn word(name: &'static str, takes: usize) -> Word {
    Word {
        name,
        takes,
        role: Role::Plain,
    }
}

/// Returns an option of this role, with one argument.
pub(crate) const fn role(name: &'static str, role: Role) -> Word {
    Word {
        name,
        takes: 1,
        role,
    }
}

/// The options of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grammar {
    /// The index of the first argument that may be an option.
    pub from: usize,
    /// The options.
    pub words: &'static [Word],
}

/// An option of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// The option's place in the request. Its arguments follow it.
    pub at: usize,
    /// The option. `None`: no option has this name, or an argument is missing.
    pub word: Option<&'static Word>,
}

impl Grammar {
    /// Returns the options of a request, in the order of the request.
    pub(crate) fn walk<'a>(&self, args: &Args<'a>) -> impl Iterator<Item = Found> + use<'a> {
        let (args, words) = (*args, self.words);
        let mut next = self.from;
        std::iter::from_fn(move || {
            let at = next;
            if at >= args.len() {
                return None;
            }
            let text = args.at(at);
            let word = words.iter().find(|word| {
                let is = text.eq_ignore_ascii_case(word.name.as_bytes());
                is && at + word.takes < args.len()
            });
            next = match word {
                Some(word) if word.role == Role::Streams => args.len(),
                // A command refuses the request here, but access control checks the rest, too.
                None => at + 1,
                Some(word) => at + 1 + word.takes,
            };
            Some(Found { at, word })
        })
    }

    /// Finds the last option that has this role. Returns the index of its argument.
    pub(crate) fn last(&self, args: &Args<'_>, role: Role) -> Option<usize> {
        self.of(args, role).last()
    }

    /// Finds all options that have this role. Returns the indexes of their arguments.
    pub(crate) fn of<'a>(
        &self,
        args: &Args<'a>,
        role: Role,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let is = move |word: &Word| word.role == role;
        let found = self.walk(args);
        found.filter_map(move |found| found.word.filter(|word| is(word)).map(|_| found.at + 1))
    }

    /// Returns the indexes of the keys after STREAMS: the first half of the arguments after the word.
    pub(crate) fn streams(&self, args: &Args<'_>) -> Range<usize> {
        let first = self.last(args, Role::Streams);
        first.map_or(0..0, |first| first..first + (args.len() - first) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::parse::OwnedArgs;

    const GRAMMAR: Grammar = Grammar {
        from: 1,
        words: &[
            word("ASC", 0),
            word("LIMIT", 2),
            role("STORE", Role::Target),
            role("STREAMS", Role::Streams),
        ],
    };

    fn walked(text: &str) -> (Vec<(usize, bool)>, Option<usize>, Range<usize>) {
        let owned = OwnedArgs::of(text.split(' ').map(str::as_bytes));
        let args = owned.args();
        let walk = GRAMMAR.walk(&args);
        let walk = walk.map(|found| (found.at, found.word.is_some()));
        let target = GRAMMAR.last(&args, Role::Target);
        (walk.collect(), target, GRAMMAR.streams(&args))
    }

    #[test]
    fn an_argument_of_an_option_is_no_option() {
        let (walk, target, _) = walked("sort limit store store store store");
        assert_eq!(walk, [(1, true), (4, true)]);
        assert_eq!(target, Some(5));
        let (walk, target, _) = walked("sort STORE a asc store b");
        assert_eq!(walk, [(1, true), (3, true), (4, true)]);
        assert_eq!(target, Some(5), "the last one counts");
    }

    #[test]
    fn what_is_no_option_or_lacks_arguments_is_said_so() {
        assert_eq!(walked("sort asc store").0, [(1, true), (2, false)]);
        assert_eq!(walked("sort x store b").1, Some(3));
        assert_eq!(walked("sort streams a b 1 2").2, 2..4);
        assert_eq!(walked("sort streams a b 1").2, 2..3);
        assert_eq!(walked("sort").2, 0..0);
    }
}
