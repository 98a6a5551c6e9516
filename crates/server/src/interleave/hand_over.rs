//! Clients that wait for elements of two lists, and transactions that push elements.

use super::{gate, must_fail, search};
use crate::blocking::{Blocking, Place, testing};
use crate::engine::{Epoch, Shape};
use crate::mailbox::{Letter, Mailbox, Post};
use crate::part::Part;
use crate::pubsub::Seat;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::collections::BTreeSet;
use std::sync::Arc;

const KEYS: [&[u8]; 2] = [b"a", b"b"];

/// The requests of the clients. Each client has its own loop.
const REQUESTS: [&[u8]; 3] = [b"blpop a b 0\n", b"blpop b 0\n", b"blpop b a 0\n"];

/// The indexes of the keys of each request.
const NAMES: [&[usize]; 3] = [&[0, 1], &[1], &[1, 0]];

/// A mistake of a transaction or of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slip {
    None,
    /// A client begins to wait after the latches of its keys are free.
    WaitsLate,
    /// A transaction that is undone keeps its claims.
    KeepsClaims,
    /// No loop tries the keys again for which a returned client was missed.
    ForgetsMissed,
    /// A deadline ends a wait although a transaction serves the client.
    EndsClaimedWait,
}

/// The end of a client's request.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The client waits for a letter.
    Waiting,
    /// The client got an element at once.
    Found(u8),
    /// The client's time was over.
    TimedOut,
    /// The client has left before a transaction claimed it.
    Left,
    /// The client has left while a transaction served it, or after.
    LeftWhileServed,
}

/// Two lists under their latches, and the clients that wait for elements.
struct Lists {
    latches: [Mutex<Vec<u8>>; 2],
    blocking: Part<Blocking>,
    mailboxes: Vec<Mailbox>,
    mistake: Slip,
}

impl Lists {
    fn new(mistake: Slip) -> Lists {
        Lists {
            latches: [Mutex::new(Vec::new()), Mutex::new(Vec::new())],
            blocking: Part::default(),
            mailboxes: REQUESTS.iter().map(|_| Mailbox::new(gate().0)).collect(),
            mistake,
        }
    }

    fn post(&self, to: Seat, post: Post) {
        self.mailboxes[to.event_loop].put(Letter {
            to,
            post: Arc::new(post),
            epoch: Epoch(0),
        });
    }

    /// Runs a client's BLPOP, which names the keys in `names`.
    fn ask(&self, client: usize, names: &[usize]) -> End {
        let [a, b] = &self.latches;
        let (mut a, mut b) = (a.lock().expect("a latch"), b.lock().expect("a latch"));
        for name in names {
            let list = if *name == 0 { &mut a } else { &mut b };
            if !list.is_empty() {
                return End::Found(list.remove(0));
            }
        }
        if self.mistake == Slip::WaitsLate {
            drop((a, b));
        }
        let seat = Seat {
            event_loop: client,
            index: 0,
            id: client as u64 + 1,
        };
        let keys = 1..1 + names.len();
        self.blocking
            .with(|blocking| testing::add(blocking, seat, REQUESTS[client], keys));
        End::Waiting
    }

    /// Runs a transaction that pushes an element, or that only tries a key again. It is undone if `fails`.
    fn transact(&self, key: usize, pushed: Option<u8>, fails: bool) {
        let mut list = self.latches[key].lock().expect("a latch");
        let before = list.clone();
        list.extend(pushed);
        let (mut served, mut after) = (Vec::new(), 0);
        while self.blocking.is_in_use() && !list.is_empty() {
            let place = Place {
                database: 0,
                key: KEYS[key],
            };
            let claim = |blocking: &mut Blocking| blocking.claim(place, Shape::List, after);
            let Some(claimed) = self.blocking.with(claim) else {
                break;
            };
            after = claimed.ticket;
            served.push((claimed.seat, list.remove(0)));
        }
        if !fails {
            for (seat, element) in served {
                self.blocking.with(|blocking| blocking.end_claim(seat.id));
                let (reply, written) = (vec![element], Epoch(0));
                self.post(seat, Post::Answer { reply, written });
            }
            return;
        }
        *list = before;
        // A transaction that begins again returns its claims under its latches. One that fails has released them.
        if thread_rng().gen_bool(0.5) {
            drop(list);
        }
        for (seat, _) in served {
            self.return_claim(seat);
        }
    }

    fn return_claim(&self, seat: Seat) {
        if self.mistake == Slip::KeepsClaims {
            return;
        }
        let again = self
            .blocking
            .with(|blocking| blocking.return_claim(seat.id));
        if !again.is_empty() && self.mistake != Slip::ForgetsMissed {
            self.post(seat, Post::TryAgain(again));
        }
    }

    /// Reads the letters to a loop. Returns the element that its client gets.
    fn read_mail(&self, client: usize) -> Option<u8> {
        let (mut letters, mut got) = (Vec::new(), None);
        self.mailboxes[client].take(&mut letters);
        for letter in letters {
            match &*letter.post {
                Post::Answer { reply, .. } => {
                    assert_eq!(got.replace(reply[0]), None, "a client gets one answer");
                }
                Post::TryAgain(places) => {
                    for (_, name) in places {
                        let key = KEYS.iter().position(|key| *key == &**name);
                        self.transact(key.expect("a key"), None, false);
                    }
                }
                other => panic!("unexpected letter {other:?}"),
            }
        }
        got
    }

    /// Runs a client that waits, loses patience or leaves. Returns the end of its request and the elements it was sent.
    fn client(&self, client: usize, names: &[usize]) -> (End, Vec<u8>) {
        let asked = self.ask(client, names);
        let id = client as u64 + 1;
        let mut got = Vec::new();
        if asked != End::Waiting {
            return (asked, got);
        }
        thread::yield_now();
        got.extend(self.read_mail(client));
        let end = match thread_rng().gen_range(0..3) {
            0 => End::Waiting,
            1 => self.blocking.with(|blocking| {
                let ends = match self.mistake {
                    Slip::EndsClaimedWait => {
                        let waits = blocking.get(id).is_some();
                        blocking.leave(id);
                        waits
                    }
                    _ => blocking.take(id).is_some(),
                };
                if ends { End::TimedOut } else { End::Waiting }
            }),
            _ => self.blocking.with(|blocking| {
                let waits = blocking.get(id).is_some() && !blocking.is_claimed(id);
                blocking.leave(id);
                if waits {
                    End::Left
                } else {
                    End::LeftWhileServed
                }
            }),
        };
        (end, got)
    }
}

/// Three clients wait for elements of two lists while transactions push, and others are undone. At the end each
/// element must be in a list or at one client, and no client may wait beside an element.
fn hand_over(mistake: Slip) {
    let lists = Arc::new(Lists::new(mistake));
    let clients = NAMES.iter().enumerate().map(|(client, names)| {
        let lists = Arc::clone(&lists);
        thread::spawn(move || lists.client(client, names))
    });
    let clients: Vec<_> = clients.collect();
    let pushers: Vec<_> = (0..2)
        .map(|key| {
            let lists = Arc::clone(&lists);
            thread::spawn(move || {
                lists.transact(key, Some(100), true);
                let commits = thread_rng().gen_bool(0.5);
                if commits {
                    lists.transact(key, Some(key as u8), false);
                }
                commits.then_some(key as u8)
            })
        })
        .collect();
    let pushed: BTreeSet<u8> = pushers
        .into_iter()
        .filter_map(|pusher| pusher.join().expect("a pusher"))
        .collect();
    let mut ends: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().expect("a client"))
        .collect();
    // The loops continue to read their letters.
    while lists.mailboxes.iter().any(|mailbox| !mailbox.is_empty()) {
        for (client, (_, got)) in ends.iter_mut().enumerate() {
            got.extend(lists.read_mail(client));
        }
    }
    let mut elements: Vec<u8> = Vec::new();
    for (key, latch) in lists.latches.iter().enumerate() {
        let list = latch.lock().expect("a latch");
        let waits = lists
            .blocking
            .with(|blocking| blocking.waits_for(0, KEYS[key]));
        assert!(
            list.is_empty() || !waits,
            "a client waits beside an element"
        );
        elements.extend(&*list);
    }
    for (end, got) in ends {
        let most = usize::from(matches!(end, End::Waiting | End::LeftWhileServed));
        assert!(got.len() <= most, "{end:?} and {got:?}");
        if let End::Found(element) = end {
            elements.push(element);
        }
        elements.extend(got);
    }
    let once: BTreeSet<u8> = elements.iter().copied().collect();
    assert_eq!((elements.len(), once), (pushed.len(), pushed));
}

#[test]
fn each_element_reaches_one_client_and_nobody_waits_beside_one() {
    search(|| hand_over(Slip::None));
}

#[test]
fn mistakes_of_a_hand_over_lose_an_element_or_a_client() {
    must_fail(|| hand_over(Slip::WaitsLate));
    must_fail(|| hand_over(Slip::KeepsClaims));
    must_fail(|| hand_over(Slip::ForgetsMissed));
    must_fail(|| hand_over(Slip::EndsClaimedWait));
}
