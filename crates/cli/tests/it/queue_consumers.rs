//! The consumers of the queue in [`crate::queue_model`]: each consumer's requests and recorded results.

use std::collections::{BTreeMap, BTreeSet};

use crate::contents::{array, bulk};
use crate::stream_model::{Id, id};
use crate::support::{Client, Reply};

const FINISH: &str = "
    if redis.call('XACK', KEYS[1], 'g', ARGV[1]) == 1 then
        redis.call('XADD', KEYS[2], '*', 'n', ARGV[2])
        return redis.call('INCR', KEYS[3])
    end
    return 0";

/// The records of one consumer. Each entry has its own number, in the field `n`. A request without a reply is in doubt.
#[derive(Default)]
pub struct Consumer {
    /// The entries whose XADD was acknowledged: each entry's number, by its id.
    pub added: BTreeMap<Id, u64>,
    /// The numbers of the entries whose XADD is in doubt.
    pub adding: Vec<u64>,
    /// The entries that the consumer got by XREADGROUP or by a claim: each entry's number, by its id.
    pub given: BTreeMap<Id, u64>,
    /// The entries that the consumer got by XREADGROUP, not by a claim.
    pub new: BTreeSet<Id>,
    /// The entries acknowledged by the consumer, with XACK or with the finishing script.
    pub acknowledged: BTreeSet<Id>,
    /// The numbers of entries that the consumer has finished with the finishing script.
    pub finished: BTreeSet<u64>,
    /// The entries whose acknowledgement is in doubt.
    pub acknowledging: BTreeSet<Id>,
    /// The numbers of the entries whose finishing script is in doubt.
    pub finishing: BTreeSet<u64>,
    /// True if a delivery or a claim of this consumer is in doubt.
    pub taking: bool,
}

/// A consumer that is working.
pub struct Worker {
    pub number: usize,
    pub rng: fastrand::Rng,
    pub client: Client,
}

impl Worker {
    /// Sends one request. Records the reply, or records that the request is in doubt.
    pub fn step(&mut self, one: &mut Consumer) -> std::io::Result<()> {
        match self.rng.u8(..10) {
            0..4 => self.add(one),
            4..6 => self.take(one, false),
            6 => self.take(one, true),
            7 => self.acknowledge(one),
            _ => self.finish(one),
        }
    }

    fn add(&mut self, one: &mut Consumer) -> std::io::Result<()> {
        let number = self.rng.u64(..1 << 48);
        one.adding.push(number);
        let reply = self
            .client
            .ask(&["XADD", "queue", "*", "n", &number.to_string()])?;
        one.adding.pop();
        one.added.insert(id(&bulk(reply)), number);
        Ok(())
    }

    /// Requests new entries, or claims entries of other consumers.
    fn take(&mut self, one: &mut Consumer, claims: bool) -> std::io::Result<()> {
        let me = format!("c{}", self.number);
        let most = self.rng.u8(1..6).to_string();
        one.taking = true;
        let entries = if claims {
            let words = ["XAUTOCLAIM", "queue", "g", &me, "0", "0-0", "COUNT", &most];
            array(self.client.ask(&words)?).swap_remove(1)
        } else {
            let words = [
                "XREADGROUP",
                "GROUP",
                "g",
                &me,
                "COUNT",
                &most,
                "STREAMS",
                "queue",
                ">",
            ];
            match self.client.ask(&words)? {
                Reply::Bulk(None) => Reply::Array(Vec::new()),
                streams => array(array(streams).swap_remove(0)).swap_remove(1),
            }
        };
        one.taking = false;
        for (id, number) in numbers(entries) {
            one.given.insert(id, number);
            if !claims {
                one.new.insert(id);
            }
        }
        Ok(())
    }

    /// Returns a random open entry: delivered to the consumer, but not acknowledged. `None`: no entry is open.
    fn open(&mut self, one: &Consumer) -> Option<(Id, u64)> {
        let open = one
            .given
            .iter()
            .filter(|(id, _)| !one.acknowledged.contains(id));
        let open: Vec<_> = open.take(8).collect();
        let (id, number) = self.rng.choice(open)?;
        Some((*id, *number))
    }

    fn acknowledge(&mut self, one: &mut Consumer) -> std::io::Result<()> {
        let Some((id, _)) = self.open(one) else {
            return Ok(());
        };
        one.acknowledging.insert(id);
        self.client.ask(&["XACK", "queue", "g", &written(id)])?;
        one.acknowledging.remove(&id);
        one.acknowledged.insert(id);
        Ok(())
    }

    fn finish(&mut self, one: &mut Consumer) -> std::io::Result<()> {
        let Some((id, number)) = self.open(one) else {
            return Ok(());
        };
        one.acknowledging.insert(id);
        one.finishing.insert(number);
        let (at, text) = (written(id), number.to_string());
        let words = ["EVAL", FINISH, "3", "queue", "done", "finished", &at, &text];
        let reply = self.client.ask(&words)?;
        one.acknowledging.remove(&id);
        one.finishing.remove(&number);
        one.acknowledged.insert(id);
        match reply {
            Reply::Number(0) => {}
            Reply::Number(_) => {
                one.finished.insert(number);
            }
            other => panic!("the script answers {other:?}"),
        }
        Ok(())
    }
}

fn written(id: Id) -> String {
    format!("{}-{}", id.0, id.1)
}

/// Returns the ids and the numbers of the entries in a reply.
pub fn numbers(entries: Reply) -> Vec<(Id, u64)> {
    let number = |entry: Reply| {
        let [at, fields] = array(entry).try_into().expect("an entry");
        let number = bulk(array(fields).swap_remove(1));
        (
            id(&bulk(at)),
            String::from_utf8(number).unwrap().parse().unwrap(),
        )
    };
    array(entries).into_iter().map(number).collect()
}
