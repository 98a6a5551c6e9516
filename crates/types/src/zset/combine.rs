//! Combinations of several sorted sets: unions, intersections and differences. A plain set counts as a sorted set with
//! all scores equal to 1.

use perdura_base::num::to_u64;
use std::collections::HashMap;
use std::collections::hash_map;

use perdura_base::TableId;
use perdura_txn::{Shape, Tx};

use super::Ordered;
use crate::Fault;
use crate::open::{Entry, Source};

/// One of the sets to combine, and the factor by which its scores are multiplied.
pub struct Input<'a> {
    source: Source<'a>,
    shape: Shape,
    /// The factor for the scores.
    pub weight: f64,
}

impl Input<'_> {
    fn score(&self, entry: &Entry<'_>) -> f64 {
        let score = match self.shape {
            Shape::Zset => entry.score(),
            Shape::Hash | Shape::List | Shape::Set | Shape::Stream => 1.0,
        };
        score * self.weight
    }
}

/// Opens the set or the sorted set of a key.
///
/// # Errors
/// [`Fault::WrongType`]; an abort, which the caller must pass on.
pub fn input<'a>(tx: &'a Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Input<'a>>, Fault> {
    let Some(row) = tx.get(table, key)? else {
        return Ok(None);
    };
    let shape = row.kind().shape().filter(|shape| *shape == Shape::Set);
    let shape = shape.unwrap_or(Shape::Zset);
    let source = crate::open::source(tx, table, row, shape)?;
    Ok(Some(Input {
        source,
        shape,
        weight: 1.0,
    }))
}

/// Returns the approximate number of elements that [`combine`] looks at.
#[must_use]
pub fn looked_at(inputs: &[Option<Input<'_>>], operation: Operation) -> u64 {
    let lens = || {
        inputs
            .iter()
            .map(|input| input.as_ref().map_or(0, |input| input.source.len()))
    };
    match operation {
        Operation::Union => lens().sum(),
        Operation::Intersection => lens()
            .min()
            .unwrap_or(0)
            .saturating_mul(to_u64(inputs.len())),
        Operation::Difference if lens().next() == Some(0) => 0,
        Operation::Difference => lens().sum(),
    }
}

/// A way to combine sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Members that at least one set has.
    Union,
    /// Members that all sets have.
    Intersection,
    /// Members of the first set that no other set has.
    Difference,
}

/// The operation that combines the scores of one member. The member has a score in each of several sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// The sum of the scores.
    Sum,
    /// The lowest score.
    Min,
    /// The greatest score.
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Aggregate::Sum => number(a + b),
            Aggregate::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Aggregate::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

/// Returns the score, or zero if it is NaN. The sum of positive and negative infinity is NaN.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Combines sets. Returns the members in the order of the resulting sorted set. An intersection stops at `max` members;
/// a union or difference ignores `max`. A set that does not exist counts as empty.
#[must_use]
pub fn combine(
    inputs: &[Option<Input<'_>>],
    operation: Operation,
    aggregate: Aggregate,
    max: u64,
) -> Vec<(Vec<u8>, f64)> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let mut found = match operation {
        Operation::Union => union(inputs, aggregate),
        Operation::Intersection => intersection(inputs, aggregate, max),
        Operation::Difference => difference(inputs),
    };
    found.sort_unstable_by(|a, b| Ordered::new(a.1, &a.0).compare(&Ordered::new(b.1, &b.0)));
    found
}

/// Returns the existing sets, from small to large. Scores are summed in this order.
fn by_size<'i, 'a>(inputs: &'i [Option<Input<'a>>]) -> Vec<&'i Input<'a>> {
    let mut sorted: Vec<_> = inputs.iter().flatten().collect();
    sorted.sort_by_key(|input| input.source.len());
    sorted
}

fn union(inputs: &[Option<Input<'_>>], aggregate: Aggregate) -> Vec<(Vec<u8>, f64)> {
    let mut found: HashMap<Vec<u8>, f64> = HashMap::new();
    for input in by_size(inputs) {
        for entry in input.source.iter() {
            let score = number(input.score(&entry));
            match found.entry(entry.key().to_vec()) {
                hash_map::Entry::Vacant(place) => {
                    place.insert(score);
                }
                hash_map::Entry::Occupied(mut place) => {
                    *place.get_mut() = aggregate.of(*place.get(), score);
                }
            }
        }
    }
    found.into_iter().collect()
}

fn intersection(
    inputs: &[Option<Input<'_>>],
    aggregate: Aggregate,
    max: usize,
) -> Vec<(Vec<u8>, f64)> {
    if inputs.iter().any(Option::is_none) {
        return Vec::new();
    }
    let inputs = by_size(inputs);
    let Some((first, others)) = inputs.split_first() else {
        return Vec::new();
    };
    let in_all = first.source.iter().filter_map(|entry| {
        let member = entry.key();
        // NaN becomes zero only in the first set's score, before the scores are combined, as in Redis.
        let score = number(first.score(&entry));
        let score = others.iter().try_fold(score, |score, other| {
            let found = other.source.find(&member)?;
            Some(aggregate.of(score, other.score(&found)))
        })?;
        Some((member.to_vec(), score))
    });
    in_all.take(max).collect()
}

fn difference(inputs: &[Option<Input<'_>>]) -> Vec<(Vec<u8>, f64)> {
    let Some((Some(first), others)) = inputs.split_first() else {
        return Vec::new();
    };
    let alone = first.source.iter().filter_map(|entry| {
        let member = entry.key();
        let elsewhere = others
            .iter()
            .flatten()
            .any(|other| other.source.find(&member).is_some());
        (!elsewhere).then(|| (member.to_vec(), first.score(&entry)))
    });
    alone.collect()
}
