//! The rules for the equivalence of the two replies to a command.
//!
//! The replies to almost all commands must have equal bytes. This module has the exceptions. Each rule relaxes as
//! little as possible.

use crate::exceptions;
use crate::reply::{Body, Reply};

/// A command with our reply and Redis's reply.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The command.
    pub argv: Vec<Vec<u8>>,
    /// Our reply.
    pub ours: Reply,
    /// The reply of Redis.
    pub theirs: Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The bytes are equal.
    Exact,
    /// The items are equal, in any order.
    Sorted,
    /// The pairs of items are equal, in any order.
    Pairs,
    /// The numbers are equal, or they are not negative and differ by at most this number. This rule is for deadlines.
    Near(i64),
    /// The types and the lengths are equal. The contents may differ.
    Shape,
    /// The types and the lengths are equal. All texts occur in the reply to the previous command.
    Random,
    /// The types are equal. The contents may differ.
    Kind,
    /// The lists have equal commands, in any order. Exceptions are the commands that only we have, and the subcommands
    /// of CLUSTER: we refuse CLUSTER as a whole.
    Commands,
    /// A page of an iteration: a cursor and some items.
    Page,
}

fn rule(argv: &[Vec<u8>]) -> Rule {
    let word = |n: usize| {
        let word = argv.get(n).map_or(&b""[..], |word| word);
        String::from_utf8_lossy(word).to_ascii_uppercase()
    };
    match word(0).as_str() {
        "FUNCTION" if word(1) == "LIST" => Rule::Sorted,
        "FUNCTION" if word(1) == "DUMP" => Rule::Shape,
        "KEYS" | "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "HKEYS" | "HVALS" => Rule::Sorted,
        "PUBSUB" if word(1).ends_with("CHANNELS") => Rule::Sorted,
        "SORT" | "SORT_RO" if sorts_nothing(argv) && !has(argv, "LIMIT") => Rule::Sorted,
        "SORT" | "SORT_RO" if sorts_nothing(argv) && !has(argv, "STORE") => Rule::Shape,
        "HGETALL" => Rule::Pairs,
        "CONFIG" if word(1) == "GET" => Rule::Pairs,
        "TTL" | "EXPIRETIME" => Rule::Near(5),
        "PTTL" | "PEXPIRETIME" => Rule::Near(5000),
        "RANDOMKEY" | "SPOP" | "SRANDMEMBER" | "HRANDFIELD" | "ZRANDMEMBER" => Rule::Random,
        "SCAN" | "HSCAN" | "SSCAN" | "ZSCAN" => Rule::Page,
        "DUMP" | "TIME" | "LASTSAVE" | "HELLO" | "INFO" => Rule::Shape,
        "OBJECT" if matches!(word(1).as_str(), "REFCOUNT" | "IDLETIME" | "FREQ") => Rule::Shape,
        "CLIENT" if matches!(word(1).as_str(), "ID" | "LIST" | "INFO") => Rule::Shape,
        "COMMAND" if word(1) == "COUNT" => Rule::Shape,
        "COMMAND" if word(1) == "LIST" => Rule::Commands,
        "COMMAND" if matches!(word(1).as_str(), "" | "INFO" | "DOCS") => Rule::Kind,
        "MEMORY" if word(1) == "USAGE" => Rule::Shape,
        "SLOWLOG" if word(1) == "LEN" => Rule::Shape,
        // These replies contain the time since a delivery, or a number of nodes.
        "XPENDING" if argv.len() > 3 => Rule::Shape,
        "XINFO" if matches!(word(1).as_str(), "STREAM" | "CONSUMERS") => Rule::Shape,
        _ => Rule::Exact,
    }
}

/// Commands that Redis 7.0 does not have.
const LATER: [&[u8]; 10] = [
    b"backup",
    b"backup|create",
    b"backup|help",
    b"backup|list",
    b"backup|status",
    b"client|durability",
    b"client|receipt",
    b"client|setinfo",
    b"waitaof",
    b"waitdur",
];

fn has(argv: &[Vec<u8>], wanted: &str) -> bool {
    argv.iter()
        .any(|word| word.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// Returns whether the command is a SORT for which Redis defines no order. One case is a pattern of BY without `*`. The
/// other case is BY with ALPHA, which compares the weights as texts: two weights may be equal.
fn sorts_nothing(argv: &[Vec<u8>]) -> bool {
    argv.windows(2).any(|pair| {
        pair[0].eq_ignore_ascii_case(b"by") && (!pair[1].contains(&b'*') || has(argv, "ALPHA"))
    })
}

/// Returns whether the two replies to a command are equivalent, by the command's rule or by a listed exception.
/// `before` is the connection's previous command, with the replies.
pub fn same(argv: &[Vec<u8>], before: Option<&Seen>, ours: &Reply, theirs: &Reply) -> bool {
    ours == theirs || alike(argv, before, ours, theirs) || exceptions::allowed(argv, ours, theirs)
}

fn alike(argv: &[Vec<u8>], before: Option<&Seen>, ours: &Reply, theirs: &Reply) -> bool {
    if ours.is_error() || theirs.is_error() {
        return false;
    }
    match rule(argv) {
        Rule::Exact => false,
        Rule::Sorted => sorted(ours, 1) == sorted(theirs, 1),
        Rule::Pairs => sorted(ours, 2) == sorted(theirs, 2),
        Rule::Near(most) => match (ours.int(), theirs.int()) {
            (Some(a), Some(b)) => a >= 0 && b >= 0 && a.abs_diff(b) <= most.unsigned_abs(),
            _ => false,
        },
        Rule::Shape => shape(ours, theirs),
        Rule::Kind => ours.kind == theirs.kind,
        Rule::Commands => {
            let (mut ours, mut theirs) = (ours.leaves(), theirs.leaves());
            ours.retain(|name| !LATER.contains(name));
            theirs.retain(|name| !name.starts_with(b"cluster|"));
            ours.sort_unstable();
            theirs.sort_unstable();
            ours == theirs
        }
        Rule::Random => {
            let read = before.filter(|seen| seen.argv.get(1) == argv.get(1) || argv.len() == 1);
            let from = |reply: &Reply, read: Option<&Reply>| {
                let read = read.map(Reply::leaves);
                let leaves = reply.leaves();
                let apart = distinct(argv, &leaves);
                apart && read.is_none_or(|read| leaves.iter().all(|leaf| read.contains(leaf)))
            };
            shape(ours, theirs)
                && from(ours, read.map(|seen| &seen.ours))
                && from(theirs, read.map(|seen| &seen.theirs))
        }
        Rule::Page => {
            let page = |reply: &Reply| {
                let items = reply.items();
                items.len() == 2 && items[0].kind == b'$' && items[1].kind == b'*'
            };
            page(ours) && page(theirs)
        }
    }
}

/// Returns whether the members in a random reply are all distinct, or repeated members are allowed. The third word of
/// the command is the count. A negative count allows repeated members. So does a command with more or fewer words.
fn distinct(argv: &[Vec<u8>], leaves: &[&[u8]]) -> bool {
    if argv.len() != 3 || argv[2].starts_with(b"-") {
        return true;
    }
    let mut sorted = leaves.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() == leaves.len()
}

/// Returns the reply's type and its items. The items are divided into groups of `group` items, and the groups are
/// sorted.
fn sorted(reply: &Reply, group: usize) -> (u8, Vec<Vec<Reply>>) {
    let chunks = reply.items().chunks(group);
    let mut groups: Vec<Vec<Reply>> = chunks.map(<[Reply]>::to_vec).collect();
    groups.sort_unstable();
    (reply.kind, groups)
}

fn shape(ours: &Reply, theirs: &Reply) -> bool {
    ours.kind == theirs.kind
        && match (&ours.body, &theirs.body) {
            (Body::Text(_), Body::Text(_)) | (Body::Nil, Body::Nil) => true,
            (Body::Items(a), Body::Items(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| shape(a, b))
            }
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(bytes: &str) -> Reply {
        Reply::read(&mut bytes.as_bytes()).expect("a reply")
    }

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|w| w.as_bytes().to_vec()).collect()
    }

    #[test]
    fn order_is_forgiven_only_where_redis_leaves_it_open() {
        let (a, b) = (reply("*2\r\n+a\r\n+b\r\n"), reply("*2\r\n+b\r\n+a\r\n"));
        assert!(same(&words("smembers t"), None, &a, &b));
        assert!(!same(&words("LRANGE l 0 -1"), None, &a, &b));
        let (set, array) = (reply("~1\r\n+a\r\n"), reply("*1\r\n+a\r\n"));
        assert!(!same(&words("SMEMBERS t"), None, &set, &array));
    }

    #[test]
    fn a_deadline_has_a_tolerance_and_its_absence_has_none() {
        let ttl = words("TTL k");
        assert!(same(&ttl, None, &reply(":100\r\n"), &reply(":101\r\n")));
        assert!(!same(&ttl, None, &reply(":100\r\n"), &reply(":200\r\n")));
        assert!(!same(&ttl, None, &reply(":-1\r\n"), &reply(":0\r\n")));
        assert!(!same(&ttl, None, &reply(":-1\r\n"), &reply(":-2\r\n")));
    }

    #[test]
    fn a_random_member_must_have_been_there() {
        let members = reply("*2\r\n$1\r\na\r\n$1\r\nb\r\n");
        let before = Seen {
            argv: words("SMEMBERS t"),
            ours: members.clone(),
            theirs: members,
        };
        let (a, b, c) = (
            reply("$1\r\na\r\n"),
            reply("$1\r\nb\r\n"),
            reply("$1\r\nc\r\n"),
        );
        let spop = words("SPOP t");
        assert!(same(&spop, Some(&before), &a, &b));
        assert!(!same(&spop, Some(&before), &c, &b));
        let twice = reply("*2\r\n$1\r\na\r\n$1\r\na\r\n");
        let both = reply("*2\r\n$1\r\nb\r\n$1\r\na\r\n");
        assert!(!same(&words("SPOP t 2"), Some(&before), &twice, &both));
        assert!(same(
            &words("SRANDMEMBER t -2"),
            Some(&before),
            &twice,
            &both
        ));
    }
}
