//! The table of restart methods. A row has a name, the schemes of the logs that the method reads, and a player.
//!
//! The [`Player`] of a method defines how the method plays a log. The [`Scheme`] of a log defines the log's records,
//! and the order in which every method must play them.
//!
//! # Source
//! Methods DL1P, DL2P and PL2P are from *Differential Logging* (000), table 2. PL2P-part is our addition: several
//! workers replay one log, and each worker replays only its own partitions. It is the baseline that a modern design
//! would use. Methods value and command are from *Rethinking Main Memory OLTP Recovery* (001). They play ordered frames
//! after the page records. Methods log0, log1, log2, sql1 and sql2 are from *Implementing Performance Competitive
//! Logical Recovery* (002). They redo operations on a tree. Method aries is our addition, and redoes operations on a
//! tree too.

use perdura_wal::Direction;
use perdura_wal::scheme::{Order, Scheme};

use crate::level::Level;
use crate::player::{Ahead, FrameOwner, Mergers, PagePlayer, Player, Table, TreePlay};

/// A restart method.
#[derive(Debug, Clone)]
pub struct Method {
    /// The method's name on the command line.
    pub name: &'static str,
    /// The schemes of the logs that the method can read. The method can be the default only of the first scheme: see
    /// [`METHODS`].
    pub schemes: &'static [Scheme],
    /// The player that plays the log.
    pub player: Player,
}

/// The schemes of trees, in the two orders that rows of [`METHODS`] use. A row can be the default only of its first
/// scheme.
const BY_KEY: &[Scheme] = &[Scheme::Logical, Scheme::Physiological];
const BY_PAGE: &[Scheme] = &[Scheme::Physiological, Scheme::Logical];

/// Returns a method that restarts a tree.
const fn of_tree(
    name: &'static str,
    schemes: &'static [Scheme],
    table: Table,
    ahead: Ahead,
) -> Method {
    Method {
        name,
        schemes,
        player: Player::Tree(TreePlay { table, ahead }),
    }
}

/// All methods. The default method of a scheme is the topmost row with this scheme at the head of its `schemes`.
pub const METHODS: &[Method] = &[
    Method {
        name: "differential",
        schemes: &[Scheme::Differential],
        player: Player::Pages(PagePlayer::Group(Direction::Forward)),
    },
    Method {
        name: "dl1p",
        schemes: &[Scheme::Dl1p, Scheme::Dl2p],
        player: Player::Pages(PagePlayer::Fate),
    },
    Method {
        name: "dl2p",
        schemes: &[Scheme::Dl2p],
        player: Player::Pages(PagePlayer::TwoPass),
    },
    Method {
        name: "pl2p",
        schemes: &[Scheme::Pl2p],
        player: Player::Pages(PagePlayer::Merge(Mergers::One)),
    },
    Method {
        name: "pl2p-part",
        schemes: &[Scheme::Pl2p],
        player: Player::Pages(PagePlayer::Merge(Mergers::PerThread)),
    },
    Method {
        name: "value",
        schemes: &[Scheme::Value],
        player: Player::Ordered,
    },
    Method {
        name: "command",
        schemes: &[Scheme::Command, Scheme::Value],
        player: Player::Ordered,
    },
    Method {
        name: "none",
        schemes: &[Scheme::Unlogged],
        player: Player::Pages(PagePlayer::Group(Direction::Forward)),
    },
    of_tree("log2", &[Scheme::Logical], Table::Deltas, Ahead::List),
    of_tree("log1", &[Scheme::Logical], Table::Deltas, Ahead::Index),
    of_tree("sql2", BY_PAGE, Table::Writes, Ahead::Log),
    of_tree("sql1", BY_PAGE, Table::Writes, Ahead::Nothing),
    of_tree("log0", BY_KEY, Table::None, Ahead::Nothing),
    of_tree("aries", BY_KEY, Table::Checkpoint, Ahead::Nothing),
];

impl Method {
    /// Returns the default method of a scheme.
    #[must_use]
    pub fn of(scheme: Scheme) -> &'static Method {
        METHODS
            .iter()
            .find(|method| method.schemes.first() == Some(&scheme))
            .expect("every scheme has a method")
    }

    /// Returns the method with this name.
    ///
    /// # Errors
    /// A message that lists the names of all methods.
    pub fn by_name(name: &str) -> Result<&'static Method, String> {
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

    /// Returns the highest level that plays a scheme's records in the required order.
    #[must_use]
    pub fn highest_level(scheme: Scheme) -> Level {
        match scheme.order() {
            // At any level, ordered and numbered frames are played only after the image is loaded and the page records
            // are played.
            Order::Free | Order::PerPartition | Order::ByNumber => Level::Four,
            Order::PerSlot => Level::Three,
        }
    }

    /// Fails if this method cannot play a log of `scheme` at `level`.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn check(&self, scheme: Scheme, level: Level) -> Result<(), String> {
        if !self.schemes.contains(&scheme) {
            let readable: Vec<&str> = self.schemes.iter().map(|s| s.name()).collect();
            return Err(format!(
                "method {} reads logs of scheme {}, and this log has scheme {}",
                self.name,
                readable.join(" or "),
                scheme.name()
            ));
        }
        let highest = Method::highest_level(scheme);
        if level > highest {
            return Err(format!(
                "level {} applies the log while the image is loaded. Records of scheme {} must \
                 be applied in order after the image. Use level {} at most",
                level.number(),
                scheme.name(),
                highest.number()
            ));
        }
        Ok(())
    }
}

/// The chosen methods of a restart, at most one for each owner of records. Without a choice, the default method of the
/// scheme plays the owner's records.
#[derive(Debug, Clone, Default)]
pub struct Methods(Vec<Method>);

impl Methods {
    /// Returns the methods that `names` lists, separated by commas. The name `auto` is ignored.
    ///
    /// # Errors
    /// A message that names an unknown method, or two methods for the records of one owner.
    pub fn by_names(names: &str) -> Result<Methods, String> {
        let given = names.split(',').filter(|name| *name != "auto");
        let mut methods = Methods::default();
        for method in given.map(Method::by_name) {
            let method = method?;
            if let Some(other) = methods.given(method.player.owner()) {
                return Err(format!(
                    "methods {} and {} apply the same records. Give one of them",
                    other.name, method.name
                ));
            }
            methods.0.push(method.clone());
        }
        Ok(methods)
    }

    /// Returns the chosen method for an owner's records, if any.
    #[must_use]
    pub(crate) fn given(&self, owner: FrameOwner) -> Option<&Method> {
        let mut methods = self.0.iter();
        methods.find(|method| method.player.owner() == owner)
    }

    /// Returns the names of the chosen methods, with `+` between them.
    #[must_use]
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|method| method.name).collect();
        names.join("+")
    }

    /// Returns the player of page records in a database of this scheme.
    #[must_use]
    pub fn records(&self, scheme: Scheme) -> PagePlayer {
        let method = self.given(FrameOwner::Pages).unwrap_or(Method::of(scheme));
        match method.player {
            Player::Pages(records) => records,
            // If a log has records of another owner, its page records are in groups.
            Player::Ordered | Player::Tree(_) => PagePlayer::Group(Direction::Forward),
        }
    }
}

impl From<&Method> for Methods {
    fn from(method: &Method) -> Methods {
        Methods(vec![method.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_dictates_the_order_and_the_order_the_parallelism() {
        for method in METHODS {
            for scheme in method.schemes {
                let merged = scheme.order() == Order::PerSlot;
                let numbered = scheme.order() == Order::ByNumber;
                let merges = match method.player {
                    Player::Pages(records) => records.mergers(2) > 0,
                    Player::Ordered | Player::Tree(_) => false,
                };
                assert_eq!(merges, merged, "{}", method.name);
                let at_once = method.check(*scheme, Level::Four).is_ok();
                assert_eq!(at_once, !merged);
                let is_ordered = matches!(method.player, Player::Ordered);
                let of_tree = matches!(method.player, Player::Tree(_));
                assert_eq!(scheme.order() == Order::PerPartition, is_ordered);
                assert_eq!(numbered, of_tree);
                let of_pages = matches!(method.player, Player::Pages(_));
                assert_eq!(is_ordered || of_tree, !of_pages);
                assert!(method.check(*scheme, Level::Three).is_ok());
            }
        }
        for scheme in Scheme::ALL {
            assert!(Method::of(scheme).schemes.contains(&scheme));
        }
        let of_product = Method::by_name("dl2p").unwrap();
        let why = of_product
            .check(Scheme::Differential, Level::Two)
            .unwrap_err();
        assert!(why.contains("scheme differential"), "{why}");
        let unknown = Method::by_name("aries3").unwrap_err();
        assert!(unknown.contains("pl2p-part"));
    }

    #[test]
    fn a_log_without_compensation_is_not_for_the_two_pass_method() {
        let dl2p = Method::by_name("dl2p").unwrap();
        assert!(dl2p.check(Scheme::Dl1p, Level::Two).is_err());
        let dl1p = Method::by_name("dl1p").unwrap();
        assert!(dl1p.check(Scheme::Dl2p, Level::Four).is_ok());
    }

    #[test]
    fn each_owner_gets_at_most_one_method() {
        let both = Methods::by_names("log1,command").unwrap();
        assert_eq!(both.names(), "log1+command");
        assert_eq!(both.given(FrameOwner::Tree).unwrap().name, "log1");
        assert!(both.given(FrameOwner::Pages).is_none());
        assert_eq!(Methods::by_names("auto").unwrap().names(), "");
        for (names, part) in [
            ("log1,log2", "log1 and log2"),
            ("value,command", "value and command"),
            ("log9", "'log9'"),
            ("", "''"),
        ] {
            let why = Methods::by_names(names).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
