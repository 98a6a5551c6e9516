//! A server without a loop. A test hands bytes to the connections and runs the requests.

use crate::common::Home;
use crate::connection::Connection;
use crate::control::{Control, Message};
use crate::crew::Crew;
use crate::engine::Options;
use crate::gate::Gate;
use crate::net::Stream;
use crate::options::ServerOptions;
use crate::poll::{EventLoop, WAKER};
use crate::pubsub::Seat;
use crate::session::Session;
use crate::state::State;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// The parts of a loop that connections need: a gate, and a receiver of messages.
pub(crate) struct Testbed {
    _poll: mio::Poll,
    control: Control,
    pub messages: Receiver<Message>,
}

impl Testbed {
    pub(crate) fn new() -> Self {
        let poll = mio::Poll::new().expect("a poller");
        let waker = mio::Waker::new(poll.registry(), WAKER).expect("a waker");
        let (sender, messages) = channel();
        let gate = Arc::new(Gate::new(waker));
        Testbed {
            _poll: poll,
            control: Control { sender, gate },
            messages,
        }
    }

    /// Returns the sender of messages to the loop.
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Returns a loop without listeners, with this bed's state.
    pub(crate) fn event_loop(self, state: State) -> EventLoop {
        let poll = mio::Poll::new().expect("a poller");
        let crew = Crew::new(vec![self.control]);
        let state = Arc::new(Mutex::new(state)).lock_arc();
        EventLoop::new(poll, state, crew, self.messages)
    }

    /// Returns a server that has no database yet.
    pub(crate) fn state(&self, server: ServerOptions, database: Options) -> State {
        let home = Home::each(std::slice::from_ref(&self.control)).remove(0);
        state_at(home, server, database)
    }

    /// Returns a server with the loops of `beds`, each with its state. They have no database yet.
    pub(crate) fn states(
        beds: &[Testbed],
        server: &ServerOptions,
        database: &Options,
    ) -> Vec<State> {
        let controls: Vec<Control> = beds.iter().map(Testbed::control).collect();
        let homes = Home::each(&controls).into_iter();
        homes
            .map(|home| state_at(home, server.clone(), database.clone()))
            .collect()
    }
}

fn state_at(home: Home, server: ServerOptions, database: Options) -> State {
    let mut state = State::new(server, database, 0, Arc::default(), home);
    state.load_users().expect("users");
    state
}

/// Returns a socket that is never read.
pub(crate) fn socket() -> Stream {
    let (ours, _) = mio::net::UnixStream::pair().expect("a pair of sockets");
    Stream::Unix(ours)
}

/// Returns a client that has just connected.
pub(crate) fn connection(state: &State, stream: Stream, index: usize, id: u64) -> Box<Connection> {
    let seat = Seat {
        event_loop: state.event_loop,
        index,
        id,
    };
    let session = Session::new(seat, String::new(), String::new(), true, state);
    Box::new(Connection::new(stream, session))
}
