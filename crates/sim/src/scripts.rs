//! Scripts: transactions with operations that a Luau script requests one by one. The script ends normally, raises an
//! error, exceeds a limit, or is killed.
//!
//! The crate `perdura_script`, which the server also uses, runs the script in a transaction of the engine. The script
//! declares only its first key or none. So the engine may undo the script and run it again with more partitions. All
//! runs of a script must request equal operations and see one clock reading. If a script ends with an error, its
//! changes are kept. If it passes a limit or is killed, they are undone.

use std::cell::RefCell;
use std::time::Duration;

use fastrand::Rng;
use perdura::{Core, Error, Renewal, Tx};
use perdura_base::num::to_usize;
use perdura_script::{Alarm, Ask, Code, Failure, Halt, Host, Input, Limits, Runtime, Words};

use crate::ops::{Op, View, perform};
use crate::report::Check;

/// The text of the script. The script requests operations in a random order. Its last request makes it end in the way
/// that [`Ending`] names.
const SOURCE: &[u8] = include_bytes!("scripts.luau");
/// The name under which the script is compiled.
const NAME: &str = "5c71";
/// The limits of a script. They are low, so that scripts reach them. The time limit is reached when the alarm rings.
const LIMITS: Limits = Limits {
    memory_bytes: 4 << 20,
    time: std::time::Duration::from_secs(1),
    reply_bytes: 4096,
    source_bytes: 1 << 16,
};
thread_local! {
    /// The runtime, which all scripts of this thread share. No script leaves state for the next script.
    static RUNTIME: RefCell<(Runtime, Alarm)> = RefCell::new(Runtime::with_alarm(LIMITS));
}

/// The drawn end of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The script ends normally.
    Well,
    /// The script raises an error that it does not catch. Its changes are kept.
    Error,
    /// The script runs for too long.
    Time,
    /// The script needs too much memory.
    Memory,
    /// The script's reply is too long.
    Reply,
    /// The script is killed.
    Kill,
}

impl Ending {
    pub(crate) fn draw(rng: &mut Rng) -> Ending {
        // Limits are rarely drawn, because a script that reaches a limit destroys its virtual machine. Most of the cost
        // of scripts is making new virtual machines.
        match rng.u8(0..128) {
            0..=11 => Ending::Error,
            12..=23 => Ending::Kill,
            24..=26 => Ending::Time,
            27 | 28 => Ending::Reply,
            29 => Ending::Memory,
            _ => Ending::Well,
        }
    }

    /// Returns whether the engine undoes all changes of a script that ends like this.
    pub(crate) fn undoes(self) -> bool {
        !matches!(self, Ending::Well | Ending::Error)
    }

    /// Returns the name of this end in the report.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Ending::Well => "script",
            Ending::Error => "script_error",
            Ending::Time => "script_time",
            Ending::Memory => "script_memory",
            Ending::Reply => "script_reply",
            Ending::Kill => "script_killed",
        }
    }
}

/// A script. The engine may run it several times.
pub(crate) struct Script {
    /// The operations that the script may request.
    pub ops: Vec<Op>,
    /// The end of the script.
    pub ending: Ending,
    /// The number of operations that the script requests before it ends.
    pub calls: usize,
    /// The seed of the script's random numbers.
    pub seed: u64,
    /// The indexes of the operations that the script requested in its longest run.
    asked: Vec<usize>,
    /// The number of times that the engine has run the script so far.
    pub runs: u64,
}

impl Script {
    pub(crate) fn draw(rng: &mut Rng, ops: Vec<Op>) -> Script {
        Script {
            ending: Ending::draw(rng),
            calls: rng.usize(0..=2 * ops.len()),
            seed: rng.u64(..),
            asked: Vec::new(),
            runs: 0,
            ops,
        }
    }

    /// Returns the operations that the script requested in its longest run.
    pub(crate) fn done(&self) -> Vec<Op> {
        self.asked.iter().map(|at| self.ops[*at].clone()).collect()
    }

    /// Runs the script in a transaction that began at `now_ms`. The outer error is an error of the engine; the inner
    /// error is a contradiction.
    pub(crate) fn run(
        &mut self,
        core: &Core,
        (tx, renewal): (&mut Tx<'_>, &mut Renewal),
        (view, now_ms): (&mut View<'_>, u64),
        scratch: &mut Vec<u8>,
    ) -> Result<Check, Error> {
        self.runs += 1;
        if tx.now_ms() != now_ms {
            return Ok(Err("a script runs again at another time".to_owned()));
        }
        let [count, calls] = [self.ops.len(), self.calls].map(|n| n.to_string());
        let ending = format!("{:?}", self.ending);
        let args = [&count, &calls, &ending].map(String::as_bytes);
        let input = Input {
            keys: &[],
            args: &args,
            seed: self.seed,
            resp3: false,
            spent: Duration::ZERO,
        };
        let code = Code {
            sha: NAME,
            text: SOURCE,
        };
        let mut reply = Vec::new();
        let (ran, inside) = RUNTIME.with_borrow_mut(|(runtime, alarm)| {
            let mut inside = Inside {
                core,
                tx,
                renewal,
                view,
                scratch,
                alarm,
                ops: &self.ops,
                before: &self.asked,
                asked: Vec::new(),
                halted: None,
                wrong: None,
            };
            let ran = runtime.run_script(&code, input, &mut inside, &mut reply);
            (ran, (inside.asked, inside.halted, inside.wrong))
        });
        let (asked, halted, wrong) = inside;
        if let Some(wrong) = wrong {
            return Ok(Err(wrong));
        }
        if self.asked.len() <= asked.len() {
            self.asked = asked;
        }
        match ran {
            Err(Failure::Halted) => Err(halted.unwrap_or_else(killed)),
            Err(Failure::Limit(text)) => Err(Error::Usage(text)),
            Ok(()) if self.ending == Ending::Well => Ok(match reply == self.reply() {
                true => Ok(()),
                false => Err(format!("a script answers {}", reply.escape_ascii())),
            }),
            Err(Failure::Script(text)) if self.ending == Ending::Error => {
                Ok(match text.contains("enough") {
                    true => Ok(()),
                    false => Err(format!("a script ends with {text}")),
                })
            }
            other => Ok(Err(format!("a script ends with {other:?}"))),
        }
    }

    /// Returns the expected reply of the script: the sum of the requested operations' numbers, which begin at 1.
    fn reply(&self) -> Vec<u8> {
        let sum: usize = self.asked.iter().map(|at| at + 1).sum();
        format!(":{sum}\r\n").into_bytes()
    }
}

fn killed() -> Error {
    Error::Usage("the script was killed".into())
}

/// A transaction with a running script.
struct Inside<'a, 't, 'v> {
    core: &'a Core,
    tx: &'a mut Tx<'t>,
    renewal: &'a mut Renewal,
    view: &'a mut View<'v>,
    scratch: &'a mut Vec<u8>,
    alarm: &'a Alarm,
    ops: &'a [Op],
    /// The operations that the script requested in the longest of its earlier runs.
    before: &'a [usize],
    asked: Vec<usize>,
    halted: Option<Error>,
    wrong: Option<String>,
}

impl Inside<'_, '_, '_> {
    fn op(&mut self, number: usize) -> Result<(), Halt> {
        let at = number - 1;
        let before = self.before.get(self.asked.len());
        if before.is_some_and(|before| *before != at) {
            self.wrong = Some("a script asks for something else when it runs again".to_owned());
            return Err(Halt);
        }
        self.asked.push(at);
        let op = std::slice::from_ref(&self.ops[at]);
        match perform(
            self.core,
            self.tx,
            op,
            self.view,
            self.scratch,
            self.renewal,
        ) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(wrong)) => {
                self.wrong = Some(wrong);
                Err(Halt)
            }
            Err(error) => {
                self.halted = Some(error);
                Err(Halt)
            }
        }
    }
}

impl Host for Inside<'_, '_, '_> {
    fn call(&mut self, ask: Ask, words: &Words, reply: &mut Vec<u8>) -> Result<(), Halt> {
        debug_assert!(matches!(ask, Ask::Command { .. }));
        let number = words.get(1).and_then(|text| std::str::from_utf8(text).ok());
        let number = number.and_then(|text| text.parse().ok());
        match (words.get(0), number) {
            (Some(b"op"), Some(number)) => {
                self.op(to_usize(number))?;
                reply.extend_from_slice(format!(":{number}\r\n").as_bytes());
            }
            (Some(b"ring"), _) => {
                self.alarm.ring();
                reply.extend_from_slice(b"+OK\r\n");
            }
            _ => {
                self.halted = Some(killed());
                return Err(Halt);
            }
        }
        Ok(())
    }
}
