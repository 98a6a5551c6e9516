//! The procedures. The module `interpret` implements every procedure a second time.

use perdura::{Abort, procedure};

use super::calls::change_mind;
use super::schema::{Account, Entry, Order, Rate, Setting};

/// The message of a procedure that refuses because an account is missing.
pub(crate) const NO_ACCOUNT: &str = "no such account";
/// The message of a procedure that refuses because the payer has too little money.
pub(crate) const TOO_POOR: &str = "not enough";
/// The message of a procedure that refuses because the account to open is already open.
pub(crate) const IS_OPEN: &str = "the account is open";
/// The message of a procedure that the client stops with an error.
pub(crate) const CHANGED_MIND: &str = "the client has changed its mind";
/// The maximum number of orders that one call of `drop_orders` removes.
pub(crate) const DROPPED_MAX: usize = 4;

procedure! {
    /// Opens an account.
    pub fn open_account(cx, id: u64, owner: String, balance: i64) -> (), on [Account(id)] {
        if cx.contains::<Account>(id)? {
            return Err(IS_OPEN.into());
        }
        cx.insert(&Account { id, owner, balance, touched: 0 })?;
        Ok(())
    }
}

procedure! {
    /// Moves money between two accounts. Payer and receiver may be one account. Returns the payer's new balance.
    pub fn transfer(cx, from: u64, to: u64, amount: i64) -> i64, on [Account(from), Account(to)] {
        let mut payer = cx.get::<Account>(from)?.ok_or(NO_ACCOUNT)?;
        payer.balance -= amount;
        cx.update(&payer)?;
        if payer.balance < 0 {
            return Err(TOO_POOR.into());
        }
        if !cx.contains::<Account>(to)? {
            return Err(NO_ACCOUNT.into());
        }
        cx.modify::<Account>(to, |payee| payee.balance += amount)?;
        Ok(payer.balance)
    }
}

procedure! {
    /// Removes an account and gives its balance to the account `heir`. Returns this balance.
    pub fn close_account(cx, id: u64, heir: u64) -> i64, on [Account(id), Account(heir)] {
        let account = cx.get::<Account>(id)?.ok_or(NO_ACCOUNT)?;
        cx.remove::<Account>(id)?;
        if !cx.contains::<Account>(heir)? {
            return Err(NO_ACCOUNT.into());
        }
        cx.edit::<Account>(heir, |row| {
            let balance = row.get(Account::balance)?;
            row.set(Account::balance, balance + account.balance);
            Ok(())
        })?;
        Ok(account.balance)
    }
}

procedure! {
    /// Appends `times` entries for an account. Returns their ids.
    pub fn append(cx, account: u64, amount: i64, text: String, times: u8) -> Vec<u64>,
    on [Account(account)] {
        let mut ids = Vec::new();
        for _ in 0..times {
            let id = cx.append(&Entry { account, amount, text: text.clone() })?;
            ids.push(id.0);
        }
        Ok(ids)
    }
}

procedure! {
    /// Writes the time and a random number into an account and a new order. Returns the time and the random number.
    pub fn stamp(cx, id: u64, branch: u32) -> (u64, u64), on [Account(id), Order(branch)] {
        let (now, random) = (cx.now(), cx.random()?);
        if !cx.contains::<Account>(id)? {
            return Err(NO_ACCOUNT.into());
        }
        cx.edit::<Account>(id, |row| {
            row.set(Account::touched, now ^ random);
            Ok(())
        })?;
        let item = u16::try_from(now % 5).unwrap_or(0);
        let note = now.to_be_bytes().to_vec();
        cx.insert(&Order { branch, number: random, item, tag: random, amount: 1, note })?;
        Ok((now, random))
    }
}

procedure! {
    /// Orders an item. If the payer cannot pay, the order stays and only the payment is undone. Returns the row id of
    /// the payment's journal entry, or `None` if there is no payment.
    pub fn place_order(cx, branch: u32, number: u64, item: u16, tag: u64, amount: i64, payer: u64)
        -> Option<u64>,
    on [Order(branch), Account(payer)] {
        let note = vec![u8::try_from(number % 251).unwrap_or(0); usize::from(item) * 8];
        cx.insert(&Order { branch, number, item, tag, amount, note })?;
        let before = cx.savepoint();
        let text = format!("order {number}");
        let id = cx.append(&Entry { account: payer, amount: -amount, text })?;
        let mut left = -1;
        if let Some(mut account) = cx.get::<Account>(payer)? {
            account.balance -= amount;
            account.owner.push('!');
            left = account.balance;
            cx.update(&account)?;
        }
        if left >= 0 {
            return Ok(Some(id.0));
        }
        cx.rollback_to(&before);
        cx.modify::<Order>((branch, number), |order| order.amount = 0)?;
        Ok(None)
    }
}

procedure! {
    /// Sets a rate in every partition, and writes its factor into all accounts. Returns how many accounts there are.
    pub fn revalue(cx, id: u16, factor: i64, name: String) -> u64, on all {
        let rate = Rate { id, factor, name };
        if cx.contains::<Rate>(id)? {
            cx.update(&rate)?;
        } else {
            cx.insert(&rate)?;
        }
        let accounts: Vec<Account> = cx.by(Account::by_owner, ()).collect()?;
        let mut count = 0;
        for account in accounts {
            cx.edit::<Account>(account.id, |row| {
                row.set(Account::balance, account.balance + factor % 3);
                Ok(())
            })?;
            count += 1;
        }
        Ok(count)
    }
}

procedure! {
    /// Gives an amount to every account of an owner, and makes `heir` the new owner of these accounts. Finds the
    /// accounts by the index of owners. The change of owner also changes this index. Returns the number of changed
    /// accounts.
    pub fn gift(cx, owner: String, amount: i64, heir: String) -> u64, on all {
        let accounts: Vec<Account> = cx.by(Account::by_owner, owner.as_str()).collect()?;
        let mut count = 0;
        for mut account in accounts {
            account.balance += amount;
            account.owner.clone_from(&heir);
            cx.update(&account)?;
            count += 1;
        }
        Ok(count)
    }
}

procedure! {
    /// Changes two accounts but declares only the first.
    pub fn stray(cx, near: u64, far: u64, amount: i64) -> (), on [Account(near)] {
        for (id, amount) in [(near, amount), (far, -amount)] {
            if cx.contains::<Account>(id)? {
                cx.modify::<Account>(id, |account| account.balance += amount)?;
            }
        }
        Ok(())
    }
}

procedure! {
    /// Reads a row of a page-addressed table, and adds its value to the balance of an account. Returns the value.
    pub fn consult(cx, id: u64, setting: u64) -> i64, on [Account(id), Setting(setting)] {
        let found = cx.get::<Setting>(setting)?.map_or(1, |setting| setting.value);
        if !cx.contains::<Account>(id)? {
            return Err(NO_ACCOUNT.into());
        }
        cx.modify::<Account>(id, |account| account.balance += found)?;
        Ok(found)
    }
}

procedure! {
    /// Writes a row of a page-addressed table. Also writes an account of a key-addressed table, if the account exists.
    pub fn configure(cx, setting: u64, value: i64, text: String, id: u64) -> (),
    on [Account(id), Setting(setting)] {
        let row = Setting { id: setting, value, text };
        if cx.contains::<Setting>(setting)? {
            cx.update(&row)?;
        } else {
            cx.insert(&row)?;
        }
        if cx.contains::<Account>(id)? {
            cx.modify::<Account>(id, |account| account.touched = value.unsigned_abs())?;
        }
        Ok(())
    }
}

procedure! {
    /// Removes orders of a branch in ascending order: only orders with a number below `below`, and at most
    /// `DROPPED_MAX` orders. Returns how many it removed.
    pub fn drop_orders(cx, branch: u32, below: u64) -> u64, on [Order(branch)] {
        let orders = cx.range::<Order>((branch, 0)..(branch, below));
        let found: Vec<(u32, u64)> = Iterator::map(orders, |order| {
            order.map(|order| (order.branch, order.number))
        })
        .take(DROPPED_MAX)
        .collect::<Result<_, _>>()?;
        let mut count = 0;
        for key in found {
            count += u64::from(cx.remove::<Order>(key)?);
        }
        Ok(count)
    }
}

procedure! {
    /// Removes all entries of an account. Returns how many it removed.
    pub fn forget_entries(cx, account: u64) -> u64, on all {
        let mut ids = Vec::new();
        for row in cx.by(Entry::by_account, account).views() {
            ids.push(row?.row_id()?);
        }
        let mut count = 0;
        for id in ids {
            count += u64::from(cx.remove::<Entry>(id)?);
        }
        Ok(count)
    }
}

procedure! {
    /// Returns the sum of a branch's order amounts, each multiplied by the factor of a rate. Changes nothing.
    pub fn tally(cx, branch: u32, rate: u16) -> i64, on [Order(branch)] {
        let factor = cx.get::<Rate>(rate)?.map_or(1, |rate| rate.factor);
        let mut sum = 0i64;
        for order in cx.rows::<Order>(branch) {
            sum = sum.wrapping_add(order?.amount.wrapping_mul(factor));
        }
        Ok(sum)
    }
}

procedure! {
    /// Changes an account and appends an entry. Then stops with an error or a panic, which undoes the transaction.
    pub fn fickle(cx, id: u64, amount: i64, panics: bool) -> (), on [Account(id)] {
        if cx.contains::<Account>(id)? {
            cx.modify::<Account>(id, |account| {
                account.balance += amount;
                account.owner.push('?');
            })?;
        }
        cx.append(&Entry { account: id, amount, text: "gone".into() })?;
        if panics {
            change_mind();
        }
        Err::<(), Abort>(CHANGED_MIND.into())
    }
}
