//! `kill -9` while a client sends pipelined requests, with a real Redis 7.0 as the model. After Perdura's restart,
//! Redis runs the acknowledged requests. Then it runs the unanswered requests one by one until its data equals
//! Perdura's. The data must become equal.
//!
//! This model shares no code with Perdura, and its results are correct by definition. All requests, including
//! transactions, go over one connection, so their order is known.

use std::path::Path;
use std::time::Duration;

use perdura_differ::contents::{Contents, read};
use perdura_differ::pair::{Redis, await_answer};
use perdura_differ::script::write;
use perdura_differ::step::{Argv, Step};
use perdura_differ::tables::families;
use perdura_differ::wire::{Wire, encode};

use crate::support::{Reply, Server, arg, number_from_env};

/// The families of commands in the requests. Commands that depend on time or chance are left out.
const FAMILIES: [&str; 7] = ["strings", "bits", "keys", "hash", "list", "set", "zset"];
const BY_TIME_OR_CHANCE: [&[u8]; 12] = [
    b"EXPIRE",
    b"PEXPIRE",
    b"EXPIREAT",
    b"PEXPIREAT",
    b"SETEX",
    b"PSETEX",
    b"GETEX",
    b"SPOP",
    b"RESTORE",
    b"SHUTDOWN",
    b"DEBUG",
    b"CLIENT",
];
/// The number of requests in one batch. The next batch is sent before the replies to the previous one are read.
const BATCH: usize = 32;

/// Returns whether a request always has equal effects on the two servers.
fn is_sure(argv: &Argv) -> bool {
    let name = argv[0].to_ascii_uppercase();
    let by_time = |word: &Vec<u8>| {
        let word = word.to_ascii_uppercase();
        [&b"EX"[..], b"PX", b"EXAT", b"PXAT"].contains(&word.as_slice())
    };
    let is_timed_set = name == b"SET" && argv[1..].iter().any(by_time);
    !is_timed_set && !BY_TIME_OR_CHANCE.contains(&name.as_slice())
}

fn requests(seed: u64) -> Vec<Argv> {
    let only: Vec<String> = FAMILIES.iter().map(|name| (*name).to_owned()).collect();
    let script = write(seed, 200_000, &families(), &only);
    let steps = script.units.into_iter().flatten();
    let calls = steps.filter_map(|step| match step {
        Step::Call { argv, .. } => Some(argv),
        _ => None,
    });
    calls.filter(is_sure).collect()
}

/// Sends requests until the server has ended. Returns how many requests were sent, and how many were answered.
fn load(socket: &Path, requests: &[Argv]) -> (usize, usize) {
    let mut wire = Wire::connect(socket).unwrap();
    let (mut sent, mut acknowledged) = (0, 0);
    for batch in requests.chunks(BATCH) {
        let bytes: Vec<u8> = batch.iter().flat_map(|argv| encode(argv)).collect();
        let gone = wire.send(&bytes).is_err();
        // Even after a send error, the server may have received a part of the batch.
        sent += batch.len();
        let behind = if gone { 0 } else { batch.len() };
        while acknowledged + behind < sent {
            if wire.read().is_err() {
                return (sent, acknowledged);
            }
            acknowledged += 1;
        }
        if gone {
            return (sent, acknowledged);
        }
    }
    panic!("the requests are used up before the kill");
}

/// Runs requests on the model until its data equals the server's. First runs all acknowledged requests, then the
/// unanswered requests, one by one. Returns how many unanswered requests ran.
fn follow(redis: &Redis, ours: &Contents, requests: &[Argv], acknowledged: usize) -> usize {
    // The requests go over their own connection, because they may leave it inside a MULTI. The second connection reads
    // the data.
    let (mut wire, mut questions) = (redis.connect().unwrap(), redis.connect().unwrap());
    for batch in requests[..acknowledged].chunks(BATCH) {
        let bytes: Vec<u8> = batch.iter().flat_map(|argv| encode(argv)).collect();
        wire.send(&bytes).unwrap();
        batch.iter().for_each(|_| drop(wire.read().unwrap()));
    }
    for kept in 0.. {
        let held = read(&mut questions).unwrap();
        if held == *ours {
            return kept;
        }
        let Some(next) = requests.get(acknowledged + kept) else {
            let differs = ours
                .iter()
                .find(|(key, value)| held.get(*key) != Some(*value));
            let missing = held.keys().find(|key| !ours.contains_key(*key));
            panic!(
                "no first part of the {kept} requests in flight explains what the restart brought \
                 back: after all of them ours differs in {differs:?} and lacks {missing:?}"
            );
        };
        wire.send(&encode(next)).unwrap();
        wire.read().unwrap();
    }
    unreachable!("the requests in flight are finite")
}

#[test]
fn what_kill_9_leaves_is_what_redis_holds_after_a_prefix_of_the_requests() {
    let rounds = number_from_env("PERDURA_MODEL_ROUNDS", 6);
    let seed = number_from_env("PERDURA_MODEL_SEED", 1);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let redis = Redis::start(dir.path()).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6d6f_6465);
    let (mut all, mut in_flight, mut partly) = (0, 0, 0);
    for round in 0..rounds {
        let requests = requests(seed.wrapping_mul(1000) + round);
        let socket = dir.path().join(format!("ours.{round}"));
        let extra = ["--unix-socket", arg(&socket), "--partitions", "16"];
        let debug = ["--enable-debug-command", "local"];
        let server = Server::start(&data, &[&extra[..], &debug].concat());
        await_answer(&socket).unwrap();
        // In every second life of the server, all commands that can work in steps do so.
        let elements = if round % 2 == 0 { "1" } else { "0" };
        let reply = server.ask(&["DEBUG", "STEP-ELEMENTS", elements]);
        assert_eq!(reply, Reply::Status("OK".to_owned()));
        if rng.bool() {
            server.ask(&["BGSAVE"]);
        }
        let life = Duration::from_millis(rng.u64(30..400));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(life);
            server.kill();
        });
        let (sent, acknowledged) = load(&socket, &requests);
        killer.join().unwrap();
        let socket = dir.path().join(format!("ours.{round}.again"));
        let server = Server::start(
            &data,
            &["--unix-socket", arg(&socket), "--partitions", "16"],
        );
        let ours = read(&mut Wire::connect(&socket).unwrap()).unwrap();
        let kept = follow(&redis, &ours, &requests[..sent], acknowledged);
        server.kill();
        all += acknowledged;
        in_flight += sent - acknowledged;
        partly += usize::from(kept > 0);
    }
    println!(
        "{rounds} kills: {all} requests acknowledged and kept, {in_flight} in flight, of which some \
         were kept {partly} times (PERDURA_MODEL_SEED={seed})"
    );
    assert!(all > 100, "the server was hardly used");
}
