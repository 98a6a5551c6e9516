//! A call of a procedure, drawn from the seed and run on the engine.

use std::panic::resume_unwind;

use fastrand::Rng;
use perdura::tables::Procedure;
use perdura::{Abort, Core, Ticket};

use super::procedures::{
    append, close_account, configure, consult, drop_orders, fickle, forget_entries, gift,
    open_account, place_order, revalue, stamp, stray, tally, transfer,
};
use super::rows::Sort;
use super::schema::Order;
use super::swarm::{Swarm, draw_amount, draw_text};

/// The payload of the panic by which a client abandons its transaction. The panic hook does not print this panic.
pub(crate) struct ChangedMind;

/// Panics, so that the client abandons its transaction.
pub(crate) fn change_mind() -> ! {
    resume_unwind(Box::new(ChangedMind))
}

/// A call: a procedure with its arguments.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Open(u64, String, i64),
    Transfer(u64, u64, i64),
    Close(u64, u64),
    Append(u64, i64, String, u8),
    Stamp(u64, u32),
    Order(Order, u64),
    Revalue(u16, i64, String),
    Gift(String, i64, String),
    Stray(u64, u64, i64),
    Consult(u64, u64),
    Configure(u64, i64, String, u64),
    DropOrders(u32, u64),
    Forget(u64),
    Tally(u32, u16),
    Fickle(u64, i64, bool),
}

/// The reply to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nothing,
    Amount(i64),
    Count(u64),
    Ids(Vec<u64>),
    Id(Option<u64>),
    Stamp(u64, u64),
}

impl Reply {
    pub fn count(count: usize) -> Reply {
        Reply::Count(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Returns the row ids that the reply contains.
    pub fn ids(&self) -> &[u64] {
        match self {
            Reply::Ids(ids) => ids,
            Reply::Id(Some(id)) => std::slice::from_ref(id),
            _ => &[],
        }
    }
}

/// Calls one procedure and converts its output to a reply.
fn one<P: Procedure>(
    core: &Core,
    args: &P::Args,
    reply: impl FnOnce(P::Output) -> Reply,
) -> Result<(Reply, Ticket), Abort> {
    let (output, ticket) = core.call::<P>(args)?;
    Ok((reply(output), ticket))
}

impl Call {
    /// Draws a call. Returns `None` if the call's procedure uses an undeclared table.
    pub fn draw(rng: &mut Rng, swarm: &Swarm) -> Option<Call> {
        let call = Call::draw_any(rng, swarm);
        assert!(!call.sorts().is_empty(), "a procedure uses a table");
        let is_declared = |sort: &Sort| swarm.declares(*sort);
        call.sorts().iter().all(is_declared).then_some(call)
    }

    fn draw_any(rng: &mut Rng, swarm: &Swarm) -> Call {
        let account = |rng: &mut Rng| rng.u64(0..swarm.accounts);
        let branch = |rng: &mut Rng| rng.u32(0..swarm.branches);
        let setting = |rng: &mut Rng| rng.u64(0..swarm.settings);
        match rng.u8(0..24) {
            0..=2 => Call::Open(account(rng), swarm.draw_owner(rng), draw_amount(rng)),
            3..=6 => Call::Transfer(account(rng), account(rng), draw_amount(rng)),
            7 => Call::Close(account(rng), account(rng)),
            8..=9 => {
                let text = draw_text(rng, swarm);
                Call::Append(account(rng), draw_amount(rng), text, rng.u8(0..4))
            }
            10..=11 => Call::Stamp(account(rng), branch(rng)),
            12..=14 => {
                let order = Order {
                    branch: branch(rng),
                    number: rng.u64(0..swarm.numbers),
                    item: rng.u16(0..5) * if rng.u8(0..16) == 0 { 200 } else { 1 },
                    tag: rng.u64(0..swarm.numbers),
                    amount: draw_amount(rng),
                    note: Vec::new(),
                };
                Call::Order(noted(order), account(rng))
            }
            15 => {
                let name = draw_text(rng, swarm);
                Call::Revalue(rng.u16(0..4), draw_amount(rng), name)
            }
            16 => {
                let (owner, heir) = (swarm.draw_owner(rng), swarm.draw_owner(rng));
                Call::Gift(owner, draw_amount(rng), heir)
            }
            17 => Call::Stray(account(rng), account(rng), draw_amount(rng)),
            18 => Call::Consult(account(rng), setting(rng)),
            19 => {
                let text = draw_text(rng, swarm);
                Call::Configure(setting(rng), draw_amount(rng), text, account(rng))
            }
            20 => Call::DropOrders(branch(rng), rng.u64(0..=swarm.numbers)),
            21 => Call::Forget(account(rng)),
            22 => Call::Tally(branch(rng), rng.u16(0..4)),
            _ => Call::Fickle(account(rng), draw_amount(rng), rng.bool()),
        }
    }

    /// Returns the sorts of the tables that the call uses.
    fn sorts(&self) -> &'static [Sort] {
        match self {
            Call::Open(..)
            | Call::Transfer(..)
            | Call::Close(..)
            | Call::Gift(..)
            | Call::Stray(..) => &[Sort::Accounts],
            Call::Append(..) | Call::Forget(..) => &[Sort::Accounts, Sort::Entries],
            Call::Stamp(..) => &[Sort::Accounts, Sort::Orders],
            Call::Order(..) => &[Sort::Accounts, Sort::Orders, Sort::Entries],
            Call::Revalue(..) => &[Sort::Accounts, Sort::Rates],
            Call::Consult(..) | Call::Configure(..) => &[Sort::Accounts, Sort::Settings],
            Call::DropOrders(..) => &[Sort::Orders],
            Call::Tally(..) => &[Sort::Orders, Sort::Rates],
            Call::Fickle(..) => &[Sort::Accounts, Sort::Entries],
        }
    }

    /// Returns whether the log may hold the call as a command.
    pub fn is_command(&self) -> bool {
        !matches!(
            self,
            Call::Stray(..) | Call::Consult(..) | Call::Configure(..)
        )
    }

    /// Returns whether the client panics during the call.
    pub fn panics(&self) -> bool {
        matches!(self, Call::Fickle(_, _, true))
    }

    /// Calls the procedure on the engine.
    pub fn make(&self, core: &Core) -> Result<(Reply, Ticket), Abort> {
        let nothing = |()| Reply::Nothing;
        match self.clone() {
            Call::Open(id, owner, balance) => {
                one::<open_account>(core, &(id, owner, balance), nothing)
            }
            Call::Transfer(from, to, amount) => {
                one::<transfer>(core, &(from, to, amount), Reply::Amount)
            }
            Call::Close(id, heir) => one::<close_account>(core, &(id, heir), Reply::Amount),
            Call::Append(account, amount, text, times) => {
                one::<append>(core, &(account, amount, text, times), Reply::Ids)
            }
            Call::Stamp(id, branch) => one::<stamp>(core, &(id, branch), |(now, random)| {
                Reply::Stamp(now, random)
            }),
            Call::Order(order, payer) => {
                let Order {
                    branch,
                    number,
                    item,
                    tag,
                    amount,
                    ..
                } = order;
                let args = (branch, number, item, tag, amount, payer);
                one::<place_order>(core, &args, Reply::Id)
            }
            Call::Revalue(id, factor, name) => {
                one::<revalue>(core, &(id, factor, name), Reply::Count)
            }
            Call::Gift(owner, amount, heir) => {
                one::<gift>(core, &(owner, amount, heir), Reply::Count)
            }
            Call::Stray(near, far, amount) => one::<stray>(core, &(near, far, amount), nothing),
            Call::Consult(id, setting) => one::<consult>(core, &(id, setting), Reply::Amount),
            Call::Configure(setting, value, text, id) => {
                one::<configure>(core, &(setting, value, text, id), nothing)
            }
            Call::DropOrders(branch, below) => {
                one::<drop_orders>(core, &(branch, below), Reply::Count)
            }
            Call::Forget(account) => one::<forget_entries>(core, &(account,), Reply::Count),
            Call::Tally(branch, rate) => one::<tally>(core, &(branch, rate), Reply::Amount),
            Call::Fickle(id, amount, panics) => one::<fickle>(core, &(id, amount, panics), nothing),
        }
    }
}

/// Returns the order with the note that the procedure `place_order` gives it.
fn noted(mut order: Order) -> Order {
    debug_assert!(order.note.is_empty(), "the procedure writes the note");
    let byte = u8::try_from(order.number % 251).unwrap_or(0);
    order.note = vec![byte; usize::from(order.item) * 8];
    order
}
