//! The common part of `perdura bench tpcc` and `perdura bench voter`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perdura::ValueForm;
use perdura_base::limits::PARTITIONS_MAX;
use perdura_heap::SnapshotMode;
use perdura_server::settings::units;
use perdura_workloads::drive::{Beside, LogScheme, Site};

use super::drive::DriveArgs;
use crate::exit::Usage;

/// The log's form of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemeArg {
    /// Nothing is logged. This measures the cost of logging.
    None,
    /// The bytes that changed in pages.
    Differential,
    /// The rows that changed.
    Value,
    /// The procedure and its arguments.
    Command,
}

/// The form of a changed row in the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormArg {
    /// The columns that changed.
    Columns,
    /// The whole row.
    Rows,
    /// The whole row, before and after the change.
    Before,
}

/// The form of changed data in a checkpoint.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SnapshotArg {
    /// Byte ranges of pages.
    Pages,
    /// Copies of rows.
    Rows,
}

#[derive(Debug, Args)]
pub struct TypedArgs {
    /// The log's form of a transaction.
    #[arg(long, value_enum, default_value = "command")]
    scheme: SchemeArg,
    /// With --scheme value: the form of a changed row in the log.
    #[arg(long, value_enum, default_value = "columns")]
    value_form: FormArg,
    /// The data that a running checkpoint keeps of a changed page: bytes of the page, or rows with three bits each, as
    /// in paper 001.
    #[arg(long, value_enum, default_value = "pages")]
    snapshot: SnapshotArg,
    /// Take a checkpoint at this interval.
    #[arg(long, value_name = "S", value_parser = units::duration)]
    snapshot_every: Option<Duration>,
    /// After the run, start transactions at half of the measured throughput. Print their latencies, and the latencies
    /// of a sync while the device is idle.
    #[arg(long, conflicts_with = "txns")]
    half_load: bool,
    /// After the run, run once more during successive checkpoints. Then run again without checkpoints, on the grown
    /// database. Print the throughputs, and the size of the memory that the checkpoints use for changed data.
    #[arg(long, conflicts_with = "txns")]
    under_checkpoints: bool,
    #[command(flatten)]
    pub drive: DriveArgs,
}

impl TypedArgs {
    /// Returns the additional measurements that follow the run.
    pub fn beside(&self) -> Beside {
        Beside {
            half_load: self.half_load,
            checkpoints: self.under_checkpoints,
        }
    }

    /// Returns the location of the database and the form of its log.
    ///
    /// A new database has as many partitions as the workload can use, and every partition has a copy of each
    /// replicated row.
    pub fn site(&self, homes: u16) -> Result<Site> {
        let form = match self.value_form {
            FormArg::Columns => ValueForm::Columns,
            FormArg::Rows => ValueForm::Rows,
            FormArg::Before => ValueForm::Before,
        };
        let scheme = match self.scheme {
            SchemeArg::None => LogScheme::None,
            SchemeArg::Differential => LogScheme::Differential,
            SchemeArg::Value => LogScheme::Value(form),
            SchemeArg::Command => LogScheme::Command,
        };
        let workers = u16::try_from(self.drive.workers).unwrap_or(u16::MAX);
        let partitions = homes.max(workers).min(PARTITIONS_MAX).next_power_of_two();
        debug_assert!(partitions <= PARTITIONS_MAX, "the most is a power of two");
        let mut options = self.drive.options(Some(partitions))?;
        options.snapshot_mode = match self.snapshot {
            SnapshotArg::Pages => SnapshotMode::Pages,
            SnapshotArg::Rows => SnapshotMode::Rows,
        };
        if self.snapshot_every.is_some_and(|every| every.is_zero()) {
            bail!(Usage("--snapshot-every is above 0".into()));
        }
        Ok(Site {
            snapshot_every: self.snapshot_every,
            ..self.drive.site(options, scheme)
        })
    }
}
