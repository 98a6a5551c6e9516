//! The table of all commands, in alphabetical order.

use super::flag::{ADMIN, FAST, IMMEDIATE, LOADING, NO_AUTH, NO_MULTI, READ, WRITE};
use super::{
    Command, DataFn, Keys, PlainFn, Run, block, client, config, counters, describe, expiry, hello,
    info, keys, server, strings,
};

const fn data(name: &'static str, arity: i8, flags: u8, keys: Keys, run: DataFn) -> Command {
    Command {
        name,
        arity,
        flags,
        keys,
        words: &[],
        run: Run::Data(run),
    }
}

const fn plain(name: &'static str, arity: i8, flags: u8, run: PlainFn) -> Command {
    Command {
        name,
        arity,
        flags,
        keys: Keys::None,
        words: &[],
        run: Run::Plain(run),
    }
}

const fn family(
    name: &'static str,
    arity: i8,
    flags: u8,
    words: &'static [(&'static str, i8)],
    run: PlainFn,
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys: Keys::None,
        words,
        run: Run::Plain(run),
    }
}

/// The first argument.
const ONE: Keys = Keys::Range {
    first: 1,
    last: 1,
    step: 1,
};
/// Every argument.
const EACH: Keys = Keys::Range {
    first: 1,
    last: -1,
    step: 1,
};
/// Keys and values by turns.
const PAIRS: Keys = Keys::Range {
    first: 1,
    last: -1,
    step: 2,
};
const SET: u8 = WRITE | FAST;
const GET: u8 = READ | FAST;
const ANY: u8 = LOADING | NO_AUTH | IMMEDIATE | FAST;

/// Every command.
pub(crate) static COMMANDS: [Command; 57] = [
    data("append", 3, SET, ONE, strings::append),
    plain("auth", -2, LOADING | NO_AUTH | FAST, hello::auth),
    plain("bgsave", -1, ADMIN, server::bgsave),
    family("client", -2, LOADING, client::WORDS, client::client),
    family("command", -1, LOADING, describe::WORDS, describe::command),
    family("config", -2, LOADING | ADMIN, config::WORDS, config::config),
    data("dbsize", 1, GET, Keys::All, keys::dbsize),
    plain("debug", -2, LOADING | ADMIN, server::debug),
    data("decr", 2, SET, ONE, counters::decr),
    data("decrby", 3, SET, ONE, counters::decrby),
    data("del", -2, WRITE, EACH, keys::del),
    plain("discard", 1, LOADING | IMMEDIATE | FAST, block::discard),
    plain("echo", 2, FAST, server::echo),
    plain("exec", 1, LOADING | IMMEDIATE, block::exec),
    data("exists", -2, GET, EACH, keys::exists),
    data("expire", -3, SET, ONE, expiry::expire),
    data("expireat", -3, SET, ONE, expiry::expireat),
    data("expiretime", 2, GET, ONE, expiry::expiretime),
    data("flushall", -1, WRITE, Keys::All, keys::flushall),
    data("flushdb", -1, WRITE, Keys::All, keys::flushdb),
    data("get", 2, GET, ONE, strings::get),
    data("getdel", 2, SET, ONE, strings::getdel),
    data("getex", -2, SET, ONE, strings::getex),
    data("getset", 3, SET, ONE, strings::getset),
    plain("hello", -1, LOADING | NO_AUTH | FAST, hello::hello),
    data("incr", 2, SET, ONE, counters::incr),
    data("incrby", 3, SET, ONE, counters::incrby),
    data("incrbyfloat", 3, SET, ONE, counters::incrbyfloat),
    plain("info", -1, LOADING, info::info),
    plain("lastsave", 1, LOADING | FAST, server::lastsave),
    data("mget", -2, GET, EACH, strings::mget),
    data("mset", -3, WRITE, PAIRS, strings::mset),
    data("msetnx", -3, WRITE, PAIRS, strings::msetnx),
    plain("multi", 1, LOADING | IMMEDIATE | FAST, block::multi),
    data("persist", 2, SET, ONE, expiry::persist),
    data("pexpire", -3, SET, ONE, expiry::pexpire),
    data("pexpireat", -3, SET, ONE, expiry::pexpireat),
    data("pexpiretime", 2, GET, ONE, expiry::pexpiretime),
    plain("ping", -1, FAST, server::ping),
    data("psetex", 4, WRITE, ONE, strings::psetex),
    data("pttl", 2, GET, ONE, expiry::pttl),
    plain("quit", -1, ANY, server::quit),
    plain("reset", 1, ANY, hello::reset),
    plain("save", 1, ADMIN | NO_MULTI, server::save),
    plain("select", 2, LOADING | FAST, server::select),
    data("set", -3, WRITE, ONE, strings::set),
    data("setex", 4, WRITE, ONE, strings::setex),
    data("setnx", 3, SET, ONE, strings::setnx),
    plain("shutdown", -1, LOADING | NO_MULTI | ADMIN, server::shutdown),
    data("strlen", 2, GET, ONE, strings::strlen),
    plain("time", 1, LOADING | FAST, server::time),
    data("touch", -2, GET, EACH, keys::exists),
    data("ttl", 2, GET, ONE, expiry::ttl),
    data("type", 2, GET, ONE, keys::kind),
    data("unlink", -2, SET, EACH, keys::del),
    plain("unwatch", 1, LOADING | FAST, block::watch),
    plain("watch", -2, LOADING | IMMEDIATE | FAST, block::watch),
];
