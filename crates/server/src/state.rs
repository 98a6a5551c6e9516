//! The state of a loop, which its connections share. While the loop runs a round, only its thread touches the state. See
//! [`crate::state::peers`] for the exceptions.

use crate::acl::Acl;
use crate::acl::prove::Prover;
use crate::alarms::{Alarm, LostLines};
use crate::beside::Beside;
use crate::changes::Changes;
use crate::command::lookup::Lookup;
use crate::command::scripts::Scripts;
use crate::command::steps::Steps;
use crate::common::{Common, Home};
use crate::conditions::Conditions;
use crate::connection::Connections;
use crate::control::Control;
use crate::deadlines::Deadlines;
use crate::engine::{Db, Delayed, Epoch, Options, Packing, Progress, Reached};
use crate::jobs::Jobs;
use crate::latency::nanoseconds;
use crate::notify;
use crate::options::{ServeError, ServerOptions};
use crate::pause::Pause;
use crate::pubsub::Seat;
use crate::resp::foreign::Foreign;
use crate::rounds::Rounds;
use crate::rung_waits::RungWaits;
use crate::session::Session;
use crate::state::peers::{LockedState, Peers};
use crate::stats::Stats;
use crate::supervise::Supervisor;
use crate::tls::TlsAuthClients;
use rustls::ServerConfig;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) mod figures;
pub(crate) mod peers;

/// The minimum time between two log lines about clients that do not speak RESP.
const FOREIGN_SILENCE: Duration = Duration::from_secs(60);

/// The database, or the progress of opening it.
pub(crate) enum Stage {
    /// A second thread opens the database.
    Loading(Arc<Progress>),
    /// It is open.
    Ready(Db),
}

/// The state that CONFIG needs besides the server's options.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The database's options.
    pub database: Options,
    /// The settings that CONFIG SET has changed, for CONFIG REWRITE.
    pub changed: BTreeSet<&'static str>,
}

impl Config {
    /// Returns the state for a database with these options.
    fn new(database: Options) -> Config {
        Config {
            database,
            changed: BTreeSet::new(),
        }
    }
}

/// A loop of the server.
pub(crate) struct State {
    /// The options in force.
    pub options: ServerOptions,
    /// The longest value, bytes.
    pub value_bytes_max: usize,
    /// The TCP port, 0 for none.
    pub port: u16,
    /// The database.
    pub stage: Stage,
    /// Commands by name.
    pub lookup: Lookup,
    /// All connections except the connection with running requests.
    pub connections: Connections,
    /// Clients that have not authenticated. The client that connected first is at the front.
    pub strangers: VecDeque<Seat>,
    /// The maximum number of clients that the file descriptors allow.
    pub clients_fit: usize,
    /// Users.
    pub acl: Acl,
    /// The passwords that are being checked, and the deferred answers.
    pub prover: Prover,
    /// Counters.
    pub stats: Stats,
    /// The durable epoch of each rung. The loop updates these epochs at least once in each round.
    pub reached: Reached,
    /// The reason why the database stopped. `None`: it has not stopped.
    pub stopped: Option<String>,
    /// Work that a failing disk delays.
    pub delayed: Vec<Delayed>,
    /// The conditions that the operator's log reported last.
    pub conditions: Conditions,
    /// The alarms, as logged last.
    pub alarms: Vec<Alarm>,
    /// Lines of the operator's log that were lost.
    pub lost_lines: LostLines,
    /// The beginning of the current round of the loop.
    pub now: Instant,
    /// The sender of messages from other threads to the loop.
    pub control: Control,
    /// The time of the database's opening, seconds since 1970.
    pub opened_at: u64,
    /// Changes of keys since the newest checkpoint.
    pub changes: Changes,
    /// The state of CONFIG.
    pub config: Config,
    /// The state that all loops share.
    pub common: Arc<Common>,
    /// The index of this loop.
    pub event_loop: usize,
    /// The states of all loops. Empty if there is only one.
    pub peers: Peers,
    /// The locked states of the other loops, while this loop runs a command alone: see [`crate::alone`].
    pub others: Vec<LockedState>,
    /// True while this loop runs a command alone.
    pub runs_alone: bool,
    /// The clients with requests that wait until this loop runs alone.
    pub wants_alone: Vec<Seat>,
    /// The deadlines of this loop's clients that wait for keys.
    pub deadlines: Deadlines,
    /// The keys, each with its database, whose waiting clients are to be served again.
    pub try_again: Vec<(u8, Box<[u8]>)>,
    /// Like `try_again`, for keys whose clients the engine has refused to serve. They are tried at the next tick.
    pub try_later: Vec<(u8, Box<[u8]>)>,
    /// The clients that wait in WAITDUR.
    pub rung_waits: RungWaits,
    /// The clients with commands in steps.
    pub jobs: Jobs,
    /// The command that runs beside the loop.
    pub beside: Beside,
    /// The size of data above which a command runs in steps, and the size of a step.
    pub steps: Steps,
    /// Scripts.
    pub scripts: Scripts,
    /// The start time of the running command. Between commands, the start time of the next command.
    pub clock: Instant,
    /// The time of `clock`, nanoseconds since 1970.
    wall_ns: u64,
    /// The newest epoch that a reply has depended on so far. Replies that do not wait for the disk count too.
    pub newest: Epoch,
    /// The requests that CLIENT PAUSE defers.
    pub pause: Pause,
    /// True if the keys of a pipeline are fetched before its first command runs.
    pub looks_ahead: bool,
    /// The bounds of packed collections.
    pub packing: Packing,
    /// True if the database notes the last use of keys.
    pub notes_accesses: bool,
    /// The client with the running command. [`Seat::NOBODY`]: no command runs.
    pub running: Seat,
    /// Connections that got new output from the command of another connection.
    pub touched: Vec<usize>,
    /// The service manager. `None`: this process has none.
    pub supervisor: Option<Supervisor>,
    /// The durations of the loop's rounds.
    pub rounds: Rounds,
    /// The maximum number of bytes that clients' buffers may take. `None`: no limit.
    pub client_share: Option<u64>,
    /// The client that `poll/memory.rs` has chosen because the share is nearly used up. The loop reads from no other
    /// client with large buffers. `None`: the loop reads from all clients.
    pub squeezed: Option<u64>,
    /// The number of clients that did not speak RESP, since the server started.
    foreign_count: u64,
    /// The time of the last log line about a client that did not speak RESP, and the value of `foreign_count` then.
    foreign_noted: Option<(Instant, u64)>,
}

impl State {
    /// Returns the server before its first client.
    pub(crate) fn new(
        options: ServerOptions,
        database: Options,
        port: u16,
        progress: Arc<Progress>,
        home: Home,
    ) -> Self {
        let now = Instant::now();
        let Home { common, .. } = home;
        common.set_notify(notify_classes(&options));
        State {
            packing: options.packed.packing(),
            options,
            value_bytes_max: database.value_bytes_max,
            port,
            stage: Stage::Loading(progress),
            lookup: Lookup::new(),
            connections: Connections::default(),
            strangers: VecDeque::new(),
            clients_fit: usize::MAX,
            acl: Acl::new(),
            prover: Prover::default(),
            stats: Stats::default(),
            reached: Reached::new(|_| Epoch(0)),
            stopped: None,
            delayed: Vec::new(),
            conditions: Conditions::default(),
            alarms: Vec::new(),
            lost_lines: LostLines::default(),
            now,
            control: home.control,
            opened_at: unix_seconds(),
            changes: Changes::default(),
            config: Config::new(database),
            common,
            event_loop: home.event_loop,
            peers: Peers::default(),
            others: Vec::new(),
            runs_alone: false,
            wants_alone: Vec::new(),
            deadlines: Deadlines::default(),
            try_again: Vec::new(),
            try_later: Vec::new(),
            rung_waits: RungWaits::default(),
            jobs: Jobs::default(),
            beside: Beside::default(),
            steps: Steps::default(),
            scripts: Scripts::default(),
            clock: now,
            wall_ns: 0,
            newest: Epoch(0),
            pause: Pause::default(),
            looks_ahead: true,
            notes_accesses: false,
            running: Seat::NOBODY,
            touched: Vec::new(),
            supervisor: None,
            rounds: Rounds::new(now),
            client_share: None,
            squeezed: None,
            foreign_count: 0,
            foreign_noted: None,
        }
    }

    /// Returns the database. `None`: it is not open yet.
    pub(crate) fn db(&self) -> Option<&Db> {
        match &self.stage {
            Stage::Ready(db) => Some(db),
            Stage::Loading(_) => None,
        }
    }

    /// Begins a round of the loop.
    pub(crate) fn begin_round(&mut self) {
        self.now = Instant::now();
        self.rounds.begin(self.now);
        if let Some(db) = self.db() {
            self.reached = db.reached();
        }
    }

    /// Ends a round of the loop.
    pub(crate) fn end_round(&mut self) {
        self.rounds.end();
        self.share_newest();
    }

    /// Tells the other loops the newest epoch that a reply of this loop has depended on.
    pub(crate) fn share_newest(&self) {
        if self.peers.several() {
            self.common.note_newest(self.newest);
        }
    }

    /// Returns the newest epoch that a reply of any loop has depended on.
    pub(crate) fn newest(&self) -> Epoch {
        match self.peers.several() {
            true => self.newest.max(self.common.newest()),
            false => self.newest,
        }
    }

    /// Sets both clocks to now. The duration of the next command is measured from now on.
    pub(crate) fn start_clock(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.clock = Instant::now();
        self.wall_ns = nanoseconds(since.unwrap_or_default());
    }

    /// Reads the clock at the end of a command, which is the beginning of the next command. Returns the time
    /// that the command took.
    pub(crate) fn tick(&mut self) -> Duration {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.clock);
        self.clock = now;
        self.wall_ns = self.wall_ns.saturating_add(nanoseconds(took));
        took
    }

    /// Returns the start time of the next command, milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.wall_ns / 1_000_000
    }

    /// Returns the start time of the next command, microseconds since 1970.
    pub(crate) fn wall_us(&self) -> u64 {
        self.wall_ns / 1000
    }

    /// Returns whether `mem` replies may leave now: see [`Db::is_mem_in_time`]. This is checked when replies
    /// leave, not when they are made.
    pub(crate) fn mem_in_time(&self) -> bool {
        self.db().is_none_or(Db::is_mem_in_time)
    }

    /// Looks at the checkpoints, to count the changes since the newest one.
    pub(crate) fn look_at_checkpoints(&mut self) {
        if let Some(db) = self.db() {
            let checkpoint = db.stats().checkpoint;
            let running = checkpoint.running || self.common.is_saving();
            self.changes.look(running, checkpoint.completed);
        }
    }

    /// Resets the counters.
    pub(crate) fn reset_stats(&mut self) {
        self.stats = Stats {
            expired_before: self.common.expired(),
            ..Stats::default()
        };
    }

    /// Returns the time of the last save by Redis's measure, seconds since 1970. It is the end of the newest
    /// checkpoint, or the time of opening if that is later. Opening counts as a checkpoint.
    pub(crate) fn last_save(&self, checkpoint_end_us: u64) -> u64 {
        self.opened_at.max(checkpoint_end_us / 1_000_000)
    }

    /// Removes a client from every table and waiting list, because the client leaves or resets its session.
    pub(crate) fn forget(&mut self, session: &mut Session) {
        self.common.watches.forget(&mut session.watched);
        self.forget_tracking(session);
        if let Some(mut own) = session.subscriptions.take() {
            let id = session.seat.id;
            self.common
                .topics
                .with(|topics| topics.forget(&mut own, id));
        }
        self.stop_waiting(session);
        self.rung_waits.take(session.seat.id);
        self.drop_job(session.seat.id);
        self.forget_proof(session);
        if session.monitors {
            let leave = |monitors: &mut Vec<Seat>| monitors.retain(|seat| *seat != session.seat);
            self.common.monitors.with(leave);
        }
    }

    /// Counts a client that does not speak RESP. Logs such clients at most once a minute, because a web page can try a
    /// thousand times.
    pub(crate) fn note_foreign(&mut self, foreign: Foreign, id: u64, peer: &str) {
        self.foreign_count += 1;
        self.stats.foreign += 1;
        let recently = |at: Instant| self.now.saturating_duration_since(at) < FOREIGN_SILENCE;
        let before = match self.foreign_noted {
            Some((at, _)) if recently(at) => return,
            Some((_, before)) => before,
            None => 0,
        };
        self.foreign_noted = Some((self.now, self.foreign_count));
        let more = match self.foreign_count - before {
            ..=1 => String::new(),
            count => format!(" ({count} times since the last line about it)"),
        };
        tracing::warn!(
            "Client {id} at {peer} is disconnected: it sent {}{more}. Unless a program uses the \
             wrong port, a web page or an attacker is trying to send commands",
            foreign.text()
        );
    }

    /// Recomputes all values derived from the options, after a change of the options.
    pub(crate) fn options_changed(&mut self) {
        self.common.set_notify(notify_classes(&self.options));
        self.packing = self.options.packed.packing();
        perdura_logging::set_level(self.options.log_level);
        self.share_memory();
        self.note_accesses();
    }

    /// Sets the clients' share of memory, and reserves it for their buffers. At most half of the memory is reserved.
    pub(crate) fn share_memory(&mut self) {
        let Some(db) = self.db() else { return };
        let memory = db.memory();
        // Without `maxmemory` the share is computed from the default of `maxmemory`, so that it always has
        // a bound.
        let machine = || {
            Options::new("")
                .core()
                .map_or(u64::MAX, |core| core.memory_limit)
        };
        let limit = match memory.limit() {
            u64::MAX => machine(),
            limit => limit,
        };
        let share = self.options.client_share.of(limit);
        memory.set_reserve(share.unwrap_or(0).min(memory.limit() / 2));
        self.client_share = share;
    }

    /// Makes the database start or stop noting the last use of keys, as the setting says.
    pub(crate) fn note_accesses(&mut self) {
        let wanted = self.options.key_idle_times;
        if let Some(db) = self.db().filter(|_| wanted != self.notes_accesses) {
            db.note_accesses(wanted);
            self.notes_accesses = wanted;
        }
    }

    /// Notes that a client has authenticated or left.
    pub(crate) fn forget_stranger(&mut self, seat: Seat) {
        self.strangers.retain(|stranger| *stranger != seat);
    }

    /// Makes the loop flush a connection that got new output from the command of another connection.
    pub(crate) fn touch(&mut self, index: usize) {
        self.touched.push(index);
    }

    /// Returns the TLS configuration for new connections, and whether the server requests certificates from clients.
    pub(crate) fn tls(&self) -> (Option<Arc<ServerConfig>>, bool) {
        let certified = self.options.tls_auth_clients != TlsAuthClients::No;
        (self.common.tls.lock().clone(), certified)
    }

    /// Returns the last log line of a server after the database has stopped. It says whether a restart recovers the
    /// data.
    pub(crate) fn last_words(&self) -> &'static str {
        let stopped = self.db().and_then(|db| db.check().err());
        match stopped.is_some_and(|error| error.is_fenced()) {
            true => "Ending: remove the cause before you start again",
            false => "Ending: a restart recovers every acknowledged write",
        }
    }

    /// Reads the certificates that `options` name, for future connections. Existing connections keep the
    /// certificates that they have.
    pub(crate) fn load_tls(&mut self, options: &ServerOptions) -> Result<(), String> {
        if !options.tls_listen.is_empty() {
            let read = options.tls_files().server_config()?;
            *self.common.tls.lock() = Some(read);
        }
        Ok(())
    }

    /// Reads the certificates of clients and of nodes again. If the new certificates cannot be used, the old
    /// certificates stay in use.
    pub(crate) fn reload_certificates(&mut self) {
        let options = self.options.clone();
        let clients = match options.tls_listen.is_empty() {
            true => None,
            false => Some(self.load_tls(&options)),
        };
        let nodes = self.config.database.nodes.as_ref();
        let nodes = match nodes.map(|nodes| nodes.net.reload()) {
            None | Some(Ok(false)) => None,
            Some(Ok(true)) => Some(Ok(())),
            Some(Err(why)) => Some(Err(why.to_string())),
        };
        if clients.is_none() && nodes.is_none() {
            tracing::info!("SIGHUP: TLS is not used here, so no certificate was read");
        }
        for (whose, done) in [("clients", clients), ("nodes", nodes)] {
            match done {
                None => {}
                Some(Ok(())) => tracing::info!(
                    "SIGHUP: the certificates for {whose} were read; new connections get them"
                ),
                Some(Err(why)) => tracing::error!(
                    "SIGHUP: the new certificates for {whose} cannot be used, so the old ones \
                     stay in use: {why}"
                ),
            }
        }
    }

    /// Creates the users that the options name.
    pub(crate) fn load_users(&mut self) -> Result<(), ServeError> {
        let options = &self.options;
        let all_channels = options.acl_all_channels();
        let password = options.requirepass.as_deref().map(str::as_bytes);
        self.acl.set_requirepass(password);
        self.acl
            .configure(&options.users, all_channels)
            .map_err(ServeError::Users)?;
        if let Some(path) = &options.aclfile {
            let loaded = self.acl.load(path, all_channels);
            loaded.map_err(|error| ServeError::Users(error.to_string()))?;
        }
        options.check_users(self.acl.open())
    }
}

/// Returns the time in seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

fn notify_classes(options: &ServerOptions) -> u16 {
    notify::parse(options.notify_keyspace_events.as_bytes()).unwrap_or(0)
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
