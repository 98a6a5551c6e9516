//! The consumers of one group, which work on one queue. Each consumer has a separate connection and separate records.
//!
//! Each entry of the stream `queue` has a different number. A consumer finishes an entry by a script, which
//! acknowledges the entry, adds the entry's number to the stream `done`, and increments the counter `finished`. After
//! a crash:
//!
//! * Every entry whose XADD was acknowledged is there, and no number occurs twice.
//! * A delivered entry is pending until it is acknowledged. The entry is pending for the consumer that received it, or
//!   for a consumer that claimed it later.
//! * No entry is delivered twice as a new one.
//! * Each script has done all three steps or none. If the script's reply reported success, it has done all three.

use std::collections::{BTreeMap, BTreeSet};

use crate::contents::{array, bulk};
use crate::queue_consumers::{Consumer, Worker, numbers};
use crate::stream_model::{Id, id};
use crate::support::{Client, Reply, Server};

/// The database of the queue. Other tests count the keys of the first databases, so the queue is in a later one.
const DATABASE: u8 = 3;

/// The group, the consumers, and the consumers' records over many crashes.
pub struct Queue {
    consumers: Vec<Consumer>,
    rng: fastrand::Rng,
    /// True if the stream and the group must still be created.
    is_new: bool,
    /// Count of entries that the consumers finished in earlier queues.
    consumed: usize,
}

/// The contents of the streams after a crash.
struct Found {
    /// The numbers of the entries in the queue, by id.
    queue: BTreeMap<Id, u64>,
    done: Vec<u64>,
    finished: u64,
    last: Id,
    /// The consumer of each pending entry, by the entry's id.
    pending: BTreeMap<Id, usize>,
}

impl Queue {
    pub fn new(consumers: usize, seed: u64) -> Queue {
        Queue {
            consumers: (0..consumers).map(|_| Consumer::default()).collect(),
            rng: fastrand::Rng::with_seed(seed),
            is_new: true,
            consumed: 0,
        }
    }

    /// Returns how many entries the script has finished, in this queue and in all earlier queues.
    pub fn consumed(&self) -> u64 {
        let now: usize = self.consumers.iter().map(|one| one.finished.len()).sum();
        u64::try_from(self.consumed + now).unwrap()
    }

    /// Lets all consumers work until their connections break.
    pub fn work(&mut self, port: u16) {
        std::thread::scope(|scope| {
            for (number, consumer) in self.consumers.iter_mut().enumerate() {
                let rng = self.rng.fork();
                scope.spawn(move || {
                    if let Ok(client) = Client::connect_to(port, DATABASE) {
                        let mut worker = Worker {
                            number,
                            rng,
                            client,
                        };
                        while worker.step(consumer).is_ok() {}
                    }
                });
            }
        });
    }

    /// Compares the data of a restarted server with the consumers' records. Sometimes replaces the queue by a new one.
    pub fn check(&mut self, server: &Server) -> Result<(), String> {
        let mut client =
            Client::connect_to(server.port(), DATABASE).map_err(|error| error.to_string())?;
        if !self.is_new {
            let found = Found::read(&mut client);
            self.compare(&found)?;
            self.settle(&found);
        }
        if self.is_new || self.rng.u8(..4) == 0 {
            let made = [
                client.ask(&["DEL", "queue", "done", "finished"]),
                client.ask(&["XGROUP", "CREATE", "queue", "g", "0", "MKSTREAM"]),
            ];
            let made = made.into_iter().collect::<Result<Vec<_>, _>>();
            let made = made.map_err(|error| error.to_string())?;
            assert_eq!(made[1], Reply::Status("OK".into()));
            for one in &mut self.consumers {
                self.consumed += one.finished.len();
                *one = Consumer::default();
            }
            self.is_new = false;
        }
        Ok(())
    }

    fn compare(&self, found: &Found) -> Result<(), String> {
        let all = &self.consumers;
        let mut numbers = BTreeSet::new();
        for (id, number) in &found.queue {
            let known = all
                .iter()
                .any(|one| one.added.get(id) == Some(number) || one.adding.contains(number));
            if !known || !numbers.insert(number) {
                return Err(format!(
                    "number {number} at {id:?} is unknown or there twice"
                ));
            }
        }
        for (id, number) in all.iter().flat_map(|one| &one.added) {
            if found.queue.get(id) != Some(number) {
                return Err(format!("number {number} at {id:?} is lost"));
            }
        }
        let mut new = BTreeSet::new();
        if let Some(id) = all
            .iter()
            .flat_map(|one| &one.new)
            .find(|id| !new.insert(**id))
        {
            return Err(format!("{id:?} was given twice as new"));
        }
        self.compare_pending(found)?;
        self.compare_finished(found)
    }

    fn compare_pending(&self, found: &Found) -> Result<(), String> {
        let all = &self.consumers;
        for id in all.iter().flat_map(|one| one.given.keys()) {
            let is_pending = found.pending.contains_key(id);
            if all.iter().any(|one| one.acknowledged.contains(id)) && is_pending {
                return Err(format!("{id:?} was acknowledged and is pending again"));
            }
            let may_be_gone =
                |one: &Consumer| one.acknowledged.contains(id) || one.acknowledging.contains(id);
            if !is_pending && !all.iter().any(may_be_gone) {
                return Err(format!(
                    "{id:?} was given, not acknowledged, and is not pending"
                ));
            }
            if *id > found.last {
                return Err(format!(
                    "{id:?} was given, and the group is at {:?}",
                    found.last
                ));
            }
        }
        for (id, owner) in &found.pending {
            let owner = &all[*owner];
            if !owner.given.contains_key(id) && !owner.taking {
                return Err(format!(
                    "{id:?} is pending for a consumer that never asked for it"
                ));
            }
        }
        Ok(())
    }

    fn compare_finished(&self, found: &Found) -> Result<(), String> {
        let done: BTreeSet<u64> = found.done.iter().copied().collect();
        let counted = usize::try_from(found.finished).unwrap();
        if done.len() != found.done.len() || counted != found.done.len() {
            let len = found.done.len();
            return Err(format!(
                "{} of {len} numbers are done, and counted {counted}",
                done.len()
            ));
        }
        let pending: BTreeSet<u64> = found.pending.keys().map(|id| found.queue[id]).collect();
        for one in &self.consumers {
            if let Some(number) = one.finished.difference(&done).next() {
                return Err(format!("number {number} was finished and is not done"));
            }
            if let Some(number) = done.intersection(&pending).next() {
                return Err(format!(
                    "number {number} is done and pending: half a script"
                ));
            }
            let open = one
                .finishing
                .iter()
                .find(|number| !done.contains(number) && !pending.contains(number));
            let by_another = |number: &u64| {
                let id = one
                    .given
                    .iter()
                    .find(|(_, given)| *given == number)
                    .map(|(id, _)| id);
                self.consumers.iter().any(|other| {
                    id.is_some_and(|id| {
                        other.acknowledged.contains(id)
                            || other.acknowledging.contains(id) && !other.finishing.contains(number)
                    })
                })
            };
            if let Some(number) = open.filter(|number| !by_another(number)) {
                return Err(format!(
                    "number {number} is neither done nor pending: half a script"
                ));
            }
        }
        let known = |number: &u64| {
            self.consumers
                .iter()
                .any(|one| one.finished.contains(number) || one.finishing.contains(number))
        };
        match done.iter().find(|number| !known(number)) {
            Some(number) => Err(format!(
                "number {number} is done, and no consumer asked for it"
            )),
            None => Ok(()),
        }
    }

    /// Decides from the found data, for each request in doubt, whether the request took effect.
    fn settle(&mut self, found: &Found) {
        let done: BTreeSet<u64> = found.done.iter().copied().collect();
        for (number, one) in self.consumers.iter_mut().enumerate() {
            let adding = std::mem::take(&mut one.adding);
            let added = found
                .queue
                .iter()
                .filter(|(_, number)| adding.contains(number));
            one.added.extend(added);
            let mine = found.pending.iter().filter(|(_, owner)| **owner == number);
            for (id, _) in mine {
                one.given.insert(*id, found.queue[id]);
            }
            let acknowledging = std::mem::take(&mut one.acknowledging);
            let gone = acknowledging
                .into_iter()
                .filter(|id| !found.pending.contains_key(id));
            one.acknowledged.extend(gone);
            let finishing = std::mem::take(&mut one.finishing);
            one.finished.extend(finishing.intersection(&done));
            one.taking = false;
        }
    }
}

impl Found {
    fn read(client: &mut Client) -> Found {
        let mut ask = |words: &[&str]| client.ask(words).unwrap();
        let finished = match ask(&["GET", "finished"]) {
            Reply::Bulk(Some(text)) => String::from_utf8(text).unwrap().parse().unwrap(),
            _ => 0,
        };
        let groups = array(ask(&["XINFO", "GROUPS", "queue"]));
        let group = array(groups[0].clone());
        let at = |name: &str| {
            let name = Reply::Bulk(Some(name.as_bytes().to_vec()));
            group.iter().position(|word| *word == name).unwrap() + 1
        };
        let held = array(ask(&["XPENDING", "queue", "g", "-", "+", "1000000"]));
        let pending = held.into_iter().map(|held| {
            let [at, consumer, _, _] = array(held).try_into().expect("a pending entry");
            let consumer = String::from_utf8(bulk(consumer)).unwrap();
            (id(&bulk(at)), consumer[1..].parse().unwrap())
        });
        Found {
            queue: numbers(ask(&["XRANGE", "queue", "-", "+"]))
                .into_iter()
                .collect(),
            done: numbers(ask(&["XRANGE", "done", "-", "+"]))
                .into_iter()
                .map(|(_, number)| number)
                .collect(),
            finished,
            last: id(&bulk(group[at("last-delivered-id")].clone())),
            pending: pending.collect(),
        }
    }
}
