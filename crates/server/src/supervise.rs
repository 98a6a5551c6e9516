//! Talking to the service manager: systemd is told when the server serves, how far a restart is, that
//! it ends, and, if it wants to know, that the loop still turns.
//!
//! Only a server that runs as a separate process does this ([`crate::serve`]); one within another
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
    /// How often it wants to hear of us.
    watchdog: Option<Duration>,
    heard: Option<Instant>,
    said: String,
    ready: bool,
}

impl Supervisor {
    /// The service manager, if the process has one.
    pub(crate) fn from_environment() -> Option<Supervisor> {
        std::env::var_os("NOTIFY_SOCKET")?;
        Some(Supervisor {
            // Half the time, as the manual asks for.
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
        // One that reads nothing now is told with the next tick; one that has gone is no reason to stop.
        let sent = perdura_logging::notify(&message);
        if !sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            self.said = status;
        }
    }

    /// Says where the server stands; to be called now and then.
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
    /// Tells the service manager where the server stands.
    pub(crate) fn tell_supervisor(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            supervisor.tick(self);
            self.supervisor = Some(supervisor);
        }
    }

    /// Tells it that the server ends, and how.
    pub(crate) fn tell_supervisor_of_the_end(&mut self, status: String) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.tell(status, &[NotifyState::Stopping]);
        }
    }
}
