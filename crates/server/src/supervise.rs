//! Reports to the service manager. The reports name the server's state: loading with the progress, serving, or ending.
//! On systemd's request, a report confirms that the loop runs.
//!
//! Only a server that runs as a separate process reports ([`crate::serve`]). An embedded server leaves the reports to
//! the host program.

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
    /// The time between two signs of life for the watchdog. `None`: systemd requests no signs of life.
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
            // As the manual of systemd demands, the server reports after half of the watchdog's limit.
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
        // If the manager's socket is full, the next tick sends the report again. If the manager is gone, the
        // server continues without it.
        let sent = perdura_logging::notify(&message);
        if !sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            self.said = status;
        }
    }

    /// Reports the state of the server. The loop calls this regularly.
    fn tick(&mut self, state: &State) {
        let now = state.now;
        if let Some(every) = self.watchdog
            && state.common.silence(now) < every
            && self.heard.is_none_or(|at| now.duration_since(at) >= every)
        {
            self.heard = Some(now);
            let _ = perdura_logging::notify(&[NotifyState::Watchdog]);
        }
        match (&state.stage, &state.stopped) {
            (_, Some(why)) => self.tell(format!("Stopped: {why}"), &[]),
            (Stage::Loading(progress), None) => {
                let elapsed = now.duration_since(state.common.started);
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

    /// Reports the end of the server to the service manager, with a status text.
    pub(crate) fn tell_supervisor_of_the_end(&mut self, status: String) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.tell(status, &[NotifyState::Stopping]);
        }
    }
}
