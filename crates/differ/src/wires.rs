//! The connections of a script. Each consists of a connection to our server and one to Redis.

use crate::divergence::Divergence;
use crate::pair::{Pair, Side};
use crate::rules::Seen;
use crate::step::{Argv, CONNECTIONS};
use crate::wire::{Wire, encode};
use anyhow::Result;

/// The maximum number of commands sent at once on a connection.
pub(crate) const BATCH: usize = 128;

/// The connections of a script, and a control connection to each server.
#[derive(Debug)]
pub(crate) struct Wires {
    resp3: [bool; CONNECTIONS],
    wires: Vec<[Wire; 2]>,
    control: [Wire; 2],
    tokens: u64,
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

impl Wires {
    /// Connects to both servers.
    pub fn connect(pair: &Pair, resp3: [bool; CONNECTIONS]) -> Result<Wires> {
        let control = connect(pair, false)?;
        let wires: Result<_> = resp3.iter().map(|r3| connect(pair, *r3)).collect();
        Ok(Wires {
            resp3,
            wires: wires?,
            control,
            tokens: 0,
        })
    }

    /// Opens all connections again after a server has closed them.
    pub fn reconnect(&mut self, pair: &Pair) -> Result<()> {
        *self = Wires {
            tokens: self.tokens,
            ..Wires::connect(pair, self.resp3)?
        };
        Ok(())
    }

    /// Closes a connection to both servers and opens it again.
    pub fn renew(&mut self, pair: &Pair, conn: usize) -> Result<()> {
        for side in [Side::Ours, Side::Theirs] {
            self.wire(conn, side).quit()?;
        }
        self.wires[conn] = connect(pair, self.resp3[conn])?;
        Ok(())
    }

    /// Returns the script's connection `conn` to one server.
    pub fn wire(&mut self, conn: usize, side: Side) -> &mut Wire {
        &mut self.wires[conn][index(side)]
    }

    /// Returns the control connection to one server.
    pub fn control(&mut self, side: Side) -> &mut Wire {
        &mut self.control[index(side)]
    }

    /// Returns a new word that occurs in no script.
    pub fn token(&mut self) -> String {
        self.tokens += 1;
        format!("__token {}", self.tokens)
    }

    /// Sends a command to both servers on the control connections. Returns the replies, or their
    /// difference.
    pub fn ask(&mut self, argv: Argv) -> Result<Result<Seen, Divergence>> {
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

    /// Sends several commands to both servers on the control connections. Returns all replies, or
    /// the first difference.
    pub fn ask_all(&mut self, asked: Vec<Argv>) -> Result<Result<Vec<Seen>, Divergence>> {
        let mut all = Vec::new();
        for batch in asked.chunks(BATCH) {
            let bytes: Vec<u8> = batch.iter().flat_map(|argv| encode(argv)).collect();
            self.control[0].send(&bytes)?;
            self.control[1].send(&bytes)?;
            for argv in batch {
                let (ours, theirs) = (self.control[0].read()?, self.control[1].read()?);
                if let Some(found) = Divergence::unless_same(argv, None, &ours, &theirs) {
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
