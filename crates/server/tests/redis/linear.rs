//! A test that several loops are linearizable. Clients of four loops append to lists and set registers, in pipelines.
//!
//! RPUSH replies with the length of the list, and SET with GET replies with the value before. So each reply tells the
//! place of its request among all requests to the key. The places must agree with real time: a request that was sent
//! after the reply to another one has a later place. The requests of one client have ascending places.

use super::client::{Running, encode, local, start_with};
use perdura_server::ServerOptions;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Instant;

const CLIENTS: usize = 4;
const BATCH: usize = 16;
const KEYS: usize = 3;
const LOOPS: usize = 4;

/// A request to one key.
#[derive(Debug, Clone, Copy)]
struct Op {
    begin: u64,
    end: u64,
    client: usize,
    kind: Kind,
    /// The number that the request wrote, for RPUSH and SET.
    wrote: u64,
    /// The number in the reply: a length, or a value. 0: the key did not exist.
    told: u64,
}

impl Op {
    /// Returns a request that was sent at `begin` and is not answered yet.
    fn new(client: usize, kind: Kind, wrote: u64, begin: u64) -> Op {
        Op {
            begin,
            end: begin,
            client,
            kind,
            wrote,
            told: 0,
        }
    }

    /// Returns the request with its reply at `end`.
    fn answered(self, end: u64, told: u64) -> Op {
        Op { end, told, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Push,
    Len,
    Set,
    Get,
}

/// The place of a request in the order of its key. A read has the place of the write that it saw.
struct Placed {
    op: Op,
    place: u64,
}

/// Reads an integer, or a bulk string that is a number, or nil, which counts as 0.
fn number(stream: &mut BufReader<TcpStream>) -> u64 {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a reply");
    let head = line.trim_end();
    match head.split_at(1) {
        (":", number) => number.parse().expect("a number"),
        ("$", "-1") => 0,
        ("$", len) => {
            let mut text = vec![0; len.parse::<usize>().expect("a length") + 2];
            stream.read_exact(&mut text).expect("a bulk string");
            let text = String::from_utf8(text).expect("text");
            text.trim_end().parse().expect("a number")
        }
        _ => panic!("no number: {head}"),
    }
}

/// Sends batches of requests. Returns the requests with their keys.
fn work(running: &Running, client: usize, batches: usize, start: Instant) -> Vec<(usize, Op)> {
    let address = running.server.local_addr().expect("an address");
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let mut stream = BufReader::new(stream);
    let mut rng = fastrand::Rng::with_seed(u64::try_from(client).expect("a number"));
    let now = || u64::try_from(start.elapsed().as_nanos()).expect("a time");
    let mut next = u64::try_from(client).expect("a number") << 32;
    let mut all = Vec::with_capacity(batches * BATCH);
    for _ in 0..batches {
        let (mut bytes, from) = (Vec::new(), all.len());
        let begin = now();
        for _ in 0..BATCH {
            next += 1;
            let kinds = [Kind::Push, Kind::Len, Kind::Set, Kind::Get];
            let (kind, key) = (kinds[rng.usize(..4)], rng.usize(..KEYS));
            let (list, register) = (format!("l{key}"), format!("r{key}"));
            let (wrote, list, register) = (next.to_string(), list.as_bytes(), register.as_bytes());
            bytes.extend(match kind {
                Kind::Push => encode(&[b"RPUSH", list, wrote.as_bytes()]),
                Kind::Len => encode(&[b"LLEN", list]),
                Kind::Set => encode(&[b"SET", register, wrote.as_bytes(), b"GET"]),
                Kind::Get => encode(&[b"GET", register]),
            });
            all.push((key, Op::new(client, kind, next, begin)));
        }
        stream.get_mut().write_all(&bytes).expect("a write");
        for (_, op) in &mut all[from..] {
            let told = number(&mut stream);
            *op = op.answered(now(), told);
        }
    }
    all
}

/// Returns the requests to a list with their places. The list must have the pushed numbers in the order of the replies.
fn places_of_list(ops: &[Op], items: &[u64]) -> Vec<Placed> {
    let pushes = ops.iter().filter(|op| op.kind == Kind::Push);
    assert_eq!(
        pushes.clone().count(),
        items.len(),
        "each push is there once"
    );
    for op in pushes {
        let at = usize::try_from(op.told).expect("a place") - 1;
        assert_eq!(items.get(at), Some(&op.wrote), "the item of {op:?}");
    }
    let placed = ops.iter().map(|op| Placed {
        op: *op,
        place: op.told,
    });
    placed.collect()
}

/// Returns the requests to a register with their places. Each SET replied with the value before, so all SETs are a chain.
fn places_of_register(ops: &[Op], last: u64) -> Vec<Placed> {
    let sets = ops.iter().filter(|op| op.kind == Kind::Set);
    let after: HashMap<u64, u64> = sets.clone().map(|op| (op.told, op.wrote)).collect();
    assert_eq!(after.len(), sets.count(), "no two SETs saw one value");
    let (mut places, mut value) = (HashMap::from([(0, 0)]), 0);
    while let Some(next) = after.get(&value) {
        let place = u64::try_from(places.len()).expect("a place");
        places.insert(*next, place);
        value = *next;
    }
    assert_eq!(places.len(), after.len() + 1, "all SETs are in one chain");
    assert_eq!(value, last, "the last SET is what is there");
    let seen = |op: &Op| {
        if op.kind == Kind::Set {
            op.wrote
        } else {
            op.told
        }
    };
    let placed = ops.iter().map(|op| Placed {
        op: *op,
        place: *places.get(&seen(op)).expect("a value that was set"),
    });
    placed.collect()
}

/// Checks that the places agree with real time, and with the order of each client's requests.
fn check_order(mut all: Vec<Placed>) {
    let writes = |op: &Op| matches!(op.kind, Kind::Push | Kind::Set);
    let mut newest = [0; CLIENTS];
    for Placed { op, place } in &all {
        let before = std::mem::replace(&mut newest[op.client], *place);
        let ascends = if writes(op) {
            *place > before
        } else {
            *place >= before
        };
        assert!(
            ascends,
            "{op:?} has place {place}, after {before} of its client"
        );
    }
    let mut ends: Vec<(u64, u64)> = all.iter().map(|one| (one.op.end, one.place)).collect();
    ends.sort_unstable();
    all.sort_unstable_by_key(|one| one.op.begin);
    let (mut ended, mut least) = (ends.into_iter().peekable(), 0);
    for Placed { op, place } in &all {
        while let Some((_, place)) = ended.next_if(|(end, _)| *end < op.begin) {
            least = least.max(place);
        }
        let follows = if writes(op) {
            *place > least
        } else {
            *place >= least
        };
        assert!(
            follows,
            "{op:?} has place {place}, after {least} had been answered"
        );
    }
}

/// Runs `PERDURA_LINEAR_OPS` requests, 60,000 by default.
#[test]
fn the_requests_of_clients_of_several_loops_have_one_order_for_each_key() {
    let ops = std::env::var("PERDURA_LINEAR_OPS").ok();
    let ops: usize = ops.map_or(60_000, |ops| ops.parse().expect("a number"));
    let running = start_with(ServerOptions {
        loops: NonZeroUsize::new(LOOPS),
        ..local()
    });
    let start = Instant::now();
    let all = thread::scope(|scope| {
        let running = &running;
        let batches = ops / CLIENTS / BATCH;
        let clients =
            (0..CLIENTS).map(|client| scope.spawn(move || work(running, client, batches, start)));
        let clients: Vec<_> = clients.collect();
        let ended = clients
            .into_iter()
            .flat_map(|c| c.join().expect("a client"));
        ended.collect::<Vec<_>>()
    });
    let mut client = running.connect();
    for key in 0..KEYS {
        let of = |kinds: [Kind; 2]| -> Vec<Op> {
            let ops = all
                .iter()
                .filter(|(at, op)| *at == key && kinds.contains(&op.kind));
            ops.map(|(_, op)| *op).collect()
        };
        let items = client.send(&format!("LRANGE l{key} 0 -1"));
        let items = items
            .split(|c: char| !c.is_ascii_digit())
            .filter(|t| !t.is_empty());
        let items: Vec<u64> = items.map(|text| text.parse().expect("a number")).collect();
        check_order(places_of_list(&of([Kind::Push, Kind::Len]), &items));
        let last = client.send(&format!("GET r{key}"));
        let last = last.trim_matches('"').parse().expect("a number");
        check_order(places_of_register(&of([Kind::Set, Kind::Get]), last));
    }
    println!("{} requests in {:.1?}", all.len(), start.elapsed());
}

#[test]
#[should_panic(expected = "had been answered")]
fn a_read_that_misses_an_answered_write_is_noticed() {
    let set = Op::new(0, Kind::Set, 5, 1).answered(2, 0);
    let get = Op::new(1, Kind::Get, 0, 3).answered(4, 0);
    check_order(places_of_register(&[set, get], 5));
}

#[test]
#[should_panic(expected = "no two SETs saw one value")]
fn a_lost_write_is_noticed() {
    let sets = [5, 6].map(|wrote| Op::new(0, Kind::Set, wrote, 1).answered(9, 0));
    check_order(places_of_register(&sets, 6));
}

#[test]
#[should_panic(expected = "of its client")]
fn a_length_that_shrinks_is_noticed() {
    let pushes = [1, 2].map(|told| Op::new(0, Kind::Push, told, 1).answered(9, told));
    let reads = [2, 1].map(|told| Op::new(1, Kind::Len, 0, 1).answered(9, told));
    let all = [pushes, reads].concat();
    check_order(places_of_list(&all, &[1, 2]));
}
