//! One event as one line, as text or as JSON. Bytes that could end a line or move a terminal's cursor are escaped,
//! because messages contain names from clients.

use std::fmt::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use perdura_base::moment::moment;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use crate::LogFormat;

/// The maximum number of bytes of a message, and of a field's value.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// An event that is not formatted yet.
pub(crate) struct Record {
    us: u64,
    level: Level,
    target: String,
    message: String,
    fields: Map<String, Value>,
}

/// The JSON object of a line. Its members come in the order of these fields.
#[derive(Serialize)]
struct Json<'a> {
    time: String,
    level: &'a str,
    target: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    fields: &'a Map<String, Value>,
}

impl Record {
    /// Returns a record without fields, with the present time.
    pub(crate) fn new(level: Level, target: &str, message: String) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let us = since.unwrap_or_default().as_micros();
        Record {
            us: u64::try_from(us).unwrap_or(u64::MAX),
            level,
            target: target.into(),
            message: cut(message),
            fields: Map::new(),
        }
    }

    /// Returns the record of an event of `tracing`.
    pub(crate) fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let target = short(metadata.target());
        let mut record = Record::new(*metadata.level(), target, String::new());
        event.record(&mut record);
        record
    }

    /// Returns the line, without its line break.
    pub(crate) fn text(self, format: LogFormat) -> String {
        match format {
            LogFormat::Text => self.plain(),
            LogFormat::Json => self.json(),
        }
    }

    fn plain(self) -> String {
        let mut line = format!("{} {} {}: ", moment(self.us), self.level, self.target);
        line.extend(self.message.chars().map(Shown).flat_map(Shown::escaped));
        for (name, value) in &self.fields {
            // Writing to a string cannot fail.
            let _ = write!(line, " {name}=");
            match value {
                Value::String(text) => put_value(&mut line, text),
                other => line.push_str(&other.to_string()),
            }
        }
        line
    }

    fn json(self) -> String {
        let object = Json {
            time: moment(self.us),
            level: self.level.as_str(),
            target: &self.target,
            message: &self.message,
            fields: &self.fields,
        };
        // Serializing texts and numbers cannot fail.
        let text = serde_json::to_string(&object).unwrap_or_default();
        // `serde_json` escapes only the control characters below 0x20.
        let mut line = String::with_capacity(text.len());
        for c in text.chars() {
            match is_harmful(c) {
                true => {
                    let _ = write!(line, "\\u{:04x}", u32::from(c));
                }
                false => line.push(c),
            }
        }
        line
    }

    fn put(&mut self, field: &Field, text: String) {
        let text = cut(text);
        match field.name() {
            "message" => self.message = text,
            name => {
                self.fields.insert(name.into(), text.into());
            }
        }
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.insert(field.name().into(), value.into());
    }
}

/// Returns a short name for an event's crate: the part of `target` before its first `::`, without the prefix
/// `perdura_`. The crate `perdura` gets the name `engine`.
fn short(target: &str) -> &str {
    let name = target.split("::").next().unwrap_or(target);
    match name {
        "perdura" => "engine",
        _ => name.strip_prefix("perdura_").unwrap_or(name),
    }
}

/// Returns `text`. If it is too long, cuts off its end and appends how many bytes are missing.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let mut ends = (0..=TEXT_BYTES_MAX).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        let more = text.len() - end.unwrap_or(0);
        text.truncate(end.unwrap_or(0));
        let _ = write!(text, "... ({more} more bytes)");
    }
    text
}

/// Returns whether a character could end a line, move a cursor or reverse the direction of a text.
fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A character in a line of text.
struct Shown(char);

impl Shown {
    fn escaped(self) -> impl Iterator<Item = char> {
        let harmful = is_harmful(self.0);
        let escaped = harmful.then(|| self.0.escape_default());
        let plain = (!harmful).then_some(self.0);
        escaped.into_iter().flatten().chain(plain)
    }
}

/// Appends a value. A value that could be mistaken for several words is quoted.
fn put_value(line: &mut String, text: &str) {
    let plain = |c: char| c.is_alphanumeric() || "-_.:/+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return line.push_str(text);
    }
    line.push('"');
    for c in text.chars() {
        if c == '"' || c == '\\' {
            line.push('\\');
        }
        line.extend(Shown(c).escaped());
    }
    line.push('"');
}
