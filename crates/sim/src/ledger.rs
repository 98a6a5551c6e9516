//! A key-addressed typed table beside the Redis databases. The log has its changes as ordered frames: calls of
//! procedures, or the rows that changed.
//!
//! The model has the table's rows as those of one more database, [`LEDGER`].

use fastrand::Rng;
use perdura::{Abort, Core, Cx, Db, Error, LogForm, Ticket, procedure, table};

use crate::content::{Content, scramble};
use crate::model::{Change, LEDGER, Row, State};
use crate::report::Check;
use crate::value::Value;

/// The keys of the table.
const COINS: u8 = 12;

table! {
    /// A coin, found by its number or by its first byte.
    pub struct Coin in "coins", addressing = key {
        key(id: u64),
        mark: u32,
        face: Vec<u8>;
        index by_mark(mark: u32)
    }
}

impl Coin {
    fn new(id: u64, face: Vec<u8>) -> Coin {
        let mark = face.first().copied().map_or(256, u32::from);
        Coin { id, mark, face }
    }
}

/// Writes a coin, whether or not it exists.
fn put(cx: &mut Cx<'_, '_>, coin: &Coin) -> Result<(), Error> {
    match cx.contains::<Coin>(coin.id)? {
        true => cx.update(coin),
        false => cx.insert(coin),
    }
}

procedure! {
    /// Writes a coin whose face follows from a seed and a length.
    pub fn mint(cx, id: u64, seed: u64, len: u32) -> (), on [Coin(id)] {
        let mut face = Vec::new();
        let len = usize::try_from(len).unwrap_or(0);
        Content { seed, len }.fill(&mut face);
        put(cx, &Coin::new(id, face))?;
        Ok(())
    }
}

procedure! {
    /// Exchanges the faces of two coins. A coin that is missing is missing afterwards in the other place.
    pub fn exchange(cx, a: u64, b: u64) -> (), on [Coin(a), Coin(b)] {
        let (first, second) = (cx.get::<Coin>(a)?, cx.get::<Coin>(b)?);
        cx.remove::<Coin>(a)?;
        cx.remove::<Coin>(b)?;
        if let Some(coin) = first {
            cx.insert(&Coin::new(b, coin.face))?;
        }
        if let Some(coin) = second {
            cx.insert(&Coin::new(a, coin.face))?;
        }
        Ok(())
    }
}

/// The client of the table.
pub(crate) struct Ledger {
    rng: Rng,
}

impl Ledger {
    /// Returns the client of a run, and the form of its log. `None`: the run has no such table.
    pub fn draw(seed: u64) -> Option<(Ledger, LogForm)> {
        let mut rng = Rng::with_seed(scramble(seed ^ 0x1ed9_e400));
        let log = match rng.u8(0..6) {
            0 | 1 => LogForm::Command,
            2 => LogForm::Value,
            _ => return None,
        };
        Some((Ledger { rng }, log))
    }
}

/// The declaration of the table and its procedures.
pub(crate) fn declared(log: LogForm) -> perdura::TypedOptions {
    let declared = Db::builder("")
        .table::<Coin>()
        .procedure(mint)
        .procedure(exchange);
    declared.log(log).into_options().typed
}

/// The result of a step: the ticket of its transaction, and the changes.
pub(crate) type Stepped = (Result<Ticket, Error>, Vec<Change>);

impl Ledger {
    /// Returns whether the next step of the run is one of this client.
    pub fn is_turn(&mut self) -> bool {
        self.rng.u8(0..4) == 0
    }

    /// Calls a procedure, or changes rows outside a procedure. `coins` are the rows before.
    pub fn step(&mut self, core: &Core, coins: &State) -> Stepped {
        let (a, b) = (self.rng.u8(0..COINS), self.rng.u8(0..COINS));
        let coin = |id: u8| coins.get(&(LEDGER, id)).cloned();
        let (done, changes) = match self.rng.u8(0..5) {
            0 | 1 => self.mint(core, a),
            2 | 3 if a != b => {
                let called = core.call::<exchange>(&(u64::from(a), u64::from(b)));
                (ticket_of(called), vec![set(a, coin(b)), set(b, coin(a))])
            }
            _ => (burn(core, a), vec![set(a, None)]),
        };
        // The ticket of a transaction without a change names an older epoch.
        let changes = changes.into_iter().filter(|change| match change {
            Change::Put(place, row) => coins.get(place) != Some(row),
            Change::Delete(place) => coins.contains_key(place),
            Change::Flush(_) => true,
        });
        (done, changes.collect())
    }

    fn mint(&mut self, core: &Core, id: u8) -> Stepped {
        let content = Content {
            seed: self.rng.u64(..),
            len: [0, 3, 40, 900, 6_000][self.rng.usize(0..5)],
        };
        let row = Row {
            value: Value::String(content),
            expiry_ms: None,
        };
        let len = u32::try_from(content.len).unwrap_or(0);
        let called = core.call::<mint>(&(u64::from(id), content.seed, len));
        (ticket_of(called), vec![set(id, Some(row))])
    }
}

/// Returns the change that gives a coin this row.
fn set(id: u8, row: Option<Row>) -> Change {
    match row {
        Some(row) => Change::Put((LEDGER, id), row),
        None => Change::Delete((LEDGER, id)),
    }
}

/// Removes a coin outside a procedure.
fn burn(core: &Core, id: u8) -> Result<Ticket, Error> {
    let done = core.transact(&core.all_partitions(), |tx| {
        let mut cx = Cx::new(tx, core.registry());
        cx.remove::<Coin>(u64::from(id)).map(drop)
    });
    done.map(|((), ticket)| ticket)
}

/// Compares the table with the model.
pub(crate) fn compare(core: &Core, expected: &State) -> Check {
    let expected = expected.range((LEDGER, 0)..);
    let mut coins: Vec<(u64, &Row)> = expected
        .map(|((_, id), row)| (u64::from(*id), row))
        .collect();
    let mut wrong = None;
    let read = core.transact(&core.all_partitions(), |tx| {
        let cx = Cx::new(tx, core.registry());
        if core.registry().find("coins").is_none() {
            return Ok(());
        }
        cx.each::<Coin>(|coin| {
            let at = coins.iter().position(|(id, _)| *id == coin.id);
            let row = at.map(|at| coins.swap_remove(at).1);
            let same = row.is_some_and(|row| match &row.value {
                Value::String(content) => content.matches(&coin.face),
                _ => false,
            });
            if !same || coin.mark != Coin::new(coin.id, coin.face).mark {
                wrong = Some(coin.id);
            }
        })?;
        Ok::<(), Error>(())
    });
    let ((), _ticket) = read.map_err(|error| format!("a read of the coins failed: {error}"))?;
    match (wrong, coins.first()) {
        (Some(id), _) => Err(format!("coin {id} is not the model's")),
        (None, Some((id, _))) => Err(format!("coin {id} is missing")),
        (None, None) => Ok(()),
    }
}

/// Returns the ticket of a call. The procedures refuse nothing.
fn ticket_of(called: Result<((), Ticket), Abort>) -> Result<Ticket, Error> {
    match called {
        Ok(((), ticket)) => Ok(ticket),
        Err(Abort::Database(error)) => Err(error),
        Err(Abort::Refused(why)) => Err(Error::Usage(why)),
    }
}
