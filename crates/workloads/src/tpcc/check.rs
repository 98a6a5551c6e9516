//! The twelve consistency conditions.
//!
//! All rows of the database are read once, in any order. Sums are computed for each warehouse, district,
//! customer and order. Then the conditions are checked on these sums.
//!
//! # Source
//! TPC-C 5.11, clauses 3.3.2.1 to 3.3.2.12.
//!
//! # Deviations
//! Condition 11 requires 2,100 delivered orders in a district, which is true only for the initial population. Here the
//! required number is a sum. Its first part is the orders that the population delivers: 2,100, or fewer at a smaller
//! scale. Its second part is the later deliveries, which the rows of the customers count.

use std::collections::BTreeMap;

use serde::Serialize;

use super::inputs::Scale;
use super::load::Row;

type District = (u16, u8);
type Three = (u16, u8, u32);

/// The statement of each condition, in the order of the clauses.
const CONDITIONS: [&str; 12] = [
    "a warehouse's year-to-date sum is that of its districts",
    "a district's next order number follows its highest order and new order",
    "the numbers of a district's new orders have no gap",
    "a district has as many order lines as its orders say",
    "an order has no carrier exactly if it is a new order",
    "an order has as many lines as it says",
    "a line has no delivery date exactly if its order has no carrier",
    "a warehouse's year-to-date sum is that of its payments",
    "a district's year-to-date sum is that of its payments",
    "a customer's balance is what was delivered less what was paid",
    "the orders that are delivered are those of the beginning and the deliveries counted at customers",
    "a customer's balance and payments are what was delivered",
];

/// The result of a condition.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Condition {
    /// The number of the condition in the specification, from 1.
    pub number: usize,
    /// The statement of the condition.
    pub says: &'static str,
    /// The number of rows that violate the condition.
    pub violations: u64,
    /// A description of the first violation.
    pub first: Option<String>,
}

#[derive(Debug, Default)]
struct DistrictSums {
    ytd: i64,
    next_o: u32,
    paid: i64,
    orders: u64,
    highest_order: u32,
    lines_said: u64,
    lines: u64,
    new_orders: u64,
    lowest_new: Option<u32>,
    highest_new: u32,
    customers: u32,
    deliveries: u64,
}

#[derive(Debug, Default)]
struct OrderSums {
    exists: bool,
    c: u32,
    has_carrier: bool,
    lines_said: u64,
    is_new: bool,
    lines: u64,
    undelivered: u64,
    delivered: i64,
}

#[derive(Debug, Default)]
struct CustomerSums {
    balance: i64,
    ytd_payment: i64,
    paid: i64,
    delivered: i64,
}

/// The sums of the rows that have been added.
#[derive(Debug, Default)]
pub struct Tally {
    /// Year-to-date sums of warehouses.
    warehouses: BTreeMap<u16, i64>,
    districts: BTreeMap<District, DistrictSums>,
    customers: BTreeMap<Three, CustomerSums>,
    orders: BTreeMap<Three, OrderSums>,
}

impl Tally {
    /// Adds a row of any table to the sums.
    pub fn take(&mut self, row: &Row) {
        match row {
            Row::Item(_) | Row::Stock(_) => {}
            Row::Warehouse(row) => {
                self.warehouses.insert(row.w, row.ytd);
            }
            Row::District(row) => {
                let district = self.districts.entry((row.w, row.d)).or_default();
                (district.ytd, district.next_o) = (row.ytd, row.next_o);
            }
            Row::Customer(row) => {
                let customer = self.customers.entry((row.w, row.d, row.c)).or_default();
                (customer.balance, customer.ytd_payment) = (row.balance, row.ytd_payment);
                let district = self.districts.entry((row.w, row.d)).or_default();
                district.customers += 1;
                district.deliveries += u64::from(row.delivery_cnt);
            }
            Row::History(row) => {
                let district = self.districts.entry((row.w, row.d)).or_default();
                district.paid += row.amount;
                let customer = self.customers.entry((row.c_w, row.c_d, row.c)).or_default();
                customer.paid += row.amount;
            }
            Row::Order(row) => {
                let district = self.districts.entry((row.w, row.d)).or_default();
                district.orders += 1;
                district.highest_order = district.highest_order.max(row.o);
                district.lines_said += u64::from(row.ol_cnt);
                let order = self.orders.entry((row.w, row.d, row.o)).or_default();
                order.exists = true;
                order.c = row.c;
                order.has_carrier = row.carrier.is_some();
                order.lines_said = u64::from(row.ol_cnt);
            }
            Row::OrderLine(row) => {
                self.districts.entry((row.w, row.d)).or_default().lines += 1;
                let order = self.orders.entry((row.w, row.d, row.o)).or_default();
                order.lines += 1;
                if row.delivery_d.is_some() {
                    order.delivered += row.amount;
                } else {
                    order.undelivered += 1;
                }
            }
            Row::NewOrder(row) => {
                let district = self.districts.entry((row.w, row.d)).or_default();
                district.new_orders += 1;
                district.highest_new = district.highest_new.max(row.o);
                let lowest = district.lowest_new.get_or_insert(row.o);
                *lowest = row.o.min(*lowest);
                let order = self.orders.entry((row.w, row.d, row.o)).or_default();
                order.is_new = true;
            }
        }
    }

    /// Checks the conditions. All rows must have been added.
    #[must_use]
    pub fn conditions(mut self) -> Vec<Condition> {
        for ((w, d, _), order) in &self.orders {
            if order.exists {
                let customer = self.customers.entry((*w, *d, order.c)).or_default();
                customer.delivered += order.delivered;
            }
        }
        let mut found = Found::default();
        self.of_warehouses(&mut found);
        self.of_districts(&mut found);
        self.of_orders(&mut found);
        self.of_customers(&mut found);
        found.0
    }

    fn of_warehouses(&self, found: &mut Found) {
        for (w, ytd) in &self.warehouses {
            let of = |field: fn(&DistrictSums) -> i64| -> i64 {
                let districts = self.districts.range((*w, 0)..=(*w, u8::MAX));
                districts.map(|(_, district)| field(district)).sum()
            };
            let place = || format!("warehouse {w}");
            found.equal(1, place, ("ytd", *ytd), ("its districts'", of(|d| d.ytd)));
            found.equal(8, place, ("ytd", *ytd), ("payments", of(|d| d.paid)));
        }
    }

    fn of_districts(&self, found: &mut Found) {
        for ((w, d), sums) in &self.districts {
            let place = || format!("district {w}.{d}");
            let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            let last = i64::from(sums.next_o) - 1;
            found.equal(
                2,
                place,
                ("next order - 1", last),
                ("highest order", i64::from(sums.highest_order)),
            );
            if let Some(lowest) = sums.lowest_new {
                let highest = i64::from(sums.highest_new);
                found.equal(2, place, ("next order - 1", last), ("highest new", highest));
                let span = highest - i64::from(lowest) + 1;
                let count = number(sums.new_orders);
                found.equal(
                    3,
                    place,
                    ("span of new orders", span),
                    ("their number", count),
                );
            }
            found.equal(
                4,
                place,
                ("lines of orders", number(sums.lines_said)),
                ("order lines", number(sums.lines)),
            );
            found.equal(9, place, ("ytd", sums.ytd), ("payments", sums.paid));
            let scale = Scale {
                customers: sums.customers,
                ..Scale::of(1)
            };
            let first = i64::from(scale.first_new_order()) - 1;
            found.equal(
                11,
                place,
                (
                    "orders - new orders",
                    number(sums.orders) - number(sums.new_orders),
                ),
                ("delivered first and since", first + number(sums.deliveries)),
            );
        }
    }

    fn of_orders(&self, found: &mut Found) {
        for ((w, d, o), order) in &self.orders {
            let place = || format!("order {w}.{d}.{o}");
            let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            found.hold(5, order.has_carrier != order.is_new && order.exists, || {
                format!(
                    "{}: exists {}, has a carrier {}, is new {}",
                    place(),
                    order.exists,
                    order.has_carrier,
                    order.is_new
                )
            });
            found.equal(
                6,
                place,
                ("lines", number(order.lines_said)),
                ("order lines", number(order.lines)),
            );
            let expected = if order.has_carrier { 0 } else { order.lines };
            found.equal(
                7,
                place,
                ("lines without a date", number(order.undelivered)),
                ("by its carrier", number(expected)),
            );
        }
    }

    fn of_customers(&self, found: &mut Found) {
        for ((w, d, c), customer) in &self.customers {
            let place = || format!("customer {w}.{d}.{c}");
            found.equal(
                10,
                place,
                ("balance", customer.balance),
                ("delivered - paid", customer.delivered - customer.paid),
            );
            found.equal(
                12,
                place,
                (
                    "balance + payments",
                    customer.balance + customer.ytd_payment,
                ),
                ("delivered", customer.delivered),
            );
        }
    }
}

/// The conditions, with the violations found so far.
struct Found(Vec<Condition>);

impl Default for Found {
    fn default() -> Found {
        let conditions = (1..).zip(CONDITIONS).map(|(number, says)| Condition {
            number,
            says,
            violations: 0,
            first: None,
        });
        Found(conditions.collect())
    }
}

impl Found {
    fn hold(&mut self, number: usize, holds: bool, place: impl Fn() -> String) {
        let condition = &mut self.0[number - 1];
        debug_assert_eq!(condition.number, number, "conditions are counted from 1");
        if !holds {
            condition.violations += 1;
            condition.first.get_or_insert_with(place);
        }
    }

    fn equal(
        &mut self,
        number: usize,
        place: impl Fn() -> String,
        (left, a): (&str, i64),
        (right, b): (&str, i64),
    ) {
        self.hold(number, a == b, || {
            format!("{}: {left} {a}, {right} {b}", place())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::load::Population;
    use std::convert::Infallible;

    fn rows() -> Vec<Row> {
        let population = Population {
            scale: Scale {
                warehouses: 2,
                items: 20,
                customers: 30,
            },
            seed: 1,
            date: 5,
        };
        let mut rows = Vec::new();
        for w in [2, 1] {
            let done: Result<(), Infallible> = population.warehouse(w, |row| {
                rows.push(row);
                Ok(())
            });
            done.unwrap();
        }
        rows
    }

    fn violated(rows: &[Row]) -> Vec<usize> {
        let mut tally = Tally::default();
        for row in rows {
            tally.take(row);
        }
        let conditions = tally.conditions();
        assert_eq!(conditions.len(), 12);
        let violated = conditions.iter().filter(|found| found.violations > 0);
        violated
            .map(|found| {
                assert!(found.first.is_some());
                found.number
            })
            .collect()
    }

    #[test]
    fn the_population_meets_all_twelve() {
        assert_eq!(violated(&rows()), [0usize; 0]);
    }

    /// Calls `change` with one row after another. Stops when `change` returns true, which means that it changed the
    /// row. Returns the numbers of the violated conditions.
    fn after(change: impl Fn(&mut Row) -> bool) -> Vec<usize> {
        let mut rows = rows();
        assert!(rows.iter_mut().any(change), "one row is changed");
        violated(&rows)
    }

    fn without(leave_out: impl Fn(&Row) -> bool) -> Vec<usize> {
        let mut rows = rows();
        let at = rows.iter().position(leave_out).unwrap();
        rows.remove(at);
        violated(&rows)
    }

    macro_rules! changed {
        ($kind:ident, $row:ident: $($change:tt)*) => {
            after(|row| match row {
                Row::$kind($row) => {
                    $($change)*;
                    true
                }
                _ => false,
            })
        };
    }

    #[test]
    fn each_condition_is_violated_by_a_row_that_is_wrong() {
        assert_eq!(changed!(Warehouse, row: row.ytd += 1), [1, 8]);
        assert_eq!(changed!(District, row: row.ytd -= 1), [1, 9]);
        assert_eq!(changed!(District, row: row.next_o += 1), [2]);
        assert_eq!(changed!(Order, row: row.ol_cnt += 1), [4, 6]);
        assert_eq!(changed!(Order, row: row.carrier = None), [5, 7]);
        assert_eq!(changed!(OrderLine, row: row.delivery_d = None), [7]);
        assert_eq!(changed!(OrderLine, row: row.amount = 7), [10, 12]);
        assert_eq!(changed!(History, row: row.amount += 1), [8, 9, 10]);
        assert_eq!(changed!(Customer, row: row.balance += 1), [10, 12]);
        assert_eq!(changed!(Customer, row: row.ytd_payment += 1), [12]);
        assert_eq!(changed!(Customer, row: row.delivery_cnt += 1), [11]);
    }

    #[test]
    fn a_row_that_is_missing_is_noticed() {
        assert_eq!(without(|row| matches!(row, Row::History(_))), [8, 9, 10]);
        assert_eq!(without(|row| matches!(row, Row::OrderLine(_))), [4, 6]);
        let middle = |row: &Row| matches!(row, Row::NewOrder(row) if row.o == 25);
        assert_eq!(without(middle), [3, 5, 11]);
        let last = |row: &Row| matches!(row, Row::Order(row) if row.o == 30);
        assert_eq!(without(last), [2, 4, 5, 6, 11]);
    }
}
