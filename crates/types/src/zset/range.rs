//! Converts ranges of scores and of members to ranks.

use perdura_base::num::to_u64;

use crate::open::Source;

/// A range of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreRange {
    /// The lowest score.
    pub min: f64,
    /// True if the least score is not in the range.
    pub min_open: bool,
    /// The greatest score.
    pub max: f64,
    /// True if the greatest score is not in the range.
    pub max_open: bool,
}

impl ScoreRange {
    fn is_below(&self, score: f64) -> bool {
        score < self.min || (self.min_open && score == self.min)
    }

    fn is_above(&self, score: f64) -> bool {
        score > self.max || (self.max_open && score == self.max)
    }

    /// Returns the rank of the range's first member, and the rank after the range's last member.
    #[must_use]
    pub fn ranks(&self, source: &Source<'_>) -> (u64, u64) {
        let first = |pred: &dyn Fn(f64) -> bool| match source {
            Source::Small(packed) => to_u64(packed.iter().take_while(|e| pred(e.score())).count()),
            Source::Rows(rows) => rows.score_point(pred),
        };
        let from = first(&|score| self.is_below(score));
        let to = first(&|score| !self.is_above(score));
        (from, to.max(from))
    }
}

/// A bound of a range of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Before every member.
    First,
    /// Behind every member.
    Last,
    /// This member, which is in the range.
    Closed(&'a [u8]),
    /// This member, which is not in the range.
    Open(&'a [u8]),
}

/// A range of members. It is only defined if all members of the set have equal scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LexRange<'a> {
    /// The lowest member.
    pub min: LexBound<'a>,
    /// The greatest member.
    pub max: LexBound<'a>,
}

impl LexRange<'_> {
    fn is_below(&self, member: &[u8]) -> bool {
        match self.min {
            LexBound::First => false,
            LexBound::Last => true,
            LexBound::Closed(min) => member < min,
            LexBound::Open(min) => member <= min,
        }
    }

    fn is_above(&self, member: &[u8]) -> bool {
        match self.max {
            LexBound::First => true,
            LexBound::Last => false,
            LexBound::Closed(max) => member > max,
            LexBound::Open(max) => member >= max,
        }
    }

    fn is_empty(&self) -> bool {
        match (self.min, self.max) {
            (LexBound::Last, _) | (_, LexBound::First) => true,
            (LexBound::First, _) | (_, LexBound::Last) => false,
            (LexBound::Closed(min), LexBound::Closed(max)) => min > max,
            (
                LexBound::Closed(min) | LexBound::Open(min),
                LexBound::Closed(max) | LexBound::Open(max),
            ) => min >= max,
        }
    }

    /// Returns the rank of the range's first member, and the rank after the range's last member. If scores differ, a
    /// packed sorted set is walked as Redis walks it. The walk begins at the first member of the range, or at its last
    /// member if `reverse`, and continues while members are in the range.
    #[must_use]
    pub fn ranks(&self, source: &Source<'_>, reverse: bool) -> (u64, u64) {
        if self.is_empty() {
            return (0, 0);
        }
        let packed = match source {
            Source::Small(packed) => packed,
            Source::Rows(rows) => {
                let from = rows.partition_point(|_, row| self.is_below(&row.field()));
                let to = rows.partition_point(|_, row| !self.is_above(&row.field()));
                return (from, to.max(from));
            }
        };
        let inside: Vec<(bool, bool)> = packed
            .iter()
            .map(|e| (!self.is_below(&e.key), !self.is_above(&e.key)))
            .collect();
        let outside = !inside.last().is_some_and(|(above_min, _)| *above_min)
            || !inside.first().is_some_and(|(_, below_max)| *below_max);
        if outside {
            return (0, 0);
        }
        let (from, to) = if reverse {
            let to = inside.iter().rposition(|(_, below_max)| *below_max);
            let to = to.map_or(0, |last| last + 1);
            let taken = inside[..to]
                .iter()
                .rev()
                .take_while(|(above_min, _)| *above_min);
            (to - taken.count(), to)
        } else {
            let from = inside.iter().position(|(above_min, _)| *above_min);
            let from = from.unwrap_or(inside.len());
            let taken = inside[from..]
                .iter()
                .take_while(|(_, below_max)| *below_max);
            (from, from + taken.count())
        };
        (to_u64(from), to_u64(to))
    }
}
