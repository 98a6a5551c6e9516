//! Restart methods as rows: what a method supplies, beside what all share.
//!
//! | joint | shared | a method supplies |
//! |---|---|---|
//! | source | scans of blocks, per stream | direction, merged or not |
//! | gate | [`crate::rule`], page untouched | which predicate |
//! | apply | the heap's verbs | which verb |
//! | undo | | what takes unwanted changes out |
//!
//! A new scheme is a new row and new variants here; the compiler then lists the places that must
//! know them.

use perdura_wal::Direction;

/// A logging scheme: a guard against applying a record twice, from which the order follows that
/// replay must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// XOR of a slot's images (000): the tag is the guard.
    Differential,
}

/// What keeps a record from being applied twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The image's epoch against the record's tag; `useq` notices loss and doubling.
    CheckpointEpoch,
}

/// The order that replay must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// None: any stream, any direction, any number of players.
    Free,
}

impl Scheme {
    /// The guard, and what it allows.
    #[must_use]
    pub fn guard(self) -> Guard {
        match self {
            Scheme::Differential => Guard::CheckpointEpoch,
        }
    }

    /// The order that replay must keep: it follows from the guard.
    #[must_use]
    pub fn order(self) -> Order {
        match self.guard() {
            Guard::CheckpointEpoch => Order::Free,
        }
    }
}

/// How a method reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Which way.
    pub direction: Direction,
    /// Whether the streams are merged into one order, or played each for itself.
    pub merged: bool,
}

/// What a method does with a record that passed the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// XOR its fragments into the page.
    XorPage,
}

/// How a method takes out what is not wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoWay {
    /// Nothing to undo: executor mode logs no uncommitted change.
    Nothing,
}

/// A restart method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Its name on the command line.
    pub name: &'static str,
    /// The scheme whose log it reads.
    pub scheme: Scheme,
    /// How it reads.
    pub source: Source,
    /// What it does with a record.
    pub apply: Apply,
    /// What it does with the unwanted.
    pub undo: UndoWay,
}

/// All methods.
pub const METHODS: &[Method] = &[Method {
    name: "differential",
    scheme: Scheme::Differential,
    source: Source {
        direction: Direction::Forward,
        merged: false,
    },
    apply: Apply::XorPage,
    undo: UndoWay::Nothing,
}];

impl Method {
    /// The method of a name; `auto` is the first that is legal for the database.
    ///
    /// # Errors
    /// A message that lists the names.
    pub fn by_name(name: &str) -> Result<&'static Method, String> {
        if name == "auto" {
            return Ok(&METHODS[0]);
        }
        METHODS
            .iter()
            .find(|method| method.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = METHODS.iter().map(|method| method.name).collect();
                format!(
                    "no restart method is called '{name}'; there are: auto, {}",
                    names.join(", ")
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_dictates_the_order_and_the_order_the_parallelism() {
        for method in METHODS {
            match method.scheme.order() {
                Order::Free => assert!(!method.source.merged, "{} merges for nothing", method.name),
            }
        }
        assert_eq!(Method::by_name("auto").unwrap().name, "differential");
        assert!(
            Method::by_name("aries")
                .unwrap_err()
                .contains("differential")
        );
    }
}
