//! New-Orders of a database whose warehouses are on several sites.
//!
//! An order with items of other warehouses is distributed. Its sites exchange what they read, and then agree to commit.
//! Each of these costs a round trip. Nothing is sent here, but the time really passes: the transaction sleeps for two
//! round trips while it holds its partitions.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), sections II-B and V-C6.

use std::time::Duration;

use anyhow::{Result, bail};
use perdura::{Builder, Db};
use perdura_base::Epoch;
use perdura_table::{Procedure, procedure};

use super::bench::{FIRST_DATE, declare, ended};
use super::inputs::{Input, Inputs, Kind, Line};
use super::procedures::{Ordered, new_order};
use super::schema::{Stock, Warehouse};
use crate::drive::{Load, Submitted};

/// The time of a round trip between sites: Gigabit Ethernet, and the programs at both ends.
pub const ROUND_TRIP: Duration = Duration::from_micros(200);
/// The number of round trips of a distributed transaction: one for the work, one for the commit.
pub const ROUND_TRIPS: u32 = 2;

procedure! {
    /// Enters an order whose items are on several sites. It does the same as `new_order`, and waits for the other sites
    /// before the work and before the commit or rollback.
    pub fn new_order_of_sites(cx, w: u16, d: u8, c: u32, lines: Vec<Line>, at: u32) -> Ordered,
    on [Warehouse(w), Stock(each lines.iter().map(|line| line.1))] {
        std::thread::sleep(ROUND_TRIP);
        let ordered = <new_order as Procedure>::run(cx, (w, d, c, lines, at));
        std::thread::sleep(ROUND_TRIP);
        ordered
    }
}

/// Adds the tables and procedures of TPC-C, and that of distributed orders.
pub fn declare_sites(builder: Builder) -> Builder {
    declare(builder).procedure(new_order_of_sites)
}

/// The terminals of all warehouses. They enter New-Orders only.
pub(crate) struct SiteTerminals<'a> {
    db: &'a Db,
    inputs: Inputs,
    date: u32,
}

impl<'a> SiteTerminals<'a> {
    /// Returns terminals that enter these inputs. Dates are computed from the number of the transaction.
    pub(crate) fn new(db: &'a Db, inputs: Inputs) -> SiteTerminals<'a> {
        SiteTerminals {
            db,
            inputs,
            date: FIRST_DATE,
        }
    }
}

impl Load for SiteTerminals<'_> {
    fn step(&mut self) -> Result<Submitted> {
        let input = self.inputs.next_input();
        let is_distributed = input.is_distributed();
        let Input::NewOrder { w, d, c, lines } = input else {
            bail!("these terminals enter New-Orders only");
        };
        let args = (w, d, c, lines, self.date);
        self.date += 1;
        let done = if is_distributed {
            ended(self.db.submit(new_order_of_sites, args))?
        } else {
            ended(self.db.submit(new_order, args))?
        };
        Ok(Submitted {
            kind: Kind::NewOrder.index(),
            // A rolled-back transaction has nothing that could become durable.
            epoch: done.unwrap_or(Epoch(0)),
            aborted: done.is_none(),
            log_bytes: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use perdura::Options;

    use super::super::bench::TpccBench;
    use super::super::inputs::{Mix, Scale};
    use super::*;
    use crate::drive::{LogScheme, Site};

    #[test]
    fn a_distributed_order_does_the_same_and_takes_its_round_trips() {
        let scale = Scale {
            warehouses: 2,
            items: 100,
            customers: 30,
        };
        let inputs = Inputs::new(scale, Mix::new_order_only(40.0), 1, 0, 1);
        let distributed = inputs.clone();
        let count = 20;
        let run = |waits: bool| {
            let bench = TpccBench {
                site: Site::new(Options::new("sites"), true, LogScheme::Command),
                scale,
                mix: Mix::default(),
                seed: 1,
                drive: None,
                own_dates: true,
                digest: false,
            };
            let disks = bench.site.memory();
            let db = bench.site.open_on(disks, None, declare_sites).unwrap();
            bench.populate(&db).unwrap();
            let mut terminals = SiteTerminals::new(&db, inputs.clone());
            let begin = Instant::now();
            for date in 0..count {
                if waits {
                    terminals.step().unwrap();
                } else if let Input::NewOrder { w, d, c, lines } = terminals.inputs.next_input() {
                    let args = (w, d, c, lines, FIRST_DATE + date);
                    ended(db.submit(new_order, args)).unwrap();
                }
            }
            let took = begin.elapsed();
            let digest = db.digest().unwrap();
            db.abandon();
            (digest, took)
        };
        let mut distributed = distributed;
        let waits = (0..count)
            .filter(|_| distributed.next_input().is_distributed())
            .count();
        assert!(waits > 10, "nearly all are distributed");
        let (waited, took) = run(true);
        let (same, _) = run(false);
        assert_eq!(waited, same);
        let least = ROUND_TRIP * ROUND_TRIPS * u32::try_from(waits).unwrap();
        assert!(took >= least, "{took:?} is as long as {least:?}");
    }
}
