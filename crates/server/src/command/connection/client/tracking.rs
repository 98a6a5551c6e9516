//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO: see [`crate::tracking`].

use super::on_or_off;
use crate::command::{Cx, NOT_INTEGER, SYNTAX};
use crate::number::parse_i64;
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::tracking::{Reads, Wanted};

/// `CLIENT TRACKING ON|OFF [REDIRECT id] [BCAST] [PREFIX prefix …] [OPTIN] [OPTOUT] [NOLOOP]`
pub(super) fn tracking(cx: &mut Cx<'_>, args: &Args<'_>) {
    let done = options(cx, args).and_then(|(wanted, both)| match on_or_off(args.at(2)) {
        Some(true) => {
            check(cx, &wanted, both)?;
            let session = &mut *cx.session;
            cx.state
                .common
                .tracking
                .with(|tracking| tracking.add(session, &wanted));
            Ok(())
        }
        Some(false) => {
            cx.state.forget_tracking(cx.session);
            Ok(())
        }
        None => Err(SYNTAX.into()),
    });
    match done {
        Ok(()) => cx.out.ok(),
        Err(error) => cx.out.error(&error),
    }
}

/// Returns the wanted settings, and whether OPTIN was given together with OPTOUT.
fn options<'a>(cx: &Cx<'_>, args: &Args<'a>) -> Result<(Wanted<'a>, bool), String> {
    let mut wanted = Wanted::default();
    let (mut opt_in, mut opt_out) = (false, false);
    let mut at = 3;
    while at < args.len() {
        let is = |name: &str| args.at(at).eq_ignore_ascii_case(name.as_bytes());
        let more = at + 1 < args.len();
        match () {
            () if is("REDIRECT") && more => {
                if wanted.redirect.is_some() {
                    return Err("ERR A client can only redirect to a single other client".into());
                }
                at += 1;
                let id = parse_i64(args.at(at)).ok_or(NOT_INTEGER)?;
                let seat = u64::try_from(id).ok().and_then(|id| seat_of(cx, id));
                let seat = seat.ok_or("ERR The client ID you want redirect to does not exist")?;
                wanted.redirect = Some(seat);
            }
            () if is("BCAST") => wanted.broadcast = true,
            () if is("OPTIN") => opt_in = true,
            () if is("OPTOUT") => opt_out = true,
            () if is("NOLOOP") => wanted.noloop = true,
            () if is("PREFIX") && more => {
                at += 1;
                wanted.prefixes.push(args.at(at));
            }
            () => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    wanted.reads = match (opt_in, opt_out) {
        (true, _) => Reads::OptIn,
        (false, true) => Reads::OptOut,
        (false, false) => Reads::None,
    };
    Ok((wanted, opt_in && opt_out))
}

fn seat_of(cx: &Cx<'_>, id: u64) -> Option<Seat> {
    if cx.session.seat.id == id {
        return Some(cx.session.seat);
    }
    let clients = cx.state.each().flat_map(|state| state.connections.iter());
    let mut seats = clients.map(|(_, c)| c.session.seat);
    seats.find(|seat| seat.id == id)
}

/// Refuses conflicting options, and options that contradict the client's earlier choice.
fn check(cx: &Cx<'_>, wanted: &Wanted<'_>, both: bool) -> Result<(), String> {
    let Wanted {
        broadcast, reads, ..
    } = *wanted;
    if !broadcast && !wanted.prefixes.is_empty() {
        return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
    }
    let before = cx.state.tracker(cx.session.seat.id);
    let before = before.as_ref();
    if before.is_some_and(|before| before.prefixes.is_some() != broadcast) {
        let text = "You can't switch BCAST mode on/off before disabling tracking for this client, \
                    and then re-enabling it with a different mode.";
        return Err(format!("ERR {text}"));
    }
    if broadcast && reads != Reads::None {
        return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
    }
    if both {
        return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
    }
    let switches = matches!(
        (cx.session.reads, reads),
        (Reads::OptIn, Reads::OptOut) | (Reads::OptOut, Reads::OptIn)
    );
    if switches {
        let text = "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
                    and then re-enabling it with a different mode.";
        return Err(format!("ERR {text}"));
    }
    let own = before.and_then(|before| before.prefixes.as_ref());
    for (at, prefix) in wanted.prefixes.iter().enumerate() {
        let overlaps = |other: &[u8]| prefix.starts_with(other) || other.starts_with(prefix);
        let others = &wanted.prefixes[at + 1..];
        let existing = own.into_iter().flatten().find(|own| overlaps(own));
        let (which, other) = match existing {
            Some(own) => ("an existing prefix", &**own),
            None => match others.iter().find(|other| overlaps(other)) {
                Some(other) => ("another provided prefix", *other),
                None => continue,
            },
        };
        let [prefix, other] = [prefix, other].map(String::from_utf8_lossy);
        return Err(format!(
            "ERR Prefix '{prefix}' overlaps with {which} '{other}'. Prefixes for a single client \
             must not overlap."
        ));
    }
    Ok(())
}

/// `CLIENT CACHING YES|NO`
pub(super) fn caching(cx: &mut Cx<'_>, word: &[u8]) {
    if cx.state.tracker(cx.session.seat.id).is_none() {
        return cx.out.error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        );
    }
    let (yes, no) = (
        word.eq_ignore_ascii_case(b"YES"),
        word.eq_ignore_ascii_case(b"NO"),
    );
    match cx.session.reads {
        Reads::OptIn if yes => {}
        Reads::OptOut if no => {}
        _ if yes => {
            return cx.out.error(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            );
        }
        _ if no => {
            return cx.out.error(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            );
        }
        _ => return cx.out.error(SYNTAX),
    }
    cx.session.caching = true;
    cx.out.ok();
}

/// `CLIENT GETREDIR`
pub(super) fn redirection(cx: &mut Cx<'_>) {
    let id = cx.state.redirection(cx.session.seat.id);
    cx.out.integer(id);
}

/// `CLIENT TRACKINGINFO`
pub(super) fn info(cx: &mut Cx<'_>) {
    let id = cx.session.seat.id;
    let tracker = cx.state.tracker(id);
    let tracker = tracker.as_ref();
    let broadcasts = tracker.is_some_and(|tracker| tracker.prefixes.is_some());
    let (reads, caching) = (cx.session.reads, cx.session.caching);
    let flags = [
        (tracker.is_some(), "on"),
        (tracker.is_none(), "off"),
        (broadcasts, "bcast"),
        (reads == Reads::OptIn, "optin"),
        (reads == Reads::OptIn && caching, "caching-yes"),
        (reads == Reads::OptOut, "optout"),
        (reads == Reads::OptOut && caching, "caching-no"),
        (tracker.is_some_and(|tracker| tracker.noloop), "noloop"),
        (
            tracker.is_some_and(|tracker| tracker.broken),
            "broken_redirect",
        ),
    ];
    let prefixes = tracker.and_then(|tracker| tracker.prefixes.as_ref());
    let out = &mut cx.out;
    out.map(3);
    out.bulk(b"flags");
    out.set(flags.iter().filter(|(on, _)| *on).count());
    for (_, name) in flags.iter().filter(|(on, _)| *on) {
        out.bulk(name.as_bytes());
    }
    out.bulk(b"redirect");
    out.integer(cx.state.redirection(id));
    out.bulk(b"prefixes");
    out.array(prefixes.map_or(0, |prefixes| prefixes.len()));
    for prefix in prefixes.into_iter().flatten() {
        out.bulk(prefix);
    }
}
