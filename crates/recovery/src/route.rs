//! The players of one restart, and the one place that decides which of them takes a frame.
//!
//! A restart has the heap's method and any number of supplied players, one for each other kind of
//! record. All of them play the log in one pass: each frame goes to the player that claims its kind,
//! and frames that carry no records (checkpoint marks, restarts, beacons) go to the method's player.
//! A frame of records that no player claims ends the restart with an error. Ordered frames are for the second
//! pass, if their family is declared.
//!
//! One pass has one direction and builds the indexes once, either before the log or after it.
//! [`Players::plan`] refuses what these two rules exclude:
//!
//! | method's player | with a supplied player |
//! |---|---|
//! | group | reads forward, whatever its row says |
//! | fate | refused: it must read backward |
//! | two-pass, merge | as without |
//! | supplied | as without, if both build the indexes at the same time |
//!
//! A supplied player that needs the indexes before the log is refused beside a player that changes
//! pages, because the changes would be missing from the indexes.

use std::sync::Arc;

use perdura_base::{Error, Result};
use perdura_heap::Heap;
use perdura_wal::{Direction, Frame, FrameKind, Origin};

use crate::families::{Families, Family};
use crate::method::Method;
use crate::player::{IndexNeed, Player, Supplied};

/// Which player takes a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// The method's.
    Method,
    /// The supplied player of this number.
    Supplied(usize),
    /// None in this pass: the second one, or the tree's part, plays it.
    Later,
}

/// The players of one restart.
#[derive(Debug)]
pub(crate) struct Players<'a> {
    method: &'a Player,
    /// A method whose own player is supplied has it here, as number 0.
    supplied: Vec<Arc<dyn Supplied>>,
    direction: Direction,
    indexes: IndexNeed,
    /// Which player claims frames of this kind, if any does.
    groups: Option<Route>,
    records: Option<Route>,
    no_records: Route,
    /// What the second pass plays.
    ordered: Families,
    /// Whether there is a tree, whose part of the restart plays what has numbers.
    has_tree: bool,
}

impl<'a> Players<'a> {
    /// Combines a method with supplied players.
    ///
    /// # Errors
    /// [`Error::Usage`] if one pass over the log cannot serve all of them.
    pub fn plan(method: &'a Method, others: &[Arc<dyn Supplied>]) -> Result<Players<'a>> {
        let direction = direction(method, others)?;
        let indexes = indexes(method, others)?;
        let mut supplied = Vec::new();
        let to_method = match &method.player {
            Player::Supplied(player) => {
                supplied.push(Arc::clone(player));
                Route::Supplied(0)
            }
            Player::Group(_) | Player::Fate | Player::TwoPass | Player::Merge(_) => Route::Method,
            Player::Ordered | Player::Tree(_) => {
                return Err(Error::Usage(format!(
                    "method {} plays frames that come after a pass by the method of the database's scheme",
                    method.name
                )));
            }
        };
        let first = supplied.len();
        supplied.extend(others.iter().map(Arc::clone));
        let owner = |kind: FrameKind| {
            let claims = others.iter().enumerate().filter(|(_, o)| o.plays(kind));
            let mut owners = claims.map(|(number, o)| (Route::Supplied(first + number), o.name()));
            let of_method = method
                .player
                .plays(kind)
                .then_some((to_method, method.name));
            let owner = of_method.or_else(|| owners.next());
            match (owner, owners.next()) {
                (Some((_, one)), Some((_, other))) => Err(Error::Usage(format!(
                    "frames of kind {} are claimed by two players, {one} and {other}; each kind \
                     of record has one player",
                    kind.code()
                ))),
                (owner, _) => Ok(owner.map(|(route, _)| route)),
            }
        };
        let players = Players {
            direction,
            indexes,
            groups: owner(FrameKind::Group)?,
            records: owner(FrameKind::Record)?,
            no_records: to_method,
            ordered: Families::default(),
            has_tree: false,
            method: &method.player,
            supplied,
        };
        for (kind, route) in [
            (FrameKind::Group, players.groups),
            (FrameKind::Record, players.records),
        ] {
            let plays = match route {
                None => continue,
                Some(Route::Method) => players.method.plays(kind),
                Some(Route::Supplied(number)) => players.supplied[number].plays(kind),
                Some(Route::Later) => false,
            };
            assert!(plays, "frames of kind {} go to {route:?}", kind.code());
        }
        Ok(players)
    }

    /// The same players, where a second pass plays ordered frames of these families, and a tree's part what has numbers.
    pub fn before_later_passes(mut self, ordered: Families, has_tree: bool) -> Self {
        self.ordered = ordered;
        self.has_tree = has_tree;
        self
    }

    /// Which player takes frames of this kind; `None` if no player claims them, which ends the restart
    /// with the error [`foreign`].
    #[inline]
    pub fn route(&self, kind: FrameKind) -> Option<Route> {
        match kind {
            FrameKind::Group => self.groups,
            FrameKind::Record => self.records,
            FrameKind::BeginCheckpoint
            | FrameKind::EndCheckpoint
            | FrameKind::Restart
            | FrameKind::Beacon => Some(self.no_records),
            FrameKind::Effects | FrameKind::Command => {
                let is_declared = |family: &Family| self.ordered.has(*family);
                let family = Family::of(kind).filter(is_declared);
                family.map(|_| Route::Later)
            }
            FrameKind::Operations | FrameKind::Tree => self.has_tree.then_some(Route::Later),
        }
    }

    /// The method's player.
    pub fn method(&self) -> &'a Player {
        self.method
    }

    /// The supplied players, by the number that [`Route::Supplied`] names.
    pub fn supplied(&self) -> &[Arc<dyn Supplied>] {
        &self.supplied
    }

    /// Hands a frame to the supplied player of this number. Kept out of the loops that play groups.
    ///
    /// # Errors
    /// The player's.
    #[inline(never)]
    pub fn play_supplied(&self, number: usize, frame: Frame<'_>, origin: &Origin) -> Result<()> {
        self.supplied[number].frame(frame, *origin)
    }

    /// Which way the log is read.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// When the indexes are built.
    pub fn indexes(&self) -> IndexNeed {
        self.indexes
    }

    /// Begins an attempt with these pages.
    pub fn begin(&self, heap: &Arc<Heap>) {
        self.supplied.iter().for_each(|player| player.begin(heap));
    }

    /// Ends it, when all streams have been played.
    pub fn finish(&self) -> Result<()> {
        self.supplied.iter().try_for_each(|player| player.finish())
    }
}

/// The direction of a pass that serves all of these players.
fn direction(method: &Method, others: &[Arc<dyn Supplied>]) -> Result<Direction> {
    match (&method.player, others.first()) {
        (player, None) => Ok(player.direction()),
        (Player::Fate, Some(other)) => Err(Error::Usage(format!(
            "method {} reads the log newest first, and player {} takes its frames oldest first: \
             one pass cannot serve both",
            method.name,
            other.name()
        ))),
        (
            Player::Group(_)
            | Player::TwoPass
            | Player::Merge(_)
            | Player::Supplied(_)
            | Player::Ordered
            | Player::Tree(_),
            Some(_),
        ) => Ok(Direction::Forward),
    }
}

/// When a pass that serves all of these players builds the indexes.
fn indexes(method: &Method, others: &[Arc<dyn Supplied>]) -> Result<IndexNeed> {
    let need = method.player.indexes();
    match others.iter().find(|other| other.indexes() != need) {
        None => Ok(need),
        Some(other) => {
            let (before, after) = match need {
                IndexNeed::BeforeLog => (method.name, other.name()),
                IndexNeed::AfterLog => (other.name(), method.name),
            };
            Err(Error::Usage(format!(
                "player {before} needs the indexes before the log is played, and {after} changes \
                 the pages that they are built from: one pass cannot serve both"
            )))
        }
    }
}

/// The error for records that no player of the restart claims.
#[cold]
pub(crate) fn foreign(frame: Frame<'_>, origin: &Origin) -> Error {
    refuse(
        origin,
        String::from("records of the scheme and the families that the anchor names"),
        format!("a frame of kind {}", frame.kind.code()),
        WRITERS_BUG,
    )
}

/// What it means if a frame makes no sense.
pub(crate) const WRITERS_BUG: &str =
    "The checksums hold, so this is a bug in the writer. Keep a copy and report it.";

/// An error that names a frame's place.
#[cold]
pub(crate) fn refuse(origin: &Origin, expected: String, found: String, consequence: &str) -> Error {
    Error::corrupt(
        format!("log stream {}", origin.stream),
        origin.pos.0,
        expected,
        found,
        consequence,
    )
}

#[cfg(test)]
mod tests {
    use perdura_base::{Incarnation, StreamId};

    use super::*;
    use crate::method::METHODS;

    #[derive(Debug)]
    struct Dummy {
        name: &'static str,
        kind: FrameKind,
        indexes: IndexNeed,
    }

    impl Supplied for Dummy {
        fn name(&self) -> &'static str {
            self.name
        }

        fn plays(&self, kind: FrameKind) -> bool {
            kind == self.kind
        }

        fn begin(&self, _: &Arc<Heap>) {}

        fn indexes(&self) -> IndexNeed {
            self.indexes
        }

        fn frame(&self, _: Frame<'_>, _: Origin) -> Result<()> {
            Ok(())
        }

        fn end_of_life(&self, _: StreamId, _: Incarnation) -> Result<()> {
            Ok(())
        }

        fn finish(&self) -> Result<()> {
            Ok(())
        }
    }

    fn dummy(name: &'static str, kind: FrameKind, indexes: IndexNeed) -> Arc<dyn Supplied> {
        Arc::new(Dummy {
            name,
            kind,
            indexes,
        })
    }

    fn refusal(method: &Method, others: &[Arc<dyn Supplied>]) -> Option<String> {
        let refused = Players::plan(method, others).err();
        refused.map(|error| error.to_string())
    }

    #[test]
    fn every_method_is_combined_with_a_player_of_other_records_or_refused_by_name() {
        for method in METHODS {
            let (own, other) = match method.player {
                Player::Group(_) => (FrameKind::Group, FrameKind::Record),
                Player::Fate | Player::TwoPass | Player::Merge(_) | Player::Supplied(_) => {
                    (FrameKind::Record, FrameKind::Group)
                }
                Player::Ordered | Player::Tree(_) => {
                    let why = refusal(method, &[]).expect("it is of the second pass");
                    assert!(why.contains(method.name), "{why}");
                    continue;
                }
            };
            let alone = Players::plan(method, &[]).unwrap();
            assert_eq!(alone.direction(), method.player.direction());
            let pages = [dummy("pages", other, IndexNeed::AfterLog)];
            let keys = [dummy("keys", other, IndexNeed::BeforeLog)];
            let thief = [dummy("thief", own, IndexNeed::AfterLog)];
            let why = refusal(method, &pages);
            if matches!(method.player, Player::Fate) {
                let why = why.expect("one pass has one direction");
                assert!(
                    why.contains("dl1p") && why.contains("player pages"),
                    "{why}"
                );
                continue;
            }
            assert_eq!(why, None, "{}", method.name);
            let players = Players::plan(method, &pages).unwrap();
            assert_eq!(players.direction(), Direction::Forward);
            assert_eq!(players.indexes(), IndexNeed::AfterLog);
            let why = refusal(method, &keys).expect("the indexes would miss changes");
            assert!(why.contains("player keys needs the indexes"), "{why}");
            let why = refusal(method, &thief).expect("each kind has one player");
            assert!(why.contains(method.name) && why.contains("thief"), "{why}");
        }
    }

    #[test]
    fn a_backward_group_player_is_turned_for_a_supplied_one_and_for_nothing_else() {
        let backward = Method {
            player: Player::Group(Direction::Backward),
            ..METHODS[0]
        };
        let alone = Players::plan(&backward, &[]).unwrap();
        assert_eq!(alone.direction(), Direction::Backward);
        let other = [dummy("other", FrameKind::Record, IndexNeed::AfterLog)];
        let both = Players::plan(&backward, &other).unwrap();
        assert_eq!(both.direction(), Direction::Forward);
    }

    #[test]
    fn two_supplied_players_agree_on_the_indexes_and_share_no_kind() {
        let of = |kind, indexes| dummy("one", kind, indexes);
        let (group, record) = (FrameKind::Group, FrameKind::Record);
        let method = |indexes| Method {
            name: "by key",
            schemes: METHODS[0].schemes,
            player: Player::Supplied(of(group, indexes)),
        };
        for need in [IndexNeed::BeforeLog, IndexNeed::AfterLog] {
            let by_key = method(need);
            for other in [IndexNeed::BeforeLog, IndexNeed::AfterLog] {
                let refused = refusal(&by_key, &[of(record, other)]);
                assert_eq!(refused.is_none(), need == other, "{refused:?}");
            }
            assert!(refusal(&by_key, &[of(group, need)]).is_some());
            let twice = [of(record, need), of(record, need)];
            assert!(refusal(&by_key, &twice).is_some());
        }
    }
}
