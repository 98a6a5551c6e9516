//! A difference between the two servers, for the report.

use crate::reply::{Reply, command_line};
use crate::rules::{Seen, same};
use crate::step::Argv;
use std::fmt;

/// A difference between the two servers.
#[derive(Debug, Clone)]
pub struct Divergence {
    /// The command.
    pub argv: Argv,
    /// A note about the difference.
    pub note: String,
    /// The index in the script of the first unit with a difference.
    pub unit: usize,
}

impl Divergence {
    pub(crate) fn new(argv: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> Self {
        Divergence {
            argv: argv.to_vec(),
            note: format!("ours  {ours}\n  redis {theirs}"),
            unit: 0,
        }
    }

    /// Returns a divergence unless the replies are equivalent.
    pub(crate) fn unless_same(
        argv: &[Vec<u8>],
        before: Option<&Seen>,
        ours: &Reply,
        theirs: &Reply,
    ) -> Option<Self> {
        (!same(argv, before, ours, theirs)).then(|| Divergence::new(argv, ours, theirs))
    }

    pub(crate) fn at(mut self, place: &str) -> Self {
        self.note = format!("{}\n  {place}", self.note);
        self
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", command_line(&self.argv), self.note)
    }
}
