//! What a client has told about itself: its database, its protocol version, whether it has
//! authenticated, the block that it queues, and when it wants its replies.

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

/// Whether requests are answered, as CLIENT REPLY says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mute {
    /// They are.
    No,
    /// None is.
    All,
    /// The next one is not: the running one has said so.
    SkipNext,
    /// This one is not.
    Skip,
}

/// A block opened by MULTI.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The commands, in order.
    pub queue: Vec<(&'static Command, OwnedArgs)>,
    /// Bytes the queue holds.
    pub bytes: usize,
    /// The arguments of all its commands, their names included.
    pub words: usize,
    /// True if a command is not about data, is a script, or uses a whole database.
    pub is_wide: bool,
    /// Whether a command could not be queued, so that EXEC will refuse.
    pub broken: bool,
    /// Whether a command may have to wait for a password.
    pub proves: bool,
}

impl Block {
    /// The keys of its commands from one of them on.
    pub(crate) fn keys_from(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        let queue = self.queue[at..].iter();
        queue.flat_map(|(command, owned)| command.key_args(&owned.args()))
    }

    /// How many of its commands change data.
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
    /// Its place, and an id that is never used twice within a life of the server.
    pub seat: Seat,
    /// The peer.
    pub peer: String,
    /// Our end.
    pub local: String,
    /// Whether it came through the Unix socket.
    pub unix: bool,
    /// The name given by CLIENT SETNAME.
    pub name: Vec<u8>,
    /// The client library's name and version.
    pub library: [Vec<u8>; 2],
    /// The chosen database, 0 to 15.
    pub database: u8,
    /// Whether replies are RESP3.
    pub resp3: bool,
    /// Its user, always with the rules in force.
    pub user: Arc<User>,
    /// Whether it has authenticated, or need not.
    pub authenticated: bool,
    /// The open MULTI block.
    pub block: Option<Block>,
    /// The keys that must not change for EXEC to run.
    pub watched: Own,
    /// What it is subscribed to.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// How durable what a reply tells of must be for the reply to leave.
    pub durability: Durability,
    /// The epoch of its newest write; zero before the first.
    pub written: Epoch,
    /// The newest epoch that it was told of, its own writes included.
    pub told: Epoch,
    /// When the connection was accepted.
    pub since: Instant,
    /// When the last request arrived, its reply was ready after a wait, or a part of a reply left.
    pub active: Instant,
    /// The last command.
    pub last: Option<&'static Command>,
    /// Which of its second words it was.
    pub last_word: Option<usize>,
    /// Whether it is shown every command.
    pub monitors: bool,
    /// Whether its requests are answered.
    pub mute: Mute,
    /// Bytes read and not done with when its newest request began, that one included.
    pub unread: usize,
    /// Wrong passwords so far.
    pub wrong: u32,
    /// How far the passwords of its next request are judged.
    pub proof: Proof,
    /// Whether its next request waits for a password to be tried or hashed.
    pub asks: bool,
    /// What its next request has taken before it was kept back for the log.
    pub spent: Duration,
    /// Whether its next request is kept back by CLIENT PAUSE.
    pub in_pause: bool,
    /// Whether it is spared when clients' buffers take too much.
    pub no_evict: bool,
    /// Which of its reads are noted.
    pub reads: Reads,
    /// Whether CLIENT CACHING was said of its next command.
    pub caching: bool,
}

impl Session {
    /// A client that has said nothing yet.
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

    /// Whether this command may have to wait for a password before it can run.
    #[inline]
    pub(crate) fn may_prove(&self, command: &Command) -> bool {
        command.has(flag::PROVES)
            && match &self.block {
                Some(block) => block.proves && command.has(flag::IMMEDIATE),
                None => true,
            }
    }

    /// Back to the state after connecting, as RESET asks.
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

    /// The last command's name, with its second word if it has one.
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

    /// Whether it may do nothing but listen: it has subscribed and speaks RESP2.
    pub(crate) fn only_listens(&self) -> bool {
        let own = self.subscriptions.as_ref();
        !self.resp3 && own.is_some_and(|own| own.total() > 0)
    }

    /// What something waits for that tells it of `epoch`.
    pub(crate) fn rest(&mut self, epoch: Epoch) -> Rest {
        self.rest_at(Durability::Mem, epoch)
    }

    /// The same of something that is at least this durable, whatever the client has chosen.
    pub(crate) fn rest_at(&mut self, least: Durability, epoch: Epoch) -> Rest {
        self.told = self.told.max(epoch);
        Rest {
            epoch,
            durability: self.durability.max(least),
        }
    }

    /// Notes that it has written in this epoch; zero if it only read.
    pub(crate) fn note_write(&mut self, epoch: Epoch) {
        self.written = self.written.max(epoch);
    }

    /// The name of its user.
    pub(crate) fn user_name(&self) -> &[u8] {
        &self.user.name
    }
}
