//! Concurrent clients. The clients record the acknowledged writes, and check the data after a crash.
//!
//! Each client has separate keys and one connection, so the order of a client's requests is known. A client sends
//! requests in batches and records every reply. If the connection breaks before the reply, the request is *in doubt*.
//! Of a client's requests in doubt, the server may have executed the first few. So after a crash, a client's keys must
//! be the result of the acknowledged requests and then the first few requests in doubt. A transaction counts as one
//! request. All clients also increment one shared counter.

use std::fmt::Write as _;
use std::time::Duration;

use crate::contents::{self, Keys};
use crate::model::{Model, SHARED};
use crate::requests::{Mix, Op};
use crate::support::{Client, Reply, Server};

const BATCH_MAX: usize = 8;

/// Applies a request to the model and returns the expected reply. Returns `None` if requests of other clients can
/// change the reply.
pub fn apply(op: &Op, model: &mut Model) -> Option<Reply> {
    match op {
        Op::One(words) => model.apply(words),
        Op::Multi(all) | Op::Script(all) | Op::Call(all) => {
            let replies: Vec<Option<Reply>> = all.iter().map(|words| model.apply(words)).collect();
            replies
                .into_iter()
                .collect::<Option<Vec<_>>>()
                .map(Reply::Array)
        }
    }
}

/// The records of one client.
#[derive(Default)]
struct Record {
    acknowledged: Model,
    in_doubt: Vec<Op>,
}

/// The records of all clients, over many crashes.
pub struct Clients {
    records: Vec<Record>,
    rng: fastrand::Rng,
    mix: Mix,
    /// The number of acknowledged requests of all clients so far.
    pub acknowledged: u64,
    /// The number of requests of all clients that were in doubt after the crashes so far.
    pub doubtful: u64,
}

impl Clients {
    pub fn new(count: usize, seed: u64) -> Clients {
        Clients::of(count, seed, Mix::All)
    }

    pub fn of(count: usize, seed: u64, mix: Mix) -> Clients {
        let records = (0..count).map(|_| Record::default()).collect();
        let rng = fastrand::Rng::with_seed(seed);
        Clients {
            records,
            rng,
            mix,
            acknowledged: 0,
            doubtful: 0,
        }
    }

    /// Lets all clients work, calls `crash` after a random time, and returns when all connections are broken.
    pub fn work(&mut self, server: Server, longest: Duration, crash: impl FnOnce(Server)) {
        let (port, mix) = (server.port(), self.mix);
        let seeds: Vec<u64> = self.records.iter().map(|_| self.rng.u64(..)).collect();
        let pause = longest.mul_f64(self.rng.f64());
        let acknowledged: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .records
                .iter_mut()
                .zip(seeds)
                .enumerate()
                .map(|(number, (record, seed))| {
                    scope.spawn(move || one_client(port, record, Draws { number, seed, mix }))
                })
                .collect();
            std::thread::sleep(pause);
            crash(server);
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        self.acknowledged += acknowledged;
    }

    /// Compares a restarted server with the expected data, and decides which requests in doubt were executed.
    pub fn check(&mut self, server: &Server) -> Result<(), String> {
        let mut client = server.connect().map_err(|error| error.to_string())?;
        let mut shared_done = 0;
        let mut doubts = 0;
        let mut keys = [0; 2];
        for (number, record) in self.records.iter_mut().enumerate() {
            self.doubtful += u64::try_from(record.in_doubt.len()).unwrap();
            let found = contents::read(&mut client, number)?;
            let doubtful = record.in_doubt.iter().flat_map(Op::parts);
            shared_done += record.acknowledged.shared;
            doubts += doubtful.filter(|words| words[1] == SHARED).count();
            settle(number, record, &found)?;
            for (db, keys) in keys.iter_mut().enumerate() {
                *keys += found
                    .keys()
                    .filter(|(at, _)| usize::from(*at) == db)
                    .count();
            }
        }
        let shared = match client
            .ask(&["GET", "shared"])
            .map_err(|error| error.to_string())?
        {
            Reply::Bulk(Some(text)) => String::from_utf8(text).unwrap().parse::<u64>().unwrap(),
            _ => 0,
        };
        let most = shared_done + u64::try_from(doubts).unwrap();
        if !(shared_done..=most).contains(&shared) {
            return Err(format!(
                "the shared counter is {shared}, not {shared_done} to {most}"
            ));
        }
        keys[0] += usize::from(shared > 0);
        for (db, keys) in keys.into_iter().enumerate() {
            let mut ask = |words: &[&str]| client.ask(words).map_err(|error| error.to_string());
            ask(&["SELECT", &db.to_string()])?;
            let size = ask(&["DBSIZE"])?;
            if size != Reply::Number(i64::try_from(keys).unwrap()) {
                return Err(format!("DBSIZE of {db} is {size:?}; {keys} keys are known"));
            }
        }
        // From now on the expected counter is the value that the server has. It is recorded for the first client,
        // because nothing shows which client made which increments.
        self.records
            .iter_mut()
            .for_each(|record| record.acknowledged.shared = 0);
        if let Some(first) = self.records.first_mut() {
            first.acknowledged.shared = shared;
        }
        Ok(())
    }
}

/// Finds how many requests in doubt the server has executed, and updates the record. Fails if no number explains the
/// data.
fn settle(number: usize, record: &mut Record, found: &Keys) -> Result<(), String> {
    let mut model = record.acknowledged.clone();
    let in_doubt = std::mem::take(&mut record.in_doubt);
    let mut done = 0;
    loop {
        if model.keys == *found {
            record.acknowledged = model;
            return Ok(());
        }
        let Some(op) = in_doubt.get(done) else { break };
        apply(op, &mut model);
        done += 1;
    }
    let mut text = format!(
        "client {number}: no prefix of {} doubtful requests fits;",
        done
    );
    let expected = &record.acknowledged.keys;
    for key in expected.keys().chain(found.keys()) {
        let (want, have) = (expected.get(key), found.get(key));
        if want != have {
            let brief = |entry: Option<&crate::model::Entry>| match entry {
                None => "nothing".to_owned(),
                Some(entry) => format!("{} until {:?}", entry.value.brief(), entry.expires_at_ms),
            };
            let (db, key) = (key.0, key.1.escape_ascii());
            let _ = write!(
                text,
                "\n  {key} of {db}: acknowledged {}, found {}",
                brief(want),
                brief(have)
            );
        }
    }
    Err(text)
}

/// The parameters of a client's random requests.
struct Draws {
    number: usize,
    seed: u64,
    mix: Mix,
}

/// Sends requests until the connection breaks. Returns how many were acknowledged.
fn one_client(port: u16, record: &mut Record, draws: Draws) -> u64 {
    let Draws { number, seed, mix } = draws;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut acknowledged = 0;
    let Ok(mut client) = Client::connect(port) else {
        return 0;
    };
    loop {
        let length = rng.usize(1..=BATCH_MAX);
        let batch: Vec<Op> = (0..length)
            .map(|_| Op::draw(&mut rng, number, mix))
            .collect();
        let mut bytes = Vec::new();
        batch.iter().for_each(|op| op.put(&mut bytes));
        // Even a failed send may have delivered a part of the batch.
        let sent = client.send(&bytes);
        let mut ops = batch.into_iter();
        while let Some(op) = ops.next() {
            match op.answer(&mut client) {
                Ok(reply) => {
                    let expected = apply(&op, &mut record.acknowledged);
                    if let Some(expected) = expected {
                        assert_eq!(reply, expected, "client {number}: {op:?}");
                    } else {
                        assert!(
                            !matches!(reply, Reply::Error(_)),
                            "client {number}: {reply:?}"
                        );
                    }
                    acknowledged += 1;
                }
                Err(_) => {
                    record.in_doubt.push(op);
                    record.in_doubt.extend(ops);
                    return acknowledged;
                }
            }
        }
        if sent.is_err() {
            return acknowledged;
        }
    }
}
