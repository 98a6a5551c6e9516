//! What tools, client libraries and tear-downs of test suites ask, whose authors only ever met a Redis.

use super::client::start;

#[test]
fn there_are_no_scripts_functions_or_modules_and_a_client_that_asks_is_told_so() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("FUNCTION FLUSH", "+OK"),
        ("FUNCTION FLUSH SYNC", "+OK"),
        (
            "FUNCTION FLUSH FOO",
            "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
        ),
        ("FUNCTION LIST", "[]"),
        ("FUNCTION LIST LIBRARYNAME a WITHCODE", "[]"),
        ("FUNCTION LIST FOO", "-ERR Unknown argument FOO"),
        (
            "FUNCTION LIST LIBRARYNAME",
            "-ERR library name argument was not given",
        ),
        (
            "FUNCTION STATS",
            "[\"running_script\", nil, \"engines\", [\"LUA\", [\"libraries_count\", :0, \
             \"functions_count\", :0]]]",
        ),
        (
            "FUNCTION KILL",
            "-NOTBUSY No scripts in execution right now.",
        ),
        ("FUNCTION DELETE a", "-ERR Library not found"),
        (
            "FUNCTION FOO",
            "-ERR unknown subcommand 'FOO'. Try FUNCTION HELP.",
        ),
        ("SCRIPT FLUSH", "+OK"),
        ("SCRIPT FLUSH ASYNC", "+OK"),
        (
            "SCRIPT FLUSH a b",
            "-ERR SCRIPT FLUSH only support SYNC|ASYNC option",
        ),
        ("SCRIPT EXISTS a b", "[:0, :0]"),
        (
            "SCRIPT EXISTS",
            "-ERR wrong number of arguments for 'script|exists' command",
        ),
        ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now."),
        ("MODULE LIST", "[]"),
        ("MULTI", "+OK"),
        ("SCRIPT FLUSH", "+QUEUED"),
        ("EXEC", "[+OK]"),
    ]);
    for brings in [
        "SCRIPT LOAD x",
        "EVAL x 0",
        "EVALSHA x 0",
        "FCALL f 0",
        "FUNCTION LOAD x",
        "FUNCTION RESTORE x",
        "MODULE LOAD x",
    ] {
        let reply = client.send(brings);
        assert!(reply.contains(" is not supported: "), "{brings}: {reply}");
    }
}
