//! Concurrent clients that record what was acknowledged, and know what must be there after a
//! crash.
//!
//! Each client has keys of its own and one connection, so its requests have one order. It sends
//! them in batches and notes every reply. What was sent but not answered when the connection broke
//! is *in doubt*: the server may have done a first part of it, never a later request without an
//! earlier one. So after a crash a client's keys must be what the acknowledged requests made of
//! them, followed by some number of the requests in doubt, in order. A transaction counts as one.
//! All clients also increment one shared counter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::support::{Client, Reply, Server, request};

const SHARED: &str = "shared";
const KEYS: u64 = 40;
const BATCH_MAX: usize = 8;

/// One request.
#[derive(Debug, Clone)]
enum Op {
    Set(String, Vec<u8>),
    Append(String, Vec<u8>),
    Incr(String),
    Del(String),
    Shared,
    Multi(Vec<Op>),
}

impl Op {
    fn draw(rng: &mut fastrand::Rng, client: usize, nested: bool) -> Op {
        let key = format!("{client}:{}", rng.u64(..KEYS));
        match rng.u8(..if nested { 80 } else { 100 }) {
            0..40 => {
                let len = if rng.u8(..20) == 0 {
                    rng.usize(..40_000)
                } else {
                    rng.usize(..300)
                };
                Op::Set(
                    key,
                    std::iter::repeat_with(|| rng.u8(..)).take(len).collect(),
                )
            }
            40..50 => Op::Append(key, vec![rng.u8(..); rng.usize(1..50)]),
            50..65 => Op::Incr(format!("{client}:n{}", rng.u8(..4))),
            65..72 => Op::Del(key),
            72..80 => Op::Shared,
            _ => Op::Multi(
                (0..rng.usize(2..5))
                    .map(|_| Op::draw(rng, client, true))
                    .collect(),
            ),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let incr = |key: &str| request(&[b"INCR", key.as_bytes()]);
        match self {
            Op::Set(key, value) => out.extend(request(&[b"SET", key.as_bytes(), value])),
            Op::Append(key, more) => out.extend(request(&[b"APPEND", key.as_bytes(), more])),
            Op::Incr(key) => out.extend(incr(key)),
            Op::Del(key) => out.extend(request(&[b"DEL", key.as_bytes()])),
            Op::Shared => out.extend(incr(SHARED)),
            Op::Multi(ops) => {
                out.extend(request(&[b"MULTI"]));
                ops.iter().for_each(|op| op.put(out));
                out.extend(request(&[b"EXEC"]));
            }
        }
    }

    /// Does to the model what the server should do, and returns the reply it should give; `None`
    /// where other clients have a say.
    fn apply(&self, model: &mut Model) -> Option<Reply> {
        match self {
            Op::Set(key, value) => {
                model.rows.insert(key.clone(), value.clone());
                Some(Reply::Status("OK".into()))
            }
            Op::Append(key, more) => {
                let value = model.rows.entry(key.clone()).or_default();
                value.extend_from_slice(more);
                Some(Reply::Number(i64::try_from(value.len()).unwrap()))
            }
            Op::Incr(key) => {
                let value = model
                    .rows
                    .entry(key.clone())
                    .or_insert_with(|| b"0".to_vec());
                let next = std::str::from_utf8(value).unwrap().parse::<i64>().unwrap() + 1;
                *value = next.to_string().into_bytes();
                Some(Reply::Number(next))
            }
            Op::Del(key) => Some(Reply::Number(i64::from(model.rows.remove(key).is_some()))),
            Op::Shared => {
                model.shared += 1;
                None
            }
            Op::Multi(ops) => {
                let replies: Vec<Option<Reply>> = ops.iter().map(|op| op.apply(model)).collect();
                replies
                    .into_iter()
                    .collect::<Option<Vec<_>>>()
                    .map(Reply::Array)
            }
        }
    }

    /// Reads the replies to this request; the last one says that it was done.
    fn answer(&self, client: &mut Client) -> std::io::Result<Reply> {
        if let Op::Multi(ops) = self {
            for _ in 0..=ops.len() {
                let queued = client.reply()?;
                assert!(matches!(queued, Reply::Status(_)), "{queued:?}");
            }
        }
        client.reply()
    }
}

/// What a client's keys hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    rows: BTreeMap<String, Vec<u8>>,
    /// How often it has incremented the shared counter.
    shared: u64,
}

/// One client's memory.
#[derive(Default)]
struct Record {
    acknowledged: Model,
    in_doubt: Vec<Op>,
}

/// All clients' memory, over many crashes.
pub struct Clients {
    records: Vec<Record>,
    rng: fastrand::Rng,
    /// Requests acknowledged so far.
    pub acknowledged: u64,
    /// Requests whose fate a crash left open.
    pub doubtful: u64,
}

impl Clients {
    pub fn new(count: usize, seed: u64) -> Clients {
        let records = (0..count).map(|_| Record::default()).collect();
        let rng = fastrand::Rng::with_seed(seed);
        Clients {
            records,
            rng,
            acknowledged: 0,
            doubtful: 0,
        }
    }

    /// Lets all clients work until `crash`, which is called after a random time, has broken their
    /// connections.
    pub fn work(&mut self, server: Server, longest: Duration, crash: impl FnOnce(Server)) {
        let port = server.port();
        let seeds: Vec<u64> = self.records.iter().map(|_| self.rng.u64(..)).collect();
        let pause = longest.mul_f64(self.rng.f64());
        let acknowledged: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .records
                .iter_mut()
                .zip(seeds)
                .enumerate()
                .map(|(number, (record, seed))| {
                    scope.spawn(move || one_client(port, number, record, seed))
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

    /// Compares a server that has come back with what must be there, and settles what was in
    /// doubt.
    pub fn check(&mut self, server: &Server) -> Result<(), String> {
        let mut client = server.connect().map_err(|error| error.to_string())?;
        let mut shared_done = 0;
        let mut doubts = 0;
        let mut keys = 0;
        for (number, record) in self.records.iter_mut().enumerate() {
            self.doubtful += u64::try_from(record.in_doubt.len()).unwrap();
            let found = read(&mut client, number)?;
            let doubtful_shared = |op: &Op| match op {
                Op::Shared => 1,
                Op::Multi(ops) => ops.iter().filter(|op| matches!(op, Op::Shared)).count(),
                _ => 0,
            };
            shared_done += record.acknowledged.shared;
            doubts += record.in_doubt.iter().map(doubtful_shared).sum::<usize>();
            settle(number, record, &found)?;
            keys += found.len();
        }
        let shared = match client
            .ask(&["GET", SHARED])
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
        keys += usize::from(shared > 0);
        let size = client.ask(&["DBSIZE"]).map_err(|error| error.to_string())?;
        if size != Reply::Number(i64::try_from(keys).unwrap()) {
            return Err(format!("DBSIZE is {size:?}; {keys} keys are known"));
        }
        // From here on the counter is what was found; nobody remembers who did which part.
        self.records
            .iter_mut()
            .for_each(|record| record.acknowledged.shared = 0);
        if let Some(first) = self.records.first_mut() {
            first.acknowledged.shared = shared;
        }
        Ok(())
    }
}

/// Finds how many of the requests in doubt explain what was found.
fn settle(
    number: usize,
    record: &mut Record,
    found: &BTreeMap<String, Vec<u8>>,
) -> Result<(), String> {
    let mut model = record.acknowledged.clone();
    let in_doubt = std::mem::take(&mut record.in_doubt);
    let mut done = 0;
    loop {
        if model.rows == *found {
            record.acknowledged = model;
            return Ok(());
        }
        let Some(op) = in_doubt.get(done) else { break };
        op.apply(&mut model);
        done += 1;
    }
    let mut text = format!(
        "client {number}: no prefix of {} doubtful requests fits;",
        done
    );
    let expected = &record.acknowledged.rows;
    for key in expected.keys().chain(found.keys()) {
        let (want, have) = (expected.get(key), found.get(key));
        if want != have {
            let brief = |value: Option<&Vec<u8>>| match value {
                None => "nothing".to_owned(),
                Some(value) => format!("{} bytes {:.20}", value.len(), value.escape_ascii()),
            };
            let _ = write!(
                text,
                "\n  {key}: acknowledged {}, found {}",
                brief(want),
                brief(have)
            );
        }
    }
    Err(text)
}

fn read(client: &mut Client, number: usize) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let keys: Vec<String> = (0..KEYS)
        .map(|key| format!("{number}:{key}"))
        .chain((0..4).map(|key| format!("{number}:n{key}")))
        .collect();
    let mut words = vec!["MGET"];
    words.extend(keys.iter().map(String::as_str));
    let Reply::Array(values) = client.ask(&words).map_err(|error| error.to_string())? else {
        return Err("MGET gave no array".into());
    };
    let present = keys
        .into_iter()
        .zip(values)
        .filter_map(|(key, value)| match value {
            Reply::Bulk(Some(value)) => Some((key, value)),
            _ => None,
        });
    Ok(present.collect())
}

/// Works until the connection breaks. Returns how many requests were acknowledged.
fn one_client(port: u16, number: usize, record: &mut Record, seed: u64) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut acknowledged = 0;
    let Ok(mut client) = Client::connect(port) else {
        return 0;
    };
    loop {
        let length = rng.usize(1..=BATCH_MAX);
        let batch: Vec<Op> = (0..length)
            .map(|_| Op::draw(&mut rng, number, false))
            .collect();
        let mut bytes = Vec::new();
        batch.iter().for_each(|op| op.put(&mut bytes));
        // A failed send may have delivered a part.
        let sent = client.send(&bytes);
        let mut ops = batch.into_iter();
        while let Some(op) = ops.next() {
            match op.answer(&mut client) {
                Ok(reply) => {
                    let expected = op.apply(&mut record.acknowledged);
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
