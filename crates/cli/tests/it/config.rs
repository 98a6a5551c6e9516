//! Settings from flags, environment variables and a file, changes of settings while the server runs, and the
//! documentation of settings.

use std::path::Path;
use std::process::Command;

use crate::support::{PERDURA, Reply, Server, arg, ended};

fn printed(args: &[&str], variables: &[(&str, &str)]) -> String {
    let output = Command::new(PERDURA)
        .args(args)
        .env_remove("PERDURA_REQUIREPASS")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let begin = format!("{name} = ");
    let found = text.lines().find(|line| {
        let line = line.trim_start_matches("# ");
        line.starts_with(&begin)
    });
    found.unwrap_or_else(|| panic!("{name} is not in {text}"))
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perdura.toml");
    std::fs::write(
        &file,
        "maxclients = 1\ntimeout = 1\nslowlog-max-len = 1\nrequirepass = \"hidden\"\nhz = 20\n",
    )
    .unwrap();
    let args = [
        "config",
        "--print-effective",
        "--config",
        arg(&file),
        "--maxclients",
        "3",
    ];
    let variables = [("PERDURA_MAXCLIENTS", "2"), ("PERDURA_TIMEOUT", "2m")];
    let text = printed(&args, &variables);
    assert!(
        line(&text, "maxclients").starts_with("maxclients = 3 "),
        "{text}"
    );
    assert!(line(&text, "maxclients").ends_with("# flag"), "{text}");
    assert!(
        line(&text, "timeout").starts_with("timeout = \"120s\" "),
        "{text}"
    );
    assert!(
        line(&text, "timeout").ends_with("# PERDURA_TIMEOUT"),
        "{text}"
    );
    assert!(
        line(&text, "slowlog-max-len").ends_with("perdura.toml:3"),
        "{text}"
    );
    assert!(
        line(&text, "tcp-keepalive").ends_with("# default"),
        "{text}"
    );
    assert!(line(&text, "requirepass").contains("***"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
    assert!(line(&text, "hz").ends_with("# no effect here"), "{text}");
}

#[test]
fn a_wrong_file_or_variable_is_a_usage_error_that_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perdura.toml");
    for (text, expected) in [
        (
            "# one\nmaxcleints = 1\n",
            "perdura.toml:2: unknown setting 'maxcleints'; did you mean 'maxclients'?",
        ),
        (
            "maxclients = 0\n",
            "perdura.toml:1: maxclients: argument must be between 1",
        ),
        ("appendfsync = \"everysec\"\n", "every write is durable"),
        (
            "listen = [\"0.0.0.0:1\"]\n",
            "can be reached from other machines",
        ),
        ("streams = 17\n", "argument must be between 1 and 16"),
        ("partitions = 3\n", "power of two"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, said) = ended(&["config", "--check", arg(&file)]);
        assert_eq!(code, 2, "{text}: {said}");
        assert!(said.contains(expected), "{text}: {said}");
    }
    std::fs::write(&file, "maxclients = 7\nappendonly = true\nhz = 100\n").unwrap();
    let (code, said) = ended(&["config", "--check", arg(&file)]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("perdura.toml:3: 'hz' has no effect here"),
        "{said}"
    );
    let said = printed(
        &["config", "--print-effective"],
        &[("PERDURA_MAXCLIENT", "1")],
    );
    assert!(said.contains("did you mean PERDURA_MAXCLIENTS?"), "{said}");
}

#[test]
fn what_config_set_changes_is_written_into_the_file_and_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("perdura.toml"), dir.path().join("data"));
    std::fs::write(&file, "# of this machine\nmaxclients = 77 # enough\n").unwrap();
    let server = Server::start(&data, &["--config", arg(&file), "--timeout", "5"]);
    let ok = |words: &[&str]| {
        let reply = server.ask(words);
        assert_eq!(reply, Reply::Status("OK".into()), "{words:?}");
    };
    let get = |server: &Server, name: &str| match server.ask(&["CONFIG", "GET", name]) {
        Reply::Array(pair) => match &pair[1] {
            Reply::Bulk(Some(value)) => String::from_utf8(value.clone()).unwrap(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert_eq!(get(&server, "maxclients"), "77");
    assert_eq!(get(&server, "timeout"), "5");
    ok(&[
        "CONFIG",
        "SET",
        "maxclients",
        "78",
        "hz",
        "50",
        "maxmemory",
        "1gb",
    ]);
    ok(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]);
    ok(&["CONFIG", "REWRITE"]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# of this machine\nmaxclients = 78 # enough\n"),
        "{text}"
    );
    assert!(
        text.contains("maxmemory = 1073741824") && text.contains("hz = 50"),
        "{text}"
    );
    assert!(!text.contains("timeout"), "{text}");
    server.stop();
    let server = Server::start(&data, &["--config", arg(&file)]);
    for (name, value) in [
        ("maxclients", "78"),
        ("maxmemory", "1073741824"),
        ("notify-keyspace-events", "AKE"),
        ("hz", "50"),
        ("timeout", "0"),
    ] {
        assert_eq!(get(&server, name), value, "{name}");
    }
}

fn in_repository(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn the_documents_and_the_sample_are_those_of_the_settings() {
    let (_, tables) = ended(&["config", "--document"]);
    let page = in_repository("docs/configuration.md");
    assert!(
        page.ends_with(&tables),
        "docs/configuration.md is old: put there what `perdura config --document` prints"
    );
    let (_, sample) = ended(&["config", "--sample"]);
    assert_eq!(
        in_repository("packaging/perdura.toml"),
        sample,
        "packaging/perdura.toml is old: `perdura config --sample` prints it"
    );
}

#[test]
fn a_check_reports_every_bad_setting_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perdura.toml");
    std::fs::write(
        &file,
        "maxclients = \"x\"\nnonsense = 1\ntimeout = 5\nsave = \"900 1\"\n",
    )
    .unwrap();
    let (code, text) = ended(&["config", "--check", arg(&file)]);
    assert_eq!(code, 2, "{text}");
    for wrong in [
        "toml:1: maxclients",
        "toml:2: unknown setting 'nonsense'",
        "toml:4: save",
    ] {
        assert!(text.contains(wrong), "{text}");
    }
}

#[test]
fn a_redis_conf_is_known_and_answered_with_the_same_settings() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis.conf");
    let conf = "# a comment\nport 6379\nmaxclients 100\nsave 900 1\nrequirepass \"secret\"\n\
                appendonly yes\nhz 50\nloadmodule /x.so\n";
    std::fs::write(&file, conf).unwrap();
    let (code, text) = ended(&["config", "--check", arg(&file)]);
    assert_eq!(code, 2, "{text}");
    for line in [
        "this is a redis.conf",
        "\nmaxclients = \"100\"\n",
        "\n# port: set 'listen' instead\n",
        "\n# save: ",
        "\nappendonly = \"yes\"\n",
        "\n# 'hz' has no effect here\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("secret"), "a password does not go to a log");
    let moved = dir.path().join("perdura.toml");
    let lines = text
        .lines()
        .skip(1)
        .filter(|line| line.contains(" = ") || line.starts_with('#'));
    std::fs::write(&moved, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let (code, text) = ended(&["config", "--check", arg(&moved)]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn a_database_that_is_open_elsewhere_is_told_of_before_any_address_is_bound() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let _first = Server::start(&data, &[]);
    let serve = ["serve", "--data", arg(&data), "--listen", "127.0.0.1:0"];
    let (code, text) = ended(&serve);
    assert_eq!(code, 1, "{text}");
    assert!(!text.contains("Listening on"), "{text}");
    assert_eq!(
        text.matches(arg(&data)).count(),
        3,
        "where, what is waited for, and what is locked: {text}"
    );
}

#[test]
fn the_help_of_export_names_only_what_matters_to_it() {
    let text = printed(&["export", "--help"], &[]);
    assert!(
        text.contains("--log-dir") && text.contains("--maxmemory"),
        "{text}"
    );
    for other in [
        "--segment-size",
        "--checkpoint-max",
        "--partitions",
        "--streams",
    ] {
        assert!(!text.contains(other), "{other}");
    }
}
