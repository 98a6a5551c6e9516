//! Channels: SUBSCRIBE and its relatives, PUBLISH, and questions about listeners (PUBSUB).
//!
//! SUBSCRIBE answers once for each name. The answers have the form of messages, so a client reads a
//! single stream of messages.

use crate::command::Cx;
use crate::command::flag::{APART, FAST, LOADING, PUBSUB};
use crate::command::spec::{Command, family, plain};
use crate::glob;
use crate::pubsub::{Subscriptions, Topic};
use crate::resp::parse::Args;
use crate::tell::InUse;

/// The second words of PUBSUB.
const WORDS: &[(&str, i8)] = &[
    ("channels", -2),
    ("help", 2),
    ("numpat", 2),
    ("numsub", -2),
    ("shardchannels", -2),
    ("shardnumsub", -2),
];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    plain("psubscribe", -2, LOADING | PUBSUB | APART, |cx, args| {
        subscribe(cx, args, Topic::Pattern)
    }),
    plain("publish", 3, LOADING | PUBSUB | FAST | APART, |cx, args| {
        publish(cx, args, Topic::Channel)
    }),
    family("pubsub", -2, LOADING | PUBSUB | APART, WORDS, pubsub),
    plain("punsubscribe", -1, LOADING | PUBSUB | APART, |cx, args| {
        unsubscribe(cx, args, Topic::Pattern)
    }),
    plain(
        "spublish",
        3,
        LOADING | PUBSUB | FAST | APART,
        |cx, args| publish(cx, args, Topic::Shard),
    ),
    plain("ssubscribe", -2, LOADING | PUBSUB | APART, |cx, args| {
        subscribe(cx, args, Topic::Shard)
    }),
    plain("subscribe", -2, LOADING | PUBSUB | APART, |cx, args| {
        subscribe(cx, args, Topic::Channel)
    }),
    plain("sunsubscribe", -1, LOADING | PUBSUB | APART, |cx, args| {
        unsubscribe(cx, args, Topic::Shard)
    }),
    plain("unsubscribe", -1, LOADING | PUBSUB | APART, |cx, args| {
        unsubscribe(cx, args, Topic::Channel)
    }),
];

fn confirm(cx: &mut Cx<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    let start = cx.out.buf.len();
    cx.out.push(3);
    cx.out.bulk(word.as_bytes());
    match name {
        Some(name) => cx.out.bulk(name),
        None => cx.out.null(),
    }
    cx.out.count(u64::try_from(count).unwrap_or(u64::MAX));
    cx.keep_push(start);
}

/// `SUBSCRIBE name [name …]`, PSUBSCRIBE and SSUBSCRIBE.
fn subscribe(cx: &mut Cx<'_>, args: &Args<'_>, topic: Topic) {
    let word = match topic {
        Topic::Channel => "subscribe",
        Topic::Pattern => "psubscribe",
        Topic::Shard => "ssubscribe",
    };
    if cx.in_block && topic == Topic::Shard {
        return cx
            .out
            .error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
    }
    let mut own = cx.session.subscriptions.take().unwrap_or_default();
    for name in args.from(1) {
        let who = cx.session.seat;
        cx.state
            .common
            .topics
            .with(|topics| topics.add(&mut own, topic, name, who));
        confirm(cx, word, Some(name), own.told(topic));
    }
    cx.session.subscriptions = Some(own);
}

/// `UNSUBSCRIBE [name …]`, PUNSUBSCRIBE and SUNSUBSCRIBE.
fn unsubscribe(cx: &mut Cx<'_>, args: &Args<'_>, topic: Topic) {
    let word = match topic {
        Topic::Channel => "unsubscribe",
        Topic::Pattern => "punsubscribe",
        Topic::Shard => "sunsubscribe",
    };
    let mut own: Box<Subscriptions> = cx.session.subscriptions.take().unwrap_or_default();
    let names: Vec<Vec<u8>> = if args.len() > 1 {
        args.from(1).map(<[u8]>::to_vec).collect()
    } else {
        own.names(topic).map(<[u8]>::to_vec).collect()
    };
    if names.is_empty() {
        confirm(cx, word, None, own.told(topic));
    }
    for name in &names {
        let id = cx.session.seat.id;
        cx.state
            .common
            .topics
            .with(|topics| topics.remove(&mut own, topic, name, id));
        confirm(cx, word, Some(name), own.told(topic));
    }
    if own.total() > 0 {
        cx.session.subscriptions = Some(own);
    }
}

/// `PUBLISH channel text`. If the client itself receives the message, the message comes before the
/// reply. A message waits until all earlier writes are durable. In a MULTI block it also waits for the
/// block's commit.
fn publish(cx: &mut Cx<'_>, args: &Args<'_>, topic: Topic) {
    let (channel, text) = (args.at(1), args.at(2));
    if cx.in_block {
        let message = cx.state.common.message(topic, channel, text);
        let count = message.count();
        if count > 0 {
            cx.effects.held_back.push(message);
        }
        return cx.out.count(count);
    }
    let newest = cx.state.newest();
    let count = cx.state.common.publish(topic, channel, text, newest);
    let start = cx.out.buf.len();
    let (session, to) = (&mut *cx.session, &mut *cx.out.buf);
    if let Some(epoch) = cx.state.deliver(Some(InUse { session, to })) {
        cx.effects.epoch = cx.effects.epoch.max(epoch);
    }
    cx.keep_push(start);
    cx.out.count(count);
}

/// `PUBSUB word …`
fn pubsub(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"channels" => channels(cx, args, Topic::Channel),
        b"shardchannels" => channels(cx, args, Topic::Shard),
        b"numsub" => listeners(cx, args, Topic::Channel),
        b"shardnumsub" => listeners(cx, args, Topic::Shard),
        b"numpat" => {
            let count = cx
                .state
                .common
                .topics
                .with(|topics| topics.count(Topic::Pattern));
            cx.out.count(u64::try_from(count).unwrap_or(u64::MAX));
        }
        _ => cx.out.help(&[
            "PUBSUB <subcommand> [<arg> ...]. Subcommands are:",
            "CHANNELS [<pattern>]: the channels that have subscribers.",
            "NUMPAT: how many patterns have subscribers.",
            "NUMSUB [<channel> ...]: how many subscribers each channel has by its name.",
            "SHARDCHANNELS [<pattern>], SHARDNUMSUB [<channel> ...]: the same of shard channels.",
        ]),
    }
}

fn channels(cx: &mut Cx<'_>, args: &Args<'_>, topic: Topic) {
    if args.len() > 3 {
        let word = String::from_utf8_lossy(args.at(1)).into_owned();
        return cx.out.error(&format!(
            "ERR unknown subcommand or wrong number of arguments for '{word}'. Try PUBSUB HELP."
        ));
    }
    let mut names = cx.state.common.topics.with(|topics| topics.names(topic));
    if args.len() == 3 {
        names.retain(|name| glob::matches(args.at(2), name));
    }
    names.sort_unstable();
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.bulk(name));
}

fn listeners(cx: &mut Cx<'_>, args: &Args<'_>, topic: Topic) {
    // Even in RESP3, Redis answers with an array and not with a map.
    cx.out.array((args.len() - 2) * 2);
    for name in args.from(2) {
        let count = cx
            .state
            .common
            .topics
            .with(|topics| topics.listeners(topic, name).count());
        cx.out.bulk(name);
        cx.out.count(u64::try_from(count).unwrap_or(u64::MAX));
    }
}
