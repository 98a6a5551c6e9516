//! The nine tables of TPC-C.
//!
//! The warehouse is the first key column of every table except the items and the history, so the warehouse decides the
//! partition. Items are replicated: every partition has all items. The history has no key.
//!
//! Money is in cents, rates are in ten-thousandths, times are milliseconds since 1970. Strings of a fixed
//! length are arrays, so that the columns after them have fixed offsets.
//!
//! # Source
//! TPC-C 5.11, clause 1.3.

use perdura_table::table;

table! {
    /// A warehouse.
    pub struct Warehouse in "warehouse", addressing = key {
        key(w: u16),
        name: String, street_1: String, street_2: String, city: String,
        state: [u8; 2], zip: [u8; 9],
        tax: i32, ytd: i64
    }
}

table! {
    /// A district of a warehouse.
    pub struct District in "district", addressing = key {
        key(w: u16, d: u8),
        name: String, street_1: String, street_2: String, city: String,
        state: [u8; 2], zip: [u8; 9],
        tax: i32, ytd: i64, next_o: u32
    }
}

table! {
    /// A customer of a district.
    pub struct Customer in "customer", addressing = key {
        key(w: u16, d: u8, c: u32),
        first: String, middle: [u8; 2], last: String,
        street_1: String, street_2: String, city: String,
        state: [u8; 2], zip: [u8; 9], phone: [u8; 16],
        since: u64, credit: [u8; 2], credit_lim: i64, discount: i32,
        balance: i64, ytd_payment: i64, payment_cnt: u32, delivery_cnt: u32,
        data: String;
        index by_last(w: u16, d: u8, last: String, first: String)
    }
}

table! {
    /// A payment.
    pub struct History in "history", addressing = key {
        c: u32, c_d: u8, c_w: u16, d: u8, w: u16,
        date: u64, amount: i64, data: String
    }
}

table! {
    /// An order.
    pub struct Order in "orders", addressing = key {
        key(w: u16, d: u8, o: u32),
        c: u32, entry_d: u64, carrier: Option<u8>, ol_cnt: u8, all_local: bool;
        index by_customer(w: u16, d: u8, c: u32, o: u32)
    }
}

table! {
    /// An order that is not delivered.
    pub struct NewOrder in "new_order", addressing = key, order = ordered {
        key(w: u16, d: u8, o: u32),
    }
}

table! {
    /// A line of an order.
    pub struct OrderLine in "order_line", addressing = key, order = ordered {
        key(w: u16, d: u8, o: u32, number: u8),
        item: u32, supply_w: u16, delivery_d: Option<u64>, quantity: u8, amount: i64,
        dist_info: [u8; 24]
    }
}

table! {
    /// An item.
    pub struct Item in "item", addressing = key, replicated {
        key(i: u32),
        im: u32, name: String, price: i64, data: String
    }
}

table! {
    /// A warehouse's stock of an item.
    pub struct Stock in "stock", addressing = key {
        key(w: u16, i: u32),
        quantity: i16,
        dist_01: [u8; 24], dist_02: [u8; 24], dist_03: [u8; 24], dist_04: [u8; 24], dist_05: [u8; 24],
        dist_06: [u8; 24], dist_07: [u8; 24], dist_08: [u8; 24], dist_09: [u8; 24], dist_10: [u8; 24],
        ytd: u32, order_cnt: u32, remote_cnt: u32, data: String
    }
}
