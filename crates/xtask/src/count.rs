//! The numbers of each crate that may only fall. Each of them counts something that makes the code harder to read.
//!
//! | module | numbers |
//! |---|---|
//! | [`functions`] | functions that are long, or take many parameters |
//! | [`circles`] | modules that import each other |
//! | [`names`] | types of one name, public items without docs, public items for tests only |
//! | [`flaws`] | seeded mistakes in code that ships |
//! | [`runs`] | lines that appear in two places |
//! | [`wording`] | sentences that must be read twice |
//! | [`assertions`] | the density of assertions, which only rises |

pub mod assertions;
pub mod circles;
pub mod flaws;
pub mod functions;
pub mod names;
pub mod runs;
pub mod wording;

use std::collections::BTreeMap;

use crate::product::Sources;

/// One of the things that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Functions of more than 70 lines.
    Long,
    /// Functions with more than five parameters, or with a tuple among them.
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

    /// Returns the heading of its column.
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
    /// The folder of its crate.
    pub folder: String,
    /// The measure that counts it.
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

/// The numbers of one crate, one for each measure.
pub type Row = [usize; Measure::ALL.len()];

/// Finds everything that is counted.
pub fn find(sources: &Sources) -> Vec<Found> {
    let mut found = functions::find(&sources.product);
    found.extend(circles::find(&sources.product));
    found.extend(names::find(sources));
    found.extend(flaws::find(&sources.product));
    found.extend(runs::find(&sources.product));
    found.extend(wording::find(sources));
    found
}

/// Returns the numbers of each crate. A crate without counted items has zeros.
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
