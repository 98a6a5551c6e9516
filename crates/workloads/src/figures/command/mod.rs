//! The figures of *Rethinking Main Memory OLTP Recovery* (001): a command log, a value log and no log.
//!
//! | module | one idea |
//! |---|---|
//! | [`rates`] | figures 3, 4, 6, 7: throughput and latency by the clients' rate |
//! | [`replay`] | figures 5 and 8: the speed of a replay |
//! | [`distributed`] | figure 9: by the share of distributed transactions |
//! | [`replicas`] | figure 10: as figure 9, with three databases that are fed one order |
//! | [`bytes`] | section V-C3: the bytes that one transaction logs |
//! | [`size`] | section V-C4: the cost of a value log's size, and that of its CPU |
//! | [`sweep`] | schemes and rates, measured in turn |
//! | [`stand`] | a database in memory with a workload; a crash of it and its restarts |
//! | [`scale`] | the sizes of the experiments |
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section V.
//!
//! # Deviations
//! Client and server share a process and a machine, so a rate is a schedule of intended starts. One core is left to
//! the log's flusher and the checkpoints. The paper's physiological log is the value log here. It has the columns
//! that changed and no before-images, as in the paper after its optimizations. The log's disk is modelled in front of
//! memory ([`stand`]).

pub mod bytes;
pub mod distributed;
pub mod rates;
pub mod replay;
pub mod replicas;
pub mod scale;
pub mod size;
pub mod stand;
pub mod sweep;

use perdura::ValueForm;

use crate::drive::LogScheme;

/// The value log in the paper's form: it has the columns that changed.
pub const VALUE: LogScheme = LogScheme::Value(ValueForm::Columns);

/// The paper's three modes, in the order of its legends.
pub const SCHEMES: [LogScheme; 3] = [LogScheme::Command, VALUE, LogScheme::None];

/// Returns a mode's name in legends.
fn label(scheme: LogScheme) -> &'static str {
    match scheme {
        LogScheme::None => "No log",
        LogScheme::Differential => "Differential log",
        LogScheme::Value(ValueForm::Columns) => "Value log",
        LogScheme::Value(ValueForm::Rows) => "Value log, whole rows",
        LogScheme::Value(ValueForm::Before) => "Value log, rows before and after",
        LogScheme::Command => "Command log",
    }
}
