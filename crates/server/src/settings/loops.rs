//! The settings of event loops: their number and their CPUs.

use super::kind::Kind;
use super::row::{one, row, server};
use super::{Group, Setting};
use crate::cpus;
use std::num::NonZeroUsize;

/// The number of event loops.
pub const COUNT: Setting = row(
    "loops",
    Group::Network,
    Kind::Text,
    "Event loops: `auto`, or 1 to 128. Each has its own clients and uses one CPU; all use one log. auto: 1 on one or two \
     CPUs, otherwise one less than the CPUs, but at most 8.",
    server!(
        |o| one(o
            .loops
            .map_or_else(|| AUTO.into(), |loops| loops.to_string())),
        |o, v| {
            o.loops = parse(&v[0])?;
            Ok(())
        }
    ),
);

/// The value for a number of loops that depends on the machine.
const AUTO: &str = "auto";
/// The maximum number of loops.
const LOOPS_MAX: usize = 128;

/// Returns the number of loops. `None`: it depends on the machine.
fn parse(text: &str) -> Result<Option<NonZeroUsize>, String> {
    if text.eq_ignore_ascii_case(AUTO) {
        return Ok(None);
    }
    let loops = text.parse().ok().and_then(NonZeroUsize::new);
    let loops = loops.filter(|loops| loops.get() <= LOOPS_MAX);
    loops
        .map(Some)
        .ok_or_else(|| format!("argument must be {AUTO} or a number from 1 to {LOOPS_MAX}"))
}

/// The CPUs of the event loops.
pub const CPUS: Setting = row(
    "loop-cpus",
    Group::Network,
    Kind::Text,
    "The CPUs on which the loops run, one for each loop in turn, such as `0,2,4-7`.",
    server!(|o| one(cpus::show(&o.loop_cpus)), |o, v| {
        o.loop_cpus = cpus::parse(&v[0])?;
        Ok(())
    }),
)
.default("any");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_loops_is_at_least_one() {
        assert_eq!(parse("AUTO"), Ok(None));
        assert_eq!(parse("3"), Ok(NonZeroUsize::new(3)));
        for wrong in ["0", "129", "-1", "many", ""] {
            let error = parse(wrong).expect_err("no number of loops");
            assert!(error.contains("from 1 to 128"), "{wrong}: {error}");
        }
    }
}
