//! Tests of the messages for wrong paths. Every verb gets a path that does not exist, or that leads to a file or
//! directory of the wrong kind. The message must have the path once, and the system's words at most once.

use std::path::Path;

use crate::support::{Reply, Server, arg, ended, reason_in};

/// Returns the reason that the command prints on stderr, and its exit code.
fn reason(args: &[&str]) -> (i32, String) {
    let (code, text) = ended(args);
    let lines: Vec<&str> = text
        .lines()
        .filter_map(reason_in)
        .filter(|line| !line.starts_with("nothing was changed") && !line.starts_with("see --help"))
        .collect();
    assert_eq!(lines.len(), 1, "{args:?}: {text}");
    (code, lines[0].to_owned())
}

/// Checks that the command fails. Its reason must name the path once and must not repeat the system's words.
fn says_once(args: &[&str], path: &Path) {
    let (code, told) = reason(args);
    assert!((1..=3).contains(&code), "{args:?}: {code}, {told}");
    let occurrences = |what: &str| told.matches(what).count();
    assert_eq!(occurrences(arg(path)), 1, "{args:?}: {told}");
    for words in [
        "(os error",
        "No such file",
        "no such directory",
        "no such file",
        "Not a directory",
        "Is a directory",
        "File exists",
    ] {
        assert!(occurrences(words) <= 1, "{args:?}: {told}");
    }
}

/// The verbs that read a stopped database.
const READERS: [&[&str]; 9] = [
    &["verify"],
    &["repair"],
    &["digest"],
    &["restart"],
    &["restart", "--dry-run"],
    &["dump", "log"],
    &["dump", "anchor"],
    &["dump", "checkpoint"],
    &["export"],
];

#[test]
fn every_verb_says_a_path_that_is_missing_or_of_another_kind_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (missing, file, within) = (at("missing"), at("file"), at("file/within"));
    std::fs::write(&file, "no database").unwrap();
    for verb in READERS {
        for data in [&missing, &file] {
            says_once(&[verb, &["--data", arg(data)]].concat(), data);
        }
    }
    let port = "127.0.0.1:0";
    for data in [&file, &within] {
        says_once(&["serve", "--listen", port, "--data", arg(data)], data);
        says_once(
            &["bench", "kv", "--seconds", "1", "--data", arg(data)],
            data,
        );
        says_once(&["bench", "sms", "--txns", "1", "--data", arg(data)], data);
    }
    let (data, new) = (at("db"), at("new"));
    let folder = at("folder");
    std::fs::create_dir(&folder).unwrap();
    for settings in [&missing, &folder] {
        let data = ["--listen", port, "--data", arg(&data)];
        let file = ["serve", "--config", arg(settings)];
        says_once(&[&file[..], &data].concat(), settings);
        let file = ["serve", "--aclfile", arg(settings)];
        says_once(&[&file[..], &data].concat(), settings);
        says_once(&["config", "--check", arg(settings)], settings);
        let import = ["import", "rdb", arg(settings), "--data", arg(&new)];
        says_once(&import, settings);
    }
    let progress = ["crash", "--runs", "1", "--progress-file", arg(&folder)];
    says_once(&progress, &folder);
    says_once(&["man", arg(&file)], &file);
    says_once(&["man", arg(&within)], &within);
}

#[test]
fn every_verb_says_a_directory_in_a_files_place_once_and_repair_does_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::start(&data, &["--partitions", "4"]);
    for round in ["1", "2"] {
        let ok = Reply::Status("OK".into());
        assert_eq!(server.ask(&["SET", "key", round]), ok);
        assert_eq!(server.ask(&["SAVE"]), ok);
    }
    server.kill();
    let first_in = |folder: &str, prefix: &str| {
        let names = std::fs::read_dir(data.join(folder)).unwrap();
        let paths = names.map(|entry| entry.unwrap().path());
        let is_it = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(prefix)
        };
        paths.into_iter().find(is_it).unwrap()
    };
    let away = dir.path().join("away");
    for path in [
        data.join("anchor"),
        data.join("VERSION"),
        data.join("image-a/pages"),
        data.join("image-a"),
        data.join("log"),
        first_in("image-b", "directory-"),
        first_in("log", "s00-"),
    ] {
        let was_file = path.is_file();
        std::fs::rename(&path, &away).unwrap();
        match was_file {
            true => std::fs::create_dir(&path).unwrap(),
            false => std::fs::write(&path, "a file").unwrap(),
        }
        // Some messages name a path within the data directory. The path "log" alone would also match an ordinary
        // word.
        let name = path.strip_prefix(&data).unwrap();
        let path_said = match name.components().count() {
            1 => arg(&path),
            _ => arg(name),
        };
        for verb in READERS {
            let args = [verb, &["--data", arg(&data)]].concat();
            let (code, text) = ended(&args);
            let told: Vec<&str> = text
                .lines()
                .filter(|line| reason_in(line).is_some())
                .collect();
            assert!(code == 0 || !told.is_empty(), "{args:?}: {text}");
            for line in told {
                assert!(line.matches(path_said).count() <= 1, "{args:?}: {line}");
                assert!(line.matches("(os error").count() <= 1, "{args:?}: {line}");
                assert!(line.matches("directory (").count() <= 1, "{args:?}: {line}");
            }
        }
        let new = dir.path().join("new");
        let (code, text) = ended(&[
            "repair",
            "--data",
            arg(&data),
            "--to",
            arg(&new),
            "--accept-loss",
        ]);
        let hopeless = ["anchor", "VERSION"].contains(&arg(name));
        assert_eq!(code == 0, !hopeless, "{name:?}: {text}");
        if new.exists() {
            assert_eq!(ended(&["verify", "--strict", "--data", arg(&new)]).0, 0);
            std::fs::remove_dir_all(&new).unwrap();
        }
        match was_file {
            true => std::fs::remove_dir(&path).unwrap(),
            false => std::fs::remove_file(&path).unwrap(),
        }
        std::fs::rename(&away, &path).unwrap();
    }
}
