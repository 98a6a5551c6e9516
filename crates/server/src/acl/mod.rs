//! Access control: users, their rights, and the log of denials.
//!
//! Every client acts as a user. Before authentication a client acts as the user `default`. The rules and the error
//! texts are Redis's. A session refers to its user directly. When rules change, every session of the user gets the
//! user's new version. So a request looks up no user, and costs only one branch if the user may do everything.
//!
//! # Parts
//! * `catalog`: the commands that rules refer to. `selector`: a set of rules. `user`: a user and
//!   its sets of rules.
//! * `rules` parses rules; `describe` writes them as text. `file`: the ACL file.
//! * `secret`: a password, at rest and in memory. `prove` checks passwords without blocking the event loop. `throttle`
//!   slows down guesses. `log`: the denials and their clients.
//!
//! # Where users live
//! Users are configuration, as in Redis, and not part of the database. They come from the ACL file
//! or the configuration, and ACL SAVE writes them. A backup of the data holds no passwords.
//!
//! # Deviations
//! * ACL LOAD disconnects only clients of users that no longer exist. Redis 7.0 disconnects the clients of every user
//!   except `default`.
//! * If an ACL file does not name `default`, that user stays as `requirepass` made it. In Redis the user `default` may
//!   then do everything without a password.

pub(crate) mod catalog;
mod describe;
mod file;
pub(crate) mod log;
pub(crate) mod prove;
mod rules;
mod secret;
pub(crate) mod selector;
pub(crate) mod throttle;
pub(crate) mod user;

pub(crate) use catalog::CATALOG;
pub(crate) use describe::hex;
pub(crate) use rules::RulesError;
pub(crate) use user::User;

use crate::command::Command;
use crate::denial::{Denied, Reason};
use crate::pubsub::Topic;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::State;
use log::{Context, Entry};
use secret::{Mark, PASSWORD_BYTES_MAX, Secret};
use std::collections::BTreeMap;
use std::sync::Arc;
use user::Judged;

/// The name of the user that every client acts as until it authenticates.
const DEFAULT: &[u8] = b"default";

/// The users.
#[derive(Debug)]
pub(crate) struct Acl {
    users: BTreeMap<Vec<u8>, Arc<User>>,
    default: Arc<User>,
    /// True if commands have changed users since the configuration was stored.
    pub changed: bool,
    /// New passwords that [`prove`] has not taken over for hashing yet.
    fresh: Vec<Arc<Secret>>,
}

impl Acl {
    /// Returns an access control with the single user `default`.
    pub(crate) fn new() -> Self {
        let default = Arc::new(User::all_powerful(DEFAULT));
        Acl {
            users: BTreeMap::from([(DEFAULT.to_vec(), Arc::clone(&default))]),
            default,
            changed: false,
            fresh: Vec::new(),
        }
    }

    /// Gives the user `default` the password of `requirepass`. If `requirepass` is empty, `default` needs no password.
    pub(crate) fn set_requirepass(&mut self, password: Option<&[u8]>) {
        let mut user = User::clone(&self.default);
        user.passwords.clear();
        user.nopass = true;
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            user.nopass = false;
            user.passwords.push(Secret::of(password));
        }
        self.put(user);
    }

    /// Returns `default`, the user that every client acts as until it authenticates.
    pub(crate) fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Returns whether a client may act as `default` without authenticating.
    pub(crate) fn open(&self) -> bool {
        self.default.nopass && self.default.enabled
    }

    /// Returns the user called `name`.
    pub(crate) fn user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// Returns all users, sorted by name.
    pub(crate) fn users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// Returns the user called `name` if the password is already known to be right. [`prove`] has checked the password
    /// before the request runs.
    pub(crate) fn login(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.users.get(name)?;
        let right = matches!(user.judge(&Mark::of(password)), Judged::Right);
        right.then(|| Arc::clone(user))
    }

    /// Adds a user. If a user with this name exists, the new user takes its place.
    fn put(&mut self, user: User) {
        let user = Arc::new(user);
        let fresh = user.passwords.iter().filter(|secret| !secret.is_stored());
        self.fresh.extend(fresh.cloned());
        if user.name == DEFAULT {
            self.default = Arc::clone(&user);
        }
        self.users.insert(user.name.clone(), user);
        debug_assert!(
            self.users
                .get(DEFAULT)
                .is_some_and(|user| Arc::ptr_eq(user, &self.default)),
            "one user is the default"
        );
    }

    /// Applies rules to a user, and makes the user if it does not exist. An error changes nothing.
    pub(crate) fn set_user<'a>(
        &mut self,
        name: &[u8],
        words: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<(), RulesError> {
        let mut user = match self.users.get(name) {
            Some(user) => User::clone(user),
            None => User::new(name, all_channels),
        };
        user.apply(words, all_channels)?;
        self.put(user);
        self.changed = true;
        Ok(())
    }

    /// Takes over the users of another loop. That loop hashes their new passwords.
    pub(crate) fn adopt(&mut self, from: &Acl) {
        self.users.clone_from(&from.users);
        self.default = Arc::clone(&from.default);
        self.changed = from.changed;
    }

    /// Takes the passwords added since the last call. The caller must hash them.
    fn take_fresh(&mut self) -> Vec<Arc<Secret>> {
        std::mem::take(&mut self.fresh)
    }

    /// Removes a user. Returns false if the user does not exist. Also returns false for `default`, which cannot be
    /// removed.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let removed = name != DEFAULT && self.users.remove(name).is_some();
        self.changed |= removed;
        debug_assert!(self.users.contains_key(DEFAULT), "the default user stays");
        removed
    }
}

/// Returns whether a user may have this name. A name must not be empty or contain a blank or a zero byte, because the
/// ACL file could not hold it.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|b| rules::is_blank(*b) || *b == 0)
}

/// Checks a request of a user that may not do everything. Returns the reply as an error if the request is denied.
#[cold]
pub(crate) fn check(
    state: &mut State,
    session: &Session,
    command: &Command,
    args: &Args<'_>,
) -> Result<(), String> {
    match session.user.check(command, args) {
        Ok(()) => check_sort(session, command, args),
        Err(denied) => Err(deny(state, session, denied)),
    }
}

/// Adds a denial to the log. Returns the error to reply with.
pub(crate) fn deny(state: &mut State, session: &Session, denied: Denied) -> String {
    let text = match denied.reason {
        Reason::Command => {
            let name = String::from_utf8_lossy(&denied.object);
            format!("NOPERM this user has no permissions to run the '{name}' command")
        }
        Reason::Key => String::from(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
        ),
        Reason::Channel | Reason::Auth => String::from(
            "NOPERM this user has no permissions to access one of the channels used as \
                 arguments",
        ),
    };
    let context = if session.block.is_some() {
        Context::Multi
    } else {
        Context::TopLevel
    };
    note(state, session, denied, context, None);
    text
}

/// Checks the options of SORT. Returns the reply as an error if an option is denied.
fn check_sort(session: &Session, command: &Command, args: &Args<'_>) -> Result<(), String> {
    session.user.check_sort(command, args).map_err(|option| {
        format!("ERR {option} option of SORT denied due to insufficient ACL permissions.")
    })
}

/// Checks a command of a MULTI block again when the block runs, because the rules may have changed. Returns the
/// command's reply as an error if the command is denied.
pub(crate) fn check_again(
    state: &mut State,
    session: &Session,
    command: &Command,
    args: &Args<'_>,
) -> Result<(), String> {
    if session.user.unlimited() {
        return Ok(());
    }
    let Err(denied) = session.user.check(command, args) else {
        return check_sort(session, command, args);
    };
    let why = match denied.reason {
        Reason::Command => "no permission to run the command or subcommand",
        Reason::Key => "no permission to touch the specified keys",
        Reason::Channel | Reason::Auth => {
            "no permission to access one of the channels used as arguments to the command"
        }
    };
    note(state, session, denied, Context::Multi, None);
    Err(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
         EXEC call. This command is no longer allowed for the following reason: {why}"
    ))
}

/// Logs a client in. If the name or the password is wrong, adds the attempt to the log and returns `false`.
pub(crate) fn login(
    state: &mut State,
    session: &mut Session,
    command: &str,
    name: &[u8],
    password: &[u8],
) -> bool {
    if let Some(user) = state.acl.login(name, password) {
        session.user = user;
        session.authenticated = true;
        state.common.renew_tracking(session.seat.id, &session.user);
        state.forget_stranger(session.seat);
        return true;
    }
    let denied = Denied {
        reason: Reason::Auth,
        at: 0,
        object: command.as_bytes().to_vec(),
    };
    let context = if session.block.is_some() {
        Context::Multi
    } else {
        Context::TopLevel
    };
    note(state, session, denied, context, Some(name));
    false
}

/// Adds a denial to the log: a script tried something that its caller may not do.
pub(crate) fn note_of_script(state: &mut State, denied: Denied) {
    let Some((user, client)) = state.scripts.caller() else {
        return;
    };
    let (max, now) = (state.options.acllog_len_max, state.now);
    let entry = Entry::new(denied, Context::Script, &user.name, &client, now);
    state.common.denials.lock().add(entry, max);
}

fn note(
    state: &mut State,
    session: &Session,
    denied: Denied,
    context: Context,
    name: Option<&[u8]>,
) {
    let client = crate::command::connection::client::line(session, state.now);
    let max = state.options.acllog_len_max;
    let name = name.unwrap_or(&session.user.name);
    let entry = Entry::new(denied, context, name, &client, state.now);
    state.common.denials.lock().add(entry, max);
}

/// Updates the user `default` after `requirepass` was changed. Logged-in clients stay logged in.
pub(crate) fn requirepass_changed(state: &mut State, mine: &mut Session) {
    let password = state.options.requirepass.as_deref().map(str::as_bytes);
    state.acl.set_requirepass(password);
    // `default` always exists, so no client is disconnected.
    spread(state, mine);
}

/// Gives every session the current version of its user. Disconnects the clients of removed users, and clients that
/// listen to a channel that is now forbidden. Returns `false` if the caller must disconnect the client of `mine`.
pub(crate) fn spread(state: &mut State, mine: &mut Session) -> bool {
    let mut others = std::mem::take(&mut state.others);
    for other in &mut others {
        other.acl.adopt(&state.acl);
        renew_clients(other);
    }
    state.others = others;
    renew_clients(state);
    renew(&state.acl, mine)
}

/// Gives the sessions of one loop the current versions of their users.
fn renew_clients(state: &mut State) {
    let acl = &state.acl;
    let mut gone = Vec::new();
    for (index, connection) in state.connections.iter_mut() {
        let session = &mut connection.session;
        if !renew(acl, session) {
            // The requests that the client has sent are still answered.
            connection.closing = true;
            gone.push(index);
            continue;
        }
        let (id, user) = (session.seat.id, &session.user);
        if connection.blocked {
            let blocking = &state.common.blocking;
            blocking.with(|blocking| blocking.renew(id, user));
        }
        state.common.renew_tracking(id, user);
    }
    for index in gone {
        if let Some(connection) = state.connections.take(index) {
            // Until the connection is closed, no event may serve the client.
            state.stop_waiting(&connection.session);
            state.connections.put(index, connection);
        }
        state.touch(index);
    }
}

/// Gives a session the current version of its user. Returns `false` if its client must be disconnected.
fn renew(acl: &Acl, session: &mut Session) -> bool {
    let Some(user) = acl.user(&session.user.name) else {
        return false;
    };
    if Arc::ptr_eq(user, &session.user) {
        return true;
    }
    session.user = Arc::clone(user);
    let listens = session.subscriptions.as_deref();
    let topics = [
        (Topic::Channel, false),
        (Topic::Pattern, true),
        (Topic::Shard, false),
    ];
    listens.is_none_or(|listens| {
        topics.iter().all(|(topic, is_pattern)| {
            let mut names = listens.names(*topic);
            names.all(|name| user.may_listen(name, *is_pattern))
        })
    })
}

#[cfg(test)]
mod tests;
