//! The process of a node: it listens, gives each client a thread, and ends at a signal.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_device::{Disk, descriptors};
use perdura_mirror::{Identity, Key, Net, Node, NodeInc, NodeOptions, NodeStats, Peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ServerConfig;
use sd_notify::NotifyState;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use crate::connection::{Limits, Serving};
use crate::fit;
use crate::hard_copy::{HardCopy, HardCopyState};
use crate::identity;
use crate::local;
use crate::mapping;
use crate::peer::{PeerOptions, Watch};
use crate::rarely::Rarely;
use crate::socket::{Origin, Socket};
use crate::threads;

/// The interval between two reports of the node's state to the service manager.
const STATUS_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// The pause after a connection could not be accepted, for example because there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A function that loads, from files, the TLS configuration for clients.
pub type LoadServerTls =
    Arc<dyn Fn() -> std::result::Result<Arc<ServerConfig>, String> + Send + Sync>;

/// The addresses and limits of a node.
#[derive(Clone)]
pub struct LogdOptions {
    /// The addresses to listen on without TLS. Port 0 picks a free port.
    pub listen: Vec<SocketAddr>,
    /// The addresses to listen on with TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// The TLS configuration for the addresses of `tls_listen`.
    pub tls: Option<Arc<ServerConfig>>,
    /// The function that loads the TLS configuration again when the process gets SIGHUP.
    pub load_tls: Option<LoadServerTls>,
    /// The key that clients must have.
    pub key: Key,
    /// The maximum number of bytes that a ring can hold.
    pub ring_bytes: u64,
    /// The maximum number of rings of all databases together.
    pub rings_max: usize,
    /// The maximum number of simultaneous clients.
    pub connections_max: usize,
    /// The time that a thread polls for the next frame before it sleeps.
    pub spin: Duration,
    /// True if writers on this machine may map their rings.
    pub shares: bool,
    /// The longest times that the node waits for a client.
    pub limits: Limits,
    /// The directory for copies of the rings. `None`: no hard copy is made.
    pub hard_copy: Option<Arc<dyn Disk>>,
    /// The other node of the pair. `None`: the node has no peer.
    pub peer: Option<PeerOptions>,
}

impl LogdOptions {
    /// Fails if there is no address, if TLS addresses have no certificates, or if the node and its peer cannot be a
    /// mirror.
    fn check(&self) -> Result<()> {
        if self.listen.is_empty() && self.tls_listen.is_empty() {
            let why = "no address to listen on was given";
            return Err(Error::Usage(why.into()));
        }
        if !self.tls_listen.is_empty() && self.tls.is_none() {
            let why = "TLS needs a certificate and its key";
            return Err(Error::Usage(why.into()));
        }
        if let Some(peer) = &self.peer {
            peer.check(&[&self.listen[..], &self.tls_listen].concat())?;
        }
        Ok(())
    }

    /// Binds all addresses, and the Unix socket if memory is shared. Returns the listeners and the bound addresses.
    fn bind_all(&self, inc: NodeInc) -> Result<(Vec<Listener>, Vec<SocketAddr>)> {
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        let plain = self.listen.iter().map(|address| (address, false));
        let with_tls = self.tls_listen.iter().map(|address| (address, true));
        for (address, tls) in plain.chain(with_tls) {
            let bound =
                bind(address).map_err(|e| Error::io("listen on", address.to_string(), e))?;
            addresses.push(bound.1);
            listeners.push(Listener::Tcp(bound.0, tls));
        }
        if self.shares {
            let local = local::listen(inc);
            let local = local.map_err(|e| Error::io("listen on", "a Unix socket", e))?;
            listeners.push(Listener::Unix(local));
        }
        Ok((listeners, addresses))
    }
}

impl Default for LogdOptions {
    fn default() -> LogdOptions {
        LogdOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 7379))],
            tls_listen: Vec::new(),
            tls: None,
            load_tls: None,
            key: Key::none(),
            ring_bytes: 64 << 20,
            rings_max: 64,
            connections_max: 256,
            spin: Duration::ZERO,
            shares: true,
            limits: Limits::default(),
            hard_copy: None,
            peer: None,
        }
    }
}

/// The figures of a node and the number of its clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogdStats {
    /// The figures of the node.
    pub node: NodeStats,
    /// The number of clients.
    pub connections: u64,
    /// The state of the hard copy. `None`: the node makes none.
    pub hard_copy: Option<HardCopyState>,
}

impl std::fmt::Display for LogdStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let node = self.node;
        write!(
            f,
            "{} clients, {} rings of {} databases, {} bytes; {} blocks taken, {} frames refused",
            self.connections, node.rings, node.databases, node.bytes, node.appends, node.refusals
        )?;
        match &self.hard_copy {
            None => Ok(()),
            Some(state) => write!(f, "; {state}"),
        }
    }
}

/// A connected client: its socket, and a flag that is set once the client has proven the key.
struct Client {
    socket: socket2::Socket,
    welcome: bool,
}

#[derive(Default)]
struct Clients {
    next: u64,
    all: BTreeMap<u64, Client>,
    threads: Vec<JoinHandle<()>>,
}

/// The state that all threads of a node share. No thread ever holds the locks of two fields at once.
struct Shared {
    node: Arc<Mutex<Node>>,
    clients: Mutex<Clients>,
    options: LogdOptions,
    /// The TLS configuration for clients that connect from now on.
    tls: Mutex<Option<Arc<ServerConfig>>>,
    /// The limit on the rate of log lines about refused processes of other users.
    strangers: Mutex<Rarely>,
}

/// A node that is running in this process.
pub struct Logd {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    inc: NodeInc,
    stop: UnixStream,
    thread: JoinHandle<()>,
    hard_copy: Option<HardCopy>,
    peer: Option<Watch>,
}

impl Logd {
    /// Binds the addresses and serves in the background.
    ///
    /// # Errors
    /// Fails with [`Error::Usage`] if there is no address, if TLS addresses have no certificates, or if the node and
    /// its peer cannot be a mirror. Fails with the system's error if an address cannot be bound.
    pub fn start(options: LogdOptions) -> Result<Logd> {
        options.check()?;
        let inc = identity::draw_inc()?;
        let (listeners, addresses) = options.bind_all(inc)?;
        let (machine, known_by) = identity::machine();
        let node = Arc::new(Mutex::new(Node::new(NodeOptions {
            ring_bytes: options.ring_bytes,
            rings_max: options.rings_max,
            key: options.key.clone(),
            machine,
            inc,
            memories: options.shares.then(mapping::memories),
        })));
        let disk = options.hard_copy.clone();
        let (stop, stopped) = UnixStream::pair().map_err(|e| Error::io("make", "a socket", e))?;
        let shared = Arc::new(Shared {
            node: Arc::clone(&node),
            clients: Mutex::default(),
            tls: Mutex::new(options.tls.clone()),
            options,
            strangers: Mutex::default(),
        });
        let places: Vec<String> = listeners
            .iter()
            .zip(&addresses)
            .map(|(listener, address)| format!("{address}{}", listener.kind()))
            .collect();
        tracing::info!(
            "Node {inc} of machine {machine} (by {known_by}) on {}: up to {} rings of {} bytes, {}",
            places.join(", "),
            shared.options.rings_max,
            shared.options.ring_bytes,
            match shared.options.key.is_set() {
                true => "with a key",
                false => "without a key",
            }
        );
        let hard_copy = disk.map(|disk| HardCopy::start(disk, node)).transpose()?;
        let of_thread = Arc::clone(&shared);
        let thread = threads::spawn("logd accept", move || {
            of_thread.accept(&listeners, &stopped);
        });
        let thread = thread.map_err(|e| Error::io("start", "a thread", e))?;
        let mut logd = Logd {
            shared,
            addresses,
            inc,
            stop,
            thread,
            hard_copy,
            peer: None,
        };
        // The node must be serving already. If the peer's address is this node's own, the node must be able to greet
        // itself.
        let own = Identity {
            inc,
            machine,
            ring_bytes: logd.shared.options.ring_bytes,
        };
        match logd.watch_peer(own) {
            Ok(watch) => logd.peer = watch,
            Err(error) => {
                logd.stop();
                return Err(error);
            }
        }
        Ok(logd)
    }

    /// Starts to watch the peer, if the options have one.
    fn watch_peer(&self, own: Identity) -> Result<Option<Watch>> {
        let options = &self.shared.options;
        let Some(peer) = options.peer.clone() else {
            return Ok(None);
        };
        Watch::start(peer, options.key.clone(), own).map(Some)
    }

    /// Returns the node's addresses: first the addresses without TLS, then the addresses with TLS.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the incarnation of the node.
    #[must_use]
    pub fn inc(&self) -> NodeInc {
        self.inc
    }

    /// Loads the certificates for clients and for the peer again, and logs the result. If the new certificates cannot
    /// be used, the old certificates stay in use.
    pub fn reload(&self) {
        let options = &self.shared.options;
        let clients = options.load_tls.as_ref().map(|load| {
            load().map(|config| {
                *self.shared.tls.lock() = Some(config);
            })
        });
        let peer = options.peer.as_ref().map(|peer| peer.net.reload());
        let peer = match peer {
            None | Some(Ok(false)) => None,
            Some(Ok(true)) => Some(Ok(())),
            Some(Err(why)) => Some(Err(why.to_string())),
        };
        if clients.is_none() && peer.is_none() {
            tracing::info!("SIGHUP: TLS is not used here, so no certificate was read");
        }
        for (whose, done) in [("clients", clients), ("the peer", peer)] {
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

    /// Returns the figures of the node and the number of its clients.
    #[must_use]
    pub fn stats(&self) -> LogdStats {
        let connections = to_u64(self.shared.clients.lock().all.len());
        let node = self.shared.node.lock().stats();
        LogdStats {
            node,
            connections,
            hard_copy: self.hard_copy.as_ref().map(HardCopy::state),
        }
    }

    /// Ends the node. Its connections break. Its contents are lost, except for the hard copy.
    pub fn stop(self) {
        // If a greeting is in progress, it ends by itself.
        drop(self.peer);
        drop(self.stop);
        self.thread.join().expect("the thread that accepts");
        if let Some(hard_copy) = self.hard_copy {
            hard_copy.stop();
        }
    }
}

/// A socket that accepts clients of the node.
enum Listener {
    /// A TCP socket. If the flag is set, its clients use TLS.
    Tcp(TcpListener, bool),
    /// A Unix socket for clients on this machine.
    Unix(UnixListener),
}

impl Listener {
    fn kind(&self) -> &'static str {
        match self {
            Listener::Tcp(_, true) => " (TLS)",
            Listener::Tcp(_, false) | Listener::Unix(_) => "",
        }
    }

    fn accept(&self) -> io::Result<Arrival> {
        Ok(match self {
            Listener::Tcp(listener, tls) => {
                let (socket, address) = listener.accept()?;
                Arrival {
                    socket: socket.into(),
                    from: Origin::Afar,
                    name: address.to_string(),
                    tls: *tls,
                }
            }
            Listener::Unix(listener) => Arrival {
                socket: listener.accept()?.0.into(),
                from: Origin::Here,
                name: "a process of this machine".into(),
                tls: false,
            },
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener, _) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A client that has connected.
struct Arrival {
    socket: socket2::Socket,
    from: Origin,
    /// The name of the client in the log.
    name: String,
    tls: bool,
}

fn bind(address: &SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

impl Shared {
    /// Accepts clients until `stopped` is closed. Then disconnects all clients and waits for their threads.
    fn accept(self: &Arc<Self>, listeners: &[Listener], stopped: &UnixStream) {
        loop {
            let ends = std::iter::once(PollFd::new(stopped, PollFlags::IN));
            let sockets = listeners.iter();
            let mut fds: Vec<PollFd<'_>> = ends
                .chain(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)))
                .collect();
            // If the wait was interrupted, the loop just checks again.
            let _ = poll(&mut fds, None);
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                break;
            }
            for (listener, _) in listeners.iter().zip(&ready[1..]).filter(|(_, r)| **r) {
                match listener.accept() {
                    Ok(arrival) => self.welcome(arrival),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        tracing::warn!("A connection could not be accepted: {error}");
                        thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        }
        let threads = {
            let mut clients = self.clients.lock();
            clients.all.values().for_each(|client| end(&client.socket));
            std::mem::take(&mut clients.threads)
        };
        for thread in threads {
            // The thread has already logged the end of its connection.
            let _ = thread.join();
        }
    }

    /// Starts a thread for a new client. If too many clients are connected, first disconnects the oldest client that
    /// has not proven the key. If all connected clients have proven the key, refuses the new client.
    fn welcome(self: &Arc<Self>, arrival: Arrival) {
        if arrival.from == Origin::Here && !local::is_trusted(&arrival.socket) {
            let due = self.strangers.lock().take(Instant::now());
            if let Some(before) = due {
                tracing::warn!(
                    "A process of another user was refused: only this node's user and root may \
                     share its memory ({before} more since the last such line)"
                );
            }
            return;
        }
        let name = arrival.name.clone();
        let blocking = arrival.socket.set_nonblocking(false);
        let Ok(of_registry) = blocking.and_then(|()| arrival.socket.try_clone()) else {
            return;
        };
        let mut clients = self.clients.lock();
        clients.threads.retain(|thread| !thread.is_finished());
        if clients.all.len() >= self.options.connections_max {
            let mut all = clients.all.iter();
            let stranger = all.find_map(|(number, client)| (!client.welcome).then_some(*number));
            let Some(stranger) = stranger.and_then(|number| clients.all.remove(&number)) else {
                tracing::warn!(
                    "{name} was refused: {} clients are connected, the maximum",
                    clients.all.len()
                );
                return;
            };
            end(&stranger.socket);
        }
        clients.next += 1;
        let number = clients.next;
        let client = Client {
            socket: of_registry,
            welcome: false,
        };
        clients.all.insert(number, client);
        let shared = Arc::clone(self);
        let run = move || shared.run(number, arrival);
        match threads::spawn("logd client", run) {
            Ok(thread) => clients.threads.push(thread),
            Err(error) => {
                clients.all.remove(&number);
                tracing::warn!("{name} was refused: {error}");
            }
        }
    }

    /// Serves a client until its connection ends. Runs in the client's thread.
    fn run(&self, number: u64, arrival: Arrival) {
        let name = arrival.name.clone();
        let served = catch_unwind(AssertUnwindSafe(|| self.serve(number, arrival)));
        self.clients.lock().all.remove(&number);
        match served {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("The connection of {name} ended: {error}"),
            Err(_) => tracing::error!("The connection of {name} panicked and ended"),
        }
    }

    fn serve(&self, number: u64, arrival: Arrival) -> io::Result<()> {
        let options = &self.options;
        let tls = self.tls.lock().clone().filter(|_| arrival.tls);
        let (from, patience) = (arrival.from, options.limits.write);
        let socket = Socket::new(arrival.socket, from, tls.as_ref(), options.spin, patience)?;
        let nonce = identity::draw_nonce().map_err(io::Error::other)?;
        let peer = match from {
            Origin::Afar => Peer::new(nonce),
            Origin::Here => Peer::local(nonce),
        };
        let welcomed = || {
            if let Some(client) = self.clients.lock().all.get_mut(&number) {
                client.welcome = true;
            }
        };
        Serving::new(&self.node, socket, peer, options.limits, welcomed).run()
    }
}

/// Ends a connection that a thread is serving.
fn end(socket: &socket2::Socket) {
    // The connection may already be broken.
    let _ = socket.shutdown(Shutdown::Both);
}

/// Runs a node until SIGTERM or SIGINT. Reports its state to the service manager. At SIGHUP, loads the certificates
/// again.
///
/// # Errors
/// Fails like [`Logd::start`]. Fails with the system's error if signals cannot be handled.
pub fn serve(options: LogdOptions) -> Result<()> {
    let mut options = options;
    if let Some(said) = fit::clients(&mut options, descriptors::raise_limit()) {
        tracing::warn!("{said}");
    }
    let signals = |e| Error::io("take", "signals", e);
    let (mut ours, theirs) = UnixStream::pair().map_err(signals)?;
    ours.set_nonblocking(true).map_err(signals)?;
    let reloads = Arc::new(AtomicBool::new(false));
    let ends = Arc::new(AtomicBool::new(false));
    for (signal, noted) in [(SIGTERM, &ends), (SIGINT, &ends), (SIGHUP, &reloads)] {
        let woken = theirs.try_clone().map_err(signals)?;
        // The flag is registered first, so it is set before the thread is woken.
        signal_hook::flag::register(signal, Arc::clone(noted)).map_err(signals)?;
        signal_hook::low_level::pipe::register(signal, woken).map_err(signals)?;
    }
    let logd = Logd::start(options)?;
    let mut is_told = tell(&[NotifyState::Ready, NotifyState::Status("Serving")]);
    let mut told = LogdStats::default();
    loop {
        let mut fds = [PollFd::new(&ours, PollFlags::IN)];
        // If the wait was interrupted, the flags show which signal came.
        let _ = poll(&mut fds, Some(&STATUS_EVERY));
        while matches!(ours.read(&mut [0; 16]), Ok(1..)) {}
        if ends.load(Ordering::SeqCst) {
            break;
        }
        if !is_told {
            is_told = tell(&[NotifyState::Ready, NotifyState::Status("Serving")]);
        }
        if reloads.swap(false, Ordering::SeqCst) {
            logd.reload();
        }
        let stats = logd.stats();
        if stats != told {
            let node = stats.node;
            tell(&[NotifyState::Status(&format!(
                "{} clients, {} rings of {} databases, {} bytes; {} blocks taken, {} frames refused",
                stats.connections,
                node.rings,
                node.databases,
                node.bytes,
                node.appends,
                node.refusals
            ))]);
            told = stats;
        }
    }
    tell(&[NotifyState::Stopping, NotifyState::Status("Ending")]);
    tracing::info!("The node ends");
    logd.stop();
    Ok(())
}

/// Sends a state to the service manager. Does not wait if the manager does not read. Returns whether the state was
/// sent.
fn tell(state: &[NotifyState<'_>]) -> bool {
    perdura_logging::notify(state).is_ok()
}
