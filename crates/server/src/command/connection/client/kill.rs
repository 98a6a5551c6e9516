//! CLIENT KILL, in the old form (an address) and the new form (filters).

use super::list::Kind;
use crate::command::{After, Cx, SYNTAX};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::session::Session;

#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    kind: Option<Kind>,
}

impl Filter<'_> {
    fn takes(&self, session: &Session) -> bool {
        let is = |wanted: Option<&[u8]>, has: &[u8]| wanted.is_none_or(|w| w == has);
        self.id.is_none_or(|id| session.seat.id == id)
            && is(self.peer, session.peer.as_bytes())
            && is(self.local, session.local.as_bytes())
            && is(self.user, session.user_name())
            && self.kind.is_none_or(|kind| Kind::of(session) == kind)
    }
}

/// `CLIENT KILL address`, `CLIENT KILL option value [option value …]`
pub(super) fn kill(cx: &mut Cx<'_>, args: &Args<'_>) {
    if args.len() == 3 {
        let filter = Filter {
            peer: Some(args.at(2)),
            ..Filter::default()
        };
        return match end(cx, &filter, false) {
            0 => cx.out.error("ERR No such client"),
            _ => cx.out.ok(),
        };
    }
    match parse(cx, args) {
        Ok((filter, skip_me)) => {
            let count = end(cx, &filter, skip_me);
            cx.out.count(count);
        }
        Err(error) => cx.out.error(&error),
    }
}

fn parse<'a>(cx: &Cx<'_>, args: &Args<'a>) -> Result<(Filter<'a>, bool), String> {
    let mut filter = Filter::default();
    let mut skip_me = true;
    let mut at = 2;
    while at < args.len() {
        if at + 1 == args.len() {
            return Err(String::from(SYNTAX));
        }
        let value = args.at(at + 1);
        match args.at(at).to_ascii_lowercase().as_slice() {
            b"id" => {
                let id = parse_i64(value).and_then(|id| u64::try_from(id).ok());
                let id = id.filter(|id| *id > 0);
                filter.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
            }
            b"type" => filter.kind = Some(Kind::parse(value)?),
            b"addr" => filter.peer = Some(value),
            b"laddr" => filter.local = Some(value),
            b"user" => {
                if cx.state.acl.user(value).is_none() {
                    let name = String::from_utf8_lossy(value);
                    return Err(format!("ERR No such user '{name}'"));
                }
                filter.user = Some(value);
            }
            b"skipme" if value.eq_ignore_ascii_case(b"YES") => skip_me = true,
            b"skipme" if value.eq_ignore_ascii_case(b"NO") => skip_me = false,
            _ => return Err(String::from(SYNTAX)),
        }
        at += 2;
    }
    Ok((filter, skip_me))
}

/// Disconnects the clients that a filter matches, and returns their number. If the client that sent the request is
/// one of them, it gets its reply first.
fn end(cx: &mut Cx<'_>, filter: &Filter<'_>, skip_me: bool) -> u64 {
    let others = cx.state.each().flat_map(|state| state.connections.iter());
    let others = others.map(|(_, c)| &c.session);
    let taken: Vec<_> = others
        .filter(|session| filter.takes(session))
        .map(|session| session.seat)
        .collect();
    let mut count = 0;
    for seat in taken {
        if let Some(state) = cx.state.at_loop(seat.event_loop) {
            state.kill(seat);
        }
        count += 1;
    }
    if !skip_me && filter.takes(cx.session) {
        cx.effects.after = After::Close;
        count += 1;
    }
    count
}
