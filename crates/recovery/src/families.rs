//! The families of ordered frames that a log may hold: the section `ORDR` of the anchor
//! (docs/formats/anchor.md).
//!
//! A build that does not know a family would restart without the family's changes. So before a database logs the first
//! frame of a family, it declares the family in this section. The section is required: a build that does not know the
//! section refuses the database. [`AnchorCell::declare`](crate::anchor_cell::AnchorCell::declare) returns once the
//! declaration is durable. A restart refuses a log with a frame of an undeclared family. A declaration is never
//! revoked.

use perdura_base::cursor::Reader;
use perdura_wal::{FrameKind, Scheme};

/// A family of ordered frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// The changes of a transaction, row by row.
    Effects = 1,
    /// Calls of procedures.
    Commands = 2,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 2] = [Family::Effects, Family::Commands];

    /// Returns the family of frames of this kind. `None`: frames of this kind are not ordered.
    #[must_use]
    pub fn of(kind: FrameKind) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.kind() == kind)
    }

    /// Returns the kind of the family's frames.
    #[must_use]
    pub fn kind(self) -> FrameKind {
        match self {
            Family::Effects => FrameKind::Effects,
            Family::Commands => FrameKind::Command,
        }
    }

    /// Returns the scheme of the family's frames.
    #[must_use]
    pub fn scheme(self) -> Scheme {
        match self {
            Family::Effects => Scheme::Value,
            Family::Commands => Scheme::Command,
        }
    }

    /// Returns the family's name in reports and errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Effects => "effects",
            Family::Commands => "commands",
        }
    }

    fn bit(self) -> u8 {
        self as u8
    }
}

/// A set of families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Families(u8);

impl Families {
    /// The name of the anchor's section.
    pub const SECTION: [u8; 4] = *b"ORDR";

    /// Returns whether `family` is in the set.
    #[must_use]
    pub fn has(self, family: Family) -> bool {
        self.0 & family.bit() != 0
    }

    /// Returns the set with `family` added.
    #[must_use]
    pub fn with(self, family: Family) -> Families {
        let more = Families(self.0 | family.bit());
        debug_assert!(more.has(family) && more.0 >= self.0, "a family more");
        more
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns each family of the set.
    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |f| self.has(*f))
    }

    /// Returns the names of the families.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        self.iter().map(Family::name).collect()
    }

    /// Returns the set as a byte with a bit for each family.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Decodes [`bits`](Self::bits). `None`: the bits name a family that this build does not know.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Families> {
        let known = Family::ALL.iter().fold(0, |bits, f| bits | f.bit());
        (bits & !known == 0).then_some(Families(bits))
    }

    /// Returns the section's payload.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        assert!(!self.is_empty(), "no section says that there is nothing");
        vec![self.0, 0, 0, 0]
    }

    /// Decodes a payload that [`encode`](Self::encode) wrote. `None`: no `encode` writes this payload, or the payload
    /// names an unknown family.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Families> {
        let mut r = Reader::new(payload);
        let families = Families::from_bits(r.u8()?)?;
        r.zeros(3)?;
        (!families.is_empty() && r.remaining() == 0).then_some(families)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_round_trip_and_unknown_ones_are_refused() {
        for families in [
            Families::default().with(Family::Effects),
            Families::default().with(Family::Commands),
            Families::default()
                .with(Family::Effects)
                .with(Family::Commands),
        ] {
            let bytes = families.encode();
            assert_eq!(Families::decode(&bytes), Some(families));
            for len in 0..bytes.len() {
                assert_eq!(Families::decode(&bytes[..len]), None);
            }
        }
        let page = include_str!("../../../docs/formats/anchor.md");
        let both = Families::default()
            .with(Family::Effects)
            .with(Family::Commands);
        let hex: String = both.encode().iter().map(|b| format!("{b:02x}")).collect();
        let example = page.split("```text hex").nth(8).expect("an example");
        let example = example.split("```").next().expect("an example");
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        assert_eq!(digits, hex);
        for odd in [[0, 0, 0, 0], [4, 0, 0, 0], [1, 1, 0, 0]] {
            assert_eq!(Families::decode(&odd), None, "{odd:?}");
        }
        assert_eq!(Families::decode(&[1, 0, 0, 0, 0]), None);
        for family in Family::ALL {
            assert_eq!(Family::of(family.kind()), Some(family));
        }
    }
}
