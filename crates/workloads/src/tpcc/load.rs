//! The initial population.
//!
//! The contents of a warehouse depend only on the seed and the warehouse's number. So warehouses can be loaded in any
//! order and by several threads. The rows are generated one by one.
//!
//! # Source
//! TPC-C 5.11, clause 4.3.3.1.
//!
//! # Deviations
//! Tests may use fewer items and fewer customers of a district. There are always as many orders as customers. The date
//! of all rows is an argument, so that a seed always makes the same database.

use perdura_base::checksum::mix64;

use super::inputs::{DISTRICTS, LINES_MAX, LINES_MIN, Scale};
use super::random::{Random, last_name};
use super::schema::{
    Customer, District, History, Item, NewOrder, Order, OrderLine, Stock, Warehouse,
};

/// The number of carriers.
const CARRIERS: u32 = 10;
/// The number of customers in a district that get the last names in order. They are the district's first customers. The
/// other customers get random last names.
const NAMED_IN_ORDER: u32 = 1000;

/// A row of the population.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    /// An item.
    Item(Item),
    /// A warehouse.
    Warehouse(Warehouse),
    /// A warehouse's stock of an item.
    Stock(Stock),
    /// A district.
    District(District),
    /// A customer.
    Customer(Customer),
    /// A customer's first payment.
    History(History),
    /// An order.
    Order(Order),
    /// A line of an order.
    OrderLine(OrderLine),
    /// An order that is not delivered.
    NewOrder(NewOrder),
}

/// The settings of the population.
#[derive(Debug, Clone, Copy)]
pub struct Population {
    /// The size of the database.
    pub scale: Scale,
    /// The seed of all random values.
    pub seed: u64,
    /// The date of all rows, milliseconds since 1970.
    pub date: u64,
}

impl Population {
    /// Passes all items to `take`.
    ///
    /// # Errors
    /// Errors of `take`.
    pub fn items<E>(&self, mut take: impl FnMut(Row) -> Result<(), E>) -> Result<(), E> {
        let mut random = self.random(0);
        for i in 1..=self.scale.items {
            take(Row::Item(Item {
                i,
                im: random.uniform(1, 10_000),
                name: random.a_string(14, 24),
                price: random.cents(100, 10_000),
                data: random.data(),
            }))?;
        }
        Ok(())
    }

    /// Passes all rows of a warehouse to `take`.
    ///
    /// # Errors
    /// Errors of `take`.
    pub fn warehouse<E>(
        &self,
        w: u16,
        mut take: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(
            (1..=self.scale.warehouses).contains(&w),
            "warehouses are numbered from 1"
        );
        let mut random = self.random(w);
        let place = Address::draw(&mut random);
        take(Row::Warehouse(Warehouse {
            w,
            name: random.a_string(6, 10),
            street_1: place.street_1,
            street_2: place.street_2,
            city: place.city,
            state: place.state,
            zip: place.zip,
            tax: rate(&mut random, 2_000),
            ytd: 1_000 * i64::from(self.scale.customers) * i64::from(DISTRICTS),
        }))?;
        for i in 1..=self.scale.items {
            take(Row::Stock(stock(&mut random, w, i)))?;
        }
        for d in 1..=DISTRICTS {
            self.district(&mut random, w, d, &mut take)?;
        }
        Ok(())
    }

    fn random(&self, warehouse: u16) -> Random {
        Random::of_load(mix64(self.seed) ^ mix64(u64::from(warehouse) << 32))
    }

    fn district<E>(
        &self,
        random: &mut Random,
        w: u16,
        d: u8,
        take: &mut impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        let place = Address::draw(random);
        take(Row::District(District {
            w,
            d,
            name: random.a_string(6, 10),
            street_1: place.street_1,
            street_2: place.street_2,
            city: place.city,
            state: place.state,
            zip: place.zip,
            tax: rate(random, 2_000),
            ytd: 1_000 * i64::from(self.scale.customers),
            next_o: self.scale.customers + 1,
        }))?;
        for c in 1..=self.scale.customers {
            take(Row::Customer(self.customer(random, (w, d, c))))?;
            take(Row::History(History {
                c,
                c_d: d,
                c_w: w,
                d,
                w,
                date: self.date,
                amount: 1_000,
                data: random.a_string(12, 24),
            }))?;
        }
        let mut customers: Vec<u32> = (1..=self.scale.customers).collect();
        random.shuffle(&mut customers);
        for (o, c) in (1..).zip(customers) {
            self.order(random, (w, d, o), c, take)?;
        }
        Ok(())
    }

    fn customer(&self, random: &mut Random, (w, d, c): (u16, u8, u32)) -> Customer {
        let name = if c <= NAMED_IN_ORDER {
            c - 1
        } else {
            random.last_name(self.scale.last_names())
        };
        let place = Address::draw(random);
        Customer {
            w,
            d,
            c,
            first: random.a_string(8, 16),
            middle: *b"OE",
            last: last_name(name),
            street_1: place.street_1,
            street_2: place.street_2,
            city: place.city,
            state: place.state,
            zip: place.zip,
            phone: random.digits(),
            since: self.date,
            credit: if random.percent(10.0) { *b"BC" } else { *b"GC" },
            credit_lim: 5_000_000,
            discount: rate(random, 5_000),
            balance: -1_000,
            ytd_payment: 1_000,
            payment_cnt: 1,
            delivery_cnt: 0,
            data: random.a_string(300, 500),
        }
    }

    fn order<E>(
        &self,
        random: &mut Random,
        (w, d, o): (u16, u8, u32),
        c: u32,
        take: &mut impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_new = o >= self.scale.first_new_order();
        let lines = random.uniform(u32::from(LINES_MIN), u32::from(LINES_MAX));
        let lines = u8::try_from(lines).expect("between bytes");
        let carrier = random.uniform(1, CARRIERS);
        take(Row::Order(Order {
            w,
            d,
            o,
            c,
            entry_d: self.date,
            carrier: (!is_new).then(|| u8::try_from(carrier).expect("a small number")),
            ol_cnt: lines,
            all_local: true,
        }))?;
        for number in 1..=lines {
            let amount = random.cents(1, 999_999);
            take(Row::OrderLine(OrderLine {
                w,
                d,
                o,
                number,
                item: random.uniform(1, self.scale.items),
                supply_w: w,
                delivery_d: (!is_new).then_some(self.date),
                quantity: 5,
                amount: if is_new { amount } else { 0 },
                dist_info: random.a_chars(),
            }))?;
        }
        if is_new {
            take(Row::NewOrder(NewOrder { w, d, o }))?;
        }
        Ok(())
    }
}

fn stock(random: &mut Random, w: u16, i: u32) -> Stock {
    let quantity = random.uniform(10, 100);
    Stock {
        w,
        i,
        quantity: i16::try_from(quantity).expect("at most 100"),
        dist_01: random.a_chars(),
        dist_02: random.a_chars(),
        dist_03: random.a_chars(),
        dist_04: random.a_chars(),
        dist_05: random.a_chars(),
        dist_06: random.a_chars(),
        dist_07: random.a_chars(),
        dist_08: random.a_chars(),
        dist_09: random.a_chars(),
        dist_10: random.a_chars(),
        ytd: 0,
        order_cnt: 0,
        remote_cnt: 0,
        data: random.data(),
    }
}

/// Draws a rate of at most `highest` ten-thousandths.
fn rate(random: &mut Random, highest: u32) -> i32 {
    i32::try_from(random.uniform(0, highest)).expect("at most one")
}

struct Address {
    street_1: String,
    street_2: String,
    city: String,
    state: [u8; 2],
    zip: [u8; 9],
}

impl Address {
    fn draw(random: &mut Random) -> Address {
        Address {
            street_1: random.a_string(10, 20),
            street_2: random.a_string(10, 20),
            city: random.a_string(10, 20),
            state: random.letters(),
            zip: random.zip(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::convert::Infallible;

    const POPULATION: Population = Population {
        scale: Scale {
            warehouses: 2,
            items: 300,
            customers: 1_200,
        },
        seed: 1,
        date: 1_000_000,
    };

    fn rows(w: u16) -> Vec<Row> {
        let mut rows = Vec::new();
        let done: Result<(), Infallible> = POPULATION.warehouse(w, |row| {
            rows.push(row);
            Ok(())
        });
        done.unwrap();
        rows
    }

    #[test]
    fn a_warehouse_has_the_rows_of_the_specification() {
        let mut counts = BTreeMap::new();
        let mut orders = BTreeMap::new();
        let mut lines = BTreeMap::new();
        let mut customers = BTreeSet::new();
        for row in rows(2) {
            let name = match row {
                Row::Item(_) => "item",
                Row::Warehouse(row) => {
                    assert!((row.w, row.ytd) == (2, 12_000_000) && row.tax <= 2_000);
                    "warehouse"
                }
                Row::Stock(row) => {
                    assert!(row.w == 2 && (10..=100).contains(&row.quantity));
                    assert!(row.dist_01 != row.dist_10);
                    "stock"
                }
                Row::District(row) => {
                    assert_eq!((row.ytd, row.next_o), (1_200_000, 1_201));
                    "district"
                }
                Row::Customer(row) => {
                    assert_eq!(row.balance + row.ytd_payment, 0);
                    assert!(row.c > 1_000 || row.last == last_name(row.c - 1));
                    "customer"
                }
                Row::History(row) => {
                    assert_eq!((row.w, row.d), (row.c_w, row.c_d));
                    "history"
                }
                Row::Order(row) => {
                    assert_eq!(row.carrier.is_some(), row.o <= 840);
                    customers.insert((row.d, row.c));
                    orders.insert((row.d, row.o), row.ol_cnt);
                    "orders"
                }
                Row::OrderLine(row) => {
                    assert_eq!(row.delivery_d.is_some(), row.o <= 840);
                    assert_eq!(row.amount == 0, row.o <= 840);
                    *lines.entry((row.d, row.o)).or_insert(0u8) += 1;
                    "order_line"
                }
                Row::NewOrder(row) => {
                    assert!((841..=1_200).contains(&row.o));
                    "new_order"
                }
            };
            *counts.entry(name).or_insert(0u32) += 1;
        }
        assert_eq!(orders, lines);
        assert_eq!(customers.len(), 12_000, "each customer has an order");
        lines.clear();
        counts.remove("order_line");
        let expected = [
            ("customer", 12_000),
            ("district", 10),
            ("history", 12_000),
            ("new_order", 3_600),
            ("orders", 12_000),
            ("stock", 300),
            ("warehouse", 1),
        ];
        assert_eq!(counts, BTreeMap::from(expected));
    }

    #[test]
    fn one_seed_gives_one_population_and_warehouses_differ() {
        assert_eq!(rows(1), rows(1));
        let names = |rows: Vec<Row>| match &rows[0] {
            Row::Warehouse(row) => row.name.clone(),
            other => panic!("{other:?}"),
        };
        assert_ne!(names(rows(1)), names(rows(2)));
        let mut items = 0;
        let done: Result<(), Infallible> = POPULATION.items(|row| {
            items += u32::from(matches!(row, Row::Item(_)));
            Ok(())
        });
        assert!(done.is_ok() && items == 300);
    }

    #[test]
    fn what_takes_the_rows_may_fail() {
        let mut left = 5;
        let done = POPULATION.warehouse(1, |_| {
            left -= 1;
            if left == 0 { Err("full") } else { Ok(()) }
        });
        assert_eq!(done, Err("full"));
        assert_eq!(POPULATION.items(|_| Err("full")), Err("full"));
    }
}
