//! The model's keys and rows of all tables.

use std::collections::BTreeMap;

use crate::content::Content;

use super::schema::{Account, Entry, Order, Rate, Setting};

/// The key of a row of any table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Account(u64),
    Order(u32, u64),
    Rate(u16),
    /// An entry, named by its row id.
    Entry(u64),
    Setting(u64),
    /// A key of a row in Redis's first database.
    Plain(u8),
    /// A whole key-addressed table. The number is its sort's index in [`Sort::ALL`].
    Table(usize),
}

/// A row of any table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Row {
    Account(Account),
    Order(Order),
    Rate(Rate),
    Entry(Entry),
    Setting(Setting),
    Plain(Content),
    Table,
}

/// Rows by key.
pub(crate) type Rows = BTreeMap<Key, Row>;
/// A key, and the row that the key has after a transaction. `None`: the key has no row.
pub(crate) type Write = (Key, Option<Row>);

/// The sorts of tables. The schema has one table of each sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Accounts,
    Orders,
    Rates,
    Entries,
    Settings,
}

impl Sort {
    /// Every sort.
    pub const ALL: [Sort; 5] = [
        Sort::Accounts,
        Sort::Orders,
        Sort::Rates,
        Sort::Entries,
        Sort::Settings,
    ];

    /// Returns the index of this sort in [`Sort::ALL`].
    pub fn place(self) -> usize {
        let place = Sort::ALL.iter().position(|sort| *sort == self);
        place.expect("every sort is one of all")
    }
}

impl Key {
    /// Returns the sort of the key's table. `None`: the table is not typed.
    pub fn sort(self) -> Option<Sort> {
        match self {
            Key::Account(_) => Some(Sort::Accounts),
            Key::Order(..) => Some(Sort::Orders),
            Key::Rate(_) => Some(Sort::Rates),
            Key::Entry(_) => Some(Sort::Entries),
            Key::Setting(_) => Some(Sort::Settings),
            Key::Plain(_) | Key::Table(_) => None,
        }
    }

    /// Returns the home partition of a typed row. With a key, it is the key's integer modulo the number of
    /// partitions. Without a key, it is the low byte of the row id. `None`: the row has no home.
    pub fn home(self, partitions: u16) -> Option<u16> {
        assert!(partitions > 0, "a database has a partition");
        let modulo = |number: u64| u16::try_from(number % u64::from(partitions)).ok();
        match self {
            Key::Account(id) | Key::Setting(id) => modulo(id),
            Key::Order(branch, _) => modulo(u64::from(branch)),
            Key::Entry(id) => u16::try_from(id % 256).ok(),
            Key::Rate(_) | Key::Plain(_) | Key::Table(_) => None,
        }
    }
}

/// Returns the rows of the table of a sort.
pub(crate) fn of_sort(rows: &Rows, sort: Sort) -> impl Iterator<Item = (&Key, &Row)> {
    let range = match sort {
        Sort::Accounts => Key::Account(0)..=Key::Account(u64::MAX),
        Sort::Orders => Key::Order(0, 0)..=Key::Order(u32::MAX, u64::MAX),
        Sort::Rates => Key::Rate(0)..=Key::Rate(u16::MAX),
        Sort::Entries => Key::Entry(0)..=Key::Entry(u64::MAX),
        Sort::Settings => Key::Setting(0)..=Key::Setting(u64::MAX),
    };
    rows.range(range)
}

impl From<Account> for Row {
    fn from(row: Account) -> Row {
        Row::Account(row)
    }
}

impl From<Order> for Row {
    fn from(row: Order) -> Row {
        Row::Order(row)
    }
}

impl From<Rate> for Row {
    fn from(row: Rate) -> Row {
        Row::Rate(row)
    }
}

impl From<Entry> for Row {
    fn from(row: Entry) -> Row {
        Row::Entry(row)
    }
}

impl From<Setting> for Row {
    fn from(row: Setting) -> Row {
        Row::Setting(row)
    }
}
