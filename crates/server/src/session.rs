//! What a client has told about itself: its database, its protocol version, whether it has
//! proved who it is, the block it is queueing, and when it wants its replies.

use crate::acl::{Acl, User};
use crate::command::Command;
use crate::pubsub::{Seat, Subscriptions};
use crate::resp::parse::OwnedArgs;
use crate::watch::Watch;
use std::sync::Arc;
use std::time::Instant;

/// When a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// When the disk has it: the default.
    Disk,
    /// At once, as long as the disk is at most 10 ms behind.
    Mem,
}

/// A block opened by MULTI.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The commands, in order.
    pub queue: Vec<(&'static Command, OwnedArgs)>,
    /// Bytes the queue holds.
    pub bytes: usize,
    /// Whether a command could not be queued, so that EXEC will refuse.
    pub broken: bool,
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
    /// Who it is; the rules in it are always those in force.
    pub user: Arc<User>,
    /// Whether it has proved who it is, or need not.
    pub authenticated: bool,
    /// The open MULTI block.
    pub block: Option<Block>,
    /// The keys that must not change for EXEC to run.
    pub watched: Vec<Watch>,
    /// What it is subscribed to.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// When replies leave.
    pub durability: Durability,
    /// When the connection was accepted.
    pub since: Instant,
    /// When the last request arrived.
    pub active: Instant,
    /// The last command.
    pub last: Option<&'static Command>,
}

impl Session {
    /// A client that has said nothing yet.
    pub(crate) fn new(seat: Seat, peer: String, local: String, unix: bool, acl: &Acl) -> Self {
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
            watched: Vec::new(),
            subscriptions: None,
            durability: Durability::Disk,
            since: now,
            active: now,
            last: None,
        }
    }

    /// Back to the state after connecting, as RESET asks.
    pub(crate) fn reset(&mut self, acl: &Acl) {
        self.name.clear();
        self.database = 0;
        self.resp3 = false;
        self.user = Arc::clone(acl.default_user());
        self.authenticated = acl.open();
        self.block = None;
        self.durability = Durability::Disk;
    }

    /// The line of CLIENT LIST and CLIENT INFO.
    pub(crate) fn describe(&self, now: Instant, output_bytes: usize) -> String {
        let multi = self
            .block
            .as_ref()
            .map_or(String::from("-1"), |b| b.queue.len().to_string());
        let mut flags = String::new();
        if self.block.is_some() {
            flags.push('x');
        }
        if self.unix {
            flags.push('U');
        }
        if flags.is_empty() {
            flags.push('N');
        }
        format!(
            "id={} addr={} laddr={} name={} age={} idle={} flags={} db={} sub=0 psub=0 multi={} \
             obl={} tot-mem={} cmd={} user={} resp={} lib-name={} lib-ver={} durability={}\n",
            self.seat.id,
            self.peer,
            self.local,
            String::from_utf8_lossy(&self.name),
            now.saturating_duration_since(self.since).as_secs(),
            now.saturating_duration_since(self.active).as_secs(),
            flags,
            self.database,
            multi,
            output_bytes,
            output_bytes + self.block.as_ref().map_or(0, |b| b.bytes),
            self.last.map_or("NULL", |c| c.name),
            String::from_utf8_lossy(&self.user.name),
            if self.resp3 { 3 } else { 2 },
            String::from_utf8_lossy(&self.library[0]),
            String::from_utf8_lossy(&self.library[1]),
            match self.durability {
                Durability::Disk => "disk",
                Durability::Mem => "mem",
            },
        )
    }
}
