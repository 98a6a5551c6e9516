//! One history for each size of memory and each checkpoint interval, and the restarts of its crash. A history and its
//! restarts are made when a figure first needs them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, ensure};
use perdura_recovery::Method;
use perdura_recovery::report::TreeReport;

use super::super::Lab;
use super::ground::Ground;
use super::history::{Crash, PAGE_BYTES, Plan, READERS, Table, VALUE_BYTES, run};
use super::restarts::{self, Timed, counted};
use super::scale::Size;
use super::{METHODS, Named, method_of};

/// The reports of restarts of one crash by all methods, at full speed.
pub(super) struct Counted {
    pub reports: BTreeMap<&'static str, TreeReport>,
}

impl Counted {
    /// Returns the report of one method.
    pub fn of(&self, method: &'static str) -> &TreeReport {
        &self.reports[method]
    }
}

type Kept<K, V> = RefCell<BTreeMap<K, Rc<V>>>;

/// The table, the histories and the restarts of paper 002's experiments.
pub struct LogicalStand {
    pub(super) ground: Ground,
    pub(super) size: Size,
    pub(super) seed: u64,
    pub(super) table: Table,
    crashes: Kept<Plan, Crash>,
    counted: Kept<Plan, Counted>,
    timed: Kept<(Plan, &'static str), Timed>,
}

/// Returns the value of a key. The first call for a key makes the value and stores it.
fn kept<K: Ord + Copy, V>(
    of: &Kept<K, V>,
    key: K,
    make: impl FnOnce() -> Result<V>,
) -> Result<Rc<V>> {
    if let Some(found) = of.borrow().get(&key) {
        return Ok(Rc::clone(found));
    }
    let made = Rc::new(make()?);
    of.borrow_mut().insert(key, Rc::clone(&made));
    Ok(made)
}

impl LogicalStand {
    /// Makes the table, in memory or in a new directory in `data`.
    ///
    /// # Errors
    /// Errors of the database; a directory that cannot be made.
    pub(in super::super) fn new(lab: &Lab<'_>, data: Option<&Path>) -> Result<LogicalStand> {
        let ground = Ground::new(data)?;
        let scale = &lab.scale.logical;
        let size = Size {
            divisor: match ground.is_own() {
                true => scale.own_divisor,
                false => scale.divisor,
            },
        };
        lab.say(&format!("a table of {} pages", size.pages()));
        let table = Table::new(&ground, PAGE_BYTES, size, lab.seed)?;
        Ok(LogicalStand {
            ground,
            size,
            seed: lab.seed,
            table,
            crashes: Kept::default(),
            counted: Kept::default(),
            timed: Kept::default(),
        })
    }

    /// Returns the crash of the history with this plan.
    pub(super) fn crash(&self, lab: &Lab<'_>, plan: Plan) -> Result<Rc<Crash>> {
        kept(&self.crashes, plan, || {
            lab.say(&format!(
                "a history: cache {} %, interval x{}",
                plan.cache, plan.interval
            ));
            run(&self.ground, &self.table, (self.size, plan), self.seed)
        })
    }

    /// Returns the reports of all methods for the crash of a plan. Fails if the methods end with different rows.
    pub(super) fn counted(&self, lab: &Lab<'_>, plan: Plan) -> Result<Rc<Counted>> {
        let crash = self.crash(lab, plan)?;
        kept(&self.counted, plan, || {
            let mut reports = BTreeMap::new();
            let mut digests = Vec::new();
            for Named { method, .. } in METHODS {
                let row = method_of(method)?;
                let (report, digest) = counted(&self.ground, &crash, row)?;
                digests.push(digest);
                reports.insert(method, report);
            }
            ensure!(
                digests.iter().all(|digest| *digest == digests[0]),
                "one crash, and methods that come to different rows: {digests:?}"
            );
            Ok(Counted { reports })
        })
    }

    /// Restarts a crash by several methods, at the speed of [`Ground::timed`]. The methods take turns, so that a slow
    /// phase of the machine affects all of them.
    pub(super) fn timed(
        &self,
        lab: &Lab<'_>,
        plan: Plan,
        methods: &[&Method],
    ) -> Result<Vec<Rc<Timed>>> {
        let crash = self.crash(lab, plan)?;
        let is_new = |method: &&&Method| !self.timed.borrow().contains_key(&(plan, method.name));
        let missing: Vec<&Method> = methods.iter().filter(is_new).copied().collect();
        let mut made: Vec<Timed> = missing.iter().map(|_| Timed::default()).collect();
        for round in 1..=lab.scale.logical.repeats.max(1) {
            // A disk's cache contains the pages that the last restart read. So each second round takes the methods in
            // reverse order.
            let mut turns: Vec<_> = missing.iter().zip(&mut made).collect();
            if round % 2 == 0 {
                turns.reverse();
            }
            for (method, timed) in turns {
                lab.say(&format!(
                    "cache {} %, interval x{}, round {round}: {}",
                    plan.cache, plan.interval, method.name
                ));
                let report = restarts::timed(&self.ground, &crash, method)?;
                timed.reports.push(report);
            }
        }
        let names = missing.iter().map(|method| (plan, method.name));
        let mut all = self.timed.borrow_mut();
        all.extend(names.zip(made.into_iter().map(Rc::new)));
        let of = |method: &&Method| Rc::clone(&all[&(plan, method.name)]);
        Ok(methods.iter().map(of).collect())
    }

    /// Returns a text that describes the setting.
    pub(super) fn setting(&self, lab: &Lab<'_>) -> Vec<String> {
        let size = self.size;
        let of_paper = match size.is_papers() {
            true => String::from("the paper's size"),
            false => format!("1/{} of the paper's size", size.divisor),
        };
        vec![
            format!(
                "{} pages of 8 KiB, {of_paper}; rows of 8 + {VALUE_BYTES} bytes, uniform updates, 10 a transaction; {} updates since the checkpoint, {} since the last Δ",
                self.table.pages,
                size.interval(),
                size.tail()
            ),
            String::from(
                "dirty pages up to 25 % of the memory, at least 10 checkpoints, memory filled twice; the history runs at full speed",
            ),
            format!(
                "{}; {READERS} readers; medians of {} restarts (dry runs: without undo); all methods come to one digest",
                self.ground.setting(),
                lab.scale.logical.repeats
            ),
        ]
    }
}
