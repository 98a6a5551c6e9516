//! Counts of things that make the code harder to read, crate by crate. A count may only fall.
//!
//! | module | counts |
//! |---|---|
//! | [`functions`] | functions that are long, or take many parameters |
//! | [`circles`] | modules that import each other |
//! | [`names`] | types with the same name, public items without docs, public items that only tests use |
//! | [`flaws`] | seeded mistakes in code that ships |
//! | [`runs`] | lines that appear in two places |
//! | [`wording`] | sentences that must be read twice |
//! | [`assertions`] | assertions, whose density may only rise |

pub mod assertions;
pub mod circles;
pub mod flaws;
pub mod functions;
pub mod names;
pub mod runs;
pub mod wording;

use std::collections::BTreeMap;

use crate::product::Sources;

/// A kind of items that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Functions of more than 70 lines.
    Long,
    /// Functions with more than five parameters, and functions with a tuple parameter.
    Crowded,
    /// Modules in a circle of imports.
    Circled,
    /// Type names that a crate defines more than once.
    Namesakes,
    /// Seeded flaws in code that ships.
    Flaws,
    /// Public items without docs.
    Undocumented,
    /// Public items that only tests use.
    ForTests,
    /// Runs of twelve lines that appear in two places.
    Runs,
    /// Sentences that must be read twice.
    Wording,
}

impl Measure {
    /// Every measure, in the order of the columns.
    pub const ALL: [Measure; 9] = [
        Measure::Long,
        Measure::Crowded,
        Measure::Circled,
        Measure::Namesakes,
        Measure::Flaws,
        Measure::Undocumented,
        Measure::ForTests,
        Measure::Runs,
        Measure::Wording,
    ];

    /// Returns the heading of the measure's column.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Long => "long",
            Measure::Crowded => "crowded",
            Measure::Circled => "circled",
            Measure::Namesakes => "namesakes",
            Measure::Flaws => "flaws",
            Measure::Undocumented => "undocumented",
            Measure::ForTests => "for-tests",
            Measure::Runs => "runs",
            Measure::Wording => "wording",
        }
    }
}

/// A counted item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The folder of the item's crate.
    pub folder: String,
    /// The measure that counts the item.
    pub measure: Measure,
    /// The place and the name of the item.
    pub place: String,
}

impl Found {
    /// Makes an item of a crate.
    pub fn new(folder: &str, measure: Measure, place: String) -> Found {
        Found {
            folder: folder.to_owned(),
            measure,
            place,
        }
    }
}

/// The counts of one crate, one for each measure.
pub type Row = [usize; Measure::ALL.len()];

/// Finds all counted items.
pub fn find(sources: &Sources) -> Vec<Found> {
    let mut found = functions::find(&sources.product);
    found.extend(circles::find(&sources.product));
    found.extend(names::find(sources));
    found.extend(flaws::find(&sources.product));
    found.extend(runs::find(&sources.product));
    found.extend(wording::find(sources));
    found
}

/// Returns the counts of each crate. A crate without counted items has zeros.
pub fn rows(sources: &Sources, found: &[Found]) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for source in &sources.product {
        rows.entry(source.text.folder.clone()).or_default();
    }
    for one in found {
        let row = rows.entry(one.folder.clone()).or_default();
        let at = Measure::ALL.iter().position(|m| *m == one.measure);
        row[at.expect("every measure is in ALL")] += 1;
    }
    rows
}
