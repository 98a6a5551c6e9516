//! A second implementation of the procedures, over the model. It was written from their specification, without use of
//! the engine.
//!
//! Only the engine can choose row ids and random numbers. The interpreter takes these values from the engine's reply
//! and makes all possible checks.

use std::collections::BTreeMap;

use super::calls::{Call, Reply};
use super::oracle::Oracle;
use super::procedures::{CHANGED_MIND, DROPPED_MAX, IS_OPEN, NO_ACCOUNT, TOO_POOR};
use super::rows::{Key, Row, Write};
use super::schema::{Account, Entry, Order, Rate, Setting};

/// The reason why a transaction does not commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The procedure refuses with this message.
    Told(&'static str),
    /// A verb (an operation on rows) refuses. Either its key or its unique columns are already in use, or its row is
    /// missing.
    Verb,
}

/// The rows that a running transaction sees.
pub(crate) struct View<'a> {
    oracle: &'a Oracle,
    own: BTreeMap<Key, Option<Row>>,
    /// The keys that were read.
    pub read: Vec<Key>,
    pub ids: Vec<u64>,
}

impl<'a> View<'a> {
    pub fn new(oracle: &'a Oracle) -> View<'a> {
        View {
            oracle,
            own: BTreeMap::new(),
            read: Vec::new(),
            ids: Vec::new(),
        }
    }

    pub fn get(&mut self, key: Key) -> Option<&Row> {
        self.read.push(key);
        match self.own.get(&key) {
            Some(own) => own.as_ref(),
            None => self.oracle.row(key),
        }
    }

    pub fn set(&mut self, key: Key, row: Option<Row>) {
        self.own.insert(key, row);
    }

    /// Returns a mark, which has the writes so far. [`back_to`](Self::back_to) returns to it.
    pub fn mark(&self) -> (BTreeMap<Key, Option<Row>>, usize) {
        (self.own.clone(), self.ids.len())
    }

    /// Undoes all writes since a mark, and forgets the ids of the rows appended since then. The engine gives no id
    /// twice in a transaction, not even the id of an undone append.
    pub fn back_to(&mut self, (own, ids): (BTreeMap<Key, Option<Row>>, usize)) {
        self.own = own;
        self.ids.truncate(ids);
    }

    /// Returns the keys in a range that have rows.
    pub fn keys(&mut self, range: std::ops::RangeInclusive<Key>) -> Vec<Key> {
        assert!(!range.is_empty(), "a range of keys of one table");
        let live = self.oracle.live().rows.range(range.clone());
        let mut keys: Vec<Key> = live.map(|(key, _)| *key).collect();
        keys.extend(self.own.range(range).map(|(key, _)| *key));
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| self.get(*key).is_some());
        keys
    }

    /// Returns the net writes of the transaction.
    pub fn writes(self) -> Vec<Write> {
        self.own.into_iter().collect()
    }

    pub fn account(&mut self, id: u64) -> Option<Account> {
        match self.get(Key::Account(id))? {
            Row::Account(row) => Some(row.clone()),
            _ => None,
        }
    }

    fn accounts(&mut self) -> Vec<Account> {
        let keys = self.keys(Key::Account(0)..=Key::Account(u64::MAX));
        let accounts = keys.into_iter().filter_map(|key| match self.get(key) {
            Some(Row::Account(row)) => Some(row.clone()),
            _ => None,
        });
        accounts.collect()
    }

    pub fn put_account(&mut self, row: Account) {
        debug_assert!(!row.owner.is_empty(), "an account has an owner");
        self.set(Key::Account(row.id), Some(row.into()));
    }

    pub fn order(&mut self, branch: u32, number: u64) -> Option<Order> {
        match self.get(Key::Order(branch, number))? {
            Row::Order(row) => Some(row.clone()),
            _ => None,
        }
    }

    /// Returns whether another order of the branch has this order's tag.
    pub fn tag_is_taken(&mut self, order: &Order) -> bool {
        let branch = order.branch;
        let keys = self.keys(Key::Order(branch, 0)..=Key::Order(branch, u64::MAX));
        keys.into_iter().any(|key| match self.get(key) {
            Some(Row::Order(other)) => {
                debug_assert_eq!(other.branch, branch, "keys are in order");
                other.number != order.number && other.tag == order.tag
            }
            _ => false,
        })
    }

    pub fn insert_order(&mut self, order: Order) -> Result<(), Refusal> {
        let taken = self.order(order.branch, order.number).is_some();
        if taken || self.tag_is_taken(&order) {
            return Err(Refusal::Verb);
        }
        self.set(Key::Order(order.branch, order.number), Some(order.into()));
        Ok(())
    }

    pub fn append(&mut self, id: u64, row: Entry) {
        self.ids.push(id);
        self.set(Key::Entry(id), Some(row.into()));
    }

    fn entries(&mut self) -> Vec<(u64, Entry)> {
        let keys = self.keys(Key::Entry(0)..=Key::Entry(u64::MAX));
        let entries = keys
            .into_iter()
            .filter_map(|key| match (key, self.get(key)) {
                (Key::Entry(id), Some(Row::Entry(row))) => Some((id, row.clone())),
                _ => None,
            });
        entries.collect()
    }

    fn rate(&mut self, id: u16) -> Option<Rate> {
        match self.get(Key::Rate(id))? {
            Row::Rate(row) => Some(row.clone()),
            _ => None,
        }
    }

    fn setting(&mut self, id: u64) -> Option<Setting> {
        match self.get(Key::Setting(id))? {
            Row::Setting(row) => Some(row.clone()),
            _ => None,
        }
    }

    fn must_account(&mut self, id: u64) -> Result<Account, Refusal> {
        self.account(id).ok_or(Refusal::Told(NO_ACCOUNT))
    }
}

/// Runs a call on the model. `given` is the engine's reply; `None` if the engine returned none.
pub(crate) fn interpret(
    call: &Call,
    view: &mut View<'_>,
    given: Option<&Reply>,
    now_ms: u64,
) -> Result<Reply, Refusal> {
    match call {
        Call::Open(id, owner, balance) => {
            if view.account(*id).is_some() {
                return Err(Refusal::Told(IS_OPEN));
            }
            let (id, owner, balance) = (*id, owner.clone(), *balance);
            view.put_account(Account {
                id,
                owner,
                balance,
                touched: 0,
            });
            Ok(Reply::Nothing)
        }
        Call::Transfer(from, to, amount) => transfer(view, (*from, *to), *amount),
        Call::Close(id, heir) => {
            let account = view.must_account(*id)?;
            view.set(Key::Account(*id), None);
            let mut heir = view.must_account(*heir)?;
            heir.balance += account.balance;
            view.put_account(heir);
            Ok(Reply::Amount(account.balance))
        }
        Call::Append(account, amount, text, times) => {
            let ids = match given {
                Some(Reply::Ids(ids)) if ids.len() == usize::from(*times) => ids.clone(),
                _ => vec![0; usize::from(*times)],
            };
            for id in &ids {
                let (account, amount, text) = (*account, *amount, text.clone());
                view.append(
                    *id,
                    Entry {
                        account,
                        amount,
                        text,
                    },
                );
            }
            Ok(Reply::Ids(ids))
        }
        Call::Stamp(id, branch) => {
            let random = match given {
                Some(Reply::Stamp(_, random)) => *random,
                _ => 0,
            };
            stamp(view, (*id, *branch), (now_ms, random))
        }
        Call::Order(order, payer) => place_order(view, order, *payer, given),
        Call::Revalue(id, factor, name) => {
            let (id, factor, name) = (*id, *factor, name.clone());
            view.set(Key::Rate(id), Some(Rate { id, factor, name }.into()));
            let accounts = view.accounts();
            let count = accounts.len();
            for mut account in accounts {
                account.balance += factor % 3;
                view.put_account(account);
            }
            Ok(Reply::count(count))
        }
        Call::Gift(owner, amount, heir) => {
            let mut accounts = view.accounts();
            accounts.retain(|account| account.owner == *owner);
            let count = accounts.len();
            for mut account in accounts {
                account.balance += amount;
                account.owner.clone_from(heir);
                view.put_account(account);
            }
            Ok(Reply::count(count))
        }
        Call::Stray(near, far, amount) => {
            for (id, amount) in [(*near, *amount), (*far, -*amount)] {
                if let Some(mut account) = view.account(id) {
                    account.balance += amount;
                    view.put_account(account);
                }
            }
            Ok(Reply::Nothing)
        }
        Call::Consult(id, setting) => {
            let found = view.setting(*setting).map_or(1, |setting| setting.value);
            let mut account = view.must_account(*id)?;
            account.balance += found;
            view.put_account(account);
            Ok(Reply::Amount(found))
        }
        Call::Configure(setting, value, text, id) => {
            let row = Setting {
                id: *setting,
                value: *value,
                text: text.clone(),
            };
            view.set(Key::Setting(*setting), Some(row.into()));
            if let Some(mut account) = view.account(*id) {
                account.touched = value.unsigned_abs();
                view.put_account(account);
            }
            Ok(Reply::Nothing)
        }
        Call::DropOrders(branch, below) => {
            let mut keys = match below.checked_sub(1) {
                Some(last) => view.keys(Key::Order(*branch, 0)..=Key::Order(*branch, last)),
                None => Vec::new(),
            };
            keys.truncate(DROPPED_MAX);
            keys.iter().for_each(|key| view.set(*key, None));
            Ok(Reply::count(keys.len()))
        }
        Call::Forget(account) => {
            let mut entries = view.entries();
            entries.retain(|(_, entry)| entry.account == *account);
            let ids = entries.iter().map(|(id, _)| *id);
            ids.for_each(|id| view.set(Key::Entry(id), None));
            Ok(Reply::count(entries.len()))
        }
        Call::Tally(branch, rate) => {
            let factor = view.rate(*rate).map_or(1, |rate| rate.factor);
            let keys = view.keys(Key::Order(*branch, 0)..=Key::Order(*branch, u64::MAX));
            let mut sum = 0i64;
            for key in keys {
                if let Some(Row::Order(order)) = view.get(key) {
                    sum = sum.wrapping_add(order.amount.wrapping_mul(factor));
                }
            }
            Ok(Reply::Amount(sum))
        }
        Call::Fickle(..) => Err(Refusal::Told(CHANGED_MIND)),
    }
}

fn transfer(view: &mut View<'_>, (from, to): (u64, u64), amount: i64) -> Result<Reply, Refusal> {
    let mut payer = view.must_account(from)?;
    payer.balance -= amount;
    let left = payer.balance;
    if left < 0 {
        return Err(Refusal::Told(TOO_POOR));
    }
    view.put_account(payer);
    let mut payee = view.must_account(to)?;
    payee.balance += amount;
    view.put_account(payee);
    Ok(Reply::Amount(left))
}

fn stamp(
    view: &mut View<'_>,
    (id, branch): (u64, u32),
    (now, random): (u64, u64),
) -> Result<Reply, Refusal> {
    let mut account = view.must_account(id)?;
    account.touched = now ^ random;
    view.put_account(account);
    view.insert_order(Order {
        branch,
        number: random,
        item: u16::try_from(now % 5).unwrap_or(0),
        tag: random,
        amount: 1,
        note: now.to_be_bytes().to_vec(),
    })?;
    Ok(Reply::Stamp(now, random))
}

fn place_order(
    view: &mut View<'_>,
    order: &Order,
    payer: u64,
    given: Option<&Reply>,
) -> Result<Reply, Refusal> {
    view.insert_order(order.clone())?;
    let paid = view
        .account(payer)
        .filter(|account| account.balance >= order.amount);
    let Some(mut account) = paid else {
        let mut order = order.clone();
        order.amount = 0;
        view.set(Key::Order(order.branch, order.number), Some(order.into()));
        return Ok(Reply::Id(None));
    };
    account.balance -= order.amount;
    account.owner.push('!');
    view.put_account(account);
    let id = match given {
        Some(Reply::Id(Some(id))) => *id,
        _ => 0,
    };
    let entry = Entry {
        account: payer,
        amount: -order.amount,
        text: format!("order {}", order.number),
    };
    view.append(id, entry);
    Ok(Reply::Id(Some(id)))
}
