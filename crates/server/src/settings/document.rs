//! The tables of `docs/configuration.md` and the sample file, made from the table of settings.

use super::kind::{Kind, SECOND_US};
use super::table::SETTINGS;
use super::{Group, Setting, Settings, Source, fixed, ignored};
use std::fmt::Write;

/// Returns the tables of settings for `docs/configuration.md`. Two marks in that document enclose the tables.
#[must_use]
pub fn tables() -> String {
    let mut text = String::new();
    for group in Group::ALL {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "### {}\n\n| Setting | Value | Default | |\n|---|---|---|---|\n",
            group.title()
        );
        for row in SETTINGS.iter().filter(|row| row.group == group) {
            let _ = writeln!(
                text,
                "| `{}`{} | {} | {} | {} |",
                row.name,
                other_names(row),
                value(row),
                default(row),
                meaning(row),
            );
        }
        text.push('\n');
    }
    text.push_str("### Facts\n\n| Name | Value | Anything else is refused |\n|---|---|---|\n");
    for row in fixed::FIXED {
        let value = match fixed::instead(row.name) {
            Some(name) => format!("follows from `{name}`"),
            None => format!("`{}`", quoted(row.value)),
        };
        let _ = writeln!(text, "| `{}` | {value} | {} |", row.name, row.why);
    }
    text.push_str("\n### Names without effect\n\n");
    let older = ignored::ALIASES.iter().map(|(alias, _)| *alias);
    let older = older.filter(|alias| Setting::find(alias).is_none());
    let names: Vec<String> = ignored::IGNORED
        .iter()
        .map(|row| row.name)
        .chain(older)
        .map(|name| format!("`{name}`"))
        .collect();
    text.push_str(&names.join(", "));
    text.push_str(".\n");
    text
}

/// Returns the other names of a setting, as text for the table.
fn other_names(row: &Setting) -> String {
    let names: Vec<String> = row.other_names().map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" (Redis: {})", names.join(", ")),
    }
}

/// Returns a file with every setting, commented out.
#[must_use]
pub fn sample() -> String {
    let mut text = String::from(
        "# Settings of `perdura serve --config FILE`. Every line shows its default.\n\
         # Sizes: 64MiB; times: 10ms, 60s. Flags and PERDURA_ variables win over this file.\n",
    );
    let defaults = Settings::default();
    for group in Group::ALL {
        let _ = write!(text, "\n## {}\n", group.title());
        for row in SETTINGS.iter().filter(|row| row.group == group) {
            let note = row
                .default
                .map_or(String::new(), |words| format!(" Default: {words}."));
            let _ = write!(
                text,
                "\n# {}{note}\n# {}\n",
                row.doc,
                line(row, &defaults.get(row))
            );
        }
    }
    text
}

/// Returns all effective settings as a file. The comment after a setting gives its source. Secrets are masked.
#[must_use]
pub fn effective(settings: &Settings) -> String {
    let mut text = String::new();
    for row in SETTINGS {
        let source = settings.source(row);
        let mut values = settings.get(row);
        if row.kind == Kind::Secret {
            values.retain(|value| !value.is_empty());
            values.fill(String::from("********"));
        }
        // A line without a usable value, such as a masked secret, is written as a comment.
        let mute = row.kind == Kind::Secret || (values.is_empty() && !row.many);
        let sign = if mute { "# " } else { "" };
        let words = row.default.filter(|_| source == Source::Default);
        let words = words.map_or(String::new(), |words| format!(": {words}"));
        let line = format!("{sign}{}", line(row, &values));
        let _ = writeln!(text, "{line:<52} # {source}{words}");
    }
    for (name, value) in &settings.server.ignored {
        let line = format!("{name} = {}", toml(value, false));
        let _ = writeln!(text, "{line:<52} # no effect here");
    }
    text
}

/// Returns a setting as a line of TOML.
fn line(row: &Setting, values: &[String]) -> String {
    let bare = matches!(row.kind, Kind::Integer { .. });
    if row.many {
        let values: Vec<String> = values.iter().map(|value| toml(value, bare)).collect();
        return format!("{} = [{}]", row.name, values.join(", "));
    }
    let shown = values.first().map_or(String::new(), |v| readable(row, v));
    format!("{} = {}", row.name, toml(&shown, bare))
}

fn toml(value: &str, bare: bool) -> String {
    if bare {
        return value.to_owned();
    }
    toml_edit::Value::from(value).to_string()
}

/// Returns a size or time with the largest unit that fits.
fn readable(row: &Setting, value: &str) -> String {
    let Ok(number) = value.parse::<u64>() else {
        return value.to_owned();
    };
    let (scale, units): (u64, &[(u64, &str)]) = match row.kind {
        Kind::Bytes { .. } => (1, &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]),
        Kind::Time { unit_us, .. } => (unit_us, &[(SECOND_US, "s"), (1000, "ms"), (1, "us")]),
        _ => return value.to_owned(),
    };
    let scaled = number.saturating_mul(scale);
    let fits = |unit: &&(u64, &str)| number > 0 && scaled.is_multiple_of(unit.0);
    match units.iter().find(fits) {
        Some((unit, name)) => format!("{}{name}", scaled / unit),
        None => value.to_owned(),
    }
}

fn value(row: &Setting) -> String {
    let text = match row.kind {
        Kind::Choice(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
        Kind::Bool => "`yes`, `no`".into(),
        Kind::Integer { min, max } if max < 1_000_000 => format!("{min} to {max}"),
        Kind::Integer { .. } => "number".into(),
        Kind::Bytes { .. } => "size".into(),
        Kind::Time { .. } => "time".into(),
        Kind::Text => "text".into(),
        Kind::Secret => "secret".into(),
        Kind::Path => "path".into(),
        Kind::Address => "host:port".into(),
    };
    if row.many {
        format!("{text}; several")
    } else {
        text
    }
}

/// Returns the default as people write it. `None`: there is no default.
#[must_use]
pub fn default_of(row: &Setting) -> Option<String> {
    let values = Settings::default().get(row);
    let shown = values.first().map(|value| readable(row, value));
    shown.filter(|value| !value.is_empty())
}

fn default(row: &Setting) -> String {
    match (row.default, default_of(row)) {
        (Some(words), _) => words.to_owned(),
        (None, Some(value)) => format!("`{value}`"),
        (None, None) => "none".into(),
    }
}

fn meaning(row: &Setting) -> String {
    let live = if row.live { " Live." } else { "" };
    format!("{}{live}", row.doc).replace('|', "\\|")
}

fn quoted(value: &str) -> &str {
    if value.is_empty() { "\"\"" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_settings_are_a_file_that_can_be_read_back() {
        let mut settings = Settings::default();
        let row = Setting::find("requirepass").expect("a setting");
        let set = settings.set(row, &[String::from("secret")], Source::Flag);
        assert_eq!(set, Ok(()));
        settings.server.ignored.insert("hz", String::from("50"));
        let text = effective(&settings);
        assert!(!text.contains("secret\""), "{text}");
        assert!(text.contains("segment-size = \"64MiB\""), "{text}");
        assert!(
            text.lines()
                .any(|l| l.starts_with("# requirepass") && l.ends_with("# flag"))
        );
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("effective.toml");
        std::fs::write(&path, &text).expect("a file");
        let mut again = Settings::default();
        super::super::file::read(&path, &mut again).expect("sound");
        for row in SETTINGS.iter().filter(|row| row.kind != Kind::Secret) {
            assert_eq!(again.get(row), settings.get(row), "{}", row.name);
        }
    }

    #[test]
    fn the_sample_is_a_sound_file_also_without_its_comment_signs() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sample.toml");
        let text: String = sample()
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| {
                line.split_once(" = ")
                    .is_some_and(|(n, _)| Setting::find(n).is_some())
            })
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(text.lines().count(), SETTINGS.len());
        std::fs::write(&path, text).expect("a file");
        assert!(super::super::file::read(&path, &mut Settings::default()).is_ok());
    }
}
