//! The table of signals whose default ends or stops a process, and the action of each process on them.
//!
//! A signal of [`TABLE`] that is ignored gets a handler that does nothing. Unlike the disposition to ignore, a handler
//! is not inherited by programs that this one runs. SIGTERM and similar signals are handled by the processes that act
//! on them: `perdura_server::serve` and `perdura_logd::serve`.

use std::sync::Arc;

use signal_hook::consts::signal as s;

/// The action of a process on a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// Nothing.
    Ignores,
    /// Ends or stops, as by default.
    Usual,
    /// Ends cleanly.
    Ends,
    /// Reads certificates again.
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

/// A signal, and the actions of processes on it.
#[derive(Debug)]
pub struct Row {
    /// The number.
    pub number: i32,
    /// Its name.
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

/// All signals that can be caught and whose default ends or stops a process. Signals of a fault in the program
/// (SIGSEGV, SIGABRT and similar ones) and the real-time signals keep their default.
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

/// Ignores the signals that a verb ignores according to `of`. SIGPIPE is ignored since the program began.
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
