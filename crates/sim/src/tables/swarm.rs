//! The character of a run in the world of typed tables.

use std::sync::Arc;

use fastrand::Rng;
use perdura::tables::{Addressing, Schema};
use perdura::typed::{LogForm, Registered, TypedOptions};
use perdura::{CoreOptions, Table, ValueForm};
use perdura_device::CrashProfile;
use perdura_heap::KeptBound;

use crate::course::Course;
use crate::swarm::{draw_streams, pick, shift, sometimes};

use super::procedures::{
    append, close_account, configure, consult, drop_orders, fickle, forget_entries, gift,
    open_account, place_order, revalue, stamp, stray, tally, transfer,
};
use super::rows::Sort;
use super::schema::{Account, Entry, Order, Rate, Setting};
use super::tree_swarm::{STEPS, TreeSwarm};

/// The character of a run.
#[derive(Debug, Clone)]
pub(crate) struct Swarm {
    /// True if each stream has a separate disk.
    pub disks_apart: bool,
    /// The options of the next open. Some options change from life to life.
    pub options: CoreOptions,
    /// The declared tables, as a set of bits. The place of a table's bit is its sort's index in [`Sort::ALL`].
    pub declared: u8,
    /// The tables dropped in this life, as a set of bits like `declared`. The next open creates each dropped table that
    /// is still declared.
    pub dropped: u8,
    /// True if the log's form, the declared tables and the program's other declarations change from life to life.
    pub changes: bool,
    /// True if some lives have a memory limit.
    pub short_memory: bool,
    /// True if nothing is logged. A crash then loses everything that is not in an image.
    pub unlogged: bool,
    /// True if the engine refuses calls that cannot be logged as commands.
    pub strict: bool,
    /// True if all tables are page-addressed, whatever their declarations say.
    pub all_pages: bool,
    pub accounts: u64,
    pub branches: u32,
    /// An upper limit. The run chooses random order numbers and tags below it.
    pub numbers: u64,
    pub settings: u64,
    /// Odds, out of 100, that a text is longer than a slot.
    pub long: u8,
    /// The maximum number of open snapshots.
    pub snapshots: usize,
    /// The character of the tree beside the tables. `None`: the run has no tree.
    pub tree: Option<TreeSwarm>,
    pub course: Course,
    pub odds: [u32; KINDS],
}

/// The number of kinds of step, with the tree's steps.
pub(crate) const KINDS: usize = KINDS_OF_TABLES + STEPS.len();
/// The number of kinds of step, without the tree's steps.
pub(crate) const KINDS_OF_TABLES: usize = 14;

pub(crate) fn draw_amount(rng: &mut Rng) -> i64 {
    pick(rng, &[0, 1, 1, 2, 5, 7, 30, 100, 1000, -1])
}

pub(crate) fn draw_text(rng: &mut Rng, swarm: &Swarm) -> String {
    let len = match rng.u8(0..100) {
        odds if odds >= swarm.long => rng.usize(0..24),
        odds if odds % 8 == 0 => rng.usize(5000..20_000),
        _ => rng.usize(24..1200),
    };
    let letter = char::from(rng.u8(b'a'..=b'z'));
    std::iter::repeat_n(letter, len).collect()
}

fn procedures() -> Arc<[Registered]> {
    Arc::new([
        Registered::of::<open_account>(),
        Registered::of::<transfer>(),
        Registered::of::<close_account>(),
        Registered::of::<append>(),
        Registered::of::<stamp>(),
        Registered::of::<place_order>(),
        Registered::of::<revalue>(),
        Registered::of::<gift>(),
        Registered::of::<stray>(),
        Registered::of::<consult>(),
        Registered::of::<configure>(),
        Registered::of::<drop_orders>(),
        Registered::of::<forget_entries>(),
        Registered::of::<tally>(),
        Registered::of::<fickle>(),
    ])
}

fn draw_odds(rng: &mut Rng) -> [u32; KINDS] {
    let of_tables: [u32; KINDS_OF_TABLES] = [
        shift(rng, 12),
        shift(rng, 6),
        shift(rng, 8),
        shift(rng, 12),
        shift(rng, 2),
        shift(rng, 20),
        sometimes(rng, 1),
        sometimes(rng, 2),
        sometimes(rng, 1),
        sometimes(rng, 1),
        sometimes(rng, 2),
        sometimes(rng, 6),
        if rng.u8(0..4) == 0 { 1 } else { 0 },
        if rng.u8(0..4) == 0 { 2 } else { 0 },
    ];
    let mut odds = [0; KINDS];
    odds[..KINDS_OF_TABLES].copy_from_slice(&of_tables);
    odds
}

impl Swarm {
    /// Draws the character for a seed.
    pub fn draw(rng: &mut Rng, streams: Option<u8>, profile: Option<CrashProfile>) -> Swarm {
        let streams = streams.unwrap_or_else(|| draw_streams(rng));
        let long = rng.u8(0..24) == 0;
        let partitions = pick(rng, &[1, 2, 2, 4, 8]);
        let options = CoreOptions {
            partitions,
            chunk_pages: pick(rng, &[2, 4]),
            segment_bytes: pick(rng, &[65536, 65536, 131_072]),
            segment_bytes_first: 65536,
            block_bytes_max: pick(rng, &[8192, 16384]),
            queue_bytes_max: pick(rng, &[65536, 8 << 20, 8 << 20]),
            tables: &["db0"],
            ..CoreOptions::default()
        };
        let rot = rng.u8(0..24) == 0;
        let all = (1 << Sort::ALL.len()) - 1;
        let mut swarm = Swarm {
            disks_apart: streams > 1 && rng.bool(),
            options,
            declared: if rng.u8(0..3) == 0 {
                rng.u8(0..=all)
            } else {
                all
            },
            dropped: 0,
            changes: rng.bool(),
            short_memory: rng.u8(0..8) == 0,
            unlogged: false,
            strict: rng.u8(0..8) == 0,
            all_pages: rng.u8(0..12) == 0,
            accounts: pick(rng, &[3, 8, 30]),
            branches: pick(rng, &[1, 3, 8]),
            numbers: pick(rng, &[4, 20, 100]),
            settings: pick(rng, &[1, 4]),
            long: pick(rng, &[0, 0, 10, 40]),
            snapshots: pick(rng, &[0, 1, 3]),
            tree: None,
            course: Course {
                crashes: pick(rng, &[1, 1, 1, 2, 2, 3, 5]),
                steps: if long { 400 } else { pick(rng, &[40, 60, 90]) },
                rot,
                ..Course::calm(streams, profile)
            },
            odds: draw_odds(rng),
        };
        swarm.course.memory_is_short = swarm.short_memory;
        swarm.course.draw_faults(rng);
        swarm.draw_typed(rng);
        if rng.bool() {
            swarm.options.kept_bound = KeptBound {
                free: pick(rng, &[0, 10_000]),
                share: pick(rng, &[4, 20, 100]),
            };
        }
        swarm.unlogged = rng.u8(0..12) == 0;
        if swarm.unlogged {
            // An open that is interrupted may write an image whose content the model does not know.
            swarm.course.nested = 0;
        }
        swarm
    }

    /// Sets the typed tables' options for the next life. Chooses, at random, the log's form, the form of changed rows
    /// and the memory limit.
    pub fn draw_typed(&mut self, rng: &mut Rng) {
        assert!(
            self.declared < 1 << Sort::ALL.len(),
            "tables that there are"
        );
        let declared = Sort::ALL.into_iter().filter(|sort| self.declares(*sort));
        self.options.typed = TypedOptions {
            schemas: declared.map(|sort| self.schema_of(sort)).collect(),
            procedures: procedures(),
            log: match pick(rng, &[LogForm::Value, LogForm::Command, LogForm::Command]) {
                _ if self.unlogged => LogForm::Value,
                form => form,
            },
            form: pick(rng, &ValueForm::ALL),
            strict: self.strict && !self.all_pages,
            ..TypedOptions::default()
        };
        self.options.memory_limit = match self.short_memory && rng.bool() {
            true => rng.u64(200_000..1_500_000),
            false => u64::MAX,
        };
    }

    fn schema_of(&self, sort: Sort) -> Schema {
        let schema = match sort {
            Sort::Accounts => Account::schema(),
            Sort::Orders => Order::schema(),
            Sort::Rates => Rate::schema(),
            Sort::Entries => Entry::schema(),
            Sort::Settings => Setting::schema(),
        };
        match self.all_pages {
            true => schema.clone().with_addressing(Addressing::Page),
            false => schema.clone(),
        }
    }

    /// Returns whether the log names the rows of a table by their keys.
    pub fn is_keyed(&self, sort: Sort) -> bool {
        sort != Sort::Settings && !self.all_pages
    }

    /// Declares the table of a sort.
    pub fn declare(&mut self, sort: Sort) {
        self.declared |= 1 << sort.place();
    }

    /// Returns whether a table is declared and has not been dropped in this life.
    pub fn declares(&self, sort: Sort) -> bool {
        self.declared & !self.dropped & (1 << sort.place()) != 0
    }

    /// Records that a table was dropped. If `for_good`, later lives do not declare the table.
    pub fn note_dropped(&mut self, sort: Sort, for_good: bool) {
        assert!(self.declares(sort), "a table is dropped once in a life");
        self.dropped |= 1 << sort.place();
        if for_good && self.changes {
            self.declared &= !self.dropped;
        }
    }

    /// Draws the name of one of four owners. Some of the drawn names are long.
    pub fn draw_owner(&self, rng: &mut Rng) -> String {
        let owner = rng.u8(0..4);
        let len = if rng.u8(0..100) < self.long { 300 } else { 3 };
        format!("{:o<len$}", char::from(b'A' + owner))
    }
}
