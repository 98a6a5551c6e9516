//! Tests of client-side caches: which changes the server reports, to which clients, and when. The replies are from
//! Redis 7.0.15.

use super::client::{Client, Running, start};
use std::net::TcpStream;

type Tcp = Client<TcpStream>;

#[test]
fn tracking_answers_as_redis_does() {
    let running = start();
    running.connect().expect(&[
        ("CLIENT TRACKING", "-ERR wrong number of arguments for 'client|tracking' command"),
        ("CLIENT TRACKING maybe", "-ERR syntax error"),
        ("CLIENT TRACKING ON FOO", "-ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT", "-ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT x", "-ERR value is not an integer or out of range"),
        ("CLIENT TRACKING ON REDIRECT 0", "-ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING ON REDIRECT -5", "-ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING ON REDIRECT 99999", "-ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING ON PREFIX a", "-ERR PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING ON BCAST OPTIN", "-ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("CLIENT TRACKING ON BCAST OPTOUT", "-ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("CLIENT TRACKING ON OPTIN OPTOUT", "-ERR You can't specify both OPTIN mode and OPTOUT mode"),
        ("CLIENT TRACKING ON BCAST PREFIX ab PREFIX a", "-ERR Prefix 'ab' overlaps with another provided prefix 'a'. Prefixes for a single client must not overlap."),
        ("CLIENT TRACKING ON BCAST PREFIX x PREFIX", "-ERR syntax error"),
        ("CLIENT CACHING YES", "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"),
        ("CLIENT CACHING NO", "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"),
        ("CLIENT GETREDIR", ":-1"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"off\"], \"redirect\", :-1, \"prefixes\", []]"),
        ("CLIENT TRACKING OFF", "+OK"),
        ("CLIENT TRACKING OFF NOLOOP", "+OK"),
        ("CLIENT TRACKING ON", "+OK"),
        ("CLIENT GETREDIR", ":0"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"on\"], \"redirect\", :0, \"prefixes\", []]"),
        ("CLIENT CACHING YES", "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        ("CLIENT CACHING NO", "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
        ("CLIENT CACHING MAYBE", "-ERR syntax error"),
        ("CLIENT TRACKING ON BCAST", "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode."),
        ("CLIENT TRACKING ON OPTIN", "+OK"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"on\", \"optin\"], \"redirect\", :0, \"prefixes\", []]"),
        ("CLIENT CACHING YES", "+OK"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"on\", \"optin\", \"caching-yes\"], \"redirect\", :0, \"prefixes\", []]"),
        ("PING", "+PONG"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"on\", \"optin\"], \"redirect\", :0, \"prefixes\", []]"),
        ("CLIENT CACHING NO", "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
        ("CLIENT TRACKING ON OPTOUT", "-ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode."),
        ("CLIENT TRACKING ON NOLOOP", "+OK"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"on\", \"noloop\"], \"redirect\", :0, \"prefixes\", []]"),
        ("CLIENT TRACKING OFF", "+OK"),
        ("CLIENT TRACKING ON OPTOUT", "+OK"),
        ("CLIENT CACHING NO", "+OK"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"on\", \"optout\", \"caching-no\"], \"redirect\", :0, \"prefixes\", []]"),
        ("CLIENT CACHING YES", "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        ("CLIENT TRACKING OFF", "+OK"),
        ("CLIENT TRACKING ON BCAST PREFIX ab PREFIX c NOLOOP", "+OK"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"on\", \"bcast\", \"noloop\"], \"redirect\", :0, \"prefixes\", [\"ab\", \"c\"]]"),
        ("CLIENT TRACKING ON BCAST PREFIX abc", "-ERR Prefix 'abc' overlaps with an existing prefix 'ab'. Prefixes for a single client must not overlap."),
        ("CLIENT TRACKING ON BCAST PREFIX d", "+OK"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"on\", \"bcast\"], \"redirect\", :0, \"prefixes\", [\"ab\", \"c\", \"d\"]]"),
        ("CLIENT TRACKING ON", "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode."),
        ("CLIENT CACHING YES", "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        ("RESET", "+RESET"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"off\"], \"redirect\", :-1, \"prefixes\", []]"),
    ]);
}

/// Returns a client that speaks RESP3 and tracks its keys with these options.
fn tracking(running: &Running, options: &str) -> Tcp {
    let mut client = running.connect();
    assert!(client.send("HELLO 3").contains("\"proto\": :3"));
    let on = format!("CLIENT TRACKING ON {options}");
    assert_eq!(client.send(on.trim_end()), "+OK");
    client
}

/// Sends a PING, and returns all messages that the client receives before the reply.
fn told(client: &mut Tcp) -> Vec<String> {
    client.push(&[b"PING", b"there"]);
    let mut told = Vec::new();
    loop {
        let reply = client.read();
        if reply == "\"there\"" {
            return told;
        }
        told.push(reply);
    }
}

fn changed(keys: &[&str]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
    format!(">[\"invalidate\", [{}]]", keys.join(", "))
}

#[test]
fn a_reader_is_told_once_of_each_key_that_changes() {
    let running = start();
    let (mut reader, mut writer) = (tracking(&running, "NOLOOP"), running.connect());
    reader.expect(&[
        ("GET k", "nil"),
        ("MGET a b", "[nil, nil]"),
        ("HGETALL h", "{}"),
    ]);
    let info = writer.send("INFO");
    for figure in [
        "tracking_clients:1",
        "tracking_total_keys:4",
        "tracking_total_items:4",
    ] {
        assert!(info.contains(figure), "{figure}");
    }
    writer.expect(&[
        ("SET k v", "+OK"),
        ("SET k w", "+OK"),
        ("SET other v", "+OK"),
    ]);
    assert_eq!(told(&mut reader), [changed(&["k"])]);
    writer.expect(&[("MSET b 1 a 2", "+OK"), ("HSET h f v", ":1")]);
    assert_eq!(
        told(&mut reader),
        [changed(&["b"]), changed(&["a"]), changed(&["h"])]
    );
    assert_eq!(writer.figure("tracking_total_keys"), 0);
    // Tracking does not distinguish databases, and removing a key counts as a change.
    reader.expect(&[("GET k", "\"w\""), ("GET a", "\"2\"")]);
    writer.expect(&[("SELECT 3", "+OK"), ("SET k v", "+OK"), ("SELECT 0", "+OK")]);
    writer.expect(&[("RENAME a z", "+OK"), ("DEL z", ":1")]);
    assert_eq!(told(&mut reader), [changed(&["k"]), changed(&["a"])]);
    // For a script, the server tracks the keys that the caller names.
    reader.call(&[
        b"EVAL",
        b"return redis.call('GET', KEYS[1])",
        b"1",
        b"scripted",
    ]);
    writer.expect(&[("SET scripted v", "+OK")]);
    assert_eq!(told(&mut reader), [changed(&["scripted"])]);
    // The server reports nothing to a client that has turned tracking off, or to a client that has disconnected.
    reader.expect(&[("GET k", "\"w\""), ("CLIENT TRACKING OFF", "+OK")]);
    let mut leaving = tracking(&running, "");
    assert_eq!(leaving.send("GET k"), "\"w\"");
    drop(leaving);
    running.await_figure("connected_clients", 3);
    writer.expect(&[("SET k x", "+OK")]);
    assert_eq!(told(&mut reader), Vec::<String>::new());
    assert_eq!(writer.figure("tracking_clients"), 0);
}

#[test]
fn a_client_is_told_of_its_own_changes_behind_its_reply_unless_it_says_noloop() {
    let running = start();
    let mut client = tracking(&running, "");
    client.expect(&[("GET k", "nil"), ("SET k v", "+OK")]);
    assert_eq!(told(&mut client), [changed(&["k"])]);
    // A key that a block has read and then changed is reported.
    client.expect(&[
        ("MULTI", "+OK"),
        ("GET k", "+QUEUED"),
        ("APPEND k w", "+QUEUED"),
        ("EXEC", "[\"v\", :2]"),
    ]);
    assert_eq!(told(&mut client), [changed(&["k"])]);
    let mut other = tracking(&running, "NOLOOP");
    other.expect(&[("GET k", "\"vw\""), ("SET k x", "+OK")]);
    assert_eq!(told(&mut other), Vec::<String>::new());
    other.expect(&[("GET k", "\"x\"")]);
    client.expect(&[("SET k y", "+OK")]);
    assert_eq!(told(&mut other), [changed(&["k"])]);
}

#[test]
fn a_broadcast_is_of_every_key_with_a_prefix() {
    let running = start();
    let mut all = tracking(&running, "BCAST");
    let mut some = tracking(&running, "BCAST PREFIX user: PREFIX item: NOLOOP");
    let mut writer = running.connect();
    writer.expect(&[("MSET item:2 a item:1 a other a user:1 a", "+OK")]);
    assert_eq!(
        told(&mut all),
        [changed(&["item:1", "item:2", "other", "user:1"])]
    );
    assert_eq!(
        told(&mut some),
        [changed(&["item:1", "item:2"]), changed(&["user:1"])]
    );
    assert_eq!(writer.figure("tracking_total_prefixes"), 3);
    some.expect(&[("SET user:1 b", "+OK"), ("GET user:1", "\"b\"")]);
    assert_eq!(told(&mut some), Vec::<String>::new());
    assert_eq!(told(&mut all), [changed(&["user:1"])]);
    writer.expect(&[("DEL other", ":1")]);
    assert_eq!(told(&mut all), [changed(&["other"])]);
    assert_eq!(told(&mut some), Vec::<String>::new());
    drop(all);
    some.expect(&[("CLIENT TRACKING OFF", "+OK")]);
    running.await_figure("tracking_total_prefixes", 0);
}

#[test]
fn caching_says_of_one_command_or_block_whether_it_is_tracked() {
    let running = start();
    let (mut opt_in, mut opt_out) = (tracking(&running, "OPTIN"), tracking(&running, "OPTOUT"));
    let mut writer = running.connect();
    opt_in.expect(&[
        ("GET a", "nil"),
        ("CLIENT CACHING YES", "+OK"),
        ("GET b", "nil"),
        ("GET c", "nil"),
        ("CLIENT CACHING YES", "+OK"),
        ("MULTI", "+OK"),
        ("GET d", "+QUEUED"),
        ("GET e", "+QUEUED"),
        ("EXEC", "[nil, nil]"),
        ("GET f", "nil"),
    ]);
    opt_out.expect(&[
        ("GET a", "nil"),
        ("CLIENT CACHING NO", "+OK"),
        ("GET b", "nil"),
        ("GET c", "nil"),
    ]);
    writer.expect(&[("MSET a 1 b 1 c 1 d 1 e 1 f 1", "+OK")]);
    assert_eq!(
        told(&mut opt_in),
        [changed(&["b"]), changed(&["d"]), changed(&["e"])]
    );
    assert_eq!(told(&mut opt_out), [changed(&["a"]), changed(&["c"])]);
}

#[test]
fn another_client_is_told_in_resp2_by_a_channel_until_it_leaves() {
    let running = start();
    let (mut listener, mut writer) = (running.connect(), running.connect());
    let id = listener.send("CLIENT ID").replace(':', "");
    let redirect = format!("CLIENT TRACKING ON REDIRECT {id}");
    let mut old = running.connect();
    old.expect(&[(&redirect, "+OK"), ("GET k", "nil")]);
    // A listener that speaks RESP2 gets no report until it subscribes.
    writer.expect(&[("SET k v", "+OK")]);
    assert_eq!(
        listener.send("SUBSCRIBE __redis__:invalidate"),
        "[\"subscribe\", \"__redis__:invalidate\", :1]"
    );
    old.expect(&[("GET k", "\"v\"")]);
    writer.expect(&[("SET k w", "+OK")]);
    let message = "[\"message\", \"__redis__:invalidate\", [\"k\"]]";
    assert_eq!(listener.read(), message);
    writer.expect(&[("FLUSHALL", "+OK")]);
    let flushed = "[\"message\", \"__redis__:invalidate\", nil]";
    assert_eq!(listener.read(), flushed);
    let mut new = tracking(&running, &format!("REDIRECT {id}"));
    new.expect(&[("GET k", "nil"), ("CLIENT GETREDIR", &format!(":{id}"))]);
    let line = new.send("CLIENT INFO");
    assert!(
        line.contains("flags=t ") && line.contains(&format!("redir={id} ")),
        "{line}"
    );
    writer.expect(&[("SET k x", "+OK")]);
    assert_eq!(listener.read(), message);
    assert_eq!(told(&mut new), Vec::<String>::new());
    drop(listener);
    running.await_figure("connected_clients", 4);
    old.expect(&[("GET k", "\"x\"")]);
    new.expect(&[("GET k", "\"x\"")]);
    writer.expect(&[("SET k y", "+OK")]);
    assert_eq!(told(&mut old), Vec::<String>::new());
    assert_eq!(
        told(&mut new),
        [format!(">[\"tracking-redir-broken\", :{id}]")]
    );
    let info = new.send("CLIENT TRACKINGINFO");
    assert!(info.contains("[\"on\", \"broken_redirect\"]"), "{info}");
    assert!(new.send("CLIENT INFO").contains("flags=tR "));
    new.expect(&[("CLIENT TRACKING ON", "+OK"), ("GET k", "\"y\"")]);
    writer.expect(&[("SET k z", "+OK")]);
    assert_eq!(told(&mut new), [changed(&["k"])]);
}

#[test]
fn a_flush_and_a_swap_of_databases_change_everything() {
    let running = start();
    let (mut client, mut all) = (tracking(&running, ""), tracking(&running, "BCAST"));
    let mut writer = running.connect();
    let everything = ">[\"invalidate\", nil]";
    for command in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        client.expect(&[("GET k", "nil")]);
        writer.expect(&[(command, "+OK")]);
        assert_eq!(told(&mut client), [everything], "{command}");
        assert_eq!(told(&mut all), [everything], "{command}");
        assert_eq!(writer.figure("tracking_total_keys"), 0);
    }
    client.expect(&[("GET k", "nil"), ("FLUSHALL", "+OK")]);
    assert_eq!(told(&mut client), [everything]);
}

#[test]
fn a_key_that_the_purge_removes_has_changed() {
    let running = start();
    let mut writer = running.connect();
    writer.expect(&[("SET k v PX 60", "+OK")]);
    let (mut client, mut all) = (tracking(&running, ""), tracking(&running, "BCAST"));
    client.expect(&[("GET k", "\"v\"")]);
    assert_eq!(client.read(), changed(&["k"]));
    assert_eq!(all.read(), changed(&["k"]));
    client.expect(&[("GET k", "nil")]);
}

/// A table over its limit forgets keys and notifies the readers of the forgotten keys.
#[test]
fn the_table_is_bounded_and_no_reader_is_left_in_the_dark() {
    let running = start();
    let mut writer = running.connect();
    writer.expect(&[
        ("CONFIG SET tracking-table-max-keys 10", "+OK"),
        (
            "CONFIG GET tracking-table-max-keys",
            "[\"tracking-table-max-keys\", \"10\"]",
        ),
    ]);
    let mut client = tracking(&running, "");
    let mut heard = Vec::new();
    for n in 0..300 {
        client.push(&[b"GET", format!("k{n}").as_bytes()]);
        heard.extend(told(&mut client));
    }
    assert_eq!(writer.figure("tracking_total_keys"), 10);
    let nil = heard.iter().filter(|reply| *reply == "nil").count();
    assert_eq!((nil, heard.len()), (300, 590));
    for n in 0..300 {
        writer.expect(&[(&format!("SET k{n} v"), "+OK")]);
    }
    heard.extend(told(&mut client));
    for n in 0..300 {
        let of_key = heard
            .iter()
            .filter(|reply| **reply == changed(&[&format!("k{n}")]));
        assert_eq!(of_key.count(), 1, "k{n}");
    }
}
