//! Start and end of the server. The server binds, opens the database in a second thread, runs the loops, and closes.

use crate::common::Home;
use crate::control::{Control, Message};
use crate::cpus;
use crate::crew::Crew;
use crate::descriptors::Share;
use crate::engine::{Db, Durability, Error, Options, Progress, Ticket, files, set_lane};
use crate::gate::Gate;
use crate::http::{Guard, Http};
use crate::net::Listener;
use crate::options::{ServeError, ServerOptions};
use crate::poll::{Ended, Ending, EventLoop, WAKER};
use crate::signals::Signals;
use crate::state::State;
use crate::state::peers::Peers;
use mio::Poll;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::dispatcher::{get_default, with_default};

/// The time that the threads of a stopped database may take to end.
const LETTING_GO: Duration = Duration::from_millis(500);

/// Serves until SHUTDOWN, SIGTERM or SIGINT, then closes the database.
///
/// The database's directories are locked first. If the database is open elsewhere, the call fails before any address is
/// bound. The addresses are bound before the database is opened, so that clients get the progress of opening in
/// `-LOADING` errors. A first signal ends the server cleanly, with a checkpoint. A second signal ends the server at
/// once. This loses nothing, but makes the next start longer. SIGHUP reloads the certificates.
///
/// # Errors
/// Fails if the options expose the database, if an address cannot be bound, or if the database cannot be opened or
/// closed. Also fails if the database stops by itself. Reasons for such a stop are a disk failure ([`Error::Stopped`]),
/// a second process that owns the log ([`Error::Fenced`]), and missing files of the database ([`Error::Displaced`]).
pub fn serve(options: ServerOptions, db: Options) -> Result<(), ServeError> {
    let signals = Signals::take()?;
    options.check()?;
    // If another process has the database open, this process must fail before it binds an address.
    let (disks, locks) = files::open_telling(&db, &|line| tracing::info!("{line}"))?;
    let mut prepared = Prepared::new(options, db.clone(), Some(signals))?;
    prepared.first.supervise();
    prepared.open_with(move |progress| Db::open_locked(db, disks, locks, progress))?;
    prepared.run()
}

/// A server in a separate thread, for tests and for programs that embed it.
#[derive(Debug)]
pub struct Server {
    thread: JoinHandle<Result<(), ServeError>>,
    control: Control,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Control")
    }
}

impl Server {
    /// Locks the database's directories, binds, then opens the database and serves in the background.
    ///
    /// # Errors
    /// Fails if the options expose the database, if the database is open elsewhere, or if an address cannot be bound.
    pub fn start(options: ServerOptions, db: Options) -> Result<Server, ServeError> {
        options.check()?;
        let described = db.clone();
        let (disks, locks) = files::open_telling(&db, &|line| tracing::info!("{line}"))?;
        let open = move |progress| Db::open_locked(db, disks, locks, progress);
        Server::start_prepared(options, described, open)
    }

    /// Like [`start`](Self::start), for callers that open the database themselves: `open` runs
    /// in a separate thread while clients get `-LOADING`.
    ///
    /// # Errors
    /// Fails if the options expose the database, or if an address cannot be bound.
    pub fn start_with(
        options: ServerOptions,
        value_bytes_max: usize,
        open: impl FnOnce(Arc<Progress>) -> Result<Db, Error> + Send + 'static,
    ) -> Result<Server, ServeError> {
        let mut described = Options::new("");
        described.value_bytes_max = value_bytes_max;
        Server::start_prepared(options, described, open)
    }

    fn start_prepared(
        options: ServerOptions,
        database: Options,
        open: impl FnOnce(Arc<Progress>) -> Result<Db, Error> + Send + 'static,
    ) -> Result<Server, ServeError> {
        let prepared = Prepared::new(options, database, None)?;
        prepared.open_with(open)?;
        let control = prepared.control.clone();
        let (address, tls_address) = (prepared.address, prepared.tls_address);
        // A program may have several servers, each with its own subscriber of log events. The thread uses the
        // subscriber of the caller.
        let log = get_default(Clone::clone);
        let thread = thread::Builder::new().name(String::from("serve"));
        let thread = thread.spawn(move || with_default(&log, || prepared.run()))?;
        Ok(Server {
            thread,
            control,
            address,
            tls_address,
        })
    }

    /// Returns the first address that speaks TLS.
    #[must_use]
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// Returns the server's first TCP address without TLS.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Ends the server like SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// The error that ended the server.
    pub fn stop(self) -> Result<(), ServeError> {
        self.control.send(Message::Stop { checkpoint: true });
        self.join()
    }

    /// Waits for the server to end by itself.
    ///
    /// # Errors
    /// The error that ended the server.
    pub fn join(self) -> Result<(), ServeError> {
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// A bound server before its first round.
struct Prepared {
    /// Loop 0, which leads.
    first: EventLoop,
    /// The other loops.
    others: Vec<EventLoop>,
    crew: Crew,
    /// The CPUs on which the loops run.
    cpus: Vec<usize>,
    control: Control,
    progress: Arc<Progress>,
    /// The metrics and the status page, which are served until the loop has ended.
    http: Option<Http>,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
}

impl Prepared {
    fn new(
        options: ServerOptions,
        database: Options,
        signals: Option<Signals>,
    ) -> Result<Self, ServeError> {
        options.check()?;
        cpus::check(&options.loop_cpus).map_err(ServeError::Options)?;
        let mut options = options;
        let listeners = Listener::bind_all(&options)?;
        let address = listeners.iter().find_map(Listener::tcp_address);
        let tls_address = listeners.iter().find_map(Listener::tls_address);
        for listener in &listeners {
            tracing::info!("Listening on {listener}");
        }
        report_loops(&options);
        let seeds = (0..options.loops()).map(|_| Seed::new());
        let seeds = seeds.collect::<io::Result<Vec<Seed>>>()?;
        let controls: Vec<Control> = seeds.iter().map(|seed| seed.control.clone()).collect();
        let control = controls[0].clone();
        let metrics = options.metrics_listen;
        let http = metrics.map(|address| {
            let guard = Guard::new(&options.http_hosts, options.http_password.as_deref());
            Http::start(address, guard, control.clone())
        });
        let http = http.transpose()?;
        if let Some(http) = &http {
            tracing::info!("Metrics and status on http://{}/", http.address());
        }
        let share = Share::reserve(&options, &database);
        let lowered = share.fit(&mut options)?;
        if let Some(said) = lowered {
            tracing::warn!("{said}");
        }
        let progress = Arc::new(Progress::default());
        let port = address.map_or(0, |a| a.port());
        let state = |home| {
            let (options, database) = (options.clone(), database.clone());
            let mut state = State::new(options, database, port, Arc::clone(&progress), home);
            state.clients_fit = share.clients_max();
            state
        };
        let states = share_users(Home::each(&controls).into_iter().map(state).collect())?;
        let crew = Crew::new(controls);
        let each = seeds.into_iter().zip(&states);
        let mut loops = each.map(|(seed, state)| {
            EventLoop::new(seed.poll, state.lock_arc(), crew.clone(), seed.messages)
        });
        let mut first = loops.next().expect("a server has a loop");
        let others = loops.collect();
        first.lead(listeners, signals)?;
        Ok(Prepared {
            first,
            others,
            crew,
            cpus: options.loop_cpus,
            control,
            progress,
            http,
            address,
            tls_address,
        })
    }

    fn open_with(
        &self,
        open: impl FnOnce(Arc<Progress>) -> Result<Db, Error> + Send + 'static,
    ) -> Result<(), ServeError> {
        let (control, progress) = (self.control.clone(), Arc::clone(&self.progress));
        let thread = thread::Builder::new().name(String::from("open"));
        thread.spawn(move || {
            // A panic must end the server, which would otherwise stay in the loading state.
            let opened = catch_unwind(AssertUnwindSafe(|| open(progress)));
            let crashed = |_| {
                Err(Error::Stopped(String::from(
                    "opening the database panicked",
                )))
            };
            control.send(Message::Opened(opened.unwrap_or_else(crashed)));
        })?;
        Ok(())
    }

    fn run(self) -> Result<(), ServeError> {
        let ended = run_all(self.first, self.others, &self.crew, &self.cpus);
        drop(self.http);
        let Ended { db, how } = ended?;
        match (db, how) {
            (None, Ending::Asked { .. }) => {}
            (Some(db), Ending::Asked { checkpoint: true }) => db.close()?,
            (Some(db), Ending::Asked { checkpoint: false }) => {
                // A clean end must not lose a write that a `mem` client has seen acknowledged.
                let last = db.exposure().current;
                while let Some(epoch) = db.exposure().oldest_unsynced.filter(|e| *e <= last) {
                    db.wait_at(Durability::Disk, Ticket { epoch })?;
                }
                db.abandon();
            }
            (db, Ending::Failed(why)) => {
                let stopped = db.as_ref().and_then(|db| db.check().err());
                let_go(db);
                return Err(stopped.unwrap_or(Error::Stopped(why)).into());
            }
        }
        Ok(())
    }
}

/// The parts of a loop that exist before its state.
struct Seed {
    poll: Poll,
    control: Control,
    messages: Receiver<Message>,
}

impl Seed {
    fn new() -> io::Result<Seed> {
        let poll = Poll::new()?;
        let gate = Arc::new(Gate::new(mio::Waker::new(poll.registry(), WAKER)?));
        let (sender, messages) = channel();
        let control = Control { sender, gate };
        Ok(Seed {
            poll,
            control,
            messages,
        })
    }
}

/// Reads the certificates for loop 0, which accepts connections, and the users for all loops. Introduces the loops to each
/// other.
fn share_users(mut states: Vec<State>) -> Result<Vec<Arc<Mutex<State>>>, ServeError> {
    let (first, others) = states.split_first_mut().expect("a server has a loop");
    let options = first.options.clone();
    first.load_tls(&options).map_err(ServeError::Tls)?;
    first.load_users()?;
    others.iter_mut().for_each(|other| other.adopt(first));
    let states = states.into_iter().map(|state| Arc::new(Mutex::new(state)));
    let states: Vec<_> = states.collect();
    Peers::introduce(&states);
    Ok(states)
}

/// Logs the number of loops if there are several or more than CPUs.
fn report_loops(options: &ServerOptions) {
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    match options.loops() {
        loops if loops > cpus => tracing::warn!(
            "{loops} event loops share {cpus} CPUs, so they wait for each other (loops)"
        ),
        1 => {}
        loops => tracing::info!("{loops} event loops"),
    }
}

/// Runs all loops until they end: loop 0 in this thread, each other loop in its own. If a loop fails, all end. Returns the
/// result of loop 0, or the failure of another loop.
fn run_all(
    first: EventLoop,
    others: Vec<EventLoop>,
    crew: &Crew,
    cpus: &[usize],
) -> Result<Ended, ServeError> {
    let log = get_default(Clone::clone);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (at, one) in (1..).zip(others) {
            let run = {
                let log = log.clone();
                move || with_default(&log, || run_one(one, at, crew, cpus))
            };
            let thread = thread::Builder::new().name(format!("loop-{at}"));
            match thread.spawn_scoped(scope, run) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    crew.stop_others(at, false);
                    return Err(error.into());
                }
            }
        }
        let mut ended = run_one(first, 0, crew, cpus);
        let others: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        for other in others {
            match other {
                Ok(Ok(other)) if matches!(other.how, Ending::Failed(_)) => ended = Ok(other),
                Ok(other) => drop(other?),
                Err(panic) => resume_unwind(panic),
            }
        }
        ended
    })
}

/// Runs a loop. When it has ended, for whatever reason, the others end, too.
fn run_one(
    event_loop: EventLoop,
    at: usize,
    crew: &Crew,
    cpus: &[usize],
) -> Result<Ended, ServeError> {
    let run = || {
        cpus::pin(cpus, at)?;
        set_lane(at);
        event_loop.run()
    };
    let ended = catch_unwind(AssertUnwindSafe(run));
    crew.stop_others(at, false);
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Ends the threads of a database that has stopped. Waits at most [`LETTING_GO`], because a thread may be
/// blocked by the disk.
fn let_go(db: Option<Db>) {
    let (ended, wait) = channel();
    let ending = thread::Builder::new().spawn(move || {
        if let Some(db) = db {
            db.abandon();
        }
        // The receiver may have stopped waiting.
        let _ = ended.send(());
    });
    // If no thread can be started, the database ends with the process.
    drop(ending);
    // The files on disk do not depend on whether the threads end.
    let _ = wait.recv_timeout(LETTING_GO);
}
