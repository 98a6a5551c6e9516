//! The file of settings: flat TOML. Its keys are the names of the flags, or Redis's names. Numbers, `true` and
//! `false` may be written bare. A setting that takes several values is an array.
//!
//! CONFIG REWRITE changes only the keys that CONFIG SET has changed. A key in the file keeps its place. Comments, order
//! and everything else stay. The file is replaced as a whole, with a sync before and after the replacement.

use super::{Setting, Settings, Source, fixed, ignored, nearest, redis_conf};
use crate::engine::{open_regular, read_input};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use toml_edit::{Array, Document, DocumentMut, Item, Value};

/// The maximum size of a file of settings, bytes.
const FILE_BYTES_MAX: usize = 16 << 20;
/// The largest distance between a typo and the intended name.
const TYPO_DISTANCE_MAX: usize = 4;

/// Reads a file into `settings`. Returns notes for the operator: the names without effect.
///
/// # Errors
/// One line for each mistake: the file, the line in the file and the reason. For a `redis.conf` the error shows
/// its settings in the form of this server's file.
pub fn read(path: &Path, settings: &mut Settings) -> Result<Vec<String>, String> {
    let place = path.display();
    let text = read_input(path, FILE_BYTES_MAX).map_err(|error| format!("{place}: {error}"))?;
    let text = String::from_utf8(text).map_err(|error| format!("{place}: {error}"))?;
    let document = Document::parse(text.as_str()).map_err(|error| {
        let redis = redis_conf::moved(&text);
        let why = redis.unwrap_or_else(|| error.to_string().trim_end().to_owned());
        format!("{place}: {why}")
    })?;
    let (mut notes, mut wrong) = (Vec::new(), Vec::new());
    let mut names: Vec<(&str, &str)> = Vec::new();
    for (key, item) in document.as_table() {
        let span = document.as_table().key(key).and_then(toml_edit::Key::span);
        let begin = span.or_else(|| item.span()).map_or(0, |span| span.start);
        let line = text[..begin].bytes().filter(|b| *b == b'\n').count() + 1;
        let name = main_name(key);
        if let Some((_, before)) = names.iter().find(|(known, _)| *known == name) {
            wrong.push(format!(
                "{place}:{line}: '{key}' is another name of '{before}', which is set above; keep one"
            ));
            continue;
        }
        names.push((name, key));
        let source = Source::File(path.to_owned(), line);
        match read_key(key, item, settings, source) {
            Ok(None) => {}
            Ok(Some(note)) => notes.push(format!("{place}:{line}: {note}")),
            Err(why) => wrong.push(format!("{place}:{line}: {why}")),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    settings.server.config_file = Some(absolute(path));
    Ok(notes)
}

/// Returns the main name of a setting that may have several names. Returns any other name unchanged.
pub(super) fn main_name(name: &str) -> &str {
    Setting::find(name).map_or_else(|| ignored::resolve(name), |row| row.name)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

pub(super) fn read_key(
    key: &str,
    item: &Item,
    settings: &mut Settings,
    source: Source,
) -> Result<Option<String>, String> {
    let texts = texts(item).ok_or_else(|| {
        format!("'{key}' is a table; settings are flat: name = value, or name = [\"a\", \"b\"]")
    })?;
    let joined = texts.join(" ");
    if let Some(setting) = Setting::find(key) {
        let texts = if setting.many { texts } else { vec![joined] };
        let set = settings.set(setting, &texts, source);
        return set.map(|()| None).map_err(|why| format!("{key}: {why}"));
    }
    if let Some(row) = fixed::find(key) {
        return match (row.check(&joined), fixed::instead(key)) {
            (Ok(()), _) => Ok(None),
            (Err(_), Some(name)) => Err(format!("{key}: set '{name}' instead")),
            (Err(why), None) => Err(format!("{key}: {why}")),
        };
    }
    if let Some(row) = ignored::find(key) {
        let value = row.kind.canonical(&joined);
        let value = value.map_err(|why| format!("{key}: {why}"))?;
        if value != row.default {
            settings.server.ignored.insert(row.name, value);
        }
        return Ok(Some(format!("'{key}' has no effect here")));
    }
    Err(match nearest(key, TYPO_DISTANCE_MAX) {
        Some(near) => format!("unknown setting '{key}'; did you mean '{near}'?"),
        None => format!("unknown setting '{key}'; `perdura config --print-effective` lists all"),
    })
}

/// Returns the text of a single value, or the texts of an array's values. `None`: the item is not a value.
fn texts(item: &Item) -> Option<Vec<String>> {
    match item.as_value()? {
        Value::Array(values) => values.iter().map(text).collect(),
        value => Some(vec![text(value)?]),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(yes) => Some(super::kind::yes_no(*yes.value())),
        Value::Datetime(_) | Value::Array(_) | Value::InlineTable(_) => None,
    }
}

/// A name and its new values in the file.
#[derive(Debug)]
pub struct Change {
    /// The name of a setting of this server, or a name without effect.
    pub name: &'static str,
    /// The other names that the file may use for the setting.
    pub other_names: Vec<&'static str>,
    /// True if the setting is written as an array.
    pub many: bool,
    /// The setting's new values.
    pub values: Vec<String>,
}

/// Makes changes in a file and leaves everything else unchanged.
///
/// # Errors
/// The system's error, or the reason why the file is no longer TOML.
pub fn rewrite(path: &Path, changes: &[Change]) -> io::Result<()> {
    // Only a regular file is accepted. A pipe cannot be replaced, and reading it may never end.
    let mut text = String::new();
    open_regular(File::options().read(true), 0, path)?.read_to_string(&mut text)?;
    let mut document: DocumentMut = text.parse().map_err(io::Error::other)?;
    for change in changes {
        let mut others = change.other_names.iter();
        let other = others.find(|name| document.contains_key(name));
        let name = other.copied().unwrap_or(change.name);
        let mut value = value(change);
        match document.get_mut(name) {
            Some(Item::Value(old)) => {
                // Spaces and the comment at the line's end are stored with the old value. The new value takes
                // them over.
                *value.decor_mut() = old.decor().clone();
                *old = value;
            }
            _ => document[name] = Item::Value(value),
        }
    }
    replace(path, document.to_string().as_bytes())
}

fn value(change: &Change) -> Value {
    let plain = |text: &String| match text.parse::<i64>() {
        Ok(number) if number.to_string() == *text => Value::from(number),
        _ => Value::from(text.as_str()),
    };
    match change.values.as_slice() {
        [one] if !change.many => plain(one),
        many if change.many => Value::Array(many.iter().map(plain).collect::<Array>()),
        _ => Value::from(""),
    }
}

/// Replaces a file as a whole, and preserves its permissions.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = File::create(&new)?;
    file.set_permissions(fs::metadata(path)?.permissions())?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("perdura.toml");
        fs::write(&path, text).expect("a file");
        (dir, path)
    }

    #[test]
    fn a_file_says_what_it_sets_and_what_has_no_effect() {
        let text = "# mine\nmaxclients = 7\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n\
                    timeout = \"2m\"\nappendfsync = \"always\"\nhz = 50\nallow-plaintext = true\n\
                    unixsocket = \"a.sock\"\nlatency-tracking-info-percentiles = [50, 99.5]\n";
        let (_dir, path) = with(text);
        let mut settings = Settings::default();
        let notes = read(&path, &mut settings).expect("a sound file");
        assert_eq!(settings.server.maxclients, 7);
        assert_eq!(settings.server.listen.len(), 2);
        assert_eq!(settings.server.idle_seconds_max, 120);
        assert!(settings.server.allow_plaintext);
        assert_eq!(settings.server.unix_socket, Some(PathBuf::from("a.sock")));
        assert_eq!(settings.server.latency_percentiles, [50.0, 99.5]);
        assert_eq!(settings.server.ignored["hz"], "50");
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("perdura.toml:6: 'hz'"), "{notes:?}");
        let maxclients = Setting::find("maxclients").expect("a setting");
        assert_eq!(settings.source(maxclients), Source::File(path, 2));
    }

    #[test]
    fn a_wrong_key_or_value_names_its_line_and_the_nearest_name() {
        for (text, expected) in [
            (
                "\nmaxclient = 7",
                ":2: unknown setting 'maxclient'; did you mean 'maxclients'?",
            ),
            ("maxclients = \"many\"", ":1: maxclients: argument couldn't"),
            (
                "appendfsync = \"everysec\"",
                ":1: appendfsync: every write is durable",
            ),
            ("port = 7000", ":1: port: set 'listen' instead"),
            ("[server]\nmaxclients = 1", "is a table"),
            ("maxclients =", "perdura.toml"),
            ("wholly-different-thing = 1", "lists all"),
            ("maxclients = [1, 2]", "couldn't be parsed"),
            (
                "hash-max-ziplist-entries = 1\nhash-max-listpack-entries = 2",
                ":2: 'hash-max-listpack-entries' is another name of 'hash-max-ziplist-entries'",
            ),
        ] {
            let (_dir, path) = with(text);
            let error = read(&path, &mut Settings::default()).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn rewriting_changes_what_was_changed_and_keeps_the_comments() {
        let (_dir, path) = with("# mine\nmaxclients = 7 # few\n\n# addresses\nlisten = []\n");
        let change = |name, many, values: &[&str]| Change {
            name,
            other_names: Vec::new(),
            many,
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        };
        let changes = [
            change("maxclients", false, &["9"]),
            change("listen", true, &["127.0.0.1:1"]),
            change("notify-keyspace-events", false, &["AKE"]),
        ];
        rewrite(&path, &changes).expect("rewritten");
        let text = fs::read_to_string(&path).expect("a file");
        assert_eq!(
            text,
            "# mine\nmaxclients = 9 # few\n\n# addresses\nlisten = [\"127.0.0.1:1\"]\n\
             notify-keyspace-events = \"AKE\"\n"
        );
        assert!(read(&path, &mut Settings::default()).is_ok());
    }
}
