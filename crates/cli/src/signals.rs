//! The table of signals that by default end or stop a process. It says what each kind of `perdura` process does
//! instead.
//!
//! An ignored signal of [`TABLE`] gets a handler that does nothing. A child process does not inherit a handler, but it
//! would inherit the disposition "ignore". `perdura_server::serve` and `perdura_logd::serve` handle the signals that
//! have an effect, such as SIGTERM.

use std::sync::Arc;

use signal_hook::consts::signal as s;

/// The reaction of a process to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// The process ignores the signal.
    Ignores,
    /// The default of the signal: the process ends or stops.
    Usual,
    /// The process ends cleanly.
    Ends,
    /// The process reads its certificates again.
    Reloads,
}

impl Does {
    #[cfg(test)]
    fn text(self) -> &'static str {
        match self {
            Does::Ignores => "ignored",
            Does::Usual => "default",
            Does::Ends => "clean end",
            Does::Reloads => "reads certificates again",
        }
    }
}

/// A signal, and the reaction of each kind of process to it.
#[derive(Debug)]
pub struct Row {
    /// The signal's number.
    pub number: i32,
    /// The signal's name.
    pub name: &'static str,
    /// `perdura serve`.
    pub serve: Does,
    /// `perdura logd`.
    pub logd: Does,
    /// `perdura archive agent`.
    pub agent: Does,
    /// Every other verb.
    pub others: Does,
}

const fn row(name: &'static str, number: i32, does: [Does; 4]) -> Row {
    let [serve, logd, agent, others] = does;
    Row {
        number,
        name,
        serve,
        logd,
        agent,
        others,
    }
}

use Does::{Ends, Ignores, Reloads, Usual};

/// All catchable signals that end or stop a process by default. Two groups are left out and keep the default: the
/// real-time signals, and signals of a fault in the program, such as SIGSEGV and SIGABRT.
pub const TABLE: &[Row] = &[
    row("SIGTERM", s::SIGTERM, [Ends, Ends, Usual, Usual]),
    row("SIGINT", s::SIGINT, [Ends, Ends, Usual, Usual]),
    row("SIGHUP", s::SIGHUP, [Reloads, Reloads, Ignores, Usual]),
    row("SIGXFSZ", s::SIGXFSZ, [Ignores; 4]),
    row("SIGUSR1", s::SIGUSR1, [Ignores; 4]),
    row("SIGUSR2", s::SIGUSR2, [Ignores; 4]),
    row("SIGPIPE", s::SIGPIPE, [Ignores; 4]),
    row("SIGALRM", s::SIGALRM, [Ignores; 4]),
    row("SIGVTALRM", s::SIGVTALRM, [Ignores; 4]),
    row("SIGPROF", s::SIGPROF, [Ignores; 4]),
    row("SIGIO", s::SIGIO, [Ignores; 4]),
    row("SIGPWR", libc::SIGPWR, [Ignores; 4]),
    row("SIGSTKFLT", libc::SIGSTKFLT, [Ignores; 4]),
    row("SIGXCPU", s::SIGXCPU, [Ends, Usual, Usual, Usual]),
    row("SIGQUIT", s::SIGQUIT, [Usual; 4]),
    row("SIGTSTP", s::SIGTSTP, [Usual; 4]),
    row("SIGTTIN", s::SIGTTIN, [Usual; 4]),
    row("SIGTTOU", s::SIGTTOU, [Usual; 4]),
];

/// Ignores a signal if `of` returns [`Does::Ignores`] for the signal's row. Leaves SIGPIPE alone, because a Rust
/// program ignores SIGPIPE from the start.
///
/// # Errors
/// Returns the system's error, with the name of the signal.
pub fn ignore(of: impl Fn(&Row) -> Does) -> std::io::Result<()> {
    let ignored = TABLE.iter().filter(|row| of(row) == Ignores);
    for row in ignored.filter(|row| row.number != s::SIGPIPE) {
        let name = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("cannot take {}: {error}", row.name))
        };
        signal_hook::flag::register(row.number, Arc::default()).map_err(name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_lists_what_processes_do_on_signals() {
        let manual = include_str!("../../../docs/operate/signals.md");
        for row in TABLE {
            let line = format!(
                "| {} | {} | {} | {} | {} |",
                row.name,
                row.serve.text(),
                row.logd.text(),
                row.agent.text(),
                row.others.text()
            );
            assert!(
                manual.contains(&line),
                "docs/operate/signals.md lacks {line}"
            );
        }
    }
}
