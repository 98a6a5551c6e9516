//! Commands that run in a thread beside the event loop.
//!
//! Some commands look at or change very many elements and cannot run in steps. They would hold up all clients if the
//! loop ran them. So a thread runs such a command as one ordinary transaction, which holds the latches of the command's
//! partitions. A thread also runs long MULTI blocks, and MULTI blocks with one of these commands.
//!
//! In the meantime all loops postpone requests for keys of these partitions ([`crate::flights`]), so no loop waits for a
//! latch. A command has *landed* when its loop has taken over its result. The command's partitions count as held until
//! then. Observers are informed at the commit, under the latches. So a client that reads or watches the changed keys sees
//! none or all of the command's changes. One command runs beside a loop at a time. A second command is postponed.
//!
//! Another loop may have looked at the flights just before a command was noted there. So the thread first waits until
//! each other loop has ended its round. Only then does it take latches.

use crate::acl::User;
use crate::command::data::{Claims, Host, Observing, Outcome};
use crate::command::dispatch::{Finished, note_run};
use crate::command::run::{add_partitions, failed, told_by};
use crate::command::server::info::{Fields, everything};
use crate::command::wait::answer;
use crate::command::{Command, Data, Told, flag};
use crate::common::Common;
use crate::cpus;
use crate::engine::{Attempt, Db, Epoch, Error, PartitionSet, Ticket, Tx};
use crate::flights::{Flight, Flights};
use crate::mailbox::Letter;
use crate::pubsub::Seat;
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::peers::Peers;
use crate::state::{Stage, State};
use perdura_base::num::to_u64;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The number of arguments that a command may have besides its elements.
const OPTIONS: u64 = 16;
/// The pause between two checks for room in the log.
const LOG_WAIT: Duration = Duration::from_millis(1);
/// Commands that may latch any partition, even if it holds none of the keys in their arguments.
const WHOLE: [&str; 4] = ["debug", "function", "info", "memory"];

/// A command or a MULTI block that runs beside the loop.
pub(crate) trait Load: Send {
    /// Runs within a transaction, perhaps several times, and writes the reply.
    fn run(&mut self, data: &mut Data<'_, '_>, out: &mut Out<'_>) -> Result<(), Error>;

    /// Returns the command and its arguments, for statistics and the slow log.
    fn request(&self) -> (&'static Command, Args<'_>);

    /// Calls `note` with each command that the load has run.
    fn each(&self, note: &mut dyn FnMut(&'static Command, &Args<'_>));

    /// Counts the commands that the load has run. The loop calls it after the load has landed.
    fn count(&mut self, _: &mut State, _: &Session) {}

    /// Returns the bytes of memory that the load holds.
    fn bytes(&self) -> usize;
}

/// A load of one command.
pub(crate) struct Single {
    /// The command.
    pub command: &'static Command,
    /// The command's arguments.
    pub args: OwnedArgs,
}

impl Load for Single {
    fn run(&mut self, data: &mut Data<'_, '_>, out: &mut Out<'_>) -> Result<(), Error> {
        data.run(self.command, &self.args.args(), out)
    }

    fn request(&self) -> (&'static Command, Args<'_>) {
        (self.command, self.args.args())
    }

    fn each(&self, note: &mut dyn FnMut(&'static Command, &Args<'_>)) {
        note(self.command, &self.args.args());
    }

    fn bytes(&self) -> usize {
        self.args.bytes()
    }
}

/// A load, and everything that the thread needs to run it.
struct Order {
    load: Box<dyn Load>,
    db: Db,
    host: Host,
    database: u8,
    partitions: PartitionSet,
    user: Arc<User>,
    seat: Seat,
    resp3: bool,
    /// True if the keys that the load reads are noted for its client.
    tracks: bool,
    now_ms: u64,
    common: Arc<Common>,
    /// The states of all loops.
    peers: Peers,
    newest: Epoch,
}

/// A load that has run.
struct Landed {
    load: Box<dyn Load>,
    result: Result<(Outcome, Ticket), Error>,
    reply: Vec<u8>,
    took: Duration,
}

impl Order {
    fn run(mut self) -> Landed {
        let (began, mut reply) = (Instant::now(), Vec::new());
        self.peers.wait_for_rounds(self.seat.event_loop);
        let result = loop {
            match self.attempt(&mut reply) {
                Ok(Attempt::Committed(outcome, ticket)) => break Ok((outcome, ticket)),
                Ok(Attempt::Behind { bytes }) => self.wait_for_log(bytes),
                Err(error) => break Err(error),
            }
        };
        Landed {
            load: self.load,
            result,
            reply,
            took: began.elapsed(),
        }
    }

    fn attempt(&mut self, reply: &mut Vec<u8>) -> Result<Attempt<Outcome>, Error> {
        let (load, resp3, common) = (RefCell::new(&mut self.load), self.resp3, &*self.common);
        let claims = RefCell::new(Claims::new(common));
        let mut run = |tx: &mut Tx<'_>| {
            let claims = &mut claims.borrow_mut();
            claims.restart();
            reply.clear();
            let mut data = Data::beside(&self.host, common, &self.db, tx, self.database);
            data.run_for(&self.user);
            load.borrow_mut()
                .run(&mut data, &mut Out::new(reply, resp3))?;
            data.serve(claims)?;
            data.finish()
        };
        let observing = Observing {
            common,
            writer: self.seat,
            newest: self.newest,
            reached: self.db.reached(),
        };
        let (seat, max) = (self.seat, self.host.tracking_keys_max);
        let publish = |outcome: &mut Outcome, ticket: Ticket| {
            if self.tracks {
                let note =
                    &mut |command, args: &Args<'_>| common.note_keys(seat, command, args, max);
                load.borrow().each(note);
            }
            outcome.publish(&observing, &mut claims.borrow_mut(), ticket.epoch);
        };
        Claims::complete(&claims, || {
            self.db
                .try_transact_then(&self.partitions, self.now_ms, &mut run, publish)
        })
    }

    /// Waits until the log has room for `bytes` bytes. The command begins only after that.
    fn wait_for_log(&self, bytes: usize) {
        while self.db.is_behind(bytes) {
            self.db.nudge();
            std::thread::sleep(LOG_WAIT);
        }
    }
}

/// The command that runs beside the loop.
struct Flying {
    seat: Seat,
    resp3: bool,
    bytes: usize,
    /// Letters to the client. They follow the command's reply.
    letters: Vec<Letter>,
}

/// The thread, and the command that runs in it.
#[derive(Default)]
pub(crate) struct Beside {
    thread: Option<(Sender<Order>, Receiver<Landed>)>,
    flight: Option<Flying>,
    /// A load that ran on the loop because no thread could be started. `None`: no load ran on the loop.
    landed: Option<Landed>,
    /// The clients with postponed requests.
    kept: Vec<Seat>,
    /// The postponed requests for all INFO fields. They arrived while a command ran beside a loop.
    figures: Vec<oneshot::Sender<Fields>>,
    /// The number of landings when the oldest of the postponed requests was postponed.
    landings: u64,
    wish: Wish,
}

/// The state of the loop's wish for the partitions of its postponed requests; see [`crate::flights`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// The loop wants no partition.
    #[default]
    No,
    /// The loop wants partitions.
    Open,
    /// The postponed requests run in the round that begins next. The wish ends with that round.
    Granted,
}

impl Beside {
    /// Returns whether a command runs beside the loop.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.flight.is_some()
    }

    /// Keeps a letter to the client of the command beside the loop. Returns false if the letter is for another client.
    pub(crate) fn keep_letter(&mut self, letter: &Letter) -> bool {
        let flight = self.flight.as_mut();
        let Some(flight) = flight.filter(|flight| flight.seat == letter.to) else {
            return false;
        };
        flight.letters.push(letter.clone());
        true
    }

    /// Postpones a client's request until another command has landed. `landings` is the number of landings before the
    /// loop looked at the flights.
    pub(crate) fn keep(&mut self, seat: Seat, landings: u64) {
        self.note_landings(landings);
        self.kept.push(seat);
    }

    /// Returns whether the loop must act because another command has landed, or end its wish.
    pub(crate) fn has_landings(&self, flights: &Flights) -> bool {
        self.wish == Wish::Granted || self.may_let_on(flights)
    }

    fn note_landings(&mut self, landings: u64) {
        if !self.waits_for_landing() {
            self.landings = landings;
        }
    }

    fn waits_for_landing(&self) -> bool {
        !self.kept.is_empty() || !self.figures.is_empty() || self.wish == Wish::Open
    }

    /// Returns whether requests have been postponed and a command has landed since then.
    pub(crate) fn may_let_on(&self, flights: &Flights) -> bool {
        self.waits_for_landing() && flights.landings() != self.landings
    }

    /// Returns the bytes of memory that the command beside the loop holds.
    pub(crate) fn bytes(&self) -> usize {
        self.flight.as_ref().map_or(0, |flight| flight.bytes)
    }

    /// Returns the bytes of memory that this client's command beside the loop holds. The result is 0 if the client has
    /// no command there.
    pub(crate) fn bytes_of(&self, seat: Seat) -> usize {
        let flight = self.flight.as_ref().filter(|flight| flight.seat == seat);
        flight.map_or(0, |flight| flight.bytes)
    }

    fn next_landed(&mut self) -> Option<Result<Landed, ()>> {
        if let Some(landed) = self.landed.take() {
            return Some(Ok(landed));
        }
        let (_, landed) = self.thread.as_ref()?;
        match landed.try_recv() {
            Ok(landed) => Some(Ok(landed)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.thread = None;
                Some(Err(()))
            }
        }
    }
}

impl State {
    /// Runs a client's load beside the loop. No other load may be running there. `held` are the partitions that
    /// the load latched on the loop before it turned out to be long.
    pub(crate) fn run_beside(
        &mut self,
        session: &Session,
        database: u8,
        held: PartitionSet,
        load: Box<dyn Load>,
    ) {
        let Stage::Ready(db) = &self.stage else {
            return;
        };
        debug_assert!(!self.beside.is_busy(), "one command at a time");
        let order = Order {
            load,
            db: db.clone(),
            host: Host::of(self),
            database,
            partitions: held,
            user: Arc::clone(&session.user),
            seat: session.seat,
            resp3: session.resp3,
            tracks: session.tracks_reads(),
            now_ms: self.wall_ms(),
            common: Arc::clone(&self.common),
            peers: self.peers.clone(),
            newest: self.newest(),
        };
        let flight = Flight::Beside(self.event_loop);
        self.common.flights.begin(flight, held);
        self.beside.flight = Some(Flying {
            seat: session.seat,
            resp3: session.resp3,
            bytes: order.load.bytes(),
            letters: Vec::new(),
        });
        if self.beside.thread.is_none() {
            self.beside.thread = self.begin_thread();
        }
        let refused = match &self.beside.thread {
            Some((orders, _)) => orders.send(order).err().map(|refused| refused.0),
            None => Some(order),
        };
        debug_assert!(
            self.beside.landed.is_none(),
            "what landed before was settled"
        );
        self.beside.landed = refused.map(|order| {
            // This loop's state is locked, so it must not wait for the others.
            let peers = Peers::default();
            Order { peers, ..order }.run()
        });
    }

    /// Starts the thread. Returns `None` if no thread could be started. Loads then run on the loop.
    fn begin_thread(&self) -> Option<(Sender<Order>, Receiver<Landed>)> {
        let ((orders, taken), (given, landed)) = (channel::<Order>(), channel());
        let gate = Arc::clone(&self.control.gate);
        let thread = std::thread::Builder::new().name("perdura-beside".into());
        let run = move || {
            cpus::unpin();
            for order in taken {
                if given.send(order.run()).is_err() {
                    return;
                }
                gate.wake();
            }
        };
        thread.spawn(run).ok().map(|_| (orders, landed))
    }

    /// Returns whether a request must wait until a command beside a loop has landed. The usual reason is a
    /// key in a held partition. A request that must wait is postponed.
    #[inline]
    pub(crate) fn waits_for_landing(
        &mut self,
        session: &Session,
        command: &'static Command,
        args: &Args<'_>,
    ) -> bool {
        let flights = &self.common.flights;
        (flights.any() || flights.any_wanted()) && self.comes_behind(session, command, args)
    }

    #[cold]
    fn comes_behind(
        &mut self,
        session: &Session,
        command: &'static Command,
        args: &Args<'_>,
    ) -> bool {
        let landings = self.common.flights.landings();
        let Some(db) = self.db() else { return false };
        let mut partitions = PartitionSet::empty();
        let is_exec = session.block.is_some() && command.name == "exec";
        match &session.block {
            Some(block) if command.name == "exec" => {
                for (command, owned) in &block.queue {
                    add_partitions(db, command, &owned.args(), &mut partitions);
                }
                for (_, key) in session.watched.keys() {
                    partitions.insert(db.partition_of(key));
                }
            }
            Some(_) if !command.has(flag::IMMEDIATE) => return false,
            _ => add_partitions(db, command, args, &mut partitions),
        }
        // A client that begins to track keys would miss the keys that are changing. CLIENT PAUSE must not begin
        // while a command writes.
        let concerns_all = [&b"TRACKING"[..], b"PAUSE"];
        let concerned = command.name == "client"
            && args.len() > 1
            && concerns_all
                .iter()
                .any(|word| args.at(1).eq_ignore_ascii_case(word));
        let is_whole = concerned || WHOLE.contains(&command.name);
        if is_whole {
            partitions = db.all_partitions();
        }
        let flights = &self.common.flights;
        let is_behind_wish = (is_exec || command.has(flag::SCRIPTS))
            && flights.is_wanted(self.event_loop, &partitions);
        if flights.holds(&partitions) || is_whole && flights.any() {
            self.want(&partitions, landings);
        } else if !is_behind_wish {
            return false;
        }
        self.beside.keep(session.seat, landings);
        true
    }

    /// Wants the partitions of a request that is postponed because a noted transaction holds them. `landings` is the
    /// number of landings before the loop looked at the flights.
    pub(crate) fn want(&mut self, partitions: &PartitionSet, landings: u64) {
        let replaces = self.beside.wish == Wish::Granted;
        let flights = &self.common.flights;
        if flights.want(self.event_loop, partitions, replaces) {
            self.beside.note_landings(landings);
            self.beside.wish = Wish::Open;
        }
    }

    /// Postpones a request for all INFO fields, as [`Beside::keep`] does. `landings` is the number of landings before the
    /// loop looked at the flights.
    pub(crate) fn keep_figures(&mut self, sender: oneshot::Sender<Fields>, landings: u64) {
        if let Some(db) = self.db() {
            let all = db.all_partitions();
            self.want(&all, landings);
        }
        self.beside.note_landings(landings);
        self.beside.figures.push(sender);
    }

    /// Ends the note of a transaction of this round that has taken long. Call this when the transaction has ended.
    #[inline]
    pub(crate) fn end_long(&self) {
        let flights = &self.common.flights;
        if flights.any() && flights.end(Flight::Round(self.event_loop)) {
            self.common.wake_others(self.event_loop);
        }
    }

    /// Takes over the result of the command beside the loop if that command has finished. Lets the postponed requests run
    /// after a command beside any loop has landed.
    pub(crate) fn land(&mut self) {
        if self.beside.wish == Wish::Granted {
            self.beside.wish = Wish::No;
            self.common.flights.unwant(self.event_loop);
            self.common.wake_others(self.event_loop);
        }
        if self.beside.is_busy() {
            self.land_own();
        }
        if self.beside.may_let_on(&self.common.flights) {
            self.let_kept_on();
        }
    }

    /// Lets the postponed requests run, because a command has landed.
    fn let_kept_on(&mut self) {
        if self.beside.wish == Wish::Open {
            self.beside.wish = Wish::Granted;
        }
        let kept = std::mem::take(&mut self.beside.kept);
        self.let_on(kept);
        let landings = self.common.flights.landings();
        for sender in std::mem::take(&mut self.beside.figures) {
            if self.common.flights.any() {
                self.keep_figures(sender, landings);
                continue;
            }
            // The thread that requested the fields may have stopped waiting for them.
            drop(sender.send(everything(self)));
        }
    }

    fn land_own(&mut self) {
        let Some(landed) = self.beside.next_landed() else {
            return;
        };
        debug_assert!(self.beside.landed.is_none(), "one command lands at a time");
        let Some(flight) = self.beside.flight.take() else {
            return;
        };
        let flight_of_loop = Flight::Beside(self.event_loop);
        let was_noted = self.common.flights.end(flight_of_loop);
        debug_assert!(was_noted, "what lands was noted");
        self.start_clock();
        match landed {
            Ok(landed) => self.settle_landed(&flight, landed),
            Err(()) => {
                super::command::wait::answer_blocked(self, flight.seat, Told::NOTHING, |out| {
                    out.error("ERR the command failed and changed nothing")
                })
            }
        }
        for letter in &flight.letters {
            self.append(letter);
        }
        self.read_mail();
        self.common.wake_others(self.event_loop);
    }

    fn settle_landed(&mut self, flight: &Flying, landed: Landed) {
        let Landed {
            mut load,
            result,
            reply,
            took,
        } = landed;
        let result = result.map(|(outcome, ticket)| {
            let told = outcome.told(ticket.epoch, self.reached);
            outcome.settle(self);
            self.newest = self.newest.max(told.epoch);
            told
        });
        debug_assert!(
            self.beside.flight.is_none(),
            "what has landed flies no more"
        );
        let index = flight.seat.index;
        let Some(mut connection) = self.connections.take(index) else {
            return;
        };
        if connection.session.seat != flight.seat || connection.closing || connection.doomed {
            return self.connections.put(index, connection);
        }
        let start = connection.replies.buf.len();
        let mut out = Out::new(&mut connection.replies.buf, flight.resp3);
        let told = match result {
            Ok(told) => {
                out.append(reply);
                told
            }
            Err(error) => {
                failed(self, &error, &mut out);
                told_by(self, &error)
            }
        };
        (connection.gathered, connection.under_way) = (0, 0);
        load.count(self, &connection.session);
        let (command, args) = load.request();
        let finished = Finished {
            command,
            args: &args,
            reply: connection.replies.buf.get(start..).unwrap_or(&[]),
            took,
        };
        note_run(self, &connection.session, &finished);
        connection.session.end_caching(command);
        answer(self, &mut connection, start, told);
        connection.account(self);
        self.connections.put(index, connection);
        self.touch(index);
        discard(load);
    }

    /// Returns whether a command should run beside the loop because of the number of its arguments.
    pub(crate) fn has_many_arguments(&self, command: &Command, args: &Args<'_>) -> bool {
        // LPUSH and RPUSH are left out because they build a new list in steps.
        let pushes = matches!(command.name, "lpush" | "rpush");
        let stays = command.has(flag::SCRIPTS) || command.has(flag::BLOCKING);
        to_u64(args.len()) > self.steps.long.saturating_add(OPTIONS) && !pushes && !stays
    }
}

/// Frees the memory of a load. Freeing a large load takes long, so a thread does it.
fn discard(load: Box<dyn Load>) {
    const AT_ONCE: usize = 1 << 20;
    if load.bytes() > AT_ONCE {
        let thread = std::thread::Builder::new().name("perdura-free".into());
        // If no thread can be started, `spawn` drops the closure, and with it the load, right here.
        let _ = thread.spawn(move || {
            cpus::unpin();
            drop(load);
        });
    }
}
