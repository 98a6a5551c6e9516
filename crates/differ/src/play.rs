//! Runs a script on both servers.
//!
//! Commands of one connection are sent in batches, so that neither server waits for the client; the
//! order across connections is the script's, because a batch is answered before another
//! connection speaks.

use crate::crowd;
use crate::dataset;
use crate::pair::{Pair, Side};
use crate::reply::{Body, Reply, command_line};
use crate::rules::{Seen, name, same};
use crate::script::{Argv, CONNECTIONS, Script, Step, Unit};
use crate::tables::is_missing;
use crate::whole;
use crate::wire::{Wire, encode};
use anyhow::{Result, bail};
use std::fmt;
use std::time::Duration;

/// A batch ends at so many commands, or so many bytes: less than a socket holds.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 48 << 10;

/// Where the two servers differ.
#[derive(Debug, Clone)]
pub struct Divergence {
    /// The command.
    pub argv: Argv,
    /// What is said about it.
    pub note: String,
    /// Which unit of the script it is in.
    pub unit: usize,
}

impl Divergence {
    pub(crate) fn new(argv: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> Self {
        Divergence {
            argv: argv.to_vec(),
            note: format!("ours  {ours}\n  redis {theirs}"),
            unit: 0,
        }
    }

    pub(crate) fn at(mut self, place: &str) -> Self {
        self.note = format!("{}\n  {place}", self.note);
        self
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", command_line(&self.argv), self.note)
    }
}

/// The connections of a script that is being run.
#[derive(Debug)]
pub struct Player<'a> {
    pair: &'a mut Pair,
    resp3: [bool; CONNECTIONS],
    wires: Vec<[Wire; 2]>,
    control: [Wire; 2],
    /// The commands of each connection's MULTI.
    queues: Vec<Vec<Argv>>,
    waiting: Vec<Argv>,
    before: Vec<Option<Seen>>,
    batch: Vec<(usize, Argv)>,
    batch_bytes: usize,
    batch_conn: usize,
    unit: usize,
    tokens: u64,
    /// Commands sent so far.
    pub sent: u64,
}

fn index(side: Side) -> usize {
    match side {
        Side::Ours => 0,
        Side::Theirs => 1,
    }
}

fn connect(pair: &Pair, resp3: bool) -> Result<[Wire; 2]> {
    let mut wires = [pair.connect(Side::Ours)?, pair.connect(Side::Theirs)?];
    if resp3 {
        for wire in &mut wires {
            wire.call(&["HELLO", "3"])?;
        }
    }
    Ok(wires)
}

impl<'a> Player<'a> {
    /// Connects to both servers and empties them.
    ///
    /// # Errors
    /// Connections that fail.
    pub fn new(pair: &'a mut Pair, script: &Script) -> Result<Player<'a>> {
        let control = connect(pair, false)?;
        let wires: Result<Vec<[Wire; 2]>> =
            script.resp3.iter().map(|r3| connect(pair, *r3)).collect();
        let mut player = Player {
            resp3: script.resp3,
            wires: wires?,
            control,
            queues: vec![Vec::new(); CONNECTIONS],
            waiting: vec![Vec::new(); CONNECTIONS],
            before: vec![None; CONNECTIONS],
            batch: Vec::new(),
            batch_bytes: 0,
            batch_conn: 0,
            unit: 0,
            tokens: 0,
            sent: 0,
            pair,
        };
        for side in [Side::Ours, Side::Theirs] {
            let reply = player.control(side).call(&["FLUSHALL"])?;
            if reply != Reply::line(b'+', "OK") {
                bail!("FLUSHALL answers {reply}");
            }
            if !is_missing("PSUBSCRIBE") {
                let quiet = ["CONFIG", "SET", "notify-keyspace-events", ""];
                player.control(side).call(&quiet)?;
            }
        }
        Ok(player)
    }

    /// A connection of the script.
    pub(crate) fn wire(&mut self, conn: usize, side: Side) -> &mut Wire {
        &mut self.wires[conn][index(side)]
    }

    /// The connection for questions between.
    pub(crate) fn control(&mut self, side: Side) -> &mut Wire {
        &mut self.control[index(side)]
    }

    /// A word that occurs in no script.
    pub(crate) fn token(&mut self) -> String {
        self.tokens += 1;
        format!("__token {}", self.tokens)
    }

    /// Runs units until the servers differ.
    ///
    /// # Errors
    /// What is wrong with Redis or the test itself; all else is a divergence.
    pub fn run(&mut self, units: &[Unit]) -> Result<Option<Divergence>> {
        for (number, unit) in units.iter().enumerate() {
            for step in unit {
                self.unit = number;
                let found = self.step(step, number);
                match found {
                    Ok(None) => {}
                    Ok(Some(found)) => return Ok(Some(found)),
                    Err(e) => return Ok(Some(self.broken(step, &e))),
                }
            }
        }
        match self.flush() {
            Ok(found) => Ok(found),
            Err(e) => Ok(Some(self.broken(&Step::Compare, &e))),
        }
    }

    fn broken(&self, step: &Step, error: &anyhow::Error) -> Divergence {
        let argv = match step {
            Step::Call { argv, .. } | Step::Scan { argv, .. } | Step::Block { argv, .. } => {
                argv.clone()
            }
            other => vec![format!("{other:?}").into_bytes()],
        };
        Divergence {
            argv,
            note: format!("{error:#} (at this step or in the batch before it)"),
            unit: self.unit,
        }
    }

    fn step(&mut self, step: &Step, unit: usize) -> Result<Option<Divergence>> {
        if let Step::Call { conn, argv } = step {
            let full = self.batch.len() >= BATCH || self.batch_bytes > BATCH_BYTES;
            let turned = *conn != self.batch_conn && !self.batch.is_empty();
            if (full || turned)
                && let Some(found) = self.flush()?
            {
                return Ok(Some(found));
            }
            self.batch_conn = *conn;
            self.batch_bytes += argv.iter().map(|word| word.len() + 16).sum::<usize>();
            self.batch.push((unit, argv.clone()));
            return Ok(None);
        }
        if let Some(found) = self.flush()? {
            return Ok(Some(found));
        }
        self.sent += 1;
        let found = self.rare_step(step)?;
        Ok(found.map(|found| Divergence { unit, ..found }))
    }

    fn rare_step(&mut self, step: &Step) -> Result<Option<Divergence>> {
        match step {
            Step::Call { .. } => Ok(None),
            Step::Sleep(ms) => {
                std::thread::sleep(Duration::from_millis(*ms));
                Ok(None)
            }
            Step::Scan { argv, cursor } => whole::scan(self, argv, *cursor),
            Step::Exchange { key } => whole::exchange(self, key),
            Step::Block { conn, argv } => {
                self.waiting[*conn] = argv.clone();
                crowd::block(self, *conn, argv)?;
                Ok(None)
            }
            Step::Settle { conn, error } => {
                let waited = self.waiting[*conn].clone();
                crowd::settle(self, *conn, *error, &waited)
            }
            Step::Fresh { conn } => {
                for side in [Side::Ours, Side::Theirs] {
                    self.wire(*conn, side).quit()?;
                }
                self.wires[*conn] = connect(self.pair, self.resp3[*conn])?;
                Ok(None)
            }
            Step::Hear { conn, argv } => crowd::hear(self, *conn, argv),
            Step::Restart => {
                self.pair.restart()?;
                self.control = connect(self.pair, false)?;
                for conn in 0..CONNECTIONS {
                    self.wires[conn] = connect(self.pair, self.resp3[conn])?;
                    self.queues[conn].clear();
                    self.before[conn] = None;
                }
                Ok(None)
            }
            Step::Compare => dataset::compare(self),
        }
    }

    /// Sends the batch to both and compares the replies.
    fn flush(&mut self) -> Result<Option<Divergence>> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(None);
        }
        let conn = self.batch_conn;
        let bytes: Vec<u8> = batch.iter().flat_map(|(_, argv)| encode(argv)).collect();
        self.wires[conn][0].send(&bytes)?;
        self.wires[conn][1].send(&bytes)?;
        self.sent += u64::try_from(batch.len())?;
        for (unit, argv) in batch {
            self.unit = unit;
            let theirs = self.wires[conn][1].read()?;
            let ours = match self.wires[conn][0].read() {
                Ok(reply) => reply,
                Err(e) => {
                    let shown = format!("ours  {e:#}\n  redis {theirs}");
                    return Ok(Some(Divergence {
                        argv,
                        note: shown,
                        unit,
                    }));
                }
            };
            let queue = std::mem::take(&mut self.queues[conn]);
            let before = self.before[conn].take();
            let found = self.compare(conn, &argv, queue, before, &ours, &theirs);
            if let Some(found) = found {
                return Ok(Some(Divergence { unit, ..found }));
            }
            self.before[conn] = Some(Seen { argv, ours, theirs });
        }
        Ok(None)
    }

    /// Compares one pair of replies, and keeps track of MULTI.
    fn compare(
        &mut self,
        conn: usize,
        argv: &Argv,
        mut queue: Vec<Argv>,
        before: Option<Seen>,
        ours: &Reply,
        theirs: &Reply,
    ) -> Option<Divergence> {
        if *theirs == Reply::line(b'+', "QUEUED") {
            queue.push(argv.clone());
            self.queues[conn] = queue;
            return self.judge(argv, None, ours, theirs);
        }
        let ends = matches!(name(argv).as_str(), "EXEC" | "DISCARD" | "RESET");
        if !ends || argv.len() != 1 {
            self.queues[conn] = queue;
            return self.judge(argv, before.as_ref(), ours, theirs);
        }
        let both_arrays = matches!((&ours.body, &theirs.body), (Body::Items(_), Body::Items(_)));
        let counts = [ours.items().len(), theirs.items().len()];
        if name(argv) != "EXEC" || !both_arrays || counts != [queue.len(); 2] {
            return self.judge(argv, None, ours, theirs);
        }
        let mut before: Option<Seen> = None;
        for (argv, (ours, theirs)) in queue
            .into_iter()
            .zip(ours.items().iter().zip(theirs.items()))
        {
            if let Some(found) = self.judge(&argv, before.as_ref(), ours, theirs) {
                return Some(found.at("(within EXEC)"));
            }
            before = Some(Seen {
                argv,
                ours: ours.clone(),
                theirs: theirs.clone(),
            });
        }
        None
    }

    /// A divergence unless the replies are the same.
    pub(crate) fn judge(
        &self,
        argv: &Argv,
        before: Option<&Seen>,
        ours: &Reply,
        theirs: &Reply,
    ) -> Option<Divergence> {
        let differ = !same(argv, before, ours, theirs);
        differ.then(|| Divergence {
            unit: self.unit,
            ..Divergence::new(argv, ours, theirs)
        })
    }

    /// Asks both on the control connection: the replies, or how they differ.
    pub(crate) fn ask(&mut self, argv: Argv) -> Result<Result<Seen, Divergence>> {
        let seen = self.ask_all(vec![argv])?;
        Ok(seen.and_then(|mut seen| {
            let none = || Divergence {
                argv: Vec::new(),
                note: String::from("no reply"),
                unit: 0,
            };
            seen.pop().ok_or_else(none)
        }))
    }

    /// Asks both many things at once.
    pub(crate) fn ask_all(&mut self, asked: Vec<Argv>) -> Result<Result<Vec<Seen>, Divergence>> {
        let mut all = Vec::new();
        for batch in asked.chunks(BATCH) {
            let bytes: Vec<u8> = batch.iter().flat_map(|argv| encode(argv)).collect();
            self.control[0].send(&bytes)?;
            self.control[1].send(&bytes)?;
            for argv in batch {
                let (ours, theirs) = (self.control[0].read()?, self.control[1].read()?);
                if let Some(found) = self.judge(argv, None, &ours, &theirs) {
                    return Ok(Err(found));
                }
                all.push(Seen {
                    argv: argv.clone(),
                    ours,
                    theirs,
                });
            }
        }
        Ok(Ok(all))
    }
}
