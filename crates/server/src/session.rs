//! The state of one client: its database, protocol version, user, MULTI block, and the durability of its replies.

use crate::acl::prove::Proof;
use crate::acl::{Acl, User};
use crate::command::{Command, flag};
use crate::engine::{Durability, Epoch};
use crate::pubsub::{Seat, Subscriptions};
use crate::replies::Rest;
use crate::resp::parse::OwnedArgs;
use crate::state::State;
use crate::tracking::Reads;
use crate::watch::Own;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The mode of CLIENT REPLY: the requests that are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mute {
    /// All requests are answered.
    No,
    /// No request is answered.
    All,
    /// The next request is not answered, because the running request is CLIENT REPLY SKIP.
    SkipNext,
    /// This request is not answered.
    Skip,
}

/// A block opened by MULTI.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The commands, in order.
    pub queue: Vec<(&'static Command, OwnedArgs)>,
    /// The bytes that the queue holds.
    pub bytes: usize,
    /// The number of arguments of all commands in the queue, the commands' names included.
    pub words: usize,
    /// True if a command is not about data, is a script, or uses a whole database.
    pub is_wide: bool,
    /// True if a command could not be queued, so that EXEC will fail.
    pub broken: bool,
    /// True if a command in the queue may have to wait until a password is checked or hashed.
    pub proves: bool,
}

impl Block {
    /// Returns the keys of the block's commands, beginning with the command at index `at`.
    pub(crate) fn keys_from(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        let queue = self.queue[at..].iter();
        queue.flat_map(|(command, owned)| command.key_args(&owned.args()))
    }

    /// Returns the number of the block's commands that change data.
    pub(crate) fn writes(&self) -> usize {
        let writes = self
            .queue
            .iter()
            .filter(|(command, _)| command.has(flag::WRITE));
        writes.count()
    }
}

/// The state of one client.
#[derive(Debug)]
pub(crate) struct Session {
    /// The client's slot, and an id that is not used again until the server restarts.
    pub seat: Seat,
    /// The peer's address.
    pub peer: String,
    /// The server's own address.
    pub local: String,
    /// True if the client came through the Unix socket.
    pub unix: bool,
    /// The name given by CLIENT SETNAME.
    pub name: Vec<u8>,
    /// The client library's name and version.
    pub library: [Vec<u8>; 2],
    /// The chosen database, 0 to 15.
    pub database: u8,
    /// True if replies are RESP3.
    pub resp3: bool,
    /// The client's user, with the rules that are in force now.
    pub user: Arc<User>,
    /// True if the client has authenticated, or need not.
    pub authenticated: bool,
    /// The open MULTI block. `None`: no block is open.
    pub block: Option<Block>,
    /// The keys of WATCH. If one of them has changed, EXEC does not run the block.
    pub watched: Own,
    /// The client's subscriptions. `None`: the client has none.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The durability that a write needs before a reply may show the write.
    pub durability: Durability,
    /// The epoch of the client's newest write; zero before the first write.
    pub written: Epoch,
    /// The newest epoch that a reply has shown to the client, the client's own writes included.
    pub told: Epoch,
    /// The time of the connection's acceptance.
    pub since: Instant,
    /// The time of the last activity: a request arrived, a reply was ready after a wait, or a part of a reply left.
    pub active: Instant,
    /// The client's last command. `None`: the client has sent no command.
    pub last: Option<&'static Command>,
    /// The index of the second word of the last command. `None`: the command has no second word.
    pub last_word: Option<usize>,
    /// True if the client is shown every command (MONITOR).
    pub monitors: bool,
    /// The mode of CLIENT REPLY.
    pub mute: Mute,
    /// The size of the newest request and of the input after it, in bytes, at the start of the request's run.
    pub unread: usize,
    /// The number of wrong passwords so far.
    pub wrong: u32,
    /// The progress of checking the passwords of the client's next request.
    pub proof: Proof,
    /// True if the client's next request waits until a password is checked or hashed.
    pub asks: bool,
    /// The running time of scripts in earlier attempts of the client's next request. Each of these attempts was
    /// postponed.
    pub spent: Duration,
    /// True if the client's next request is deferred by CLIENT PAUSE.
    pub in_pause: bool,
    /// True if the client stays connected when clients' buffers take too much (CLIENT NO-EVICT).
    pub no_evict: bool,
    /// The client's reads that CLIENT TRACKING notes.
    pub reads: Reads,
    /// True if CLIENT CACHING applies to the client's next command.
    pub caching: bool,
}

impl Session {
    /// Returns the session of a new client.
    pub(crate) fn new(seat: Seat, peer: String, local: String, unix: bool, state: &State) -> Self {
        let acl = &state.acl;
        let now = Instant::now();
        Session {
            seat,
            peer,
            local,
            unix,
            name: Vec::new(),
            library: Default::default(),
            database: 0,
            resp3: false,
            user: Arc::clone(acl.default_user()),
            authenticated: acl.open(),
            block: None,
            watched: Own::new(),
            subscriptions: None,
            durability: state.options.durability,
            written: Epoch(0),
            told: Epoch(0),
            since: now,
            active: now,
            last: None,
            last_word: None,
            monitors: false,
            mute: Mute::No,
            unread: 0,
            wrong: 0,
            proof: Proof::default(),
            asks: false,
            spent: Duration::ZERO,
            in_pause: false,
            no_evict: false,
            reads: Reads::None,
            caching: false,
        }
    }

    /// Returns whether this command may have to wait until a password is checked or hashed.
    #[inline]
    pub(crate) fn may_prove(&self, command: &Command) -> bool {
        command.has(flag::PROVES)
            && match &self.block {
                Some(block) => block.proves && command.has(flag::IMMEDIATE),
                None => true,
            }
    }

    /// Resets the session to its state after connecting, for RESET.
    pub(crate) fn reset(&mut self, acl: &Acl, durability: Durability) {
        self.name.clear();
        self.database = 0;
        self.resp3 = false;
        self.user = Arc::clone(acl.default_user());
        self.authenticated = acl.open();
        self.block = None;
        self.durability = durability;
        (self.written, self.told) = (Epoch(0), Epoch(0));
        self.monitors = false;
        self.mute = Mute::No;
        self.no_evict = false;
    }

    /// Returns the last command's name, with the second word of a command that has one.
    pub(crate) fn last_name(&self) -> String {
        let word = |command: &Command| {
            let (word, _) = command.words.get(self.last_word?)?;
            Some(format!("{}|{word}", command.name))
        };
        match self.last {
            None => String::from("NULL"),
            Some(command) => word(command).unwrap_or_else(|| String::from(command.name)),
        }
    }

    /// Returns whether the client may do nothing but listen: it has subscribed and speaks RESP2.
    pub(crate) fn only_listens(&self) -> bool {
        let own = self.subscriptions.as_ref();
        !self.resp3 && own.is_some_and(|own| own.total() > 0)
    }

    /// Returns the condition for sending a reply that shows `epoch`. Notes that the client will see `epoch`.
    pub(crate) fn rest(&mut self, epoch: Epoch) -> Rest {
        self.rest_at(Durability::Mem, epoch)
    }

    /// Like [`rest`](Self::rest), but with at least this durability, whatever the client has chosen.
    pub(crate) fn rest_at(&mut self, least: Durability, epoch: Epoch) -> Rest {
        self.told = self.told.max(epoch);
        Rest {
            epoch,
            durability: self.durability.max(least),
        }
    }

    /// Notes the epoch of a transaction of the client; zero if the transaction wrote nothing.
    pub(crate) fn note_write(&mut self, epoch: Epoch) {
        self.written = self.written.max(epoch);
    }

    /// Returns the name of the client's user.
    pub(crate) fn user_name(&self) -> &[u8] {
        &self.user.name
    }
}
