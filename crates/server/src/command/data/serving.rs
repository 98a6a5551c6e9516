//! Serves the clients that wait for a key, within the transaction that has changed the key.
//!
//! The commands of the waiting clients run after the transaction's own command, block or script, under the same latches.
//! So no other client can take what a waiting client gets, and all of it commits together. The waiting clients get their
//! replies as letters, with the epoch of the transaction.
//!
//! If the engine refuses a waiting client's command, for lack of memory for example, the transaction is undone. It runs
//! again without that command, and the waiting client gets the error.

use super::{Class, Data};
use crate::blocking::{Blocking, Claimed, Place};
use crate::command::Told;
use crate::command::flag;
use crate::common::Common;
use crate::denial::Denied;
use crate::engine::{Epoch, Error, Kind, Shape, TableId, Tx, error_text};
use crate::mailbox::Post;
use crate::pubsub::Seat;
use crate::resp::reply::Out;
use perdura_base::flaw::{Flaw, armed};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// The end of a client's wait.
#[derive(Debug)]
enum Service {
    /// The client's command has run, with this reply.
    Ran {
        reply: Vec<u8>,
        /// True if the command may write.
        writes: bool,
    },
    /// The engine refuses the client's command, with this error.
    Refused(String),
    /// The client may not use the key any more.
    Denied(Denied),
    /// The key is gone, and the client stops waiting with this error.
    Gone(&'static str),
}

/// A client that a transaction serves.
struct Served {
    seat: Seat,
    service: Service,
    /// The number of the transaction's events before the client was served.
    events: usize,
}

/// The waiting clients that a transaction has claimed. If the transaction does not commit, dropping the value returns
/// the claims.
pub(crate) struct Claims<'a> {
    common: &'a Common,
    /// The clients that the transaction serves.
    served: Vec<Served>,
    /// The clients whose commands the engine refuses, each with the error. Usually empty.
    refused: Vec<(u64, String)>,
    /// The client whose command has made this run fail, and the error. `None`: no client's command has.
    failed: Option<(u64, String)>,
    /// The client whose command runs, and the number of the transaction's events before it.
    running: Option<(Seat, usize)>,
}

impl<'a> Claims<'a> {
    /// Returns no claims.
    pub(crate) fn new(common: &'a Common) -> Self {
        Claims {
            common,
            served: Vec::new(),
            refused: Vec::new(),
            failed: None,
            running: None,
        }
    }

    /// Returns all claims, because the transaction begins again or was undone.
    #[inline]
    pub(crate) fn restart(&mut self) {
        if !self.is_empty() {
            self.return_all();
        }
    }

    /// Returns whether the transaction has claimed no client.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_none() && self.served.is_empty()
    }

    #[cold]
    fn return_all(&mut self) {
        self.failed = None;
        let running = self.running.take().map(|(seat, _)| seat);
        let served = self.served.drain(..).map(|served| served.seat);
        for seat in served.chain(running) {
            return_claim(self.common, seat);
        }
    }

    /// Notes that the command of a waiting client makes this run of the transaction fail.
    fn note_failure(&mut self, seat: Seat, error: &Error) {
        if matches!(error, Error::Usage(_) | Error::OutOfMemory { .. }) {
            self.failed = Some((seat.id, error_text(error)));
        }
    }

    /// Calls `transact`, which runs a transaction with these claims. If the command of a waiting client makes it fail,
    /// calls it again. In that run the client gets the error, and its command does not run.
    pub(crate) fn complete<T, E>(
        claims: &RefCell<Self>,
        mut transact: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            let done = transact();
            if done.is_ok() {
                return done;
            }
            let mut claims = claims.borrow_mut();
            match claims.failed.take() {
                Some(failed) => claims.refused.push(failed),
                None => return done,
            }
        }
    }

    /// Returns the number of events before the first served client. `None`: no client is served.
    pub(crate) fn first_events(&self) -> Option<usize> {
        self.served.first().map(|served| served.events)
    }

    /// Ends the waiting of the served clients. The transaction has committed, and its latches are held. `told` has the
    /// epochs of the transaction. Before each client, calls `tell` with the number of events before that client.
    pub(crate) fn publish(&mut self, told: Told, mut tell: impl FnMut(usize)) {
        debug_assert!(self.running.is_none(), "a service is complete");
        debug_assert!(self.served.is_sorted_by_key(|served| served.events));
        for served in self.served.drain(..) {
            tell(served.events);
            publish_one(self.common, served, told);
        }
    }

    /// Claims a client with `claim`. The transaction has `events` events so far.
    fn claim(
        &mut self,
        events: usize,
        claim: impl FnOnce(&mut Blocking) -> Option<Claimed>,
    ) -> Option<Claimed> {
        let claim = self.common.blocking.with(claim)?;
        self.running = Some((claim.seat, events));
        Some(claim)
    }

    fn end(&mut self, service: Service) {
        if let Some((seat, events)) = self.running.take() {
            self.served.push(Served {
                seat,
                service,
                events,
            });
        }
    }

    /// Returns the claim of the client whose command found nothing.
    fn pass(&mut self) {
        if let Some((seat, _)) = self.running.take() {
            return_claim(self.common, seat);
        }
    }
}

/// Ends the waiting of one client.
fn publish_one(common: &Common, served: Served, told: Told) {
    let seat = served.seat;
    let waited = common.blocking.with(|blocking| blocking.end_claim(seat.id));
    let (post, epoch) = match served.service {
        Service::Ran { reply, writes } => {
            let written = if writes { told.written } else { Epoch(0) };
            (Post::Answer { reply, written }, told.epoch)
        }
        // The error may say something about the data, such as the size of a reply.
        Service::Refused(error) => (Post::Refused(error), told.epoch),
        Service::Denied(denied) => (Post::Denied(denied), Epoch(0)),
        Service::Gone(error) => (Post::Gone(error), told.epoch.max(waited)),
    };
    let shown = match armed(Flaw::DeliveryShownEarly) {
        true => Epoch(0),
        false => epoch,
    };
    common.post(seat, &Arc::new(post), shown);
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        self.restart();
    }
}

/// Returns a claim. If another transaction has meanwhile missed the client, the client's loop tries its keys again.
fn return_claim(common: &Common, seat: Seat) {
    let again = common
        .blocking
        .with(|blocking| blocking.return_claim(seat.id));
    if !again.is_empty() {
        common.post(seat, &Arc::new(Post::TryAgain(again)), Epoch(0));
    }
}

impl Data<'_, '_> {
    /// Serves the clients that wait for the keys that the transaction has changed. Serving a client may change keys that
    /// other clients wait for. During CLIENT PAUSE all clients continue to wait, because serving a client may write.
    #[inline]
    pub(crate) fn serve(&mut self, claims: &mut Claims<'_>) -> Result<(), Error> {
        match self.events.is_empty() || self.later.is_some() || !self.serves_waiting() {
            true => Ok(()),
            false => self.serve_all(claims),
        }
    }

    #[cold]
    fn serve_all(&mut self, claims: &mut Claims<'_>) -> Result<(), Error> {
        // The keys that were tried, each with the number of events before that. Older events of the key are no news.
        let mut tried: HashMap<(u8, Box<[u8]>), usize> = HashMap::new();
        let mut at = 0;
        while let Some(event) = self.events.get(at) {
            at += 1;
            let blocking = &claims.common.blocking;
            if event.class == Class::Miss
                || !blocking.with(|blocking| blocking.waits_for(event.database, &event.key))
            {
                continue;
            }
            let place = (event.database, event.key.clone());
            if tried.get(&place).is_none_or(|tried| *tried < at) {
                tried.insert(place.clone(), self.events.len());
                let (database, key) = (place.0, &*place.1);
                self.serve_place(Place { database, key }, claims)?;
            }
        }
        Ok(())
    }

    /// Serves the clients that wait for one key.
    pub(crate) fn serve_place(
        &mut self,
        place: Place<'_>,
        claims: &mut Claims<'_>,
    ) -> Result<(), Error> {
        let Place { database, key } = place;
        let mut after = 0;
        while let Some(Some(shape)) = shape_of(self.tx, self.table_of(database), key)? {
            let Some(claim) = claims.claim(self.events.len(), |blocking| {
                blocking.claim(place, shape, after)
            }) else {
                break;
            };
            debug_assert!(claim.ticket > after, "clients are served in order");
            after = claim.ticket;
            self.serve_claim(&claim, database, claims)?;
        }
        let held = shape_of(self.tx, self.table_of(database), key)?.flatten();
        while let Some(claim) = claims.claim(self.events.len(), |blocking| {
            blocking.claim_ending(place, held)
        }) {
            let judged = claim.user.check(claim.command, &claim.args.args());
            claims.end(match (judged, claim.gone) {
                (Err(denied), _) => Service::Denied(denied),
                (Ok(()), gone) => Service::Gone(gone.unwrap_or_default()),
            });
        }
        Ok(())
    }

    /// Runs the command of a claimed client, whose rules may have changed since it began to wait.
    fn serve_claim(
        &mut self,
        claim: &Claimed,
        database: u8,
        claims: &mut Claims<'_>,
    ) -> Result<(), Error> {
        let args = claim.args.args();
        if let Err(denied) = claim.user.check(claim.command, &args) {
            claims.end(Service::Denied(denied));
            return Ok(());
        }
        let refused = claims.refused.iter().find(|(id, _)| *id == claim.seat.id);
        if let Some((_, error)) = refused {
            let error = error.clone();
            claims.end(Service::Refused(error));
            return Ok(());
        }
        self.run_for(&claim.user);
        self.select(database);
        (self.is_retry, self.may_wait, self.may_leave) = (true, true, false);
        let mut reply = Vec::new();
        let mut out = Out::new(&mut reply, claim.resp3);
        if let Err(error) = self.run(claim.command, &args, &mut out) {
            claims.note_failure(claim.seat, &error);
            return Err(error);
        }
        match self.later.take() {
            None => claims.end(Service::Ran {
                reply,
                writes: claim.command.has(flag::WRITE),
            }),
            Some(_) => claims.pass(),
        }
        Ok(())
    }
}

/// Returns the shape of a key's value: `None` if the key does not exist, `Some(None)` for a string.
fn shape_of(tx: &Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Option<Shape>>, Error> {
    let row = tx.peek(table, key)?;
    Ok(row.map(|row| match row.kind() {
        Kind::Small(shape) | Kind::Header(shape) => Some(shape),
        Kind::String | Kind::Element(_) => None,
    }))
}
