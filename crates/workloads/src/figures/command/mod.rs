//! The figures of *Rethinking Main Memory OLTP Recovery* (001): a command log, a value log and no log.
//!
//! | module | one idea |
//! |---|---|
//! | [`rates`] | figures 3 and 6: throughput by the clients' rate |
//! | [`latency`] | figures 4 and 7: latency by the clients' rate |
//! | [`clients`] | what limits clients without a rate |
//! | [`replay`] | figures 5 and 8: the speed of a replay |
//! | [`replayed`] | the claims of figures 5 and 8 |
//! | [`distributed`] | figure 9: throughput by the share of distributed transactions |
//! | [`replicas`] | figure 10: as figure 9, with three databases that run the same calls in the same order |
//! | [`gaps`] | the claims of figures 9 and 10 |
//! | [`bytes`] | section V-C3: the bytes that one transaction logs |
//! | [`size`] | section V-C4: the cost of a value log's size, and the cost of its CPU time |
//! | [`reading`] | section V-C5: the share of reading in a replay |
//! | [`sweep`] | schemes and rates, measured in turn |
//! | [`stand`] | a database in memory with a workload |
//! | [`crash`] | a crash of it, and its restarts |
//! | [`scale`] | the sizes of the experiments |
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section V.
//!
//! # Deviations
//! Client and server share a process and a machine, so a rate is a schedule of intended starts. One core is left to
//! the log's flusher and the checkpoints. The paper's physiological log is the value log here. It has the columns
//! that changed and no before-images, as in the paper after its optimizations. The log's disk is memory whose speed is
//! limited by a model ([`stand`]).

pub mod bytes;
pub mod clients;
pub mod crash;
pub mod distributed;
pub mod gaps;
pub mod latency;
pub mod rates;
pub mod reading;
pub mod replay;
pub mod replayed;
pub mod replicas;
pub mod scale;
pub mod size;
pub mod stand;
pub mod sweep;
#[cfg(test)]
mod testing;

use perdura::ValueForm;

use crate::drive::LogScheme;

/// The value log in the paper's form: it has the columns that changed.
pub const VALUE: LogScheme = LogScheme::Value(ValueForm::Columns);

/// The paper's three modes, in the order of its legends.
pub const SCHEMES: [LogScheme; 3] = [LogScheme::Command, VALUE, LogScheme::None];

/// The lowest throughput of a log that costs nearly nothing, as a part of the throughput without a log. A value log has
/// this throughput in the paper's Voter, where it "suffers about 15% drop".
const CHEAP: f64 = 0.85;
/// The most CPU time that a log adds to a transaction if it costs nearly nothing, as a part of the CPU time without a
/// log.
const CHEAP_CPU: f64 = 1.0 / CHEAP - 1.0;

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
