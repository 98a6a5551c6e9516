//! The state that all connections share. Only the loop's thread touches it.

use crate::acl::Acl;
use crate::acl::prove::Prover;
use crate::alarms::{Alarm, LostLines};
use crate::beside::Beside;
use crate::blocking::Blocking;
use crate::changes::Changes;
use crate::command::lookup::Lookup;
use crate::command::scripts::Scripts;
use crate::command::steps::Steps;
use crate::connection::Connections;
use crate::control::Control;
use crate::engine::{Db, Delayed, Epoch, Options, Packing, Progress, Reached};
use crate::jobs::Jobs;
use crate::latency::nanoseconds;
use crate::notify;
use crate::options::{ServeError, ServerOptions};
use crate::pause::Pause;
use crate::poll::Conditions;
use crate::pubsub::{Seat, Topics};
use crate::resp::foreign::Foreign;
use crate::rounds::Rounds;
use crate::rung_waits::RungWaits;
use crate::session::Session;
use crate::slowlog::SlowLog;
use crate::spikes::Spikes;
use crate::stats::CommandStats;
use crate::supervise::Supervisor;
use crate::tell::Running;
use crate::tls::TlsAuthClients;
use crate::tracking::Tracking;
use crate::watch::Watches;
use rustls::ServerConfig;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// After a log line about a client with a foreign protocol, no further such line is written for this time.
const FOREIGN_SILENCE: Duration = Duration::from_secs(60);

/// The database, or the progress of opening it.
pub(crate) enum Stage {
    /// It is being opened in another thread.
    Loading(Arc<Progress>),
    /// It is open.
    Ready(Db),
}

/// Counters since the start or CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Requests with a command.
    pub commands: u64,
    /// Error replies.
    pub errors: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because of `maxclients` or `protected-mode`.
    pub rejected: u64,
    /// Connections closed because they spoke another protocol.
    pub foreign: u64,
    /// Bytes read.
    pub input_bytes: u64,
    /// Bytes written.
    pub output_bytes: u64,
    /// Keys found.
    pub hits: u64,
    /// Keys looked up and not found.
    pub misses: u64,
    /// The counters of each command.
    pub by_command: CommandStats,
    /// Clients disconnected because the buffers of all clients took too much.
    pub evicted_clients: u64,
    /// Clients disconnected because they did not read.
    pub output_limit_disconnections: u64,
    /// Clients disconnected because their waiting requests took too much.
    pub query_limit_disconnections: u64,
    /// Reads from clients that returned bytes.
    pub reads: u64,
    /// Writes to clients.
    pub writes: u64,
    /// Keys that had been removed by expiry when counting began.
    pub expired_before: u64,
    /// Commands, bytes read and bytes written a second, over the last second.
    pub per_second: [u64; 3],
}

/// Decides whether the newest checkpoint failed, from two counts that the loop reads regularly.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    completed: u64,
    cancelled: u64,
    failed: bool,
}

impl Checkpoints {
    /// Returns whether the newest checkpoint that has ended was cancelled. If both counts have moved since
    /// the last call, at least one checkpoint has completed, and the answer is `false`.
    pub(crate) fn failed(&mut self, completed: u64, cancelled: u64) -> bool {
        if completed > self.completed {
            self.failed = false;
        } else if cancelled > self.cancelled {
            self.failed = true;
        }
        (self.completed, self.cancelled) = (completed, cancelled);
        self.failed
    }
}

/// The state of CONFIG apart from the options in force.
#[derive(Debug)]
pub(crate) struct Config {
    /// The options with which the database was opened.
    pub database: Options,
    /// The settings that CONFIG SET has changed, for CONFIG REWRITE.
    pub changed: BTreeSet<&'static str>,
}

impl Config {
    /// Returns the state for a database that was opened with these options.
    fn new(database: Options) -> Config {
        Config {
            database,
            changed: BTreeSet::new(),
        }
    }
}

/// The server.
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
    /// All connections but the one that is running.
    pub connections: Connections,
    /// Clients that had to authenticate when they came, the oldest at the front.
    pub strangers: VecDeque<Seat>,
    /// The most clients for which there are file descriptors.
    pub clients_fit: usize,
    /// Users.
    pub acl: Acl,
    /// The passwords that are being checked, and the deferred answers.
    pub prover: Prover,
    /// Counters.
    pub stats: Stats,
    /// The durable epochs as last seen; refreshed once a round.
    pub reached: Reached,
    /// The reason why the database stopped. `None`: it has not stopped.
    pub stopped: Option<String>,
    /// Work that a failing disk delays.
    pub delayed: Vec<Delayed>,
    /// The conditions that the log reported last.
    pub conditions: Conditions,
    /// The alarms, as logged last.
    pub alarms: Vec<Alarm>,
    /// Lines of the log that were lost.
    pub lost_lines: LostLines,
    /// The loop's time, once a round.
    pub now: Instant,
    /// The time at which the server started.
    pub started: Instant,
    /// A name that differs at each start of the server, 40 hex digits.
    pub run_id: String,
    /// The sender of messages from other threads to the loop.
    pub control: Control,
    /// The client that waits for SAVE. `None`: no client does.
    pub saving: Option<u64>,
    /// The time at which the database was opened, seconds since 1970.
    pub opened_at: u64,
    /// The outcome of the newest checkpoint, as of the loop's last look.
    pub checkpoints: Checkpoints,
    /// Changes of keys since the newest checkpoint.
    pub changes: Changes,
    /// The configuration of TLS. `None`: TLS is not spoken.
    tls: Option<Arc<ServerConfig>>,
    /// The state of CONFIG.
    pub config: Config,
    /// The keys that clients watch.
    pub watches: Watches,
    /// The clients that wait for keys.
    pub blocking: Blocking,
    /// The clients that wait in WAITDUR.
    pub rung_waits: RungWaits,
    /// The clients whose commands run in steps.
    pub jobs: Jobs,
    /// The command that runs beside the loop.
    pub beside: Beside,
    /// The size of data above which a command runs in steps, and the size of a step.
    pub steps: Steps,
    /// The channels and the clients that are subscribed to them.
    pub topics: Topics,
    /// Scripts.
    pub scripts: Scripts,
    /// The clients that get reports of changed keys.
    pub tracking: Tracking,
    /// The newest slow commands.
    pub slowlog: SlowLog,
    /// Latency spikes.
    pub spikes: Spikes,
    /// The time at which the running command began, or at which the next command will begin.
    pub clock: Instant,
    /// The moment of `clock`, nanoseconds since 1970.
    wall_ns: u64,
    /// The newest epoch that a reply has waited for, or would have waited for if its client waited for the
    /// disk.
    pub newest: Epoch,
    /// The clients that are shown every command.
    pub monitors: Vec<Seat>,
    /// The requests that CLIENT PAUSE defers.
    pub pause: Pause,
    /// The classes of events that are published; see [`crate::notify`]. Read from the options.
    pub notify: u16,
    /// True if the keys of a pipeline are fetched before its first command runs.
    pub looks_ahead: bool,
    /// The bounds of packed collections.
    pub packing: Packing,
    /// True if the database notes the times at which keys are used.
    notes_accesses: bool,
    /// The client whose command runs.
    pub running: Running,
    /// Connections that another connection's command has written to.
    pub touched: Vec<usize>,
    /// The service manager. `None`: this process has none.
    pub supervisor: Option<Supervisor>,
    /// The durations of the loop's rounds.
    pub rounds: Rounds,
    /// The most bytes that clients' buffers may take. `None`: no limit.
    pub client_share: Option<u64>,
    /// The only client with large buffers that is read, because the share is nearly used up: see
    /// `poll/memory.rs`. `None`: all clients are read.
    pub squeezed: Option<u64>,
    /// The most memory in use at any INFO so far, bytes.
    pub memory_peak: u64,
    /// The number of clients that spoke another protocol since the start.
    foreign_count: u64,
    /// The time of the log's last line about such a client, and the count then.
    foreign_noted: Option<(Instant, u64)>,
}

impl State {
    /// Returns the server before its first client.
    pub(crate) fn new(
        options: ServerOptions,
        database: Options,
        port: u16,
        progress: Arc<Progress>,
        control: Control,
    ) -> Self {
        let now = Instant::now();
        let notify = notify_classes(&options);
        let packing = options.packed.packing();
        State {
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
            started: now,
            run_id: run_id(),
            control,
            saving: None,
            opened_at: unix_seconds(),
            checkpoints: Checkpoints::default(),
            changes: Changes::default(),
            tls: None,
            config: Config::new(database),
            watches: Watches::default(),
            blocking: Blocking::default(),
            rung_waits: RungWaits::default(),
            jobs: Jobs::default(),
            beside: Beside::default(),
            steps: Steps::default(),
            topics: Topics::default(),
            scripts: Scripts::default(),
            tracking: Tracking::default(),
            slowlog: SlowLog::default(),
            spikes: Spikes::default(),
            clock: now,
            wall_ns: 0,
            newest: Epoch(0),
            monitors: Vec::new(),
            pause: Pause::default(),
            notify,
            looks_ahead: true,
            packing,
            notes_accesses: false,
            running: Running::NOBODY,
            touched: Vec::new(),
            supervisor: None,
            rounds: Rounds::new(now),
            client_share: None,
            squeezed: None,
            memory_peak: 0,
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
        self.control.gate.hear_expired(self.hears_expired());
        if let Some(db) = self.db() {
            self.reached = db.reached();
        }
    }

    /// Sets both clocks to now. The time of the next command is counted from here.
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

    /// Returns the time at which the next command begins, milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.wall_ns / 1_000_000
    }

    /// Returns the time at which the next command begins, microseconds since 1970.
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
            let running = checkpoint.running || self.saving.is_some();
            self.changes.look(running, checkpoint.completed);
        }
    }

    /// Resets the counters.
    pub(crate) fn reset_stats(&mut self) {
        self.stats = Stats {
            expired_before: self.control.gate.expired(),
            ..Stats::default()
        };
    }

    /// Returns the time at which the data was last saved by Redis's measure, seconds since 1970. It is the end
    /// of the newest checkpoint, or the time of opening if that is later. Opening counts as a checkpoint.
    pub(crate) fn last_save(&self, checkpoint_end_us: u64) -> u64 {
        self.opened_at.max(checkpoint_end_us / 1_000_000)
    }

    /// Forgets a client that leaves or begins anew. No waiting list names it afterwards.
    pub(crate) fn forget(&mut self, session: &mut Session) {
        self.watches.forget(&mut session.watched);
        self.tracking.forget(session);
        if let Some(mut own) = session.subscriptions.take() {
            self.topics.forget(&mut own, session.seat.id);
        }
        self.blocking.take(session.seat.id);
        self.rung_waits.take(session.seat.id);
        self.drop_job(session.seat.id);
        self.forget_proof(session);
        if session.monitors {
            self.monitors.retain(|seat| *seat != session.seat);
        }
    }

    /// Counts a client that speaks another protocol, and logs it at most once a minute: a web page can try
    /// a thousand times.
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

    /// Recomputes everything that is derived from the options, after the options have changed.
    pub(crate) fn options_changed(&mut self) {
        self.notify = notify_classes(&self.options);
        self.packing = self.options.packed.packing();
        perdura_logging::set_level(self.options.log_level);
        self.share_memory();
        self.note_accesses();
    }

    /// Reserves a part of the memory for clients' buffers, at most half of it.
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

    /// Makes the database note the times at which keys are used, or stop doing so, as the setting says.
    pub(crate) fn note_accesses(&mut self) {
        let wanted = self.options.key_idle_times;
        if let Some(db) = self.db().filter(|_| wanted != self.notes_accesses) {
            db.note_accesses(wanted);
            self.notes_accesses = wanted;
        }
    }

    /// Makes the loop flush a connection that another connection's command has written to.
    pub(crate) fn touch(&mut self, index: usize) {
        self.touched.push(index);
    }

    /// Returns the configuration of TLS for newcomers, and whether they must show certificates.
    pub(crate) fn tls(&self) -> (Option<&Arc<ServerConfig>>, bool) {
        let certified = self.options.tls_auth_clients != TlsAuthClients::No;
        (self.tls.as_ref(), certified)
    }

    /// Returns the log line for a server whose database has stopped: whether a restart brings back the data.
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
            self.tls = Some(options.tls_files().server_config()?);
        }
        Ok(())
    }

    /// Reads the certificates of clients and of nodes again. If new ones cannot be used, the old ones stay
    /// in use.
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

/// Returns a name that differs between any two starts on a machine: a hash of the clock and the process id.
fn run_id() -> String {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    let seed = u64::from(std::process::id());
    let word = |n: u64| perdura_base::checksum::hash64(seed ^ n, &nanos.to_le_bytes());
    let mut text = format!(
        "{:016x}{:016x}{:016x}",
        word(1 << 40),
        word(2 << 40),
        word(3 << 40)
    );
    text.truncate(40);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_checkpoint_decides_what_is_told() {
        let mut seen = Checkpoints::default();
        let told = [(0, 0), (1, 0), (1, 1), (1, 1), (2, 1), (3, 2), (3, 4)];
        let failed = told.map(|(completed, cancelled)| seen.failed(completed, cancelled));
        assert_eq!(failed, [false, false, true, true, false, false, true]);
    }
}
