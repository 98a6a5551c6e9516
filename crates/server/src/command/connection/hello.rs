//! HELLO, AUTH and RESET: the client's user and its protocol.

use crate::acl;
use crate::command::connection::client::check_name;
use crate::command::flag::{APART, FAST, IMMEDIATE, LOADING, NO_AUTH, PROVES};
use crate::command::spec::{Command, plain};
use crate::command::{Cx, SYNTAX};
use crate::number::parse_i64;
use crate::resp::parse::Args;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    plain("auth", -2, LOADING | NO_AUTH | FAST | PROVES | APART, auth),
    plain(
        "hello",
        -1,
        LOADING | NO_AUTH | FAST | PROVES | APART,
        hello,
    ),
    plain(
        "reset",
        1,
        LOADING | NO_AUTH | IMMEDIATE | FAST | APART,
        reset,
    ),
];

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// The Redis version that clients see. Clients decide by it which commands they use.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// `AUTH [user] password`
pub(crate) fn auth(cx: &mut Cx<'_>, args: &Args<'_>) {
    let (user, password) = match args.len() {
        2 => (&b"default"[..], args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return cx.out.error(SYNTAX),
    };
    if args.len() == 2 && cx.state.acl.default_user().nopass {
        return cx.out.error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        );
    }
    if acl::login(cx.state, cx.session, "auth", user, password) {
        cx.out.ok();
    } else {
        cx.out.error(WRONG_PASSWORD);
    }
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
pub(crate) fn hello(cx: &mut Cx<'_>, args: &Args<'_>) {
    let mut resp3 = cx.session.resp3;
    if args.len() > 1 {
        match parse_i64(args.at(1)) {
            None => {
                return cx
                    .out
                    .error("ERR Protocol version is not an integer or out of range");
            }
            Some(2) => resp3 = false,
            Some(3) => resp3 = true,
            Some(_) => return cx.out.error("NOPROTO unsupported protocol version"),
        }
    }
    let mut name = None;
    let mut at = 2;
    while at < args.len() {
        let word = args.at(at);
        if word.eq_ignore_ascii_case(b"AUTH") && at + 2 < args.len() {
            let (user, password) = (args.at(at + 1), args.at(at + 2));
            if !acl::login(cx.state, cx.session, "hello", user, password) {
                return cx.out.error(WRONG_PASSWORD);
            }
            at += 3;
        } else if word.eq_ignore_ascii_case(b"SETNAME") && at + 1 < args.len() {
            if let Err(error) = check_name(args.at(at + 1)) {
                return cx.out.error(error);
            }
            name = Some(args.at(at + 1));
            at += 2;
        } else {
            let word = String::from_utf8_lossy(word);
            return cx
                .out
                .error(&format!("ERR Syntax error in HELLO option '{word}'"));
        }
    }
    if !cx.session.authenticated && !cx.state.acl.open() {
        return cx.out.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        cx.session.name = name.to_vec();
    }
    cx.session.resp3 = resp3;
    cx.out.resp3 = resp3;
    let id = i64::try_from(cx.session.seat.id).unwrap_or(i64::MAX);
    let out = &mut cx.out;
    out.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        out.bulk(key.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"proto");
    out.integer(if resp3 { 3 } else { 2 });
    out.bulk(b"id");
    out.integer(id);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        out.bulk(key.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"modules");
    out.array(0);
}

/// `RESET`
pub(crate) fn reset(cx: &mut Cx<'_>, _: &Args<'_>) {
    cx.state.forget(cx.session);
    cx.session.reset(&cx.state.acl, cx.state.options.durability);
    cx.out.resp3 = false;
    cx.out.simple("RESET");
}
