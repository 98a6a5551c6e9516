//! Tests of users, with the replies of Redis 7.0.15.

use super::client::{Client, Running, local, start, start_with};
use perdura_server::{ServeError, Server, ServerOptions};
use std::net::TcpStream;

const NO_KEY: &str =
    "-NOPERM this user has no permissions to access one of the keys used as arguments";

fn as_user(running: &Running, line: &str) -> Client<TcpStream> {
    let mut client = running.connect();
    assert_eq!(client.send(&format!("AUTH {line}")), "+OK");
    client
}

#[test]
fn a_user_does_what_its_rules_allow_and_nothing_else() {
    let running = start();
    let mut root = running.connect();
    root.expect(&[
        ("ACL WHOAMI", "\"default\""),
        ("ACL SETUSER c on >pw +@all -flushall %R~r* ~x*", "+OK"),
        ("SET r1 1", "+OK"),
        ("SET y 1", "+OK"),
    ]);
    let mut client = as_user(&running, "c pw");
    client.expect(&[
        ("ACL WHOAMI", "\"c\""),
        ("GET r1", "\"1\""),
        ("SET r1 2", NO_KEY),
        ("SET x r", "+OK"),
        ("GET y", NO_KEY),
        ("MGET x y", NO_KEY),
        ("STRLEN r1", ":1"),
        (
            "FLUSHALL",
            "-NOPERM this user has no permissions to run the 'flushall' command",
        ),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("MULTI", "+OK"),
        ("GET y", NO_KEY),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
        (
            "AUTH c no",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("PING", "+PONG"),
        ("RESET", "+RESET"),
        ("ACL WHOAMI", "\"default\""),
        ("GET y", "\"1\""),
    ]);
    // A change of rules applies to a connected client at once, and to the block that the client has queued.
    let mut client = as_user(&running, "c pw");
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET x 1", "+QUEUED"),
        ("GET r1", "+QUEUED"),
    ]);
    root.expect(&[("ACL SETUSER c -set", "+OK")]);
    client.expect(&[(
        "EXEC",
        "[-NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
         EXEC call. This command is no longer allowed for the following reason: no permission to \
         run the command or subcommand, \"1\"]",
    )]);
    client.expect(&[
        (
            "SET x 1",
            "-NOPERM this user has no permissions to run the 'set' command",
        ),
        ("CONFIG GET maxclients", "[\"maxclients\", \"10000\"]"),
    ]);
    root.expect(&[("ACL SETUSER c -config|get", "+OK")]);
    client.expect(&[(
        "CONFIG GET maxclients",
        "-NOPERM this user has no permissions to run the 'config|get' command",
    )]);
    assert!(root.send("CLIENT LIST").contains("user=c "));
    root.expect(&[("ACL DELUSER c nobody", ":1")]);
    assert_eq!(client.read(), "closed");
    root.expect(&[
        (
            "ACL DELUSER default",
            "-ERR The 'default' user cannot be removed",
        ),
        ("ACL USERS", "[\"default\"]"),
    ]);
}

#[test]
fn dryrun_and_the_log_tell_what_was_denied() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("ACL SETUSER c on nopass +@all ~x* &ch* -flushall", "+OK"),
        (
            "ACL SETUSER b +@transaction +config|get +select|0 (+set %W~z)",
            "+OK",
        ),
        (
            "ACL LIST",
            "[\"user b off resetchannels -@all +@transaction +config|get +select|0 (%W~z \
             resetchannels -@all +set)\", \"user c on nopass ~x* resetchannels &ch* +@all \
             -flushall\", \"user default on nopass ~* &* +@all\"]",
        ),
        (
            "ACL GETUSER c",
            "[\"flags\", [\"on\", \"nopass\"], \"passwords\", [], \"commands\", \"+@all \
             -flushall\", \"keys\", \"~x*\", \"channels\", \"&ch*\", \"selectors\", []]",
        ),
        ("ACL GETUSER nobody", "nil"),
        (
            "ACL DRYRUN c get y",
            "\"This user has no permissions to access the 'y' key\"",
        ),
        ("ACL DRYRUN c get x", "+OK"),
        (
            "ACL DRYRUN c flushall",
            "\"This user has no permissions to run the 'flushall' command\"",
        ),
        ("ACL DRYRUN c nosuch", "-ERR Command 'nosuch' not found"),
        (
            "ACL DRYRUN c config nosuch",
            "-ERR Command 'config' not found",
        ),
        ("ACL DRYRUN zz get", "-ERR User 'zz' not found"),
        (
            "ACL DRYRUN c get",
            "-ERR wrong number of arguments for 'get' command",
        ),
        ("ACL DRYRUN b config get a", "+OK"),
        (
            "ACL DRYRUN b config set a b",
            "\"This user has no permissions to run the 'config|set' command\"",
        ),
        ("ACL DRYRUN b select 0", "+OK"),
        ("ACL DRYRUN b set z 1", "+OK"),
        (
            "ACL DRYRUN b set z 1 GET",
            "\"This user has no permissions to access the 'z' key\"",
        ),
        ("ACL CAT nosuch", "-ERR Unknown category 'nosuch'"),
        (
            "ACL CAT transaction",
            "[\"discard\", \"exec\", \"multi\", \"unwatch\", \"watch\"]",
        ),
        (
            "ACL GENPASS x",
            "-ERR value is not an integer or out of range",
        ),
        ("ACL LOG RESET", "+OK"),
        ("ACL LOG", "[]"),
        (
            "ACL SETUSER",
            "-ERR wrong number of arguments for 'acl|setuser' command",
        ),
        (
            "ACL SETUSER c foo",
            "-ERR Error in ACL SETUSER modifier 'foo': Syntax error",
        ),
    ]);
    assert_eq!(
        client.call(&[b"ACL", b"SETUSER", b"a b"]),
        "-ERR Usernames can't contain spaces or null characters"
    );
    assert!(
        client
            .send("ACL GENPASS 0")
            .starts_with("-ERR ACL GENPASS argument must be")
    );
    assert_eq!(client.send("ACL GENPASS").len(), 66);
    assert_eq!(client.send("ACL GENPASS 5").len(), 4);
    assert!(
        client
            .send("ACL SAVE")
            .starts_with("-ERR This Redis instance is not configured")
    );
    let mut limited = as_user(&running, "c any");
    for line in ["GET y", "GET y", "AUTH zz qq", "FLUSHALL"] {
        assert!(limited.send(line).starts_with('-'));
    }
    let log = client.send("ACL LOG");
    for part in [
        "[\"count\", :2, \"reason\", \"key\", \"context\", \"toplevel\", \"object\", \"y\", \
         \"username\", \"c\", \"age-seconds\", \"0.",
        "\"reason\", \"auth\", \"context\", \"toplevel\", \"object\", \"auth\", \"username\", \"zz\"",
        "[[\"count\", :1, \"reason\", \"command\", \"context\", \"toplevel\", \"object\", \
         \"flushall\"",
    ] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
}

#[test]
fn users_survive_in_the_acl_file_and_a_broken_file_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("users.acl");
    std::fs::write(&file, "user alice on >secret ~* +@all\n").expect("a file");
    let options = ServerOptions {
        aclfile: Some(file.clone()),
        ..local()
    };
    let running = start_with(options.clone());
    let mut client = as_user(&running, "alice secret");
    client.expect(&[
        ("ACL SETUSER bob on >b ~b* +get", "+OK"),
        ("ACL SAVE", "+OK"),
    ]);
    let saved = std::fs::read_to_string(&file).expect("a file");
    assert!(
        saved.contains("user bob on #") && !saved.contains("secret"),
        "{saved}"
    );
    client.expect(&[("ACL SETUSER carol on nopass +@all ~*", "+OK")]);
    let mut carol = as_user(&running, "carol x");
    std::fs::write(&file, format!("{saved}user bob off\n")).expect("a file");
    let refused = client.send("ACL LOAD");
    assert!(
        refused.contains("Duplicate user 'bob'") && refused.ends_with("rules was performed"),
        "{refused}"
    );
    carol.expect(&[("PING", "+PONG")]);
    std::fs::write(&file, saved).expect("a file");
    client.expect(&[("ACL LOAD", "+OK"), ("PING", "+PONG")]);
    assert_eq!(carol.read(), "closed");
    drop(client);
    running.server.stop().expect("a clean end");
    let running = start_with(options.clone());
    as_user(&running, "bob b").expect(&[("GET b", "nil"), ("GET c", NO_KEY)]);
    std::fs::write(&file, "user x +nosuch\n").expect("a file");
    let data = dir.path().join("db");
    let error = Server::start(options, super::client::small(&data));
    assert!(matches!(error, Err(ServeError::Users(_))), "{error:?}");
}

#[test]
fn users_of_the_configuration_and_the_password_are_one_list() {
    let running = start_with(ServerOptions {
        users: vec![
            String::from("alice on >a ~* +@read"),
            String::from("bob off nopass"),
        ],
        requirepass: Some(String::from("secret")),
        ..local()
    });
    let mut client = running.connect();
    client.expect(&[
        ("PING", "-NOAUTH Authentication required."),
        (
            "AUTH bob x",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("AUTH alice a", "+OK"),
        (
            "SET k v",
            "-NOPERM this user has no permissions to run the 'set' command",
        ),
        ("AUTH secret", "+OK"),
        ("SET k v", "+OK"),
        ("ACL SETUSER default nopass", "+OK"),
    ]);
    running.connect().expect(&[("PING", "+PONG")]);
    client.expect(&[("CONFIG SET requirepass other", "+OK"), ("GET k", "\"v\"")]);
    running.connect().expect(&[
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH other", "+OK"),
        (
            "CONFIG SET requirepass",
            "-ERR wrong number of arguments for 'config|set' command",
        ),
    ]);
    client.call(&[b"CONFIG", b"SET", b"requirepass", b""]);
    running.connect().expect(&[("PING", "+PONG")]);
    let exposed = ServerOptions {
        listen: vec!["0.0.0.0:0".parse().expect("any")],
        allow_plaintext: true,
        users: vec![String::from("alice on >a ~* +@read")],
        ..local()
    };
    let dir = tempfile::tempdir().expect("a directory");
    let error = Server::start(exposed, super::client::small(dir.path()));
    let error = error.expect_err("default needs no password").to_string();
    assert!(
        error.contains("0.0.0.0:0") && error.contains("password"),
        "{error}"
    );
}

#[test]
fn sort_reaches_other_keys_only_for_who_may_read_all() {
    let running = start();
    let mut client = running.connect();
    if client.send("SORT k").starts_with("-ERR unknown command") {
        return;
    }
    client.expect(&[
        ("ACL SETUSER some on nopass +@all ~x*", "+OK"),
        ("ACL SETUSER all on nopass +@all %R~* ~x", "+OK"),
        ("AUTH some x", "+OK"),
        (
            "SORT x BY w_*",
            "-ERR BY option of SORT denied due to insufficient ACL permissions.",
        ),
        (
            "SORT x GET #",
            "-ERR GET option of SORT denied due to insufficient ACL permissions.",
        ),
        ("SORT x BY nosort", "[]"),
        ("SORT x STORE y", NO_KEY),
        ("AUTH all x", "+OK"),
        ("SORT x BY w_*", "[]"),
        ("SORT x STORE y", NO_KEY),
    ]);
}

/// A regression test for a mistake that a review found. SORT stores its result under the key that follows STORE. This
/// key can have the name of an option, for example `by`. The access check took such a key for the option, although the
/// command took it for a key. So a user could read and write any key.
#[test]
fn sort_is_checked_for_the_keys_that_it_touches_whatever_these_are_called() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("SET secret:1 hidden", "+OK"),
        ("ACL SETUSER some on nopass +@all ~x* ~by ~limit", "+OK"),
        ("AUTH some x", "+OK"),
        ("RPUSH x 1", ":1"),
        ("SORT x STORE by STORE victim", NO_KEY),
        ("SORT x STORE limit STORE victim", NO_KEY),
        (
            "SORT x BY nosort STORE limit GET secret:*",
            "-ERR GET option of SORT denied due to insufficient ACL permissions.",
        ),
        ("SORT x STORE limit", ":1"),
    ]);
}

#[test]
fn memory_usage_tells_only_of_keys_that_a_user_may_touch() {
    let running = start();
    let mut root = running.connect();
    root.expect(&[
        ("ACL SETUSER m on >pw +@all ~mine*", "+OK"),
        ("SET other 1", "+OK"),
    ]);
    as_user(&running, "m pw").expect(&[
        ("MEMORY USAGE other", NO_KEY),
        ("MEMORY USAGE mine", "nil"),
        ("MEMORY PURGE", "+OK"),
    ]);
}

#[test]
fn the_options_of_sort_are_judged_again_when_a_block_runs() {
    let running = start();
    let mut root = running.connect();
    root.expect(&[
        ("ACL SETUSER s on >pw +@all %RW~*", "+OK"),
        ("RPUSH l 2 1", ":2"),
    ]);
    let mut client = as_user(&running, "s pw");
    client.expect(&[
        ("MULTI", "+OK"),
        ("SORT l BY w*", "+QUEUED"),
        ("SORT l", "+QUEUED"),
    ]);
    root.expect(&[("ACL SETUSER s resetkeys ~l", "+OK")]);
    client.expect(&[(
        "EXEC",
        "[-ERR BY option of SORT denied due to insufficient ACL permissions., [\"1\", \"2\"]]",
    )]);
}

#[test]
fn who_waits_for_a_key_is_judged_again_when_it_comes() {
    let running = start();
    let mut root = running.connect();
    root.expect(&[
        ("ACL SETUSER b on >pw +@all ~l", "+OK"),
        ("ACL SETUSER gone on >pw +@all ~*", "+OK"),
    ]);
    let mut denied = as_user(&running, "b pw");
    denied.push(&[b"BLPOP", b"l", b"0"]);
    let mut removed = as_user(&running, "gone pw");
    removed.push(&[b"BLPOP", b"l", b"0"]);
    running.await_figure("blocked_clients", 2);
    root.expect(&[
        ("ACL SETUSER b resetkeys ~other", "+OK"),
        ("ACL DELUSER gone", ":1"),
        ("RPUSH l 1", ":1"),
        ("LRANGE l 0 -1", "[\"1\"]"),
    ]);
    assert_eq!(denied.read(), NO_KEY);
    denied.expect(&[("ACL WHOAMI", "\"b\"")]);
}
