//! A `redis.conf` where a file of settings was expected: each of its lines as it would stand there.

use super::file::read_key;
use super::kind::Kind;
use super::{Setting, Settings, Source, fixed, ignored};
use std::fmt::Write;
use toml_edit::{Array, Item, Value};

/// What a `redis.conf` would be as TOML, with a comment for each line that has no place there.
/// `None` if the text is no `redis.conf`: not every line of one begins with a name that Redis has.
pub(super) fn moved(text: &str) -> Option<String> {
    let lines: Vec<(&str, Vec<String>)> = text.lines().filter_map(words).collect();
    let is_name = |name: &str| {
        let ours = Setting::find(name).is_some();
        ours || fixed::find(name).is_some() || ignored::find(name).is_some()
    };
    let known = lines.iter().filter(|(name, _)| is_name(name)).count();
    if known == 0 || known * 2 < lines.len() {
        return None;
    }
    let mut out = String::from(
        "this is a redis.conf, and settings here are TOML: name = value. The same as TOML, to be put \
         into a file of its own:\n",
    );
    for (name, values) in &lines {
        let name = name.to_ascii_lowercase();
        let item = item(&values[..]);
        // Writing to a string cannot fail.
        let _ = match read_key(&name, &item, &mut Settings::default(), Source::Default) {
            // The text goes to logs: passwords, known or not, stay where they are.
            Ok(None) if is_secret(&name) => writeln!(out, "# {name} = (its value as it is there)"),
            Ok(None) => writeln!(out, "{name} = {item}"),
            Ok(Some(note)) => writeln!(out, "# {note}"),
            Err(why) => writeln!(out, "# {why}"),
        };
    }
    out.truncate(out.trim_end().len());
    Some(out)
}

fn is_secret(name: &str) -> bool {
    Setting::find(name).is_some_and(|setting| matches!(setting.kind, Kind::Secret))
}

/// The name and the values of a line that is neither empty nor a comment. Quotes are taken off.
fn words(line: &str) -> Option<(&str, Vec<String>)> {
    let line = line.trim();
    let mut words = line.split_whitespace();
    let name = words.next().filter(|name| !name.starts_with('#'))?;
    let bare = |word: &str| word.trim_matches(['"', '\'']).to_owned();
    Some((name, words.map(bare).collect()))
}

fn item(values: &[String]) -> Item {
    Item::Value(match values {
        [one] => Value::from(one.as_str()),
        many => Value::Array(Array::from_iter(many.iter().map(String::as_str))),
    })
}
