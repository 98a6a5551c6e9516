//! Tables 2 and 3 on real media. The log of TPC-C is on a mounted disk that takes the paper's time, or in the memories
//! of two `perdura logd` processes.
//!
//! | module | one idea |
//! |---|---|
//! | [`slow_disk`] | a mounted file system whose syncs take the time of formula 3 |
//! | [`processes`] | the nodes: processes that are started and stopped, or addresses |
//! | [`runs`] | the measured cells |
//! | [`disk_figure`] | the figure `003-table2-real` |
//! | [`nodes_figure`] | the figure `003-table3-real` |
//! | `claims` | the claims of both figures |

use anyhow::Result;

use super::super::Lab;

mod claims;
pub mod disk_figure;
pub mod nodes_figure;
pub mod processes;
pub mod runs;
pub mod slow_disk;

/// The names of the figures that need a mounted disk and nodes.
pub const NAMES: [&str; 2] = ["003-table2-real", "003-table3-real"];

/// Fails if the figures cannot be made here. Nothing is measured before.
///
/// # Errors
/// The first thing that is missing: the right to mount, a device, a program, a node.
pub fn check(lab: &Lab<'_>) -> Result<()> {
    slow_disk::check()?;
    lab.nodes_from()?.check()
}
