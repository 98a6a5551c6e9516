//! The inputs of the five transactions, in the specification's mix.
//!
//! The kinds of transactions are dealt from a deck of a hundred cards. So each hundred transactions of a worker have
//! exactly the specified mix. A worker serves the terminals of some warehouses. It chooses the warehouse of each
//! transaction at random.
//!
//! # Source
//! TPC-C 5.11, clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1 (inputs) and 5.2.4.2 (the deck).
//!
//! # Deviations
//! Keying and think times are left out, as in papers that measure a database (001, section V-A). The district of
//! Stock-Level is chosen at random, not fixed for a terminal. The share of remote order lines is an option.

use super::random::{Constants, LAST_NAMES, Random, last_name};
use fastrand::Rng;
use perdura_base::checksum::mix64;

/// The number of districts of a warehouse.
pub const DISTRICTS: u8 = 10;
/// The maximum number of lines of an order.
pub const LINES_MAX: u8 = 15;
/// The minimum number of lines of an order.
pub const LINES_MIN: u8 = 5;

/// The size of the database. Tests may use smaller sizes than the specification requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// The number of warehouses. They are numbered from 1.
    pub warehouses: u16,
    /// The number of items, 100,000 in the specification.
    pub items: u32,
    /// The number of a district's customers, and of its orders in the initial population: 3,000 in the specification.
    pub customers: u32,
}

impl Scale {
    /// Returns the specification's scale with `warehouses` warehouses.
    #[must_use]
    pub fn of(warehouses: u16) -> Scale {
        Scale {
            warehouses,
            items: 100_000,
            customers: 3_000,
        }
    }

    /// Returns the number of different last names of a district's customers.
    #[must_use]
    pub fn last_names(&self) -> u32 {
        self.customers.min(LAST_NAMES)
    }

    /// Returns the order number of a district's first undelivered order in the initial population.
    #[must_use]
    pub fn first_new_order(&self) -> u32 {
        self.customers - self.customers * 3 / 10 + 1
    }

    /// Fails if a number is out of its range.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.warehouses == 0 || self.items == 0 || self.customers == 0 {
            return Err("there is at least one warehouse, item and customer".into());
        }
        if self.items == u32::MAX || self.customers == u32::MAX {
            return Err("a number behind the last item and customer is left".into());
        }
        Ok(())
    }
}

/// The kinds of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An order of 5 to 15 items.
    NewOrder,
    /// A payment of a customer.
    Payment,
    /// A customer's last order.
    OrderStatus,
    /// A delivery of the oldest new order of each district.
    Delivery,
    /// A count of the items in a district's last orders that are low in stock.
    StockLevel,
}

impl Kind {
    /// All kinds, in the order of [`index`](Self::index).
    pub const ALL: [Kind; 5] = [
        Kind::NewOrder,
        Kind::Payment,
        Kind::OrderStatus,
        Kind::Delivery,
        Kind::StockLevel,
    ];
    /// The names of the kinds, in the order of [`ALL`](Self::ALL).
    pub const NAMES: [&str; 5] = [
        "new_order",
        "payment",
        "order_status",
        "delivery",
        "stock_level",
    ];

    /// Returns the index of the kind in tables.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Kind::NewOrder => 0,
            Kind::Payment => 1,
            Kind::OrderStatus => 2,
            Kind::Delivery => 3,
            Kind::StockLevel => 4,
        }
    }
}

/// The frequencies of the inputs.
#[derive(Debug, Clone)]
pub struct Mix {
    /// The number of transactions of each kind, in a hundred transactions, in the order of [`Kind::ALL`].
    pub cards: [u8; 5],
    /// The percentage of order lines supplied by a remote warehouse.
    pub remote_lines: f64,
    /// The percentage of payments for a customer of a remote warehouse.
    pub remote_payments: f64,
    /// The percentage of New-Orders that name a missing item, and therefore abort.
    pub rollbacks: f64,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            cards: [45, 43, 4, 4, 4],
            remote_lines: 1.0,
            remote_payments: 15.0,
            rollbacks: 1.0,
        }
    }
}

impl Mix {
    /// Returns a mix of New-Order alone.
    #[must_use]
    pub fn new_order_only(remote_lines: f64) -> Mix {
        Mix {
            cards: [100, 0, 0, 0, 0],
            remote_lines,
            ..Mix::default()
        }
    }
}

/// A terminal's way of identifying a customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Customer {
    /// By number.
    Id(u32),
    /// By last name: the middle customer with that name, ordered by first name.
    Last(String),
}

/// A line of an order as an argument: the item, the warehouse that supplies it, the quantity.
pub type Line = (u32, u16, u8);

/// A transaction's inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The inputs of [`Kind::NewOrder`].
    NewOrder {
        /// The warehouse.
        w: u16,
        /// The district.
        d: u8,
        /// The customer.
        c: u32,
        /// The lines.
        lines: Vec<Line>,
    },
    /// The inputs of [`Kind::Payment`].
    Payment {
        /// The warehouse.
        w: u16,
        /// The district.
        d: u8,
        /// The customer's warehouse.
        c_w: u16,
        /// The customer's district.
        c_d: u8,
        /// The customer.
        customer: Customer,
        /// The amount, cents.
        amount: u32,
    },
    /// The inputs of [`Kind::OrderStatus`].
    OrderStatus {
        /// The warehouse.
        w: u16,
        /// The district.
        d: u8,
        /// The customer.
        customer: Customer,
    },
    /// The inputs of [`Kind::Delivery`].
    Delivery {
        /// The warehouse.
        w: u16,
        /// The carrier of the orders.
        carrier: u8,
    },
    /// The inputs of [`Kind::StockLevel`].
    StockLevel {
        /// The warehouse.
        w: u16,
        /// The district.
        d: u8,
        /// The threshold: items with a smaller stock are counted.
        threshold: i16,
    },
}

impl Input {
    /// Returns the kind of the transaction.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Input::NewOrder { .. } => Kind::NewOrder,
            Input::Payment { .. } => Kind::Payment,
            Input::OrderStatus { .. } => Kind::OrderStatus,
            Input::Delivery { .. } => Kind::Delivery,
            Input::StockLevel { .. } => Kind::StockLevel,
        }
    }

    /// Returns whether this is a New-Order with items from another warehouse.
    #[must_use]
    pub fn is_distributed(&self) -> bool {
        match self {
            Input::NewOrder { w, lines, .. } => lines.iter().any(|(_, supplier, _)| supplier != w),
            _ => false,
        }
    }
}

/// The sequence of one worker's inputs.
#[derive(Debug, Clone)]
pub struct Inputs {
    random: Random,
    scale: Scale,
    mix: Mix,
    /// The home warehouses of this worker's terminals.
    homes: Vec<u16>,
    deck: Vec<Kind>,
    dealt: usize,
}

impl Inputs {
    /// Returns the inputs of worker `worker` of `workers`. The worker serves every `workers`th warehouse, or all
    /// warehouses if there are fewer warehouses than workers.
    #[must_use]
    pub fn new(scale: Scale, mix: Mix, seed: u64, worker: usize, workers: usize) -> Inputs {
        assert!(worker < workers, "workers are counted from 0");
        let total: u32 = mix.cards.iter().map(|count| u32::from(*count)).sum();
        assert_eq!(total, 100, "a deck has a hundred cards");
        let constants = Constants::of_run(&mut Rng::with_seed(mix64(seed)));
        let number = u64::try_from(worker).expect("a number of a thread");
        let own = mix64(seed) ^ mix64(!number);
        let all = 1..=scale.warehouses;
        let homes: Vec<u16> = if usize::from(scale.warehouses) < workers {
            all.collect()
        } else {
            all.skip(worker).step_by(workers).collect()
        };
        Inputs {
            random: Random::of_run(own, constants),
            scale,
            homes,
            deck: Kind::ALL
                .into_iter()
                .zip(mix.cards)
                .flat_map(|(kind, count)| std::iter::repeat_n(kind, usize::from(count)))
                .collect(),
            dealt: 100,
            mix,
        }
    }

    /// Returns the inputs of the next transaction.
    pub fn next_input(&mut self) -> Input {
        if self.dealt == self.deck.len() {
            self.random.shuffle(&mut self.deck);
            self.dealt = 0;
        }
        let kind = self.deck[self.dealt];
        self.dealt += 1;
        let w = self.home();
        let d = self.district();
        match kind {
            Kind::NewOrder => self.new_order(w, d),
            Kind::Payment => self.payment(w, d),
            Kind::OrderStatus => Input::OrderStatus {
                w,
                d,
                customer: self.customer(),
            },
            Kind::Delivery => Input::Delivery {
                w,
                carrier: self.byte(1, 10),
            },
            Kind::StockLevel => Input::StockLevel {
                w,
                d,
                threshold: i16::from(self.byte(10, 20)),
            },
        }
    }

    fn new_order(&mut self, w: u16, d: u8) -> Input {
        let c = self.random.customer(self.scale.customers);
        let count = self.byte(LINES_MIN, LINES_MAX);
        let rolls_back = self.random.percent(self.mix.rollbacks);
        let mut lines = Vec::with_capacity(usize::from(count));
        for number in 1..=count {
            let item = if rolls_back && number == count {
                // No item has this number. It is one above the highest number of an item.
                self.scale.items + 1
            } else {
                self.random.item(self.scale.items)
            };
            let remote = self.random.percent(self.mix.remote_lines);
            let supplier = if remote { self.other(w) } else { w };
            lines.push((item, supplier, self.byte(1, 10)));
        }
        Input::NewOrder { w, d, c, lines }
    }

    fn payment(&mut self, w: u16, d: u8) -> Input {
        let (c_w, c_d) = if self.random.percent(self.mix.remote_payments) {
            (self.other(w), self.district())
        } else {
            (w, d)
        };
        Input::Payment {
            w,
            d,
            c_w,
            c_d,
            customer: self.customer(),
            amount: self.random.uniform(100, 500_000),
        }
    }

    /// Chooses a customer at random: by last name in six of ten cases, and otherwise by number.
    fn customer(&mut self) -> Customer {
        if self.random.percent(60.0) {
            Customer::Last(last_name(self.random.last_name(self.scale.last_names())))
        } else {
            Customer::Id(self.random.customer(self.scale.customers))
        }
    }

    fn home(&mut self) -> u16 {
        match self.homes.as_slice() {
            [only] => *only,
            homes => {
                let last = u32::try_from(homes.len() - 1).expect("at most 65535 warehouses");
                let at = self.random.uniform(0, last);
                homes[usize::try_from(at).expect("below their number")]
            }
        }
    }

    /// Chooses a warehouse other than `w` at random, or returns `w` if there is no other.
    fn other(&mut self, w: u16) -> u16 {
        if self.scale.warehouses == 1 {
            return w;
        }
        let drawn = self.random.uniform(1, u32::from(self.scale.warehouses) - 1);
        let drawn = u16::try_from(drawn).expect("below the number of warehouses");
        let other = if drawn >= w { drawn + 1 } else { drawn };
        debug_assert!(other != w && other <= self.scale.warehouses, "another one");
        other
    }

    fn district(&mut self) -> u8 {
        self.byte(1, DISTRICTS)
    }

    fn byte(&mut self, low: u8, high: u8) -> u8 {
        let drawn = self.random.uniform(u32::from(low), u32::from(high));
        u8::try_from(drawn).expect("between bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(warehouses: u16) -> Scale {
        Scale {
            warehouses,
            items: 500,
            customers: 60,
        }
    }

    #[test]
    fn each_hundred_transactions_have_the_mix_and_the_shares_are_right() {
        let mut inputs = Inputs::new(small(4), Mix::default(), 1, 0, 1);
        let (mut lines, mut remote_lines, mut rollbacks, mut remote_payments, mut by_name) =
            (0u32, 0u32, 0u32, 0u32, 0u32);
        for _ in 0..400 {
            let mut counts = [0u8; 5];
            for _ in 0..100 {
                let input = inputs.next_input();
                counts[input.kind().index()] += 1;
                match input {
                    Input::NewOrder { w, lines: all, .. } => {
                        assert!((5..=15).contains(&all.len()));
                        lines += u32::try_from(all.len()).unwrap();
                        for (_, supplier, quantity) in &all {
                            remote_lines += u32::from(*supplier != w);
                            assert!((1..=4).contains(supplier));
                            assert!((1..=10).contains(quantity));
                        }
                        let (last, others) = all.split_last().unwrap();
                        rollbacks += u32::from(last.0 == 501);
                        assert!(others.iter().all(|(item, ..)| *item <= 500));
                    }
                    Input::Payment {
                        w,
                        c_w,
                        customer,
                        amount,
                        ..
                    } => {
                        remote_payments += u32::from(w != c_w);
                        by_name += u32::from(matches!(customer, Customer::Last(_)));
                        assert!((100..=500_000).contains(&amount));
                    }
                    _ => {}
                }
            }
            assert_eq!(counts, [45, 43, 4, 4, 4]);
        }
        assert!(
            (1_350..=2_250).contains(&remote_lines),
            "{remote_lines} of {lines}"
        );
        assert!((120..=240).contains(&rollbacks), "{rollbacks} of 18000");
        assert!((2_300..=2_860).contains(&remote_payments), "of 17200");
        assert!((9_900..=10_750).contains(&by_name), "of 17200");
    }

    #[test]
    fn workers_share_out_the_warehouses() {
        let homes = |worker, workers| {
            let mut inputs = Inputs::new(small(5), Mix::default(), 1, worker, workers);
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..200 {
                if let Input::NewOrder { w, .. } = inputs.next_input() {
                    seen.insert(w);
                }
            }
            seen.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(homes(0, 2), [1, 3, 5]);
        assert_eq!(homes(1, 2), [2, 4]);
        assert_eq!(homes(7, 8), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn one_warehouse_has_no_remote_lines_and_one_seed_one_sequence() {
        let mut mix = Mix::new_order_only(100.0);
        let of = |mix: &Mix, scale, seed| {
            let mut inputs = Inputs::new(scale, mix.clone(), seed, 0, 1);
            (0..50).map(|_| inputs.next_input()).collect::<Vec<_>>()
        };
        let all_remote = |inputs: &[Input]| {
            inputs.iter().all(|input| match input {
                Input::NewOrder { w, lines, .. } => {
                    lines.iter().all(|(_, supplier, _)| supplier != w)
                }
                _ => false,
            })
        };
        assert!(all_remote(&of(&mix, small(2), 1)));
        assert!(!all_remote(&of(&mix, small(1), 1)));
        mix.remote_lines = 0.0;
        assert_eq!(of(&mix, small(2), 1), of(&mix, small(2), 1));
        assert_ne!(of(&mix, small(2), 1), of(&mix, small(2), 2));
    }

    #[test]
    fn scales_out_of_range_are_refused() {
        assert_eq!(Scale::of(1).check(), Ok(()));
        assert_eq!(Scale::of(1).first_new_order(), 2_101);
        assert!(Scale::of(0).check().is_err());
        let mut huge = Scale::of(1);
        huge.items = u32::MAX;
        assert!(huge.check().is_err());
    }
}
