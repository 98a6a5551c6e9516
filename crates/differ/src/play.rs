//! Runs a script on both servers.
//!
//! Consecutive commands of one connection are sent as a batch, so that the servers need not wait for the client. The
//! servers answer a batch before the next connection sends. So the servers run the commands in the script's order.

use crate::crowd;
use crate::dataset;
use crate::divergence::Divergence;
use crate::pair::{Pair, Side};
use crate::reply::{Body, Reply};
use crate::rules::Seen;
use crate::script::Script;
use crate::step::{Argv, CONNECTIONS, Step, Unit, name};
use crate::tables::is_missing;
use crate::whole;
use crate::wire::encode;
use crate::wires::{BATCH, Wires};
use anyhow::{Result, bail};
use std::time::Duration;

/// The size in bytes above which a batch is sent, even if it has fewer than [`BATCH`] commands. A socket can hold more
/// bytes than this.
const BATCH_BYTES: usize = 48 << 10;

/// A running script.
#[derive(Debug)]
pub struct Player<'a> {
    pair: &'a mut Pair,
    wires: Wires,
    /// For each connection, the commands queued since its MULTI.
    queues: Vec<Vec<Argv>>,
    waiting: Vec<Argv>,
    before: Vec<Option<Seen>>,
    batch: Vec<(usize, Argv)>,
    batch_bytes: usize,
    batch_conn: usize,
    unit: usize,
    /// The number of commands sent so far.
    pub sent: u64,
}

impl<'a> Player<'a> {
    /// Connects to the two servers and removes all data.
    ///
    /// # Errors
    /// A connection failed.
    pub fn new(pair: &'a mut Pair, script: &Script) -> Result<Player<'a>> {
        let mut player = Player {
            wires: Wires::connect(pair, script.resp3)?,
            queues: vec![Vec::new(); CONNECTIONS],
            waiting: vec![Vec::new(); CONNECTIONS],
            before: vec![None; CONNECTIONS],
            batch: Vec::new(),
            batch_bytes: 0,
            batch_conn: 0,
            unit: 0,
            sent: 0,
            pair,
        };
        for side in [Side::Ours, Side::Theirs] {
            for empties in [
                &["FLUSHALL"][..],
                &["FUNCTION", "FLUSH"],
                &["SCRIPT", "FLUSH"],
            ] {
                let reply = player.wires.control(side).call(empties)?;
                if reply != Reply::line(b'+', "OK") {
                    bail!("{} answers {reply}", empties.join(" "));
                }
            }
            if !is_missing("PSUBSCRIBE") {
                let quiet = ["CONFIG", "SET", "notify-keyspace-events", ""];
                player.wires.control(side).call(&quiet)?;
            }
        }
        Ok(player)
    }

    /// Runs the units in order until the servers differ. Returns the difference. `None`: the servers did not differ.
    ///
    /// # Errors
    /// A fault of Redis or of the test itself. Any other failure counts as a difference.
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
            Step::Scan { argv, cursor } => whole::scan(&mut self.wires, argv, *cursor),
            Step::Exchange { key } => whole::exchange(&mut self.wires, key),
            Step::Block { conn, argv } => {
                self.waiting[*conn] = argv.clone();
                crowd::block(&mut self.wires, *conn, argv)?;
                Ok(None)
            }
            Step::Settle { conn, error } => {
                let waited = self.waiting[*conn].clone();
                crowd::settle(&mut self.wires, *conn, *error, &waited)
            }
            Step::Fresh { conn } => {
                self.wires.renew(self.pair, *conn)?;
                Ok(None)
            }
            Step::Hear { conn, argv } => crowd::hear(&mut self.wires, *conn, argv),
            Step::Restart => {
                self.pair.restart()?;
                self.wires.reconnect(self.pair)?;
                for conn in 0..CONNECTIONS {
                    self.queues[conn].clear();
                    self.before[conn] = None;
                }
                Ok(None)
            }
            Step::Compare => dataset::compare(&mut self.wires),
        }
    }

    /// Sends the batch to each server and compares the replies.
    fn flush(&mut self) -> Result<Option<Divergence>> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(None);
        }
        let conn = self.batch_conn;
        let bytes: Vec<u8> = batch.iter().flat_map(|(_, argv)| encode(argv)).collect();
        self.wires.wire(conn, Side::Ours).send(&bytes)?;
        self.wires.wire(conn, Side::Theirs).send(&bytes)?;
        self.sent += u64::try_from(batch.len())?;
        for (unit, argv) in batch {
            self.unit = unit;
            let theirs = self.wires.wire(conn, Side::Theirs).read()?;
            let ours = match self.wires.wire(conn, Side::Ours).read() {
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
            let seen = Seen { argv, ours, theirs };
            if let Some(found) = self.compare(conn, &seen, queue, before) {
                return Ok(Some(Divergence { unit, ..found }));
            }
            self.before[conn] = Some(seen);
        }
        Ok(None)
    }

    /// Compares the two replies to a command, and keeps track of MULTI.
    fn compare(
        &mut self,
        conn: usize,
        seen: &Seen,
        mut queue: Vec<Argv>,
        before: Option<Seen>,
    ) -> Option<Divergence> {
        let Seen { argv, ours, theirs } = seen;
        if *theirs == Reply::line(b'+', "QUEUED") {
            queue.push(argv.clone());
            self.queues[conn] = queue;
            return Divergence::unless_same(argv, None, ours, theirs);
        }
        let ends = matches!(name(argv).as_str(), "EXEC" | "DISCARD" | "RESET");
        if !ends || argv.len() != 1 {
            self.queues[conn] = queue;
            return Divergence::unless_same(argv, before.as_ref(), ours, theirs);
        }
        let both_arrays = matches!((&ours.body, &theirs.body), (Body::Items(_), Body::Items(_)));
        let counts = [ours.items().len(), theirs.items().len()];
        if name(argv) != "EXEC" || !both_arrays || counts != [queue.len(); 2] {
            return Divergence::unless_same(argv, None, ours, theirs);
        }
        let mut before: Option<Seen> = None;
        for (argv, (ours, theirs)) in queue
            .into_iter()
            .zip(ours.items().iter().zip(theirs.items()))
        {
            if let Some(found) = Divergence::unless_same(&argv, before.as_ref(), ours, theirs) {
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
}
