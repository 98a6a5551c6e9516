//! All that verbs print. Data on stdout: text or one JSON object. Words for people on stderr, or in the log if there is one.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

/// Prints a value as one JSON object.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

/// Prints a value as one line of JSON.
pub fn json_line(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(())
}

/// Prints text as it is.
pub fn text(text: &str) -> Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Says why the verb fails: in the log if there is one, or else on stderr.
pub fn error(text: &str) {
    match perdura_logging::is_running() {
        true => tracing::error!("{text}"),
        false => note(&format!("perdura: {text}")),
    }
}

/// Prints lines on stderr. One that takes nothing, a full disk or a closed pipe, changes nothing about the verb.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", shown(text));
}

/// Text for a terminal: what would move its cursor or change its colors is escaped. Names and
/// fields of foreign files can hold anything.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Bytes for people: printable ASCII as it is, the rest escaped, long ones cut.
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
