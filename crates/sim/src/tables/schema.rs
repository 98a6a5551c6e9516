//! The tables: one table of each sort.

use perdura::table;

table! {
    /// An account. The table is hashed. Its secondary index is on a column of variable length.
    pub struct Account in "accounts" {
        key(id: u64),
        owner: String,
        balance: i64,
        touched: u64;
        index by_owner(owner: String)
    }
}

table! {
    /// An order of a branch. The table is ordered, and a tag is unique within its branch.
    pub struct Order in "orders", order = ordered {
        key(branch: u32, number: u64),
        item: u16,
        tag: u64,
        amount: i64,
        note: Vec<u8>;
        index by_item(item: u16);
        unique index by_tag(branch: u32, tag: u64)
    }
}

table! {
    /// A rate. Every partition has a copy of each row.
    pub struct Rate in "rates", replicated {
        key(id: u16),
        factor: i64,
        name: String
    }
}

table! {
    /// An entry of the journal. The table has no key.
    pub struct Entry in "entries" {
        account: u64,
        amount: i64,
        text: String;
        index by_account(account: u64)
    }
}

table! {
    /// A setting. The table is page-addressed.
    pub struct Setting in "settings", addressing = page, order = ordered {
        key(id: u64),
        value: i64,
        text: String;
        index by_value(value: i64)
    }
}
