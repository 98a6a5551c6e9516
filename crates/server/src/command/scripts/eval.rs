//! EVAL, EVALSHA, EVAL_RO and EVALSHA_RO.

use super::host::Inner;
use super::with_runtime;
use crate::command::{Data, Done, NOT_INTEGER, Stop};
use crate::engine::Error;
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_script::{Code, Failure, Flags, Header, Input, Runtime, sha1_hex};
use std::sync::Arc;

/// Redis's text if no known script has the given SHA-1.
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// The number of digits of a SHA-1.
const SHA_DIGITS: usize = 40;
/// Redis's text if a read-only command runs a script without the flag `no-writes`.
pub(super) const WRITES: &str = "ERR Can not execute a script with write flag using *_ro command.";

/// `EVAL script numkeys [key …] [arg …]`
pub(super) fn eval(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    by_source(data, args, out, false)
}

/// `EVAL_RO script numkeys [key …] [arg …]`
pub(super) fn eval_ro(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    by_source(data, args, out, true)
}

/// `EVALSHA sha1 numkeys [key …] [arg …]`
pub(super) fn evalsha(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    by_name(data, args, out, false)
}

/// `EVALSHA_RO sha1 numkeys [key …] [arg …]`
pub(super) fn evalsha_ro(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    by_name(data, args, out, true)
}

/// A script that a request runs.
struct Called<'a> {
    sha: &'a str,
    source: &'a [u8],
    /// The number of arguments that are keys.
    keys: usize,
    /// True if the command only reads.
    reads: bool,
    /// True if the request contains the source.
    is_brought: bool,
}

fn by_source(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, reads: bool) -> Done {
    let keys = count_keys(args)?;
    let source = args.at(1);
    let sha = sha1_hex(source);
    let called = Called {
        sha: &sha,
        source,
        keys,
        reads,
        is_brought: true,
    };
    run(data, args, out, &called)
}

fn by_name(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, reads: bool) -> Done {
    if args.at(1).len() != SHA_DIGITS {
        return Err(Stop::from(NO_SCRIPT));
    }
    let keys = count_keys(args)?;
    let (sha, source) = find(data, args.at(1)).ok_or(NO_SCRIPT)?;
    let called = Called {
        sha: &sha,
        source: &source,
        keys,
        reads,
        is_brought: false,
    };
    run(data, args, out, &called)
}

fn find(data: &Data<'_, '_>, sha: &[u8]) -> Option<(String, Arc<[u8]>)> {
    let sha = std::str::from_utf8(sha).ok()?.to_ascii_lowercase();
    let source = data.state().common.scripts.lock().get(&sha)?;
    Some((sha, source))
}

/// Returns the number of keys. They begin at argument 3.
pub(super) fn count_keys(args: &Args<'_>) -> Result<usize, Stop> {
    let count = parse_i64(args.at(2)).ok_or(NOT_INTEGER)?;
    let most = args.len() - 3;
    match usize::try_from(count) {
        Err(_) => Err(Stop::from("ERR Number of keys can't be negative")),
        Ok(count) if count > most => Err(Stop::from(
            "ERR Number of keys can't be greater than number of args",
        )),
        Ok(count) => Ok(count),
    }
}

fn run(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, called: &Called<'_>) -> Done {
    let Called {
        sha,
        source,
        keys,
        reads,
        is_brought,
    } = *called;
    let header = Header::of_script(source).map_err(|error| format!("ERR {error}"))?;
    let flags = header.and_then(|header| header.flags);
    if reads && header.is_some() && !flags.unwrap_or_default().no_writes {
        return Err(Stop::from(WRITES));
    }
    let code = Code {
        sha,
        text: &source[header.map_or(0, |header| header.code)..],
    };
    let scope = Scope {
        name: sha,
        keys,
        may: May::of(flags, reads),
    };
    carry_out(data, args, out, scope, &|runtime, input, host, out| {
        let ran = runtime.run_script(&code, input, host, out);
        // A script that compiles is kept for EVALSHA, even if its run has failed.
        let compiles = ran.is_ok() || matches!(ran, Err(Failure::Script(_)));
        if is_brought && compiles && runtime.check_script(&code).is_ok() {
            host.keep(sha, source);
        }
        ran
    })
}

/// The rights of a script.
#[derive(Debug, Clone, Copy)]
pub(super) struct May {
    /// True if the script may write.
    pub write: bool,
}

impl May {
    /// Returns the rights of a script. They depend on its flags, and on whether the calling command only reads.
    pub(super) fn of(flags: Option<Flags>, reads: bool) -> Self {
        May {
            write: !reads && !flags.unwrap_or_default().no_writes,
        }
    }
}

/// The arguments and the rights of a script or a function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    /// The SHA-1 of the script, or the name of the function.
    pub name: &'a str,
    /// The number of keys. They begin at argument 3.
    pub keys: usize,
    /// The rights of the script or the function.
    pub may: May,
}

/// The function that runs a script, or a function of a library.
pub(super) type Running<'r> = dyn Fn(&mut Runtime, Input<'_>, &mut Inner<'_, '_, '_>, &mut Vec<u8>) -> Result<(), Failure>
    + 'r;

/// Runs a script or a function in the transaction of `data`.
pub(super) fn carry_out(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    scope: Scope<'_>,
    run: &Running<'_>,
) -> Done {
    let state = data.state();
    let words: Vec<&[u8]> = args.from(3).collect();
    let (keys, args) = words.split_at(scope.keys);
    let nth = data.scripts_run();
    let input = Input {
        keys,
        args,
        seed: state.seed_of(nth),
        resp3: out.resp3,
        spent: state.scripts.spent(nth),
    };
    let before = data.database;
    let may_wait = data.set_may_wait(false);
    let start = out.buf.len();
    let was_long = state.scripts.long.contains(scope.name);
    if was_long {
        data.note_long();
    }
    let mut host = Inner::new(data, scope.may);
    let ran = with_runtime(|runtime| {
        let ran = run(runtime, input, &mut host, out.buf);
        state.scripts.note_spent(nth, runtime.spent());
        ran
    });
    let ran =
        ran.unwrap_or_else(|| Err(Failure::Script(String::from("ERR a script runs already"))));
    let (is_long, halted) = host.end();
    // A run that was undone says nothing about the next.
    if state.peers.several() && (is_long || halted.is_none()) {
        state.scripts.long.note(scope.name, was_long, is_long);
    }
    data.set_may_wait(may_wait);
    data.select(before);
    match ran {
        Ok(()) => {
            data.check_reply(out.buf.len() - start)?;
            Ok(())
        }
        Err(Failure::Script(text)) => Err(Stop::from(text)),
        Err(Failure::Limit(text)) => {
            let text = text.strip_prefix("ERR ").unwrap_or(&text);
            Err(Stop::Abort(Error::Usage(String::from(text))))
        }
        Err(Failure::Halted) => {
            let unknown = || Error::Usage(String::from("the script was ended"));
            Err(Stop::Abort(halted.unwrap_or_else(unknown)))
        }
    }
}
