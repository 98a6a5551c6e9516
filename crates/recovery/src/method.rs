//! Restart methods as rows: a name, the schemes whose log the method reads, and its player.
//!
//! The [`Player`] defines what a method does with a log. The [`Scheme`] defines what a log demands of any
//! method, above all the order of its records.
//!
//! # Source
//! *Differential Logging* (000), table 2: DL1P, DL2P, PL2P. PL2P-part is our addition: several workers
//! replay the same log, each only its own partitions. It is the baseline one would build today.

use perdura_wal::Direction;
use perdura_wal::scheme::{Order, Scheme};

use crate::level::Level;
use crate::player::{Mergers, Player};

/// A restart method.
#[derive(Debug, Clone)]
pub struct Method {
    /// Its name on the command line.
    pub name: &'static str,
    /// The schemes whose log it can read. The first has it as its default.
    pub schemes: &'static [Scheme],
    /// What it does with the log.
    pub player: Player,
}

/// All methods. A scheme's default is the first row that names it first.
pub const METHODS: &[Method] = &[
    Method {
        name: "differential",
        schemes: &[Scheme::Differential],
        player: Player::Group(Direction::Forward),
    },
    Method {
        name: "dl1p",
        schemes: &[Scheme::Dl1p, Scheme::Dl2p],
        player: Player::Fate,
    },
    Method {
        name: "dl2p",
        schemes: &[Scheme::Dl2p],
        player: Player::TwoPass,
    },
    Method {
        name: "pl2p",
        schemes: &[Scheme::Pl2p],
        player: Player::Merge(Mergers::One),
    },
    Method {
        name: "pl2p-part",
        schemes: &[Scheme::Pl2p],
        player: Player::Merge(Mergers::PerThread),
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
                assert_eq!(method.player.mergers(2) == 0, free, "{}", method.name);
                assert_eq!(method.check(*scheme, Level::Four).is_ok(), free);
                assert!(method.check(*scheme, Level::Three).is_ok());
            }
        }
        for scheme in Scheme::ALL {
            assert!(Method::of(scheme).schemes.contains(&scheme));
            let auto = Method::by_name("auto", scheme).unwrap();
            assert_eq!(auto.name, Method::of(scheme).name);
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
