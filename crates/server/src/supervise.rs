//! Reports to the service manager. They inform systemd that the server serves, how far a restart is, that
//! the server ends, and, if requested, that the loop still turns.
//!
//! Only a server that runs as a separate process reports ([`crate::serve`]). A server within another
//! program leaves that to the program.

use crate::loading;
use crate::state::{Stage, State};
use sd_notify::NotifyState;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// The status of a server that is ready.
const SERVING: &str = "Serving";

/// The service manager.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// The time between two signs of life that the watchdog requests. `None`: it requests none.
    watchdog: Option<Duration>,
    heard: Option<Instant>,
    said: String,
    ready: bool,
}

impl Supervisor {
    /// Returns the service manager. `None`: the process has none.
    pub(crate) fn from_environment() -> Option<Supervisor> {
        std::env::var_os("NOTIFY_SOCKET")?;
        Some(Supervisor {
            // It is half the time, as the manual demands.
            watchdog: sd_notify::watchdog_enabled().map(|limit| limit / 2),
            heard: None,
            said: String::new(),
            ready: false,
        })
    }

    fn tell(&mut self, status: String, first: &[NotifyState<'_>]) {
        if status == self.said && first.is_empty() {
            return;
        }
        let mut message = first.to_vec();
        message.push(NotifyState::Status(&status));
        // A manager that reads nothing now gets the report with the next tick. If it is gone, that is no
        // reason to stop.
        let sent = perdura_logging::notify(&message);
        if !sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            self.said = status;
        }
    }

    /// Reports the state of the server. The loop calls it regularly.
    fn tick(&mut self, state: &State) {
        let now = state.now;
        if let Some(every) = self.watchdog
            && self.heard.is_none_or(|at| now.duration_since(at) >= every)
        {
            self.heard = Some(now);
            let _ = perdura_logging::notify(&[NotifyState::Watchdog]);
        }
        match (&state.stage, &state.stopped) {
            (_, Some(why)) => self.tell(format!("Stopped: {why}"), &[]),
            (Stage::Loading(progress), None) => {
                let elapsed = now.duration_since(state.started);
                self.tell(loading::status(progress, elapsed), &[]);
            }
            (Stage::Ready(_), None) if !self.ready => {
                self.tell(String::from(SERVING), &[NotifyState::Ready]);
                self.ready = self.said == SERVING;
            }
            (Stage::Ready(_), None) => {}
        }
    }
}

impl State {
    /// Reports the state of the server to the service manager.
    pub(crate) fn tell_supervisor(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            supervisor.tick(self);
            self.supervisor = Some(supervisor);
        }
    }

    /// Reports to it that the server ends, with a status.
    pub(crate) fn tell_supervisor_of_the_end(&mut self, status: String) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.tell(status, &[NotifyState::Stopping]);
        }
    }
}
