//! The settings of restarts.

use super::kind::{Kind, known, number};
use super::row::{count, database, one, row};
use super::{Group, Setting};
use perdura::{Level, OnDemand};

/// The choice of when a restart loads the data.
pub const ON_DEMAND: Setting = row(
    "on-demand",
    Group::Database,
    Kind::Choice(&["never", "always"]),
    "When a restart answers. never: it loads everything first. always: it answers at once, and \
         loads a partition when a request needs it.",
    database!(
        |o| {
            one(match o.on_demand {
                OnDemand::Never => "never",
                OnDemand::Always => "always",
            })
        },
        |o, v| {
            o.on_demand = match v[0].as_str() {
                "always" => OnDemand::Always,
                _ => OnDemand::Never,
            };
            Ok(())
        }
    ),
);

/// The parallelism of a restart.
pub const LEVEL: Setting = row(
    "restart-level",
    Group::Database,
    Kind::Integer { min: 1, max: 4 },
    "How parallel a restart is. 4: the log is applied while the image is loaded.",
    database!(|o| one(o.restart_level.number()), |o, v| known(
        &mut o.restart_level,
        v[0].parse().ok().and_then(Level::new)
    )),
);

/// The number of threads of a restart.
pub const THREADS: Setting = row(
    "threads",
    Group::Database,
    count(4096),
    "Threads that load the image and apply the log at a restart. 0: one a core.",
    database!(|o| one(o.threads), |o, v| number(&mut o.threads, &v[0])),
);
