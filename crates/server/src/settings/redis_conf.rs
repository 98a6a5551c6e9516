//! The translation of a `redis.conf` to TOML. The translation splits a line into words as Redis does. If several lines
//! set one name, Redis combines their values for some names, and uses only the last value for the others. The
//! translation follows Redis here.

use super::file::{main_name, read_key};
use super::kind::Kind;
use super::{Setting, Settings, Source, fixed, ignored};
use crate::resp::inline::split_words;
use std::fmt::Write;
use std::ops::Range;
use toml_edit::{Array, Item, Value};

/// Settings of Redis that this server refuses with any value, each with the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "include",
        "include is not supported. Check that file too, and put its lines here",
    ),
    ("loadmodule", "there are no modules"),
    (
        "rename-command",
        "commands cannot be renamed. Forbid them to users with an ACL, for example user \
         \"default on … -flushall\"",
    ),
];

/// Each name in a `redis.conf`, with the words of each line that begins with this name.
type Lines = Vec<(String, Vec<Vec<String>>)>;

/// Returns a `redis.conf` as TOML, with a comment for each line that has no equivalent. `None`: the text is not a
/// `redis.conf`. A text is a `redis.conf` if at least one line and at least half of the lines begin with the name of a
/// Redis setting. Empty lines and comments do not count.
pub(super) fn moved(text: &str) -> Option<String> {
    let (mut lines, mut broken) = (Lines::new(), Vec::new());
    let (mut known, mut all) = (0, 0);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        all += 1;
        let words = words(line).unwrap_or_default();
        let Some((name, words)) = words.split_first() else {
            broken.push(number);
            continue;
        };
        let (name, words) = (name.to_ascii_lowercase(), words.to_vec());
        known += usize::from(is_name(&name));
        let same = |before: &str| main_name(before) == main_name(&name);
        match lines.iter_mut().find(|(before, _)| same(before)) {
            Some((_, values)) => values.push(words),
            None => lines.push((name, vec![words])),
        }
    }
    if known == 0 || known * 2 < all {
        return None;
    }
    let mut out = String::from(
        "this is a redis.conf, but Perdura reads TOML: name = value. The same settings as TOML, \
         for a new file:\n",
    );
    // Writing to a string cannot fail.
    for (name, values) in lines {
        let _ = writeln!(out, "{}", line(&name, values));
    }
    for number in broken {
        let _ = writeln!(
            out,
            "# line {number}: its quotes do not balance, or it is no text"
        );
    }
    out.truncate(out.trim_end().len());
    Some(out)
}

/// Returns the TOML for a name.
fn line(name: &str, mut values: Vec<Vec<String>>) -> String {
    if let Some((_, why)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
        return format!("# {name}: {why}");
    }
    let setting = Setting::find(name);
    let many = setting.is_some_and(|row| row.many);
    let mut note = String::new();
    let texts: Vec<String> = match name {
        // Each `save` line adds to the lines before it, and a line with an empty value cancels them.
        "save" => {
            let from = values.iter().rposition(|words| words[..] == [""]);
            vec![values.split_off(from.unwrap_or(0)).concat().join(" ")]
        }
        "client-output-buffer-limit" => vec![values.concat().join(" ")],
        _ if many => values.iter().map(|words| words.join(" ")).collect(),
        _ => {
            if values.len() > 1 {
                note = format!(" # the last of {}, as in Redis", values.len());
            }
            values.pop().iter().map(|words| words.join(" ")).collect()
        }
    };
    let item = item(&texts, many);
    match read_key(name, &item, &mut Settings::default(), Source::Default) {
        // The text goes to logs, so the values of secret settings are left out.
        Ok(None) if setting.is_some_and(|row| matches!(row.kind, Kind::Secret)) => {
            format!("# {name} = (its value as it is there)")
        }
        Ok(None) => format!("{name} = {item}{note}"),
        Ok(Some(note)) => format!("# {note}"),
        Err(why) => format!("# {why}"),
    }
}

/// Returns whether Redis has a setting of this name.
fn is_name(name: &str) -> bool {
    Setting::find(name).is_some()
        || fixed::find(name).is_some()
        || ignored::find(name).is_some()
        || ELSEWHERE.iter().any(|(known, _)| *known == name)
}

/// Returns the words of a line that is not empty, with quotes and escapes resolved. `None`: the quotes do
/// not balance, or the words are not text.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    split_words(line.as_bytes(), &mut bytes, |from, to| {
        places.push(from..to)
    })?;
    let word = |place: Range<usize>| String::from_utf8(bytes[place].to_vec()).ok();
    places.into_iter().map(word).collect()
}

fn item(texts: &[String], many: bool) -> Item {
    Item::Value(match texts {
        [one] if !many => Value::from(one.as_str()),
        all => Value::Array(Array::from_iter(all.iter().map(String::as_str))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved_lines(text: &str) -> Vec<String> {
        let all = moved(text).expect("a redis.conf");
        all.lines().skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn words_are_split_as_redis_splits_them() {
        for (line, expected) in [
            ("a \"b c\" 'd e'", Some(vec!["a", "b c", "d e"])),
            (
                r#"a "\x41\n\"" 'it\'s' "\x""#,
                Some(vec!["a", "A\n\"", "it's", "x"]),
            ),
            ("a \"\" ''", Some(vec!["a", "", ""])),
            ("a\tb   c", Some(vec!["a", "b", "c"])),
            ("a \"b", None),
            ("a 'b'c", None),
            (r#"a "\xff""#, None),
        ] {
            let expected = expected.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(words(line), expected, "{line}");
        }
    }

    #[test]
    fn quoted_values_keep_their_blanks_and_a_broken_line_is_named() {
        let lines = moved_lines(
            "unixsocket \"/tmp/a b.sock\"\naclfile 'my users.acl'\nmaxclients 5\ntimeout \"7\n\0\ndir \"/a b\"\n",
        );
        assert_eq!(
            lines,
            [
                "unixsocket = \"/tmp/a b.sock\"",
                "aclfile = \"my users.acl\"",
                "maxclients = \"5\"",
                "# dir: set 'data' instead",
                "# line 4: its quotes do not balance, or it is no text",
                "# line 5: its quotes do not balance, or it is no text",
            ]
        );
    }

    #[test]
    fn names_that_stand_there_several_times_are_one_list_or_the_last_of_them() {
        let lines = moved_lines(
            "client-output-buffer-limit normal 1mb 0 0\nsave 900 1\nmaxclients 5\nuser a on >secret\n\
             rename-command FLUSHALL \"\"\ninclude other.conf\nCLIENT-output-buffer-limit pubsub 2mb 1mb 9\n\
             save 300 10\nsave \"\"\nuser b on nopass\nrename-command KEYS hidden\nmaxclients 7\n",
        );
        let text = lines.join("\n");
        for (at, start) in [
            "client-output-buffer-limit = \"normal 1mb 0 0 pubsub 2mb 1mb 9\"",
            "save = \"\"",
            "maxclients = \"7\" # the last of 2, as in Redis",
            "# user = (its value as it is there)",
            "# rename-command: commands cannot be renamed",
            "# include: include is not supported",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(lines[at].starts_with(start), "{at}: {text}");
        }
        assert_eq!(lines.len(), 6, "{text}");
        assert!(
            !text.contains("secret") && !text.contains("hidden"),
            "{text}"
        );
        let moved =
            moved_lines("hash-max-ziplist-entries 1\nhash-max-listpack-entries 2\ntimeout 1\n");
        assert_eq!(
            moved[0],
            "hash-max-ziplist-entries = \"2\" # the last of 2, as in Redis"
        );
        let moved = moved_lines("save 900 1\nsave 300 10\ntimeout 1\n");
        assert!(
            moved[0].starts_with("# save: there are no snapshots"),
            "{moved:?}"
        );
        // The result is TOML, with each name once.
        text.parse::<toml_edit::DocumentMut>().expect("TOML");
    }
}
