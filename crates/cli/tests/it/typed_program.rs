//! A program with typed tables, as a user writes one. It serves Redis clients beside its tables. It runs in a separate
//! process, so that tests can kill it.
//!
//! Each line on stdin is an [`Act`] in JSON. When its change is durable, the program prints the epoch. The line `rows`
//! asks for all rows. At the line `stop`, the program closes the database.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write, stdin};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;

use perdura::{Abort, Db, Error, LogForm, procedure, table};
use perdura_server::ServerOptions;
use serde::{Deserialize, Serialize};

use crate::support::{Server, free_port};

/// The variable that has the program's [`Told`], in JSON.
const TOLD: &str = "PERDURA_TYPED_PROGRAM";
/// The variable that has the port.
const PORT: &str = "PERDURA_TYPED_PORT";
/// The first word of an answer. The test harness prints other lines as well.
const ANSWER: &str = "answer ";
const ROWS: &str = "rows";
const STOP: &str = "stop";
/// The number of purses, and of memos, that changes can name.
const NAMES: u64 = 40;
/// The longest text, bytes.
const TEXT_MAX: u32 = 20_000;

table! {
    /// A key-addressed table with an index.
    pub struct Purse in "purses", addressing = key {
        key(id: u64),
        owner: String,
        balance: i64;
        index by_owner(owner: String)
    }
}

table! {
    /// A key-addressed table without key columns.
    pub struct Posting in "postings", addressing = key { purse: u64, amount: i64 }
}

table! {
    /// A key-addressed table of long rows.
    pub struct Note in "notes", addressing = key { key(id: u64), text: Vec<u8> }
}

table! {
    /// A page-addressed table beside them.
    pub struct Memo in "memos", addressing = page { key(id: u64), text: Vec<u8> }
}

procedure! {
    /// Moves an amount between two purses, which may be in two partitions.
    pub fn transfer(cx, from: u64, to: u64, amount: i64) -> (), on [Purse(from), Purse(to)] {
        for (id, change) in [(from, -amount), (to, amount)] {
            let before = cx.get::<Purse>(id)?.map(|purse| purse.balance);
            let balance = before.unwrap_or(0) + change;
            let purse = Purse { id, owner: owner_of(balance), balance };
            match before {
                Some(_) => cx.update(&purse)?,
                None => cx.insert(&purse)?,
            }
        }
        cx.append(&Posting { purse: from, amount })?;
        Ok(())
    }
}

procedure! {
    /// Writes a note. A command has only the arguments, and a replay makes the text anew.
    pub fn write_note(cx, id: u64, len: u32, seed: u8) -> (), on [Note(id)] {
        let note = Note { id, text: Text { len, seed }.bytes() };
        match cx.contains::<Note>(id)? {
            true => cx.update(&note)?,
            false => cx.insert(&note)?,
        }
        Ok(())
    }
}

fn owner_of(balance: i64) -> String {
    format!("owner {}", balance.rem_euclid(5))
}

/// A text of a row: its length, bytes, and the number that all its bytes follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    len: u32,
    seed: u8,
}

impl Text {
    fn draw(rng: &mut fastrand::Rng) -> Text {
        let longest = [50, 900, TEXT_MAX][rng.usize(..3)];
        Text {
            len: rng.u32(1..=longest),
            seed: rng.u8(..),
        }
    }

    fn bytes(self) -> Vec<u8> {
        (0..self.len)
            .map(|at| self.seed ^ (at / 64).to_le_bytes()[0])
            .collect()
    }

    /// Recognizes a text by its bytes.
    fn of(bytes: &[u8]) -> Text {
        let text = Text {
            len: u32::try_from(bytes.len()).unwrap(),
            seed: bytes[0],
        };
        assert!(text.bytes() == bytes, "{text:?} has other bytes");
        text
    }
}

/// A change of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// A call of [`transfer`].
    Transfer { from: u64, to: u64, amount: i64 },
    /// A call of [`write_note`].
    Note { id: u64, text: Text },
    /// A transaction outside a procedure. It removes a purse, and writes a memo.
    Both { purse: u64, memo: u64, text: Text },
}

impl Act {
    /// Draws a change. The table of notes has `notes` rows.
    pub fn draw(rng: &mut fastrand::Rng, notes: u64) -> Act {
        match rng.u8(..6) {
            0..3 => Act::Transfer {
                from: rng.u64(..NAMES / 2),
                to: NAMES / 2 + rng.u64(..NAMES / 2),
                amount: rng.i64(1..50),
            },
            3..5 => {
                let id = rng.u64(..notes);
                Act::note(rng, id)
            }
            _ => Act::Both {
                purse: rng.u64(..NAMES),
                memo: rng.u64(..NAMES),
                text: Text::draw(rng),
            },
        }
    }

    /// Writes a note with a text that is drawn.
    pub fn note(rng: &mut fastrand::Rng, id: u64) -> Act {
        Act::Note {
            id,
            text: Text::draw(rng),
        }
    }

    /// Carries the change out. Returns its epoch when it is durable.
    fn carry_out(&self, db: &Db) -> Result<u64, Abort> {
        let ticket = match *self {
            Act::Transfer { from, to, amount } => db.submit(transfer, (from, to, amount))?.ticket(),
            Act::Note { id, text } => db.submit(write_note, (id, text.len, text.seed))?.ticket(),
            Act::Both { purse, memo, text } => {
                let written = db.write_later(|cx| {
                    cx.remove::<Purse>(purse)?;
                    let memo = Memo {
                        id: memo,
                        text: text.bytes(),
                    };
                    match cx.contains::<Memo>(memo.id)? {
                        true => cx.update(&memo),
                        false => cx.insert(&memo),
                    }
                });
                written?.1
            }
        };
        db.wait(ticket)?;
        Ok(ticket.epoch.0)
    }
}

/// All rows of the tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    purses: BTreeMap<u64, (String, i64)>,
    /// Ascending.
    postings: Vec<(u64, i64)>,
    notes: BTreeMap<u64, Text>,
    memos: BTreeMap<u64, Text>,
}

impl Rows {
    /// Applies a change to the model.
    pub fn apply(&mut self, act: &Act) {
        match *act {
            Act::Transfer { from, to, amount } => {
                for (id, change) in [(from, -amount), (to, amount)] {
                    let before = self.purses.get(&id).map_or(0, |(_, balance)| *balance);
                    let balance = before + change;
                    self.purses.insert(id, (owner_of(balance), balance));
                }
                let at = self
                    .postings
                    .partition_point(|posting| *posting < (from, amount));
                self.postings.insert(at, (from, amount));
            }
            Act::Note { id, text } => self.notes.extend([(id, text)]),
            Act::Both { purse, memo, text } => {
                self.purses.remove(&purse);
                self.memos.insert(memo, text);
            }
        }
    }

    /// Reads all rows, and finds the purses of each owner by the index.
    fn read(db: &Db) -> Rows {
        let mut rows = Rows::default();
        let snapshot = db.snapshot().unwrap();
        let each = |row: Purse| drop(rows.purses.insert(row.id, (row.owner, row.balance)));
        snapshot.each::<Purse>(each).unwrap();
        let each = |row: Posting| rows.postings.push((row.purse, row.amount));
        snapshot.each::<Posting>(each).unwrap();
        let each = |row: Note| rows.notes.extend([(row.id, Text::of(&row.text))]);
        snapshot.each::<Note>(each).unwrap();
        let each = |row: Memo| rows.memos.extend([(row.id, Text::of(&row.text))]);
        snapshot.each::<Memo>(each).unwrap();
        rows.postings.sort_unstable();
        for balance in 0..5 {
            let owner = owner_of(balance);
            let by_index = db.read(|cx| cx.by(Purse::by_owner, owner.as_str()).collect());
            let by_index: Vec<Purse> = by_index.unwrap();
            let mut found: Vec<u64> = by_index.iter().map(|purse| purse.id).collect();
            found.sort_unstable();
            let purses = rows.purses.iter();
            let owned: Vec<u64> = purses
                .filter(|(_, (one, _))| *one == owner)
                .map(|(id, _)| *id)
                .collect();
            assert_eq!(found, owned, "purses of {owner} in the index");
        }
        rows
    }
}

/// Settings of the program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    pub data: PathBuf,
    /// The directory of the archive. `None`: the database is not archived.
    pub archive: Option<PathBuf>,
    /// True if the program merges the runs of its archive.
    pub merges: bool,
    /// True if the log has calls of procedures as commands. Otherwise it has their effects.
    pub calls: bool,
    /// The bytes of log after which a checkpoint begins.
    pub checkpoint_log_bytes: u64,
}

/// Opens the database and serves Redis clients. Returns the server and another handle of the database.
fn serve(told: &Told, port: u16) -> (perdura_server::Server, Db) {
    let mut builder = Db::builder(&told.data)
        .table::<Purse>()
        .table::<Posting>()
        .table::<Note>()
        .table::<Memo>()
        .procedure(transfer)
        .procedure(write_note)
        .log(match told.calls {
            true => LogForm::Command,
            false => LogForm::Value,
        })
        .options(|options| {
            options.segment_bytes = 1 << 20;
            options.checkpoint_log_bytes = told.checkpoint_log_bytes;
            options.archive_merge = told.merges;
        });
    if let Some(archive) = &told.archive {
        builder = builder.archive(archive);
    }
    let options = builder.into_options();
    let listening = ServerOptions {
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))],
        ..ServerOptions::default()
    };
    let (sender, opened) = channel();
    let open = move |progress| {
        let db = Db::open_with_progress(options, progress)?;
        sender
            .send(db.clone())
            .map_err(|_| Error::Stopped("the program has ended".into()))?;
        Ok(db)
    };
    let server = perdura_server::Server::start_with(listening, 1 << 20, open).unwrap();
    let db = opened.recv().expect("it opens");
    (server, db)
}

#[test]
#[ignore = "the process that other tests start"]
fn serves() {
    let [told, port] = [TOLD, PORT].map(|name| std::env::var(name).expect("the test sets it"));
    let told = serde_json::from_str(&told).unwrap();
    let (server, db) = serve(&told, port.parse().unwrap());
    for line in stdin().lines() {
        let line = line.unwrap();
        let said = match line.as_str() {
            STOP => {
                server.stop().unwrap();
                return;
            }
            ROWS => serde_json::to_string(&Rows::read(&db)).unwrap(),
            act => {
                let act: Act = serde_json::from_str(act).unwrap();
                act.carry_out(&db).expect("a durable change").to_string()
            }
        };
        println!("{ANSWER}{said}");
    }
}

/// A running program. It is killed when this value is dropped.
pub struct Program {
    pub server: Server,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the program, and waits until it serves.
    pub fn start(told: &Told) -> Program {
        let port = free_port();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "typed_program::serves"])
            .arg("--nocapture")
            .env(TOLD, serde_json::to_string(told).unwrap())
            .env(PORT, port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut server = Server::run(command, port);
        server.await_ready();
        let (told, says) = server.take_pipes().unwrap();
        Program {
            server,
            told,
            says: BufReader::new(says),
        }
    }

    /// Sends changes without waiting for their ends.
    pub fn send(&mut self, acts: &[Act]) {
        for act in acts {
            writeln!(self.told, "{}", serde_json::to_string(act).unwrap()).unwrap();
        }
    }

    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            let len = self.says.read_line(&mut line).unwrap();
            assert!(len > 0, "the program has ended: {}", self.server.said());
            if let Some((_, said)) = line.split_once(ANSWER) {
                return said.trim_end().to_owned();
            }
        }
    }

    /// Carries a change out. Returns its epoch.
    pub fn act(&mut self, act: &Act) -> u64 {
        self.send(std::slice::from_ref(act));
        self.answer().parse().unwrap()
    }

    /// Carries changes out, and waits for all of them.
    pub fn act_all(&mut self, acts: &[Act]) {
        // The answers to more acts might not fit into the pipe.
        for some in acts.chunks(100) {
            self.send(some);
            some.iter().for_each(|_| drop(self.answer()));
        }
    }

    /// Returns all rows.
    pub fn rows(&mut self) -> Rows {
        writeln!(self.told, "{ROWS}").unwrap();
        serde_json::from_str(&self.answer()).unwrap()
    }

    /// Stops the program, which closes its database.
    pub fn stop(mut self) {
        writeln!(self.told, "{STOP}").unwrap();
        self.server.end();
    }
}
