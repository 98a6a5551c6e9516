//! ACL: users and their rules, shown and changed.

use crate::acl::catalog::{CATEGORIES, category_number};
use crate::acl::selector::Selector;
use crate::acl::{self, CATALOG, User};
use crate::command::flag::{ADMIN, ALONE, APART, LOADING, PROVES};
use crate::command::spec::{Command, family};
use crate::command::{Cx, NOT_INTEGER, wrong_arity};
use crate::denial::Reason;
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family(
    "acl",
    -2,
    LOADING | ADMIN | ALONE | APART | PROVES,
    WORDS,
    acl,
)];

/// The second words of ACL.
const WORDS: &[(&str, i8)] = &[
    ("cat", -2),
    ("deluser", -3),
    ("dryrun", -4),
    ("genpass", -2),
    ("getuser", 3),
    ("help", 2),
    ("list", 2),
    ("load", 2),
    ("log", -2),
    ("save", 2),
    ("setuser", -3),
    ("users", 2),
    ("whoami", 2),
];

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want \
                       to specify users via the ACL SETUSER command and then issue a CONFIG \
                       REWRITE (assuming you have a Redis configuration file set) in order to \
                       store users in the Redis configuration.";
/// The error if a block needs the hash of a password that the block itself has set. Outside of blocks the command waits
/// for the hash.
const HASHING: &str = "TRYAGAIN a password is still being hashed; ask outside of MULTI";
/// The default strength of a generated password, in bits.
const PASSWORD_BITS: i64 = 256;
/// The greatest strength of a generated password, in bits.
const PASSWORD_BITS_MAX: i64 = 4096;
/// The number of entries that ACL LOG shows by default.
const LOG_SHOWN: usize = 10;

/// `ACL word …`
fn acl(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"cat" => cat(cx, args),
        b"deluser" => deluser(cx, args),
        b"dryrun" => dryrun(cx, args),
        b"genpass" => genpass(cx, args),
        b"getuser" => getuser(cx, args),
        b"list" => {
            let lines = cx.state.acl.users().map(|user| user.describe());
            let Some(lines) = lines.collect::<Option<Vec<_>>>() else {
                return cx.out.error(HASHING);
            };
            cx.out.array(lines.len());
            for line in lines {
                cx.out.bulk(&[&b"user "[..], &line].concat());
            }
        }
        b"load" => load(cx),
        b"log" => log(cx, args),
        b"save" => save(cx),
        b"setuser" => setuser(cx, args),
        b"users" => {
            let names: Vec<_> = cx.state.acl.users().map(|user| user.name.clone()).collect();
            cx.out.array(names.len());
            for name in names {
                cx.out.bulk(&name);
            }
        }
        b"whoami" => cx.out.bulk(&cx.session.user.name),
        _ => help(&mut cx.out),
    }
}

/// `ACL CAT [category]`
fn cat(cx: &mut Cx<'_>, args: &Args<'_>) {
    if args.len() == 2 {
        cx.out.array(CATEGORIES.len());
        for name in CATEGORIES {
            cx.out.bulk(name.as_bytes());
        }
        return;
    }
    if args.len() > 3 {
        return cx.out.error(&wrong_arity("acl|cat"));
    }
    let Some(category) = category_number(args.at(2)) else {
        let name = String::from_utf8_lossy(args.at(2));
        return cx.out.error(&format!("ERR Unknown category '{name}'"));
    };
    let held = || CATALOG.iter().filter(|(_, entry)| entry.is_in(category));
    cx.out.array(held().count());
    for (_, entry) in held() {
        cx.out.bulk(entry.name.as_bytes());
    }
}

/// Gives the changed users to all sessions. Disconnects the clients of users that no longer exist.
fn spread(cx: &mut Cx<'_>) {
    if !acl::spread(cx.state, cx.session) {
        cx.effects.after = crate::command::After::Close;
    }
}

/// `ACL DELUSER name …`
fn deluser(cx: &mut Cx<'_>, args: &Args<'_>) {
    if args.from(2).any(|name| name == b"default") {
        return cx.out.error("ERR The 'default' user cannot be removed");
    }
    let removed = args
        .from(2)
        .filter(|name| cx.state.acl.remove(name))
        .count();
    spread(cx);
    cx.out.count(u64::try_from(removed).unwrap_or(0));
}

/// `ACL SETUSER name rule …`
fn setuser(cx: &mut Cx<'_>, args: &Args<'_>) {
    if args.at(2).is_empty() {
        return cx.out.error("ERR Usernames can't be empty");
    }
    if !acl::is_name(args.at(2)) {
        let text = "ERR Usernames can't contain spaces or null characters";
        return cx.out.error(text);
    }
    let all_channels = cx.state.options.acl_all_channels();
    match cx
        .state
        .acl
        .set_user(args.at(2), args.from(3), all_channels)
    {
        Ok(()) => {
            spread(cx);
            cx.out.ok();
        }
        Err(error) => cx.out.error(&format!("ERR {error}")),
    }
}

/// `ACL GETUSER name`
fn getuser(cx: &mut Cx<'_>, args: &Args<'_>) {
    let Some(user) = cx.state.acl.user(args.at(2)) else {
        return cx.out.null();
    };
    let passwords = user.passwords.iter().map(|secret| secret.text());
    let Some(passwords) = passwords.collect::<Option<Vec<_>>>() else {
        return cx.out.error(HASHING);
    };
    let out = &mut cx.out;
    out.map(6);
    out.bulk(b"flags");
    out.set(user.flags().count());
    for flag in user.flags() {
        out.bulk(flag.as_bytes());
    }
    out.bulk(b"passwords");
    out.array(passwords.len());
    for text in passwords {
        out.bulk(text.as_bytes());
    }
    describe(&user.root, out);
    out.bulk(b"selectors");
    out.array(user.selectors.len());
    for selector in &user.selectors {
        out.map(3);
        describe(selector, out);
    }
}

fn describe(selector: &Selector, out: &mut Out<'_>) {
    for (name, text) in [
        ("commands", selector.describe_commands()),
        ("keys", selector.describe_keys()),
        ("channels", selector.describe_channels()),
    ] {
        out.bulk(name.as_bytes());
        out.bulk(&text);
    }
}

/// `ACL DRYRUN name command …`
fn dryrun(cx: &mut Cx<'_>, args: &Args<'_>) {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(user) = cx.state.acl.user(args.at(2)) else {
        let name = shown(args.at(2));
        return cx.out.error(&format!("ERR User '{name}' not found"));
    };
    let request = args.tail(3);
    let command = cx.state.lookup.find(request.at(0));
    let known = command.filter(|command| {
        let word = request.from(1).next();
        word.is_none_or(|word| command.has_word(word))
    });
    let Some(command) = known else {
        let name = shown(request.at(0));
        return cx.out.error(&format!("ERR Command '{name}' not found"));
    };
    if let Err(error) = command.check_shape(&request) {
        return cx.out.error(&error);
    }
    let Err(denied) = User::check(user, command, &request) else {
        return cx.out.ok();
    };
    let object = shown(&denied.object);
    let text = match denied.reason {
        Reason::Command => format!("run the '{object}' command"),
        Reason::Key => format!("access the '{object}' key"),
        Reason::Channel | Reason::Auth => format!("access the '{object}' channel"),
    };
    let text = format!("This user has no permissions to {text}");
    cx.out.bulk(text.as_bytes());
}

/// `ACL GENPASS [bits]`
fn genpass(cx: &mut Cx<'_>, args: &Args<'_>) {
    let bits = match args.len() {
        2 => Some(PASSWORD_BITS),
        _ => parse_i64(args.at(2)),
    };
    let Some(bits) = bits else {
        return cx.out.error(NOT_INTEGER);
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return cx.out.error(&format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to {PASSWORD_BITS_MAX}"
        ));
    }
    let digits = usize::try_from(bits).unwrap_or_default().div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    let random = rustls::crypto::ring::default_provider().secure_random;
    match random.fill(&mut bytes) {
        Ok(()) => cx.out.bulk(&acl::hex(&bytes).as_bytes()[..digits]),
        Err(_) => cx.out.error("ERR the system has no random bytes to give"),
    }
}

/// `ACL LOG [count|RESET]`
fn log(cx: &mut Cx<'_>, args: &Args<'_>) {
    let mut shown = LOG_SHOWN;
    if args.len() > 2 {
        if args.at(2).eq_ignore_ascii_case(b"RESET") {
            cx.state.common.denials.lock().clear();
            return cx.out.ok();
        }
        match parse_i64(args.at(2)) {
            Some(count) => shown = usize::try_from(count).unwrap_or(0),
            None => return cx.out.error(NOT_INTEGER),
        }
    }
    let denials = cx.state.common.denials.lock();
    let entries = denials.iter();
    let out = &mut cx.out;
    out.array(entries.len().min(shown));
    for entry in entries.take(shown) {
        let age = cx
            .state
            .now
            .saturating_duration_since(entry.at)
            .as_secs_f64();
        out.map(7);
        out.bulk(b"count");
        out.count(entry.count);
        for (name, text) in [
            ("reason", entry.reason().as_bytes()),
            ("context", entry.context().as_bytes()),
            ("object", &entry.denied.object),
            ("username", &entry.user),
        ] {
            out.bulk(name.as_bytes());
            out.bulk(text);
        }
        out.bulk(b"age-seconds");
        let age = format!("{age:.3}");
        if out.resp3 {
            out.buf.extend_from_slice(format!(",{age}\r\n").as_bytes());
        } else {
            out.bulk(age.as_bytes());
        }
        out.bulk(b"client-info");
        out.bulk(entry.client.as_bytes());
    }
}

/// `ACL LOAD`
fn load(cx: &mut Cx<'_>) {
    let Some(path) = cx.state.options.aclfile.clone() else {
        return cx.out.error(NO_FILE);
    };
    let all_channels = cx.state.options.acl_all_channels();
    match cx.state.acl.load(&path, all_channels) {
        Ok(()) => {
            spread(cx);
            cx.out.ok();
        }
        Err(error) => cx.out.error(&format!(
            "ERR {error} WARNING: ACL errors detected, no change to the previously active ACL \
             rules was performed"
        )),
    }
}

/// `ACL SAVE`
fn save(cx: &mut Cx<'_>) {
    let Some(path) = &cx.state.options.aclfile else {
        return cx.out.error(NO_FILE);
    };
    if !cx.state.acl.is_hashed() {
        return cx.out.error(HASHING);
    }
    match cx.state.acl.save(path) {
        Ok(()) => cx.out.ok(),
        Err(error) => {
            tracing::error!("Cannot write {}: {error}", path.display());
            cx.out.error(
                "ERR There was an error trying to save the ACLs. Please check the server logs for \
                 more information",
            );
        }
    }
}

fn help(out: &mut Out<'_>) {
    let lines = [
        "ACL <subcommand> [<arg> ...]. Subcommands are:",
        "CAT [<category>]: the categories, or the commands of one.",
        "DELUSER <name> ...: removes users.",
        "DRYRUN <name> <command> [<arg> ...]: whether a user may run a command.",
        "GENPASS [<bits>]: a random password.",
        "GETUSER <name>, LIST, USERS: users and their rules.",
        "LOAD, SAVE: reads or writes the ACL file.",
        "LOG [<count>|RESET]: who was denied what.",
        "SETUSER <name> [<rule> ...]: makes or changes a user.",
        "WHOAMI: the user of this connection.",
    ];
    out.array(lines.len());
    for line in lines {
        out.simple(line);
    }
}
