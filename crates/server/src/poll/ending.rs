//! The end of the loop: on request, or because the database has stopped.

use super::{EventLoop, FAREWELL, TICK};
use crate::engine::Db;
use crate::options::OnStop;
use std::time::{Duration, Instant};

/// The result of the loop.
pub(crate) struct Ended {
    /// The database. `None`: it had not opened.
    pub db: Option<Db>,
    /// The reason, which decides how the database is closed.
    pub how: Ending,
}

/// The reason why the loop ends.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A request or a signal asked the loop to end.
    Asked {
        /// True if the database is to be closed with a checkpoint.
        checkpoint: bool,
    },
    /// The database has stopped, for this reason.
    Failed(String),
}

/// The end of the loop, which has begun.
pub(super) struct Stopping {
    how: Ending,
    since: Instant,
}

impl EventLoop {
    /// Returns whether requests are still run. After the database has stopped, the server answers requests with errors
    /// until the server ends.
    pub(super) fn takes_requests(&self) -> bool {
        let stopping = self.stopping.as_ref();
        stopping.is_none_or(|stopping| matches!(stopping.how, Ending::Failed(_)))
    }

    pub(super) fn stop(&mut self, how: Ending) {
        if self.stopping.is_some() {
            return;
        }
        let status = match &how {
            Ending::Asked { checkpoint } => {
                self.crew.stop_others(self.state.event_loop, *checkpoint);
                if self.state.leads() {
                    tracing::info!("Ending: no more requests are accepted");
                }
                String::from("Ending, with a last checkpoint")
            }
            Ending::Failed(why) => {
                if self.state.leads() {
                    tracing::error!("{}", self.state.last_words());
                }
                format!("Ending, stopped: {why}")
            }
        };
        self.state.tell_supervisor_of_the_end(status);
        self.listeners.clear();
        (self.accept_pending, self.newcomers_left) = (false, false);
        self.stopping = Some(Stopping {
            how,
            since: Instant::now(),
        });
    }

    /// Returns the reason to end if the loop must end now. The loop ends once all replies have been sent, or at
    /// the deadline. After a failure it waits at least one tick, so that running requests get their error.
    pub(super) fn ended(&self) -> Option<Ending> {
        let stopping = self.stopping.as_ref()?;
        let owed = self
            .state
            .connections
            .iter()
            .any(|(_, c)| c.replies.unsent() > 0);
        let least = match stopping.how {
            Ending::Asked { .. } => Duration::ZERO,
            Ending::Failed(_) => TICK,
        };
        let elapsed = stopping.since.elapsed();
        let owed = owed || self.state.beside.is_busy();
        let ends = elapsed >= FAREWELL || (!owed && elapsed >= least);
        ends.then(|| stopping.how.clone())
    }

    pub(super) fn look_for_stop(&mut self) {
        let Some(why) = self.state.db().and_then(Db::is_stopped) else {
            return;
        };
        self.state.stopped = Some(why.clone());
        if !self.state.common.note_stop() {
            tracing::error!("The database has stopped: {why}");
        }
        if self.stopping.is_none() && self.state.options.on_stop == OnStop::Exit {
            self.refuse_blocked(&why);
            self.stop(Ending::Failed(why));
        }
    }

    /// Answers blocked clients with an error, because nothing can serve them after the database has stopped.
    pub(super) fn refuse_blocked(&mut self, why: &str) {
        let blocked = self.state.connections.iter().filter(|(_, c)| c.blocked);
        let blocked: Vec<usize> = blocked.map(|(index, _)| index).collect();
        for index in blocked {
            if let Some(mut connection) = self.state.connections.take(index) {
                let error = format!("ERR the database has stopped: {why}");
                connection.refuse(&self.state, &error);
                self.state.connections.put(index, connection);
                self.touched.push(index);
            }
        }
    }

    /// Discards the replies of writes that are not durable when the database stops. Such a write is never acknowledged.
    pub(super) fn abandon_waiting(&mut self) {
        let why = self.state.stopped.clone().unwrap_or_default();
        for (index, id) in std::mem::take(&mut self.waiting) {
            let Some(mut connection) = self.state.connections.take(index) else {
                continue;
            };
            if connection.session.seat.id == id {
                connection.listed = false;
                connection.replies.release(self.state.reached, false);
                if connection.replies.waits() {
                    connection
                        .replies
                        .abandon(&format!("ERR the database has stopped: {why}"));
                    connection.closing = true;
                }
                self.touched.push(index);
            }
            self.state.connections.put(index, connection);
        }
    }
}
