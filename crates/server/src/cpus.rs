//! The CPUs on which the event loops run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

/// The maximum number of loops that a server starts without the setting `loops`.
const LOOPS_MAX: usize = 8;

/// The CPUs that the process could use when the first loop began.
static ALL: OnceLock<CpuSet> = OnceLock::new();

/// Returns the number of loops of a server without the setting `loops`. A CPU is left to the log and the checkpoints, if
/// there are more than two.
pub(crate) fn default_loops() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    loops_for(cpus)
}

fn loops_for(cpus: usize) -> usize {
    match cpus {
        ..=2 => 1,
        more => (more - 1).min(LOOPS_MAX),
    }
}

/// Returns the CPUs that a list such as `0,2,4-7` names.
///
/// # Errors
/// A description of what is wrong with the list.
pub(crate) fn parse(list: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let number = text.trim().parse::<usize>().ok();
            let number = number.filter(|cpu| *cpu < CpuSet::MAX_CPU);
            number.ok_or_else(|| format!("'{part}' is not a CPU or a range such as 4-7"))
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("the range '{part}' is empty"));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Returns the list that [`parse`] reads.
pub(crate) fn show(cpus: &[usize]) -> String {
    let each: Vec<String> = cpus.iter().map(usize::to_string).collect();
    each.join(",")
}

/// Fails unless this process may use each of these CPUs.
///
/// # Errors
/// A text that names the first CPU that may not be used.
pub(crate) fn check(cpus: &[usize]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let all = sched_getaffinity(None).map_err(|error| format!("loop-cpus: {error}"))?;
    match cpus.iter().find(|cpu| !all.is_set(**cpu)) {
        None => Ok(()),
        Some(cpu) => {
            let known = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
            let known = show(&known.collect::<Vec<_>>());
            Err(format!(
                "loop-cpus: this process may not use CPU {cpu}, only {known}"
            ))
        }
    }
}

/// Makes the calling thread, which runs a loop, use one of these CPUs. Without CPUs it does nothing.
pub(crate) fn pin(cpus: &[usize], event_loop: usize) -> std::io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let all = sched_getaffinity(None)?;
    // The first loop's thread knows the CPUs of the process.
    let _ = ALL.set(all);
    let mut own = CpuSet::new();
    own.set(cpus[event_loop % cpus.len()]);
    sched_setaffinity(None, &own)?;
    Ok(())
}

/// Makes the calling thread use all CPUs of the process. A thread that a loop has started is bound to the loop's CPU.
pub(crate) fn unpin() {
    if let Some(all) = ALL.get() {
        // The thread also works on one CPU.
        let _ = sched_setaffinity(None, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_has_numbers_and_ranges() {
        assert_eq!(parse("0, 2,4-6"), Ok(vec![0, 2, 4, 5, 6]));
        assert_eq!(parse(""), Ok(Vec::new()));
        assert_eq!(show(&[0, 2, 4]), "0,2,4");
        for (wrong, why) in [
            ("x", "'x' is not a CPU"),
            ("3-1", "'3-1' is empty"),
            ("99999", "'99999'"),
        ] {
            let error = parse(wrong).expect_err("no list");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        let last = CpuSet::MAX_CPU - 1;
        let error = check(&[last])
            .expect_err("there are not so many")
            .to_string();
        assert!(
            error.contains(&last.to_string()) && error.contains("loop-cpus"),
            "{error}"
        );
        check(&[]).expect("any CPU");
    }

    #[test]
    fn a_cpu_is_left_to_the_log() {
        assert_eq!([1, 2, 3, 4, 16].map(loops_for), [1, 1, 2, 3, 8]);
    }

    #[test]
    fn a_thread_of_a_pinned_loop_may_use_all_cpus_again() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).expect("a set");
            let first = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu));
            pin(&[first.expect("a CPU")], 3).expect("one CPU");
            assert_eq!(sched_getaffinity(None).expect("a set").count(), 1);
            unpin();
            assert_eq!(sched_getaffinity(None).expect("a set"), before);
        })
        .join()
        .expect("the thread");
    }
}
