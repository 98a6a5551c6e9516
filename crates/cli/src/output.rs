//! The output of all verbs. Data goes to stdout, as text or one JSON object. Messages for people go to stderr, or to
//! the verb's log if it has one.
//!
//! A failed write to stdout or stderr never causes a panic, unlike with the macros of the standard library. If stdout
//! accepts nothing, the verb fails. If stderr accepts nothing, messages are lost and the verb continues.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use perdura_server::ServerOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

/// The longest time that a message to stderr waits for a reader.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of bytes that a pipe accepts without blocking when it is ready for writing.
const PIPE_BYTES: usize = 4096;

/// The error of a write to stdout after its reader has closed the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of stdout has closed its end")
    }
}

impl std::error::Error for ReaderGone {}

/// The standard output. The text of a write error names stdout.
#[derive(Debug, Clone, Copy)]
pub struct Stdout;

fn about_stdout(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, ReaderGone),
        kind => io::Error::new(kind, format!("writing to stdout: {error}")),
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(about_stdout)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(about_stdout)
    }
}

/// Prints bytes on stdout.
pub fn bytes_as_they_are(bytes: &[u8]) -> Result<()> {
    Stdout.write_all(bytes)?;
    Ok(Stdout.flush()?)
}

/// Prints a value as one JSON object.
pub fn json(value: &impl Serialize) -> Result<()> {
    text(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Prints a value as one line of JSON.
pub fn json_line(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(())
}

/// Prints text unchanged.
pub fn text(text: &str) -> Result<()> {
    bytes_as_they_are(text.as_bytes())
}

/// Begins the operator's log of a long-running verb.
pub fn start_log(options: &ServerOptions) -> Result<()> {
    perdura_logging::start(options.log_level, options.log_format).context("starting the log")
}

/// Reports why the verb fails. The text goes to the operator's log if it is running, otherwise to stderr.
pub fn error(text: &str) {
    match perdura_logging::is_running() {
        true => tracing::error!(target: "cli", "{text}"),
        false => note(&format!("perdura: {text}")),
    }
}

/// Reports a problem that does not end the verb. The text goes to the operator's log if it is running, otherwise to
/// stderr.
pub fn warning(text: &str) {
    match perdura_logging::is_running() {
        true => tracing::warn!(target: "cli", "{text}"),
        false => note(&format!("perdura: {text}")),
    }
}

/// Prints lines on stderr. The lines are lost if stderr accepts nothing.
pub fn note(text: &str) {
    put_on_stderr(&format!("{}\n", shown(text)), PATIENCE);
}

/// Returns whether stderr is a terminal, so that people can watch the verb's progress.
pub fn has_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Replaces the progress line on the terminal. Does not wait if the terminal accepts nothing.
pub fn progress(text: &str) {
    put_on_stderr(&format!("\r{text}"), Duration::ZERO);
}

/// Writes a text to stderr in pieces. Waits at most `patience` for each piece, and drops the rest of the text if stderr
/// is still full. After such a wait, pieces are tried without a wait until stderr accepts one.
fn put_on_stderr(text: &str, patience: Duration) {
    static UNREAD: AtomicBool = AtomicBool::new(false);
    let stderr = io::stderr();
    for piece in text.as_bytes().chunks(PIPE_BYTES) {
        let patience = match UNREAD.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => patience,
        };
        let patience = Timespec::try_from(patience).ok();
        let ready = poll(
            &mut [PollFd::new(&stderr, PollFlags::OUT)],
            patience.as_ref(),
        );
        let is_unread = ready == Ok(0);
        UNREAD.store(is_unread, Ordering::Relaxed);
        // The verb continues even if stderr is a full disk or a closed pipe.
        if is_unread || stderr.lock().write_all(piece).is_err() {
            return;
        }
    }
}

/// Returns text that is safe for a terminal. Names and fields in foreign files can contain anything, so characters
/// that would move the cursor or change the colors are escaped.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    debug_assert!(
        !out.contains(|c: char| c.is_control() && c != '\n'),
        "no cursor moves"
    );
    out
}

/// Returns bytes as text for people. Printable ASCII is unchanged, and other bytes are escaped. If there are more than
/// `longest` bytes, `...` replaces the rest.
pub fn bytes(bytes: &[u8], longest: usize) -> String {
    let shown = &bytes[..bytes.len().min(longest)];
    let more = if shown.len() < bytes.len() { "..." } else { "" };
    format!("{}{more}", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_foreign_names_are_escaped() {
        assert_eq!(
            shown("a\x1b[2J\u{9b}b\r\n\u{e9}"),
            "a\\u{1b}[2J\\u{9b}b\\r\n\u{e9}"
        );
    }

    #[test]
    fn bytes_are_escaped_and_cut() {
        assert_eq!(bytes(b"a\n\xff", 10), "a\\n\\xff");
        assert_eq!(bytes(b"abcdef", 3), "abc...");
    }
}
