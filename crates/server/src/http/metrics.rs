//! The figures of INFO in the text format of Prometheus. Each line of `metrics.txt` maps a field to a metric. All times
//! are in seconds, even if INFO gives microseconds.

use super::{commands, ill};
use crate::command::server::info::Fields;
use std::fmt::Write;

/// The conversion of a field's value into a metric's.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    As,
    Micro,
    /// A word: 1 if it is `ok`.
    Ok,
    /// A text: 1 if there is any.
    Any,
    /// A text: 1 if it begins with `yes`.
    Yes,
}

use Unit::{Any, As, Micro, Ok as IsOk, Yes};

impl Unit {
    fn named(word: &str) -> Option<Unit> {
        match word {
            "as" => Some(As),
            "micro" => Some(Micro),
            "ok" => Some(IsOk),
            "any" => Some(Any),
            "yes" => Some(Yes),
            _ => None,
        }
    }
}

/// One metric that shows a field of INFO.
struct Row {
    field: &'static str,
    metric: &'static str,
    unit: Unit,
    meaning: &'static str,
}

impl Row {
    fn parse(line: &'static str) -> Option<Row> {
        let mut words = line.splitn(4, ' ');
        Some(Row {
            field: words.next()?,
            metric: words.next()?,
            unit: Unit::named(words.next()?)?,
            meaning: words.next()?,
        })
    }
}

/// Returns the lines of `metrics.txt` after the header. An empty line ends the header.
fn lines() -> impl Iterator<Item = &'static str> {
    let table = include_str!("metrics.txt").lines();
    table.skip_while(|line| !line.is_empty()).skip(1)
}

/// Returns the page of metrics.
pub(super) fn text(fields: &Fields) -> String {
    let mut page = String::new();
    head(&mut page, "info", "gauge", "What is running.");
    let version = fields.get("perdura_version").unwrap_or("");
    // Writing to a string cannot fail.
    let _ = writeln!(page, "perdura_info{{version=\"{version}\"}} 1");
    for row in lines().filter_map(Row::parse) {
        let name = row.metric;
        let value = fields.get(row.field);
        let Some(value) = value.and_then(|value| convert(value, row.unit)) else {
            continue;
        };
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        head(&mut page, name, kind, row.meaning);
        let _ = writeln!(page, "perdura_{name} {value}");
    }
    ill::metric(fields, &mut page);
    let databases: Vec<(&str, &str)> = fields.iter().filter(|(n, _)| is_database(n)).collect();
    for (part, name, help) in [
        ("keys", "keys", "Keys of a database."),
        ("expires", "keys_expiring", "Those of them that expire."),
    ] {
        head(&mut page, name, "gauge", help);
        for (database, value) in &databases {
            let value = part_of(value, part).unwrap_or("0");
            let _ = writeln!(page, "perdura_{name}{{db=\"{database}\"}} {value}");
        }
    }
    commands::metrics(fields, &mut page);
    page
}

pub(super) fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(
        page,
        "# HELP perdura_{name} {help}\n# TYPE perdura_{name} {kind}"
    );
}

pub(super) fn convert(value: &str, unit: Unit) -> Option<String> {
    match unit {
        As => value.parse::<f64>().ok().map(|_| value.to_owned()),
        Micro => {
            let micros: u64 = value.parse().ok()?;
            Some(format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000))
        }
        IsOk => Some(u8::from(value == "ok").to_string()),
        Any => Some(u8::from(!value.is_empty()).to_string()),
        Yes => Some(u8::from(value.starts_with("yes")).to_string()),
    }
}

fn is_database(name: &str) -> bool {
    let digits = name.strip_prefix("db");
    digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the value of a name in `name=value,name=value`.
pub(super) fn part_of<'a>(value: &'a str, wanted: &str) -> Option<&'a str> {
    value
        .split(',')
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| *name == wanted)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests;
