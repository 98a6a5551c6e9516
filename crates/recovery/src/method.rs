//! Restart methods as rows: what a method supplies, beside what all share.
//!
//! | joint | shared | a method supplies |
//! |---|---|---|
//! | source | scans of blocks in units, by [`crate::level`] | direction, how streams are shared out |
//! | gate | [`crate::rule`], page untouched | which predicate |
//! | apply | the heap's verbs | which verb |
//! | undo | [`crate::undo`] | what takes unwanted changes out |
//!
//! A new scheme is a new row and new variants here; the compiler then lists the places that must
//! know them.
//!
//! # Source
//! *Differential Logging* (000), table 2: DL1P, DL2P, PL2P. PL2P-part is ours: the same log played
//! by several players, each the pages that are its own, which is what one would build today.

use perdura_wal::Direction;
use perdura_wal::scheme::{Order, Scheme};

use crate::level::Level;

/// How units of log are shared out among players.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Any player takes any unit: for a scheme without an order.
    Anyhow,
    /// One player plays all streams, merged by the global serial number.
    Merged,
    /// Each player merges all streams and plays the pages that are its own.
    MergedByPage,
}

/// How a method reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Which way.
    pub direction: Direction,
    /// Who plays what.
    pub share: Share,
}

/// Which predicate decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateBy {
    /// The record's tag and its block's epoch: every record is of a committed transaction.
    Epoch,
    /// The tag and the transaction's fate, which a backward scan knows before its records.
    Fate,
    /// The tag alone: what the image does not have is redone, whoever made it.
    Tag,
    /// The begin mark of the image's checkpoint: what follows it in its stream is redone, in order,
    /// reflected or not.
    BeginMark,
}

/// What a method does with a record that passed the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// XOR its fragments into the page; update numbers notice loss and doubling.
    XorPage,
    /// Redo the change of one slot as the record has it: XOR, or the after image.
    RedoSlot,
}

/// How a method takes out what is not wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoWay {
    /// Nothing to undo: there is nothing unwanted in the log, or the gate has seen to it.
    Nothing,
    /// A second, backward pass over the unfinished transactions' records.
    Losers,
}

/// A restart method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Its name on the command line.
    pub name: &'static str,
    /// The schemes whose log it can read. The first has it as its default.
    pub schemes: &'static [Scheme],
    /// How it reads.
    pub source: Source,
    /// How it decides.
    pub gate: GateBy,
    /// What it does with a record.
    pub apply: Apply,
    /// What it does with the unwanted.
    pub undo: UndoWay,
}

/// All methods. A scheme's default is the first row that names it first.
pub const METHODS: &[Method] = &[
    Method {
        name: "differential",
        schemes: &[Scheme::Differential],
        source: Source {
            direction: Direction::Forward,
            share: Share::Anyhow,
        },
        gate: GateBy::Epoch,
        apply: Apply::XorPage,
        undo: UndoWay::Nothing,
    },
    Method {
        name: "dl1p",
        schemes: &[Scheme::Dl1p, Scheme::Dl2p],
        source: Source {
            direction: Direction::Backward,
            share: Share::Anyhow,
        },
        gate: GateBy::Fate,
        apply: Apply::RedoSlot,
        undo: UndoWay::Nothing,
    },
    Method {
        name: "dl2p",
        schemes: &[Scheme::Dl2p],
        source: Source {
            direction: Direction::Forward,
            share: Share::Anyhow,
        },
        gate: GateBy::Tag,
        apply: Apply::RedoSlot,
        undo: UndoWay::Losers,
    },
    Method {
        name: "pl2p",
        schemes: &[Scheme::Pl2p],
        source: Source {
            direction: Direction::Forward,
            share: Share::Merged,
        },
        gate: GateBy::BeginMark,
        apply: Apply::RedoSlot,
        undo: UndoWay::Losers,
    },
    Method {
        name: "pl2p-part",
        schemes: &[Scheme::Pl2p],
        source: Source {
            direction: Direction::Forward,
            share: Share::MergedByPage,
        },
        gate: GateBy::BeginMark,
        apply: Apply::RedoSlot,
        undo: UndoWay::Losers,
    },
];

impl Method {
    /// The default method of a scheme.
    #[must_use]
    pub fn of(scheme: Scheme) -> &'static Method {
        METHODS
            .iter()
            .find(|method| method.schemes.first() == Some(&scheme))
            .expect("every scheme has a method")
    }

    /// The method of a name; `auto` is the default of `scheme`.
    ///
    /// # Errors
    /// A message that lists the names.
    pub fn by_name(name: &str, scheme: Scheme) -> Result<&'static Method, String> {
        if name == "auto" {
            return Ok(Method::of(scheme));
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

    /// The highest level that keeps the order a scheme's records need.
    #[must_use]
    pub fn highest_level(scheme: Scheme) -> Level {
        match scheme.order() {
            Order::Free => Level::Four,
            Order::PerSlot => Level::Three,
        }
    }

    /// Whether this method restores a log of `scheme` at `level`.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self, scheme: Scheme, level: Level) -> Result<(), String> {
        if !self.schemes.contains(&scheme) {
            let readable: Vec<&str> = self.schemes.iter().map(|s| s.name()).collect();
            return Err(format!(
                "method {} reads logs of scheme {}; this one's scheme is {}",
                self.name,
                readable.join(" or "),
                scheme.name()
            ));
        }
        let highest = Method::highest_level(scheme);
        if level > highest {
            return Err(format!(
                "level {} plays log and image at once, in no order; records of scheme {} must be \
                 applied in the order of their slot, after the image: level {} at most",
                level.number(),
                scheme.name(),
                highest.number()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_dictates_the_order_and_the_order_the_parallelism() {
        for method in METHODS {
            for scheme in method.schemes {
                let free = scheme.order() == Order::Free;
                assert_eq!(
                    method.source.share == Share::Anyhow,
                    free,
                    "{}",
                    method.name
                );
                assert_eq!(method.check(*scheme, Level::Four).is_ok(), free);
                assert!(method.check(*scheme, Level::Three).is_ok());
            }
        }
        for scheme in Scheme::ALL {
            assert!(Method::of(scheme).schemes.contains(&scheme));
            assert_eq!(Method::by_name("auto", scheme), Ok(Method::of(scheme)));
        }
        let of_product = Method::by_name("dl2p", Scheme::Differential).unwrap();
        let why = of_product
            .check(Scheme::Differential, Level::Two)
            .unwrap_err();
        assert!(why.contains("scheme is differential"), "{why}");
        let unknown = Method::by_name("aries", Scheme::Differential).unwrap_err();
        assert!(unknown.contains("pl2p-part"));
    }

    #[test]
    fn a_log_without_compensation_is_not_for_the_two_pass_method() {
        let dl2p = Method::by_name("dl2p", Scheme::Dl1p).unwrap();
        assert!(dl2p.check(Scheme::Dl1p, Level::Two).is_err());
        let dl1p = Method::by_name("dl1p", Scheme::Dl2p).unwrap();
        assert!(dl1p.check(Scheme::Dl2p, Level::Four).is_ok());
    }
}
