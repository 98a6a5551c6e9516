//! `SCRIPT LOAD|EXISTS|FLUSH|KILL|DEBUG`

use super::with_runtime;
use crate::command::Cx;
use crate::engine::error_text;
use crate::resp::parse::Args;
use perdura_script::{Code, Failure, Header, sha1_hex};

/// The second words of SCRIPT.
pub(super) const WORDS: &[(&str, i8)] = &[
    ("debug", 3),
    ("exists", -3),
    ("flush", -2),
    ("help", 2),
    ("kill", 2),
    ("load", 3),
];

/// Redis's text for SCRIPT KILL and FUNCTION KILL while no script runs.
pub(super) const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";

/// `SCRIPT word …`
pub(super) fn script(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"load" => load(cx, args.at(2)),
        b"exists" => {
            let cache = cx.state.common.scripts.lock();
            cx.out.array(args.len() - 2);
            for sha in args.from(2) {
                let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
                cx.out.integer(i64::from(cache.get(&sha).is_some()));
            }
        }
        b"flush" if args.len() == 2 || (args.len() == 3 && is_mode(args.at(2))) => {
            cx.state.common.scripts.lock().clear();
            cx.state.scripts.flushed = true;
            with_runtime(|runtime| runtime.forget());
            cx.out.ok();
        }
        b"flush" => cx.out.error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        b"kill" => cx.out.error(NOT_BUSY),
        b"debug" => cx.out.error(
            "ERR SCRIPT DEBUG is not supported: the loop that serves all clients would wait for the debugger",
        ),
        _ => cx.out.help(&[
            "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "LOAD <script>: keeps a script and answers its SHA-1.",
            "EXISTS <sha1> [<sha1> ...]: which of these are kept.",
            "FLUSH [ASYNC|SYNC]: forgets all scripts.",
            "KILL: always refused. A script that runs too long is stopped without it.",
            "DEBUG: refused.",
        ]),
    }
}

/// Returns whether a word is ASYNC or SYNC. ASYNC and SYNC have equal effects here.
pub(super) fn is_mode(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ASYNC") || word.eq_ignore_ascii_case(b"SYNC")
}

fn load(cx: &mut Cx<'_>, source: &[u8]) {
    let sha = sha1_hex(source);
    let header = match Header::of_script(source) {
        Ok(header) => header,
        Err(error) => return cx.out.error(&format!("ERR {error}")),
    };
    let code = Code {
        sha: &sha,
        text: &source[header.map_or(0, |header| header.code)..],
    };
    let checked = with_runtime(|runtime| runtime.check_script(&code));
    match checked {
        Some(Ok(())) => {}
        Some(Err(Failure::Script(text) | Failure::Limit(text))) => return cx.out.error(&text),
        Some(Err(Failure::Halted)) | None => return cx.out.error("ERR a script runs already"),
    }
    if cx.state.common.scripts.lock().keep(&sha, source, true) {
        cx.out.bulk(sha.as_bytes());
    } else {
        let text = "the memory for scripts is full. SCRIPT FLUSH frees it";
        cx.out
            .error(&error_text(&crate::engine::Error::Usage(String::from(
                text,
            ))));
    }
}
