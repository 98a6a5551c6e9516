//! The settings of the operator's log.

use super::kind::{Kind, known};
use super::row::{one, row, server};
use super::{Group, Setting};
use perdura_logging::{LogFormat, LogLevel};

pub(super) const LEVEL: Setting = row(
    "log-level",
    Group::Observation,
    Kind::Choice(LogLevel::NAMES),
    "The lowest level of the events in the log on stderr: warning (WARN and ERROR), notice (INFO \
     too), verbose (DEBUG too) or debug (everything).",
    server!(|o| one(o.log_level.name()), |o, v| known(
        &mut o.log_level,
        LogLevel::named(&v[0])
    )),
)
.live()
.redis("loglevel");

pub(super) const FORMAT: Setting = row(
    "log-format",
    Group::Observation,
    Kind::Choice(LogFormat::NAMES),
    "The format of the log's lines on stderr. json: one object for each line.",
    server!(|o| one(o.log_format.name()), |o, v| known(
        &mut o.log_format,
        LogFormat::named(&v[0])
    )),
);
