//! The five transactions.
//!
//! All random values are arguments, so a call's effect depends only on the arguments and the data. Dates are arguments,
//! too. The date 0 means the transaction's own time. With all other dates, the database depends neither on the
//! form of the log nor on the run's duration.
//!
//! Wide rows are read and changed by column, without being decoded.
//!
//! # Source
//! TPC-C 5.11, clauses 2.4.2, 2.5.2, 2.6.2, 2.7.4, 2.8.2.
//!
//! # Deviations
//! A procedure returns the figures that a terminal shows, without the addresses. A Delivery is one transaction for
//! all districts, which the specification allows. The remote flag of an order line depends only on the supplying
//! warehouse.

use perdura_table::{AHEAD_KEYS, Abort, Column, Cx, procedure};
use smallvec::SmallVec;

use super::inputs::{DISTRICTS, Line};
use super::schema::{
    Customer, District, History, Item, NewOrder, Order, OrderLine, Stock, Warehouse,
};

/// The number of a district's last orders that Stock-Level reads.
const RECENT_ORDERS: u32 = 20;
/// The maximum length of a payment's data, bytes.
const HISTORY_DATA_BYTES_MAX: usize = 24;
/// The maximum length of a customer's data, bytes.
const CUSTOMER_DATA_BYTES_MAX: usize = 500;

/// The output of New-Order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// The order's number.
    pub o: u32,
    /// The customer's last name.
    pub last: String,
    /// The customer's credit.
    pub credit: [u8; 2],
    /// The sum with discount and taxes, cents.
    pub total: i64,
    /// The lines.
    pub lines: Vec<OrderedLine>,
}

/// The output of New-Order for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedLine {
    /// The item's name.
    pub name: String,
    /// The remaining stock of the item.
    pub stock: i16,
    /// True if the item's data and the stock's data mark the item as original.
    pub is_original: bool,
    /// The item's price, cents.
    pub price: i64,
    /// The price of the line, cents.
    pub amount: i64,
}

/// The output of Payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paid {
    /// The customer's number.
    pub c: u32,
    /// The customer's credit.
    pub credit: [u8; 2],
    /// The customer's balance, cents.
    pub balance: i64,
}

/// The output of Order-Status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The customer's number.
    pub c: u32,
    /// The customer's first name.
    pub first: String,
    /// The customer's balance, cents.
    pub balance: i64,
    /// The number, the date and the carrier of the customer's last order.
    pub order: Option<(u32, u64, Option<u8>)>,
    /// The order's lines: item, supplier, quantity, amount, delivery date.
    pub lines: Vec<(u32, u16, u8, i64, Option<u64>)>,
}

procedure! {
    /// Enters an order (clause 2.4.2). A missing item aborts the transaction. In one of a hundred orders, the last line
    /// names a missing item.
    pub fn new_order(cx, w: u16, d: u8, c: u32, lines: Vec<Line>, at: u32) -> Ordered,
    on [Warehouse(w), Stock(each lines.iter().map(|line| line.1))] {
        let date = date_of(at, cx.now());
        cx.look_ahead::<Item>(lines.iter().map(|(item, ..)| *item));
        cx.look_ahead::<Stock>(lines.iter().map(|(item, supplier, _)| (*supplier, *item)));
        let warehouse = cx.view::<Warehouse>(w)?.ok_or("no such warehouse")?;
        let w_tax = warehouse.get(Warehouse::tax)?;
        let (mut o, mut d_tax) = (0, 0);
        cx.edit::<District>((w, d), |row| {
            d_tax = row.get(District::tax)?;
            o = row.get(District::next_o)?;
            row.set(District::next_o, o + 1);
            Ok(())
        })?;
        let customer = cx.view::<Customer>((w, d, c))?.ok_or("no such customer")?;
        let discount = customer.get(Customer::discount)?;
        let mut ordered = Ordered {
            o,
            last: customer.get(Customer::last)?.to_owned(),
            credit: *customer.get(Customer::credit)?,
            total: 0,
            lines: Vec::with_capacity(lines.len()),
        };
        cx.insert(&Order {
            w,
            d,
            o,
            c,
            entry_d: date,
            carrier: None,
            ol_cnt: u8::try_from(lines.len()).map_err(|_| "too many lines")?,
            all_local: lines.iter().all(|(_, supplier, _)| *supplier == w),
        })?;
        cx.insert(&NewOrder { w, d, o })?;
        // The positions of the new lines in the index are read ahead. The index has no entries for the lines yet.
        cx.look_ahead::<OrderLine>((1..).take(lines.len()).map(|number| (w, d, o, number)));
        let mut sum = 0;
        for (number, (item, supplier, quantity)) in (1..).zip(lines) {
            let found = cx.view::<Item>(item)?.ok_or("item number is not valid")?;
            let price = found.get(Item::price)?;
            let name = found.get(Item::name)?.to_owned();
            let mut is_original = is_original(found.get(Item::data)?);
            let (mut left, mut dist_info) = (0, [0; 24]);
            cx.edit::<Stock>((supplier, item), |row| {
                left = stock_left(row.get(Stock::quantity)?, quantity);
                row.set(Stock::quantity, left);
                row.set(Stock::ytd, row.get(Stock::ytd)? + u32::from(quantity));
                row.set(Stock::order_cnt, row.get(Stock::order_cnt)? + 1);
                if supplier != w {
                    row.set(Stock::remote_cnt, row.get(Stock::remote_cnt)? + 1);
                }
                is_original = is_original && self::is_original(row.get(Stock::data)?);
                dist_info = *row.get(dist_of(d))?;
                Ok(())
            })?;
            let amount = i64::from(quantity) * price;
            sum += amount;
            cx.insert(&OrderLine {
                w,
                d,
                o,
                number,
                item,
                supply_w: supplier,
                delivery_d: None,
                quantity,
                amount,
                dist_info,
            })?;
            ordered.lines.push(OrderedLine {
                name,
                stock: left,
                is_original,
                price,
                amount,
            });
        }
        ordered.total = total(sum, discount, w_tax + d_tax);
        Ok(ordered)
    }
}

procedure! {
    /// Takes a payment (clause 2.5.2). The customer has the number `c`. If `c` is 0, the customer has the last name
    /// `last`.
    pub fn payment(
        cx,
        w: u16,
        d: u8,
        c_w: u16,
        c_d: u8,
        c: u32,
        last: String,
        amount: u32,
        at: u32,
    ) -> Paid,
    on [Warehouse(w), Customer(c_w)] {
        let date = date_of(at, cx.now());
        let amount = i64::from(amount);
        let mut data = String::with_capacity(HISTORY_DATA_BYTES_MAX);
        cx.edit::<Warehouse>(w, |row| {
            row.set(Warehouse::ytd, row.get(Warehouse::ytd)? + amount);
            data.push_str(row.get(Warehouse::name)?);
            Ok(())
        })?;
        data.push_str("    ");
        cx.edit::<District>((w, d), |row| {
            row.set(District::ytd, row.get(District::ytd)? + amount);
            data.push_str(row.get(District::name)?);
            Ok(())
        })?;
        let c = if c == 0 { middle_of_name(cx, c_w, c_d, &last)? } else { c };
        let mut paid = Paid { c, credit: [0; 2], balance: 0 };
        cx.edit::<Customer>((c_w, c_d, c), |row| {
            paid.balance = row.get(Customer::balance)? - amount;
            row.set(Customer::balance, paid.balance);
            row.set(Customer::ytd_payment, row.get(Customer::ytd_payment)? + amount);
            row.set(Customer::payment_cnt, row.get(Customer::payment_cnt)? + 1);
            paid.credit = *row.get(Customer::credit)?;
            if paid.credit == *b"BC" {
                let what = format_args!("{c} {c_d} {c_w} {d} {w} {amount}|");
                let data = payment_data(what, row.get(Customer::data)?);
                row.set(Customer::data, &data);
            }
            Ok(())
        })?;
        cx.insert(&History {
            c,
            c_d,
            c_w,
            d,
            w,
            date,
            amount,
            data,
        })?;
        Ok(paid)
    }
}

procedure! {
    /// Reads a customer's last order (clause 2.6.2).
    pub fn order_status(cx, w: u16, d: u8, c: u32, last: String) -> Status,
    on [Warehouse(w)] {
        let c = if c == 0 { middle_of_name(cx, w, d, &last)? } else { c };
        let customer = cx.view::<Customer>((w, d, c))?.ok_or("no such customer")?;
        let mut status = Status {
            c,
            first: customer.get(Customer::first)?.to_owned(),
            balance: customer.get(Customer::balance)?,
            order: None,
            lines: Vec::new(),
        };
        let orders = cx.by(Order::by_customer, (w, d, c)).views();
        if let Some(order) = orders.rev().first()? {
            let o = order.key(Order::o)?;
            status.order = Some((o, order.get(Order::entry_d)?, order.get(Order::carrier)?));
            for line in cx.rows::<OrderLine>((w, d, o)).views() {
                let line = line?;
                status.lines.push((
                    line.get(OrderLine::item)?,
                    line.get(OrderLine::supply_w)?,
                    line.get(OrderLine::quantity)?,
                    line.get(OrderLine::amount)?,
                    line.get(OrderLine::delivery_d)?,
                ));
            }
        }
        Ok(status)
    }
}

procedure! {
    /// Delivers the oldest new order of each district (clause 2.7.4). Returns the district and the number of each
    /// delivered order. A district without a new order is skipped.
    pub fn delivery(cx, w: u16, carrier: u8, at: u32) -> Vec<(u8, u32)>,
    on [Warehouse(w)] {
        let date = date_of(at, cx.now());
        let mut delivered = Vec::with_capacity(usize::from(DISTRICTS));
        for d in 1..=DISTRICTS {
            let oldest = cx.rows::<NewOrder>((w, d)).views().first()?;
            let Some(o) = oldest.map(|row| row.key(NewOrder::o)).transpose()? else {
                continue;
            };
            cx.remove::<NewOrder>((w, d, o))?;
            let (mut c, mut lines, mut sum) = (0, 0, 0);
            cx.edit::<Order>((w, d, o), |row| {
                (c, lines) = (row.get(Order::c)?, row.get(Order::ol_cnt)?);
                row.set(Order::carrier, Some(carrier));
                Ok(())
            })?;
            cx.look_ahead::<OrderLine>((1..=lines).map(|number| (w, d, o, number)));
            for number in 1..=lines {
                cx.edit::<OrderLine>((w, d, o, number), |row| {
                    row.set(OrderLine::delivery_d, Some(date));
                    sum += row.get(OrderLine::amount)?;
                    Ok(())
                })?;
            }
            cx.edit::<Customer>((w, d, c), |row| {
                row.set(Customer::balance, row.get(Customer::balance)? + sum);
                row.set(Customer::delivery_cnt, row.get(Customer::delivery_cnt)? + 1);
                Ok(())
            })?;
            delivered.push((d, o));
        }
        Ok(delivered)
    }
}

procedure! {
    /// Reads the items in a district's last orders. Counts those with a stock below the threshold (clause 2.8.2).
    pub fn stock_level(cx, w: u16, d: u8, threshold: i16) -> u32,
    on [Warehouse(w)] {
        let district = cx.view::<District>((w, d))?.ok_or("no such district")?;
        let next = district.get(District::next_o)?;
        let recent = (w, d, next.saturating_sub(RECENT_ORDERS))..(w, d, next);
        let mut items = Vec::with_capacity(256);
        for line in cx.range::<OrderLine>(recent).views() {
            items.push(line?.get(OrderLine::item)?);
        }
        items.sort_unstable();
        items.dedup();
        let mut low = 0;
        for items in items.chunks(AHEAD_KEYS) {
            cx.look_ahead::<Stock>(items.iter().map(|item| (w, *item)));
            for item in items {
                let stock = cx.view::<Stock>((w, *item))?.ok_or("no such stock")?;
                low += u32::from(stock.get(Stock::quantity)? < threshold);
            }
        }
        Ok(low)
    }
}

/// Sorts the customers with the last name `last` by first name, and returns the middle customer's number (clause
/// 2.5.2.2).
fn middle_of_name(cx: &Cx<'_, '_>, w: u16, d: u8, last: &str) -> Result<u32, Abort> {
    let mut found = SmallVec::<[u32; 16]>::new();
    for row in cx.by(Customer::by_last, (w, d, last)).views() {
        found.push(row?.key(Customer::c)?);
    }
    match found.len() {
        0 => Err("no customer of this name".into()),
        count => Ok(found[(count - 1) / 2]),
    }
}

/// Returns the column of [`Stock`] for a district.
fn dist_of(d: u8) -> Column<Stock, [u8; 24]> {
    match d {
        1 => Stock::dist_01,
        2 => Stock::dist_02,
        3 => Stock::dist_03,
        4 => Stock::dist_04,
        5 => Stock::dist_05,
        6 => Stock::dist_06,
        7 => Stock::dist_07,
        8 => Stock::dist_08,
        9 => Stock::dist_09,
        _ => Stock::dist_10,
    }
}

fn is_original(data: &str) -> bool {
    data.contains("ORIGINAL")
}

/// Converts a date argument from seconds to milliseconds. For 0, returns the transaction's own time.
fn date_of(at: u32, now_ms: u64) -> u64 {
    if at == 0 {
        now_ms
    } else {
        u64::from(at) * 1000
    }
}

/// Returns the stock that is left when `taken` items are taken (clause 2.4.2.2).
fn stock_left(quantity: i16, taken: u8) -> i16 {
    let taken = i16::from(taken);
    if quantity >= taken + 10 {
        quantity - taken
    } else {
        quantity - taken + 91
    }
}

/// Returns an order's sum after discount and taxes. The sum is in cents and rounded down. Discount and taxes are in
/// ten-thousandths.
fn total(sum: i64, discount: i32, taxes: i32) -> i64 {
    sum * i64::from(10_000 - discount) * i64::from(10_000 + taxes) / 100_000_000
}

/// Returns the data of a customer with bad credit after a payment (clause 2.5.2.2).
fn payment_data(what: std::fmt::Arguments<'_>, before: &str) -> String {
    let mut data = String::with_capacity(CUSTOMER_DATA_BYTES_MAX + 64);
    std::fmt::Write::write_fmt(&mut data, what).expect("a string takes anything");
    data.push_str(before);
    let mut end = data.len().min(CUSTOMER_DATA_BYTES_MAX);
    while !data.is_char_boundary(end) {
        end -= 1;
    }
    data.truncate(end);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_is_filled_up_when_less_than_ten_would_be_left() {
        assert_eq!(stock_left(20, 10), 10);
        assert_eq!(stock_left(19, 10), 100);
        assert_eq!(stock_left(10, 1), 100);
    }

    #[test]
    fn discount_and_taxes_are_of_ten_thousand() {
        assert_eq!(total(10_000, 0, 0), 10_000);
        assert_eq!(total(10_000, 5_000, 2_000), 6_000);
        assert_eq!(total(999_999 * 150, 0, 4_000), 999_999 * 150 * 14 / 10);
    }

    #[test]
    fn a_payment_is_written_in_front_of_the_data_and_cuts_it() {
        let data = payment_data(format_args!("{} {}", 7, 8), &"x".repeat(500));
        assert!(data.starts_with("7 8xxx") && data.len() == 500);
        assert_eq!(payment_data(format_args!("7"), "ab"), "7ab");
    }

    #[test]
    fn a_date_of_nothing_is_the_transactions_own() {
        assert_eq!((date_of(0, 77), date_of(2, 77)), (77, 2_000));
    }
}
