//! MONITOR: shows a client the executed commands.

use crate::command::Cx;
use crate::command::flag::{ADMIN, APART, LOADING};
use crate::command::spec::{Command, flag, plain};
use crate::engine::Epoch;
use crate::mailbox::Post;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::State;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[plain("monitor", 1, LOADING | ADMIN | APART, monitor)];

/// `MONITOR`
fn monitor(cx: &mut Cx<'_>, _: &Args<'_>) {
    if cx.in_block {
        let text = "ERR MONITOR isn't allowed for DENY BLOCKING client";
        return cx.out.error(text);
    }
    if !cx.session.monitors {
        cx.session.monitors = true;
        let seat = cx.session.seat;
        cx.state.common.monitors.with(|all| all.push(seat));
    }
    cx.out.ok();
}

/// Shows an executed command to every monitor. Passwords and the commands of administrators are not shown.
#[inline]
pub(crate) fn feed(state: &mut State, session: &Session, command: &Command, args: &Args<'_>) {
    if state.common.monitors.is_in_use() {
        show(state, session, command, args);
        if command.has(flag::SCRIPTS) {
            show_inside(state);
        }
    }
}

fn show(state: &mut State, session: &Session, command: &Command, args: &Args<'_>) {
    if command.has(flag::ADMIN) || administers(command, args) {
        return;
    }
    let secret = matches!(command.name, "auth" | "hello");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let peer = if session.unix { "unix:" } else { "" };
    let mut line = format!(
        "{}.{:06} [{} {peer}{}]",
        now.as_secs(),
        now.subsec_micros(),
        session.database,
        session.peer,
    );
    for (at, arg) in args.from(0).enumerate() {
        line.push(' ');
        if secret && at > 0 {
            line.push_str("\"(redacted)\"");
        } else {
            quote(arg, &mut line);
        }
    }
    show_line(state, line, Epoch(0));
}

/// Shows the commands that a script has run. They may depend on data that the script read, so they are shown only when
/// this data is durable. The line of the script's own request depends on no data and does not wait.
fn show_inside(state: &mut State) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    for shown in state.scripts.take_shown() {
        let line = format!("{}.{:06} {shown}", now.as_secs(), now.subsec_micros());
        show_line(state, line, state.newest());
    }
}

/// Shows a line to every monitor once `epoch` is durable.
fn show_line(state: &State, line: String, epoch: Epoch) {
    let post = Arc::new(Post::Line(line));
    state.common.monitors.with(|seats| {
        for seat in seats {
            state.common.post(*seat, &post, epoch);
        }
    });
}

/// Returns whether a request is a subcommand of CLIENT for administrators. The other subcommands of
/// CLIENT are for all users.
fn administers(command: &Command, args: &Args<'_>) -> bool {
    const WORDS: [&[u8]; 6] = [
        b"list",
        b"kill",
        b"pause",
        b"unpause",
        b"unblock",
        b"no-evict",
    ];
    let word = |known: &&[u8]| args.len() > 1 && args.at(1).eq_ignore_ascii_case(known);
    command.name == "client" && WORDS.iter().any(word)
}

/// Appends an argument between quotes, with escapes for unprintable bytes.
pub(crate) fn quote(arg: &[u8], line: &mut String) {
    line.push('"');
    for byte in arg {
        match byte {
            b'\\' | b'"' => {
                line.push('\\');
                line.push(char::from(*byte));
            }
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(line, "\\x{byte:02x}")),
        }
    }
    line.push('"');
}
