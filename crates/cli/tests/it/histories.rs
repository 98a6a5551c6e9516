//! The histories of databases with keys of all types, with or without typed tables beside them. One client notes the
//! epoch of each change. At a kill, some changes are in doubt. Afterwards the database has the first few of them, or none, or all.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clients::apply;
use crate::contents;
use crate::model::Model;
use crate::requests::{Mix, Op};
use crate::support::{Client, Reply, Server, arg, request};
use crate::typed_program::{Act, Program, Rows, Told};

/// The maximum number of changes that are on their way at a kill.
const IN_DOUBT_MAX: usize = 12;

/// The server that the client writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// `perdura serve`
    Perdura,
    /// The program with typed tables. Its log has effects.
    ProgramOfEffects,
    /// The program with typed tables. Its log has commands.
    ProgramOfCommands,
}

impl By {
    pub fn has_tables(self) -> bool {
        self != By::Perdura
    }
}

/// A change of the client.
#[derive(Debug, Clone)]
enum Change {
    Keys(Op),
    Rows(Act),
}

/// A change that is in the database.
pub struct Done {
    /// The first epoch that may have the change.
    pub from: u64,
    /// The first epoch that has the change for certain. It differs from `from` only if a kill took the reply.
    pub until: u64,
    /// The time after the acknowledgement, microseconds since 1970. `None`: a kill took the reply.
    pub at_us: Option<u64>,
    change: Change,
}

impl Done {
    /// Returns whether the change was acknowledged by a time.
    fn is_before(&self, at_us: u64) -> bool {
        self.at_us.is_some_and(|own| own <= at_us)
    }
}

/// The keys and the rows of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    keys: Model,
    rows: Rows,
}

impl State {
    /// Applies a change. Returns the expected reply, if only this client's requests determine it.
    fn apply(&mut self, change: &Change) -> Option<Reply> {
        match change {
            Change::Keys(op) => apply(op, &mut self.keys),
            Change::Rows(act) => {
                self.rows.apply(act);
                None
            }
        }
    }

    /// Names the keys that differ from those of another state, and says whether the rows differ.
    fn difference(&self, found: &State) -> String {
        let (own, others) = (&self.keys.keys, &found.keys.keys);
        let differ = |key: &&(u8, Vec<u8>)| own.get(*key) != others.get(*key);
        let keys = own.keys().chain(others.keys()).filter(differ);
        let names = keys.map(|(db, key)| format!("{} of {db}", key.escape_ascii()));
        let names: BTreeSet<String> = names.collect();
        let same = self.rows == found.rows;
        let counters = (self.keys.shared, found.keys.shared);
        format!("keys {names:?} differ; counters {counters:?}; rows are equal: {same}")
    }
}

/// A database in one of its lives.
pub enum Life {
    Perdura(Server),
    Program(Program),
}

impl Life {
    pub fn start(by: By, data: &Path, archive: Option<&Path>, merges: bool) -> Life {
        if by.has_tables() {
            return Life::Program(Program::start(&Told {
                data: data.to_owned(),
                archive: archive.map(Path::to_owned),
                merges,
                calls: by == By::ProgramOfCommands,
                checkpoint_log_bytes: 1 << 20,
            }));
        }
        let Some(archive) = archive else {
            return Life::Perdura(Server::start(data, &[]));
        };
        let merges = if merges { "yes" } else { "no" };
        let more = ["--archive", arg(archive), "--checkpoint-log-size", "1mb"];
        let more = [&more[..], &["--archive-merge", merges]].concat();
        Life::Perdura(Server::start(data, &more))
    }

    pub fn server(&self) -> &Server {
        match self {
            Life::Perdura(server) => server,
            Life::Program(program) => &program.server,
        }
    }

    pub fn state(&mut self) -> State {
        let keys = contents::read(&mut self.server().connect().unwrap(), 0).unwrap();
        let shared = match self.server().ask(&["GET", "shared"]) {
            Reply::Bulk(Some(text)) => String::from_utf8(text).unwrap().parse().unwrap(),
            _ => 0,
        };
        let rows = match self {
            Life::Perdura(_) => Rows::default(),
            Life::Program(program) => program.rows(),
        };
        State {
            keys: Model { keys, shared },
            rows,
        }
    }

    pub fn kill(self) {
        match self {
            Life::Perdura(server) => server.kill(),
            Life::Program(program) => program.server.kill(),
        }
    }

    pub fn stop(self) {
        match self {
            Life::Perdura(server) => server.stop(),
            Life::Program(program) => program.stop(),
        }
    }
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// Returns the epoch of the connection's last write. 0: it has written nothing.
fn epoch_of(client: &mut Client) -> u64 {
    client.send(&request(&[b"CLIENT", b"RECEIPT"])).unwrap();
    let fields = match client.reply().unwrap() {
        Reply::Array(fields) => fields,
        // The connection has written nothing yet.
        _ => return 0,
    };
    let Reply::Number(epoch) = fields[3] else {
        panic!("{fields:?}");
    };
    u64::try_from(epoch).unwrap()
}

/// The changes of the client.
pub struct History {
    pub by: By,
    rng: fastrand::Rng,
    /// The number of notes.
    notes: u64,
    pub done: Vec<Done>,
    state: State,
    /// The changes that were on their way when the database was killed.
    in_doubt: Vec<Change>,
    /// The number of changes without a reply that were found after a restart.
    pub found: usize,
}

impl History {
    pub fn new(by: By, seed: u64, notes: u64) -> History {
        History {
            by,
            rng: fastrand::Rng::with_seed(seed),
            notes,
            done: Vec::new(),
            state: State::default(),
            in_doubt: Vec::new(),
            found: 0,
        }
    }

    /// Returns the epoch of the last acknowledged change.
    pub fn last_epoch(&self) -> u64 {
        let acknowledged = |done: &&Done| done.at_us.is_some();
        let last = self.done.iter().rfind(acknowledged);
        last.map_or(0, |done| done.until)
    }

    fn draw(&mut self, of_rows: bool) -> Change {
        match of_rows {
            true => Change::Rows(Act::draw(&mut self.rng, self.notes)),
            false => Change::Keys(Op::draw(&mut self.rng, 0, Mix::All)),
        }
    }

    /// Makes a change, and notes it with its epoch.
    fn make(&mut self, life: &mut Life, client: &mut Client, change: Change) {
        let expected = self.state.apply(&change);
        let epoch = match (&change, life) {
            (Change::Rows(act), Life::Program(program)) => program.act(act),
            (Change::Rows(_), Life::Perdura(_)) => unreachable!("it has no tables"),
            (Change::Keys(op), _) => {
                let mut bytes = Vec::new();
                op.put(&mut bytes);
                client.send(&bytes).unwrap();
                let reply = op.answer(client).unwrap();
                if let Some(expected) = expected {
                    assert_eq!(reply, expected, "{op:?}");
                }
                epoch_of(client)
            }
        };
        // An operation that changed nothing has the epoch of an earlier one.
        let epoch = epoch.max(self.last_epoch());
        // The changes without a reply were durable before this life began.
        for done in &mut self.done {
            if done.until == u64::MAX && done.from < epoch {
                done.until = epoch - 1;
            }
        }
        self.done.push(Done {
            from: epoch,
            until: epoch,
            at_us: Some(now_us()),
            change,
        });
    }

    /// Writes every note once.
    pub fn fill(&mut self, life: &mut Life) {
        let mut client = life.server().connect().unwrap();
        for id in 0..self.notes {
            let act = Act::note(&mut self.rng, id);
            self.make(life, &mut client, Change::Rows(act));
        }
    }

    /// Makes changes one after another.
    pub fn work(&mut self, life: &mut Life, count: u64) {
        let mut client = life.server().connect().unwrap();
        for _ in 0..count {
            let of_rows = self.by.has_tables() && self.rng.bool();
            let change = self.draw(of_rows);
            self.make(life, &mut client, change);
        }
    }

    /// Kills the database while changes are on their way.
    pub fn kill(&mut self, mut life: Life) {
        let of_rows = self.by.has_tables() && self.rng.bool();
        let count = self.rng.usize(1..=IN_DOUBT_MAX);
        self.in_doubt = (0..count).map(|_| self.draw(of_rows)).collect();
        let mut client = life.server().connect().unwrap();
        let mut bytes = Vec::new();
        for change in &self.in_doubt {
            match (change, &mut life) {
                (Change::Keys(op), _) => op.put(&mut bytes),
                (Change::Rows(act), Life::Program(program)) => {
                    program.send(std::slice::from_ref(act));
                }
                (Change::Rows(_), Life::Perdura(_)) => unreachable!("it has no tables"),
            }
        }
        client.send(&bytes).unwrap();
        let longest = [1_000, 5_000, 50_000][self.rng.usize(..3)];
        std::thread::sleep(Duration::from_micros(self.rng.u64(..longest)));
        life.kill();
    }

    /// Compares the state after a restart with the model. Finds out how many of the changes in doubt are there.
    pub fn settle(&mut self, life: &mut Life) {
        let found = life.state();
        let mut in_doubt = std::mem::take(&mut self.in_doubt).into_iter();
        let without = self.state.difference(&found);
        while self.state != found {
            let Some(change) = in_doubt.next() else {
                let with = self.state.difference(&found);
                panic!("after a kill, without the changes in doubt: {without}; with all: {with}");
            };
            let _unread = self.state.apply(&change);
            self.done.push(Done {
                from: self.last_epoch() + 1,
                until: u64::MAX,
                at_us: None,
                change,
            });
            self.found += 1;
        }
    }

    /// Compares a state with the model's at an epoch. A change without a reply may be there or not.
    pub fn compare(&self, found: &State, epoch: u64, what: &str) {
        let mut model = State::default();
        let mut changes = self.done.iter().peekable();
        while let Some(done) = changes.next_if(|done| done.until <= epoch) {
            let _reply = model.apply(&done.change);
        }
        while model != *found {
            let Some(done) = changes.next_if(|done| done.from <= epoch) else {
                panic!("{what}: {}", model.difference(found));
            };
            let _reply = model.apply(&done.change);
        }
    }

    /// Checks the epoch that was restored for a time. It has no change that was acknowledged later. It lacks at most
    /// `skipped_max` epochs before the time, or only changes of the last `lag_us` microseconds before it.
    pub fn compare_time(&self, at_us: u64, found: u64, skipped_max: usize, lag_us: u64) {
        let (before, after): (Vec<&Done>, Vec<&Done>) = self
            .done
            .iter()
            .filter(|one| one.at_us.is_some())
            .partition(|one| one.is_before(at_us));
        let last = before.iter().map(|one| one.until).max().unwrap_or(0);
        let has_later = after
            .iter()
            .any(|one| last < one.until && one.until <= found);
        assert!(!has_later, "{found} has changes after {last}");
        let missing = before.iter().filter(|one| found < one.until);
        let epochs: BTreeSet<u64> = missing.clone().map(|one| one.until).collect();
        let is_late = |one: &&Done| !one.is_before(at_us.saturating_sub(lag_us));
        assert!(
            epochs.len() <= skipped_max || missing.copied().all(|one| is_late(&one)),
            "{found} lacks {} epochs up to {last}",
            epochs.len()
        );
    }
}
