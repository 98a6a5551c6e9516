//! The choice of an image to load, as one table over the known facts about the two images.
//!
//! An image is opened only if the choice depends on it. If it is not open yet, [`choose`] returns [`Choice::Open`]. The
//! caller opens the image and calls [`choose`] again with the result.
//!
//! The rule: the newest complete image that can be read is loaded. If some of its pages are known to be damaged, these
//! pages are loaded from the older complete image. If the newer image as a whole is damaged, the older image is loaded.
//! The older image is also loaded if the newer image is consistent (as of one instant) and has damaged pages. Pages of
//! two instants must not be mixed. Any other failure (no rights, no file handles) proves nothing about the image and
//! ends the restart. If the restart continued, it would give up an image that may be intact.

/// The rank of a complete image by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Newer,
    Older,
}

impl Rank {
    pub fn index(self) -> usize {
        match self {
            Rank::Newer => 0,
            Rank::Older => 1,
        }
    }
}

/// The known facts about the image of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    /// The anchor names no complete image of this rank.
    Absent,
    /// The image is complete and has not been opened.
    Unopened,
    /// The image's files and directory can be read.
    Usable,
    /// The image's files or directory are damaged or missing.
    Damaged,
    /// The disk cannot return a sector of the image.
    Unreadable,
    /// The image could not be opened. The cause does not lie in the image.
    Failed,
}

/// The known facts about the two images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// The fact about each image, indexed by [`Rank::index`].
    pub images: [Fact; 2],
    /// For each image, true if it is known to have damaged pages that the restart must not leave empty. Indexed by
    /// [`Rank::index`].
    pub has_bad: [bool; 2],
    /// True if the newer image is consistent. Pages of the older image cannot replace pages of a consistent image.
    pub whole: bool,
}

/// The next step of the restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Open this image and choose again.
    Open(Rank),
    /// Load no image, because none was ever completed.
    Nothing,
    /// Load this image.
    Load(Rank),
    /// Load the newer image, but take its damaged pages from the older image.
    Rebuild,
    /// Fail with the error that opening this image returned.
    Fail(Rank),
    /// Fail, because pages of this image are damaged. Either there is no older complete image, or the older image has
    /// damaged pages too and the two images must not be mixed.
    NoOther(Rank),
    /// Fail, because pages of the newer image are damaged and the older image cannot be opened to replace them.
    OtherUnusable,
}

/// Chooses the next step by the table of facts.
pub(super) fn choose(facts: Facts) -> Choice {
    let [newer, older] = facts.images;
    let [newer_has_bad, older_has_bad] = facts.has_bad;
    match (newer, older) {
        (Fact::Absent, Fact::Absent) => Choice::Nothing,
        (Fact::Unopened, _) => Choice::Open(Rank::Newer),
        (Fact::Failed, _) | (Fact::Damaged | Fact::Unreadable, Fact::Absent) => {
            Choice::Fail(Rank::Newer)
        }
        (Fact::Usable, _) if !newer_has_bad => Choice::Load(Rank::Newer),
        (Fact::Usable, Fact::Absent) => Choice::NoOther(Rank::Newer),
        (Fact::Usable, Fact::Usable) if !facts.whole => Choice::Rebuild,
        (Fact::Usable, Fact::Usable) if older_has_bad => Choice::NoOther(Rank::Newer),
        (Fact::Usable, Fact::Usable) => Choice::Load(Rank::Older),
        (Fact::Usable, Fact::Damaged | Fact::Failed) => Choice::OtherUnusable,
        (Fact::Usable | Fact::Absent | Fact::Damaged | Fact::Unreadable, Fact::Unopened) => {
            Choice::Open(Rank::Older)
        }
        // An unreadable disk does not prove that its image is damaged, and a failed restart loses nothing.
        (Fact::Usable, Fact::Unreadable)
        | (
            Fact::Absent | Fact::Damaged | Fact::Unreadable,
            Fact::Damaged | Fact::Unreadable | Fact::Failed,
        ) => Choice::Fail(Rank::Older),
        (Fact::Absent | Fact::Damaged | Fact::Unreadable, Fact::Usable) => {
            if older_has_bad {
                Choice::NoOther(Rank::Older)
            } else {
                Choice::Load(Rank::Older)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: [Fact; 6] = [
        Fact::Absent,
        Fact::Unopened,
        Fact::Usable,
        Fact::Damaged,
        Fact::Unreadable,
        Fact::Failed,
    ];

    fn all() -> impl Iterator<Item = Facts> {
        let pairs = FACTS.into_iter().flat_map(|n| FACTS.map(|o| [n, o]));
        pairs.flat_map(|images| {
            let bad = [[false, false], [false, true], [true, false], [true, true]];
            bad.into_iter().flat_map(move |has_bad| {
                [false, true].map(|whole| Facts {
                    images,
                    has_bad,
                    whole,
                })
            })
        })
    }

    /// Applies the rule in the module's documentation to the images, newest first. The first complete image that is not
    /// damaged decides.
    fn by_the_rule(facts: Facts) -> Choice {
        let ranks = [Rank::Newer, Rank::Older];
        let of = |rank: Rank| facts.images[rank.index()];
        let complete: Vec<Rank> = ranks
            .into_iter()
            .filter(|r| of(*r) != Fact::Absent)
            .collect();
        let is_damage = |rank: &Rank| [Fact::Damaged, Fact::Unreadable].contains(&of(*rank));
        let Some(first) = complete.iter().find(|rank| !is_damage(rank)).copied() else {
            return complete
                .last()
                .map_or(Choice::Nothing, |last| Choice::Fail(*last));
        };
        if of(first) == Fact::Unopened {
            return Choice::Open(first);
        }
        if of(first) == Fact::Failed {
            return Choice::Fail(first);
        }
        if !facts.has_bad[first.index()] {
            return Choice::Load(first);
        }
        let stand_in = complete
            .into_iter()
            .skip_while(|rank| *rank != first)
            .nth(1);
        let Some(stand_in) = stand_in else {
            return Choice::NoOther(first);
        };
        match of(stand_in) {
            Fact::Unopened => Choice::Open(stand_in),
            Fact::Usable if !facts.whole => Choice::Rebuild,
            Fact::Usable if facts.has_bad[stand_in.index()] => Choice::NoOther(first),
            Fact::Usable => Choice::Load(stand_in),
            Fact::Unreadable => Choice::Fail(stand_in),
            _ => Choice::OtherUnusable,
        }
    }

    #[test]
    fn every_combination_of_facts_is_answered_as_the_rule_says() {
        let mut answers = Vec::new();
        for facts in all() {
            let choice = choose(facts);
            assert_eq!(choice, by_the_rule(facts), "{facts:?}");
            if !answers.contains(&choice) {
                answers.push(choice);
            }
        }
        assert_eq!((all().count(), answers.len()), (288, 11));
    }

    #[test]
    fn an_image_is_opened_only_if_the_choice_depends_on_it_and_at_most_once() {
        for found in all().filter(|facts| !facts.images.contains(&Fact::Unopened)) {
            let unopened = |fact| {
                if fact == Fact::Absent {
                    fact
                } else {
                    Fact::Unopened
                }
            };
            let mut known = Facts {
                images: found.images.map(unopened),
                ..found
            };
            let mut opened = Vec::new();
            while let Choice::Open(rank) = choose(known) {
                assert!(!opened.contains(&rank), "{found:?}");
                opened.push(rank);
                known.images[rank.index()] = found.images[rank.index()];
            }
            let choice = choose(known);
            assert_eq!(choice, choose(found), "{found:?} chosen by {known:?}");
            // The choice does not depend on an unopened image: it stays the same with any other fact about that image.
            for rank in [Rank::Newer, Rank::Older] {
                if known.images[rank.index()] == Fact::Unopened {
                    for other in [Fact::Usable, Fact::Damaged, Fact::Unreadable, Fact::Failed] {
                        let mut changed = known;
                        changed.images[rank.index()] = other;
                        assert_eq!(choose(changed), choice, "{changed:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_loaded_can_be_read_and_a_sound_image_is_never_passed_over() {
        for facts in all() {
            let [newer, older] = facts.images;
            match choose(facts) {
                Choice::Load(rank) => {
                    assert_eq!(facts.images[rank.index()], Fact::Usable);
                    assert!(!facts.has_bad[rank.index()]);
                    let is_damaged = [Fact::Damaged, Fact::Unreadable, Fact::Absent];
                    assert!(
                        rank == Rank::Newer
                            || is_damaged.contains(&newer)
                            || facts.whole && facts.has_bad[0],
                        "{facts:?}"
                    );
                }
                Choice::Rebuild => {
                    assert_eq!((newer, older), (Fact::Usable, Fact::Usable));
                    assert!(facts.has_bad[0]);
                }
                Choice::Nothing => assert_eq!(facts.images, [Fact::Absent; 2]),
                Choice::Open(rank) => assert_eq!(facts.images[rank.index()], Fact::Unopened),
                Choice::Fail(rank) => {
                    let refused = [Fact::Damaged, Fact::Unreadable, Fact::Failed];
                    assert!(refused.contains(&facts.images[rank.index()]), "{facts:?}");
                }
                Choice::NoOther(_) | Choice::OtherUnusable => {
                    assert_ne!(facts.has_bad, [false, false]);
                }
            }
        }
    }
}
