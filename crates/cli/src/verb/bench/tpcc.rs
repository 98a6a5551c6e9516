//! `perdura bench tpcc`

use anyhow::{Result, bail};
use clap::Parser;
use perdura_workloads::drive::RunReport;
use perdura_workloads::tpcc::bench::{TpccBench, check};
use perdura_workloads::tpcc::check::Condition;
use perdura_workloads::tpcc::inputs::{Mix, Scale};
use serde::Serialize;

use super::drive;
use super::typed::TypedArgs;
use crate::exit::{Inconsistent, Usage};
use crate::output;

/// Run TPC-C: orders and payments, with nine tables and five transactions.
///
/// The database is populated if it is empty. Warehouses are numbered from 1. The partition of a warehouse is its number
/// modulo the number of partitions. Each warehouse belongs to one worker.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura bench tpcc --scheme none --seconds 5\n  \
    perdura bench tpcc --scheme command --warehouses 8 --workers 2 --data d --rate 20000 --json\n  \
    perdura bench tpcc --data d --txns 100000 --crash --digest\n  \
    perdura bench tpcc --data d --check")]
pub struct TpccArgs {
    /// Number of warehouses.
    #[arg(long, value_name = "W", default_value_t = 1)]
    warehouses: u16,
    /// Number of items. The specification says 100000.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    items: u32,
    /// Customers of a district. The specification says 3000.
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    customers: u32,
    /// The percentage of order lines supplied by a remote warehouse.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    multi_partition: f64,
    /// The percentage of payments by a customer of a remote warehouse.
    #[arg(long, value_name = "X", default_value_t = 15.0)]
    remote_payments: f64,
    /// Run New-Order alone instead of the mix.
    #[arg(long)]
    new_order_only: bool,
    /// Check the twelve consistency conditions at the end. Without --txns and --seconds, only check.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    typed: TypedArgs,
}

impl TpccArgs {
    fn bench(&self) -> Result<TpccBench> {
        let percent = |percent: f64| (0.0..=100.0).contains(&percent);
        if !percent(self.multi_partition) || !percent(self.remote_payments) {
            bail!(Usage(
                "--multi-partition and --remote-payments are 0 to 100".into()
            ));
        }
        let mix = if self.new_order_only {
            Mix::new_order_only(self.multi_partition)
        } else {
            Mix {
                remote_lines: self.multi_partition,
                remote_payments: self.remote_payments,
                ..Mix::default()
            }
        };
        let scale = Scale {
            warehouses: self.warehouses,
            items: self.items,
            customers: self.customers,
        };
        scale.check().map_err(Usage)?;
        Ok(TpccBench {
            site: self.typed.site(self.warehouses)?,
            scale,
            mix,
            seed: self.typed.drive.seed,
            drive: Some(self.typed.drive.drive()?),
            own_dates: self.typed.drive.is_counted(),
            digest: self.typed.drive.digest,
        })
    }
}

/// The JSON output.
#[derive(Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    report: Option<&'a RunReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<&'a [Condition]>,
}

pub fn run(args: &TpccArgs) -> Result<()> {
    let bench = args.bench()?;
    let (report, db) = if args.check && !args.typed.drive.asks_for_a_run() {
        (None, bench.open_populated()?)
    } else {
        let mut ended = bench.run()?;
        bench.run_beside(&ended.db, args.typed.beside(), &mut ended.report)?;
        (Some(ended.report), ended.db)
    };
    debug_assert!(
        report.is_some() || args.check,
        "there is something to print"
    );
    let conditions = args.check.then(|| check(&db)).transpose()?;
    if args.typed.drive.json {
        output::json(&Found {
            report: report.as_ref(),
            conditions: conditions.as_deref(),
        })?;
    } else {
        let text = report.as_ref().map(drive::text).unwrap_or_default();
        let lines: String = conditions.iter().flatten().map(line_of).collect();
        output::text(&(text + &lines))?;
    }
    drive::cut_power(args.typed.drive.crash);
    bench.site.close(db)?;
    let conditions = conditions.unwrap_or_default();
    match conditions
        .iter()
        .filter(|found| found.violations > 0)
        .count()
    {
        0 => Ok(()),
        violated => bail!(Inconsistent(violated)),
    }
}

fn line_of(condition: &Condition) -> String {
    let Condition {
        number,
        says,
        violations,
        first,
    } = condition;
    match first {
        None => format!("condition {number:>2}  ok        {says}\n"),
        Some(first) => {
            format!("condition {number:>2}  violated  {says}: {violations} row(s), first {first}\n")
        }
    }
}
