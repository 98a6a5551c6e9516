//! Where the two servers differ, as it is reported.

use crate::reply::{Reply, command_line};
use crate::rules::{Seen, same};
use crate::step::Argv;
use std::fmt;

/// Where the two servers differ.
#[derive(Debug, Clone)]
pub struct Divergence {
    /// The command.
    pub argv: Argv,
    /// What is said about it.
    pub note: String,
    /// Which unit of the script it is in.
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

    /// Returns a divergence unless the replies are the same.
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
