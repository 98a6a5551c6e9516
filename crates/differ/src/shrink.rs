//! Shortens a script that fails.
//!
//! It leaves out ranges of units. At first a range is half of the script, later ranges are smaller and smaller. A range
//! stays out if the shorter script still fails.

use crate::script::Script;
use crate::step::Unit;
use std::time::{Duration, Instant};

/// Returns the shortest failing script that it finds within the time `budget`. `fails` runs a script on servers
/// without data.
pub fn shrink(
    script: &Script,
    budget: Duration,
    mut fails: impl FnMut(&Script) -> bool,
) -> Vec<Unit> {
    let begun = Instant::now();
    let mut best = script.clone();
    let mut stretch = best.units.len().div_ceil(2);
    while stretch > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < best.units.len() {
            if begun.elapsed() > budget {
                return best.units;
            }
            let mut attempt = best.clone();
            let end = (at + stretch).min(attempt.units.len());
            attempt.units.drain(at..end);
            if fails(&attempt) {
                best = attempt;
                shorter = true;
            } else {
                at = end;
            }
        }
        if stretch > 1 {
            stretch = stretch.div_ceil(2);
        } else if !shorter {
            break;
        }
    }
    best.units
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Step;

    #[test]
    fn what_is_needed_is_kept_and_the_rest_goes() {
        let units = (0..100).map(|n| vec![Step::Sleep(n)]).collect();
        let script = Script {
            seed: 0,
            resp3: [false; 5],
            units,
        };
        let needs = |script: &Script| {
            let has = |n| script.units.contains(&vec![Step::Sleep(n)]);
            has(3) && has(77)
        };
        let short = shrink(&script, Duration::from_secs(10), needs);
        assert_eq!(short, [vec![Step::Sleep(3)], vec![Step::Sleep(77)]]);
    }
}
